"""Writes the artifacts of one session: stages files before a checkpoint, publishes them after it.

The store is the source of truth, and the folder is a projection of it. When an engine picks up the session, it repairs
from the log whatever a crash left unfinished in the folder.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import msgspec

from pausepoint.artifacts.folder import ArtifactFolder, digest_of, kept_as, mark
from pausepoint.artifacts.notes import (
    EDITED,
    FORMAT,
    DoneNote,
    Edited,
    EditNote,
    LastPublished,
    Noted,
    SessionNote,
    check_free,
    last_published,
    noted_work,
    pretty,
    put_back,
    unpublished,
)
from pausepoint.codec.values import Limits
from pausepoint.definition.artifacts import OWN, BoundArtifact, clash
from pausepoint.definition.fields import overlap
from pausepoint.definition.workflow import BoundStep, Workflow
from pausepoint.errors import FolderRefused, FolderUnavailable, StateRefused, StepError
from pausepoint.log.access import StateAccess
from pausepoint.log.ledger import Ledger
from pausepoint.log.replay import CheckpointBody, EditBody, Effect, Line, body_of
from pausepoint.log.state import Blob, Blobs, Change, Inline, State
from pausepoint.log.telemetry import log_line
from pausepoint.log.timeline import Timeline
from pausepoint.log.trail import Published, PublishedFile, Reused, Trail, Work
from pausepoint.log.versions import migrate_line
from pausepoint.model.pauses import Paused
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.base import Store
from pausepoint.threads import Lane


class LoadedSession(Protocol):
    """A session, with everything that is needed to read its log."""

    session_id: str
    row: SessionRow
    store: Store
    workflow: Workflow[Any]
    limits: Limits
    line: Line


class Publisher:
    """Stages and publishes the artifacts of one session. Without a ``ledger`` it can only repair the folder."""

    def __init__(self, held: LoadedSession, trail: Trail, ledger: Ledger | None = None) -> None:
        self.held = held
        self.folder = ArtifactFolder(Path(trail.folder))
        self._thread = Lane("artifacts")
        self._ledger = ledger
        self._before: tuple[State, dict[str, int]] | None = None  # the state and its edits when the open visit began

    @property
    def ledger(self) -> Ledger:
        """The ledger that writes the session's checkpoints."""
        assert self._ledger is not None, "the session is not held"
        return self._ledger

    @property
    def trail(self) -> Trail:
        """The history of artifacts in the log."""
        found = self.held.line.trail
        assert found is not None
        return found

    # picking up

    async def repair(self) -> None:
        """Bring the folder up to date with the log: publish staged files, write missing notes, delete leftovers.

        Edited files are not touched. A resume asks what to do with them before it comes here.
        """
        if await self._thread.run(is_gone, self.trail, self.folder):
            raise gone(self.held.session_id, self.folder.path)
        await self._thread.run(self.folder.make)
        notes = await self._thread.run(self.folder.notes)
        await self._claim(notes.get("session.json"))
        staged, past = await self._thread.run(self.folder.staged), Past(self.held, self.folder)
        files, last = self.trail.files(), last_published(notes)
        older = await self._thread.run(self._older, [file for file, _ in files.values()])
        older -= await self._thread.run(self._put_back, [files[path] for path in older], last)
        lost = older | await self._thread.run(self._awaited, [*files.values()], last)
        for file, work in files.values():
            if mark(file.path, file.sha256) in staged:
                await self._publish(file, work.step)
            elif file.path in lost:
                await self._restore(past, file, work.step)
        await self._thread.run(self.folder.clear, [mark(file.path, file.sha256) for file, _ in files.values()])
        await self._thread.run(self._retire, [*self.trail.works])
        for work in self.trail.works.values():
            if noted_work(notes.get(f"done/{work.step}.json")) != work:
                await self._note_again(work)
        await self._note_edits(notes.get(EDITED))
        for name in notes:
            if name.startswith("done/") and name[5:-5] not in self.trail.works:
                await self._thread.run(self.folder.forget, name)

    async def _claim(self, found: bytes | None) -> None:
        """Write the session's id into its folder. Raises `FolderRefused` if the folder belongs to another session."""
        ours = (self.held.session_id, self.trail.rebuilt_from)
        note = check_free(found, self.folder.path, *ours)
        line = self.held.line
        same = note is not None and (note.session_id, note.version) == (self.held.session_id, line.version)
        same = same and bool(self.trail.works)  # the input may be edited until the first step ends
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
            check_free(found, self.folder.path, *ours)  # another session may have claimed it since
            return pretty(now)

        await self._thread.run(self.folder.claim, decide)

    async def _beginning(self) -> tuple[dict[str, msgspec.Raw], int, str, bool]:
        """Return the session's first state and step. If it was migrated since, return the present state instead."""
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
        """Check that `repair` can restore all files at this position in the log. Raises `FolderRefused`.

        It fails only in a session that was rebuilt from its folder, because overwritten values are missing there.
        """
        if not self.trail.rebuilt_from:
            return
        files, past = self.trail.files(), Past(self.held, self.folder)
        for path in sorted(await self._thread.run(self._older, [file for file, _ in files.values()])):
            await past.content_of(files[path][0], files[path][1].step)

    def _older(self, files: Sequence[PublishedFile]) -> set[str]:
        """Return the paths that hold the content of another checkpoint, unless that checkpoint is reused later."""
        reused = {(file.path, file.sha256) for each in self.trail.reused.values() for file in each.published.files}
        return {file.path for file in files if self._is_older(file, reused)}

    def _is_older(self, file: PublishedFile, reused: Collection[tuple[str, str]]) -> bool:
        if not set(self.trail.known.get(file.path, ())) - {file.sha256}:
            return False  # it has only one version, so there is nothing to compare
        data = self._found(file)
        if data is None or (digest := digest_of(data)) == file.sha256:
            return False
        return digest in self.trail.known.get(file.path, ()) and (file.path, digest) not in reused

    def _put_back(self, files: Sequence[tuple[PublishedFile, Work]], last: LastPublished) -> set[str]:
        """Return the paths that a person put back to an older version. A resume asks what to do with them."""
        found = {file.path: digest_of(self._found(file) or b"") for file, _ in files}
        return {
            file.path for file, work in files
            if put_back(self.trail, self.folder, file, work, found[file.path], last)
        }  # fmt: skip

    def _awaited(self, files: Sequence[tuple[PublishedFile, Work]], last: LastPublished) -> set[str]:
        """Return the paths of files that were never published."""
        return {
            file.path for file, work in files if unpublished(file, work, last) and self.folder.absent(file.path)
        }  # fmt: skip

    def _found(self, file: PublishedFile) -> bytes | None:
        """Return the content at the path of a file; None if it is absent, empty bytes if it cannot be read."""
        try:
            return self.folder.read(file.path)
        except FolderUnavailable:
            raise
        except FolderRefused:
            return b""

    # one visit

    def reused(self, step: str) -> Reused | None:
        """Return the checkpoint to reuse instead of running a step; None if what it read has changed."""
        found = self.trail.reused.get(step)
        return found if found is not None and found.holds(self.trail.versions) else None

    async def stage(self, step: BoundStep, changes: tuple[Change, ...], blobs: Blobs) -> FolderRefused | None:
        """Write the step's files to the staging folder, and record them in its checkpoint.

        If the disk refuses a file, return the error. The checkpoint records the files all the same, because the next
        resume can make them from it. Raises `StepError` if the step itself did something wrong.
        """
        files, refused = tuple[PublishedFile, ...](), None
        if step.publishes:
            contents = await contents_of(self.held, step, changes, blobs)
            self._check_apart(step.name, [file.path for file, _ in contents])
            files = tuple([_recorded(file, data) for file, data in contents])
            try:
                for file, (_, data) in zip(files, contents, strict=True):
                    await self._thread.run(self.folder.stage, file.path, data)
                await self._set_aside(step, [(file, data) for file, (_, data) in zip(files, contents, strict=True)])
            except FolderRefused as error:
                refused = error
        line, pending = self.held.line, self.ledger.pending.values()
        usd = line.usd - line.spent + sum(effect.usd for effect in pending)
        self._pend(step, self._published(step, files, usd, refused is not None))
        return refused

    async def _set_aside(self, step: BoundStep, files: Sequence[tuple[PublishedFile, bytes]]) -> None:
        """Record which files of a person this step replaces or no longer publishes, and where they are kept."""
        found = {file.path: await self._thread.run(self._replaced, file, new) for file, new in files}
        published = {path for path, (_, work) in self.trail.files().items() if work.step != step.name}
        found |= await self._thread.run(self._dropped, step.name, published | found.keys())
        for path, what in found.items():
            if what:
                self.ledger.effect(f"aside:{path}", "artifact.set_aside", what, {"path": path}, step.agent)

    def _replaced(self, file: PublishedFile, new: bytes) -> str:
        """Return which content of a person is replaced by a file with ``new`` content; empty if there is none."""
        self.folder.check(file.path)
        data = self._found(file)
        if data is None or (digest := digest_of(data)) == file.sha256:
            return ""
        if digest not in self.trail.known.get(file.path, ()):
            return f"{file.path} was not written by this session; moved to {self.folder.path}/{OWN}/bin"
        if self.folder.kept_edit(digest) is None:
            return ""
        where = f"{self.folder.path}/{kept_as(digest)}"
        if _has_lines_of(data, new):
            return f"{file.path} was written again with every line of its accepted edit, which is kept in {where}"
        return f"{file.path}: its accepted edit was replaced; kept in {where}"

    def _dropped(self, step: str, published: Collection[str]) -> dict[str, str]:
        """Return the accepted edits of files that a step no longer publishes."""
        found: dict[str, str] = {}
        for path in self._no_longer([step], published):
            data = self._found(PublishedFile(path, "", "", "", 0))
            if data is not None and self.folder.kept_edit(digest := digest_of(data)) is not None:
                where = f"{self.folder.path}/{kept_as(digest)}"
                found[path] = f"{path} is no longer published; its accepted edit is kept in {where}"
        return found

    def _check_apart(self, step: str, paths: list[str]) -> None:
        others = [path for path, (_, work) in self.trail.files().items() if work.step != step]
        if pair := clash([*others, *paths]):
            raise StepError(
                f"Artifacts {pair[0]!r} and {pair[1]!r} of step {step!r} cannot both be files: one is a folder in the"
                " path of the other, or they differ only in upper and lower case. Give them different paths."
            )

    def skips(self, step: BoundStep) -> None:
        """Record in the checkpoint of a skipped step which versions the decision read."""
        self._pend(step, self._published(step))

    def _published(
        self, step: BoundStep, files: tuple[PublishedFile, ...] = (), usd: int = 0, unstaged: bool = False
    ) -> Published:
        places, code = tuple(step.depends_on), code_of(step.fn)
        return Published(self.trail.read_by(places), files, code, usd, places=places, unstaged=unstaged)

    def reuses(self, step: BoundStep, reused: Reused) -> None:
        """Record in the checkpoint which earlier checkpoint it reuses."""
        self._pend(step, reused.published)

    def _pend(self, step: BoundStep, published: Published) -> None:
        names = ", ".join(file.path for file in published.files[:3]) + (", …" if len(published.files) > 3 else "")
        data = {"files": {file.path: file.sha256 for file in published.files}}
        raw = msgspec.Raw(msgspec.json.encode(data))
        effect = Effect(
            "published", self.ledger.clock.now(), "artifact.published", step.agent, names, raw, published=published
        )
        self.ledger.pending.pop("published", None)  # from an attempt that failed after staging
        self.ledger.pend(effect)
        open_edits = self.trail.open_edits()
        self._before = (self.held.line.state.copy(), open_edits) if open_edits else None

    async def publish(self, step: str) -> None:
        """Publish the files of a committed checkpoint, and write its completion record."""
        work = self.trail.works[step]
        staged, past = await self._thread.run(self.folder.staged), Past(self.held, self.folder)
        older = await self._thread.run(self._older, work.files)
        for file in work.files:
            if mark(file.path, file.sha256) in staged:
                await self._publish(file, step)
            elif file.path in older or await self._thread.run(self._found, file) is None:
                await self._restore(past, file, step)  # a reused checkpoint whose file is missing
        await self._thread.run(self._retire, [step])
        await self._note(work, self.held.line.state, await self._edits(*self._before) if self._before else ())

    def _retire(self, steps: Sequence[str]) -> None:
        """Move files that these steps published before and no longer publish to the bin."""
        for path in self._no_longer(steps, self.trail.files()):
            self.folder.retire(path, self.trail.known[path])

    def _no_longer(self, steps: Sequence[str], published: Collection[str]) -> list[str]:
        """Return the paths that these steps published before and that are not in ``published``."""
        trail, outline = self.trail, self.held.workflow.outline
        ahead = {file.path for reused in trail.reused.values() for file in reused.published.files}
        ahead |= {file.path for redo in trail.redo.values() for file in redo.spared}
        declared = [each for step in steps if step in outline for each in self.held.workflow.step(step).publishes]
        old = trail.known.keys() - {*published} - ahead
        return sorted(path for path in old if any(artifact.could_be(path) for artifact in declared))

    async def _publish(self, file: PublishedFile, step: str) -> None:
        moved = await self._thread.run(self.folder.publish, file.path, file.sha256, self.trail.known.get(file.path, ()))
        if moved:
            text = f"{step}: the existing {file.path} was not written by this session; moved it to {moved}"
            log_line(logging.WARNING, text, self.held.session_id)

    async def _restore(self, past: Past, file: PublishedFile, step: str) -> None:
        data = await past.content_of(file, step)
        await self._thread.run(self.folder.stage, file.path, data)
        await self._publish(file, step)

    async def _note_again(self, work: Work) -> None:
        """Write the completion record of a step from the log, after a crash or an edit."""
        timeline = Timeline(self.held.store, self.held.row)
        before, after = await timeline.line(work.seq - 1), await timeline.line(work.seq)
        open_edits = before.trail.open_edits() if before.trail is not None else {}
        await self._note(work, after.state, await self._edits(before.state, open_edits))

    async def _note(self, work: Work, state: State, edited: Sequence[Edited]) -> None:
        """Write the completion record of a step. ``state`` is the state after the step."""
        (record,) = await self.held.store.records(self.held.row.key, work.seq, work.seq)
        body: CheckpointBody = body_of(record)
        shown = [file.field for file in work.files]
        values: list[Noted] = []
        if work.visit > 1:  # earlier visits no longer have a record of their own
            places = self.held.workflow.step(work.step).places if work.step in self.held.workflow.outline else ()
            written = {path.partition(".")[0] for path in (*places, *work.writes)}
            values += await self._values(state, [field for field in sorted(written) if not _is_shown(field, shown)])
        else:
            for change in body.changes:
                if not _is_shown(change.path, shown):
                    values.append((change.path, change.act, msgspec.Raw(await _bytes(self.held.store, change.value))))
        if work.made:  # a reused checkpoint may contain edits
            mine = [path for path in self.trail.edited if any(overlap(path, key) for key in work.writes)]
            values += await self._values(state, mine)
        note = DoneNote(FORMAT, work, tuple(values), _next_of(work, body), tuple(edited))
        spelled_out = {**msgspec.structs.asdict(note), "work": msgspec.structs.asdict(work)}
        await self._thread.run(self.folder.note, f"done/{work.step}.json", pretty(spelled_out))

    async def _note_edits(self, found: bytes | None) -> None:
        """Write the edits of the state since the last step ended. The next completion record includes them."""
        open_edits = self.trail.open_edits()
        last = max(open_edits.values(), default=0)
        if last > max((work.seq for work in self.trail.works.values()), default=0):
            edited = await self._edits(self.held.line.state, open_edits)
            await self._thread.run(self.folder.note, EDITED, pretty(EditNote(FORMAT, last, edited)))
        elif found is not None:
            await self._thread.run(self.folder.forget, EDITED)

    async def _edits(self, state: State, open_edits: Mapping[str, int]) -> tuple[Edited, ...]:
        values = await self._values(state, [*open_edits])
        return tuple([(path, open_edits[path], raw) for path, _, raw in values])

    async def _values(self, state: State, paths: Sequence[str]) -> list[Noted]:
        if needed := state.needs(paths):
            state.provide(await self.held.store.blobs(needed))
        return [(path, "set", msgspec.Raw(state.read(path) or b"null")) for path in paths]

    # for the step itself

    def spared(self, step: str, pattern: str) -> dict[str, str]:
        """Return the content of the files from the step's last run that are still valid, by entry key."""
        bound, redo, found = self.held.workflow.step(step), self.trail.redo.get(step), dict[str, str]()
        artifact = artifact_of(bound, pattern)
        if redo is None or redo.reads != self.trail.read_by(bound.depends_on):
            return found
        for file in redo.spared:
            if file.pattern == artifact.path and digest_of(data := self._found(file) or b"") == file.sha256:
                found[file.key] = data.decode()
        return found


