"""Scopes: the definition says what an agent may read and write, and the engine enforces it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Engine, Scope, Status, Workflow, step
from pausepoint.errors import DefinitionError
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop


class Study(BaseModel):
    status: str = "created"
    evidence: list[str] = []
    estimates: dict[str, int] = {}
    plan: list[str] = []
    secret: str = "the key"


ingestion = Scope("IngestionAgent", reads=["status"], writes=["evidence"])
estimation = Scope("EstimationAgent", reads=["evidence"], writes=["estimates"])


@ingestion.step(writes="evidence")
async def ingest() -> list[str]:
    return ["page 1"]


def overreaching(extra: dict[str, Any]) -> Any:
    @step(writes=["estimates", "plan"])
    async def estimate(evidence: list[str]) -> dict[str, Any]:
        return {"estimates": {"page 1": 30}, **extra}

    return estimate


@pytest.mark.covers("S3.72")
@pytest.mark.parametrize("field", ["status", "evidence", "no_such_field"])
@on_loop
async def test_a_write_outside_a_steps_own_area_is_refused_the_state_is_unchanged_and_the_refusal_is_logged(
    field: str,
) -> None:
    workflow = Workflow("study", state=Study, steps=[ingest, overreaching({field: "done"})])
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow)
        outcome = await session.outcome()
        assert outcome.status is Status.FAILED
        assert outcome.failure is not None
        assert outcome.failure.type == "WriteRefused"
        assert f"may not write {field!r}" in outcome.failure.message
        assert outcome.state == Study(evidence=["page 1"])  # nothing was written, not even the allowed part
        refused = [event async for event in session.events() if event.event_type == "write.refused"]
        assert [(event.agent_name, event.data["field"]) for event in refused] == [("estimate", field)]


@pytest.mark.covers("S3.72")
@on_loop
async def test_a_refused_write_of_a_scopes_step_is_told_under_the_scopes_name_and_is_not_retried() -> None:
    ran: list[str] = []
    wide = Scope("EstimationAgent", reads=["evidence"], writes=["estimates", "plan"])

    @wide.step(writes=["estimates", "plan"], retry=3)
    async def estimate(evidence: list[str]) -> dict[str, Any]:
        ran.append("estimate")
        return {"status": "done"}

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(Workflow("study", state=Study, steps=[ingest, estimate]))
        outcome = await session.outcome()
        assert outcome.failure is not None
        assert "Step 'estimate' of agent 'EstimationAgent' may not write 'status'" in outcome.failure.message
        refused = [event async for event in session.events() if event.event_type == "write.refused"]
        assert [event.agent_name for event in refused] == ["EstimationAgent"]
        assert ran == ["estimate"]


@pytest.mark.covers("S3.72", "S3.74")
def test_a_declared_write_outside_the_scope_is_refused_when_the_workflow_is_made() -> None:
    @estimation.step(writes="plan")
    async def plan_it(evidence: list[str]) -> list[str]:
        return []

    with pytest.raises(DefinitionError, match="plan") as refused:
        Workflow("study", state=Study, steps=[ingest, plan_it])
    assert "EstimationAgent" in str(refused.value)


@pytest.mark.covers("S3.73", "S3.74")
def test_a_read_outside_the_scope_is_refused_when_the_workflow_is_made() -> None:
    @estimation.step(writes="estimates")
    async def peek(secret: str) -> dict[str, int]:
        return {secret: 1}

    with pytest.raises(DefinitionError, match="secret") as refused:
        Workflow("study", state=Study, steps=[ingest, peek])
    assert "EstimationAgent" in str(refused.value)


@pytest.mark.covers("S3.73")
@on_loop
async def test_a_step_gets_what_it_declares_and_nothing_else() -> None:
    got: list[dict[str, Any]] = []

    @estimation.step(writes="estimates")
    async def estimate(evidence: list[str]) -> dict[str, int]:
        got.append(dict(locals()))
        return {"page 1": 30}

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("study", state=Study, steps=[ingest, estimate]))
        outcome = await session.outcome()
    assert outcome.state == Study(evidence=["page 1"], estimates={"page 1": 30})
    assert [set(values) - {"got"} for values in got] == [{"evidence"}]


@pytest.mark.covers("S3.73")
def test_a_scope_that_may_not_read_everything_cannot_take_the_whole_state() -> None:
    @estimation.step(writes="estimates")
    async def all_of_it(state: Study) -> dict[str, int]:
        return {}

    with pytest.raises(DefinitionError, match="EstimationAgent"):
        Workflow("study", state=Study, steps=[ingest, all_of_it])


@pytest.mark.covers("S3.74")
@on_loop
async def test_each_workflow_has_an_ownership_table_of_its_own() -> None:
    other = Scope("Anybody", reads=["*"], writes=["plan", "status"])

    @other.step(writes=["plan", "status"])
    async def plan_all(state: Study) -> dict[str, Any]:
        return {"plan": [state.secret], "status": "planned"}

    workflow = Workflow("free", state=Study, steps=[plan_all])
    assert [(scope.name, scope.reads, scope.writes) for scope in workflow.scopes] == [
        ("Anybody", ("*",), ("plan", "status"))
    ]
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow)
        assert (await session.outcome()).state == Study(plan=["the key"], status="planned")
        agents = [event.agent_name async for event in session.events() if event.event_type == "step.completed"]
        assert agents == ["Anybody"]
