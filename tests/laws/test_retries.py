"""A law of retries: what becomes of an operation depends on its failures and its policy, never on who died when."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from pausepoint import Context, Engine, Retry, Workflow, step
from pausepoint.errors import StoreClosed
from pausepoint.log.replay import WaitBody
from pausepoint.runtime.visit import Visit
from pausepoint.testing import ManualClock
from tests.support.mortal import MortalStore, crash


class State(BaseModel):
    done: dict[int, int] = {}
    failed: list[int] = []


class Death(NamedTuple):
    """At which write the process dies, and whether that write takes effect."""

    writes: int
    after: bool


def planned(failures: list[int], attempts: int, first: float) -> Workflow[State]:
    """Return a workflow whose items fail as often as planned. Every attempt pays one dollar."""

    async def item(number: int, ctx: Context) -> int:
        attempt = ctx._frame.attempt
        ctx.spend(usd=1)
        await ctx.do(inside, number)
        if attempt <= failures[number]:
            raise ConnectionError(f"{number}, attempt {attempt}")
        return attempt

    async def inside(number: int) -> int:
        return number

    @step(writes=["done", "failed"])
    async def act(ctx: Context) -> dict[str, object]:
        retry = Retry(attempts=attempts, first=first, jitter=0)
        batch = await ctx.map(item, range(len(failures)), on_error="collect", concurrency=2, retry=retry)
        return {"done": dict(sorted(batch.done.items())), "failed": sorted(batch.failed)}

    return Workflow("law", state=State, steps=[act])


async def lived(path: Path, workflow: Workflow[State], deaths: list[Death]) -> tuple[State, float, list[str], int]:
    """Run a session through these deaths. Return its state, what it spent, the retries, and how often it died."""
    clock, died = ManualClock(auto=True), 0
    for death in deaths:
        store = MortalStore(path, clock=clock)
        engine = await Engine(store, workflows=[workflow], clock=clock, signals=False).__aenter__()
        store.doom(*death)
        with suppress(StoreClosed):
            await (await engine.start(workflow, session_id="s")).outcome()
        died += store.dead
        await crash(engine)
    async with Engine(path, workflows=[workflow], clock=clock, signals=False) as engine:
        session = await engine.start(workflow, session_id="s")
        outcome = await session.outcome()
        assert (await session.verify()).ok
        events = [event async for event in session.events() if event.event_type == "operation.retried"]
        retried = sorted(f"{event.data['id']} {event.data['attempt']}" for event in events)
        return outcome.state, outcome.spent_usd, retried, died


@pytest.mark.long
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    failures=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    attempts=st.integers(1, 4),
    first=st.sampled_from([0.0, 1.0, 300.0]),  # at once, in place, parked
    deaths=st.lists(st.builds(Death, st.integers(1, 20), st.booleans()), max_size=2),
)
def test_the_outcome_depends_on_failures_and_policy_alone(
    failures: list[int], attempts: int, first: float, deaths: list[Death]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workflow = planned(failures, attempts, first)
        state, spent, retried, _ = asyncio.run(lived(Path(folder) / "s.db", workflow, deaths))
    assert state.done == {number: times + 1 for number, times in enumerate(failures) if times < attempts}
    assert state.failed == [number for number, times in enumerate(failures) if times >= attempts]
    assert len(retried) == len(set(retried)) == sum(min(times, attempts - 1) for times in failures)
    # The last attempt of an item that failed is not recorded: a process that starts the step again tries it once more,
    # and what it spends then has the same identity.
    assert spent == sum(min(times + 1, attempts) for times in failures)


def test_an_engine_that_counts_attempts_in_memory_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    async def keep_in_memory(visit: Visit, body: WaitBody, **facts: Any) -> None:
        visit.host.line.waits[body.id] = body

    monkeypatch.setattr(Visit, "open_wait", keep_in_memory)
    with tempfile.TemporaryDirectory() as folder:
        deaths = [Death(4, True)]
        _, spent, retried, died = asyncio.run(lived(Path(folder) / "s.db", planned([3], 4, 1.0), deaths))
    assert died == 1
    assert (len(retried), spent) != (3, 4)


def test_the_deaths_happen() -> None:
    with tempfile.TemporaryDirectory() as folder:
        deaths = [Death(6, False), Death(4, True)]
        *_, died = asyncio.run(lived(Path(folder) / "s.db", planned([3, 1], 4, 1.0), deaths))
    assert died == 2
