"""``always_replay``: what a resume would meet, in every run; and who cannot take it."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Status, Workflow, step, testing
from pausepoint.errors import NotReplayable
from tests.support.corpus import CORPUS
from tests.support.loop import on_loop
from tests.support.sample import TOPIC, sample


class Doc(BaseModel):
    words: list[str] = []
    text: str = ""


def the(*steps: Any) -> Workflow[Doc]:
    return Workflow("work", state=Doc, steps=list(steps), events=["noted"])


async def echo(word: str) -> str:
    return word


def test_a_step_runs_again_after_each_operation_and_each_operation_once() -> None:
    tops: list[str] = []
    ran: Counter[str] = Counter()

    async def say(word: str) -> str:
        ran[word] += 1
        return word

    @step(writes="words")
    async def work(ctx: Context) -> list[str]:
        tops.append("top")
        return [await ctx.do(say, "a"), await ctx.do(say, "b"), *await ctx.map(say, ["c"])]

    outcome = testing.run(the(work), replay=True)
    assert outcome.state.words == ["a", "b", "c"]
    assert ran == {"a": 1, "b": 1, "c": 1}
    assert len(tops) == 4  # the first run, and one after each


def test_blocking_steps_are_run_again_too() -> None:
    tops: list[str] = []

    @step(writes="words")
    def work(ctx: BlockingContext) -> list[str]:
        tops.append("top")
        return [ctx.do(str.upper, "a", key=1), ctx.do(str.upper, "b", key=2)]

    assert testing.run(the(work), replay=True).state.words == ["A", "B"]
    assert len(tops) == 3


@pytest.mark.parametrize("name", [name for name in CORPUS if name != "long"])
def test_a_workflow_that_replays_comes_out_the_same(name: str) -> None:
    plain, replayed = CORPUS[name](), CORPUS[name]()
    usual = testing.run(plain.workflow, **plain.given)
    again = testing.run(replayed.workflow, replay=True, **replayed.given)
    assert (again.status, again.spent_usd) == (usual.status, usual.spent_usd) == (Status.COMPLETED, usual.spent_usd)
    assert again.state.model_dump() == usual.state.model_dump()
    assert Counter(replayed.ran) == Counter(plain.ran)


def test_a_workflow_with_a_bit_of_everything_replays() -> None:
    usual, again = testing.run(sample, topic=TOPIC), testing.run(sample, replay=True, topic=TOPIC)
    assert (again.state, again.spent_usd) == (usual.state, usual.spent_usd)


numbers = itertools.count()

UNSTABLE: dict[str, Callable[[Context], Any]] = {
    "a random argument": lambda ctx: ctx.do(echo, f"{random.random()}"),
    "a random key": lambda ctx: ctx.do(echo, "a", key=f"{random.random()}"),
    "a counter of the process": lambda ctx: ctx.do(echo, f"{next(numbers)}"),
    "items that differ": lambda ctx: ctx.map(echo, [f"{next(numbers)}", "b"]),
}


@pytest.mark.parametrize("what", UNSTABLE)
def test_a_step_that_does_not_ask_again_for_what_it_left_is_found_out(what: str) -> None:
    @step(writes="text")
    async def work(ctx: Context) -> str:
        return str(await UNSTABLE[what](ctx))

    with pytest.raises(
        NotReplayable, match=r"work#1 does not replay\. An earlier run remembered /.* asked for /"
    ) as caught:
        testing.run(the(work), replay=True)
    error = caught.value
    assert (error.step, error.visit) == ("work", 1)
    assert error.operations


def test_a_step_that_no_longer_asks_at_all_is_found_out() -> None:
    asked = False

    @step(writes="text")
    async def work(ctx: Context) -> str:
        nonlocal asked
        if asked:
            return "from a memory of its own"
        asked = True
        return await ctx.do(echo, "a")

    with pytest.raises(NotReplayable, match="the replay did not ask for them"):
        testing.run(the(work), replay=True)


def test_an_attempt_need_not_ask_for_what_a_failed_one_left() -> None:
    @step(writes="text", retry=3)
    async def work(ctx: Context) -> str:
        text = await ctx.do(echo, f"attempt {ctx.attempt}")
        if ctx.attempt < 3:
            raise ConnectionError("again")
        return text

    assert testing.run(the(work), replay=True).state.text == "attempt 3"


def test_branches_that_race_are_given_their_time() -> None:
    async def slow(word: str) -> str:
        await asyncio.sleep(0.005)
        return word

    @step(writes="words")
    async def work(ctx: Context) -> list[str]:
        async def left() -> str:
            return "".join([await ctx.do(echo, f"{n}") for n in range(5)])

        async def right() -> str:
            await asyncio.sleep(0.003)  # plain waiting: cut off and done again
            return await ctx.do(echo, "r") + await ctx.do(slow, "s")

        return list(await asyncio.gather(left(), right()))

    assert testing.run(the(work), replay=True).state.words == ["01234", "rs"]


def test_events_and_spending_are_not_doubled() -> None:
    @step(writes="text")
    async def work(ctx: Context) -> str:
        ctx.emit("noted", "before")
        ctx.spend(usd=1)
        await ctx.do(echo, "a")
        ctx.emit("noted", "between")
        ctx.spend(usd=2)
        await ctx.do(echo, "b")
        ctx.spend(usd=4)
        return "done"

    async def main() -> None:
        async with testing.engine(replay=True) as engine:
            session = await engine.start(the(work))
            assert (await session.outcome()).spent_usd == 7
            noted = [event.summary async for event in session.events() if event.event_type == "noted"]
            assert noted == ["before", "between"]

    asyncio.run(main())


@on_loop
async def test_a_pause_takes_effect_before_the_next_operation_as_ever() -> None:
    reached, go = asyncio.Event(), asyncio.Event()

    async def hold(word: str) -> str:
        reached.set()
        await go.wait()
        return word

    @step(writes="words")
    async def work(ctx: Context) -> list[str]:
        return [await ctx.do(hold, "a"), await ctx.do(echo, "b")]

    @step(writes="text")
    async def end() -> str:
        return "end"

    async with testing.engine(replay=True) as engine:
        session = await engine.start(the(work, end))
        await reached.wait()
        await session.pause()
        go.set()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.words) == (Status.PAUSED, [])
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.state.words, outcome.state.text) == (["a", "b"], "end")


@on_loop
async def test_an_engine_that_exists_can_be_switched() -> None:
    tops: list[str] = []

    @step(writes="text")
    async def work(ctx: Context) -> str:
        tops.append("top")
        return await ctx.do(echo, "a")

    async with testing.engine() as engine:
        assert testing.always_replay(engine) is engine
        await engine.run(the(work))
    assert len(tops) == 2


def test_branches_that_wait_for_each_other_do_not_hang() -> None:
    @step(writes="words")
    async def work(ctx: Context) -> list[str]:
        first = asyncio.Event()

        async def second() -> str:
            await first.wait()
            return "second"

        async def both() -> str:
            word = await ctx.do(echo, "first")
            first.set()
            return word

        return list(await asyncio.gather(ctx.do(second), both()))

    assert testing.run(the(work), replay=True).state.words == ["second", "first"]
