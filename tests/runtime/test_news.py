"""What an engine reads when the store tells which sessions have changed: the requests to these, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from pausepoint import Context, Engine, Status, workflow
from pausepoint.model.commits import Flags
from pausepoint.stores.sqlite import SqliteStore
from tests.support.loop import on_loop


@workflow
async def lasting(ctx: Context) -> None:
    await asyncio.sleep(600)


@on_loop
async def test_only_the_requests_to_sessions_that_have_changed_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[int]] = []
    flags = SqliteStore.flags

    async def noted(self: SqliteStore, keys: Sequence[int]) -> dict[int, tuple[int, Flags]]:
        read.append(sorted(keys))
        return await flags(self, keys)

    monkeypatch.setattr(SqliteStore, "flags", noted)
    async with Engine(tmp_path / "store.db", workflows=[lasting]) as engine:
        for id in ("s1", "s2", "s3"):
            await engine.start(lasting, session_id=id)
        first, *others = sorted(
            run.drive.row.key for run in engine._service.driver.runs.values() if run.drive is not None
        )
        read.clear()
        engine._service.driver.on_change(frozenset({first, 999}))
        engine._service.driver.on_change(frozenset({others[0]}))  # before the first was read
        await engine._service.driver.refresh()
        engine._service.driver.on_change(frozenset({999}))
        await engine._service.driver.refresh()
        assert read == [[first, others[0]]], "none was read twice, and no foreign one"
        engine._service.driver.on_change(None)
        await engine._service.driver.refresh()
        assert read[1:] == [[first, *others]]


@on_loop
async def test_a_change_that_is_told_while_another_one_is_read_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going, go = asyncio.Event(), asyncio.Event()
    flags = SqliteStore.flags

    async def slow(self: SqliteStore, keys: Sequence[int]) -> dict[int, tuple[int, Flags]]:
        found = await flags(self, keys)
        going.set()
        await go.wait()
        return found

    async with Engine(tmp_path / "store.db", workflows=[lasting]) as engine:
        await engine.start(lasting, session_id="s1")
        async with Engine(tmp_path / "store.db", drives="none") as other:
            monkeypatch.setattr(SqliteStore, "flags", slow)
            engine._service.driver.on_change(None)
            await going.wait()  # the flags are read, and not passed on yet
            await other.session("s1").pause(mode="abort")
            engine._service.driver.on_change(None)
            go.set()
            monkeypatch.setattr(SqliteStore, "flags", flags)
            while (await other.session("s1").info()).status is not Status.PAUSED:
                await asyncio.sleep(0.01)


@on_loop
async def test_no_operation_begins_between_a_change_that_was_noticed_and_its_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, opened, ran = asyncio.Event(), asyncio.Event(), list[str]()

    async def charge() -> None:
        ran.append("charge")

    @workflow
    async def paying(ctx: Context) -> None:
        entered.set()
        await opened.wait()
        await ctx.do(charge)

    async with Engine(tmp_path / "store.db", workflows=[paying]) as engine:
        session = await engine.start(paying, session_id="s1")
        await entered.wait()
        async with Engine(tmp_path / "store.db", drives="none") as other:
            monkeypatch.setattr(SqliteStore, "has_news", lambda store: False)  # the watcher has noticed the pause
            await other.session("s1").pause()
            opened.set()  # so the step runs before the engine reads the pause
            engine._service.driver.on_change(None)
            assert (await session.outcome()).status is Status.PAUSED
    assert ran == []
