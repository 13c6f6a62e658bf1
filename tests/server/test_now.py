"""What is going on now: counts, the sessions that need attention, spending, and live progress."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import BaseModel

from pausepoint import Context, Workflow, step
from pausepoint.server import board
from pausepoint.server.hub import PROGRESS, hub_of
from tests.server.kit import Served, brief, fits, served
from tests.server.streams import Reader
from tests.support.loop import PATIENCE
from tests.support.waits import until


class Work(BaseModel):
    cost: float = 0.0
    out: str = ""


@step(writes="out")
async def earn(ctx: Context, cost: float) -> str:
    ctx.spend(usd=cost)
    return "done"


@step(writes="out")
async def employ(ctx: Context, cost: float) -> str:
    ctx.spend(usd=cost)
    await ctx.call(costly, cost=cost)
    return "done"


@step(writes="out")
async def nap(ctx: Context) -> str:
    await ctx.sleep(timedelta(hours=1))
    return "woke"


COUNT = 60
let_go = asyncio.Event()


@step(writes="out")
async def plod(ctx: Context) -> str:
    for n in range(COUNT):
        ctx.progress(n, COUNT)
        await asyncio.sleep(0.01)
    ctx.progress(COUNT, COUNT)
    await let_go.wait()
    return "done"


costly = Workflow("costly", state=Work, steps=[earn])
firm = Workflow("firm", state=Work, steps=[employ])
napping = Workflow("napping", state=Work, steps=[nap])
plodding = Workflow("plodding", state=Work, steps=[plod])
ALL = (brief, costly, firm, napping, plodding)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("now"), workflows=ALL) as found:
        yield found


def run(server: Served, workflow: Any, session_id: str, wait: bool = True, **fields: Any) -> None:
    async def start() -> None:
        session = await server.engine.start(workflow, session_id=session_id, **fields)
        if wait:
            await session.outcome()

    server.run(start())


def now(server: Served, token: str | None = None) -> Any:
    with server.client(token or server.tokens.own) as client:
        found = client.get("/now").json()
    fits(found, "now")
    return found


def ids(found: list[Any]) -> list[str]:
    return [each["session_id"] for each in found]


@pytest.mark.long
def test_the_present_is_complete_under_pauses(server: Served) -> None:
    run(server, brief, "broken", topic="fail")
    server.asked("asks")
    server.asked("anns", owner="ann")
    run(server, napping, "naps", wait=False)
    until(lambda: ids(now(server)["waking"]) == ["naps"])
    with server.admin() as client:
        for name in ("broken", "asks"):
            assert client.post(f"/sessions/{name}/pause", json={"reason": f"look at {name}"}).status_code == 200
        until(lambda: len(now(server)["paused"]) == 2)
        found = now(server)
        assert found["counts"]["brief"] == {"paused": 2, "waiting": 1}
        assert found["failures"] == {"brief": 1}, "a pause hides no failure"
        assert ids(found["failed"]) == ["broken"]
        assert {each["session_id"]: each["pause"]["reason"] for each in found["paused"]} == {
            "broken": "look at broken", "asks": "look at asks",
        }  # fmt: skip
        assert found["questions"] == 2
        assert client.put("/standing-pause", json={"reason": "fire"}).status_code == 200
        until(lambda: now(server)["standing_pause"] and now(server)["counts"]["brief"] == {"paused": 3})
        assert client.post("/sessions/anns/pause", json={"reason": "and this"}).status_code == 200
        until(lambda: len(now(server)["paused"]) == 3)
        found = now(server)
        assert {each["pause"]["reason"] for each in found["paused"]} == {"look at broken", "look at asks", "and this"}
        assert found["waking"] == []
        pause = found["standing_pause"]
        assert (pause["reason"], pause["asked"], pause["stopped"], pause["finishing"]) == ("fire", 0, 0, [])
        assert client.get("/standing-pause").json() == {"standing_pause": pause}
        own = now(server, server.token("viewer", "ann"))
        assert (own["counts"], own["questions"], ids(own["paused"])) == ({"brief": {"paused": 1}}, 1, ["anns"])
        assert (own["failures"], own["spending"], own["engines"]) == ({}, {"brief": 0.0}, [])
        assert "asked" not in own["standing_pause"]
        with server.client(server.token("viewer", "ann")) as limited:
            assert limited.get("/standing-pause").json() == {"standing_pause": own["standing_pause"]}
        assert client.request("DELETE", "/standing-pause", json={}).status_code == 200
        until(lambda: ids(now(server)["waking"]) == ["naps"])
        assert len(now(server)["engines"]) == 1


def test_a_pause_of_everything_is_read_back_at_once(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before the next look at what changes without a write. Otherwise the page would say the contrary."""
    monkeypatch.setattr("pausepoint.server.hub.TICK", 60.0)
    assert now(server)["standing_pause"] is None
    with server.admin() as client:
        assert client.put("/standing-pause", json={"reason": "fire"}).status_code == 200
        assert (now(server)["standing_pause"] or {}).get("reason") == "fire"
        assert client.request("DELETE", "/standing-pause", json={}).status_code == 200
        assert now(server)["standing_pause"] is None


