"""Finds out from a folder of artifacts alone how far its session has come.

The completion records in its ``.pausepoint`` folder are exact. Without them, each step is judged by its files, and
inconsistent files are reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from pausepoint.artifacts.folder import ArtifactFolder
from pausepoint.artifacts.notes import EDITED, DoneNote, Edited, EditNote, SessionNote, session_note, unfit_work
from pausepoint.artifacts.status import ArtifactState, Examination, examine, look
from pausepoint.definition.artifacts import OWN, BoundArtifact, Unfit, entry_of, named
from pausepoint.definition.workflow import BoundStep, Check, Workflow
from pausepoint.errors import FolderMisfit, FolderRefused
from pausepoint.log.trail import Trail
from pausepoint.model.ids import shortened

_Note = TypeVar("_Note", DoneNote, EditNote)

START, COMPLETE = "start", "complete"

RUNS_AGAIN = "Its step then runs again."


class DetectedStep(msgspec.Struct, frozen=True):
    """Whether one step is done, according to the folder, and why."""

    step: str
    state: Literal["done", "to run"]
    why: str


class Detection(msgspec.Struct, frozen=True):
    """The result of `detect`: how far the session of a folder has come.

    ``resume_at`` is the step to run next, ``"start"`` or ``"complete"``. ``inconsistent`` lists contradictions, such as
    a late artifact without the earlier ones. ``recorded``: the folder has completion records.
    """

    folder: Path
    resume_at: str
    steps: tuple[DetectedStep, ...]
    inconsistent: tuple[str, ...] = ()
    artifacts: tuple[ArtifactState, ...] = ()
    recorded: bool = False
    session_id: str | None = None
    version: int | None = None

    @property
    def complete(self) -> bool:
        """Whether no step remains to run."""
        return self.resume_at == COMPLETE


class Recorded(msgspec.Struct, frozen=True):
    """The completion records of a folder, in the order in which the steps ended.

    ``late`` are the records after a gap, which is a step that should be recorded and is not. ``edited`` are the edits
    of the state after the last record.
    """

    note: SessionNote
    done: tuple[DoneNote, ...]
    late: tuple[DoneNote, ...] = ()
    edited: tuple[Edited, ...] = ()

    @property
    def gap(self) -> str | None:
        """The step that is not recorded although later ones are; None if there is no gap."""
        return (self.done[-1].next if self.done else self.note.begins_at) if self.late else None

    def trail(self, folder: Path) -> Trail:
        """Return the records as the trail of a log."""
        trail = Trail(str(folder))
        for each in self.done:
            trail.works[each.work.step] = each.work
            trail.versions.update(each.work.writes)
            for file in each.work.files:
                trail.knows(file)
        return trail

    def inconsistent(self) -> tuple[str, ...]:
        """Return the contradictions."""
        return tuple(f"{each.work.step} is recorded, but {self.gap} before it is not" for each in self.late)


def detect(folder: str | Path, workflow: Workflow[Any], **given: Any) -> Detection:
    """Return the step that a session of this folder would resume at, and why. Blocks while it reads; changes nothing.

    ``given`` are fields of the state that no file carries, for paths and counts that name them.
    """
    path = Path(folder).absolute()
    found = recorded(path, workflow)
    return by_files(path, workflow, given)[0] if found is None else _by_records(path, workflow, found)


def recorded(folder: Path, workflow: Workflow[Any]) -> Recorded | None:
    """Return the completion records of a folder; None if there are none.

    Raises `FolderRefused` if they belong to another workflow, and `FolderMisfit` if newer code wrote them.
    """
    notes = ArtifactFolder(folder).notes()
    if "session.json" not in notes:
        return None
    note = session_note(notes["session.json"], str(folder))
    if note.workflow != workflow.name:
        raise FolderRefused(
            f"Folder {folder} belongs to workflow {shortened(note.workflow)}, not {workflow.name!r}. Choose another"
            " folder.",
            path=str(folder),
        )
    if note.version > workflow.version:
        raise FolderMisfit(
            f"Folder {folder} was written by version {note.version} of {workflow.name!r}, but this code is version"
            f" {workflow.version}. Run the newer code.",
            path=str(folder),
        )
    done = [_completion(folder, name, data) for name, data in notes.items() if name.startswith("done/")]
    found = _without_gap(note, sorted(done, key=lambda each: each.work.seq))
    return _with_edits(folder, notes[EDITED], found) if EDITED in notes else found


def _completion(folder: Path, name: str, data: bytes) -> DoneNote:
    """Read a completion record. Raises `FolderRefused` if it is damaged, or names a file outside of the folder."""
    found = _read(folder, name, data, DoneNote, RUNS_AGAIN)
    if problem := unfit_work(found.work, name.removeprefix("done/").removesuffix(".json")):
        raise FolderRefused(
            f"File {folder}/{OWN}/{name} cannot be used: {problem}. Delete it. {RUNS_AGAIN}", path=str(folder)
        )
    return found


def _with_edits(folder: Path, data: bytes, found: Recorded) -> Recorded:
    """Add the edits of the state after the last record. Earlier edits are in the records."""
    edits = _read(folder, EDITED, data, EditNote, "The last edits of the state are then lost.")
    last = max([found.note.through, *(each.work.seq for each in found.done)])
    return found if found.late or edits.seq < last else msgspec.structs.replace(found, edited=edits.edited)


def _without_gap(note: SessionNote, done: list[DoneNote]) -> Recorded:
    known = {each.work.step for each in done}
    if done and note.begins_at not in known and not note.held_by_guard:
        return Recorded(note, (), tuple(done))
    for number, each in enumerate(done[:-1], start=1):
        if each.next is not None and each.next not in known:
            return Recorded(note, tuple(done[:number]), tuple(done[number:]))
    return Recorded(note, tuple(done))


def _read(folder: Path, name: str, data: bytes, kind: type[_Note], without: str) -> _Note:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise FolderRefused(
            f"File {folder}/{OWN}/{name} is damaged ({exc}). Delete it. {without}", path=str(folder)
        ) from exc


def _by_records(folder: Path, workflow: Workflow[Any], found: Recorded) -> Detection:
    trail = found.trail(folder)
    found_files = look(workflow, trail, ArtifactFolder(folder))
    files = [each.as_unsure() if each.maybe_truncated else each for each in found_files]
    seen = examine(trail, files, {}, 2**62)
    steps = tuple(_judged(step, trail, seen) for step in workflow.outline)
    return Detection(
        folder, _resume_at(found, seen), steps, found.inconsistent(), tuple(seen.states()), True,
        found.note.session_id, found.note.version,
    )  # fmt: skip


def _resume_at(found: Recorded, seen: Examination) -> str:
    if not found.done:
        return found.note.begins_at if found.note.held_by_guard else START
    again = [each.work.step for each in found.done if each.work.step in seen.redo]
    broken = [each.work.step for each in seen.undecided]
    for step in (each.work.step for each in found.done):
        if step in again or step in broken:
            return step
    return found.done[-1].next or COMPLETE


def _judged(step: str, trail: Trail, seen: Examination) -> DetectedStep:
    if step not in trail.works:
        return DetectedStep(step, "to run", "never ran")
    if step in seen.redo:
        return DetectedStep(step, "to run", seen.redo[step].why)
    trouble = next((each for each in seen.undecided if each.work.step == step), None)
    if trouble is not None and (trouble.state == "invalid" or trouble.unsure):
        return DetectedStep(step, "to run", f"{trouble.file.path} is {trouble.state}: {trouble.why}")
    return DetectedStep(step, "done", trail.works[step].skipped or "recorded")


# without records


class Judged(msgspec.Struct, frozen=True):
    """A step, judged by its files alone: their values, or why the step is not done. ``absent``: there are no files."""

    step: BoundStep
    values: dict[str, Any]
    why: str = ""
    absent: bool = False


def by_files(path: Path, workflow: Workflow[Any], given: Mapping[str, Any]) -> tuple[Detection, list[Judged]]:
    """Judge the steps of a folder by its files alone. Return the result, and the steps that are done."""
    folder, known = ArtifactFolder(path), dict(given)
    judged: list[Judged] = []
    for step in workflow.steps:
        judged.append(found := judge(folder, step, known))
        known.update(found.values)
    first = next((number for number, each in enumerate(judged) if each.why), len(judged))
    while 0 < first < len(judged) and judged[first - 1].absent:
        first -= 1  # a step that may publish nothing counts as done only if a later step is done
    late = [each.step.name for each in judged[first:] if not each.why and not each.absent]
    gap = judged[first] if first < len(judged) else None
    odd = tuple(f"the artifacts of {name} are there, but {gap.step.name} before it is not done: {gap.why}"
                for name in late) if gap else ()  # fmt: skip
    any_done = any(not each.absent for each in judged[:first])
    at = COMPLETE if gap is None else gap.step.name if any_done else START
    steps = tuple(_detected(each, number < first) for number, each in enumerate(judged))
    return Detection(path, at, steps, odd), judged[:first]


def _detected(found: Judged, before: bool) -> DetectedStep:
    if found.absent and not found.why:
        return DetectedStep(
            found.step.name, "done" if before else "to run", "its artifacts are optional, and it has none"
        )
    why = found.why or "its artifacts are there and can be read"
    return DetectedStep(found.step.name, "to run" if found.why else "done", why)


def judge(folder: ArtifactFolder, step: BoundStep, known: Mapping[str, Any]) -> Judged:
    """Judge a step by its files alone."""
    if not step.publishes:
        return Judged(step, {}, "it publishes no artifact and has no completion record")
    values: dict[str, Any] = {}
    absent, wanted = True, _evaluated(step.when, known)
    for artifact in step.publishes:
        try:
            value = carried(folder, artifact, known)
            if value is None and (not artifact.place.admits_none if wanted is None else wanted):
                raise Unfit(f"{artifact.path} is missing")
            if value is not None and (problem := _lacks(artifact, value, known)):
                raise Unfit(f"{artifact.path}: {problem}")
        except Unfit as wrong:
            return Judged(step, {}, str(wrong))
        if value is not None:
            values[artifact.place.path], absent = value, False
    return Judged(step, values, absent=absent)


def _evaluated(when: Check | None, known: Mapping[str, Any]) -> bool | None:
    """Return the result of a step's ``when`` for the known values; None if it cannot be evaluated."""
    if when is None or when.whole is not None:
        return None
    if any(read.recent or read.place.path not in known for read in when.reads):
        return None
    return bool(when(**{read.param: known[read.place.path] for read in when.reads}))