async def contents_of(
    held: LoadedSession, step: BoundStep, changes: tuple[Change, ...], blobs: Blobs
) -> list[tuple[PublishedFile, bytes]]:
    """Return the files that a step publishes with these changes, with their content."""
    trial = held.line.state.copy()
    trial.provide(dict(blobs))
    for change in changes:
        trial.apply(change)
    access = StateAccess(held.workflow, trial, held.store, held.limits)
    found: list[tuple[PublishedFile, bytes]] = []
    for artifact in step.publishes:
        state = await values_of(access, artifact.fields)
        for path, (key, data) in artifact.files(state[artifact.place.path], state).items():
            found.append((PublishedFile(path, artifact.path, artifact.place.path, "", 0, key), data))
    twice = [path for path, count in Counter(file.path for file, _ in found).items() if count > 1]
    if twice:
        raise StepError(f"Step {step.name!r} publishes {twice[0]!r} twice. Give its artifacts different paths.")
    return found


async def values_of(access: StateAccess, paths: tuple[str, ...]) -> dict[str, Any]:
    """Return the values at these paths of a state. Large values are fetched."""
    if needed := access.state.needs(path for path in paths):
        access.state.provide(await access.store.blobs(needed))
    return {path: access.read(access.shape.place(path)) for path in paths}


