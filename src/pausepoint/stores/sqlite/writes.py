"""The body of each transaction that writes, as methods that take a connection.

Each method checks first and writes afterwards. A method that raises has written nothing, so others can share its
transaction. A method can run again after a rollback.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import apsw
import msgspec
from msgspec.structs import astuple, replace

from pausepoint.clock import Clock, to_datetime
from pausepoint.errors import (
    AlreadyRunning,
    DamagedRecord,
    FileRefused,
    HoldLost,
    SessionEnded,
    UnknownSession,
    VerbRefused,
)
from pausepoint.model.budgets import Allowance
from pausepoint.model.endings import can_end, cancelled, is_over
from pausepoint.model.files import FileFacts, file_facts
from pausepoint.model.questions import about
from pausepoint.model.records import SignalRecord, first_digest, seal_signal
from pausepoint.model.sessions import Commit, Filter, Flags, NewSession, Pause, SessionRow, needs_driving
from pausepoint.stores.base import Found
from pausepoint.stores.sqlite import checksums as sums
from pausepoint.stores.sqlite import questions as asking
from pausepoint.stores.sqlite import reads, standing
from pausepoint.stores.sqlite import redaction as redacting
from pausepoint.stores.sqlite.liveness import Hold
from pausepoint.stores.sqlite.sql import QUERIES

_PLACE, _MOVE, _APPEND = QUERIES["place"], QUERIES["move"], QUERIES["append"]
_ENDS = f"({QUERIES['log_end']}), ({QUERIES['everything']})"
_END = f"SELECT {_ENDS}"
_PLACE_AND_END = _PLACE.replace(" FROM sessions", f", {_ENDS} FROM sessions")
_json = msgspec.json.encode

Outcome = Flags | HoldLost | None


class Writes:
    """The writing methods of one engine. ``number`` is the engine's number, or 0 until it is registered."""

    def __init__(self, hold: Hold, clock: Clock) -> None:
        self.hold = hold
        self.present = reads.Present(hold.alive, clock.now)
        self.now = clock.now
        self.number = 0

    # driving

    def move(self, cursor: apsw.Cursor, commit: Commit) -> Outcome:
        """Apply one commit. Does the same as `move_all`, but faster, for an engine that drives one session."""
        place: Any = cursor.execute(_PLACE_AND_END, (commit.key,)).fetchone()
        if place is not None and place[10] is not None:
            place = _under_everything(cursor.connection, place, place[10])
        if not self._fits(commit, place) or _too_late(cursor.connection, commit):
            return self._refusal(cursor.connection, commit, place)
        tail, head = place[4], place[9] + len(commit.records)
        cursor.execute(_MOVE, _moving(commit, tail, head))
        if len(commit.records) == 1:
            cursor.execute(_APPEND, (head, tail, commit.key, *astuple(commit.records[0])))
        else:
            cursor.executemany(_APPEND, _lines(commit, tail, head))
        if not commit.plain:
            self._attach(cursor.connection, commit, head)
        return reads.flags_of(*place[5:9])

    def move_all(self, connection: apsw.Connection, commits: Sequence[Commit]) -> list[Outcome]:
        """Apply commits in order, with one statement per table, and return one outcome for each."""
        places: list[Any] = connection.executemany(_PLACE, [(commit.key,) for commit in commits]).fetchall()
        end, everything = connection.execute(_END).get
        if everything is not None:
            places = [_under_everything(connection, place, everything) for place in places]
        known = {place[0]: place for place in places}
        outcomes: list[Outcome] = []
        attaching: list[tuple[Commit, int]] = []
        moves: list[tuple[object, ...]] = []
        lines: list[tuple[object, ...]] = []
        for commit in commits:
            place = known.get(commit.key)
            if place is None or not self._fits(commit, place) or _too_late(connection, commit):
                outcomes.append(self._refusal(connection, commit, place))
                continue
            tail, end = place[4], end + len(commit.records)
            known[commit.key] = (commit.key, commit.records[-1].seq, *place[2:4], end, *place[5:])
            outcomes.append(reads.flags_of(*place[5:9]))
            moves.append(_moving(commit, tail, end))
            lines += _lines(commit, tail, end)
            if not commit.plain:
                attaching.append((commit, end))
        connection.executemany(_MOVE, moves)
        connection.executemany(_APPEND, lines)
        for commit, head in attaching:
            self._attach(connection, commit, head)
        return outcomes

    def _fits(self, commit: Commit, place: Any) -> bool:
        """Return whether the session is where the driver assumes, is held by it, and is paused if that is required."""
        return (
            place is not None
            and place[1] == commit.base_seq
            and place[2] == commit.fence
            and place[3] == self.number
            and (not commit.only_if_paused or place[5] == 1)
        )

    def _refusal(self, connection: apsw.Connection, commit: Commit, place: Any) -> HoldLost | None:
        """Return why a commit does not fit. None means that the pause or question it requires is no longer open."""
        if place is None:
            return HoldLost(
                f"No session in this store has the key {commit.key}. It may have been removed. Nothing was written."
                " List the sessions with engine.sessions().",
                session_id="",
            )
        _, seq, fence, holder, *_ = place
        if (seq, fence, holder) == (commit.base_seq, commit.fence, self.number):
            return None
        session_id = connection.execute(QUERIES["session_id"], (commit.key,)).get
        return HoldLost(
            f"Session {session_id!r} is no longer held by this engine. The session is at record {seq} with fence"
            f" {fence}, this engine at record {commit.base_seq} with fence {commit.fence}. Nothing was written."
            f" The session is now held by {self.describe(connection, holder)}. To drive it here again, call"
            f" engine.resume({session_id!r}, steal=True).",
            session_id=session_id,
        )

    def _attach(self, connection: apsw.Connection, commit: Commit, head: int) -> None:
        """Write what only some commits contain. ``head`` is the log id of this commit's last record."""
        if commit.blobs:
            self._keep(connection, commit.key, commit.blobs)
        if commit.open_pauses:
            connection.executemany(QUERIES["open_pause"], [_opening(commit.key, p) for p in commit.open_pauses])
        closing = commit.updated_at, commit.closed_by
        for pause_id in commit.close_pauses:
            bindings = (*closing, sums.closed(*closing), commit.key, pause_id)
            connection.execute(QUERIES["close_pause"], bindings)
        if commit.ended in ("completed", "cancelled"):
            connection.execute(QUERIES["close_all_pauses"], (*closing, sums.closed(*closing), commit.key))
            connection.execute(QUERIES["withdraw_request"], (commit.key,))
        if commit.consume:
            connection.executemany(QUERIES["consume"], [(commit.key, n) for n in commit.consume])
            connection.execute(QUERIES["look_for_mail"], (commit.key,))
        if commit.asks or commit.questions:
            asking.attach(connection, commit, head)
        if commit.settles or commit.ended in ("completed", "cancelled"):
            asking.settle(connection, commit)
        if commit.thaw:
            connection.execute(QUERIES["thaw"], (commit.key,))
        if commit.parent is not None:
            self._report_to_parent(connection, commit, commit.parent)
        if commit.only_if_paused and commit.release:
            self._note_standing(connection, commit.key, commit.step, after=commit.base_seq)
        if commit.release:
            if commit.kept:
                connection.execute(QUERIES["keep"], (commit.key,))
            query = QUERIES["release" if commit.waiting is None else "release_waiting"]
            connection.execute(query, (commit.waiting, commit.wakes_at, commit.key))
            if commit.ended is None:  # what has ended is never ready, as what was held
                connection.execute(QUERIES["reckon"], (commit.key,))
        if commit.version is not None:
            self._seal_given(connection, commit.key)
        if commit.redact or commit.redact_signals or commit.unname:
            redacting.blank(connection, commit)

    def _report_to_parent(self, connection: apsw.Connection, commit: Commit, parent: int) -> None:
        """Add a child's spending to all its ancestors, and deliver its report to the parent."""
        spent = commit.spend_usd, commit.spend_tokens, commit.spend_operations
        if any(spent):
            connection.execute(QUERIES["charge_ancestors"], (commit.key, *spent))
        report = commit.report
        if report is None or is_over(reads.get_by_key(connection, parent, self.present)):
            return
        n = self._signal(connection, parent, "child", None, commit.updated_at, report.payload)
        if report.ends:
            self._deliver(connection, parent, n, "child", report.payload)

    def _deliver(self, connection: apsw.Connection, key: int, n: int, kind: str, payload: bytes) -> None:
        connection.execute(QUERIES["deliver"], (key, n, kind, about(kind, payload)))
        connection.execute(QUERIES["has_mail"], (kind, key))
        connection.execute(QUERIES["reckon"], (key,))

    def _keep(
        self, connection: apsw.Connection, key: int, blobs: Sequence[tuple[bytes, bytes]], names: Sequence[bytes] = ()
    ) -> None:
        connection.executemany(QUERIES["keep_blob"], blobs)
        connection.executemany(QUERIES["name_blob"], [(key, hash_) for hash_, _ in blobs])
        connection.executemany(QUERIES["name_blob"], [(key, hash_) for hash_ in names])

    def claim(
        self, connection: apsw.Connection, session_id: str, steal: bool, fence: int | None, paused: bool = False
    ) -> SessionRow:  # fmt: skip
        row = self._known(connection, session_id)
        if row.ended in ("completed", "cancelled"):
            raise SessionEnded(
                f"Session {session_id!r} is {row.ended} and cannot be resumed. Start another session.",
                session_id=session_id,
                status=row.ended,
            )
        if row.live and not steal:
            raise self._driven(connection, row)
        if fence is not None and row.fence != fence:
            raise _changed_meanwhile(row)
        if row.pause_requested and not paused:
            raise _is_paused(row)
        crashed = row.holder is not None and not row.live
        self._take(connection, row, crashed)
        return self._again(connection, row)

    def take(
        self, connection: apsw.Connection, now: int, workflows: Sequence[str], limit: int, skip: Mapping[int, int]
    ) -> list[SessionRow]:
        for holder in reads.dead_holders(connection, self.present):
            connection.execute(QUERIES["reap"], (holder,))
        rows = reads.ready(connection, self.present, now, workflows, limit, skip)
        for row in rows:
            self._take(connection, row, crashed=False)
        return [self._again(connection, row) for row in rows]

    def release(self, connection: apsw.Connection, key: int, fence: int) -> None:
        connection.execute(QUERIES["give_back"], (key, fence, self.number))

    def _take(self, connection: apsw.Connection, row: SessionRow, crashed: bool) -> None:
        """Take the hold of a session and raise its fence."""
        failure = None if row.failure is None else _json(row.failure).decode()
        progress = None if row.progress is None else _json(row.progress).decode()
        moved = sums.moved(
            row.seq,
            row.key_frame,
            row.digest,
            row.step,
            row.visit,
            row.held_by_guard,
            None,
            failure,
            progress,
            row.fence + 1,
        )
        standing.settle(connection, row.key, self._signal)
        connection.execute(QUERIES["claim"], (self.number, crashed, moved, row.key))

    def unkeep(self, connection: apsw.Connection, key: int, fence: int) -> None:
        """Record that the step which this engine kept in memory is gone."""
        connection.execute(QUERIES["unkeep"], (key, fence, self.number))

    def _seal_given(self, connection: apsw.Connection, key: int) -> None:
        """Update the checksum of the facts that seldom change."""
        given = reads.one(connection, QUERIES["given"], key)
        connection.execute(QUERIES["seal_given"], (sums.given(*given), key))

    def _driven(self, connection: apsw.Connection, row: SessionRow) -> AlreadyRunning:
        session_id, holder = row.session_id, self.describe(connection, row.holder)
        return AlreadyRunning(
            f"Session {session_id!r} is driven by {holder}. Wait for it with engine.outcome({session_id!r}), pause it,"
            f" or take it over with engine.resume({session_id!r}, steal=True).",
            session_id=session_id,
            holder=holder,
        )

    def revise(self, connection: apsw.Connection, commit: Commit) -> Found:
        row = reads.get_by_key(connection, commit.key, self.present)
        if row.live:
            raise self._driven(connection, row)
        if (row.seq, row.fence) != (commit.base_seq, commit.fence):
            raise _changed_meanwhile(row)
        if row.ended == "cancelled":
            connection.execute(QUERIES["withdraw_cancel"], (row.key,))
            self._seal_given(connection, row.key)
        self._take(connection, row, crashed=False)
        reopened = is_over(row) and commit.ended is None  # ending the session closed its pauses
        if reopened:
            connection.execute(QUERIES["follow"], (row.key,))
        self.move(connection.cursor(), replace(commit, fence=row.fence + 1))
        if reopened:
            pause = self._pause_above(connection, row.parent)
            if pause is not None:
                self._request_pause(connection, self._again(connection, row), pause)
            self._note_standing(connection, row.key, commit.step, at=commit.updated_at)
        if not commit.cancel_children:
            return Found()
        return self._cancel_below(connection, row, commit.closed_by, commit.cancel_children, commit.updated_at)

    def create(self, connection: apsw.Connection, new: NewSession) -> SessionRow | None:
        self._check_names(connection, new)
        above = None if new.parent is None else reads.get_by_key(connection, new.parent, self.present)
        pause = new.pause or self._pause_above(connection, new.parent)
        if new.parent is None and reads.standing_pause(connection) is not None:
            new = replace(new, claim=False)  # it is paused, so no engine needs to drive it
        last = new.records[-1]
        key_frame = next((record.seq for record in reversed(new.records) if record.kind == "key"), new.records[0].seq)
        head = connection.execute(QUERIES["log_end"]).get + len(new.records)
        tags, fence = _json(new.tags).decode(), int(new.claim)
        values = (
            new.session_id, new.workflow, new.version, new.owner, tags, new.input_digest,
            new.created_at, new.created_at, last.seq, head, key_frame, last.digest, new.step, new.visit,
            self.number if new.claim else None, None if new.claim or new.guest else 0, fence, new.budget_usd,
            first_digest(new.session_id), new.parent, new.keep_for, new.held_by_guard,
            sums.given(new.session_id, new.workflow, new.version, new.owner, tags, new.input_digest, new.created_at,
                       new.parent, new.keep_for, new.budget_usd, new.budget_tokens, new.budget_operations, 0,
                       int(new.guest)),
            sums.moved(last.seq, key_frame, last.digest, new.step, new.visit, new.held_by_guard, None, None, None,
                       fence),
            new.budget_tokens, new.budget_operations, new.guest,
        )  # fmt: skip
        connection.execute(QUERIES["create"], values)
        if not connection.changes():
            return None
        key = connection.last_insert_rowid()
        first = head - len(new.records) + 1
        lines = [(id, id - 1 if id > first else 0, key, *astuple(r)) for id, r in enumerate(new.records, first)]
        connection.executemany(_APPEND, lines)
        if new.blobs or new.names:
            self._keep(connection, key, new.blobs, new.names)
        for file in new.files:
            n = self._signal(connection, key, file.kind, file.by, file.at, file.payload)
            self._note_file(connection, key, n, file_facts(file.payload))
        row = reads.get_by_key(connection, key, self.present)
        if pause is not None:
            row = self._request_pause(connection, row, pause)
        elif row.under_everything and new.parent is None:
            self._note_standing(connection, key, row.step, at=new.created_at)
            row = self._again(connection, row)
        if above is not None and above.cancel_requested:
            row = self._request_cancel(connection, row, None, "its parent was cancelled", new.created_at)
        return row

    def _check_names(self, connection: apsw.Connection, new: NewSession) -> None:
        """Check that the shared large values still exist. They may have been deleted since the caller read them."""
        for name in new.names:
            if not connection.execute(QUERIES["has_blob"], (name,)).get:
                raise DamagedRecord(
                    f"The large value {name.hex()}, which session {new.session_id!r} shares with another session, no"
                    " longer exists. Nothing was written. Read the other session again, then retry.",
                    hash=name.hex(),
                )

    def _pause_above(self, connection: apsw.Connection, parent: int | None) -> Pause | None:
        """Return the parent's own pause, which applies to a new or reopened session too."""
        pauses = [] if parent is None else reads.pauses(connection, parent, open_only=True)
        return next((pause for pause in pauses if pause.kind == "operator" and not pause.standing), None)

    def _note_standing(
        self, connection: apsw.Connection, key: int, step: str | None, *, at: int | None = None,
        after: int | None = None,
    ) -> None:  # fmt: skip
        """Write the session's record of the pause of everything, if that stops it and nothing is written yet.

        ``at`` is from when on it stops the session; by default, from the request on.
        """
        pause = standing.note(connection, key, step, at)
        if pause is not None:
            self._signal(connection, key, "pause", pause.by, pause.created_at, _json(_request_of(pause)), after)
            connection.execute(QUERIES["due_later"], (key,))
            connection.execute(QUERIES["reckon"], (key,))

    # from outside

    def pause(self, connection: apsw.Connection, query: Filter, pause: Pause) -> Found:
        if pause.standing:
            standing.start(connection, pause)
            return Found()
        looked = reads.look(connection, query, self.present)
        if not looked and query.session_id is not None:
            self._known(connection, query.session_id)
        rows, damaged = [], []
        for key, facts in looked:
            if isinstance(facts, DamagedRecord):
                damaged.append(facts)
                self._stop(connection, key, pause)
            else:
                rows.append(facts if is_over(facts) else self._request_pause(connection, facts, pause))
        return Found(rows, damaged)

    def lift(self, connection: apsw.Connection, by: str | None, at: int) -> bool:
        return standing.lift(connection, by, at)

    def _wake(self, connection: apsw.Connection, row: SessionRow) -> None:
        """Make a session due if it needs an engine to drive it."""
        if needs_driving(row):
            connection.execute(QUERIES["wake"], (row.key,))
            connection.execute(QUERIES["reckon"], (row.key,))

    def _stop(self, connection: apsw.Connection, key: int, pause: Pause) -> None:
        """Pause a session whose facts cannot be read. It gets no signal, because the facts hold the signals' chain."""
        stopped = _try(connection, "stop", pause.mode, key)
        if stopped and not connection.execute(QUERIES["own_pauses"], (key,)).get:
            connection.execute(QUERIES["open_pause"], _opening(key, replace(pause, id=str(uuid.uuid4()))))

    def _request_pause(self, connection: apsw.Connection, row: SessionRow, pause: Pause) -> SessionRow:
        # A session under the pause of everything also gets a pause of its own, because that pause may end first.
        asked = bool(connection.execute(QUERIES["own_pauses"], (row.key,)).get)
        own_mode = reads.one(connection, QUERIES["pause_flag"], row.key)[1]
        raised = pause.mode == "abort" and own_mode == "finish"
        freezes = pause.freeze and connection.execute(QUERIES["is_freezing"], (row.key,)).get is None
        if asked and not raised and not freezes:
            return row
        if raised:
            connection.execute(QUERIES["raise_pauses"], (row.key,))
        if freezes or not asked:
            record = replace(pause, id=str(uuid.uuid4()), kind="operator", step=row.step or "", closed_at=None)
            connection.execute(QUERIES["open_pause"], _opening(row.key, record))
        connection.execute(QUERIES["request_pause"], ("abort" if raised else own_mode, row.key))
        self._signal(connection, row.key, "pause", pause.by, pause.created_at, _json(_request_of(pause)))
        return self._again(connection, row)

    def unpause(
        self, connection: apsw.Connection, session_id: str, by: str | None, at: int, limits: Allowance,
        wake: bool = False,
    ) -> SessionRow:  # fmt: skip
        self._known(connection, session_id)
        for row in reads.find(connection, Filter(session_id=session_id, tree=True), self.present):
            budget = limits.given() if row.session_id == session_id else {}
            if row.pause_requested:
                self._withdraw_pause(connection, row, by, at)
            connection.execute(QUERIES["excuse"], (row.key,))
            if not row.pause_requested and not budget:
                continue
            if budget:
                connection.execute(QUERIES["set_budget"], (*astuple(limits), row.key))
                self._seal_given(connection, row.key)
            self._signal(connection, row.key, "resume", by, at, _json(budget))
            if wake or row.kept_by is not None:  # if the engine that keeps it dies now, any other may drive it
                self._wake(connection, self._again(connection, row))
        return self._known(connection, session_id)

    def _withdraw_pause(self, connection: apsw.Connection, row: SessionRow, by: str | None, at: int) -> None:
        standing.settle(connection, row.key, self._signal)
        since = connection.execute(QUERIES["frozen_since"], (row.key,)).get
        if since is not None:
            connection.execute(QUERIES["freeze"], (max(at - since, 0), row.key))
        connection.execute(QUERIES["withdraw_pauses"], (at, by, sums.closed(at, by), row.key))
        connection.execute(QUERIES["withdraw_request"], (row.key,))
        # Otherwise another engine might pick it up before the one that resumes it.
        connection.execute(QUERIES["not_due"], (row.key,))

    def cancel(self, connection: apsw.Connection, session_id: str, by: str | None, reason: str, at: int) -> Found:
        row = self._known(connection, session_id)
        self._request_cancel(connection, row, by, reason, at)
        below = self._cancel_below(connection, row, by, reason, at)
        return Found([self._again(connection, row), *below], below.damaged)

    def _cancel_below(
        self, connection: apsw.Connection, row: SessionRow, by: str | None, reason: str, at: int
    ) -> Found:  # fmt: skip
        """Request the end of all descendants of a session, and end those that no engine drives."""
        tree = reads.look(connection, Filter(session_id=row.session_id, tree=True, unended=True), self.present)
        rows, damaged = [], []
        for key, facts in sorted(tree, key=lambda each: each[0]):  # parents first: an ended one gets no more reports
            if isinstance(facts, DamagedRecord):
                damaged.append(facts)
                _try(connection, "request_cancel", key)
            elif key != row.key:
                rows.append(self._request_cancel(connection, self._again(connection, facts), by, reason, at))
        return Found([self._again(connection, each) for each in rows], damaged)  # with the reports of their children

    def _request_cancel(
        self, connection: apsw.Connection, row: SessionRow, by: str | None, reason: str, at: int
    ) -> SessionRow:
        if not is_over(row) and not row.cancel_requested:
            connection.execute(QUERIES["request_cancel"], (row.key,))
            self._seal_given(connection, row.key)
            self._signal(connection, row.key, "cancel", by, at, _json({"reason": reason}))
            row = self._again(connection, row)
        return self._end(connection, row, at) if can_end(row) else row

    def _end(self, connection: apsw.Connection, row: SessionRow, at: int) -> SessionRow:
        """End a cancelled session that no engine drives."""
        commit = cancelled(row, at)
        if row.parent is not None and not self._is_readable(connection, row.parent):
            commit = replace(commit, parent=None, report=None)  # a damaged parent cannot read the report anyway
        self._take(connection, row, crashed=False)
        self.move(connection.cursor(), replace(commit, fence=row.fence + 1))
        return self._again(connection, row)

    def _is_readable(self, connection: apsw.Connection, key: int) -> bool:
        try:
            reads.get_by_key(connection, key, self.present)
        except (DamagedRecord, UnknownSession):
            return False
        return True

    def end_cancelled(self, connection: apsw.Connection) -> None:
        """End the cancelled sessions that an engine left open because it died, or lost its store, at that moment."""
        for (key,) in reads.every(connection, QUERIES["cancelled_open"]):
            try:
                row = reads.get_by_key(connection, key, self.present)
            except DamagedRecord:
                continue
            if can_end(row):
                self._end(connection, row, self.now())

    def send(self, connection: apsw.Connection, session_id: str, by: str | None, at: int, payload: bytes) -> SessionRow:
        row = self._known(connection, session_id)
        if is_over(row):
            raise SessionEnded(
                f"Session {session_id!r} is {row.ended} and accepts no more messages. Start another session.",
                session_id=session_id,
                status=str(row.ended),
            )
        n = self._signal(connection, row.key, "message", by, at, payload)
        self._deliver(connection, row.key, n, "message", payload)
        return self._again(connection, row)

    def add_file(
        self, connection: apsw.Connection, session_id: str, by: str | None, at: int, file: FileFacts, fence: int | None
    ) -> tuple[SignalRecord, bool]:
        row = self._known(connection, session_id)
        if fence not in (None, row.fence):
            raise _changed_meanwhile(row)
        for signal in reads.files(connection, row.key, None, file.sha256):
            if file_facts(signal.payload).size == file.size:
                return signal, False
        if reads.files(connection, row.key, file.id, None):
            raise FileRefused(
                f"Another file of session {session_id!r} was just given the id {file.id!r}. Add this file again.",
                session_id=session_id,
            )
        n = self._signal(connection, row.key, "file", by, at, _json(file))
        self._note_file(connection, row.key, n, file)
        return reads.signals(connection, row.key, n - 1, n)[0], True

    def _note_file(self, connection: apsw.Connection, key: int, n: int, file: FileFacts) -> None:
        connection.execute(QUERIES["note_file"], (key, file.id, bytes.fromhex(file.sha256), n))

    def _signal(
        self, connection: apsw.Connection, key: int, kind: str, by: str | None, at: int, payload: bytes,
        after: int | None = None,
    ) -> int:  # fmt: skip
        _, seq, count, previous = reads.one(connection, QUERIES["signals_head"], key)
        signal = seal_signal(previous, count + 1, seq if after is None else after, kind, by, at, payload)
        connection.execute(QUERIES["append_signal"], (key, *astuple(signal)))
        connection.execute(QUERIES["move_signals"], (signal.n, signal.digest, key))
        return signal.n

    # the engine itself

    def register(self, connection: apsw.Connection) -> None:
        """Get a number, and lock it before other engines can see it. Delete engines that died without a session."""
        number: int = connection.execute(QUERIES["register"], (os.getpid(), socket.gethostname(), self.now())).get
        self.hold.take(number)
        for (other,) in reads.every(connection, QUERIES["unheld_engines"]):
            if not self.hold.alive(other):
                connection.execute(QUERIES["forget_engine"], (other,))
        self.number = number

    def unregister(self) -> None:
        """Give the number back, because its transaction failed. Another engine may get the same number."""
        self.hold.untake()
        self.number = 0

    def leave(self, connection: apsw.Connection) -> None:
        """Release all sessions on a clean stop, without counting a crash. The next engine deletes this one's row."""
        connection.execute(QUERIES["release_all"], (self.number,))
        connection.execute(QUERIES["unkeep_all"], (self.number,))

    def describe(self, connection: apsw.Connection, holder: int | None) -> str:
        """Describe a holder for people."""
        if holder is None:
            return "nobody"
        found = reads.describe_engine(connection, holder)
        if found is None:
            return f"an engine that is gone (number {holder})"
        pid, host, since = found
        return f"process {pid} on {host}, since {to_datetime(since).isoformat(timespec='seconds')}"

    def _known(self, connection: apsw.Connection, session_id: str) -> SessionRow:
        row = reads.get(connection, session_id, self.present)
        if row is None:
            raise UnknownSession(
                f"No session in this store has the id {session_id!r}. Check the id and the store's path, or start the"
                " session first.",
                session_id=session_id,
            )
        return row

    def _again(self, connection: apsw.Connection, row: SessionRow) -> SessionRow:
        return reads.get_by_key(connection, row.key, self.present)


