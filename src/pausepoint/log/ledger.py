"""Writes the records of one held session: seals each record, folds it into the line, commits it under the fence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Unpack
from uuid import uuid4

import msgspec

from pausepoint.clock import Clock
from pausepoint.codec.values import encode
from pausepoint.log.replay import Body, DefinitionBody, Effect, EventBody, Line, fold, operations_in, to_payload
from pausepoint.log.state import Blobs
from pausepoint.log.telemetry import Watch
from pausepoint.model.chunks import Part
from pausepoint.model.commits import ChildReport, Commit, Facts, Flags, Report
from pausepoint.model.events import COMMITTED
from pausepoint.model.pauses import Paused
from pausepoint.model.records import Record, RecordKind, seal
from pausepoint.model.sessions import Failure, Pause, PauseKind, SessionRow
from pausepoint.stores.base import Store

KEY_FRAME_EVERY = 256
_NOTHING = msgspec.Raw(b"{}")


class Ledger:
    """The end of a session's log, as its holder sees it. Submitted records take effect in order, awaited or not."""

    __slots__ = (
        "broken", "clock", "digest", "frame_weight", "key_frame", "line", "on_commit", "parked", "parking",
        "pending", "progress", "row", "seq", "store", "thaws", "undecided", "updated_at", "version", "watch",
    )  # fmt: skip

    def __init__(
        self,
        store: Store,
        row: SessionRow,
        clock: Clock,
        on_commit: Callable[[Flags], None] = lambda flags: None,
    ) -> None:
        self.store = store
        self.row = row
        self.clock = clock
        self.on_commit = on_commit
        self.watch = Watch(row.session_id, row.workflow)
        self.line = Line()
        self.seq, self.digest, self.updated_at = row.seq, row.digest, row.updated_at
        self.key_frame = row.key_frame
        self.version = row.version
        self.frame_weight = 0
        self.progress: tuple[int, int] | None = None
        self.pending: dict[str, Effect] = {}
        self.parked = False
        self.parking = False  # a commit is parking the session; the store may know it first
        self.thaws = False  # timers kept running, so their frozen time must not be added
        self.broken: BaseException | None = None
        self.undecided: asyncio.Event | None = None  # a commit with a condition is on its way

    def load(self, past: Sequence[Record] | Line) -> None:
        """Fold the log, starting at its last key frame, or take the line that it folds to."""
        self.line = past if isinstance(past, Line) else fold(past)

    def claimed_again(self, row: SessionRow) -> None:
        """Continue after the last record, although the session was parked: it was claimed again without a change."""
        self.row = row
        self.parked = self.parking = False
        self.updated_at = max(self.updated_at, row.updated_at)

    def breaks(self, error: BaseException) -> None:
        """Refuse all further writes with this error. Only the first error counts."""
        if self.broken is None:
            self.broken = error
            self.watch.broke(error)

    async def note(
        self, type: str, summary: str, data: Mapping[str, Any] | None = None, *,
        agent: str = "", shift: int = 0, wake: bool = False, attempts: int | None = None, noticed: str = "",
        forgets: tuple[str, ...] = (), part: Part | None = None, idle: int = 0, **facts: Unpack[Facts],
    ) -> bool:  # fmt: skip
        """Commit an event. Return False, with nothing written, if an ``only_if_…`` condition no longer holds."""
        raw = msgspec.Raw(encode(dict(data), f"event {type}")) if data else _NOTHING
        body = EventBody(
            type, summary, agent or self.line.step or "", raw, shift=shift, wake=wake, attempts=attempts,
            effects=self.take_effects(), noticed=noticed, forgets=forgets, part=part, idle=idle,
        )  # fmt: skip
        return await self.commit("event", self.line.step or "", self.line.visit, body, **facts)

    async def park(self, paused: Paused, known: Iterable[Pause] = (), forgets: tuple[str, ...] = ()) -> None:
        """Park the session with a pause. An open pause of the same kind and reason is not opened again."""
        alike = [pause for pause in known if pause.kind == paused.kind]
        same = any(pause.reason == paused.reason for pause in alike)
        await self.note(
            "session.paused", paused.reason, {"kind": paused.kind}, release=True, forgets=forgets,
            open_pauses=() if same else (self.new_pause(paused.kind, paused.reason),),
            close_pauses=tuple(pause.id for pause in alike if pause.reason != paused.reason),
        )  # fmt: skip

    def effect(self, id: str, type: str, summary: str, data: Mapping[str, Any], agent: str) -> None:
        """Commit an event with the next record, unless it is already committed."""
        raw = msgspec.Raw(encode(dict(data), f"event {type}")) if data else _NOTHING
        self.pend(Effect(id, self.clock.now(), type, agent, summary, raw))

    def pend(self, effect: Effect) -> None:
        """Commit an effect with the next record, unless this visit already has it."""
        if effect.id not in self.line.effects and effect.id not in self.pending:
            self.pending[effect.id] = effect

    def take_effects(self) -> tuple[Effect, ...]:
        """Remove and return what the step emitted and spent since the last record, for the record being made."""
        if not self.pending:
            return ()
        effects = tuple(self.pending.values())
        self.pending.clear()
        return effects

    def new_pause(self, kind: PauseKind, reason: str) -> Pause:
        """Return a new pause that the engine opens itself."""
        return Pause(str(uuid4()), kind, reason, None, self.clock.now(), self.line.step or "")

    async def fail(self, failure: Failure) -> None:
        """End the session as ``failed``. A resume starts at the same step."""
        data = {"type": failure.type, "attempts": failure.attempts}
        await self.note(
            "session.failed", failure.message, data, ended="failed", failure=failure, release=True,
            attempts=0,  # a resume starts to count again
        )  # fmt: skip

    async def commit(
        self, kind: RecordKind, step: str, visit: int, body: Body, blobs: Blobs | None = None,
        applied: bool = False, **facts: Unpack[Facts],
    ) -> bool:  # fmt: skip
        """Seal a record, fold it in and commit it, followed by a key frame if one is due.

        Return False, with nothing written, if ``only_if_paused`` is set and the pause was withdrawn, or if
        ``only_if_waiting`` is set and the question was answered.
        """
        while self.undecided is not None:  # its record may be taken back, and this one must not follow it then
            await self.undecided.wait()
        if self.broken is not None:
            raise self.broken
        base, digest, line, row = self.seq, self.digest, self.line, self.row
        record = self._seal(kind, step, visit, body)
        records = [record]
        line.fold(record, body, applied)
        if line.records_since_key >= KEY_FRAME_EVERY and kind == "checkpoint" and self._key_frame_due():
            blobs = [*(blobs or ()), *self._add_key_frame(records)]
        if record.at > self.updated_at:
            self.updated_at = record.at
        usd, tokens = _spending(body) if getattr(body, "effects", ()) else (0, 0)
        # A resume or a retry is not progress: a step that kills its process each time must still be detected.
        still = kind != "checkpoint" and (
            isinstance(body, DefinitionBody)
            or (isinstance(body, EventBody) and not body.moved and body.type != COMMITTED)
        )
        if line.version != self.version:
            self.version = facts["version"] = line.version
        if thaws := self.thaws:
            facts["thaw"], self.thaws = True, False
        if row.parent is not None:
            facts["parent"], facts["report"] = row.parent, report_of(row.session_id, facts)
        commit = Commit(
            row.key, row.fence, base, tuple(records), self.updated_at, self.key_frame,
            line.step, line.visit, line.held_by_guard,
            keep_crashes=still, spend_usd=usd, spend_tokens=tokens, progress=self.progress,
            blobs=tuple(blobs) if blobs else (), plain=not (facts or blobs),
            spend_operations=0 if kind == "checkpoint" else operations_in(body), **facts,
        )  # fmt: skip
        self.parking = commit.release
        decided = None
        if facts and (commit.only_if_paused or commit.only_if_waiting):
            decided = self.undecided = asyncio.Event()
        try:
            written = self.store.commit(commit)
            flags = await (written if self.watch.meters is None else self.watch.timed(written, kind))
        except Exception as error:
            # After any error, it is unknown whether this end of the log matches the store.
            self.breaks(error)
            raise
        finally:
            if decided is not None:
                self.undecided = None
                decided.set()
        if flags is None:
            self.parking, self.seq, self.digest = False, base, digest
            self.thaws = self.thaws or thaws
            self._give_back(body)
            return False
        if facts or kind in ("event", "wait") or self.watch.meters is not None:
            self.watch.committed(commit, body)
        self.parked = commit.release
        self.on_commit(flags)
        return True

    def _add_key_frame(self, records: list[Record]) -> Blobs:
        blobs = self.line.state.seal()
        records.append(self._seal("key", self.line.step or "", self.line.visit, self.line.key_body()))
        self.key_frame = self.line.opened = self.line.base = self.seq  # as a reader that loads this frame sees it
        self.line.records_since_key = self.line.bytes_since_key = 0
        return blobs

    def _seal(self, kind: RecordKind, step: str, visit: int, body: Body) -> Record:
        record = seal(self.digest, self.seq + 1, self.seq, kind, step, visit, self.clock.now(), to_payload(body))
        self.seq, self.digest = record.seq, record.digest
        return record

    def _give_back(self, body: Body) -> None:
        """After a commit that wrote nothing, keep what the step emitted and spent for the next record."""
        effects: tuple[Effect, ...] = getattr(body, "effects", ())
        self.pending = {effect.id: effect for effect in effects} | self.pending
        self.line.effects.difference_update(effect.id for effect in effects)
        usd, _ = _spending(body)
        self.line.usd -= usd

    def _key_frame_due(self) -> bool:
        """Return whether the records since the last key frame are at least as large as a new key frame."""
        line = self.line
        if line.bytes_since_key < self.frame_weight:
            return False
        self.frame_weight = line.state.weight()
        return line.bytes_since_key >= self.frame_weight


def report_of(child: str, facts: Facts) -> Report | None:
    """Return what a child reports to its parent: how it ended, or why it is paused; None if neither."""
    ended, pauses, failure = facts.get("ended"), facts.get("open_pauses"), facts.get("failure")
    if ended is None and not pauses:
        return None
    status = ended or "paused"
    reason = failure.message if failure is not None else pauses[0].reason if pauses else ""
    return Report(status, msgspec.json.encode(ChildReport(child, status, reason)), ended is not None)


def _spending(body: Body) -> tuple[int, int]:
    effects = getattr(body, "effects", ())
    return sum(effect.usd for effect in effects), sum(effect.tokens for effect in effects)