class Past:
    """The recorded content of files, restored from the log. Records are cached for the next file."""

    def __init__(self, held: LoadedSession, folder: ArtifactFolder) -> None:
        self.held, self.folder = held, folder
        self._thread = Lane("artifacts")
        self._bodies: dict[int, Any] = {}
        self._fields: dict[tuple[int, str], Any] = {}

    async def content_of(self, file: PublishedFile, step: str) -> bytes:
        """Return the recorded content of a file. Raises `FolderRefused` if it cannot be restored."""
        data = await self._thread.run(self.folder.kept_edit, file.sha256)
        if data is None:
            with suppress(LookupError):  # the record of a damaged or forged log does not have the entry
                data = await self._made_again(file, artifact_of(self.held.workflow.step(step), file.pattern))
        if data is None or digest_of(data) != file.sha256:
            rebuilt = self.held.line.trail is not None and self.held.line.trail.rebuilt_from
            why = "the session was rebuilt from its folder" if rebuilt else "its codec now writes different bytes"
            raise FolderRefused(
                f"Artifact {file.path!r} cannot be restored: {why}. Accept the file as it is with"
                f" resume(edits='accept'), or run step {step!r} again with resume(rerun=[{step!r}]).",
                session_id=self.held.session_id, path=file.path,
            )  # fmt: skip
        return data

    async def _made_again(self, file: PublishedFile, artifact: BoundArtifact) -> bytes:
        if file.at not in self._bodies:
            (record,) = await self.held.store.records(self.held.row.key, file.at, file.at)
            self._bodies[file.at] = body_of(record)
        body = self._bodies[file.at]
        if isinstance(body, EditBody):
            change = next((each.change for each in body.adopted if each.file.path == file.path), None)
            raw = b"null" if change is None else await _bytes(self.held.store, change.value)
            return artifact.encoded(artifact.typed.decode(raw if not file.key else _entry(raw, file.key), file.path))
        whole = await self._field(file, artifact.place.path)
        return artifact.encoded(whole[file.key] if artifact.many else whole)

    async def _field(self, file: PublishedFile, field: str) -> Any:
        """Return the value of a field when the file was published, migrated to the present version."""
        if (file.at, field) not in self._fields:
            held = self.held
            line = await Timeline(held.store, held.row).line(file.at)
            try:
                await migrate_line(held.workflow, line, held.store, held.limits)
                access = StateAccess(held.workflow, line.state, held.store, held.limits)
                self._fields[file.at, field] = (await values_of(access, (field,)))[field]
            except StateRefused as error:
                raise FolderRefused(
                    f"Artifact {file.path!r} cannot be restored: {str(error).rstrip('.')}. Correct the migration, or"
                    " accept the file as it is with resume(edits='accept').",
                    session_id=held.session_id, path=file.path,
                ) from error  # fmt: skip
        return self._fields[file.at, field]