def _too_late(connection: apsw.Connection, commit: Commit) -> bool:
    """Return whether the question that a commit is about was answered in the meantime."""
    return bool(commit.only_if_waiting) and not asking.still_waits(connection, commit)


def _try(connection: apsw.Connection, query: str, *bindings: object) -> list[Any]:
    """Set a flag of a session whose facts cannot be read. Its checksums stay, so it still counts as damaged."""
    try:
        return reads.every(connection, QUERIES[query], *bindings)
    except apsw.ConstraintError:  # a value in its row has the wrong type, so no engine can drive it anyway
        return []


def _changed_meanwhile(row: SessionRow) -> HoldLost:
    return HoldLost(
        f"Session {row.session_id!r} has changed since it was read; it is now at record {row.seq} with fence"
        f" {row.fence}. Nothing was written. Read the session again, then retry.",
        session_id=row.session_id,
    )


def _is_paused(row: SessionRow) -> VerbRefused:
    return VerbRefused(
        f"Session {row.session_id!r} is to be paused, so it was not picked up. Resume it with"
        f" engine.resume({row.session_id!r}).",
        session_id=row.session_id,
        status=row.status.value,
    )


def _under_everything(connection: apsw.Connection, place: Any, everything: int) -> Any:
    """Return a session's place with the pause of everything among its requests, unless the session is exempt."""
    if connection.execute(QUERIES["exempt"], (place[0],)).get >= everything >> 1:
        return place
    return (*place[:5], 1, "abort" if everything & 1 else place[6], *place[7:])


