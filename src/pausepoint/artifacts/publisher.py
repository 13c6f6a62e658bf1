"""The artifacts of one held session as it runs: staged before a checkpoint, published after it, put right at the start.

The store is the truth and the folder its projection: whatever a crash has left undone there is done again from the log.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import msgspec

from pausepoint.artifacts.folder import ArtifactFolder, digest_of, mark
from pausepoint.codec.values import Limits
from pausepoint.definition.artifacts import OWN, BoundArtifact, clash
from pausepoint.definition.fields import overlap
from pausepoint.definition.workflow import BoundStep, Workflow
from pausepoint.errors import FolderMisfit, FolderRefused, StateRefused, StepError
from pausepoint.log.access import StateAccess
from pausepoint.log.ledger import Ledger
from pausepoint.log.replay import CheckpointBody, EditBody, Effect, Line, body_of
from pausepoint.log.state import Act, Blob, Blobs, Change, Inline, State
from pausepoint.log.telemetry import tell
from pausepoint.log.timeline import Timeline
from pausepoint.log.trail import Published, PublishedFile, Reused, Trail, Work
from pausepoint.log.versions import bring_up
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.base import Store
from pausepoint.threads import in_thread

FORMAT = 1
"""Of the notes in a folder. One that is newer is refused."""


class SessionNote(msgspec.Struct, frozen=True):
    """``.pausepoint/session.json``: whose folder it is, and what the session began with, field by field.

    ``through``: that is what all up to this record have come to; it was migrated then. ``first`` is the step that it
    began at; not always that of the outline: a fork begins later, or behind it (``held_by_guard``).
    """

    format: int
    session_id: str
    workflow: str
    version: int
    outline: tuple[str, ...]
    input: dict[str, msgspec.Raw]
    through: int = 0
    first: str = ""
    held_by_guard: bool = False

    @property
    def begins_at(self) -> str:
        """The first step that has a completion record."""
        return self.first or self.outline[0]


EDITED = "edited.json"

Noted = tuple[str, Act, msgspec.Raw]
"""What was written, and no file shows: path, act, value."""

Edited = tuple[str, int, msgspec.Raw]
"""What was edited in the state: path, version, value."""


class DoneNote(msgspec.Struct, frozen=True):
    """``.pausepoint/done/<step>.json``: the completion record of a step.

    ``values`` is what it wrote and no file of it carries. ``next`` is where the session went. ``edited`` is what was
    edited in the state, and stood, when the step began.
    """

    format: int
    work: Work
    values: tuple[Noted, ...] = ()
    next: str | None = None
    edited: tuple[Edited, ...] = ()


class EditNote(msgspec.Struct, frozen=True):
    """``.pausepoint/edited.json``: what is edited in the state, if that was since a step has ended last: with ``seq``."""

    format: int
    seq: int
    edited: tuple[Edited, ...] = ()


class Looked(Protocol):
    """A session, and what is needed to read its log."""

    session_id: str
    row: SessionRow
    store: Store
    workflow: Workflow[Any]
    limits: Limits
    line: Line


class Publisher:
    """See the module's text. Without a ``ledger`` nobody holds the session, and only its folder can be put right."""

    def __init__(self, held: Looked, trail: Trail, ledger: Ledger | None = None) -> None:
        self.held = held
        self.shelf = ArtifactFolder(Path(trail.folder))
        self._ledger = ledger
        self._before: tuple[State, dict[str, int]] | None = None  # what was edited when the open visit began

    @property
    def ledger(self) -> Ledger:
        """What the checkpoints of the session are written with."""
        assert self._ledger is not None, "nobody holds the session"
        return self._ledger

    @property
    def trail(self) -> Trail:
        """What the log says about artifacts, as it stands."""
        found = self.held.line.trail
        assert found is not None
        return found

    # taking up

    async def take_up(self) -> None:
        """Bring the folder to where the log is: publish what is staged, note what is done, clear what came to nothing.

        What somebody else has put there is left alone: who resumes the session was asked about it.
        """
        if await in_thread(is_gone, self.trail, self.shelf):
            raise gone(self.held.session_id, self.shelf.path)
        await in_thread(self.shelf.make)
        notes = await in_thread(self.shelf.notes)
        await self._claim(notes.get("session.json"))
        staged, past = await in_thread(self.shelf.staged), Past(self.held, self.shelf)
        files = self.trail.files()
        older = await in_thread(self._older, [file for file, _ in files.values()])
        for file, work in files.values():
            if mark(file.path, file.sha256) in staged:
                await self._publish(file, work.step)
            elif file.path in older:
                await self._restore(past, file, work.step)
        await in_thread(self.shelf.clear, [mark(file.path, file.sha256) for file, _ in files.values()])
        await in_thread(self._retire, [*self.trail.works])
        for work in self.trail.works.values():
            if _noted(notes.get(f"done/{work.step}.json")) != work:
                await self._note_again(work)
        await self._note_edits(notes.get(EDITED))
        for name in notes:
            if name.startswith("done/") and name[5:-5] not in self.trail.works:
                await in_thread(self.shelf.forget, name)

    async def _claim(self, found: bytes | None) -> None:
        """Put the session's name on its folder. One that has another's is not touched."""
        ours = (self.held.session_id, self.trail.rebuilt_from)
        note = check_free(found, self.shelf.path, *ours)
        line = self.held.line
        same = note is not None and (note.session_id, note.version) == (self.held.session_id, line.version)
        same = same and bool(self.trail.works)  # before the first step has ended, its input may have been edited
        if note is not None and same and note.outline == line.outline:
            return
        workflow = self.held.workflow.name
        if note is not None and same:
            first = self.held.workflow.renamed.get(note.first, note.first)
            now = msgspec.structs.replace(note, outline=line.outline, first=first)
        else:
            now = SessionNote(
                FORMAT, self.held.session_id, workflow, line.version, line.outline, *await self._beginning()
            )  # fmt: skip

        def decide(found: bytes | None) -> bytes:
            check_free(found, self.shelf.path, *ours)  # another session may have come in between
            return _pretty(now)

        await in_thread(self.shelf.claim, decide)

    async def _beginning(self) -> tuple[dict[str, msgspec.Raw], int, str, bool]:
        """What the session began with, and where; if migrated since, what that came to, and up to which record."""
        line, through, timeline = self.held.line, 0, Timeline(self.held.store, self.held.row)
        first = min(self.trail.works.values(), key=lambda work: work.seq, default=None)
        if first is not None:
            begun = (await timeline.before(first.seq, reuse=False)).line
            line, through = (begun, 0) if begun.version == line.version else (line, self.held.row.seq)
            at, held_by_guard = first.step, False
        else:
            at, held_by_guard = line.step or await timeline.last_step() or "", line.held_by_guard or line.step is None
        values = await self._values(line.state, [*line.state.slots])
        return {path: raw for path, _, raw in values}, through, at, held_by_guard

    async def check_past(self) -> None:
        """Refuse, while nothing is changed yet, a place in the log whose files `take_up` could not put back.

        Only a session that was made anew of its folder can have such places: what its steps wrote over is not there.
        """
        if not self.trail.rebuilt_from:
            return
        files, past = self.trail.files(), Past(self.held, self.shelf)
        for path in sorted(await in_thread(self._older, [file for file, _ in files.values()])):
            await past.content_of(files[path][0], files[path][1].step)

    def _older(self, files: Sequence[PublishedFile]) -> set[str]:
        """The files at whose place lies what another checkpoint left; not if that one is kept, and comes again."""
        reused = {(file.path, file.sha256) for each in self.trail.reused.values() for file in each.published.files}
        return {file.path for file in files if self._is_older(file, reused)}

    def _is_older(self, file: PublishedFile, reused: Collection[tuple[str, str]]) -> bool:
        data = self._found(file)
        if data is None or (digest := digest_of(data)) == file.sha256:
            return False
        return digest in self.trail.known.get(file.path, ()) and (file.path, digest) not in reused

    def _found(self, file: PublishedFile) -> bytes | None:
        """What lies at the place of a file; of something that cannot be one, nothing that anybody would know."""
        try:
            return self.shelf.read(file.path)
        except FolderRefused:
            return b""

    def _is_foreign(self, file: PublishedFile) -> bool:
        self.shelf.check(file.path)
        data = self._found(file)
        return data is not None and digest_of(data) not in (file.sha256, *self.trail.known.get(file.path, ()))

    # one visit

    def reused(self, step: str) -> Reused | None:
        """The checkpoint that is to be kept instead of running a step, if what it read is still what there is."""
        found = self.trail.reused.get(step)
        return found if found is not None and found.holds(self.trail.versions) else None

    async def stage(self, step: BoundStep, changes: tuple[Change, ...], blobs: Blobs) -> None:
        """Have what the step leaves on disk, and have its checkpoint say so."""
        files: tuple[PublishedFile, ...] = ()
        if step.publishes:
            contents = await contents_of(self.held, step, changes, blobs)
            self._check_apart(step.name, [file.path for file, _ in contents])
            files = tuple([await in_thread(self._stage, *each) for each in contents])
            for file in files:
                if await in_thread(self._is_foreign, file):
                    summary = f"{file.path} was there and not ours; it goes to {self.shelf.path}/.pausepoint/bin"
                    self.ledger.effect(
                        f"aside:{file.path}", "artifact.set_aside", summary, {"path": file.path}, step.agent
                    )
        line, pending = self.held.line, self.ledger.pending.values()
        usd = line.usd - line.spent + sum(effect.usd for effect in pending)
        self._pend(step, self._published(step, files, usd))

    def _check_apart(self, step: str, paths: list[str]) -> None:
        others = [path for path, (_, work) in self.trail.files().items() if work.step != step]
        if pair := clash([*others, *paths]):
            raise StepError(
                f"{pair[0]!r} and {pair[1]!r} cannot both be files: one is a folder of the other, or the same name in"
                " other letters, which many disks do not tell apart; give them different paths"
            )

    def _stage(self, file: PublishedFile, data: bytes) -> PublishedFile:
        digest = self.shelf.stage(file.path, data)
        return msgspec.structs.replace(file, sha256=digest, size=len(data))

    def skips(self, step: BoundStep) -> None:
        """The step does not run: its checkpoint says what that was decided by."""
        self._pend(step, self._published(step))

    def _published(self, step: BoundStep, files: tuple[PublishedFile, ...] = (), usd: int = 0) -> Published:
        places = tuple(step.depends_on)
        return Published(self.trail.read_by(places), files, code_of(step.fn), usd, places=places)

    def reuses(self, step: BoundStep, reused: Reused) -> None:
        """The checkpoint says which one it stands for."""
        self._pend(step, reused.published)

    def _pend(self, step: BoundStep, published: Published) -> None:
        names = ", ".join(file.path for file in published.files[:3]) + (", …" if len(published.files) > 3 else "")
        data = {"files": {file.path: file.sha256 for file in published.files}}
        raw = msgspec.Raw(msgspec.json.encode(data))
        effect = Effect(
            "published", self.ledger.clock.now(), "artifact.published", step.agent, names, raw, published=published
        )
        self.ledger.pending.pop("published", None)  # of an attempt that failed behind it
        self.ledger.pend(effect)
        standing = self.trail.standing()
        self._before = (self.held.line.state.copy(), standing) if standing else None

    async def publish(self, step: str) -> None:
        """The checkpoint is committed: give its files their names, and note that it is done."""
        work = self.trail.works[step]
        staged, past = await in_thread(self.shelf.staged), Past(self.held, self.shelf)
        older = await in_thread(self._older, work.files)
        for file in work.files:
            if mark(file.path, file.sha256) in staged:
                await self._publish(file, step)
            elif file.path in older or await in_thread(self._found, file) is None:
                await self._restore(past, file, step)  # of a checkpoint that is kept, and whose file has gone meanwhile
        await in_thread(self._retire, [step])
        await self._note(work, self.held.line.state, await self._edits(*self._before) if self._before else ())

    def _retire(self, steps: Sequence[str]) -> None:
        """What steps left when they ran before, and do not leave any more, goes to the bin: no field shows it now."""
        trail, outline = self.trail, self.held.workflow.outline
        ahead = {file.path for reused in trail.reused.values() for file in reused.published.files}
        ahead |= {file.path for redo in trail.redo.values() for file in redo.spared}
        declared = [each for step in steps if step in outline for each in self.held.workflow.step(step).publishes]
        for path in trail.known.keys() - trail.files().keys() - ahead:
            if any(artifact.could_be(path) for artifact in declared):
                self.shelf.retire(path, trail.known[path])

    async def _publish(self, file: PublishedFile, step: str) -> None:
        moved = await in_thread(self.shelf.publish, file.path, file.sha256, self.trail.known.get(file.path, ()))
        if moved:
            tell(logging.WARNING, f"{step}: what was at {file.path} is kept as {moved}", self.held.session_id)

    async def _restore(self, past: Past, file: PublishedFile, step: str) -> None:
        data = await past.content_of(file, step)
        await in_thread(self.shelf.stage, file.path, data)
        await self._publish(file, step)

    async def _note_again(self, work: Work) -> None:
        """The completion record of a step from the log alone: a crash has come in between, or it was edited since."""
        timeline = Timeline(self.held.store, self.held.row)
        before, after = await timeline.line(work.seq - 1), await timeline.line(work.seq)
        standing = before.trail.standing() if before.trail is not None else {}
        await self._note(work, after.state, await self._edits(before.state, standing))

    async def _note(self, work: Work, state: State, edited: Sequence[Edited]) -> None:
        """The completion record of a step, with all that only the log would know. ``state``: as the step left it."""
        (record,) = await self.held.store.records(self.held.row.key, work.seq, work.seq)
        body: CheckpointBody = body_of(record)
        shown = [file.field for file in work.files]
        values: list[Noted] = []
        if work.visit > 1:  # what its earlier visits wrote, or added to, has no record of its own any more
            places = self.held.workflow.step(work.step).places if work.step in self.held.workflow.outline else ()
            written = {path.partition(".")[0] for path in (*places, *work.writes)}
            values += await self._values(state, [field for field in sorted(written) if not _is_shown(field, shown)])
        else:
            for change in body.changes:
                if not _is_shown(change.path, shown):
                    values.append((change.path, change.act, msgspec.Raw(await _bytes(self.held.store, change.value))))
        if work.made:  # edits of what it wrote may have become a part of it
            mine = [path for path in self.trail.edited if any(overlap(path, key) for key in work.writes)]
            values += await self._values(state, mine)
        note = DoneNote(FORMAT, work, tuple(values), work.step if body.held_by_guard else body.next, tuple(edited))
        spelled_out = {**msgspec.structs.asdict(note), "work": msgspec.structs.asdict(work)}
        await in_thread(self.shelf.note, f"done/{work.step}.json", _pretty(spelled_out))

    async def _note_edits(self, found: bytes | None) -> None:
        """What was edited in the state since a step has ended last; the next one has it in its completion record."""
        standing = self.trail.standing()
        last = max(standing.values(), default=0)
        if last > max((work.seq for work in self.trail.works.values()), default=0):
            edited = await self._edits(self.held.line.state, standing)
            await in_thread(self.shelf.note, EDITED, _pretty(EditNote(FORMAT, last, edited)))
        elif found is not None:
            await in_thread(self.shelf.forget, EDITED)

    async def _edits(self, state: State, standing: Mapping[str, int]) -> tuple[Edited, ...]:
        values = await self._values(state, [*standing])
        return tuple([(path, standing[path], raw) for path, _, raw in values])

    async def _values(self, state: State, paths: Sequence[str]) -> list[Noted]:
        if needed := state.needs(paths):
            state.provide(await self.held.store.blobs(needed))
        return [(path, "set", msgspec.Raw(state.read(path) or b"null")) for path in paths]

    # for the step itself

    def spared(self, step: str, pattern: str) -> dict[str, str]:
        """Of the files that a step left when it last ran: the entries that are still good, as they are in the file."""
        bound, redo, found = self.held.workflow.step(step), self.trail.redo.get(step), dict[str, str]()
        artifact = artifact_of(bound, pattern)
        if redo is None or redo.reads != self.trail.read_by(bound.depends_on):
            return found
        for file in redo.spared:
            if file.pattern == artifact.path and digest_of(data := self._found(file) or b"") == file.sha256:
                found[file.key] = data.decode()
        return found


