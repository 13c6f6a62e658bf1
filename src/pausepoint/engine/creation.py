"""The first records of a new session: its input, and a skipped visit for every step before the one it starts at."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pausepoint.codec.walk import Limits
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import FolderRefused, StateRefused
from pausepoint.log.replay import CheckpointBody, KeyBody, to_payload
from pausepoint.log.state import Blobs, Slot, stored
from pausepoint.log.trail import Trail
from pausepoint.model.budgets import Budget
from pausepoint.model.commits import NewSession
from pausepoint.model.ids import SessionId
from pausepoint.model.queues import DEFAULT_QUEUE
from pausepoint.model.records import Record, first_digest, seal

if TYPE_CHECKING:
    from pydantic import BaseModel


class Opening(NamedTuple):
    """The session that a message starts if it does not exist."""

    workflow: Workflow[Any]
    given: BaseModel | Mapping[str, Any]
    owner: str | None


def budget_of(new: NewSession) -> Budget | None:
    """Return the budget of a session as a caller passes it; None if it has none."""
    usd = None if new.budget_usd is None else Decimal(new.budget_usd) / 1_000_000
    if usd is None and new.budget_tokens is None and new.budget_operations is None:
        return None
    return Budget(usd=usd, tokens=new.budget_tokens, operations=new.budget_operations)


def new_session(
    workflow: Workflow[Any], given: BaseModel | dict[str, Any], session_id: SessionId, limits: Limits, now: int,
    at_step: str | None = None, by: str | None = None, folder: str | Path | None = None,
) -> NewSession:  # fmt: skip
    """Return a session that can be stored, without owner, tags, budget and pause."""
    blobs: Blobs = []
    trail = trail_for(workflow, session_id, folder)
    values, digest = encoded_input(workflow, given, at_step, limits)
    slots: dict[str, Slot] = {name: stored(data, blobs) for name, data in values.items()}
    records, step = _first_records(workflow, session_id, slots, at_step, by, trail, now)
    return NewSession(
        session_id, workflow.name, workflow.version, None, (), digest, records[0].at, step, 1, None,
        records, tuple(blobs), guest=workflow.is_guest, queue=workflow.queue or DEFAULT_QUEUE,
        priority=workflow.priority or 0,
    )  # fmt: skip


def trail_for(workflow: Workflow[Any], session_id: str, folder: str | Path | None) -> Trail | None:
    """Return the artifact trail of a new session; None if its workflow publishes no artifacts.

    Raises `FolderRefused` if ``folder`` is missing, or is given for a workflow without artifacts.
    """
    if not workflow.publishes:
        if folder is not None:
            raise FolderRefused(
                f"Workflow {workflow.name!r} publishes no artifacts. Leave out folder=, or declare an artifact with"
                " @step(publishes=Artifact(...)).",
                session_id=session_id, path=str(folder),
            )  # fmt: skip
        return None
    if folder is None:
        raise FolderRefused(
            f"Workflow {workflow.name!r} publishes artifacts and needs a folder for them. Pass folder='output/...'.",
            session_id=session_id, path="",
        )  # fmt: skip
    return Trail(str(Path(folder).absolute()))


def encoded_input(
    workflow: Workflow[Any], given: BaseModel | dict[str, Any], at_step: str | None, limits: Limits
) -> tuple[dict[str, bytes], bytes]:
    """Return the encoded fields that a session starts with, and a digest of the given input."""
    if not isinstance(given, dict | workflow.model):
        raise StateRefused(
            f"Workflow {workflow.name!r} takes a {workflow.model.__name__}, not a {type(given).__name__}. Pass a"
            f" {workflow.model.__name__}, or its fields as keywords.",
            field=type(given).__name__,
        )
    values = workflow.shape.start(given)
    named = named_fields(given)
    if workflow.returns in named:
        raise StateRefused(
            f"{workflow.returns!r} is what workflow {workflow.name!r} returns, and cannot be input. Leave it out.",
            field=workflow.returns,
        )
    encoded: dict[str, bytes] = {}
    digest = sha256(f"{workflow.name}|{at_step}".encode())
    for name, place in workflow.shape.fields.items():
        data = encoded[name] = place.typed.encode(values[name], name, limits)
        if name in named:
            digest.update(b"|%b=%b" % (name.encode(), sha256(data).digest()))
    return encoded, digest.digest()


def given_input(state: BaseModel | None, fields: dict[str, Any]) -> BaseModel | dict[str, Any]:
    """Return the input of a session, which is given as a state or as fields."""
    if state is not None and fields:
        raise TypeError("Pass the input either as a state or as keyword fields, not both.")
    return fields if state is None else state


def named_fields(given: BaseModel | dict[str, Any]) -> set[str]:
    """Return the fields that the caller set, including defaults changed in place. Factory values do not count."""
    if isinstance(given, dict):
        return set(given)
    plain = {name: field for name, field in type(given).model_fields.items() if field.default_factory is None}
    changed = {name for name, field in plain.items() if getattr(given, name, field.default) != field.default}
    return given.model_fields_set | changed


def _first_records(
    workflow: Workflow[Any], session_id: str, slots: dict[str, Slot], at_step: str | None, by: str | None,
    trail: Trail | None, now: int,
) -> tuple[tuple[Record, ...], str]:  # fmt: skip
    """Return a key frame and a skipped visit for every step before ``at_step``, and the first step to run."""
    target = workflow.first if at_step is None else workflow.step(at_step).name
    body = KeyBody(
        slots, workflow.first, created=True, by=by, version=workflow.version, outline=workflow.outline, trail=trail
    )
    records = [seal(first_digest(session_id), 1, 0, "key", workflow.first, 1, now, to_payload(body))]
    for step in workflow.steps:
        if step.name == target:
            break
        skip = CheckpointBody(workflow.following(step.name), skipped=f"started at {target}", version=workflow.version)
        last = records[-1]
        records.append(seal(last.digest, last.seq + 1, last.seq, "checkpoint", step.name, 1, now, to_payload(skip)))
    return tuple(records), target