def artifact_of(step: BoundStep, pattern: str) -> BoundArtifact:
    """Return the artifact of a step by its declared path. Raises `StepError` if the step does not declare it."""
    for artifact in step.publishes:
        if artifact.path == pattern:
            return artifact
    known = ", ".join(repr(artifact.path) for artifact in step.publishes) or "none"
    raise StepError(f"Step {step.name!r} does not publish {pattern!r}. It publishes: {known}.")


@functools.lru_cache(maxsize=1024)
def code_of(fn: Any) -> str:
    """Return a fingerprint of a function's source code; empty if the source is not available."""
    try:
        return sha256(inspect.getsource(fn).encode()).hexdigest()[:16]
    except (OSError, TypeError):
        return ""


def is_gone(trail: Trail, folder: ArtifactFolder) -> bool:
    """Return whether all files of a session are absent, because its folder was moved or its disk is not mounted."""
    files = trail.files()
    if not files or folder.read(f"{OWN}/session.json") is not None:
        return False
    return all(folder.absent(path) for path in files)


def gone(session_id: str, folder: Path) -> FolderRefused:
    """Return the error for a folder that is missing."""
    return FolderRefused(
        f"The folder of session {session_id!r} is missing or empty: {folder}. Put it back, write its files again with"
        " restore(), or rebuild the session from the new location with"
        " engine.rebuild(folder, workflow, session_id=...).",
        session_id=session_id, path=str(folder),
    )  # fmt: skip


