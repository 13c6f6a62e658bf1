"""Spans: a session's events folded into visits with operations, waits, retries and cost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Retry, Workflow, route, step
from pausepoint.engine.spans import totals
from pausepoint.errors import UnknownCheckpoint
from pausepoint.log.spans import Span, Spans
from pausepoint.stores.sqlite import SqliteStore
from tests.support.loop import on_loop


class Draft(BaseModel):
    rounds: int = 2
    done: int = 0
    text: str = ""


failures: list[str] = []


async def look_up(n: int) -> str:
    if failures:
        raise OSError(failures.pop())
    return f"fact {n}"


@step(writes="text")
async def research(ctx: Context) -> str:
    found = [await ctx.do(look_up, n, retry=Retry(3, first=0.001)) for n in range(2)]
    ctx.spend(usd=0.25, tokens=100)
    await ctx.sleep(timedelta(microseconds=1))
    return " ".join(found)


@step(writes="done")
async def write(done: int, ctx: Context) -> int:
    await ctx.map(look_up, range(3), key=str)
    ctx.spend(usd=0.5, tokens=10)
    return done + 1


@step(writes="text")
async def ask(ctx: Context) -> str:
    return str(await ctx.ask("Good?", choices=["yes", "no"]))


draft = Workflow("draft", state=Draft, steps=[research, write, ask])


def looping(rounds: int) -> Workflow[Draft]:
    """Return a workflow whose only step is visited so many times."""

    @step(writes="done")
    async def turn(done: int, ctx: Context) -> int:
        await ctx.do(look_up, done)
        return done + 1

    @route(after="turn")
    def again(done: int) -> Literal["turn"] | None:
        return "turn" if done < rounds else None

    return Workflow("loop", state=Draft, steps=[turn], routes=[again])


def kinds(span: Span) -> list[str]:
    return [part.kind for part in span.parts]


@on_loop
async def test_a_visit_has_its_operations_waits_retries_and_cost() -> None:
    failures[:] = ["no network"]
    async with Engine(":memory:") as engine:
        session = await engine.start(draft)
        await session.outcome()
        first, second, open_ = await session.spans()
        assert [(span.step, span.visit) for span in (first, second, open_)] == [
            ("research", 1),
            ("write", 1),
            ("ask", 1),
        ]
        assert kinds(first) == ["operation", "operation", "timer"]
        assert [(part.name, part.retries) for part in first.operations] == [("look_up", 1), ("look_up", 0)]
        assert (first.retries, first.usd, first.tokens) == (1, 0.25, 100)
        assert all(part.ended_at is not None and part.began_at <= part.ended_at for part in first.parts)
        assert [(part.kind, part.total) for part in second.parts if part.kind == "map"] == [("map", 3)]
        assert (len(second.operations), second.usd) == (3, 0.5)
        assert first.ended_at is not None
        assert first.began_at <= first.ended_at <= second.began_at
        assert (open_.seq, open_.ended_at, kinds(open_)) == (0, None, ["question"])
        assert open_.waits[0].ended_at is None


@on_loop
async def test_a_rewind_leaves_visits_behind_and_also_the_open_one() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(draft)
        await session.outcome()
        await session.rewind("write")
        spans = await session.spans()
        assert [(span.step, span.visit, span.left_behind) for span in spans] == [
            ("research", 1, False),
            ("write", 1, True),
            ("ask", 1, True),
            ("write", 1, False),
        ]
        assert kinds(spans[2]) == ["question"]
        await (await session.resume()).outcome()
        spans = await session.spans()
        assert [span.step for span in spans if not span.left_behind] == ["research", "write", "ask"]


@on_loop
async def test_pages_of_spans_add_up_to_the_whole_history() -> None:
    loop = looping(40)
    async with Engine(":memory:") as engine:
        session = await engine.start(loop)
        await session.outcome()
        whole = await session.spans()
        assert [span.visit for span in whole] == list(range(1, 41))
        for limit in (1, 7, 40):
            found: list[Span] = []
            before = None
            while page := await session.spans(before=before, limit=limit):
                found, before = page + found, page[0].seq
            assert found == whole
        with pytest.raises(ValueError, match="limit must be a number of visits"):
            await session.spans(limit=-1)
        assert await engine.session(session.id).spans(before=1) == []


@on_loop
async def test_a_page_does_not_read_the_whole_log(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = looping(400)
    async with Engine(":memory:") as engine:
        session = await engine.start(loop)
        await session.outcome()
        read = 0
        records = SqliteStore.records

        async def counted(self: SqliteStore, *args: Any) -> Any:
            nonlocal read
            found = await records(self, *args)
            read += len(found)
            return found

        monkeypatch.setattr(SqliteStore, "records", counted)
        assert len(await session.spans(limit=3)) == 3
        assert 6 <= read <= 250, read  # at most the records since the last two key frames


@on_loop
async def test_a_page_of_spans_begins_with_any_visit() -> None:
    loop = looping(40)
    async with Engine(":memory:") as engine:
        session = await engine.start(loop)
        await session.outcome()
        whole = await session.spans()

        async def visits(at: int | str, limit: int = 5) -> list[int]:
            return [span.visit for span in await session.spans(at=at, limit=limit)]

        assert await visits("turn#17") == [17, 18, 19, 20, 21]
        assert await visits(1) == [1, 2, 3, 4, 5]
        assert await visits(whole[4].seq + 1) == [6, 7, 8, 9, 10]
        assert await visits("turn#39") == [39, 40]
        assert await visits(whole[-1].seq + 1) == []
        assert await session.spans(at=1, limit=40) == whole
        with pytest.raises(UnknownCheckpoint, match="turn#41"):
            await visits("turn#41")
        with pytest.raises(ValueError, match="not both"):
            await session.spans(at=1, before=9)


@on_loop
async def test_a_failed_attempt_has_its_time_its_error_and_the_time_of_the_next_one() -> None:
    failures[:] = ["second", "first"]
    async with Engine(":memory:") as engine:
        session = await engine.start(draft)
        await session.outcome()
        part = (await session.spans())[0].operations[0]
        one, two = part.failed
        assert (one.error, two.error, part.retries) == ("OSError: first", "OSError: second", 2)
        assert one.again_at is not None
        assert part.ended_at is not None
        assert part.began_at == one.began_at <= one.ended_at < one.again_at == two.began_at <= two.ended_at
        assert two.again_at is not None
        assert two.again_at <= part.ended_at


@on_loop
async def test_the_failed_attempts_at_a_step_are_kept_also_when_the_session_has_failed() -> None:
    tries = 0

    @step(writes="text", retry=Retry(2, first=0.001))
    async def fail() -> str:
        nonlocal tries
        tries += 1
        if tries <= 2:
            raise OSError(f"number {tries}")
        return "ok"

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("failing", state=Draft, steps=[fail]))
        await session.outcome()
        (open_,) = await session.spans()
        assert [each.error for each in open_.failed] == ["number 1", "OSError: number 2"]
        assert (open_.failed[0].again_at is None, open_.failed[1].again_at) == (False, None)
        await (await session.resume()).outcome()
        (done,) = await session.spans()
        assert (len(done.failed), done.attempts) == (2, 1)
        assert done.failed[-1].ended_at <= done.began_at
        (total,) = (await totals(engine, session.id)).steps
        assert (total.count, total.failures) == (1, 2)


@on_loop
async def test_totals_are_the_sums_of_all_visits_and_operations() -> None:
    failures[:] = ["no network"]
    async with Engine(":memory:") as engine:
        session = await engine.start(draft)
        await session.outcome()
        await session.rewind("write")
        await (await session.resume()).outcome()
        found = await totals(engine, session.id)
        steps = {each.name: (each.count, each.undone, each.failures, each.usd, each.tokens) for each in found.steps}
        assert steps == {"research": (1, 0, 1, 0.25, 100), "write": (1, 1, 0, 1.0, 20)}
        (call,) = found.operations
        assert (call.name, call.count, call.undone, call.failures) == ("look_up", 5, 3, 1)
        spans = [span for span in await session.spans() if span.seq and not span.left_behind]
        assert (found.visits, found.took) == (2, sum((span.took for span in spans), timedelta()))
        assert {each.name: each.longest_at for each in found.steps} == {span.step: span.seq for span in spans}


@on_loop
async def test_totals_count_the_visits_before_a_page() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(looping(40))
        await session.outcome()
        whole = await session.spans()
        found = await totals(engine, session.id, before=whole[17].seq)
        assert (found.earlier, found.visits) == (17, 40)
        (total,) = found.steps
        assert (total.first, total.last) == (whole[0].seq, whole[-1].seq)
        assert total.longest == max(span.took for span in whole)


def test_an_empty_fold_is_an_open_visit_without_parts() -> None:
    span = Spans().open("write", 1)
    assert (span.parts, span.operations, span.waits, span.retries, span.seq) == ((), (), (), 0, 0)