def _lacks(artifact: BoundArtifact, value: Any, known: Mapping[str, Any]) -> str:
    counts = artifact.counted is None or artifact.counted in known
    return artifact.lacks(value, known) if counts else artifact.misses(value)


def carried(folder: ArtifactFolder, artifact: BoundArtifact, known: Mapping[str, Any], sizes: bool = True) -> Any:
    """Return the value in the files of an artifact; None if there are none. Raises `Unfit`, with the file's name."""
    missing = [name for name in artifact.named if name not in known]
    if missing:
        raise Unfit(f"{artifact.path}: its name needs {', '.join(missing)}; pass it as a keyword")
    pattern = named(artifact.path, known)
    paths = folder.names(pattern) if artifact.many else [pattern]
    found: dict[str, Any] = {}
    for path in paths:
        data = folder.read(path)
        if data is None:
            continue
        if sizes and len(data) < artifact.spec.min_bytes:
            raise Unfit(
                f"{path} has {len(data)} bytes; a file below {artifact.spec.min_bytes} bytes counts as incomplete"
            )
        try:
            found[entry_of(pattern, path)] = artifact.decoded(data)
        except Unfit as wrong:
            raise Unfit(f"{path}, {wrong}") from wrong
    if not found:
        return None
    return found if artifact.many else found[""]
