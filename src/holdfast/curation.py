"""The verbs about artifacts: how they stand, taking an edit in, putting the recorded content back.

A resume examines the folder first. What has to be decided is asked before anything is written; then edits become one
record, and the steps that have to run again become one rewind, which says which later checkpoints are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.artifacts import check_inside
from holdfast.desk import Desk, check_free, code_of, content_of, gone, is_gone
from holdfast.errors import (
    AlreadyRunning,
    FolderMisfit,
    FolderRefused,
    HoldLost,
    InputConflict,
    UndecidedEdits,
    VerbRefused,
    did_you_mean,
)
from holdfast.ids import SessionId, check_session_id
from holdfast.inspection import ArtifactState, Examination, Finding, artifact_named, examine, look
from holdfast.lending import Lending
from holdfast.model import Pause, SessionRow, Status
from holdfast.observe import tell
from holdfast.outcome import Stale
from holdfast.rebuilding import by_files, recorded
from holdfast.relogging import by_judgement, by_record
from holdfast.replay import CheckpointBody, EditBody, Line, RewindBody, body_of, fold
from holdfast.service import texts
from holdfast.shelf import Shelf, digest_of
from holdfast.state import Blobs, Change, stored
from holdfast.threads import in_thread
from holdfast.timeline import Before
from holdfast.traces import Adopted, FileLeft, Kept, Left, Trail, Work, overlap
from holdfast.travel import STAYS, Travel
from holdfast.workflow import Workflow

if TYPE_CHECKING:
    from holdfast.plan import Plan

UNDRIVEN = (Status.COMPLETED, Status.WAITING, Status.SLEEPING)
"""The statuses in which a resume need not drive a session."""

Edits = Literal["accept", "discard"] | None


class Curation(Travel):
    """The verbs over the artifacts of a session."""

    async def artifacts(self, session_id: str) -> list[ArtifactState]:
        """How each artifact stands: valid, edited, invalid, missing or stale. Nothing is changed."""
        self._check_open()
        row = await self._row(session_id)
        line = await self._timeline(row).line()
        if line.trail is None:
            return []
        return (await self._examined(self._workflow_of(row), row, line)).states()

    async def adopt(
        self, session_id: str, paths: Collection[str] = (), *, by: str | None = None, reason: str = ""
    ) -> list[Stale]:
        """Take edited artifacts in: those that are named, or all. What becomes stale by that, and what redoing costs.

        Nothing runs; a resume redoes it.
        """
        self._check_open()
        texts(by=by, reason=reason)
        while True:
            row, workflow, line = await self._artifact_session(session_id)
            found = await self._examined(workflow, row, line)
            chosen = _chosen(found, paths, ("edited",), row)
            if not chosen:
                return stale_of(line, found)
            try:
                line = await self._adopt(row, workflow, line, chosen, by, reason)
            except (HoldLost, AlreadyRunning):
                continue  # it moved since it was looked at
            return stale_of(line, await self._examined(workflow, await self._row(session_id), line))

    async def restore(self, session_id: str, paths: Collection[str] = ()) -> list[str]:
        """Put the recorded content of artifacts back: of those that are named, or of all that differ.

        What is replaced is kept in the folder's ``.holdfast/bin``. Returns the paths.
        """
        self._check_open()
        row, workflow, line = await self._artifact_session(session_id)
        found = await self._examined(workflow, row, line, written_anew=True)
        chosen = _chosen(found, paths, ("edited", "invalid", "missing"), row)
        return await self._restore(row, workflow, line, chosen)

    async def _artifact_session(self, session_id: str) -> tuple[SessionRow, Workflow[Any], Line]:
        row = await self._parked(session_id, "changed")
        line = await self._timeline(row).line()
        if line.trail is None:
            raise VerbRefused(
                f"session {row.session_id!r} has no artifacts: none of its steps leaves any",
                session_id=row.session_id, status=row.status.value,
            )  # fmt: skip
        return row, self._workflow_of(row), line

    async def _rebuilt(
        self, folder: str | Path, workflow: Workflow[Any], session_id: str | None, accept: bool, by: str | None,
        given: dict[str, Any],
    ) -> SessionId:  # fmt: skip
        """The session of a folder, made anew if this store does not have it."""
        path = Path(folder).absolute()
        found = await in_thread(recorded, path, workflow)
        if found is None:
            seen, judged = await in_thread(by_files, path, workflow, given)
            line = by_judgement(workflow, path, session_id, seen, judged, given, accept, self.limits)
        else:
            wanted = session_id or found.note.session_id
            if await self.store.get(check_session_id(wanted)) is not None:
                return await self._known_there(workflow, wanted, path)
            line = await in_thread(by_record, workflow, path, wanted, found, accept, self.limits)
        new = line.session(workflow, self.clock.now(), by)
        carried = fold(new.records)
        carried.state.provide(dict(new.blobs))
        await self._check_carried(workflow, carried, new.session_id, path)
        if await self.store.create(new) is None:
            raise InputConflict(
                f"session {new.session_id!r} exists already; give another session_id", session_id=new.session_id
            )
        self.driver.on_change()
        return SessionId(new.session_id)

    async def _known_there(self, workflow: Workflow[Any], session_id: str, folder: Path) -> SessionId:
        """A session that this store has already, if that is its folder."""
        line = await self._timeline(await self._row(session_id)).line()
        trail = line.trail
        if trail is None or Path(trail.folder).resolve() != folder.resolve():
            where = "no folder" if trail is None else f"its folder at {trail.folder}"
            raise FolderRefused(
                f"{folder} was left by session {session_id!r}, which is in this store, with {where}; put the folder"
                " back there, or give another session_id= to make another session of it",
                session_id=session_id, path=str(folder),
            )  # fmt: skip
        await self._check_carried(workflow, line, session_id, folder)
        return SessionId(session_id)

    async def _check_carried(self, workflow: Workflow[Any], line: Line, session_id: str, folder: Path) -> None:
        """Have a look whether the session could go on with the code at hand, before anything is stored."""
        wrong = await self._misfit_of(workflow, line)
        if wrong is not None:
            raise FolderMisfit(
                f"{folder} cannot be gone on with: {'; '.join(wrong[0])}; it was not touched, start in a new folder",
                session_id=session_id, path=str(folder),
            )  # fmt: skip

    # examining

    async def _examined(
        self, workflow: Workflow[Any], row: SessionRow, line: Line, rerun: Sequence[str] = (),
        written_anew: bool = False,
    ) -> Examination:  # fmt: skip
        """How everything stands; ``written_anew``: also if nothing of it is there. Else `FolderRefused`, then."""
        assert line.trail is not None
        shelf = Shelf(Path(line.trail.folder))
        if not written_anew and await in_thread(is_gone, line.trail, shelf):
            raise gone(row.session_id, shelf.path)
        found = await in_thread(look, workflow, line.trail, shelf)
        held = _Looked(self, workflow, row, line)
        found = [await _uncut(held, shelf, each) if each.cut else each for each in found]
        return examine(line.trail, found, dict.fromkeys(rerun, "asked for"), row.seq + 1)

    async def _settle_artifacts(
        self, row: SessionRow, edits: Edits, rerun: tuple[str, ...], by: str | None
    ) -> SessionRow:  # fmt: skip
        """Before a resume: have edits taken in or put back, and have what is stale by that redone. Else refuse."""
        workflow = self.workflows.get(row.workflow)
        if row.live or workflow is None or not workflow.leaves or row.status is Status.CANCELLED:
            return row
        if edits not in (None, "accept", "discard"):
            raise ValueError(f"edits is 'accept' or 'discard', not {edits!r}")
        while True:
            line = await self._timeline(row).line()
            if line.trail is None:
                return row
            found = await self._examined(workflow, row, line, _finished(workflow, line.trail, rerun))
            self._check_decided(row, line, found, edits)
            if line.version != workflow.version and (found.taken or found.undecided or found.redo):
                raise _not_yet_migrated(row, line, workflow, found)
            try:
                return await self._settle(row, workflow, line, found, edits, rerun, by)
            except (HoldLost, AlreadyRunning):
                row = await self._row(row.session_id)
                if row.live:
                    return row

    async def _settle(
        self, row: SessionRow, workflow: Workflow[Any], line: Line, found: Examination, edits: Edits,
        rerun: tuple[str, ...], by: str | None,
    ) -> SessionRow:  # fmt: skip
        adopted = [*found.taken, *(found.undecided if edits == "accept" else ())]
        if edits == "discard":
            await self._restore(row, workflow, line, [*found.taken, *found.undecided])
        elif adopted:
            await self._adopt(row, workflow, line, adopted, by, "")
            row = await self._row(row.session_id)
        line = await self._timeline(row).line()
        found = await self._examined(workflow, row, line, rerun)
        for step in _changed(workflow, line.trail) if line.trail is not None else ():
            if step not in found.redo:
                text = f"the code of {step} has changed since; what it left is kept: resume(rerun=[{step!r}]) redoes it"
                tell(logging.WARNING, text, row.session_id, step)
        if found.redo or (line.trail is not None and line.trail.pending) or _is_concerned(workflow, line):
            await self._redo(row, workflow, line, found, by)
            row = await self._row(row.session_id)
        elif row.status in UNDRIVEN and line.trail is not None:  # a crash may have left something undone in its folder
            await Desk(_Looked(self, workflow, row, line), line.trail).take_up()
        return row

    def _check_decided(self, row: SessionRow, line: Line, found: Examination, edits: Edits) -> None:
        open_ones = [each for each in found.undecided if edits is None or (edits, each.state) == ("accept", "invalid")]
        if not open_ones:
            return
        costs = stale_of(line, found)
        stale = "; accepting makes stale: " + ", ".join(map(str, costs)) if costs else ""
        broken = [each for each in open_ones if each.state == "invalid"]
        ways = "edits='discard' puts the recorded content back" + ("" if broken else ", edits='accept' takes it in")
        mend = f"; mend {broken[0].file.path}, or have {broken[0].work.step} run again with rerun=" if broken else ""
        raise UndecidedEdits(
            f"session {row.session_id!r}: {'; '.join(found.problems())}{stale}. {ways}{mend}",
            session_id=row.session_id, paths=[each.file.path for each in found.undecided],
            stale=[each.step for each in costs],
        )  # fmt: skip

    # acting

    async def _adopt(
        self,
        row: SessionRow,
        workflow: Workflow[Any],
        line: Line,
        chosen: Sequence[Finding],
        by: str | None,
        reason: str,
    ) -> Line:
        """One record that takes edits in; the bytes are kept, so that they can be restored as they are."""
        assert line.trail is not None
        shelf, blobs = Shelf(Path(line.trail.folder)), list[tuple[bytes, bytes]]()
        lending = Lending(workflow, line.state, self.store, self.limits)
        adopted = tuple(_adopted(workflow, lending, each, blobs) for each in chosen)
        for each in chosen:
            await in_thread(shelf.keep, each.data or b"")
        leave = await self._timeline(row).last_step() if line.step is None else None
        body = EditBody((), by, reason, row.ended or "", leave, adopted)
        line.state.provide(dict(blobs))
        line.edit(body)
        for change in line.trail.adopts(row.seq + 1, by, adopted):
            line.state.apply(change)
        names = ", ".join(each.file.path for each in chosen)
        summary = f"edited{f' by {by}' if by else ''}: {names}"
        await self._revise(
            row, line, "edit", body, summary, blobs=blobs, closed_by=by, questions=await self._asked_anew(row)
        )  # fmt: skip
        return line

    async def _restore(
        self, row: SessionRow, workflow: Workflow[Any], line: Line, chosen: Sequence[Finding]
    ) -> list[str]:  # fmt: skip
        assert line.trail is not None
        shelf, held = Shelf(Path(line.trail.folder)), _Looked(self, workflow, row, line)
        contents = [await content_of(held, shelf, each.file, each.work.step) for each in chosen]
        await in_thread(shelf.make)
        for each, data in zip(chosen, contents, strict=True):
            await in_thread(shelf.stage, each.file.path, data)
            known = line.trail.known.get(each.file.path, ())
            await in_thread(shelf.publish, each.file.path, each.file.sha256, known)
        return [each.file.path for each in chosen]

    async def _redo(
        self, row: SessionRow, workflow: Workflow[Any], now: Line, found: Examination, by: str | None
    ) -> None:  # fmt: skip
        """Go back to before the first step that has to run again; what is not stale behind it is kept.

        If there is none the open visit begins anew: what it remembers was made of something that was edited since.
        """
        assert now.trail is not None
        works = _in_order(now.trail)
        behind = _behind(now.trail)
        begins = [redo.since for redo in found.redo.values()] + [work.seq for work in works if work.step in behind]
        since = min(begins, default=row.seq)
        line, base, visit = await self._back(row, since if begins else f"{now.step}#{now.visit}", False)
        blobs = await self._adopted(workflow, line, row) if line.version != now.version else []
        trail = line.trail
        assert trail is not None
        later = [work for work in works if work.seq >= since and work.step not in found.redo]
        trail.kept = now.trail.kept | {work.step: await self._kept(row, now, work, blobs) for work in later}
        await self._carry_state(row, line, base, works)
        trail.redo, trail.known, trail.pending = now.trail.redo | found.redo, now.trail.known, ()
        pauses = [pause.id for pause in await self.store.pauses(row.key) if pause.kind not in STAYS]
        reason = "; ".join(f"{step}: {redo.why}" for step, redo in found.redo.items())[:1000]
        body = RewindBody(visit, False, by, reason or "an edit takes its place", row.ended or "")
        again = ", ".join(found.redo) or ("nothing" if begins else now.step)
        await self._revise(
            row, line, "rewind", body, f"to run again: {again}", parent=base,
            blobs=[*blobs, *line.state.seal()], close_pauses=tuple(pauses), closed_by=by, thaw=True, settles=True,
            cancel_children=f"{row.session_id} was rewound",
        )  # fmt: skip
        await self._cancel_children(row, by)

    async def _back(self, row: SessionRow, to: int | str, keep: bool) -> Before:
        """Artifacts of earlier steps that were edited stay so: what is redone is redone with the edits."""
        found = await super()._back(row, to, keep)
        trail = found.line.trail
        if trail is None:
            return found
        trail.kept, trail.redo = {}, {}
        now = (await self._timeline(row).line()).trail
        assert now is not None
        workflow = self.workflows.get(row.workflow)
        old = {new: was for was, new in workflow.renamed.items()} if workflow is not None else {}
        for work in _in_order(now):
            step = work.step if work.step in trail.works else old.get(work.step, work.step)
            if step in trail.works and trail.works[step].seq == work.seq:
                await self._carry_edits(row, found, step, work)
        return found

    async def _carry_edits(self, row: SessionRow, found: Before, step: str, work: Work) -> None:
        """Edits of what a step left, on a line that ends before them."""
        line, trail = found.line, found.line.trail
        assert trail is not None
        before = trail.works[step]
        for seq in work.edits:
            if seq <= found.base or seq in before.edits:
                continue
            (record,) = await self.store.records(row.key, seq, seq)
            body: EditBody = body_of(record)
            for each in body.adopted:
                if each.step == work.step and not each.same:
                    field = _field_of(trail.works[step], each.file.path)
                    trail.replaced = (*trail.replaced, *trail.readers(trail.works[step], field))
                    line.state.apply(msgspec.structs.replace(each.change, path=field))
                    trail.versions[field] = seq
            before = trail.works[step] = msgspec.structs.replace(
                trail.works[step], edits=(*before.edits, seq), by=work.by,
                writes={**before.writes, **{key: at for key, at in work.writes.items() if at == seq}},
                files=tuple(_edited(file, body, seq) for file in before.files),
            )  # fmt: skip

    async def _carry_state(self, row: SessionRow, line: Line, base: int, works: Sequence[Work]) -> None:
        """What was edited in the state stays so, and is seen by what runs again."""
        assert line.trail is not None
        for record in await self._edits(row, base):
            body: EditBody = body_of(record)
            earlier = [work.step for work in works if base < work.seq < record.seq and work.step in line.trail.kept]
            for change in body.changes:
                _place(line, line.trail.kept, earlier, change, record.seq)

    async def _edits(self, row: SessionRow, base: int) -> list[Any]:
        """The edits behind a record that still stand: those on the line, and those that an earlier redo carried on."""
        line = await self._timeline(row).line()
        assert line.trail is not None
        standing = line.trail.versions.items()
        records = await self.store.records(row.key, base + 1, row.seq)
        edits = [record for record in records if record.kind == "edit" and not record.redacted]
        return [
            record
            for record in edits
            if not any(first <= record.seq <= last for first, last in line.left)
            or any((change.path, record.seq) in standing for change in body_of(record).changes)
        ]

    async def _kept(self, row: SessionRow, now: Line, work: Work, blobs: Blobs) -> Kept:
        """A checkpoint as it will be written once more, with what was edited of it since."""
        left = Left(work.reads, work.files, work.code, work.usd, work.seq, work.writes, work.took, work.places)
        if work.version != now.version:
            return Kept(await self._as_now(now, work, blobs), left, work.skipped, work.edits, work.by)
        (record,) = await self.store.records(row.key, work.seq, work.seq)
        body: CheckpointBody = body_of(record)
        changes = list(body.changes)
        for seq in work.edits:
            if seq < work.seq:
                continue  # it was kept before, and has the edit in it
            (edit,) = await self.store.records(row.key, seq, seq)
            changes += [each.change for each in body_of(edit).adopted if each.step == work.step and not each.same]
        return Kept(tuple(changes), left, work.skipped, work.edits, work.by)

    async def _as_now(self, now: Line, work: Work, blobs: Blobs) -> tuple[Change, ...]:
        """What a step of an older version wrote, as migrations have carried it up since."""
        if needed := now.state.needs(work.writes):
            now.state.provide(await self.store.blobs(needed))
        values = {path: now.state.read(path) for path in work.writes}
        return tuple(Change(path, "set", stored(data, blobs)) for path, data in values.items() if data is not None)

    # planning

    async def _planned(
        self, workflow: Workflow[Any], row: SessionRow, line: Line, pauses: list[Pause], rerun: Sequence[str] = ()
    ) -> Plan:
        plan = await super()._planned(workflow, row, line, pauses)
        if line.trail is None:
            return plan
        from holdfast.plan import with_artifacts

        # While it runs its folder is in motion; the log knows what it keeps.
        again = _finished(workflow, line.trail, rerun)
        found = Examination((), {}) if row.live else await self._examined(workflow, row, line, again)
        writes = {step.name: tuple(step.places) for step in workflow.steps}
        edited = [
            each.file.field for each in (*found.taken, *found.undecided) if each.state == "edited" and not each.same
        ]
        anew = line.step if _is_concerned(workflow, line, edited) else None
        changed = _changed(workflow, line.trail)
        return with_artifacts(plan, line.trail, found, stale_of(line, found), changed, writes, anew)

    async def _check_free(self, session_id: str, folder: str | Path | None) -> None:
        """Before a session is stored: its folder is not another's."""
        if folder is None or await self.store.get(session_id) is not None:
            return
        path = Path(folder).absolute()
        check_free((await in_thread(Shelf(path).notes)).get("session.json"), path, session_id)

    async def _check_folder(self, session_id: str, folder: str | Path | None) -> None:
        """A session that is there already has its folder."""
        trail = (await self._timeline(await self._row(session_id)).line()).trail
        if folder is not None and trail is not None and trail.folder != str(Path(folder).absolute()):
            raise InputConflict(
                f"session {session_id!r} exists already, and its folder is {trail.folder}, not {folder};"
                " use another session_id, or leave folder= out",
                session_id=session_id,
            )

    def _new_trail(self, workflow: Workflow[Any], session_id: str, folder: str | Path | None) -> Trail | None:
        return trail_for(workflow, session_id, folder)


