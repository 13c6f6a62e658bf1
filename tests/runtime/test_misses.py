"""A remembered result that is not used is said at once, or at the end of the step; a strict step pauses instead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Session, Status, Workflow, step, workflow
from pausepoint.model.sessions import Event
from tests.support.loop import on_loop

pytestmark = pytest.mark.no_always_replay("its input differs from run to run on purpose")

Body = Callable[[Context], Awaitable[Any]]


class Till:
    """Counts paid calls. The first run of the workflow's body fails at its end, and a resume runs it again."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.seen: list[list[Event]] = []  # what the history said about misses when each call ran
        self.runs = 0
        self.session: Session[Any] | None = None

    async def charge(self, card: str, now: int, ctx: Context) -> str:
        self.paid.append(f"{card} {now}")
        self.seen.append(await missed(self.session) if self.session is not None else [])
        ctx.spend(usd=0.25)
        return "paid"

    async def look_up(self, fact: str) -> str:
        self.paid.append(fact)
        return fact.upper()

    async def twice(self, body: Body, **options: Any) -> Session[Any]:
        """Run a body that fails at its end, then run it again in the same session."""

        @workflow(**options)
        async def shop(ctx: Context) -> str:
            self.runs += 1
            await body(ctx)
            if self.runs == 1:
                raise OSError("the line is down")
            return "done"

        self.session = session = await self.engine.start(shop)
        assert (await session.outcome()).status is Status.FAILED
        await session.resume()
        await session.outcome()
        return session

    @property
    def now(self) -> int:
        """A value that differs in each run."""
        return self.runs

    engine: Engine


async def missed(session: Session[Any], type: str = "operation.missed") -> list[Event]:
    return [event async for event in session.events(follow=False) if event.event_type == type]


@on_loop
async def test_a_miss_is_in_the_history_before_the_call_runs_with_the_arguments_that_differ_and_the_cost() -> None:
    till = Till()
    async with Engine(":memory:") as till.engine:
        session = await till.twice(lambda ctx: ctx.do(till.charge, "4711", now=till.now))
        assert till.paid == ["4711 1", "4711 2"]
        (event,) = await missed(session)
        assert till.seen == [[], [event]]
        assert event.summary == "Till.charge runs again: 'now' differs from the remembered call (it cost $0.25)"
        assert {name: event.data[name] for name in ("operation", "count", "arguments", "usd")} == {
            "operation": "Till.charge", "count": 1, "arguments": ["now"], "usd": 0.25
        }  # fmt: skip
        assert await missed(session, "operation.unused") == []  # it was said
    assert "4711" not in str(event.data)


class Day(BaseModel):
    text: str = ""


@pytest.mark.parametrize("where", ["workflow", "engine"])
@on_loop
async def test_a_strict_call_pauses_and_runs_only_when_it_is_accepted(where: str) -> None:
    till = Till()
    options: dict[str, Any] = {"strict": True} if where == "workflow" else {}
    async with Engine(":memory:", strict=where == "engine") as till.engine:
        session = await till.twice(lambda ctx: ctx.do(till.charge, "4711", now=min(till.now, 2)), **options)
        for _ in range(2):  # a plain resume pays nothing either
            assert till.paid == ["4711 1"]
            (pause,) = (await session.outcome()).pauses
            assert pause.kind == "mismatch"
            assert pause.reason == (
                "step 'shop': Till.charge would run again: 'now' differs from the remembered call (it cost $0.25)."
                " What to do: make the arguments the same again, then resume; or run it again:"
                " session.resume(code='accept')."
            )
            await session.resume()
        await session.outcome()
        await session.resume(code="accept")
        assert (await session.outcome()).status is Status.COMPLETED
        assert till.paid == ["4711 1", "4711 2"]
        assert len(await missed(session)) == 1


@on_loop
async def test_a_strict_call_uses_the_result_once_its_arguments_are_the_same_again() -> None:
    till = Till()
    async with Engine(":memory:") as till.engine:
        body: Body = lambda ctx: ctx.do(till.charge, "4711", now=2 if till.now == 2 else 1)  # noqa: E731
        session = await till.twice(body, strict=True)
        assert (await session.outcome()).status is Status.PAUSED
        await session.resume()
        assert (await session.outcome()).status is Status.COMPLETED
    assert till.paid == ["4711 1"]


