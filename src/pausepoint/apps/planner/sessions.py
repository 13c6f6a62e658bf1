"""The operations on a planner's session from outside: create it, add to it, change it, read it.

A late change moves the session back as far as necessary and no further. Files are not read a second time, and the plan
version keeps rising.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from pausepoint import Session, Status
from pausepoint.apps.input import BadInput, local_zone, refusal
from pausepoint.apps.planner import exams, materials
from pausepoint.apps.planner.busy import BEYOND, read_busy
from pausepoint.apps.planner.folders import expanded
from pausepoint.apps.planner.models import (
    Chunking,
    EventEntry,
    FileEntry,
    FileProgress,
    PlannerState,
    PlanningState,
    Progress,
    SessionDocument,
    TopicEstimate,
    Upload,
    UserInputs,
    Weekday,
)
from pausepoint.apps.planner.plan import settled
from pausepoint.apps.planner.progress import Mark, marked, topic_of, unmarked, unmarking
from pausepoint.apps.planner.stages import inputs_missing
from pausepoint.apps.planner.workflow import EVENTS, joined, planner
from pausepoint.cli import command_line
from pausepoint.engine import BlockingEngine, BlockingSession
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
"""The events that appear in a session's document, and their types there."""


# starting


def starting(inputs: Mapping[str, Any], uploads: Sequence[Mapping[str, Any] | Upload] = ()) -> PlannerState:
    """Return the state of a new session. Raises `BadInput` with the name of an invalid value."""
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
    """Return a refusal that names the course."""
    found = refusal(error)
    where = error.errors(include_url=False)[0]["loc"]
    courses = inputs.get("courses")
    if len(where) > 1 and where[0] == "courses" and isinstance(where[1], int) and isinstance(courses, Sequence):
        course = courses[where[1]]
        name = course.get("course_id") if isinstance(course, Mapping) else getattr(course, "course_id", None)
        if name:
            return BadInput(f"course {name}: {str(found).partition('.')[2].partition('.')[2] or found}")
    return found


def check_upload(inputs: UserInputs, upload: Upload) -> tuple[Path | bytes, str]:
    """Return a file as it is stored, and its content type.

    Raises `BadInput` for an unknown course or an unreadable file.
    """
    known = [course.course_id for course in inputs.courses]
    for course_id in upload.course_ids:
        if course_id not in known:
            raise BadInput(
                f"{upload.path}: There is no course {course_id!r}{did_you_mean(course_id, known)} Add the course first."
            )
    if not upload.course_ids and not upload.is_shared:
        raise BadInput(f"{upload.path}: The file has no course. Name its courses, or mark it as shared.")
    return materials.content_of(upload.path)


# adding and changing


def add_course(engine: BlockingEngine, session_id: str, course: Mapping[str, Any]) -> UserInputs:
    """Add a course, or change an existing one."""
    seen = engine.session(session_id).info()
    inputs = state_of(engine, session_id).user_inputs
    before = next((each for each in inputs.courses if each.course_id == course["course_id"]), None)
    given = {
        **(before.model_dump() if before else {}),
        **{key: each for key, each in course.items() if each is not None},
    }
    if before is None and "course_name" not in given:
        raise BadInput(f"course {course['course_id']}: There is no such course yet. Add a name to create it.")
    courses = [given if each is before else each.model_dump() for each in inputs.courses]
    changed = _valid(inputs, courses=courses if before else [*courses, given])
    if given.get("exam"):
        check_exams(changed, state_of(engine, session_id))
    _change(engine, seen, {"user_inputs": changed}, "review" if before else "ingest")
    return changed


def _valid(inputs: UserInputs, **changes: Any) -> UserInputs:
    try:
        return UserInputs.model_validate(inputs.model_dump() | changes)
    except ValidationError as error:
        raise _named(error, changes) from None


class Added(NamedTuple):
    """A file of a session. ``reused`` is true if the session already had its content."""

    file_id: str
    entry: FileEntry
    reused: bool


def add_file(engine: BlockingEngine, session_id: str, upload: Upload) -> Added:
    """Add a file. If the session already has the content, this only adds its courses."""
    return add_files(engine, session_id, [upload])[0]


