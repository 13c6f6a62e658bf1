"""The engine for unit tests: in memory, no signal handlers, time that passes by itself."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from pydantic import BaseModel

from pausepoint import Engine, Retry, Status, Workflow, step, testing
from tests.support.loop import on_loop


class Sum(BaseModel):
    of: list[int]
    total: int = 0


tries: list[int] = []


@step(writes="total", retry=5)
async def add(of: list[int]) -> int:
    tries.append(1)
    if len(tries) < 4:
        raise ConnectionError("not yet")
    return sum(of)


adding = Workflow("adding", state=Sum, steps=[add])


@pytest.fixture(autouse=True)
def fresh() -> None:
    tries.clear()


def test_a_unit_test_of_a_workflow_is_one_line() -> None:
    assert testing.run(adding, of=[1, 2, 3]).state.total == 6


def test_a_state_may_be_given_as_a_model() -> None:
    assert testing.run(adding, Sum(of=[4, 5])).state.total == 9


@on_loop
async def test_the_blocking_form_works_under_a_running_loop_and_hands_errors_on() -> None:
    assert testing.run(adding, of=[1]).status is Status.COMPLETED
    with pytest.raises(TypeError, match="not both"):
        testing.run(adding, Sum(of=[1]), of=[2])


@on_loop
async def test_retries_wait_on_the_manual_clock_so_nobody_waits() -> None:
    hours = Retry(attempts=5, first=3600, longest=3600)
    patient = Workflow("adding", state=Sum, steps=[step(add.fn, writes="total", retry=hours)])
    async with testing.engine(patient) as engine:
        outcome = await engine.run(patient, of=[2, 3])
        assert outcome.state.total == 5
        assert len(engine.time.slept) == 3
        assert engine.time.monotonic() > 3600


@on_loop
async def test_with_a_clock_of_ones_own_time_stands_still() -> None:
    clock = testing.ManualClock()
    async with testing.engine(adding, clock=clock) as engine:
        session = await engine.start(adding, of=[2, 3])
        for _ in range(3):
            await clock.asleep()
            assert await session.status() is Status.RUNNING
            clock.advance(3600)
            await asyncio.sleep(0.001)
        assert (await session.outcome()).state.total == 5


@on_loop
async def test_it_touches_neither_signal_handlers_nor_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    async with testing.engine(adding) as engine:
        await engine.run(adding, of=[1])
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert list(tmp_path.iterdir()) == []


def test_it_is_an_engine_and_has_a_blocking_form() -> None:
    with testing.engine(adding) as engine:
        assert engine.start(adding, of=[7]).outcome().state.total == 7
    assert issubclass(testing.InlineEngine, Engine)
