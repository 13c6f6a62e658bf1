"""What can be done with a planner's session from outside: begin it, add to it, change it, look at it, end it.

A change that comes late takes the session back to where it matters, and no further: what was read is not read again,
and the version of the plan goes on rising.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from pausepoint import Status
from pausepoint.apps.input import BadInput, local_zone, refusal
from pausepoint.apps.planner import materials
from pausepoint.apps.planner.models import (
    Chunking,
    EventEntry,
    FileEntry,
    FileProgress,
    PlannerState,
    PlanningState,
    SessionDocument,
    Upload,
    UserInputs,
)
from pausepoint.apps.planner.stages import inputs_missing
from pausepoint.apps.planner.workflow import EVENTS, joined, planner
from pausepoint.engine import BlockingEngine
from pausepoint.errors import VerbRefused, did_you_mean
from pausepoint.model import SessionInfo

ORDER = [step.name for step in planner.steps]
KINDS = {name: name for name in EVENTS} | {
    "session.failed": "error",
    "chunk.failed": "error",
    "guard.refused": "error",
    "session.edited": "change",
    "session.rewound": "change",
}
"""Which events of a session are told in its document, and as what."""


# beginning


def starting(inputs: Mapping[str, Any], uploads: Sequence[Mapping[str, Any] | Upload] = ()) -> PlannerState:
    """The state of a new session. What cannot be used is refused now, by name."""
    try:
        given = UserInputs.model_validate({"timezone": local_zone()} | dict(inputs))
        files = [Upload.model_validate(upload) for upload in uploads]
    except ValidationError as error:
        raise _named(error, inputs) from None
    if given.start_date is None:
        given = given.model_copy(update={"start_date": datetime.now(UTC).astimezone(ZoneInfo(given.timezone)).date()})
    for upload in files:
        check_upload(given, upload)
    return PlannerState(user_inputs=given, uploads=files)


def _named(error: ValidationError, inputs: Mapping[str, Any]) -> BadInput:
    """A refusal that names the course it is about."""
    found = refusal(error)
    where = error.errors(include_url=False)[0]["loc"]
    courses = inputs.get("courses")
    if len(where) > 1 and where[0] == "courses" and isinstance(where[1], int) and isinstance(courses, Sequence):
        course = courses[where[1]]
        name = course.get("course_id") if isinstance(course, Mapping) else getattr(course, "course_id", None)
        if name:
            return BadInput(f"course {name}: {str(found).partition('.')[2].partition('.')[2] or found}")
    return found


def check_upload(inputs: UserInputs, upload: Upload) -> str:
    """The content type of a file that can be taken in; refused are unknown courses and what cannot be read."""
    known = [course.course_id for course in inputs.courses]
    for course_id in upload.course_ids:
        if course_id not in known:
            raise BadInput(
                f"{upload.path}: there is no course {course_id!r}{did_you_mean(course_id, known)} Add the course first."
            )
    if not upload.course_ids and not upload.is_shared:
        raise BadInput(f"{upload.path}: say which courses it is for, or that it is shared by all")
    return materials.checked(upload.path)


# adding and changing


def add_course(engine: BlockingEngine, session_id: str, course: Mapping[str, Any]) -> UserInputs:
    """One more course, or other facts about one that is there."""
    seen = engine.info(session_id)
    inputs = state_of(engine, session_id).user_inputs
    before = next((each for each in inputs.courses if each.course_id == course["course_id"]), None)
    given = {
        **(before.model_dump() if before else {}),
        **{key: each for key, each in course.items() if each is not None},
    }
    if before is None and "course_name" not in given:
        raise BadInput(f"course {course['course_id']}: there is none yet; give its name")
    courses = [given if each is before else each.model_dump() for each in inputs.courses]
    changed = _valid(inputs, courses=courses if before else [*courses, given])
    _change(engine, seen, {"user_inputs": changed}, "review" if before else "ingest")
    return changed


def _valid(inputs: UserInputs, **changes: Any) -> UserInputs:
    try:
        return UserInputs.model_validate(inputs.model_dump() | changes)
    except ValidationError as error:
        raise _named(error, changes) from None


class Added(NamedTuple):
    """A file that a session has now; ``reused``: its content was there before."""

    file_id: str
    entry: FileEntry
    reused: bool


def add_file(engine: BlockingEngine, session_id: str, upload: Upload) -> Added:
    """One more file. The same content again only adds the courses that it is for."""
    seen, state = _parked(engine, session_id), state_of(engine, session_id)
    kind = check_upload(state.user_inputs, upload)
    file = engine.files(session_id).add(
        upload.path, upload.path.name, kind, course_ids=upload.course_ids, is_shared=upload.is_shared
    )
    before = state.file_registry.get(file.file_id)
    entry = joined(before, FileEntry.model_validate(file.entry()), upload)
    if entry != before:
        _change(engine, seen, {"file_registry": state.file_registry | {file.file_id: entry}}, "ingest")
    return Added(file.file_id, entry, file.reused)


def replan(
    engine: BlockingEngine, session_id: str, *, midterms: Mapping[str, date] | None = None,
    max_minutes: int | None = None, rest_day: str | None = None, start: date | None = None,
) -> UserInputs:  # fmt: skip
    """Other dates or limits: the plan is reviewed against them, and made anew."""
    seen = engine.info(session_id)
    inputs = state_of(engine, session_id).user_inputs
    known = [course.course_id for course in inputs.courses]
    for course_id in midterms or {}:
        if course_id not in known:
            raise BadInput(f"there is no course {course_id!r}{did_you_mean(course_id, known)}")
    courses = [
        each.model_dump()
        | ({"midterm_date": midterms[each.course_id]} if midterms and each.course_id in midterms else {})
        for each in inputs.courses
    ]
    limits = inputs.shared_constraints.model_dump()
    limits |= {"max_minutes_per_day": max_minutes} if max_minutes is not None else {}
    limits |= {"preferred_rest_day": None if rest_day == "none" else rest_day} if rest_day is not None else {}
    changed = _valid(inputs, courses=courses, shared_constraints=limits, start_date=start or inputs.start_date)
    if changed == inputs:
        raise BadInput(
            f"session {session_id}: nothing is other than it was; its plan is made for these dates and limits"
        )
    _change(engine, seen, {"user_inputs": changed}, "review")
    return changed


def _change(engine: BlockingEngine, info: SessionInfo, changes: dict[str, Any], at: str) -> None:
    """Edit a session that stands as ``info`` says. One that is past ``at`` goes back there in the same act.

    What it finished there is kept. Past the collecting its guard is not asked again, so it is asked here.
    """
    session_id, state = info.session_id, state_of(engine, info.session_id)
    stands = len(ORDER) if info.step is None else ORDER.index(info.step)
    if stands >= ORDER.index("begin_ingesting"):
        wrong = inputs_missing(
            changes.get("user_inputs", state.user_inputs), changes.get("file_registry", state.file_registry)
        )
        if wrong:
            raise BadInput(f"session {session_id}: {wrong}")
    how: dict[str, Any] = {"reason": "its inputs have changed", "based_on": info.seq}
    if (stands, info.held_by_guard) <= (ORDER.index(at), False):
        engine.edit(session_id, changes, **how)
        return
    kept: dict[str, Any] = {"user_inputs": state.user_inputs, "file_registry": state.file_registry}
    if at == "ingest":
        kept["planning_state"] = state.planning_state  # its version only rises
    engine.rewind(session_id, at, kept | changes, reuse=True, **how)


def _parked(engine: BlockingEngine, session_id: str) -> SessionInfo:
    """How a session stands. One that is driven is refused, before anything is stored that its state could not name."""
    info = engine.info(session_id)
    if info.holder is not None:
        raise VerbRefused(
            f"session {session_id!r} is {info.status.value}, driven by {info.holder}; pause it first",
            session_id=session_id, status=info.status.value,
        )  # fmt: skip
    return info


def retry(engine: BlockingEngine, session_id: str) -> list[str]:
    """Try the chunks again that could not be read; which files that are."""
    state = state_of(engine, session_id)
    lacking = [file_id for file_id, each in state.ingestion_state.files.items() if each.status != "complete"]
    if not lacking:
        raise BadInput(f"session {session_id}: no file of it lacks a chunk")
    counted = {"planning_state": state.planning_state} if state.planning_state.plan_version else {}
    engine.rewind(session_id, "ingest", counted, reuse=True, reason="its missing chunks are tried again")
    return lacking


def mark_partial(engine: BlockingEngine, session_id: str, file: str, warning: str) -> str:
    """Say that what was read of a file will do. The warning stays in the history and in the plan."""
    state = state_of(engine, session_id)
    file_id = _file_of(state, file)
    found = state.ingestion_state.files.get(file_id)
    if found is None or found.status in ("pending", "complete"):
        status = found.status if found else "pending"
        raise BadInput(f"file {file_id}: it is {status}; only one that could not be read in whole is marked partial")
    if not warning.strip():
        raise BadInput(f"file {file_id}: a warning is needed that says what is lacking")
    marked = found.model_copy(update={"status": "partial", "warning": " ".join(warning.split())})
    engine.edit(session_id, {"ingestion_state.files": state.ingestion_state.files | {file_id: marked}}, reason=warning)
    return file_id


def _file_of(state: PlannerState, text: str) -> str:
    """A file by its id or its name."""
    if text in state.file_registry:
        return text
    named = [file_id for file_id, each in state.file_registry.items() if each.filename == text]
    if len(named) == 1:
        return named[0]
    known = [*state.file_registry, *(each.filename for each in state.file_registry.values())]
    problem = (
        "several files have this name; give its id" if named else f"there is no such file{did_you_mean(text, known)}"
    )
    raise BadInput(f"file {text}: {problem}")


# looking


def state_of(engine: BlockingEngine, session_id: str, at: int | None = None) -> PlannerState:
    """The state of a session, now or at a checkpoint."""
    return engine.session(session_id, planner).state(at)


def document(engine: BlockingEngine, session_id: str) -> SessionDocument:
    """The whole session, true as of this moment: also while its files are being read."""
    info, state = engine.info(session_id), state_of(engine, session_id)
    given: dict[str, Any] = state.model_dump(exclude={"uploads", "status"})
    given["ingestion_state"]["files"] |= _being_read(engine, session_id, state)
    return SessionDocument(
        session_id=info.session_id, created_at=info.created_at, updated_at=info.updated_at,
        status="failed" if info.status is Status.FAILED else state.status, events=_events(engine, session_id), **given,
    )  # fmt: skip


def _being_read(engine: BlockingEngine, session_id: str, state: PlannerState) -> dict[str, FileProgress]:
    """How far files are that no finished step has told about yet."""
    found: dict[str, FileProgress] = {}
    for file_id in state.file_registry:
        if file_id not in state.ingestion_state.files:
            progress = engine.files(session_id).progress(file_id)
            chunking = Chunking.model_validate(progress.chunking)
            found[file_id] = FileProgress(**progress.model_dump(exclude={"chunking"}), chunking=chunking)
    return found


def _events(engine: BlockingEngine, session_id: str) -> list[EventEntry]:
    return [
        EventEntry(
            timestamp=datetime.fromtimestamp(event.created_at / 1e6, UTC),
            agent_name=event.agent_name or "user",
            event_type=KINDS[event.event_type],
            summary=event.summary,
        )
        for event in engine.events(session_id)
        if event.event_type in KINDS
    ]


def plans(engine: BlockingEngine, session_id: str) -> dict[int, PlanningState]:
    """All versions of the plan, with what the reviewer said of each; also those that were replaced."""
    found: dict[int, PlanningState] = {}
    for checkpoint in engine.checkpoints(session_id, limit=None):
        if checkpoint.step in ("plan", "review") and not checkpoint.redacted:
            planning = state_of(engine, session_id, checkpoint.seq).planning_state
            known = found.get(planning.plan_version)
            if known is None or known.review is None:  # what it was told first: later inputs may be others
                found[planning.plan_version] = planning
    return dict(sorted(found.items()))


def plan_of(engine: BlockingEngine, session_id: str, version: int | None) -> tuple[int, PlanningState]:
    """One version of the plan; without a number, the present one."""
    known = plans(engine, session_id)
    present = state_of(engine, session_id).planning_state.plan_version
    wanted = present if version is None else version
    if wanted not in known:
        have = f"it has {', '.join(map(str, known))}" if known else "it has none yet"
        raise BadInput(f"session {session_id}: there is no plan {wanted or ''}".rstrip() + f"; {have}")
    return wanted, known[wanted]
