"""A pause does not hide failures: they keep their status, or can be found and counted, and `show` prints them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Engine, Status, Workflow, step
from pausepoint.model import BulkReport
from tests.cli.kit import run
from tests.support.loop import on_loop


class Doc(BaseModel):
    broken: bool = True


@step
async def work(broken: bool) -> None:
    if broken:
        raise ValueError("no paper left")


brief = Workflow("brief", state=Doc, steps=[work])


async def stored(engine: Engine) -> None:
    """Store two sessions that have failed, and two that can run."""
    for name in ("f1", "f2"):
        await (await engine.start(brief, session_id=name, tags="red")).outcome()
    for name in ("r1", "r2"):
        await engine.start(brief, session_id=name, tags="red", paused=True, broken=False)
        await engine.store.unpause(name, None, 1)


async def failures(engine: Engine) -> tuple[int, int, set[str]]:
    """Return how many have failed, how many have the status, and which."""
    counts = sum((await engine.tally(failed=True)).values()), sum((await engine.tally(status="failed")).values())
    return *counts, {info.session_id for info in await engine.sessions(failed=True)}


@pytest.mark.parametrize("which", [{}, {"workflow": "brief"}, {"tag": "red"}])
@on_loop
async def test_a_pause_of_many_leaves_failed_sessions_alone(tmp_path: Path, which: dict[str, Any]) -> None:
    async with Engine(tmp_path / "store.db", workflows=[brief], drives="asked") as engine:
        await stored(engine)
        before = await failures(engine)
        assert before == (2, 2, {"f1", "f2"})
        paused = await (engine.select(**which).pause(by="ann") if which else engine.pause_all(by="ann"))
        done = paused.done if isinstance(paused, BulkReport) else paused
        assert {info.session_id: info.status for info in done} == {"r1": Status.PAUSED, "r2": Status.PAUSED}
        assert await failures(engine) == before
        assert await engine.session("f1").pauses() == []
        if not which:
            await engine.lift_pause()
        assert await failures(engine) == before


@on_loop
async def test_a_failed_session_that_is_paused_by_its_id_can_be_found_and_counted(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", workflows=[brief], drives="asked") as engine:
        await stored(engine)
        await engine.session("f1").pause(by="ann")
        assert (await engine.session("f1").info()).status is Status.PAUSED
        assert await failures(engine) == (2, 1, {"f1", "f2"})
        assert {info.session_id for info in await engine.sessions(failed=False)} == {"r1", "r2"}
        failure = (await engine.session("f1").info()).failure
        assert failure is not None
        assert failure.message == "no paper left"


@on_loop
async def test_while_everything_is_paused_a_failed_session_is_retried_only_by_a_resume(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", workflows=[brief], drives="asked") as engine:
        await stored(engine)
        await engine.pause_all()
        session = await engine.session("f1").resume(by="ben")
        assert (await session.outcome()).status is Status.FAILED
        resumed = [event async for event in session.events() if event.event_type == "session.resumed"]
        assert [event.data["by"] for event in resumed] == ["ben"]


def test_the_command_line_shows_them(tmp_path: Path) -> None:
    async def make() -> None:
        async with Engine(tmp_path / "store.db", workflows=[brief], drives="asked") as engine:
            await stored(engine)
            await engine.session("f1").pause(by="ann", reason="lunch")

    asyncio.run(make())
    store = ("--store", tmp_path / "store.db")
    shown = run("show", "f1", *store, cwd=tmp_path).stdout
    assert "Paused by ann: lunch" in shown
    assert "Failed in work#1: ValueError: no paper left" in shown
    assert 'raise ValueError("no paper left")' in shown, "the traceback"
    listed = run("ls", "--failed", *store, cwd=tmp_path).stdout.splitlines()
    assert sorted(line.split()[0] for line in listed[1:]) == ["f1", "f2"]
    assert "ann: lunch; failed: ValueError: no paper left" in "\n".join(listed)
    assert "1 paused session has failed:  pausepoint ls --failed" in run("status", *store, cwd=tmp_path).stdout
