"""Runs that stop themselves: by the same button, each stop with its reason, each switchable."""

from __future__ import annotations

import pytest

from holdfast import Engine, Status
from holdfast.orchestrator import (
    Orchestrator,
    OrchestratorPaused,
    OrchestratorState,
    RunReport,
    Safety,
    Task,
    TaskAgent,
)
from holdfast.orchestrator.orchestrator import SAFETY
from tests.support.loop import on_loop

TASKS = [Task(id=f"t{n}") for n in range(8)]


async def fails_alike(agent: TaskAgent) -> None:
    raise ValueError("the key is wrong")


async def fails_otherwise(agent: TaskAgent) -> None:
    raise ValueError(agent.task.id)


async def fails_now_and_then(agent: TaskAgent) -> None:
    if int(agent.task.id[1:]) % 2:
        raise ValueError(agent.task.id)


async def spends(agent: TaskAgent) -> None:
    agent.ctx.spend(usd=1)


@pytest.mark.parametrize(
    ("work", "safety", "reason"),
    [
        (fails_alike, Safety(failures_in_a_row=None), "3 tasks failed in the same way: ValueError: the key is wrong"),
        (fails_otherwise, Safety(same_error=None), "5 tasks in a row failed, the last one with ValueError: t4"),
        (spends, Safety(), "$8.0000 of a budget of $10.0000 are spent, which is 80%"),
    ],
)
@on_loop
async def test_a_run_in_trouble_pauses_with_the_reason(work: object, safety: Safety, reason: str) -> None:
    async with Engine(":memory:") as engine:
        run = Orchestrator(engine, "run", work, agents=1, safety=safety)  # type: ignore[arg-type]
        heard: list[OrchestratorPaused] = []
        run.bus.on(OrchestratorPaused, heard.append)
        report = await run.run([*TASKS, Task(id="t8"), Task(id="t9")], budget=10)
        assert (report.status, report.reason, run.get_state()) == (Status.PAUSED, reason, OrchestratorState.PAUSED)
        assert [(event.reason, event.by) for event in heard] == [(reason, SAFETY)]
        [pause] = await engine.pauses("run")
        assert (pause.kind, pause.by) == ("operator", SAFETY)
        await run.resume()  # who resumes has seen it: it counts anew
        assert tried(await run.outcome()) > tried(report)


def tried(report: RunReport) -> int:
    return len(report.tasks) - report.counts.get("pending", 0)


@pytest.mark.parametrize("work", [fails_alike, fails_otherwise, fails_now_and_then, spends])
@on_loop
async def test_each_stop_can_be_switched_off(work: object) -> None:
    async with Engine(":memory:") as engine:
        off = Safety(budget_share=None, failures_in_a_row=None, same_error=None)
        run = Orchestrator(engine, "run", work, agents=1, safety=off)  # type: ignore[arg-type]
        report = await run.run(TASKS, budget=9)
        assert (report.status, "pending" in report.counts) != (Status.PAUSED, True)


@on_loop
async def test_failures_with_successes_between_them_are_not_in_a_row() -> None:
    async with Engine(":memory:") as engine:
        run = Orchestrator(engine, "run", fails_now_and_then, agents=1, safety=Safety(failures_in_a_row=2))
        report = await run.run(TASKS)
        assert (report.status, report.counts) == (Status.FAILED, {"done": 4, "failed": 4})


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