def add_files(engine: BlockingEngine, session_id: str, uploads: Sequence[Upload]) -> list[Added]:
    """Add some files, in order. New chapters of a book that the session has take their places in it.

    A chapter with another content than the session has under its name is refused: it is replaced, not added.
    """
    seen, state = _parked(engine, session_id), state_of(engine, session_id)
    for upload in uploads:
        _check_chapter(session_id, state, upload)
    added = _stored(engine, session_id, state, uploads)
    registry = {**state.file_registry, **{each.file_id: each.entry for each in added}}
    for book in dict.fromkeys(upload.book for upload in uploads if upload.book):
        registry = _in_order(registry, book, [each.file_id for each in added])
    if list(registry.items()) != list(state.file_registry.items()):
        _change(engine, seen, {"file_registry": registry}, "ingest")
    return added


def _check_chapter(session_id: str, state: PlannerState, upload: Upload) -> None:
    """Raise `BadInput` for another content of a chapter that the session has."""
    alike = {file_id: each for file_id, each in state.file_registry.items()
             if upload.book and (each.book, each.filename) == (upload.book, upload.filename)}  # fmt: skip
    if not alike:
        return
    content, _ = check_upload(state.user_inputs, upload)
    digest = sha256(content if isinstance(content, bytes) else content.read_bytes()).hexdigest()
    if digest in [each.sha256 for each in alike.values()]:
        return
    file_id = next(iter(alike))
    folder = upload.path.parents[upload.name.count("/")]
    what = (upload.book, str(folder)) if upload.name else (file_id, str(upload.path))
    raise BadInput(
        f"{upload.path}: Book {upload.book!r} has another content under the name {upload.filename!r}. Replace it:"
        f" {command_line('replace', session_id, *what)}"
    )


def _stored(
    engine: BlockingEngine, session_id: str, state: PlannerState, uploads: Sequence[Upload]
) -> list[Added]:  # fmt: skip
    """Store the contents of some files once all of them are known to be readable. Return their entries."""
    for upload in uploads:
        check_upload(state.user_inputs, upload)
    found: dict[str, Added] = {}
    for upload in uploads:
        content, kind = materials.content_of(upload.path)
        file = engine.session(session_id).files.add(
            content, upload.filename, kind, course_ids=upload.course_ids, is_shared=upload.is_shared
        )
        known = found[file.file_id].entry if file.file_id in found else state.file_registry.get(file.file_id)
        entry = joined(known, FileEntry.model_validate(file.entry()), upload, content)
        found[file.file_id] = Added(file.file_id, entry, file.file_id in state.file_registry)
    return list(found.values())


def _in_order(registry: dict[str, FileEntry], book: str, order: Sequence[str]) -> dict[str, FileEntry]:
    """Return the files with the chapters of a book together, in this order, at the place of its first one."""
    mine = [file_id for file_id, file in registry.items() if file.book == book]
    chapters = [*(each for each in order if each in mine), *(each for each in mine if each not in order)]
    found: list[str] = []
    for file_id in registry:
        found += chapters if mine and file_id == mine[0] else [] if file_id in mine else [file_id]
    return {file_id: registry[file_id] for file_id in found}


def remove_files(engine: BlockingEngine, session_id: str, names: Sequence[str]) -> list[str]:
    """Remove files or books from a session, and return their names. What was marked as done stays marked.

    The contents are kept with the session, because its earlier plans were made from them.
    """
    seen, state = _parked(engine, session_id), state_of(engine, session_id)
    gone = [file_id for name in names for file_id in _files_of(state, name)]
    uploads = [each for each in state.uploads if not {each.filename, each.book} & {*names}]
    removed = [state.file_registry[file_id].filename for file_id in dict.fromkeys(gone)]
    removed += [each.filename for each in state.uploads if each not in uploads and each.filename not in removed]
    registry = {file_id: each for file_id, each in state.file_registry.items() if file_id not in gone}
    changes: dict[str, Any] = {"file_registry": registry}
    changes |= {"uploads": uploads} if uploads != state.uploads else {}
    _change(engine, seen, changes, "ingest", "files were removed")
    return removed


