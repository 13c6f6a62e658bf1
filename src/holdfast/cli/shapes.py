"""What ``--json`` prints: the stable shapes of sessions, checkpoints, events and pauses. See docs/cli.md."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.clock import to_datetime
from holdfast.model import Event, Failure, Pause
from holdfast.outcome import Checkpoint, Outcome, SessionInfo


def session(info: SessionInfo) -> dict[str, Any]:
    """A session without its state."""
    return {
        "session_id": info.session_id,
        "workflow": info.workflow,
        "version": info.version,
        "status": info.status.value,
        "step": info.step,
        "visit": info.visit,
        "owner": info.owner,
        "tags": list(info.tags),
        "created_at": moment(info.created_at),
        "updated_at": moment(info.updated_at),
        "pause_requested": info.pause_requested,
        "cancel_requested": info.cancel_requested,
        "holder": info.holder,
        "failure": None if info.failure is None else failure(info.failure),
        "spent_usd": info.spent_usd,
        "spent_tokens": info.spent_tokens,
        "budget_usd": info.budget_usd,
        "progress": None if info.progress is None else {"done": info.progress[0], "total": info.progress[1]},
        "waiting": list(info.waiting),
        "wakes_at": moment(info.wakes_at),
        "parent_id": info.parent_id,
    }


def failure(found: Failure) -> dict[str, Any]:
    """A step's own error."""
    return {
        "step": found.step,
        "type": found.type,
        "message": found.message,
        "attempts": found.attempts,
        "traceback": found.traceback,
    }


def pause(found: Pause) -> dict[str, Any]:
    """Why a session stands still."""
    return {
        "kind": found.kind,
        "reason": found.reason,
        "by": found.by,
        "at": moment(to_datetime(found.at)),
        "step": found.step,
        "mode": found.mode,
        "freeze": found.freeze,
    }


def outcome(found: Outcome[Any], info: SessionInfo) -> dict[str, Any]:
    """How a session stands after it ran here."""
    return session(info) | {
        "pauses": [pause(each) for each in found.pauses],
        "skipped_visits": found.skipped_visits,
        "saved_seconds": found.saved_time.total_seconds(),
        "saved_usd": found.saved_usd,
        "state": state(found.state),
    }


def state(model: Any) -> Any:
    """A state as plain JSON, by the model's own rules."""
    return model.model_dump(mode="json")


def checkpoint(found: Checkpoint) -> dict[str, Any]:
    """One finished visit."""
    return {
        "seq": found.seq,
        "name": found.name,
        "step": found.step,
        "visit": found.visit,
        "at": moment(found.at),
        "took_seconds": found.took.total_seconds(),
        "skipped": found.skipped,
        "attempts": found.attempts,
        "fields": list(found.fields),
        "version": found.version,
        "left_behind": found.left_behind,
        "redacted": found.redacted,
    }


def event(found: Event) -> dict[str, Any]:
    """One line of a session's history."""
    return {
        "cursor": found.cursor,
        "session_id": found.session_id,
        "at": moment(to_datetime(found.at)),
        "agent_name": found.agent_name,
        "event_type": found.event_type,
        "summary": found.summary,
        "data": found.data,
    }


def moment(when: datetime | None) -> str | None:
    """A time as ISO 8601, UTC."""
    return None if when is None else when.isoformat()