@pytest.mark.parametrize("slow", [False, True])
def test_what_a_person_has_done_is_in_what_they_read_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    """Also if the hub has not heard of it yet, and if counting takes so long that others get the last counts."""
    if slow:
        monkeypatch.setattr("pausepoint.server.board.FAST", -1.0)
        monkeypatch.setattr("pausepoint.server.board.SHARE", 1_000_000)
    body = {"workflow": "brief", "input": {"topic": "octopus"}, "paused": True}
    with served(tmp_path) as server, server.client(server.token("viewer")) as other, server.admin() as client:
        assert other.get("/now").json()["counts"] == {}
        for count in range(1, 6):
            session_id = client.post("/sessions", json=body).json()["session_id"]
            present = client.get("/now").json()
            assert present["counts"] == {"brief": {"paused": count}}
            assert session_id in ids(present["paused"])


def test_a_reading_that_began_before_a_change_is_not_its_answer(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    async def slowly(engine: Any, owner: str | None) -> Any:
        facts = await read(engine, owner)
        if not begun.is_set():
            begun.set()
            await asyncio.to_thread(go_on.wait, PATIENCE)
        return facts

    read, body = board.read, {"workflow": "brief", "input": {"topic": "octopus"}, "paused": True}
    with pytest.MonkeyPatch.context() as patch, served(tmp_path) as server, ThreadPoolExecutor(2) as pool:
        patch.setattr(board, "read", slowly)
        with server.client(server.token("viewer")) as other, server.admin() as client:
            early = pool.submit(other.get, "/now")
            assert begun.wait(PATIENCE)
            assert client.post("/sessions", json=body).status_code == 201
            own = pool.submit(client.get, "/now")
            go_on.set()
            assert own.result(PATIENCE).json()["counts"] == {"brief": {"paused": 1}}
            assert early.result(PATIENCE).status_code == 200


def test_a_pause_that_is_withdrawn_while_it_is_read_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a list of paused sessions would have one without a pause, and the page could not draw it."""
    with served(tmp_path) as server, server.admin() as client:
        sessions = server.engine.sessions

        async def withdrawn(*args: Any, **options: Any) -> Any:
            listing = await sessions(*args, **options)
            return [replace(each, pause=None) for each in listing] if options.get("own_pause") else listing

        monkeypatch.setattr(server.engine, "sessions", withdrawn)
        body = {"workflow": "brief", "input": {"topic": "octopus"}, "paused": True}
        assert client.post("/sessions", json=body).status_code == 201
        assert client.get("/now").json()["paused"] == []


def test_spending_counts_roots_and_ended_sessions(server: Served) -> None:
    run(server, costly, "alone", cost=0.25)
    run(server, firm, "parent", cost=1.0)
    until(lambda: now(server)["spending"].get("firm") == 2.0)
    found = now(server)["spending"]
    assert found["costly"] == 0.25, "what a child has spent is part of its parent's figure"
    assert now(server)["spent_usd"] == sum(found.values())


@pytest.mark.long
def test_progress_is_told_before_it_is_stored_and_not_too_often(server: Served) -> None:
    with server.admin() as client:
        reader = Reader(client, "now")
        begin = time.monotonic()

        def finished() -> bool:
            if reader.last and not started:
                started.append(True)
                run(server, plodding, "plods", wait=False)
            return bool(shown()) and shown()[-1] == COUNT

        def shown() -> list[int]:
            found = [each for each in reader.of("head") if each["session_id"] == "plods" and each["progress"]]
            return [each["progress"]["done"] for each in found]

        started: list[bool] = []
        reader.read(finished)
        took = time.monotonic() - begin
        assert shown() == sorted(shown())
        assert 2 <= len(set(shown())) <= took / PROGRESS + 2
        assert server.run(server.engine.session("plods").info()).progress is None, "nothing was stored"
        until(lambda: "plods" in ids(now(server)["running"]))
        (head,) = [each for each in now(server)["running"] if each["session_id"] == "plods"]
        assert head["progress"] == {"done": COUNT, "total": COUNT}
        late = Reader(client, "session:plods", reader.last)
        late.read(lambda: bool(late.of("head")))
        assert late.of("head")[-1]["progress"] == {"done": COUNT, "total": COUNT}
    server.loop.call_soon_threadsafe(let_go.set)


@pytest.mark.long
def test_facts_that_take_long_are_read_behind_the_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path) as server, server.admin() as client:
        assert now(server)["counts"] == {}
        monkeypatch.setattr(board, "FAST", -1.0)
        monkeypatch.setattr(board, "SHARE", 0)
        reader = Reader(client, "now")
        stale: list[Any] = []

        def told() -> bool:
            if reader.last and not stale:
                server.asked("new")
                server.run(server.engine.questions())
                hub = hub_of(server.engine)
                until(lambda: hub._turn != hub._boards._boards[None].turn)
                stale.append(now(server))
            return bool(reader.of("now"))

        reader.read(told)
        assert stale[0]["counts"] == {}, "the last facts are returned at once"
        until(lambda: now(server)["counts"] == {"brief": {"waiting": 1}})
        assert now(server)["mark"] != stale[0]["mark"]