class _Looked:
    """A session that nobody holds, for what a `Desk` does without writing to its log."""

    def __init__(self, control: Curation, workflow: Workflow[Any], row: SessionRow, line: Line) -> None:
        self.session_id, self.row, self.line = row.session_id, row, line
        self.store, self.workflow, self.limits = control.store, workflow, control.limits


def _changed(workflow: Workflow[Any], trail: Trail) -> list[str]:
    """The finished steps whose code is another than the one that they ran with."""
    ran = [work for work in trail.works.values() if work.step in workflow.outline and work.code and not work.skipped]
    return [work.step for work in ran if work.code != code_of(workflow.step(work.step).fn)]


def _in_order(trail: Trail) -> list[Work]:
    return sorted(trail.works.values(), key=lambda work: work.seq)


def _field_of(work: Work, path: str) -> str:
    return next(file.field for file in work.files if file.path == path)


def _edited(file: FileLeft, body: EditBody, seq: int) -> FileLeft:
    """A file as an edit has left it, if it is one of those."""
    found = next((each.file for each in body.adopted if each.file.path == file.path), None)
    if found is None:
        return file
    return msgspec.structs.replace(file, sha256=found.sha256, size=found.size, at=seq)


def _is_concerned(workflow: Workflow[Any], line: Line, fields: Sequence[str] = ()) -> bool:
    """Whether the open visit remembers work on something that was edited since, or is: ``fields``."""
    if line.trail is None or not line.operations or line.step not in workflow.outline:
        return False
    since = {seq for work in line.trail.works.values() for seq in work.edits if seq > line.opened}
    edited = [*fields, *(key for key, version in line.trail.versions.items() if version in since)]
    return any(overlap(place, field) for place in workflow.step(line.step).depends_on for field in edited)


