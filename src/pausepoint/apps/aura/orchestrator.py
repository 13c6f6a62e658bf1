"""Start, pause, read and resume sessions with plain calls. Each session in the store is shown as one document."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pausepoint import Engine
from pausepoint.apps.aura.memory import remembering
from pausepoint.apps.aura.models import AuraState, CurrentStep, WorkflowState
from pausepoint.apps.aura.settings import WITHOUT_CALENDAR, lacks_calendar, starting
from pausepoint.apps.aura.workflow import POSITIONS, aura, current_step
from pausepoint.apps.input import BadInput, refusal
from pausepoint.engine import BlockingEngine
from pausepoint.errors import StoreMissing, UnknownSession

DEFAULT = Path(".pausepoint", "pausepoint.db")

Store = str | Path | None
"""A store as `pausepoint.Engine` takes it. None means ``.pausepoint/pausepoint.db`` in the current folder."""

SAVED_BY = "save_workflow_state"


def run_aura_orchestrator(
    student_id: str, session_id: str | None = None, *, store: Store = None, **settings: Any
) -> WorkflowState:
    """Start a session for a student, or resume one, and return its document when it stops running.

    ``settings`` are for a new session: ``data``, ``calendar``, ``time_zone``, ``day_start``, … (see `AuraState`).
    Without ``data``, the sample runs. A session that pauses or fails raises no exception: check its ``status``.
    """
    if session_id is None:
        if lacks_calendar(settings):
            warnings.warn(WITHOUT_CALENDAR, stacklevel=2)
        state = starting(student_id, **{"reports": _beside(store)} | settings)
        with _engine(store) as engine:
            state = remembering(engine, state)
            session = engine.start(aura, state, owner=student_id)
            return _document(engine, session.id, session.outcome().state)
    if settings:
        raise BadInput(
            f"{min(settings)}: Session {session_id!r} already has its settings. Pass settings only for a new session."
        )
    with _existing(session_id, store) as engine:
        if engine.session(session_id).info().owner is None:  # for example, started on the command line
            _check_student(_document(engine, session_id), student_id)
        done = engine.session(session_id, owner=student_id).resume().outcome()
        return _document(engine, session_id, done.state)


def get_workflow_state(session_id: str, *, store: Store = None) -> WorkflowState | None:
    """Return a session as one document, or None if there is no session with that id."""
    try:
        with _existing(session_id, store) as engine:
            return _document(engine, session_id)
    except UnknownSession:
        return None


def request_pause(session_id: str, *, store: Store = None, reason: str = "", by: str | None = None) -> WorkflowState:
    """Request a pause before the session's next step. A session that has ended does not change."""
    with _existing(session_id, store) as engine:
        engine.session(session_id).pause(reason=reason, by=by)
        return _document(engine, session_id)


def save_workflow_state(
    session_id: str, state: WorkflowState | Mapping[str, Any], *, store: Store = None
) -> WorkflowState:
    """Store a document as a new session, or replace the fields of an existing one.

    A new session is paused until it is resumed. An existing session moves to ``current_step``, which may be earlier
    than its position but not later. A running session is refused. ``pause_requested`` requests a pause; if it is
    false, an existing pause remains.
    """
    wanted = _validated(session_id, state)
    with _engine(store) as engine:
        try:
            stored = _document(engine, session_id)
        except UnknownSession:
            _create(engine, wanted)
        else:
            _replace(engine, stored, wanted)
        if wanted.pause_requested:
            engine.session(session_id).pause(by=SAVED_BY)
        return _document(engine, session_id)


def _validated(session_id: str, state: WorkflowState | Mapping[str, Any]) -> WorkflowState:
    given = state.model_dump() if isinstance(state, WorkflowState) else dict(state)
    try:
        return WorkflowState.model_validate(given | {"session_id": session_id})
    except ValidationError as error:
        raise refusal(error) from None


def _create(engine: BlockingEngine, wanted: WorkflowState) -> None:
    if wanted.current_step is CurrentStep.COMPLETED:
        raise BadInput(
            f"current_step: Session {wanted.session_id!r} is new and cannot be COMPLETED. Save it at an earlier step"
            " and run it."
        )
    state = AuraState.model_validate({name: getattr(wanted, name) for name in AuraState.model_fields})
    engine.start(
        aura, state, session_id=wanted.session_id, owner=wanted.student_id,
        at_step=_step(wanted.current_step), paused=True, reason="saved, not started", by=SAVED_BY,
    )  # fmt: skip


def _replace(engine: BlockingEngine, stored: WorkflowState, wanted: WorkflowState) -> None:
    _check_student(stored, wanted.student_id)
    places = list(CurrentStep)
    ahead = places.index(wanted.current_step) - places.index(stored.current_step)
    if ahead > 0:
        raise BadInput(
            f"current_step: Session {stored.session_id!r} is at {stored.current_step} and cannot be moved forward to"
            f" {wanted.current_step}. Run it instead."
        )
    given = {name: getattr(wanted, name) for name in AuraState.model_fields}
    if ahead < 0:
        engine.session(stored.session_id).rewind(_step(wanted.current_step), given, by=SAVED_BY)
    elif changed := {name: value for name, value in given.items() if value != getattr(stored, name)}:
        engine.session(stored.session_id).edit(changed, by=SAVED_BY)


def _check_student(stored: WorkflowState, student_id: str) -> None:
    if stored.student_id != student_id:
        raise BadInput(
            f"student_id: Session {stored.session_id!r} belongs to {stored.student_id!r}, not to {student_id!r}. Check"
            " both ids."
        )


def _step(position: CurrentStep) -> str:
    return next(step for step, each in POSITIONS.items() if each is position)


def _document(engine: BlockingEngine, session_id: str, known: AuraState | None = None) -> WorkflowState:
    """Return a session as one document. ``known`` is its state if it was just read: a large one takes seconds."""
    info = engine.session(session_id).info()
    if info.workflow != aura.name:
        raise BadInput(
            f"session_id: Session {session_id!r} belongs to workflow {info.workflow}, not to {aura.name}. Check the id."
        )
    state = engine.session(session_id).state() if known is None else known
    return WorkflowState(
        session_id=info.session_id, current_step=current_step(info.step), status=info.status,
        pause_requested=info.pause_requested, error=None if info.failure is None else info.failure.message,
        **{name: getattr(state, name) for name in AuraState.model_fields},
    )  # fmt: skip


def _engine(store: Store, create: bool = True) -> Engine:
    return Engine(DEFAULT if store is None else store, workflows=[aura], create=create)


@contextmanager
def _existing(session_id: str, store: Store) -> Iterator[BlockingEngine]:
    """Open the store of an existing session. A missing store raises `UnknownSession` and is not created."""
    try:
        with _engine(store, create=False) as engine:
            yield engine
    except StoreMissing as missing:
        raise UnknownSession(f"There is no session {session_id!r}. {missing}", session_id=session_id) from None


def _beside(store: Store) -> Path:
    """Return the folder for reports, next to the store."""
    text = str(DEFAULT if store is None else store).removeprefix("sqlite:///")
    return (DEFAULT if ":memory:" in text or "://" in text else Path(text)).absolute().parent / "aura"
