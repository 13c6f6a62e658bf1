"""Runs stale steps again by one rewind: where it goes back to, which later steps are reused, which edits are carried.

No edit is lost: edits of artifacts and of the state get their place on the new line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pausepoint.artifacts.status import Examination
from pausepoint.definition.fields import overlap
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.base import Service
from pausepoint.engine.contents import check_past
from pausepoint.engine.time_travel import LEFT_OPEN, Target, TimeTravel, in_order, line_before
from pausepoint.log.replay import CheckpointBody, EditBody, Line, RewindBody, body_of
from pausepoint.log.state import Blobs, Change, stored
from pausepoint.log.trail import Adopted, Published, Reused, Trail, Work
from pausepoint.model.records import Record
from pausepoint.model.sessions import SessionRow


class Rerun:
    """Rewinds because of changed artifacts, and carries their edits over to the new line."""

    def __init__(self, service: Service, time_travel: TimeTravel) -> None:
        self.service = service
        self.time_travel = time_travel

    async def redo(
        self, row: SessionRow, workflow: Workflow[Any], now: Line, found: Examination, by: str | None
    ) -> None:  # fmt: skip
        """Rewind to before the first step that must run again. Later steps that are not stale are reused.

        If no finished step is stale, the open visit starts again, because its remembered operations used a value that
        was edited since.
        """
        assert now.trail is not None
        works = in_order(now.trail)
        behind = _later_writers(now.trail)
        begins = [redo.since for redo in found.redo.values()] + [work.seq for work in works if work.step in behind]
        since = min(begins, default=row.seq)
        place = Target(since if begins else f"{now.step}#{now.visit}")
        line, base, visit, _ = await line_before(self.service, row, place)
        blobs = await self.time_travel.upgraded(workflow, line, row) if line.version != now.version else []
        trail = line.trail
        assert trail is not None
        later = [work for work in works if work.seq >= since and work.step not in found.redo]
        trail.reused = now.trail.reused | {work.step: await self._reused(row, now, work, blobs) for work in later}
        await self._carry_later_edits(row, now, line, base, later)
        trail.redo, trail.known, trail.pending = now.trail.redo | found.redo, now.trail.known, ()
        await check_past(self.service, row, line)
        pauses = [pause.id for pause in await self.service.store.pauses(row.key) if pause.kind not in LEFT_OPEN]
        reason = "; ".join(f"{step}: {redo.why}" for step, redo in found.redo.items())[:1000]
        body = RewindBody(visit, False, by, reason or "an edit takes effect", row.ended or "")
        again = ", ".join(found.redo) or ("nothing" if begins else now.step)
        await self.time_travel.revise(
            row, line, "rewind", body, f"to run again: {again}", base=base,
            blobs=[*blobs, *line.state.seal()], close_pauses=tuple(pauses), closed_by=by, thaw=True, settles=True,
            cancel_children=f"{row.session_id} was rewound",
        )  # fmt: skip

    async def _carry_later_edits(
        self, row: SessionRow, now: Line, line: Line, base: int, reused: Sequence[Work]
    ) -> None:  # fmt: skip
        """Carry edits over to the new line, where steps that run again see them. The later of two edits counts."""
        assert line.trail is not None
        assert now.trail is not None
        older = {work.step for work in now.trail.works.values() if work.version != now.version}  # migrated since
        for record in await self.service.store.records(row.key, base + 1, row.seq):
            if record.kind != "edit" or record.redacted:
                continue
            body: EditBody = body_of(record)
            earlier = [work.step for work in reused if work.seq < record.seq]
            for change in body.changes if _in_effect(now, record, body) else ():
                _place(line, line.trail.reused, earlier, change, record.seq)
            for each in body.adopted:
                if not each.same and each.step not in older:
                    _place_again(line, earlier, each, record.seq)

    async def _reused(self, row: SessionRow, now: Line, work: Work, blobs: Blobs) -> Reused:
        """Return a checkpoint as it will be written again, without the later edits of its artifacts."""
        published = Published(
            work.reads, work.files, work.code, work.usd, work.seq, work.writes, work.took, work.places, work.unstaged
        )
        if work.version != now.version:
            return Reused(await self._as_now(now, work, blobs), published, work.skipped, work.edit_seqs, work.by)
        (record,) = await self.service.store.records(row.key, work.seq, work.seq)
        body: CheckpointBody = body_of(record)
        return Reused(body.changes, published, work.skipped, work.edit_seqs, work.by)

    async def _as_now(self, now: Line, work: Work, blobs: Blobs) -> tuple[Change, ...]:
        """Return what a step of an older version wrote, as migrated to the present version."""
        if needed := now.state.needs(work.writes):
            now.state.provide(await self.service.store.blobs(needed))
        values = {path: now.state.read(path) for path in work.writes}
        return tuple(Change(path, "set", stored(data, blobs)) for path, data in values.items() if data is not None)


def is_concerned(workflow: Workflow[Any], line: Line, fields: Sequence[str] = ()) -> bool:
    """Return whether the open visit used a value that was edited since, or one of ``fields``, which are edited now."""
    if line.trail is None or not line.operations or line.step not in workflow.outline:
        return False
    since = {seq for work in line.trail.works.values() for seq in work.edit_seqs if seq > line.opened}
    edited = [*fields, *(key for key, version in line.trail.versions.items() if version in since)]
    return any(overlap(place, field) for place in workflow.step(line.step).depends_on for field in edited)


def _later_writers(trail: Trail) -> set[str]:
    """Return the steps that wrote a field after a step whose files were edited. The edit must go before them."""
    found: set[str] = set()
    for step in trail.pending:
        edited = trail.works[step]
        fields = [key for key, version in edited.writes.items() if version in edited.edit_seqs]
        for work in trail.works.values():
            if work.seq > edited.seq and any(overlap(key, field) for key in work.writes for field in fields):
                found.add(work.step)
    return found


def _in_effect(now: Line, record: Record, body: EditBody) -> bool:
    """Return whether edits of the state are on the present line, or were carried over to it by an earlier rerun."""
    assert now.trail is not None
    if not any(first <= record.seq <= last for first, last in now.left_behind):
        return True
    return any(now.trail.edited.get(change.path) == record.seq for change in body.changes)


def _place(line: Line, reused: dict[str, Reused], earlier: Sequence[str], change: Change, seq: int) -> None:
    """Place an edit of the state on a line that ends before it: after the last reused checkpoint that wrote there.

    ``earlier`` are the reused steps that had ended when the edit was made. The edit makes none of them stale.
    """
    assert line.trail is not None
    line.trail.edited[change.path] = seq
    if any(each.published.writes.get(change.path) == seq for each in reused.values()):
        return  # it is part of a checkpoint that was reused before
    wrote = [step for step in earlier if any(overlap(change.path, key) for key in reused[step].published.writes)]
    if wrote:
        into = reused[wrote[-1]]
        published = msgspec.structs.replace(into.published, writes=into.published.writes | {change.path: seq})
        reused[wrote[-1]] = msgspec.structs.replace(into, changes=(*into.changes, change), published=published)
    else:
        line.state.apply(change)
        line.trail.versions[change.path] = seq
    for step in earlier[earlier.index(wrote[-1]) + 1 if wrote else 0 :]:
        published = reused[step].published
        if any(overlap(change.path, place) for place in published.places):
            published = msgspec.structs.replace(published, reads=published.reads | {change.path: seq})
            reused[step] = msgspec.structs.replace(reused[step], published=published)


def _place_again(line: Line, earlier: Sequence[str], edit: Adopted, seq: int) -> None:
    """Place an edit of a file, after the edits of the state that came before it.

    ``earlier`` are the reused steps that had ended when the edit was made.
    """
    assert line.trail is not None
    reused, work = line.trail.reused.get(edit.step), line.trail.works.get(edit.step)
    if reused is not None and edit.step in earlier and seq in reused.edit_seqs:
        published = msgspec.structs.replace(reused.published, writes=reused.published.writes | {edit.file.field: seq})
        line.trail.reused[edit.step] = msgspec.structs.replace(
            reused, changes=(*reused.changes, edit.change), published=published
        )
    elif work is not None and seq in work.edit_seqs:
        line.state.apply(edit.change)
        line.trail.versions[edit.file.field] = seq