def _behind(trail: Trail) -> set[str]:
    """The steps that wrote to a field after one whose files were edited since: the edit takes its place before them."""
    found: set[str] = set()
    for step in trail.pending:
        edited = trail.works[step]
        fields = [key for key, version in edited.writes.items() if version in edited.edits]
        for work in trail.works.values():
            if work.seq > edited.seq and any(overlap(key, field) for key in work.writes for field in fields):
                found.add(work.step)
    return found


def _place(line: Line, kept: dict[str, Kept], earlier: Sequence[str], change: Change, seq: int) -> None:
    """An edit of the state on a line that ends before it: behind the last kept checkpoint that wrote there, if any.

    ``earlier`` are the kept steps that had ended when it was made. An edit makes none of them stale.
    """
    assert line.trail is not None
    if any(each.left.writes.get(change.path) == seq for each in kept.values()):
        return  # it comes with one that was kept before
    wrote = [step for step in earlier if any(overlap(change.path, key) for key in kept[step].left.writes)]
    if wrote:
        into = kept[wrote[-1]]
        left = msgspec.structs.replace(into.left, writes=into.left.writes | {change.path: seq})
        kept[wrote[-1]] = msgspec.structs.replace(into, changes=(*into.changes, change), left=left)
    else:
        line.state.apply(change)
        line.trail.versions[change.path] = seq
    for step in earlier[earlier.index(wrote[-1]) + 1 if wrote else 0 :]:
        left = kept[step].left
        if any(overlap(change.path, place) for place in left.places):
            left = msgspec.structs.replace(left, reads=left.reads | {change.path: seq})
            kept[step] = msgspec.structs.replace(kept[step], left=left)