def _request_of(pause: Pause) -> dict[str, object]:
    """Return the content of the signal that a pause is requested."""
    data: dict[str, object] = {"reason": pause.reason, "mode": pause.mode}
    return data | {"freeze": True} if pause.freeze else data


def _opening(key: int, pause: Pause) -> tuple[object, ...]:
    return (key, *astuple(pause), sums.opened(key, pause))


def _moving(commit: Commit, tail: int, head: int) -> tuple[object, ...]:
    """Return the bindings of the query `move`."""
    last = commit.records[-1]
    failure = None if commit.failure is None else _json(commit.failure).decode()
    progress = None if commit.progress is None else _json(commit.progress).decode()
    moved = sums.moved(
        last.seq, commit.key_frame, last.digest, commit.step, commit.visit, commit.held_by_guard, commit.ended, failure,
        progress, commit.fence,
    )  # fmt: skip
    return (
        last.seq,
        tail,
        head,
        commit.key_frame,
        last.digest,
        commit.updated_at,
        commit.step,
        commit.visit,
        commit.held_by_guard,
        commit.ended,
        failure,
        commit.keep_crashes,
        commit.spend_usd,
        commit.spend_tokens,
        commit.spend_operations,
        progress,
        commit.version,
        moved,
        commit.key,
    )


def _lines(commit: Commit, tail: int, head: int) -> list[tuple[object, ...]]:
    """Return the bindings of the query `append`. ``tail`` and ``head`` are the log ids before and at the end."""
    records = commit.records
    if len(records) == 1:
        return [(head, tail, commit.key, *astuple(records[0]))]
    first = head - len(records) + 1
    return [(id, id - 1 if id > first else tail, commit.key, *astuple(r)) for id, r in enumerate(records, first)]
