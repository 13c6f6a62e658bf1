"""Why a session is not continued, and what to do instead."""

from __future__ import annotations

from pausepoint.errors import VerbRefused
from pausepoint.model.sessions import SessionRow, Status


def ended_for_good(row: SessionRow) -> VerbRefused:
    """Return why a cancelled session is not resumed."""
    return VerbRefused(
        f"Session {row.session_id!r} was cancelled and cannot be resumed. Rewind it to a step, fork it, or start a new"
        " session.",
        session_id=row.session_id, status=row.status.value,
    )  # fmt: skip


def only_resumed(row: SessionRow) -> VerbRefused:
    """Return why a session is not picked up: it is paused or has failed, and only a resume may continue it."""
    failed = row.status is Status.FAILED
    what = "has failed, and picking it up would retry the step" if failed else "is paused, and stays so"
    return VerbRefused(
        f"Session {row.session_id!r} {what}. Continue it with engine.resume({row.session_id!r}).",
        session_id=row.session_id, status=row.status.value,
    )  # fmt: skip
