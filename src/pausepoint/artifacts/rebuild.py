"""Rebuilds a session's log from its folder of artifacts, for a store that does not have the session.

Every step that is done according to the folder becomes a checkpoint with its values. A resume then continues as in
any other session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from pausepoint.artifacts.detection import Detection, Judged, Recorded
from pausepoint.artifacts.folder import ArtifactFolder, digest_of
from pausepoint.artifacts.notes import DoneNote, Edited
from pausepoint.artifacts.publisher import code_of
from pausepoint.artifacts.status import artifact_named
from pausepoint.codec.values import Limits, encode
from pausepoint.definition.artifacts import BoundArtifact, Unfit, entry_of, named
from pausepoint.definition.fields import overlap
from pausepoint.definition.workflow import BoundStep, Workflow
from pausepoint.errors import FolderRefused
from pausepoint.log.replay import CheckpointBody, EditBody, Effect, KeyBody, to_payload
from pausepoint.log.state import Act, Blobs, Change, Slot, stored
from pausepoint.log.trail import Published, PublishedFile, Redo, Trail, Work
from pausepoint.model.commits import NewSession
from pausepoint.model.ids import SessionId, check_session_id, new_session_id
from pausepoint.model.queues import DEFAULT_QUEUE
from pausepoint.model.records import Record, RecordKind, first_digest, seal


class Relog:
    """Builds the records of a rebuilt session. Versions of fields are numbered by the new records."""

    def __init__(
        self,
        session_id: str,
        folder: Path,
        version: int,
        outline: Sequence[str],
        first: str,
        held_by_guard: bool = False,
    ) -> None:
        self.session_id = SessionId(session_id)
        self.trail = Trail(str(folder))
        self.version = version
        self.outline = tuple(outline)
        self.first, self.held_by_guard = first, held_by_guard
        self.fields: dict[str, Slot] = {}
        self.bodies: list[tuple[str, CheckpointBody | EditBody]] = []
        self.blobs: Blobs = []
        self.versions: dict[tuple[str, int], int] = {}
        self.edits: set[tuple[str, int]] = set()

    @property
    def seq(self) -> int:
        """The number of the next record."""
        return len(self.bodies) + 2

    def begin(self, values: Mapping[str, bytes]) -> None:
        """Set the first state of the session."""
        self.fields = {name: stored(data, self.blobs) for name, data in values.items()}

    def change(self, path: str, act: Act, data: bytes) -> Change:
        """Return a change with a value that is already encoded."""
        return Change(path, act, stored(data, self.blobs))

    def edited(self, edits: Iterable[Edited]) -> None:
        """Add the edits of the state up to here. Edits before the first step are already in the first state."""
        new = [(path, at, bytes(raw)) for path, at, raw in edits if (path, at) not in self.edits] if self.bodies else []
        if new:
            pairs = {(path, at) for path, at, _ in new}
            self.edits |= pairs
            self.versions |= dict.fromkeys(pairs, self.seq)
            changes = tuple(self.change(path, "set", data) for path, _, data in new)
            self.bodies.append((self.bodies[-1][0], EditBody(changes, reason="from its folder")))

    def done(self, work: Work, changes: Sequence[Change], next_step: str | None) -> None:
        """Add the checkpoint of a finished step. Versions that it read are renumbered for this log."""
        reads = {pair[0]: self.versions[pair] for pair in work.reads.items() if pair in self.versions}
        self.versions.update(((key, version), self.seq) for key, version in work.writes.items())
        files = tuple(msgspec.structs.replace(file, at=0) for file in work.files)
        writes = dict.fromkeys(work.writes, self.seq)
        published = Published(reads, files, work.code, work.usd, writes=writes, places=work.places)
        effect = Effect("published", work.at, "artifact.published", work.step, "from its folder", published=published)
        stays = next_step in (None, work.step)  # at the end, the guards and the route run again
        body = CheckpointBody(
            None if stays else next_step, tuple(changes), stays, work.skipped, took=work.took, effects=(effect,),
            version=self.version,
        )  # fmt: skip
        self.bodies.append((work.step, body))

    def session(self, workflow: Workflow[Any], now: int, by: str | None) -> NewSession:
        """Return the new session. A completed one is at its last step, so that its guards and route run again."""
        at, held_by_guard = self.first, self.held_by_guard
        visits = {at: 1} if held_by_guard else {}
        key = KeyBody(
            self.fields, at, held_by_guard, {**visits}, created=True, by=by, version=self.version, outline=self.outline,
            trail=self.trail,
        )  # fmt: skip
        records = [seal(first_digest(self.session_id), 1, 0, "key", at, 1, now, to_payload(key))]
        for step, body in self.bodies:
            if isinstance(body, CheckpointBody):
                visits[step] = visits.get(step, 0) + 1
                at, held_by_guard = body.next or step, body.held_by_guard
            records.append(_after(records[-1], step, visits[step], now, body))
        digest = sha256(f"rebuilt|{self.trail.folder}|{self.session_id}".encode()).digest()
        return NewSession(
            self.session_id, workflow.name, self.version, None, (), digest, now, at,
            visits.get(at, 0) + (0 if held_by_guard else 1), None, tuple(records), tuple(self.blobs), claim=False,
            held_by_guard=held_by_guard, queue=workflow.queue or DEFAULT_QUEUE, priority=workflow.priority or 0,
        )  # fmt: skip


def _after(last: Record, step: str, visit: int, now: int, body: CheckpointBody | EditBody) -> Record:
    kind: RecordKind = "checkpoint" if isinstance(body, CheckpointBody) else "edit"
    return seal(last.digest, last.seq + 1, last.seq, kind, step, visit, now, to_payload(body))


def by_record(
    workflow: Workflow[Any], folder: Path, session_id: str, found: Recorded, accept_incomplete: bool, limits: Limits
) -> Relog:  # fmt: skip
    """Rebuild the log from completion records. Values that files carry are read from the files, even if edited.

    A value in a record overrides the file, because it includes later edits of the state.
    """
    if found.late and not accept_incomplete:
        raise _inconsistent(folder, found.inconsistent(), found.gap)
    note, first = found.note, found.done[0].work.step if found.done else found.note.begins_at
    log = Relog(session_id, folder, note.version, note.outline, first, note.held_by_guard and not found.done)
    log.trail.rebuilt_from = note.session_id
    log.begin({name: bytes(raw) for name, raw in note.input.items()})
    for each in found.done:
        changes: list[Change] = []
        if each.work.seq > note.through:
            log.edited(each.edited)
            changes = _carried(workflow, ArtifactFolder(folder), log, each, limits)
            changes += [log.change(path, act, bytes(raw)) for path, act, raw in each.values]
        log.done(each.work, changes, each.next)
    log.edited(found.edited)
    return log


def _carried(
    workflow: Workflow[Any], folder: ArtifactFolder, log: Relog, done: DoneNote, limits: Limits
) -> list[Change]:
    """Return the values in the files of a step. A missing or invalid file is skipped, and its step runs again."""
    values: dict[str, Any] = {}
    for file in done.work.files:
        artifact = artifact_named(workflow, done.work.step, file.pattern)
        data = folder.read(file.path)
        if artifact is None or data is None:
            continue
        try:
            value = _plain(artifact, data) if log.version != workflow.version else artifact.decoded(data)
        except (Unfit, ValueError):
            continue
        if artifact.many:
            values.setdefault(file.field, {})[file.key] = value
        else:
            values[file.field] = value
    return [log.change(field, "set", _encoded(workflow, field, value, log, limits)) for field, value in values.items()]


def _plain(artifact: BoundArtifact, data: bytes) -> Any:
    """Decode a file of an older version, for the migrations: plain JSON or text."""
    if artifact.codec == "json":
        return msgspec.json.decode(data)
    return data.decode()


def _encoded(workflow: Workflow[Any], field: str, value: Any, log: Relog, limits: Limits) -> bytes:
    if log.version != workflow.version:
        return encode(value, field, limits)
    return workflow.shape.place(field).typed.encode(value, field, limits)


def by_judgement(
    workflow: Workflow[Any], path: Path, session_id: str | None, seen: Detection, judged: Sequence[Judged],
    given: Mapping[str, Any], accept_incomplete: bool, limits: Limits,
) -> Relog:  # fmt: skip
    """Rebuild the log from the files alone, up to the first step that is not known to be done."""
    if not judged or seen.resume_at == "start":
        raise FolderRefused(f"No checkpoints found in {path}. Start a new session.", path=str(path))
    if seen.inconsistent and not accept_incomplete:
        raise _inconsistent(path, seen.inconsistent, seen.resume_at)
    id = new_session_id() if session_id is None else check_session_id(session_id)
    log = Relog(id, path, workflow.version, workflow.outline, workflow.outline[0])
    start = workflow.shape.start(given)
    log.begin({name: place.typed.encode(start[name], name, limits) for name, place in workflow.shape.fields.items()})
    folder, known = ArtifactFolder(path), {**start}
    for each in judged:
        known.update(each.values)
        _relogged(log, workflow, folder, each, known, limits)
    if seen.resume_at in workflow.outline:
        _spared(log, folder, workflow.step(seen.resume_at), known)
    return log


def _relogged(
    log: Relog, workflow: Workflow[Any], folder: ArtifactFolder, done: Judged, known: Mapping[str, Any], limits: Limits
) -> None:
    """Add a step that is done according to its files."""
    changes = [log.change(path, "set", workflow.shape.place(path).typed.encode(value, path, limits))
               for path, value in done.values.items()]  # fmt: skip
    read = done.step.depends_on
    reads = {key: at for (key, at) in log.versions if any(overlap(key, path) for path in read)}
    files = [file for artifact in done.step.publishes for file in _files(folder, artifact, known)]
    work = Work(
        done.step.name, 1, log.seq, 0, reads, dict.fromkeys(done.step.places, log.seq), tuple(files),
        code_of(done.step.fn),
        skipped="its artifacts were already there" if files else "it published nothing", places=tuple(read),
    )  # fmt: skip
    log.done(work, changes, workflow.following(done.step.name))


def _spared(log: Relog, folder: ArtifactFolder, step: BoundStep, known: Mapping[str, Any]) -> None:
    """Mark the entries of the next step that already exist, so that they are not made again."""
    spared: list[PublishedFile] = []
    for artifact in step.publishes:
        for file in _files(folder, artifact, known) if artifact.many else ():
            with suppress(Unfit):
                artifact.decoded(folder.read(file.path) or b"")
                if file.size >= artifact.spec.min_bytes:
                    spared.append(file)
                    log.trail.knows(file)
    if spared:
        read = step.depends_on
        reads = {key: at for (key, _), at in log.versions.items() if any(overlap(key, path) for path in read)}
        log.trail.redo[step.name] = Redo(f"{len(spared)} of its files already exist", tuple(spared), reads)


def _inconsistent(folder: Path, inconsistent: Sequence[str], at: str | None) -> FolderRefused:
    return FolderRefused(
        f"Folder {folder} is inconsistent: {'; '.join(inconsistent)}. Pass incomplete='accept' to resume at {at}"
        " and run the steps after it again.",
        path=str(folder),
    )


def _files(folder: ArtifactFolder, artifact: BoundArtifact, known: Mapping[str, Any]) -> list[PublishedFile]:
    pattern = named(artifact.path, known)
    found: list[PublishedFile] = []
    for path in folder.names(pattern) if artifact.many else [pattern]:
        data = folder.read(path)
        if data is not None:
            key = entry_of(pattern, path)
            found.append(PublishedFile(path, artifact.path, artifact.place.path, digest_of(data), len(data), key))
    return found