async def contents_of(
    held: Looked, step: BoundStep, changes: tuple[Change, ...], blobs: Blobs
) -> list[tuple[PublishedFile, bytes]]:
    """What a step would leave, if it wrote these changes."""
    trial = held.line.state.copy()
    trial.provide(dict(blobs))
    for change in changes:
        trial.apply(change)
    lending = StateAccess(held.workflow, trial, held.store, held.limits)
    found: list[tuple[PublishedFile, bytes]] = []
    for artifact in step.publishes:
        state = await values_of(lending, artifact.fields)
        for path, (key, data) in artifact.files(state[artifact.place.path], state).items():
            found.append((PublishedFile(path, artifact.path, artifact.place.path, "", 0, key), data))
    twice = [path for path, count in Counter(file.path for file, _ in found).items() if count > 1]
    if twice:
        raise StepError(f"{step.name} leaves {twice[0]!r} twice; give its artifacts different paths")
    return found


async def values_of(lending: StateAccess, paths: tuple[str, ...]) -> dict[str, Any]:
    """Some values of a state, by their paths; what is large is fetched."""
    if needed := lending.state.needs(path for path in paths):
        lending.state.provide(await lending.store.blobs(needed))
    return {path: lending.read(lending.shape.place(path)) for path in paths}


class Past:
    """What was recorded of files, to the byte, from the log. What is read for one file is at hand for the next."""

    def __init__(self, held: Looked, shelf: ArtifactFolder) -> None:
        self.held, self.shelf = held, shelf
        self._bodies: dict[int, Any] = {}
        self._fields: dict[tuple[int, str], Any] = {}

    async def content_of(self, file: PublishedFile, step: str) -> bytes:
        """The recorded content of a file. `FolderRefused` if it cannot be had any more."""
        data = await in_thread(self.shelf.kept, file.sha256)
        if data is None:
            data = await self._made_again(file, artifact_of(self.held.workflow.step(step), file.pattern))
        if digest_of(data) != file.sha256:
            rebuilt = self.held.line.trail is not None and self.held.line.trail.rebuilt_from
            why = "the session was made anew of its folder" if rebuilt else "its codec writes it otherwise by now"
            raise FolderRefused(
                f"{file.path} cannot be written as it was: {why}; take it in as it is, or run {step} again:"
                f" resume(rerun=[{step!r}])",
                session_id=self.held.session_id, path=file.path,
            )  # fmt: skip
        return data

    async def _made_again(self, file: PublishedFile, artifact: BoundArtifact) -> bytes:
        if file.at not in self._bodies:
            (record,) = await self.held.store.records(self.held.row.key, file.at, file.at)
            self._bodies[file.at] = body_of(record)
        body = self._bodies[file.at]
        if isinstance(body, EditBody):
            change = next(each.change for each in body.adopted if each.file.path == file.path)
            raw = await _bytes(self.held.store, change.value)
            return artifact.encoded(artifact.typed.decode(raw if not file.key else _entry(raw, file.key), file.path))
        whole = await self._field(file, artifact.place.path)
        return artifact.encoded(whole[file.key] if artifact.many else whole)

    async def _field(self, file: PublishedFile, field: str) -> Any:
        """A field as it was when a file that shows it was left, carried up to the code at hand."""
        if (file.at, field) not in self._fields:
            held = self.held
            line = await Timeline(held.store, held.row).line(file.at)
            try:
                await bring_up(held.workflow, line, held.store, held.limits)
                lending = StateAccess(held.workflow, line.state, held.store, held.limits)
                self._fields[file.at, field] = (await values_of(lending, (field,)))[field]
            except StateRefused as error:
                raise FolderRefused(
                    f"{file.path} cannot be written as it was: {error}", session_id=held.session_id, path=file.path
                ) from error
        return self._fields[file.at, field]


