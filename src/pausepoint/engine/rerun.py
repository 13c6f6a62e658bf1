"""Steps that have to run again, as one rewind: where it goes back to, what behind that is kept, what is carried on.

Nothing that somebody edited is lost by it: edits of artifacts and of the state get their place on the new line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pausepoint.artifacts.status import Examination
from pausepoint.definition.fields import overlap
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.time_travel import STAYS, Travel
from pausepoint.log.replay import CheckpointBody, EditBody, Line, RewindBody, body_of
from pausepoint.log.state import Blobs, Change, stored
from pausepoint.log.timeline import Before
from pausepoint.log.trail import Adopted, FileLeft, Kept, Left, Trail, Work
from pausepoint.model.records import Record
from pausepoint.model.sessions import SessionRow


class Redoing(Travel):
    """Going back because of artifacts; a `Travel` that carries their edits on."""

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
        blobs = await self._upgraded(workflow, line, row) if line.version != now.version else []
        trail = line.trail
        assert trail is not None
        later = [work for work in works if work.seq >= since and work.step not in found.redo]
        trail.kept = now.trail.kept | {work.step: await self._kept(row, now, work, blobs) for work in later}
        await self._carry_on(row, now, line, base, later)
        trail.redo, trail.known, trail.pending = now.trail.redo | found.redo, now.trail.known, ()
        await self._check_past(row, line)
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

    async def _back(self, row: SessionRow, to: int | str, reuse: bool) -> Before:
        """Artifacts of earlier steps that were edited stay so: what is redone is redone with the edits."""
        found = await super()._back(row, to, reuse)
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
        fields = {file.path: file.field for file in before.files}
        for seq in work.edits:
            if seq <= found.base or seq in before.edits:
                continue
            (record,) = await self.store.records(row.key, seq, seq)
            body: EditBody = body_of(record)
            for each in body.adopted:
                if each.step == work.step and not each.same:
                    field = fields[each.file.path]
                    trail.replaced = (*trail.replaced, *trail.readers(trail.works[step], field))
                    line.state.apply(msgspec.structs.replace(each.change, path=field))
                    trail.versions[field] = seq
            before = trail.works[step] = msgspec.structs.replace(
                trail.works[step], edits=(*before.edits, seq), by=work.by,
                writes={**before.writes, **{key: at for key, at in work.writes.items() if at == seq}},
                files=_edited(before.files, body, seq),
            )  # fmt: skip

    async def _carry_on(self, row: SessionRow, now: Line, line: Line, base: int, kept: Sequence[Work]) -> None:
        """What was edited stays so, and is seen by what runs again. Of two edits of one thing the later one counts."""
        assert line.trail is not None
        assert now.trail is not None
        older = {work.step for work in now.trail.works.values() if work.version != now.version}  # carried up by now
        for record in await self.store.records(row.key, base + 1, row.seq):
            if record.kind != "edit" or record.redacted:
                continue
            body: EditBody = body_of(record)
            earlier = [work.step for work in kept if work.seq < record.seq]
            for change in body.changes if _stands(now, record, body) else ():
                _place(line, line.trail.kept, earlier, change, record.seq)
            for each in body.adopted:
                if not each.same and each.step not in older:
                    _place_again(line, earlier, each, record.seq)

    async def _kept(self, row: SessionRow, now: Line, work: Work, blobs: Blobs) -> Kept:
        """A checkpoint as it will be written once more; what was edited of it since is yet to come."""
        left = Left(work.reads, work.files, work.code, work.usd, work.seq, work.writes, work.took, work.places)
        if work.version != now.version:
            return Kept(await self._as_now(now, work, blobs), left, work.skipped, work.edits, work.by)
        (record,) = await self.store.records(row.key, work.seq, work.seq)
        body: CheckpointBody = body_of(record)
        return Kept(body.changes, left, work.skipped, work.edits, work.by)

    async def _as_now(self, now: Line, work: Work, blobs: Blobs) -> tuple[Change, ...]:
        """What a step of an older version wrote, as migrations have carried it up since."""
        if needed := now.state.needs(work.writes):
            now.state.provide(await self.store.blobs(needed))
        values = {path: now.state.read(path) for path in work.writes}
        return tuple(Change(path, "set", stored(data, blobs)) for path, data in values.items() if data is not None)


def _in_order(trail: Trail) -> list[Work]:
    return sorted(trail.works.values(), key=lambda work: work.seq)


def _edited(files: Sequence[FileLeft], body: EditBody, seq: int) -> tuple[FileLeft, ...]:
    """Files as an edit has left them, those that it is about."""
    new = {each.file.path: each.file for each in body.adopted}
    return tuple(
        msgspec.structs.replace(file, sha256=new[file.path].sha256, size=new[file.path].size, at=seq)
        if file.path in new
        else file
        for file in files
    )


def is_concerned(workflow: Workflow[Any], line: Line, fields: Sequence[str] = ()) -> bool:
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


def _stands(now: Line, record: Record, body: EditBody) -> bool:
    """Whether edits of the state are on the present line, or an earlier redo has carried them on to it."""
    assert now.trail is not None
    if not any(first <= record.seq <= last for first, last in now.left):
        return True
    return any(now.trail.edited.get(change.path) == record.seq for change in body.changes)


def _place(line: Line, kept: dict[str, Kept], earlier: Sequence[str], change: Change, seq: int) -> None:
    """An edit of the state on a line that ends before it: behind the last kept checkpoint that wrote there, if any.

    ``earlier`` are the kept steps that had ended when it was made. An edit makes none of them stale.
    """
    assert line.trail is not None
    line.trail.edited[change.path] = seq
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


def _place_again(line: Line, earlier: Sequence[str], edit: Adopted, seq: int) -> None:
    """An edit of a file, once what was edited in the state before it has its place.

    ``earlier`` are the kept steps that had ended when it was made.
    """
    assert line.trail is not None
    kept, work = line.trail.kept.get(edit.step), line.trail.works.get(edit.step)
    if kept is not None and edit.step in earlier and seq in kept.edits:
        left = msgspec.structs.replace(kept.left, writes=kept.left.writes | {edit.file.field: seq})
        line.trail.kept[edit.step] = msgspec.structs.replace(kept, changes=(*kept.changes, edit.change), left=left)
    elif work is not None and seq in work.edits:
        line.state.apply(edit.change)
        line.trail.versions[edit.file.field] = seq
