"""The handlers of workflow definitions: what a form needs to start or edit a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pausepoint.errors import did_you_mean
from pausepoint.server.calls import Call, Reply
from pausepoint.server.problems import Problem

if TYPE_CHECKING:
    from pausepoint.definition.workflow import Workflow


async def index(call: Call) -> Reply:
    """List the workflows that this server knows."""
    found = [{"name": each.name, "version": each.version, "steps": list(each.outline), "drives": call.desk.drives}
             for each in call.engine.workflows.values()]  # fmt: skip
    return Reply({"workflows": found})


async def show(call: Call) -> Reply:
    """Return the description of a workflow."""
    name = call.params["name"]
    found = call.engine.workflows.get(name)
    if found is None:
        raise Problem(
            404, f"This server knows no workflow {name!r}{did_you_mean(name, call.engine.workflows)}",
            "unknown-workflow",
        )  # fmt: skip
    return Reply(described(found))


def described(workflow: Workflow[Any]) -> dict[str, Any]:
    """Return a workflow's steps, routes, guards and the JSON schema of its state."""
    return {
        "name": workflow.name,
        "version": workflow.version,
        "guest": workflow.is_guest,
        "publishes": workflow.publishes,
        "returns": workflow.returns,
        "steps": [_step(workflow, name) for name in workflow.outline],
        "state_schema": workflow.model.model_json_schema(),
    }


def _step(workflow: Workflow[Any], name: str) -> dict[str, Any]:
    step = workflow.step(name)
    route = workflow.routes.get(name)
    return {
        "name": name,
        "reads": sorted(set(step.depends_on)),
        "writes": [place.path for place in step.writes],
        "when": None if step.when is None else step.when.name,
        "guards": [check.name for check in workflow.guards.get(name, ())],
        "route": None if route is None else route.check.name,
        "targets": list(workflow.targets(name)),
    }
