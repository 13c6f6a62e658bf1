"""Verify finds and names damage, and every read of damaged data reports it."""

from __future__ import annotations

import asyncio
import shutil
import tracemalloc
from pathlib import Path
from typing import Any, Literal

import apsw
import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Session, Status, Workflow, route, step
from pausepoint.engine.verify import Problem, Verification, _Walk
from pausepoint.errors import DamagedRecord, UnknownSession
from pausepoint.stores import checksums as sums
from pausepoint.stores.found import Found
from pausepoint.stores.sql import endings
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock
from tests.support.children import outside_sql
from tests.support.loop import on_loop

LARGE = "large " * 5000


class Doc(BaseModel):
    text: str = ""
    copy_of: str = ""
    count: int = 0


async def draft(what: str) -> str:
    return what


@step(writes="text")
async def write(ctx: Context) -> str:
    ctx.spend(usd=0.5, tokens=3)
    return await ctx.do(draft, LARGE)


@step(writes="copy_of")
async def repeat(text: str) -> str:
    return text


@step(writes="count")
async def count() -> int:
    return 3


doc = Workflow("doc", state=Doc, steps=[write, repeat, count])


async def prepared(path: Path) -> None:
    """Create two sessions that were paused once each, and one that was removed."""
    async with Engine(path, workflows=[doc]) as engine:
        for session_id in ("d1", "d2"):
            session = await engine.start(doc, session_id=session_id, owner="ann", paused=True, reason="wait", by="ben")
            await session.resume(by="cy")
            assert (await session.outcome()).status is Status.COMPLETED
        gone = await engine.start(doc, session_id="gone", paused=True)
        await gone.remove(by="ann", reason="test")
        report = await engine.verify()
        assert report.ok, report.problems
        assert (report.sessions, report.signals, report.values, report.tombstones) == (2, 4, 1, 1)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "store.db"
    asyncio.run(prepared(path))
    return path


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    """A copy of the store for this test, which no engine has open."""
    return Path(shutil.copy(template, tmp_path / "store.db"))


def damaged(path: Path, *statements: str) -> list[Any]:
    """Change the database without using the store. Return the rows of the last statement."""
    connection = apsw.Connection(str(path))
    rows = [connection.execute(statement).fetchall() for statement in statements]
    connection.close()
    return rows[-1]


async def verified(path: Path, session_id: str | None = None) -> Verification:
    async with Engine(path, workflows=[doc]) as engine:
        return await (engine.verify() if session_id is None else engine.session(session_id).verify())


SET = "UPDATE sessions SET {} WHERE session_id = 'd1'"
LOG = "UPDATE log SET {} WHERE session = 1 AND seq = {}"

