"""Why a session is not continued, and what to do instead."""

from __future__ import annotations

from pausepoint.errors import AlreadyRunning, InputConflict, VerbRefused
from pausepoint.model.sessions import SessionRow, Status


def ended_for_good(row: SessionRow) -> VerbRefused:
    """Return why a cancelled session is not resumed."""
    from pausepoint.model.ways import Ways  # only an error needs it

    return VerbRefused(
        f"Session {row.session_id!r} was cancelled and cannot be resumed."
        f" {Ways(row.session_id, None).after_cancel}.",
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


def for_run(error: AlreadyRunning | InputConflict | VerbRefused, store: str) -> str:
    """Return the message of an error of `run`, whose caller has no engine. ``store`` is as for `Ways`."""
    about = f"Session {error.session_id!r}"
    if isinstance(error, VerbRefused):
        from pausepoint.model.ways import Ways  # only an error needs it

        here = Ways(str(error.session_id), None).after_cancel
        return str(error).replace(here, Ways(str(error.session_id), store).after_cancel)
    if isinstance(error, AlreadyRunning):
        return (
            f"{about} is driven by {error.holder}. Wait until it has stopped, or end that process, then call"
            f" run(…, session_id={error.session_id!r}) again."
        )
    return (
        f"{about} already exists with different input. Pass another session_id to run(), or call it with the workflow"
        " and the input that the session was started with."
    )