def artifact_of(step: BoundStep, pattern: str) -> BoundArtifact:
    """The artifact of a step by its path as declared. `StepError` if it declares none."""
    for artifact in step.publishes:
        if artifact.path == pattern:
            return artifact
    known = ", ".join(repr(artifact.path) for artifact in step.publishes) or "none"
    raise StepError(f"{step.name} leaves no artifact {pattern!r}; it declares {known}")


@functools.lru_cache(maxsize=1024)
def code_of(fn: Any) -> str:
    """What tells one text of a function from another; empty if its text is not at hand."""
    try:
        return sha256(inspect.getsource(fn).encode()).hexdigest()[:16]
    except (OSError, TypeError):
        return ""


def is_gone(trail: Trail, shelf: ArtifactFolder) -> bool:
    """Whether nothing of what a session has left is where it was: its folder was moved, or its disk is not there."""
    files = trail.files()
    if not files or shelf.read(f"{OWN}/session.json") is not None:
        return False
    return all(shelf.absent(path) for path in files)


def gone(session_id: str, folder: Path) -> FolderRefused:
    """What to say about that."""
    return FolderRefused(
        f"the folder of session {session_id!r} is gone, or empty: {folder}; put it back, have its files written anew"
        " with restore(), or make a session of where it is now: engine.rebuild(folder, workflow, session_id=...)",
        session_id=session_id, path=str(folder),
    )  # fmt: skip