def replace_file(
    engine: BlockingEngine, session_id: str, name: str, path: Path
) -> tuple[list[Added], list[str]]:  # fmt: skip
    """Put a file, or a folder for a book, in the place of one of the session. Marks stay where the topics stay.

    Also return which files of the folder are not read. The courses, the role and the chapter stay.
    """
    seen, state = _parked(engine, session_id), state_of(engine, session_id)
    old = _files_of(state, name)
    if not old:
        raise BadInput(f"{name}: The session has not read its files yet. Remove the file, and add the other one.")
    first = state.file_registry[old[0]]
    given = Upload(path=path, course_ids=first.course_ids, is_shared=first.is_shared, role=first.role,
                   chapter=first.chapter, book=first.book if path.is_dir() or len(old) == 1 else "")  # fmt: skip
    if first.book and len(old) == 1 and not path.is_dir():
        given = given.model_copy(update={"name": first.filename})
    kept = {file_id: each for file_id, each in state.file_registry.items() if file_id not in old}
    uploads, notes = expanded([given], kept.values())
    chapters = {(each.book, each.filename) for each in kept.values() if each.book}
    for upload in uploads:
        if (upload.book, upload.filename) in chapters:
            raise BadInput(
                f"{upload.path}: Book {upload.book!r} has {upload.filename!r} already. To replace all of it, name the"
                f" book: {command_line('replace', session_id, upload.book, str(path))}"
            )
    added = _stored(engine, session_id, state.model_copy(update={"file_registry": kept}), uploads)
    registry: dict[str, FileEntry] = {}
    for file_id, entry in state.file_registry.items():
        if file_id == old[0]:
            registry |= {each.file_id: each.entry for each in added}
        if file_id in kept:
            registry.setdefault(file_id, entry)
    renamed = {first.filename: added[0].entry.filename} if len(old) == len(added) == 1 else {}
    inputs = _renamed(state.user_inputs, renamed)
    _change(engine, seen, {"file_registry": registry, "user_inputs": inputs}, "ingest", f"{name} was replaced")
    return [each._replace(reused=each.file_id in old) for each in added], notes


def _renamed(inputs: UserInputs, names: Mapping[str, str]) -> UserInputs:
    """Return the inputs with other names of files in titles of topics, such as `Introduction (notes.pdf)`."""

    def title(topic: str) -> str:
        for old, new in names.items():
            topic = topic.replace(f"({old})", f"({new})")
        return topic

    return inputs.model_copy(
        update={
            "progress": [each.model_copy(update={"topic": title(each.topic)}) for each in inputs.progress],
            "own_estimates": [each.model_copy(update={"topic": title(each.topic)}) for each in inputs.own_estimates],
        }
    )


def _files_of(state: PlannerState, name: str) -> list[str]:
    """Return the ids of the files of a book, or of the file that a name or an id means.

    Files that wait for the start have no id yet.
    """
    chapters = [file_id for file_id, each in state.file_registry.items() if each.book and each.book == name]
    waiting = [] if state.file_registry else [part for each in state.uploads for part in (each.filename, each.book)]
    if chapters or (name and name in waiting):
        return chapters
    return [_file_of(state, name)]


