"""Signals belong to the program: an engine leaves the handlers of the program in place."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.engine import BlockingEngine
from pausepoint.errors import StoreClosed
from tests.support.children import script
from tests.support.loop import on_loop
from tests.support.pipeline import Gate, Pipeline

TERM, INT = signal.SIGTERM, signal.SIGINT


class Heard:
    """A handler of the program that notes the signals and does nothing else."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.numbers.append(number)


@contextmanager
def handlers(given: dict[signal.Signals, Any]) -> Iterator[None]:
    """Give signals other handlers for a while."""
    before = {number: signal.signal(number, handler) for number, handler in given.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize(
    ("given", "number"),
    [
        pytest.param(lambda: {TERM: Heard()}, TERM, id="one for SIGTERM"),
        pytest.param(lambda: {INT: Heard()}, INT, id="one for Ctrl+C"),
        pytest.param(lambda: {INT: Heard(), TERM: Heard()}, INT, id="two functions"),
        pytest.param(lambda: {INT: signal.SIG_IGN, TERM: signal.SIG_IGN}, TERM, id="ignored"),
    ],
)
@on_loop
async def test_a_signal_with_a_meaning_of_its_own_does_not_concern_the_engine(
    given: Callable[[], dict[signal.Signals, Any]], number: signal.Signals
) -> None:
    pipeline, theirs = Pipeline(), given()
    gate = pipeline.hold("draft")
    with handlers(theirs):
        async with Engine(":memory:") as engine:
            session = await engine.start(pipeline.workflow)
            await gate.reached.wait()
            signal.raise_signal(number)
            await asyncio.sleep(0)
            gate.opened.set()
            assert (await session.outcome()).status is Status.COMPLETED
            assert engine.ending == ""
            assert {each: signal.getsignal(each) for each in theirs} == theirs
        heard = theirs[number]
        assert heard is signal.SIG_IGN or heard.numbers == [number]


@on_loop
async def test_functions_that_the_program_gave_to_the_loop_are_called_and_decide() -> None:
    loop, heard, pipeline = asyncio.get_running_loop(), asyncio.Queue[int](), Pipeline()
    gate = pipeline.hold("draft")
    for number in (INT, TERM):
        loop.add_signal_handler(number, heard.put_nowait, number)
    try:
        async with Engine(":memory:") as engine:
            session = await engine.start(pipeline.workflow)
            await gate.reached.wait()
            for number in (INT, TERM):
                signal.raise_signal(number)
                assert await heard.get() == number
            gate.opened.set()
            assert (await session.outcome()).status is Status.COMPLETED
            assert engine.ending == ""
    finally:
        for number in (INT, TERM):
            loop.remove_signal_handler(number)


class Number(BaseModel):
    n: int = 0


def counting(gate: Gate) -> Workflow[Number]:
    async def one(number: int) -> int:
        await gate.hold()
        return number

    @step(writes="n")
    async def count(ctx: Context) -> int:
        return await ctx.do(one, 1) + await ctx.do(one, 2)

    return Workflow("counting", state=Number, steps=[count])


@pytest.mark.parametrize("number", [INT, TERM])
@on_loop
async def test_one_function_for_both_signals_ends_the_program_so_the_sessions_stop(number: signal.Signals) -> None:
    gate, heard, pipeline = Gate(), Heard(), Pipeline()
    with handlers({INT: heard, TERM: heard}):
        async with Engine(":memory:") as engine:
            session = await engine.start(counting(gate))
            await gate.reached.wait()
            signal.raise_signal(number)
            await asyncio.sleep(0.05)  # the operation in flight is not cut
            gate.opened.set()
            assert (await session.outcome()).status is Status.READY
            assert engine.ending == f"{number.name} received"
            done = [each async for each in session.events() if each.event_type == "operation.completed"]
            assert len(done) == 1, "no other operation began"
            late = await engine.start(pipeline.workflow)  # a request that came meanwhile
            assert (await late.outcome()).status in (Status.READY, Status.CREATED)
            assert pipeline.calls == []
        assert heard.numbers == [number]
        assert {signal.getsignal(INT), signal.getsignal(TERM)} == {heard}
    with pytest.raises(StoreClosed, match=f"{number.name} closed this engine.*can be resumed.*signals=False"):
        await engine.session(session.id).info()


@on_loop
async def test_engines_inside_each_other_all_stop_and_the_program_hears_each_signal_once() -> None:
    heard = Heard()
    with handlers({INT: heard, TERM: heard}):
        async with Engine(":memory:") as outer:
            async with Engine(":memory:") as inner:
                signal.raise_signal(TERM)
                while not (outer.ending and inner.ending):
                    await asyncio.sleep(0)
            assert signal.getsignal(TERM) != heard, "the handler of the outer engine"
        assert (heard.numbers, signal.getsignal(TERM)) == ([TERM], heard)


@on_loop
async def test_a_second_signal_to_a_program_with_its_own_handler_aborts_the_operations() -> None:
    gate, heard = Gate(), Heard()
    with handlers({INT: heard, TERM: heard}):
        async with Engine(":memory:") as engine:
            session = await engine.start(counting(gate))
            await gate.reached.wait()
            signal.raise_signal(INT)
            await asyncio.sleep(0.05)
            signal.raise_signal(INT)
            assert (await session.outcome()).status in (Status.READY, Status.CREATED)
        assert heard.numbers == [INT, INT]


def test_a_call_after_a_signal_says_that_the_signal_closed_the_engine() -> None:
    engine = Engine(":memory:")

    async def main() -> None:
        async with engine:
            signal.raise_signal(INT)
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    with pytest.raises(StoreClosed, match="SIGINT closed this engine"):
        asyncio.run(engine.sessions())


def test_a_blocking_call_after_a_signal_says_so_too() -> None:
    def main() -> None:
        with Engine(":memory:") as engine:
            opened.append(engine)
            signal.raise_signal(INT)

    opened: list[BlockingEngine] = []
    with pytest.raises(KeyboardInterrupt):
        main()
    with pytest.raises(StoreClosed, match="SIGINT closed this engine"):
        opened[0].sessions()


def test_a_signal_that_timeout_sends_to_the_process_and_to_its_group_counts_once() -> None:
    gate = Gate()

    async def main() -> None:
        async with Engine(":memory:") as engine:
            session = await engine.start(counting(gate))
            await gate.reached.wait()
            signal.raise_signal(INT)
            signal.raise_signal(INT)
            asyncio.get_running_loop().call_later(0.05, gate.opened.set)
            try:
                await session.outcome()
                await asyncio.Event().wait()
            finally:
                found.extend([each.event_type async for each in session.events()])

    found: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert "operation.completed" in found


NO_BLOCK = """
import asyncio, sys
from pydantic import BaseModel
from pausepoint import *

class Nothing(BaseModel): ...

@step
async def forever(ctx: Context) -> None:
    print("running", flush=True)
    await asyncio.Event().wait()

async def opened():
    engine = await Engine(sys.argv[1]).__aenter__()
    await engine.start(Workflow("forever", state=Nothing, steps=[forever]), session_id="x")
    return engine

async def main():
    engine = await asyncio.create_task(opened())  # as in a notebook: the task that opened it has ended
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.long
def test_an_engine_whose_opener_has_ended_ends_the_program_too(tmp_path: Any) -> None:
    with script(NO_BLOCK, tmp_path / "a.db") as program:
        program.expect("running")
        program.signal(TERM)
        program.signal(TERM)
        assert program.ended() in (143, -TERM)  # the second signal may come when the handlers are gone
    with Engine(tmp_path / "a.db") as engine:
        assert engine.session("x").info().status in (Status.READY, Status.CREATED)