def check_free(found: bytes | None, folder: Path, session_id: str, before: str = "") -> SessionNote | None:
    """The note that says whose folder it is, if there is one. `FolderRefused` if it is another session's."""
    note = session_note(found, str(folder)) if found else None
    if note is not None and note.session_id not in (session_id, before):
        raise FolderRefused(
            f"{folder} belongs to session {note.session_id!r}; give this one a folder of its own",
            session_id=session_id, path=str(folder),
        )  # fmt: skip
    return note


def session_note(data: bytes, folder: str) -> SessionNote:
    """Read the note that says whose folder it is. `FolderRefused` if it is damaged, or a newer Pausepoint's."""
    try:
        note = msgspec.json.decode(data, type=SessionNote)
    except msgspec.MsgspecError as exc:
        raise FolderRefused(
            f"{folder}/.pausepoint/session.json is damaged ({exc}); delete it: a resume of the session writes it anew,"
            " and without the session the files alone tell",
            path=folder,
        ) from exc
    if note.format > FORMAT:
        raise FolderMisfit(f"{folder} was written by a newer Pausepoint (format {note.format}); use that", path=folder)
    return note


def _noted(data: bytes | None) -> Work | None:
    try:
        return msgspec.json.decode(data, type=DoneNote).work if data else None
    except msgspec.MsgspecError:
        return None  # it is written anew


def _is_shown(path: str, fields: Sequence[str]) -> bool:
    """Whether all that is at a place is in files, which show these fields."""
    return any(path == field or path.startswith(f"{field}.") for field in fields)


def _pretty(note: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(note), indent=2) + b"\n"


async def _bytes(store: Store, value: Inline | Blob) -> bytes:
    if isinstance(value, Inline):
        return bytes(value.data)
    key = bytes.fromhex(value.hash)
    return (await store.blobs([key]))[key]


def _entry(data: bytes, key: str) -> bytes:
    return bytes(msgspec.json.decode(data, type=dict[str, msgspec.Raw])[key])