def replan(
    engine: BlockingEngine, session_id: str, *, midterms: Mapping[str, date] | None = None,
    covered: Mapping[str, str] | None = None,
    max_minutes: int | None = None, rest_day: str | None = None, start: date | None = None,
    hours: Mapping[Weekday, Sequence[str]] | None = None, busy: Sequence[Path] | None = None, today: date | None = None,
) -> UserInputs:  # fmt: skip
    """Change dates or limits, and plan what is left. Once the plan has begun, the new one starts today.

    ``covered`` says what the exam of a course covers. An empty text, ``hours`` or ``busy`` removes what there was.
    """
    seen = engine.session(session_id).info()
    state = state_of(engine, session_id)
    inputs = state.user_inputs
    changes: dict[str, dict[str, Any]] = {each.course_id: {} for each in inputs.courses}
    for name, given in (("midterm_date", midterms or {}), ("exam", covered or {})):
        for course_id, value in given.items():
            _known_course(inputs, course_id)
            changes[course_id][name] = value
    courses = [each.model_dump() | changes[each.course_id] for each in inputs.courses]
    limits = inputs.shared_constraints.model_dump()
    limits |= {"max_minutes_per_day": max_minutes} if max_minutes is not None else {}
    limits |= {"preferred_rest_day": None if rest_day == "none" else rest_day} if rest_day is not None else {}
    limits |= {"study_hours": hours} if hours is not None else {}
    begun = [day for day in (inputs.start_date, today) if day]
    changed = _valid(
        inputs, courses=courses, shared_constraints=limits, start_date=start or max(begun, default=None)
    )  # fmt: skip
    if busy is not None:
        changed = with_busy(changed, busy)
    if covered:
        check_exams(changed, state)
    planned = state.planning_state.planned_for
    if changed == inputs and (planned is None or settled(changed, planned.start_date or date.min) == planned):
        raise BadInput(
            f"session {session_id}: Nothing changes. Pass a date or a limit that differs from the current one, or mark"
            " what is done."
        )
    _change(engine, seen, {"user_inputs": changed}, "review")
    return changed


def check_exams(inputs: UserInputs, state: PlannerState) -> None:
    """Refuse an exam that covers what the files do not have, as far as they have been read."""
    wrong = exams.unknown(inputs, state.estimation_state.topic_estimates)
    if wrong:
        raise BadInput(f"{wrong}.")


def _known_course(inputs: UserInputs, course_id: str) -> None:
    known = [course.course_id for course in inputs.courses]
    if course_id not in known:
        raise BadInput(f"There is no course {course_id!r}{did_you_mean(course_id, known)}")


def with_busy(inputs: UserInputs, paths: Sequence[Path]) -> UserInputs:
    """Return the inputs with the busy times of some calendars, a while beyond the last midterm."""
    if not paths:
        return inputs.model_copy(update={"busy": [], "busy_until": None, "busy_skipped": 0})
    first = inputs.start_date or datetime.now(UTC).date()
    last = max(inputs.last_midterm or first, first) + BEYOND
    found = read_busy(paths, ZoneInfo(inputs.timezone), first, last)
    return inputs.model_copy(update={"busy": found.busy, "busy_until": last, "busy_skipped": found.skipped})


# progress


def mark(
    engine: BlockingEngine, session_id: str, words: Sequence[str], status: Mark, on: date, see: str
) -> list[Progress]:  # fmt: skip
    """Mark rows, days or topics as done or skipped. The plan stays; its outputs show the marks."""
    seen, state = _parked(engine, session_id), state_of(engine, session_id)
    changes, found = marks_set(state, words, status, on, see)
    _change(engine, seen, changes, "finish", f"marked as {status}")
    return found


def marks_set(
    state: PlannerState, words: Sequence[str], status: Mark, on: date, see: str
) -> tuple[dict[str, Any], list[Progress]]:  # fmt: skip
    """Return the changes of a state that mark work, and the new marks."""
    found = marked(state, words, status, on, see)
    progress = [*state.user_inputs.progress, *found]
    return {"user_inputs": state.user_inputs.model_copy(update={"progress": progress})}, found


def unmark(engine: BlockingEngine, session_id: str, words: Sequence[str], see: str) -> int:
    """Remove the marks of rows, days, topics or sections, and return how many."""
    seen, state = _parked(engine, session_id), state_of(engine, session_id)
    if not words:
        raise BadInput("Name the rows or topics whose marks are to be removed.")
    changes = marks_removed(state, words, see)
    _change(engine, seen, changes, "finish", "marks removed")
    return len(state.user_inputs.progress) - len(changes["user_inputs"].progress)


def marks_removed(state: PlannerState, words: Sequence[str], see: str) -> dict[str, Any]:
    """Return the changes of a state that remove marks."""
    removed = unmarking(state, words, see)
    kept = [mark for mark in state.user_inputs.progress if mark not in removed]
    inputs = state.user_inputs.model_copy(update={"progress": kept})
    return {"user_inputs": inputs, "planning_state": unmarked(state.planning_state, state.user_inputs, inputs)}


