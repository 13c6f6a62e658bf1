"""The result that a person gives to an operation, instead of the one that the log remembers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from pausepoint.codec.values import Typed, typed
from pausepoint.codec.walk import Limits
from pausepoint.definition.functions import callee
from pausepoint.definition.workflow import BoundStep, Workflow
from pausepoint.errors import VerbRefused
from pausepoint.log.replay import Line, OperationBody
from pausepoint.log.state import Blobs, stored
from pausepoint.log.telemetry import log_advice
from pausepoint.model.sessions import SessionRow


class _Again:
    """Stands for the result of the next call of the operation."""

    def __repr__(self) -> str:
        return "AGAIN"


AGAIN = _Again()


def replaced(
    workflow: Workflow[Any], row: SessionRow, line: Line, body: OperationBody, result: Any, limits: Limits,
    blobs: Blobs, by: str | None,
) -> OperationBody:  # fmt: skip
    """Return an operation with another result. Raises `StateRefused` if it is not of the type that the function has.

    The log does not have this type. If no function of that name is known to the step, or it has no annotation, every
    value that can be stored is accepted, with a warning.
    """
    if not body.input or body.name.startswith("call:"):
        raise VerbRefused(
            f"Operation {body.name!r} of session {row.session_id!r} waits for something, so its result cannot be"
            " replaced. Only that of a function can be. Leave out the result, so that it waits again.",
            session_id=row.session_id, status=row.status.value,
        )  # fmt: skip
    of = None if line.step not in workflow.outline else _type_of(workflow.step(line.step), body.name)
    if of is None:
        of = typed(Any)
        text = (
            f"the result of {body.name} is replaced without a check, because the type that it returns is not known"
            " here. If the value does not fit, the step fails when it runs again."
        )
        log_advice(text, row.session_id, line.step or "", line.visit)
    data = of.store(result, body.name, limits)
    return replace(body, value=stored(data, blobs), took=0, effects=(), outcome="", agent=by or "")


def _type_of(step: BoundStep, name: str) -> Typed | None:
    """Return the type that the function of this name returns, if the module or the function of a step knows it."""
    for names in _scopes(step):
        found: Any = names.get(name.partition(".")[0])
        for part in name.split(".")[1:]:
            found = getattr(found, part, None)
        if callable(found) and (facts := callee(found)).name == name:
            return None if facts.result.annotation is Any else facts.result
    return None


def _scopes(step: BoundStep) -> Iterator[Mapping[str, Any]]:
    function = inspect.unwrap(step.fn)
    if inspect.isfunction(function):
        known = inspect.getclosurevars(function)
        yield known.nonlocals
        yield function.__globals__
