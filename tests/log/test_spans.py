"""Spans: a session's events folded into visits with operations, waits, retries and cost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Retry, Workflow, route, step
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


def test_an_empty_fold_is_an_open_visit_without_parts() -> None:
    span = Spans().open("write", 1)
    assert (span.parts, span.operations, span.waits, span.retries, span.seq) == ((), (), (), 0, 0)
