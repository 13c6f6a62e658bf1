"""Describes a workflow as plain data, for programs that do not have its code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from pydantic.json_schema import GenerateJsonSchema

from pausepoint.codec.values import as_plain
from pausepoint.definition.artifacts import BoundArtifact
from pausepoint.definition.binding import BoundStep, Check
from pausepoint.definition.retry import Retry
from pausepoint.model.descriptions import (
    ArtifactDescription,
    CheckDescription,
    Description,
    GuardDescription,
    RetryDescription,
    RouteDescription,
    ScopeDescription,
    StepDescription,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.definition.workflow import Workflow

LARGEST_SCHEMA = 2**18
"""The most bytes of a state's JSON schema. A larger one is replaced by the names of the fields."""


def description_of(workflow: Workflow[Any], schema: bool = True) -> Description:
    """Return the description of a workflow; without ``schema``, that of its graph alone."""
    routes = [(after, route.check, route.targets) for after, route in workflow.routes.items()]
    guards = [(after, check) for after, checks in workflow.guards.items() for check in checks]
    return Description(
        workflow.name,
        workflow.version,
        tuple(_step(workflow, each) for each in workflow.steps),
        tuple(RouteDescription(check.name, after, targets, *_reads(check)) for after, check, targets in routes),
        tuple(GuardDescription(check.name, after, *_reads(check)) for after, check in guards),
        tuple(ScopeDescription(each.name, each.reads, each.writes) for each in workflow.scopes),
        tuple(sorted(workflow.events)),
        tuple(sorted(workflow.migrations)),
        workflow.is_guest,
        workflow.returns,
        _schema(workflow.model) if schema else None,
    )


def _step(workflow: Workflow[Any], step: BoundStep) -> StepDescription:
    return StepDescription(
        step.name,
        step.agent,
        *_reads(step),
        tuple(place.path for place in step.writes),
        CheckDescription(step.when.name, *_reads(step.when)) if step.when else None,
        workflow.scope_of.get(step.name),
        _retry(step.retry),
        step.timeout,
        step.pause,
        tuple(_artifact(each) for each in step.publishes),
        tuple(old for old, new in workflow.renamed.items() if new == step.name),
    )


def _reads(bound: BoundStep | Check) -> tuple[tuple[str, ...], bool]:
    return tuple(read.place.path for read in bound.reads), bound.whole is not None


def _retry(retry: Retry) -> RetryDescription:
    names = tuple(each.__name__ for each in retry.on)
    return RetryDescription(retry.attempts, retry.first, retry.factor, retry.longest, retry.jitter, names)


def _artifact(artifact: BoundArtifact) -> ArtifactDescription:
    codec: Literal["json", "text", "custom"] = artifact.codec if isinstance(artifact.codec, str) else "custom"
    spec = artifact.spec
    return ArtifactDescription(spec.path, artifact.place.path, codec, spec.count, spec.min_bytes)


class _Quiet(GenerateJsonSchema):
    """Leaves out defaults that are not JSON, without a warning: a form does not need them."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 (as in the base class)


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a state. If there is none, such as for a type of its own, name the fields at least."""
    try:
        found: dict[str, Any] = as_plain(model.model_json_schema(by_alias=False, schema_generator=_Quiet))
        if len(msgspec.json.encode(found)) <= LARGEST_SCHEMA:
            return found
    except Exception:  # a type may refuse in any way, and a session must start all the same
        pass
    fields = model.model_fields
    required = [name for name, field in fields.items() if field.is_required()]
    return {
        "title": model.__name__,
        "type": "object",
        "properties": {name: {} for name in fields},
        "required": required,
    }