def disk_trouble(error: FolderRefused) -> Paused:
    """Return the pause of a session whose folder the disk refuses."""
    return Paused(
        "disk", f"{error.problem}. Finished results are kept. {error.way_out}, then resume: it publishes their files."
    )


def _recorded(file: PublishedFile, data: bytes) -> PublishedFile:
    return msgspec.structs.replace(file, sha256=digest_of(data), size=len(data))


def _has_lines_of(edit: bytes, new: bytes) -> bool:
    """Return whether all lines of an edited text that are not blank are in the new text, in the same order.

    >>> _has_lines_of(b"a\\nb\\n", b"a\\n\\nmore\\nb"), _has_lines_of(b"b\\na\\n", b"a\\nb\\n")
    (True, False)
    """
    lines = iter([line.strip() for line in new.splitlines()])
    return all(line.strip() in lines for line in edit.splitlines() if line.strip())


def _next_of(work: Work, body: CheckpointBody) -> str | None:
    """Return the step after a finished one; the step itself if a guard holds the session there."""
    held_by_disk = work.unstaged and not body.refused and body.failure is None  # until its files were published
    return work.step if body.held_by_guard and not held_by_disk else body.next


def _is_shown(path: str, fields: Sequence[str]) -> bool:
    """Return whether files that show these fields contain everything at a path."""
    return any(path == field or path.startswith(f"{field}.") for field in fields)


async def _bytes(store: Store, value: Inline | Blob) -> bytes:
    if isinstance(value, Inline):
        return bytes(value.data)
    key = bytes.fromhex(value.hash)
    return (await store.blobs([key]))[key]


def _entry(data: bytes, key: str) -> bytes:
    return bytes(msgspec.json.decode(data, type=dict[str, msgspec.Raw])[key])
