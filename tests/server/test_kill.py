"""A server that is killed while it drives many sessions, and several servers over one store."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pausepoint import Engine
from tests.server.fleet import fleet
from tests.server.kit import served
from tests.server.processes import Process
from tests.support.waits import until

MANY = 100
TARGET = "tests.server.fleet:fleet"


async def prepared(folder: Path) -> None:
    async with Engine(folder / "store.db", drives="none") as engine:
        for number in range(MANY):
            name = f"s{number}"
            await engine.start(fleet, session_id=name, paused=True, name=name, place=str(folder))


async def states(folder: Path) -> set[tuple[str, ...]]:
    async with Engine(folder / "store.db", workflows=[fleet]) as engine:
        for session_id in await engine.take_ready():  # the last ones may have been cut off after their last operation
            await engine.session(session_id).outcome()
        ids = [info.session_id for info in await engine.sessions(status="completed")]
        found = [(await engine.session(session_id).stored()).values for session_id in ids]
    assert len(found) == MANY
    return {tuple(each["done"]) for each in found}


def effects(folder: Path) -> Counter[str]:
    """How often each operation of each session had its effect."""
    return Counter((folder / "effects").read_text().splitlines()) if (folder / "effects").exists() else Counter()


@pytest.mark.long
def test_a_server_that_is_killed_with_a_hundred_running_sessions_loses_and_doubles_nothing(tmp_path: Path) -> None:
    asyncio.run(prepared(tmp_path))
    resume = {"verb": "resume", "filter": {"workflow": "fleet"}}
    key = {"Idempotency-Key": "one-click"}
    with Process(tmp_path, "--target", TARGET) as first:
        done = first.client.post("/sessions/bulk", json=resume, headers=key).json()
        assert len(done["done"]) == MANY
        until(lambda: len(effects(tmp_path)) == 2 * MANY, lambda: len(effects(tmp_path)))
        assert first.client.get("/sessions?status=running&count=1").json()["total"] == MANY
        first.kill()
    assert effects(tmp_path).total() == 2 * MANY
    with Process(tmp_path, "--target", TARGET) as second:
        assert second.token == first.token, "people stay signed in"
        assert second.client.post("/sessions/bulk", json=resume, headers=key).json() == done
        (tmp_path / "go").touch()
        until(lambda: effects(tmp_path).total() == 4 * MANY, lambda: effects(tmp_path).total())
        second.until("s0", "completed")
        assert second.end() == 143
    found = effects(tmp_path)
    for number in range(MANY):  # what was recorded ran once; what was running when the server died ran again
        assert [found[f"s{number} {what}"] for what in ("begin", "long", "end")] == [1, 2, 1]
    assert found.total() == 4 * MANY
    assert asyncio.run(states(tmp_path)) == {("begin", "long", "end")}
    assert effects(tmp_path) == found


@pytest.mark.long
def test_of_edits_at_two_servers_with_the_same_mark_one_wins(tmp_path: Path) -> None:
    with served(tmp_path) as one, served(tmp_path) as other, ThreadPoolExecutor(8) as pool:
        one.asked("raced")
        with one.admin() as client:
            for turn in range(3):
                mark = client.get("/sessions/raced").headers["etag"]

                def edit(number: int, turn: int = turn, mark: str = mark) -> tuple[int, str]:
                    topic = f"{turn}-{number}"
                    with (one if number % 2 else other).admin(**{"If-Match": mark}) as own:
                        answer = own.post("/sessions/raced/edit", json={"fields": {"topic": topic}})
                    return answer.status_code, topic

                answers = list(pool.map(edit, range(8)))
                assert sorted(status for status, _ in answers) == [200] + [412] * 7
                (winner,) = [topic for status, topic in answers if status == 200]
                assert client.get("/sessions/raced/state").json()["values"]["topic"] == winner
            kinds = [each["event_type"] for each in client.get("/sessions/raced/events").json()["events"]]
            assert kinds.count("session.edited") == 3
