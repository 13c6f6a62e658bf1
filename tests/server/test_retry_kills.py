"""A request that is repeated with its key has one effect, wherever the server was killed. A sample of the points.

`tests.server.killed_requests` runs them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pausepoint import Engine
from tests.server.killed_requests import REQUESTS, Trial, Twin, repeated
from tests.support.forkserver import ForkServer

EFFECT = 1
"""The number of the write that has the effect. The one before takes the key."""


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with ForkServer("tests.server.killed_requests") as found:
        yield found


@pytest.mark.long
@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_is_killed_and_repeated_has_one_effect(forks: ForkServer, tmp_path: Path, name: str) -> None:
    trial = Trial(forks, tmp_path, name)
    last = trial.points[-1][0]
    assert last > EFFECT, "the answer is kept by a write of its own"
    points = [(EFFECT, "inside"), (EFFECT, "after")] + ([(last, "before")] if last > EFFECT + 1 else [])
    assert [text for point in points for text in trial.kill(*point)] == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "twin", "point"),
    [
        ("start", "no key", 0),
        ("send", "no key", 0),
        ("fork", "no key", 0),
        ("edit", "no once", EFFECT),
        ("upload", "no once", EFFECT),
    ],
)
def test_a_server_that_forgets_what_it_has_done_is_noticed(
    forks: ForkServer, tmp_path: Path, name: str, twin: Twin, point: int
) -> None:
    assert Trial(forks, tmp_path, name, twin).kill(point, "after")


@pytest.mark.long
@pytest.mark.parametrize("name", ["resume", "start", "resume what failed"])
def test_what_someone_does_after_the_kill_is_not_undone(forks: ForkServer, tmp_path: Path, name: str) -> None:
    path, names = Trial(forks, tmp_path, name).died(EFFECT, "after")
    asyncio.run(_paused_by_bob(path))
    found = asyncio.run(repeated(path, name, names))
    assert [status for _, status, _, _ in found["sessions"]] == ["paused"]


async def _paused_by_bob(path: Path) -> int:
    """Pause all sessions, and return how many were not paused before."""
    async with Engine(path, drives="none") as engine:
        found = await engine.sessions()
        for info in found:
            await engine.session(info.session_id).pause(reason="not now", by="bob")
        return len([info for info in found if info.pause is None])


async def _resumed_by_bob(path: Path) -> None:
    async with Engine(path, drives="none") as engine:
        for info in await engine.sessions():
            await engine.session(info.session_id).resume(by="bob", here=False)


@pytest.mark.long
@pytest.mark.parametrize("names_all", [True, False])
def test_a_bulk_pause_is_not_repeated_over_a_resume(forks: ForkServer, tmp_path: Path, names_all: bool) -> None:
    name = "bulk" if names_all else "bulk by filter"
    path, names = Trial(forks, tmp_path, name).died(EFFECT, "after")
    asyncio.run(_resumed_by_bob(path))
    found = asyncio.run(repeated(path, name, names))
    assert [status for _, status, _, _ in found["sessions"]] == ["waiting", "waiting"]
    assert sorted(item["session_id"] for item in found["answer"]["done"]) == ["s1", "s2"]


@pytest.mark.long
def test_a_server_that_does_not_note_what_it_has_treated_is_noticed(forks: ForkServer, tmp_path: Path) -> None:
    path, names = Trial(forks, tmp_path, "bulk", "no once").died(EFFECT, "after")
    asyncio.run(_resumed_by_bob(path))
    found = asyncio.run(repeated(path, "bulk", names))
    assert [status for _, status, _, _ in found["sessions"]] == ["paused", "paused"]


@pytest.mark.long
def test_a_bulk_resume_is_completed_and_not_repeated_over_a_pause(forks: ForkServer, tmp_path: Path) -> None:
    path, names = Trial(forks, tmp_path, "bulk resume").died(EFFECT, "after")
    resumed = asyncio.run(_paused_by_bob(path))
    assert resumed, "one at least; the store may have committed both together"
    found = asyncio.run(repeated(path, "bulk resume", names))
    statuses = sorted(status for _, status, _, _ in found["sessions"])
    assert statuses == ["paused"] * resumed + ["waiting"] * (2 - resumed)
    assert sorted(item["session_id"] for item in found["answer"]["done"]) == ["s1", "s2"]