def estimate(engine: BlockingEngine, session_id: str, topic: str, minutes: int, see: str) -> TopicEstimate:
    """Replace the estimate of a whole topic by the user's own."""
    seen, state = engine.session(session_id).info(), state_of(engine, session_id)
    found = topic_of(state, topic, see)
    own = {"course_id": found.course_id, "topic": found.topic, "minutes": minutes}
    others = [each for each in state.user_inputs.own_estimates
              if (each.course_id, each.topic) != (found.course_id, found.topic)]  # fmt: skip
    changed = _valid(state.user_inputs, own_estimates=[*others, own])
    _change(engine, seen, {"user_inputs": changed}, "review")
    return found


def set_pace(engine: BlockingEngine, session_id: str, pace: float, course_id: str | None = None) -> UserInputs:
    """Set how much time the user needs, as a multiple of the estimates: for all courses, or for one."""
    seen, inputs = engine.session(session_id).info(), state_of(engine, session_id).user_inputs
    if course_id is None:
        changed = _valid(inputs, shared_constraints=inputs.shared_constraints.model_dump() | {"pace": pace})
    else:
        _known_course(inputs, course_id)
        courses = [each.model_dump() | ({"pace": pace} if each.course_id == course_id else {})
                   for each in inputs.courses]  # fmt: skip
        changed = _valid(inputs, courses=courses)
    _change(engine, seen, {"user_inputs": changed}, "review")
    return changed


def _change(
    engine: BlockingEngine, info: SessionInfo, changes: dict[str, Any], at: str, why: str = "the inputs have changed"
) -> None:  # fmt: skip
    """Edit the session that ``info`` describes, or rewind it to the step ``at`` in the same transaction."""
    change_of(info, state_of(engine, info.session_id), changes, at, why).made_on(engine.session(info.session_id))


class Change(NamedTuple):
    """An edit of a session, or a rewind to the step ``at``. ``how`` are the other arguments of the verb."""

    at: str | None
    values: dict[str, Any]
    how: dict[str, Any]

    def made_on(self, session: Session[Any] | BlockingSession[Any]) -> Any:
        """Make the change. For the session of an async engine, return what to await."""
        if self.at is None:
            return session.edit(self.values, **self.how)
        return session.rewind(self.at, self.values, **self.how)


def change_of(info: SessionInfo, state: PlannerState, changes: dict[str, Any], at: str, why: str) -> Change:
    """Return what makes the changes. Finished work is kept.

    The guard of the collecting stage does not run again, so this function makes the same check.
    """
    position = len(ORDER) if info.step is None else ORDER.index(info.step)
    if position >= ORDER.index("begin_ingesting"):
        wrong = inputs_missing(
            changes.get("user_inputs", state.user_inputs), changes.get("file_registry", state.file_registry),
            state.planning_state.planned_for,
        )  # fmt: skip
        if wrong:
            raise BadInput(f"session {info.session_id}: {wrong}.")
    how: dict[str, Any] = {"reason": why, "based_on": info.seq}
    if (position, info.held_by_guard) <= (ORDER.index(at), False):
        return Change(None, changes, how)
    kept: dict[str, Any] = {
        "user_inputs": state.user_inputs, "file_registry": state.file_registry,
        "planning_state": state.planning_state,  # its version and the sequence numbers of its rows must keep rising
    }  # fmt: skip
    return Change(at, kept | changes, how | {"reuse": True})


def _parked(engine: BlockingEngine, session_id: str) -> SessionInfo:
    """Return a session's info. Refuse a session that is being driven before a file is stored for it."""
    info = engine.session(session_id).info()
    if info.holder is not None:
        raise VerbRefused(
            f"Session {session_id!r} is {info.status.value}, driven by {info.holder}. Pause it first.",
            session_id=session_id, status=info.status.value,
        )  # fmt: skip
    return info


def retry(engine: BlockingEngine, session_id: str) -> list[str]:
    """Read the missing chunks again, and return the ids of their files. Ask a language model again if it failed."""
    state = state_of(engine, session_id)
    lacking = [file_id for file_id, each in state.ingestion_state.files.items() if each.status != "complete"]
    unanswered = bool(state.ingestion_state.warnings)
    if not lacking and not unanswered:
        raise BadInput(f"session {session_id}: All files are complete. There is nothing to retry.")
    kept: dict[str, Any] = {"user_inputs": state.user_inputs, "file_registry": state.file_registry}
    if state.planning_state.plan_version:
        kept["planning_state"] = state.planning_state
    engine.session(session_id).rewind("ingest", kept, reuse=not unanswered, reason="the missing parts are read again")
    return lacking


