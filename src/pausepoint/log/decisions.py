"""The decision after a step: which step follows, or which guard holds the session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pausepoint.definition.workflow import Check, Workflow
from pausepoint.errors import IllegalTransition


class Settled(msgspec.Struct, frozen=True, gc=False):
    """The decision after a step: the ``next`` step, or why a guard holds the session."""

    next: str | None
    refused: str = ""
    guard: str = ""


def refusal(workflow: Workflow[Any], step: str, evaluate: Callable[[Check], Any]) -> Settled | None:
    """Run the guards after a step. Return the first refusal; None if the session may continue."""
    for guard in workflow.guards.get(step, ()):
        reason = evaluate(guard)
        if reason is not None:
            return Settled(None, str(reason) or f"guard {guard.name!r} refused without a reason", guard.name)
    return None


def settle(workflow: Workflow[Any], step: str, evaluate: Callable[[Check], Any]) -> Settled:
    """Run the guards after a step, then its route. Without a route, the next step in the list follows."""
    if (refused := refusal(workflow, step, evaluate)) is not None:
        return refused
    route = workflow.routes.get(step)
    if route is None:
        return Settled(workflow.following(step))
    target = evaluate(route.check)
    if target not in route.targets:
        legal = ", ".join("the end" if name is None else name for name in route.targets)
        raise IllegalTransition(
            f"Workflow {workflow.name!r}: route {route.check.name!r} returned {target!r} after step {step!r}, but its"
            f" return type allows only: {legal}. Add the step to the return type, or return one of these.",
            step=step,
            target=target,
        )
    return Settled(target)
