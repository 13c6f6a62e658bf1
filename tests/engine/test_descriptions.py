"""What an observer knows about workflows whose code it does not have."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Workflow, migrate, step, workflow
from pausepoint.engine.descriptions import CONFIRMED_FOR
from pausepoint.errors import DefinitionError, StoreReadOnly
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop


class Brief(BaseModel):
    topic: str
    draft: str = ""
    rounds: int = 0


@step(writes="draft")
async def write(topic: str) -> str:
    return topic.upper()


@step(writes="rounds")
async def count(rounds: int) -> int:
    return rounds + 1


@migrate(from_version=1)
def same(state: dict[str, Any]) -> dict[str, Any]:
    return state


brief = Workflow("brief", state=Brief, steps=[write])
second = Workflow("brief", state=Brief, steps=[write, count], version=2, migrations=[same])
twin = Workflow("brief", state=Brief, steps=[write, count])
"""The same version as `brief`, with another step."""


@workflow
async def parent(topic: str, ctx: Context) -> str:
    return (await ctx.call(brief, topic=topic)).draft


def opened(path: Path, *workflows: Workflow[Any], **options: Any) -> Engine:
    return Engine(SqliteStore(path, synchronous="OFF", ballast=0), workflows=workflows, signals=False, **options)


async def ran(path: Path, definition: Workflow[Any], session_id: str, **options: Any) -> None:
    async with opened(path, definition, **options) as engine:
        await (await engine.start(definition, session_id=session_id, topic="otters")).outcome()


async def rows(path: Path) -> int:
    async with opened(path, drives="none") as engine:
        return len(await engine.store.descriptions("brief"))


@on_loop
async def test_an_observer_describes_a_workflow_without_its_code(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await ran(path, brief, "s1")
    await ran(path, brief, "s2")
    assert await rows(path) == 1, "stored once"
    async with opened(path, drives="none") as engine:
        assert await engine.description("brief") == brief.description
        assert await engine.session("s1").description() == brief.description
        assert [each.name for each in await engine.descriptions()] == ["brief"]
        with pytest.raises(DefinitionError, match=r"no description of workflow 'breif'.* Did you mean 'brief'"):
            await engine.description("breif")
        with pytest.raises(DefinitionError, match=r"no description of version 7 of workflow 'brief'.*: 1\."):
            await engine.description("brief", version=7)


@on_loop
async def test_every_version_and_every_change_is_kept_and_each_session_has_its_own(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    for name, definition in {"first": brief, "twin": twin, "second": second}.items():
        await ran(path, definition, name)
    assert await rows(path) == 3
    async with opened(path, drives="none") as engine:
        assert await engine.description("brief") == second.description, "the newest version"
        assert (await engine.description("brief", version=1)).version == 1
        for name, definition in {"first": brief, "twin": twin, "second": second}.items():
            assert await engine.session(name).description() == definition.description


@on_loop
async def test_a_session_that_is_resumed_with_newer_code_is_described_by_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path, brief) as engine:
        await engine.start(brief, session_id="s1", topic="otters", paused=True)
    async with opened(path, second) as engine:
        await (await engine.session("s1").resume()).outcome()
    async with opened(path, drives="none") as engine:
        assert await engine.session("s1").description() == second.description
        assert await engine.description("brief", version=1) == brief.description


@on_loop
async def test_children_are_described_too(tmp_path: Path) -> None:
    await ran(tmp_path / "store.db", parent, "s1")
    async with opened(tmp_path / "store.db", drives="none") as engine:
        assert [each.name for each in await engine.descriptions()] == ["brief", "parent"]


@on_loop
async def test_what_was_never_described_is_known_by_its_steps(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await ran(path, second, "s1")
    async with opened(path, drives="none") as engine:
        engine.store._writer.inline.connection.execute("DELETE FROM descriptions")  # type: ignore[attr-defined]
        found = await engine.session("s1").description()
        assert (found.outline, found.state, found.version) == (("write", "count"), None, 2)
        assert found.targets("write") == ("count",)
        assert "s0 --> s1" in found.mermaid()


@on_loop
async def test_a_registered_workflow_is_described_by_its_own_code(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await ran(path, brief, "s1")
    async with opened(path, second, drives="none") as engine:
        assert await engine.description("brief") == second.description
        assert await engine.session("s1").description() == brief.description, "the session has not been migrated"
        assert await engine.descriptions() == [second.description]


@on_loop
async def test_checkpoints_and_later_sessions_do_not_look_at_descriptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[bytes] = []
    seen = SqliteStore.description_seen

    async def watched(self: SqliteStore, digest: bytes) -> int | None:
        looked.append(digest)
        return await seen(self, digest)

    monkeypatch.setattr(SqliteStore, "description_seen", watched)
    async with opened(tmp_path / "store.db") as engine:
        for n in range(3):
            await (await engine.start(second, session_id=f"s{n}", topic="otters")).outcome()
    assert len(looked) == 1


@on_loop
async def test_a_disk_that_refuses_a_description_refuses_the_session_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(self: SqliteStore, new: Any) -> None:
        raise StoreReadOnly("The disk is full. Free some space.", path="store.db", full=True)

    monkeypatch.setattr(SqliteStore, "keep_description", refused)
    with pytest.raises(StoreReadOnly):
        await ran(tmp_path / "store.db", brief, "s1")
    monkeypatch.undo()
    await ran(tmp_path / "store.db", brief, "s1")
    assert await rows(tmp_path / "store.db") == 1


@on_loop
async def test_an_engine_confirms_its_descriptions_and_gc_forgets_unused_ones(tmp_path: Path) -> None:
    path, clock = tmp_path / "store.db", ManualClock()
    async with opened(path, brief, clock=clock) as engine:
        for n in range(9):  # an engine that runs for days, and whose sessions are removed
            session = await engine.start(brief, session_id=f"s{n}", topic="otters")
            await session.outcome()
            await session.remove()
            clock.jump(CONFIRMED_FOR / 1e6)
            assert (await engine.gc(apply=True)).descriptions == 0
        clock.jump(timedelta(days=7))
        assert (await engine.gc()).descriptions == 0, "a dry run"
        assert (await engine.gc(apply=True)).descriptions == 1
        await (await engine.start(brief, session_id="late", topic="otters")).outcome()
        assert len(await engine.store.descriptions("brief")) == 1, "stored again"


@pytest.mark.parametrize("change", ["document = x'7b7d'", "digest = x'00'"])
@on_loop
async def test_a_damaged_description_is_left_out_and_reported(tmp_path: Path, change: str) -> None:
    path = tmp_path / "store.db"
    await ran(path, brief, "s1")
    await ran(path, second, "s2")
    async with opened(path, drives="none") as engine:
        connection = engine.store._writer.inline.connection  # type: ignore[attr-defined]
        connection.execute(f"UPDATE descriptions SET {change} WHERE version = 2")
        assert await engine.description("brief") == brief.description
        assert (await engine.session("s2").description()).state is None
        assert len((await engine.store.descriptions("brief")).damaged) == 1
        (problem,) = (await engine.verify()).problems
        assert "description 2 of a workflow does not match its digest" in problem.text
    await ran(path, second, "s3")
    async with opened(path, drives="none") as engine:
        assert await engine.description("brief") == second.description