def mark_partial(engine: BlockingEngine, session_id: str, file: str, warning: str) -> str:
    """Accept a file that was read only in part. The warning stays in the history and in the plan."""
    state = state_of(engine, session_id)
    file_id = _file_of(state, file)
    found = state.ingestion_state.files.get(file_id)
    if found is None or found.status in ("pending", "complete"):
        status = found.status if found else "pending"
        raise BadInput(f"file {file_id}: The file is {status}. Only a file with unread chunks can be marked partial.")
    if not warning.strip():
        raise BadInput(f"file {file_id}: A warning is required. Say what is missing.")
    marked = found.model_copy(update={"status": "partial", "warning": " ".join(warning.split())})
    engine.session(session_id).edit(
        {"ingestion_state.files": state.ingestion_state.files | {file_id: marked}}, reason=warning
    )
    return file_id


def _file_of(state: PlannerState, text: str) -> str:
    """Return a file's id, given its id or its name."""
    if text in state.file_registry:
        return text
    named = [file_id for file_id, each in state.file_registry.items() if each.filename == text]
    if len(named) == 1:
        return named[0]
    known = [*state.file_registry, *(each.filename for each in state.file_registry.values())]
    problem = (
        "Several files have this name. Use the id." if named else f"There is no such file{did_you_mean(text, known)}"
    )
    raise BadInput(f"file {text}: {problem}")


# reading


def state_of(engine: BlockingEngine, session_id: str, at: int | None = None) -> PlannerState:
    """Return the state of a session, now or at a checkpoint."""
    return engine.session(session_id, planner).state(at)


def document(engine: BlockingEngine, session_id: str) -> SessionDocument:
    """Return the whole session as one document, current even while its files are being read."""
    info, state = engine.session(session_id).info(), state_of(engine, session_id)
    given: dict[str, Any] = state.model_dump(exclude={"uploads", "status"})
    given["ingestion_state"]["files"] |= _being_read(engine, session_id, state)
    return SessionDocument(
        session_id=info.session_id, created_at=info.created_at, updated_at=info.updated_at,
        status="failed" if info.status is Status.FAILED else state.status, events=_events(engine, session_id), **given,
    )  # fmt: skip


def _being_read(engine: BlockingEngine, session_id: str, state: PlannerState) -> dict[str, FileProgress]:
    """Return the progress of files that no finished step has reported yet."""
    found: dict[str, FileProgress] = {}
    for file_id in state.file_registry:
        if file_id not in state.ingestion_state.files:
            progress = engine.session(session_id).files.progress(file_id)
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
        for event in engine.session(session_id).events()
        if event.event_type in KINDS
    ]


def plans(engine: BlockingEngine, session_id: str) -> dict[int, PlanningState]:
    """Return all versions of the plan with their reviews, including replaced ones."""
    found: dict[int, PlanningState] = {}
    for checkpoint in engine.session(session_id).checkpoints(limit=None):
        if checkpoint.step in ("plan", "review") and not checkpoint.redacted:
            planning = state_of(engine, session_id, checkpoint.seq).planning_state
            known = found.get(planning.plan_version)
            if known is None or known.review is None:  # the first review counts: later inputs may differ
                found[planning.plan_version] = planning
    return dict(sorted(found.items()))


def plan_of(engine: BlockingEngine, session_id: str, version: int | None) -> PlanningState:
    """Return one version of the plan, by default the current one."""
    known = plans(engine, session_id)
    present = state_of(engine, session_id).planning_state.plan_version
    wanted = present if version is None else version
    if wanted not in known:
        have = f"Its plans: {', '.join(map(str, known))}." if known else "It has no plans yet."
        raise BadInput(f"session {session_id}: There is no plan {wanted or ''}".rstrip() + f". {have}")
    return known[wanted]