DAMAGE: dict[str, tuple[list[str], str, int | None, str]] = {
    "a payload": ([LOG.format("payload = x'7b7d'", 3)], "record", 3, "record 3 does not match its digest"),
    "a header": ([LOG.format("at = at + 1", 4)], "record", 4, "record 4 does not match"),
    "a missing record": (["DELETE FROM log WHERE session = 1 AND seq = 3"], "record", 3, "record 3 is missing"),
    "the first of two": (
        [LOG.format("at = at + 1", 5), LOG.format("at = at + 1", 2)], "record", 2, "record 2 does not match",
    ),
    "an emptied record": (
        [LOG.format("payload = x'', salt = x''", 3)], "record", 3, "record 3 is empty, but no redaction lists it",
    ),
    "an emptied signal": (
        ["UPDATE signals SET payload = x'', salt = x'' WHERE session = 1 AND n = 1"],
        "signal", None, "signal 1 is empty, but no redaction lists it",
    ),
    "a signal": (["UPDATE signals SET \"by\" = 'eve' WHERE session = 1 AND n = 1"], "signal", None, "signal 1"),
    "a missing signal": (["DELETE FROM signals WHERE session = 1 AND n = 2"], "signal", None, "signal 2"),
    "a value": (["UPDATE blobs SET data = x'00'"], "value", None, "does not match its hash"),
    "no key frame": (
        ["UPDATE log SET kind = 'event' WHERE session = 1 AND kind = 'key'"], "record", 6, "There is no key frame",
    ),
    "a missing value": (["DELETE FROM blobs"], "value", None, "is missing"),
    "a missing name": (["DELETE FROM names WHERE session = 1"], "record", 3, "which gc would delete"),
    "an owner": ([SET.format("owner = 'eve'")], "facts", None, "(settings)"),
    "a time to keep": ([SET.format("keep_for = 1")], "facts", None, "(settings)"),
    "a request to cancel": ([SET.format("cancel_requested = 1")], "facts", None, "(settings)"),
    "a position": ([SET.format("step = 'count'")], "facts", None, "(position)"),
    "an end": ([SET.format("ended = NULL")], "facts", None, "(position)"),
    "progress": ([SET.format("progress = '[1,2]'")], "facts", None, "(position)"),
    "an older update": ([SET.format("updated_at = updated_at - 3600000000")], "facts", None, "updated_at"),
    "a fence": ([SET.format("fence = fence - 1")], "facts", None, "(position)"),
    "money": ([SET.format("spent_usd = 7")], "facts", None, "its row says that 7 micro-dollars"),
    "why it paused": (["UPDATE pauses SET reason = 'no' WHERE session = 1"], "pause", None, "Pause record"),
    "who resumed it": (["UPDATE pauses SET closed_by = 'eve' WHERE session = 1"], "pause", None, "Pause record"),
    "a tombstone": (["UPDATE tombstones SET reason = 'nothing'"], "tombstone", None, "The tombstone of session 'gone'"),
    "a stray record": (
        ["INSERT INTO log SELECT 999, 0, 99, seq, parent, kind, step, visit, at, payload, salt, body, digest FROM log"
         " WHERE id = 1"],
        "store", None, "1 record for session key 99, but no session has",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
@on_loop
async def test_verify_names_what_is_damaged_and_nothing_else(path: Path, damage: str) -> None:
    statements, what, seq, text = DAMAGE[damage]
    damaged(path, *statements)
    report = await verified(path)
    assert not report.ok
    told = [problem for problem in report.problems if text in problem.text]
    assert told, report.problems
    assert (told[0].what, told[0].seq) == (what, seq)
    assert [problem for problem in report.problems if problem.session_id == "d2"] == [] or what == "value"
    for problem in report.problems:
        assert problem.session_id is None or problem.text.count(f"Session {problem.session_id!r}") == 1, problem
    if what not in ("tombstone", "store"):
        alone = await verified(path, "d1")
        assert not alone.ok
        assert (await verified(path, "d2")).ok or what == "value"


READS = {
    "an owner": "info", "a position": "state", "an end": "outcome", "why it paused": "all pauses", "a value": "state",
    "a payload": "events", "a signal": "events",
}  # fmt: skip


@pytest.mark.parametrize("damage", READS)
@on_loop
async def test_damage_is_reported_by_the_reads_that_meet_it(path: Path, damage: str) -> None:
    damaged(path, *DAMAGE[damage][0])
    async with Engine(path, workflows=[doc]) as engine:
        with pytest.raises(DamagedRecord):
            await read(engine, READS[damage])
        assert (await engine.session("d2").info()).owner == "ann"


async def read(engine: Engine, what: str) -> None:
    if what == "events":
        _ = [event async for event in engine.session("d1").events()]
    elif what == "all pauses":
        await engine.store.pauses(1, open_only=False)
    else:
        await getattr(engine.session("d1"), what)()


@on_loop
async def test_facts_that_agree_with_their_sum_but_not_with_the_log_are_found(path: Path) -> None:
    async with Engine(path, workflows=[doc]) as engine:
        row = await engine.store.get("d1")
        assert row is not None
    lie = sums.moved(row.seq, row.key_frame, row.digest, "write", 9, True, None, None, None, row.fence)
    damaged(path, SET.format(f"step = 'write', visit = 9, held_by_guard = 1, ended = NULL, moved_sum = {lie}"))
    report = await verified(path, "d1")
    assert [problem.text.partition("its row says ")[2].partition(",")[0] for problem in report.problems] == [
        "step = 'write'",
        "visit = 9",
        "held_by_guard = True",
        "ended = None",
    ]


@on_loop
async def test_a_redaction_that_was_undone_is_found(path: Path) -> None:
    [(payload, salt)] = damaged(path, "SELECT hex(payload), hex(salt) FROM log WHERE session = 1 AND seq = 5")
    async with Engine(path, workflows=[doc]) as engine:
        await engine.session("d1").redact(seq=5)
    assert (await verified(path)).redacted == 1
    damaged(path, LOG.format(f"payload = x'{payload}', salt = x'{salt}'", 5))
    report = await verified(path)
    assert [(problem.seq, "still has its content" in problem.text) for problem in report.problems] == [(5, True)]


@on_loop
async def test_an_unknown_session_and_a_removed_one_are_told_apart(path: Path) -> None:
    assert (await verified(path, "gone")).tombstones == 1
    with pytest.raises(UnknownSession):
        await verified(path, "nobody")


@on_loop
async def test_pausing_by_hand_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Engine(path, workflows=[doc], drives="asked") as engine:
        await engine.start(doc, session_id="d1", paused=True, by="ann")
        engine._service.waker.asked = set()  # it stays where it is
        for flag in (0, 1):
            outside_sql(path, f"UPDATE workflow_states SET pause_requested = {flag}")
            assert (await engine.session("d1").info()).status is (Status.PAUSED if flag else Status.READY)
            assert (await engine.verify()).ok
        assert len(await engine.session("d1").pauses()) == 1


@on_loop
async def test_an_eventful_life_is_no_damage(tmp_path: Path) -> None:
    """Run a session through everything it supports. Verify must not complain."""

    @step(writes="count")
    async def delegate(ctx: Context) -> int:
        await ctx.sleep(60)
        return (await ctx.call(doc)).count

    @step(writes="text")
    async def fail(text: str) -> str:
        if text != "edited":
            raise OSError("down")
        return text

    parent = Workflow("parent", state=Doc, steps=[write, delegate, fail])
    clock = ManualClock(auto=True)
    async with Engine(tmp_path / "store.db", workflows=[doc, parent], clock=clock) as engine:
        session = await engine.start(parent, session_id="p1")
        assert (await session.outcome()).status is Status.FAILED
        assert (await engine.verify()).problems == []
        await session.edit(text="edited", by="ann")
        await session.resume()
        assert (await session.outcome()).status is Status.COMPLETED
        await session.rewind("delegate", by="ann")
        assert (await engine.verify()).problems == []
        fork = await session.fork(session_id="f1", paused=True)
        await session.resume()
        await session.outcome()
        await fork.cancel()
        await fork.redact(field="copy_of", value="nothing")
        report = await engine.verify()
        assert report.problems == []
        assert report.sessions == 4
        await session.remove()
        assert (await fork.verify()).problems == []
        assert (await fork.state()).text == LARGE


@pytest.mark.parametrize("act", ["redact", "remove"])
@on_loop
async def test_what_changes_while_verify_looks_at_it_is_no_damage(path: Path, act: str) -> None:
    class Meddled(SqliteStore):
        armed = False

        async def names(self, key: int) -> dict[bytes, bool]:
            if self.armed and key == 1:
                self.armed = False
                await (engine.session("d1").redact(seq=3) if act == "redact" else engine.session("d1").remove())
            return await super().names(key)

    async with Engine(Meddled(path), workflows=[doc]) as engine:
        assert isinstance(engine.store, Meddled)
        engine.store.armed = True
        report = await engine.verify()
        assert not engine.store.armed
        assert report.problems == []
        assert report.redacted == (1 if act == "redact" else 0)


@on_loop
async def test_a_damaged_session_does_not_keep_others_from_waking(tmp_path: Path) -> None:
    @step(writes="count")
    async def doze(ctx: Context) -> int:
        await ctx.sleep(60)
        return 1

    sleepy = Workflow("sleepy", state=Doc, steps=[doze])
    path, clock = tmp_path / "store.db", ManualClock()
    async with Engine(path, workflows=[sleepy], clock=clock) as engine:
        for session_id in ("d1", "d2"):
            await engine.start(sleepy, session_id=session_id)
            await engine._service.driver.runs[session_id].finished()
    damaged(path, SET.format("owner = 'eve'"))
    clock.advance(61)
    async with Engine(path, workflows=[sleepy], clock=clock) as engine:
        assert (await engine.session("d2").outcome()).status is Status.COMPLETED
        with pytest.raises(DamagedRecord):
            await engine.session("d1").info()


# long logs


class Loop(BaseModel):
    n: int = 0
    limit: int


@step(writes="n")
async def again(n: int) -> int:
    return n + 1


@route(after="again")
def on(n: int, limit: int) -> Literal["again"] | None:
    return "again" if n < limit else None


loop = Workflow("loop", state=Loop, steps=[again], routes=[on])


async def looped(engine: Engine, turns: int) -> Session[Any]:
    session = await engine.start(loop, session_id=f"l{turns}", limit=turns)
    await session.outcome()
    return session


@pytest.mark.long
@on_loop
async def test_verify_walks_a_long_log_without_having_it_in_memory() -> None:
    peaks, told = {}, []
    async with Engine(":memory:", workflows=[loop]) as engine:
        for turns in (700, 2800):
            session = await looped(engine, turns)
            tracemalloc.start()
            report = await engine.session(session.id).verify(on_progress=lambda report: told.append(report.records))
            peaks[turns] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert report.ok
            assert report.records > turns
        assert isinstance(engine.store, SqliteStore)
    assert peaks[2800] < 1.5 * peaks[700]
    assert len(told) > 10
    assert told[-1] > 2800


def test_a_report_says_what_was_looked_at() -> None:
    assert str(Verification(sessions=2, records=9, redacted=1)) == (
        "2 sessions, 9 records (1 redacted), 0 signals, 0 large values, 0 files, 0 tombstones: nothing is damaged"
    )
    one = Verification(sessions=1, records=1, problems=[Problem("facts", "it is damaged")])
    assert str(one).startswith("1 session, 1 record (0 redacted), 0 signals")
    assert str(one).endswith(": 1 problem")


@on_loop
async def test_a_session_that_workers_would_not_find_in_time_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Engine(path, workflows=[doc]) as engine:
        await engine.start(doc, session_id="d1", paused=True)
        outside_sql(path, "UPDATE sessions SET ready_at = 5")
        [problem] = (await engine.verify()).problems
        assert (problem.session_id, problem.what) == ("d1", "facts")
        assert "ready_at is 5 instead of None" in problem.text
        assert "Pause and resume the session" in problem.text


# families


@step(writes="text")
async def ask(ctx: Context) -> str:
    return await ctx.ask("Which?", str, expires=None)


leaf = Workflow("leaf", state=Doc, steps=[ask])


@step(writes="text")
async def call(ctx: Context) -> str:
    return (await ctx.call(leaf)).text


family = Workflow("family", state=Doc, steps=[call])


@step(writes="text")
async def call_family(ctx: Context) -> str:
    return (await ctx.call(family)).text


@on_loop
async def test_a_session_that_is_open_below_a_cancelled_one_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(tmp_path / "store.db", workflows=[family, leaf]) as engine:
        session = await engine.start(family, session_id="f")
        await session.outcome()
        [child] = await session.children()
        await engine.idle()
        with monkeypatch.context() as patch:
            patch.setattr(endings, "cancel_below", lambda *_: Found())
            await session.cancel()
        report = await engine.verify()
        [problem] = report.problems
        assert (problem.what, problem.session_id) == ("session", child.session_id)
        assert (
            "still open, although 'f' above it was cancelled. Call engine.session('f').cancel() again" in problem.text
        )
        await engine.session("f").cancel()
        assert (await engine.verify()).ok
        await engine.session(child.session_id).rewind("ask")  # a person wants it again, without its parent
        assert (await engine.session(child.session_id).info()).status is Status.READY
        assert (await engine.verify()).ok


@on_loop
async def test_what_a_reopened_session_calls_is_open_below_it_and_no_problem(tmp_path: Path) -> None:
    above = Workflow("above", state=Doc, steps=[call_family])
    async with Engine(tmp_path / "store.db", workflows=[above, family, leaf]) as engine:
        await (await engine.start(above, session_id="a")).outcome()
        await engine.session("a").cancel()
        [middle] = await engine.sessions(workflow="family")
        await engine.session(middle.session_id).rewind("call")  # a person wants it again, without its parent
        await (await engine.session(middle.session_id).resume()).outcome()
        statuses = {info.status for info in await engine.session(middle.session_id).children()}
        assert statuses == {Status.CANCELLED, Status.WAITING}
        assert (await engine.verify()).problems == []


@on_loop
async def test_below_a_completed_session_only_a_child_that_it_did_not_wait_for_may_be_open(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", workflows=[family, leaf]) as engine:

        @step(writes="text")
        async def give_up(ctx: Context) -> str:
            called = asyncio.ensure_future(ctx.call(leaf))

            async def lose_patience() -> None:
                while not await engine.session("h").children():
                    await asyncio.sleep(0.001)
                called.cancel()

            await ctx.do(lose_patience)  # an operation: while it runs, the session is not parked
            return "without it"

        hasty = Workflow("hasty", state=Doc, steps=[give_up])
        session = await engine.start(hasty, session_id="h")
        while await session.status() is not Status.COMPLETED:  # an outcome would also come while it waits for its child
            await asyncio.sleep(0.001)
        await engine.idle()  # the child has asked its question
        [child] = await engine.session("h").children()
        assert child.status is Status.WAITING
        assert (await engine.verify()).problems == []
        assert await engine.session("h").cancel() is Status.COMPLETED  # it ends what is open below it
        assert (await engine.session(child.session_id).info()).status is Status.CANCELLED


@pytest.mark.parametrize("reopened", [False, True])
@on_loop
async def test_a_child_whose_result_was_used_is_not_open_unless_a_person_reopened_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reopened: bool
) -> None:
    async with Engine(tmp_path / "store.db", workflows=[family, leaf]) as engine:
        session = await engine.start(family, session_id="f")
        await session.outcome()
        await session.answer("this one")
        assert (await session.outcome()).status is Status.COMPLETED
        [child] = await session.children()
        await engine.session(child.session_id).rewind("ask")
        if not reopened:
            monkeypatch.setattr(_Walk, "reopened", property(lambda _: False, lambda *_: None), raising=False)
        problems = (await engine.verify()).problems
        if reopened:
            assert problems == []
        else:
            [problem] = problems
            assert (problem.what, problem.session_id) == ("session", child.session_id)
            assert "although 'f' above it has completed and was told that it was completed" in problem.text


@on_loop
async def test_a_session_that_was_to_end_is_named_even_if_it_was_reopened_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    async with Engine(path, workflows=[leaf]) as engine:
        await (await engine.start(leaf, session_id="x")).outcome()
        await engine.session("x").cancel()
        await engine.session("x").rewind("ask")
        with monkeypatch.context() as patch:
            patch.setattr(endings, "_end", lambda connection, engine, row, at: row)
            await engine.session("x").cancel()
        [problem] = (await engine.verify()).problems
        assert "it was cancelled, but is still open" in problem.text


@on_loop
async def test_below_a_damaged_session_only_the_damage_is_reported(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", workflows=[family, leaf]) as engine:
        await (await engine.start(family, session_id="f")).outcome()
        await engine.idle()
    outside_sql(tmp_path / "store.db", "UPDATE sessions SET step = 'elsewhere' WHERE session_id = 'f'")
    async with Engine(tmp_path / "store.db", workflows=[family, leaf], drives="none") as engine:
        assert {problem.session_id for problem in (await engine.verify()).problems} == {"f"}
        children = await engine.sessions(workflow="leaf")
        await engine.session(children[0].session_id).cancel()  # its parent cannot be told
        assert (await engine.session(children[0].session_id).info()).status is Status.CANCELLED
