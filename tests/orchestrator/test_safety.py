"""Runs that stop themselves: by the same button, each stop with its reason, each switchable."""

from __future__ import annotations

from pathlib import Path

import pytest

from pausepoint import Context, Engine, Status
from pausepoint.orchestrator import (
    Orchestrator,
    OrchestratorPaused,
    OrchestratorState,
    RunReport,
    Safety,
    Task,
    TaskAgent,
)
from pausepoint.orchestrator.orchestrator import SAFETY
from tests.support.loop import on_loop


async def fails_alike_now_and_then(agent: TaskAgent) -> None:
    if int(agent.task.id[1:]) % 2:
        raise ValueError("the key is wrong")


async def fails_otherwise(agent: TaskAgent) -> None:
    raise ValueError(agent.task.id)


async def spends(agent: TaskAgent) -> None:
    await agent.call(spend)


async def spend(ctx: Context) -> None:
    ctx.spend(usd=1)


STOPS = {
    "same_error": (fails_alike_now_and_then, "3 tasks failed in the same way: ValueError: the key is wrong", 6),
    "failures_in_a_row": (fails_otherwise, "5 tasks in a row failed, the last one with ValueError: t4", 5),
    "budget_share": (spends, "$8.0000 of a budget of $10.0000 is spent, which is 80%", 8),
}
TASKS = [Task(id=f"t{n}") for n in range(9)]


@pytest.mark.parametrize("stop", STOPS)
@on_loop
async def test_a_run_in_trouble_pauses_with_the_reason_before_it_begins_anything_else(
    stop: str, tmp_path: Path
) -> None:
    work, reason, begun = STOPS[stop]
    async with Engine(tmp_path / "hold.db") as engine:
        run = Orchestrator(engine, "run", work, agents=1)
        heard: list[OrchestratorPaused] = []
        run.bus.on(OrchestratorPaused, heard.append)
        report = await run.run(TASKS, budget=10)
        assert (report.status, report.reason, run.get_state()) == (Status.PAUSED, reason, OrchestratorState.PAUSED)
        assert [(event.reason, event.by) for event in heard] == [(reason, SAFETY)]
        assert tried(report) == begun
        [pause] = await engine.session("run").pauses()
        assert (pause.kind, pause.by) == ("operator", SAFETY)
        await run.resume()  # who resumes has seen it: it counts anew
        assert tried(await run.outcome()) > tried(report)


def tried(report: RunReport) -> int:
    return len(report.tasks) - report.counts.get("pending", 0)


@pytest.mark.parametrize("stop", STOPS)
@on_loop
async def test_each_stop_is_switched_off_by_itself(stop: str) -> None:
    async with Engine(":memory:") as engine:
        run = Orchestrator(engine, "run", STOPS[stop][0], agents=1, safety=Safety(**{stop: None}))
        report = await run.run(TASKS, budget=10)
        assert (report.status in (Status.COMPLETED, Status.FAILED), tried(report)) == (True, len(TASKS))


@on_loop
async def test_failures_with_successes_between_them_are_not_in_a_row() -> None:
    async with Engine(":memory:") as engine:
        safety = Safety(failures_in_a_row=2, same_error=None)
        run = Orchestrator(engine, "run", fails_alike_now_and_then, agents=1, safety=safety)
        report = await run.run(TASKS)
        assert (report.status, report.counts) == (Status.FAILED, {"done": 5, "failed": 4})


@on_loop
async def test_a_long_task_is_stopped_between_two_calls_by_what_it_spends() -> None:
    async def spends_on(agent: TaskAgent) -> None:
        for _ in range(19):
            await agent.call(spend)

    async with Engine(":memory:") as engine:
        run = Orchestrator(engine, "run", spends_on, agents=1)
        report = await run.run([Task(id="long")], budget=20)
        assert (report.status, report.counts) == (Status.PAUSED, {"begun": 1})
        assert 16 <= report.spent_usd < 19
        await run.resume()
        assert (await run.outcome()).spent_usd == 19, "what was spent before is not spent again"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"budget_share": 0}, "budget_share"), ({"budget_share": 1.5}, "budget_share"),
        ({"failures_in_a_row": 0}, "failures_in_a_row"), ({"same_error": -1}, "same_error"),
    ],
)  # fmt: skip
def test_a_stop_that_cannot_be_meant_is_refused(wrong: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Safety(**wrong)  # type: ignore[arg-type]