def trail_for(workflow: Workflow[Any], session_id: str, folder: str | Path | None) -> Trail | None:
    """Where a new session leaves its artifacts; None if it leaves none. `FolderRefused` if nobody said where."""
    if not workflow.leaves:
        if folder is not None:
            raise FolderRefused(
                f"workflow {workflow.name!r} leaves no artifacts; take folder= out, or have a step leave some",
                session_id=session_id, path=str(folder),
            )  # fmt: skip
        return None
    if folder is None:
        raise FolderRefused(
            f"workflow {workflow.name!r} leaves artifacts: say where, with folder='output/...'",
            session_id=session_id, path="",
        )  # fmt: skip
    return Trail(str(Path(folder).absolute()))


def stale_of(line: Line, found: Examination) -> list[Stale]:
    """The finished steps that run again, and what they took when they last ran."""
    works = line.trail.works if line.trail is not None else {}
    return [Stale(step, redo.why, works[step].took / 1e6, works[step].usd / 1e6) for step, redo in found.redo.items()]


def _not_yet_migrated(row: SessionRow, line: Line, workflow: Workflow[Any], found: Examination) -> VerbRefused:
    paths = [each.file.path for each in found.findings if each.state != "valid"]
    return VerbRefused(
        f"session {row.session_id!r} was stored by version {line.version} of {row.workflow!r}, the code is version"
        f" {workflow.version}, and artifacts have changed: {', '.join(paths) or 'to run again'}; put them back with"
        " restore(), resume the session, which migrates it, pause it, and change them then",
        session_id=row.session_id, status=row.status.value,
    )  # fmt: skip


