"""A restore of artifacts is recorded: who did it, why, and which files. The session itself stays as it is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine
from pausepoint.artifacts.folder import ArtifactFolder
from pausepoint.errors import EventRefused, VerbRefused
from tests.artifacts.pipeline import Desk, calls
from tests.support.loop import on_loop


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A session that has completed. One of its artifacts was edited."""
    desk = Desk(tmp_path)
    assert asyncio.run(desk.run()).status.value == "completed"
    calls.taken()
    desk.edit_research()
    return desk


async def restored(engine: Engine) -> list[Any]:
    """The events of restores, as (agent, summary, data)."""
    found = [each async for each in engine.session("s1").events() if each.event_type == "artifact.restored"]
    return [(each.agent_name, each.summary, each.data) for each in found]


@on_loop
async def test_a_restore_is_recorded_with_its_author_and_reason(desk: Desk) -> None:
    async with desk.engine() as engine:
        before = await engine.session("s1").info()
        assert await engine.session("s1").restore(by="ada", reason="a typo") == ["1-research.json"]
        after = await engine.session("s1").info()
        assert (after.status, after.seq) == (before.status, before.seq + 1), "a completed session stays completed"
        [(agent, summary, data)] = await restored(engine)
        assert (agent, summary) == ("ada", "restored by ada: 1-research.json (a typo)")
        assert (list(data["files"]), data["by"], data["reason"]) == (["1-research.json"], "ada", "a typo")
        assert (await engine.session("s1").verify()).ok
        assert {each.verdict for each in await engine.session("s1").plan()} == {"done"}
    assert ((await desk.resume()).status.value, calls.taken()) == ("completed", [])


@on_loop
async def test_a_restore_of_nothing_is_not_recorded(desk: Desk) -> None:
    async with desk.engine() as engine:
        await engine.session("s1").restore()
        assert await engine.session("s1").restore(by="ada") == []
        assert [summary for _, summary, _ in await restored(engine)] == ["restored by someone: 1-research.json"]


@on_loop
async def test_a_restore_that_is_refused_is_not_recorded_and_changes_no_file(desk: Desk) -> None:
    edited = desk.file("1-research.json").read_bytes()
    async with desk.engine() as engine:
        with pytest.raises(VerbRefused, match=r"header\.md' is valid"):
            await engine.session("s1").restore(["header.md"], by="ada")
        with pytest.raises(ValueError, match="by"):
            await engine.session("s1").restore(by="\ud800")
        with pytest.raises(EventRefused, match="reserved"):
            await engine.session("s1").emit("artifact.restored", "forged")
        assert await restored(engine) == []
    assert desk.file("1-research.json").read_bytes() == edited


@on_loop
async def test_a_restore_that_a_crash_interrupts_is_recorded_and_can_be_repeated(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    def crash(*_: object) -> None:
        raise Crash

    edited = desk.file("1-research.json").read_bytes()
    async with desk.engine() as engine:
        with monkeypatch.context() as broken:
            broken.setattr(ArtifactFolder, "publish", crash)
            with pytest.raises(Crash):
                await engine.session("s1").restore(by="ada")
        assert desk.file("1-research.json").read_bytes() == edited
        assert await engine.session("s1").restore(by="bob") == ["1-research.json"]
        assert [agent for agent, _, _ in await restored(engine)] == ["ada", "bob"]