@on_loop
async def test_a_step_may_be_strict_on_its_own_or_not() -> None:
    till = Till()

    async def charge(ctx: Context) -> str:
        till.runs += 1
        result = await ctx.do(till.look_up, f"fact {till.now}")
        if till.runs == 1:
            raise OSError("the line is down")
        return result

    for strict, status in ((True, Status.PAUSED), (False, Status.COMPLETED)):
        till.runs = 0
        async with Engine(":memory:") as engine:
            pays = step(charge, writes="text", strict=strict)
            session = await engine.start(Workflow("shop", state=Day, steps=[pays], strict=not strict))
            await session.outcome()
            await session.resume()
            assert (await session.outcome()).status is status


def map_of(till: Till, *lists: Sequence[str]) -> Body:
    """A body that maps over another list in each run."""
    return lambda ctx: ctx.map(till.look_up, lists[till.now - 1])


@on_loop
async def test_a_map_says_once_which_items_changed_and_new_items_are_no_miss() -> None:
    till = Till()
    async with Engine(":memory:") as till.engine:
        session = await till.twice(map_of(till, ["a", "b 1", "c 1"], ["x", "a", "b 2", "c 2"]))
        assert [event.summary for event in await missed(session)] == [
            "Till.look_up runs again: 'fact' differs from the remembered call"
        ]  # "x" is new, "b 2" came second before
    till = Till()
    async with Engine(":memory:") as till.engine:
        session = await till.twice(map_of(till, ["a", "b 1", "c 1"], ["a", "b 2", "c 2"]))
        (event,) = await missed(session)
        assert event.summary == "2 items of Till.look_up run again: 'fact' differs from the remembered call"
        assert event.data["count"] == 2
        assert sorted(till.paid) == ["a", "b 1", "b 2", "c 1", "c 2"]
    till = Till()
    async with Engine(":memory:", strict=True) as till.engine:
        session = await till.twice(map_of(till, ["a", "b"], ["x", "a", "b"]))
        assert (await session.outcome()).status is Status.COMPLETED


@on_loop
async def test_a_branch_or_a_call_that_had_not_finished_before_is_no_miss() -> None:
    till = Till()

    async def flaky(fact: str) -> str:
        if fact == "b" and till.runs == 1:
            raise OSError("no line")
        return await till.look_up(fact)

    async def side_by_side(ctx: Context) -> None:
        await asyncio.gather(*(ctx.do(flaky, fact) for fact in "abc"), return_exceptions=True)

    async def one_by_one(ctx: Context) -> None:
        for fact in "abc":
            await asyncio.gather(ctx.do(flaky, fact), return_exceptions=True)

    async def grown(ctx: Context) -> None:
        await asyncio.gather(*(ctx.do(till.look_up, fact) for fact in ("xabc" if till.runs > 1 else "abc")))

    for body in (side_by_side, one_by_one, grown):
        till.paid, till.runs = [], 0
        async with Engine(":memory:", strict=True) as till.engine:
            session = await till.twice(body)
            assert (await session.outcome()).status is Status.COMPLETED, body
            assert sorted(till.paid) == (["a", "b", "c", "x"] if body is grown else ["a", "b", "c"])
            assert await missed(session) == await missed(session, "operation.unused") == []


@on_loop
async def test_a_child_that_is_called_with_other_input_is_a_miss() -> None:
    till = Till()

    @workflow
    async def child(fact: str, ctx: Context) -> str:
        return await ctx.do(till.look_up, fact)

    async with Engine(":memory:") as till.engine:
        session = await till.twice(lambda ctx: ctx.call(child, fact=f"fact {till.now}"))
        assert [event.data["arguments"] for event in await missed(session)] == [["fact"]]


@on_loop
async def test_results_and_answers_that_changed_code_no_longer_asks_for_are_said_at_the_end() -> None:
    till = Till()

    async def outer(ctx: Context) -> str:
        return await ctx.do(till.look_up, "inside")

    @workflow
    async def shop(ctx: Context) -> str:
        till.runs += 1
        if till.runs <= 2:  # the answer runs the body again
            await ctx.do(outer)
            await ctx.do(till.charge, "4711", 1, key="pay")
            await ctx.sleep(0)
            assert await ctx.ask("Ship it?", bool)
            raise OSError("the line is down")
        return "done"

    async with Engine(":memory:") as engine:
        session = await engine.start(shop)
        assert (await session.outcome()).status is Status.WAITING
        await session.answer(True)
        assert (await session.outcome()).status is Status.FAILED
        await session.resume()
        assert (await session.outcome()).status is Status.COMPLETED
        assert [event.summary for event in await missed(session, "operation.unused")] == [
            "a remembered result of outer was not used: the step no longer makes this call",
            "a remembered result of Till.charge was not used: the step no longer makes this call (it cost $0.25)",
            "an answer of ask was not used: the step no longer makes this call",
        ]
        assert await missed(session) == []