def _finished(workflow: Workflow[Any], trail: Trail, rerun: Sequence[str]) -> tuple[str, ...]:
    for step in rerun:
        workflow.step(step)
    return tuple(step for step in rerun if step in trail.works)


def _chosen(
    found: Examination, paths: Collection[str], states: Collection[str], row: SessionRow
) -> list[Finding]:  # fmt: skip
    """The findings that are meant. What is named must be one of them."""
    known = {each.file.path: each for each in found.findings}
    for path in paths:
        if path not in known:
            check_inside(path)
            raise FolderRefused(
                f"session {row.session_id!r} has no artifact {path!r}{did_you_mean(path, known)}",
                session_id=row.session_id, path=path,
            )  # fmt: skip
        wrong = known[path]
        if wrong.state not in states:
            raise VerbRefused(
                f"{path} is {wrong.state}: {wrong.why}; nothing was changed: name what is {' or '.join(states)}",
                session_id=row.session_id, status=row.status.value,
            )  # fmt: skip
    return [each for each in found.findings if each.state in states and (not paths or each.file.path in paths)]


def _adopted(workflow: Workflow[Any], lending: Lending, found: Finding, blobs: Blobs) -> Adopted:
    """An edit of a file as a change of the state."""
    data, file = found.data or b"", found.file
    artifact = artifact_named(workflow, found.work.step, file.pattern)
    assert artifact is not None, file.path
    place = artifact.place
    if artifact.many:
        entry = artifact.typed.encode(found.value, file.path, lending.limits)
        key = msgspec.json.encode(file.key)
        change = lending.stored_change(place.path, "merge", b"{%b:%b}" % (key, entry), blobs)
    else:
        change = lending.replaced(place, found.value, blobs)
    now = msgspec.structs.replace(file, field=place.path, sha256=digest_of(data), size=len(data))
    return Adopted(now, found.work.step, change, found.same)


async def _uncut(held: Any, shelf: Shelf, found: Finding) -> Finding:
    """A file that is the beginning of what was recorded, and no more, was cut off: nobody edits like that."""
    try:
        recorded = await content_of(held, shelf, found.file, found.work.step)
    except FolderRefused:
        return found.doubted()
    data = found.data or b""
    if not recorded.startswith(data) or not recorded[len(data) :].strip():
        return found
    line, column = data.count(b"\n") + 1, len(data) - data.rfind(b"\n")
    why = f"line {line}, column {column}: cut off after {len(data)} of {len(recorded)} bytes"
    return msgspec.structs.replace(found, state="invalid", why=why, line=line, column=column)
