"""Bulk verbs over sessions that are named, and a fork of a session whose code is not here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest

from pausepoint import Context, Engine, workflow
from pausepoint.errors import DefinitionError, InvalidSessionId
from pausepoint.model import BulkReport
from tests.support.loop import on_loop


@workflow
async def wait(topic: str, ctx: Context) -> str:
    return f"{topic}: {await ctx.receive()}"


@asynccontextmanager
async def observed(folder: Path) -> AsyncIterator[Engine]:
    """Open an engine without the code, over paused sessions a, b and c, and an ended one."""
    async with Engine(folder / "store.db", signals=False) as engine:
        for name in ("a", "b", "c", "ended"):
            await engine.start(wait, session_id=name, topic="x", paused=True)
        await engine.session("ended").cancel()
    async with Engine(folder / "store.db", drives="none") as engine:
        yield engine


def told(report: BulkReport) -> dict[str, list[str]]:
    parts = {"done": report.done, "skipped": report.skipped, "failed": report.failed}
    return {name: sorted(item.session_id for item in items) for name, items in parts.items()}


@pytest.mark.long
@on_loop
async def test_the_named_sessions_are_paused_resumed_and_cancelled(tmp_path: Path) -> None:
    async with observed(tmp_path) as engine:
        named = ["a", "b", "ended", "nobody", "a"]
        expected = {"done": ["a", "b"], "skipped": ["ended"], "failed": ["nobody"]}
        for dry_run in (True, False):
            assert told(await engine.select(ids=named).resume(here=False, dry_run=dry_run)) == expected
            before = [str(each.status) for each in await engine.sessions(sort="id")]
            assert before == (["paused"] * 3 if dry_run else ["ready", "ready", "paused"]) + ["cancelled"]
        assert told(await engine.select(ids=named).pause(reason="lunch")) == expected
        report = await engine.select(ids=named).cancel()
        assert (told(report), report.left) == (expected, 0)
        assert report.failed[0].reason == "This store has no session with this id."
        assert report.skipped[0].reason == "It was cancelled."
        assert (await engine.session("c").info()).status == "paused"


@on_loop
async def test_a_named_session_that_is_damaged_and_does_not_match_is_reported_as_damaged(tmp_path: Path) -> None:
    async with observed(tmp_path) as engine:
        connection = apsw.Connection(str(tmp_path / "store.db"))
        connection.execute("UPDATE sessions SET visit = visit + 1 WHERE session_id = 'a'")
        connection.close()
        for workflow, status in (("other", None), (None, "failed")):
            report = await engine.select(ids=["a", "b", "nobody"], workflow=workflow, status=status).cancel()
            assert told(report) == {"done": [], "skipped": ["b"], "failed": ["a", "nobody"]}
            reasons = {str(item.session_id): item.reason for item in report.failed}
            assert reasons["a"].startswith("It does not match the other filters. Session 'a'")
            assert reasons["nobody"] == "This store has no session with this id."


@on_loop
async def test_ids_and_filters_must_both_match(tmp_path: Path) -> None:
    async with observed(tmp_path) as engine:
        report = await engine.select(ids=["a"], workflow="other").cancel()
        assert told(report) == {"done": [], "skipped": ["a"], "failed": []}
        assert report.skipped[0].reason == "It does not match the other filters."
        assert told(await engine.select(ids=[]).cancel()) == {"done": [], "skipped": [], "failed": []}, (
            "none is not all"
        )
        with pytest.raises(TypeError, match="ids must be a list of session ids"):
            await engine.select(ids="abc").cancel()
        with pytest.raises(InvalidSessionId):
            await engine.select(ids=["a", "../b"]).cancel()
        assert [str(each.status) for each in await engine.sessions(sort="id")] == ["paused"] * 3 + ["cancelled"]


@on_loop
async def test_a_paused_fork_needs_no_code(tmp_path: Path) -> None:
    async with observed(tmp_path) as engine:
        forked = await engine.session("a").fork(session_id="fork", paused=True, reason="to try", by="ann")
        assert (await forked.status(), (await forked.origin() or pytest.fail("no origin")).session_id) == (
            "paused",
            "a",
        )
        assert (await forked.stored()).values["topic"] == "x"
        again = await engine.session("a").fork(session_id="fork", paused=True)
        assert again.id == "fork"
        for refused in (engine.session("a").fork(), engine.session("a").fork(paused=True, topic="y")):
            with pytest.raises(DefinitionError, match="not registered with this engine"):
                await refused
    async with Engine(tmp_path / "store.db", workflows=[wait], signals=False) as engine:
        session = await engine.session("fork").resume()
        await session.send("hello")
        assert (await session.outcome()).result == "x: hello"
