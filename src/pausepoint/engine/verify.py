"""Checks all stored data for damage: chains of records, large values, references, facts and tombstones.

A log is read from end to beginning, one range between two key frames at a time. This keeps memory small, and a
redaction is read before the entries that it emptied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pausepoint.engine.redaction import Taken, named_by, taken_by
from pausepoint.errors import DamagedRecord, PausepointError, UnknownSession
from pausepoint.log.replay import Line, body_of, fold, operations_in
from pausepoint.model.commits import child_report
from pausepoint.model.endings import is_over
from pausepoint.model.files import file_facts
from pausepoint.model.ids import is_session_id, shortened
from pausepoint.model.questions import Inquiry, digest
from pausepoint.model.records import Record
from pausepoint.model.sessions import Filter, SessionRow, ready_at
from pausepoint.stores.base import Store

SESSIONS = 100
SIGNALS = 1000
VALUES = 16
LOOKS = 3
SECOND = 1_000_000

_BACKUP = "Restore the database from a backup."


@dataclass(frozen=True)
class Problem:
    """One piece of damaged data. ``seq`` is the number of the record, ``session_id`` its session."""

    what: str
    text: str
    session_id: str | None = None
    seq: int | None = None

    def __str__(self) -> str:
        return self.text


@dataclass
class Verification:
    """The result of a check: what was read, and the problems found. Each log reports only its first bad record."""

    sessions: int = 0
    records: int = 0
    signals: int = 0
    values: int = 0
    files: int = 0
    tombstones: int = 0
    redacted: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    def __str__(self) -> str:
        counts = {
            "session": self.sessions, "record": self.records, "signal": self.signals, "large value": self.values,
            "file": self.files, "tombstone": self.tombstones,
        }  # fmt: skip
        said = {noun: _counted(count, noun) for noun, count in counts.items()}
        said["record"] += f" ({self.redacted} redacted)"
        found = _counted(len(self.problems), "problem") if self.problems else "nothing is damaged"
        return f"{', '.join(said.values())}: {found}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _about(session_id: str, text: str) -> str:
    """Return the text with the name of the session in front. The store's own errors may have it already."""
    name = f"Session {session_id!r}"
    return text if text.startswith(name) else f"{name}: {text}"


class Inspector:
    """One check of a store. ``notify`` is called with the report whenever it has grown."""

    def __init__(self, store: Store, notify: Callable[[Verification], None]) -> None:
        self.store = store
        self.notify = notify
        self.report = Verification()

    async def everything(self) -> Verification:
        """Check all sessions, large values and tombstones, and the database itself."""
        after = 0
        while found := await self.store.survey(after, SESSIONS):
            for after, session_id, facts in found:  # noqa: B007 (where the next batch begins)
                if isinstance(facts, DamagedRecord):
                    self._problem("facts", _about(session_id, str(facts)), session_id)
                    self.report.sessions += 1
                else:
                    await self._session(facts)
        await self._values()
        await self._tombstones(None)
        try:
            await self.store.standing_pause()
        except DamagedRecord as exc:
            self._problem("store", str(exc))
        for line in await self.store.check():
            self._problem("store", line)
        for line in await self.store.drawer_damage():
            self._problem("drawer", line)
        self.notify(self.report)
        return self.report

    async def session(self, session_id: str) -> Verification:
        """Check one session with the large values it references, or its tombstone if it was removed."""
        try:
            row = await self.store.get(session_id, sure=True)
        except DamagedRecord as exc:
            self._problem("facts", _about(session_id, str(exc)), session_id)
            return self.report
        await self._tombstones(session_id)
        if row is not None:
            await self._session(row)
            await self._values_of(row)
        elif not self.report.tombstones:
            raise UnknownSession(
                f"This store has no session {session_id!r}. List its sessions with engine.sessions().",
                session_id=session_id,
            )
        self.notify(self.report)
        return self.report

    def _problem(self, what: str, text: str, session_id: str | None = None) -> None:
        self.report.problems.append(Problem(what, text, session_id))

    async def _session(self, row: SessionRow) -> None:
        """Check a session, and again if it changed meanwhile, because its parts may then not match."""
        seen, walk = row, await self._walked(row)
        for _ in range(LOOKS):
            try:
                now = await self.store.get(row.session_id) if walk.problems() else seen
            except PausepointError:
                break
            if now is None or now == seen:
                break
            self.report.records -= walk.records
            seen, walk = now, await self._walked(now)
        self.report.sessions += 1
        self.report.redacted += walk.redacted
        self.report.signals += walk.signals
        self.report.files += walk.files
        self.report.problems += walk.problems()
        self.notify(self.report)

    async def _walked(self, row: SessionRow) -> _Walk:
        walk = _Walk(row, await self.store.names(row.key))
        try:
            await self._log(walk)
            await self._signals(walk)
            self._time(walk)
            await self._money(walk)
            await self._pauses(walk)
            self._ready(walk)
            await self._family(walk)
            await self._questions(walk)
            await self._files(walk)
            for line in await self.store.drawer_damage(row.session_id):
                walk.problem("drawer", line)
        except UnknownSession:  # it was removed meanwhile
            self.report.records -= walk.records
            return _Walk(row, {})
        for hash_, there in walk.names.items():
            if not there:
                walk.problem("value", f"large value {hash_.hex()} is missing. Restore the database from a backup.")
        return walk

    async def _pauses(self, walk: _Walk) -> None:
        try:
            await self.store.pauses(walk.row.key, open_only=False)
        except DamagedRecord as exc:
            walk.problem("pause", str(exc))

    def _ready(self, walk: _Walk) -> None:
        """Check the stored time from which on a worker finds the session. Facts that are wrong make it wrong, too."""
        row = walk.row
        if row.ready_at != (expected := ready_at(row)) and not walk.problems():
            walk.problem(
                "facts",
                f"ready_at is {row.ready_at} instead of {expected}, so workers look for it at the wrong time. Pause and"
                " resume the session to correct it.",
            )

    async def _family(self, walk: _Walk) -> None:
        """Check that nothing is open below a session that has ended.

        Below a cancelled session nothing may be open. Below a completed one, a session may be open that the step did
        not wait for: it gave up the call, or continued without a child that had failed. A session that a person
        reopened may be open anywhere. Only the session directly above counts: an open one is checked itself.
        """
        row = walk.row
        if row.live or is_over(row) or walk.blind:
            return  # an engine that drives it ends it, if that was requested
        if row.cancel_requested:
            walk.problem(
                "session",
                "it was cancelled, but is still open. Call"
                f" engine.session({row.session_id!r}).cancel() again to end it.",
            )
            return
        above = None if walk.reopened else await self._ended_above(row)
        if above is not None and above.ended == "cancelled":
            walk.problem(
                "session",
                f"it is still open, although {above.session_id!r} above it was cancelled. Call"
                f" engine.session({above.session_id!r}).cancel() again to end it.",
            )
        elif above is not None and (status := await self._reported_end(above, row.session_id)):
            walk.problem(
                "session",
                f"it is still open, although {above.session_id!r} above it has completed and was told that it was"
                f" {status}. {_BACKUP}",
            )

    async def _ended_above(self, row: SessionRow) -> SessionRow | None:
        """Return the session above if it has ended. A damaged one is reported itself."""
        try:
            above = None if row.parent_id is None else await self.store.get(row.parent_id)
        except DamagedRecord:
            return None
        return above if above is not None and is_over(above) else None

    async def _reported_end(self, above: SessionRow, child: str) -> str:
        """Return how a child ended according to the signals of the session above; empty if it did not end."""
        after = 0
        try:
            while found := await self.store.signals(above.key, after, after + SIGNALS):
                for signal in found:
                    if signal.kind == "child" and not signal.redacted:
                        report = child_report(signal.payload)
                        if report.child == child and report.status in ("completed", "cancelled"):
                            return report.status
                after = found[-1].n
        except DamagedRecord:
            pass  # its damage is reported itself
        return ""

    async def _questions(self, walk: _Walk) -> None:
        """Check that each question matches the record of the log that asked it."""
        found = await self.store.questions(Inquiry(session=walk.row.key))
        for damage in found.damaged:
            walk.problem("question", str(damage))
        for row in found:
            try:
                if (asked := row.asked) is not None and digest(asked) != row.facts.seen:
                    walk.problem(
                        "question",
                        f"question {asked.id} does not match record {row.facts.seq}, which asked it. Restore the"
                        " database from a backup.",
                    )
            except DamagedRecord as exc:
                walk.problem("question", str(exc))

    async def _files(self, walk: _Walk) -> None:
        """Check that the bytes of each file match its hash and size."""
        try:
            signals = await self.store.files(walk.row.key)
        except DamagedRecord:
            return  # the chain of signals is damaged, and _signals reports that
        if not is_session_id(walk.row.session_id):
            walk.problem("session", f"its id {shortened(walk.row.session_id)} is not valid, so it has no folder for"
                                    " files. Restore the database from a backup.")  # fmt: skip
            return
        contents = self.store.files_of(walk.row.session_id)
        if contents is None:
            return
        for file in [file_facts(signal.payload) for signal in signals]:
            wrong = await contents.damage(file)
            walk.files += 1
            if wrong:
                walk.problem("file", f"file {file.id} ({file.filename}) {wrong}. Add the same content again to repair"
                                     " it, or restore the folder from a backup.")  # fmt: skip

    async def _log(self, walk: _Walk) -> None:
        until, row = walk.row.seq, walk.row
        while until > 0:
            since = 1
            try:
                since = await self.store.key_frame(row.key, until)
                records = await self.store.records(row.key, since, until)
            except DamagedRecord as exc:
                walk.bad_record(getattr(exc, "seq", until), str(exc))
            else:
                walk.look(records)
                self.report.records += len(records)
            self.notify(self.report)
            until = since - 1

    async def _signals(self, walk: _Walk) -> None:
        after = 0
        while True:
            try:
                found = await self.store.signals(walk.row.key, after, after + SIGNALS)
            except DamagedRecord as exc:
                walk.problem("signal", str(exc))
                return
            if not found:
                return
            for signal in found:
                if signal.redacted and signal.n not in walk.taken_signals and not walk.blind:
                    walk.problem(
                        "signal",
                        f"signal {signal.n} is empty, but no redaction lists it. Restore the database from a backup.",
                    )
            walk.signals += len(found)
            after = found[-1].n

    def _time(self, walk: _Walk) -> None:
        """Check that the session's time of update is that of its last commit, whose records are close in time."""
        if not walk.blind and not walk.latest - SECOND <= walk.row.updated_at <= walk.latest:
            walk.problem(
                "facts",
                f"its row says updated_at = {walk.row.updated_at}, but its log says {walk.latest}. {_BACKUP}",
            )

    async def _money(self, walk: _Walk) -> None:
        """Check that the money spent is the sum of the session's own records and of its children."""
        if walk.blind or walk.redacted or walk.row.live:
            return
        try:
            children = await self.store.find(Filter(parent=walk.row.key))
        except PausepointError:
            return
        if children.damaged:
            return  # the damaged children are reported themselves
        usd = walk.usd + sum(child.spent_usd for child in children)
        tokens = walk.tokens + sum(child.spent_tokens for child in children)
        operations = walk.operations + sum(child.spent_operations for child in children)
        row = walk.row
        if (usd, tokens) != (row.spent_usd, row.spent_tokens):
            walk.problem(
                "facts",
                f"its row says that {row.spent_usd} micro-dollars and {row.spent_tokens} tokens are spent,"
                f" but its records say {usd} and {tokens}. {_BACKUP}",
            )
        if operations != row.spent_operations:
            walk.problem(
                "facts",
                f"its row counts {row.spent_operations} operations, but its records {operations}. {_BACKUP}",
            )

    async def _values(self) -> None:
        after = 0
        while (found := await self.store.values(after, VALUES)).last is not None:
            after = found.last
            self.report.values += found.count
            for hash_ in found.damaged:
                text = f"Large value {hash_} does not match its hash. Restore the database from a backup."
                self._problem("value", text)
            self.notify(self.report)

    async def _values_of(self, row: SessionRow) -> None:
        for hash_, there in (await self.store.names(row.key)).items():
            if there:
                try:
                    await self.store.blobs([hash_])
                except DamagedRecord as exc:
                    self._problem("value", str(exc), row.session_id)
                self.report.values += 1

    async def _tombstones(self, session_id: str | None) -> None:
        try:
            self.report.tombstones += len(await self.store.tombstones(session_id))
        except DamagedRecord as exc:
            self._problem("tombstone", str(exc))


def _about_record(record: Record, what: str) -> str:
    return f"record {record.seq} {what}. {_BACKUP}"


class _Walk:
    """The check of one session, from the end of its log to the beginning."""

    def __init__(self, row: SessionRow, names: dict[bytes, bool]) -> None:
        self.row = row
        self.names = names
        self.taken: list[Taken] = []
        self.taken_signals: set[int] = set()
        self.records = self.signals = self.redacted = self.files = 0
        self.usd = self.tokens = self.operations = 0
        self.latest = -(2**63)  # the time of the last record; a clock may be set to before 1970
        self.reopened = False  # by an edit or a rewind, after it had ended
        self.blind = False  # a range could not be read, so its redactions are unknown
        self._first_bad: tuple[int, str] | None = None
        self._others: list[Problem] = []

    def problem(self, what: str, text: str) -> None:
        self._others.append(Problem(what, _about(self.row.session_id, text), self.row.session_id))

    def bad_record(self, seq: int, text: str) -> None:
        self.blind = True
        self._bad(seq, text)

    def _bad(self, seq: int, text: str) -> None:
        if self._first_bad is None or seq < self._first_bad[0]:
            self._first_bad = seq, _about(self.row.session_id, text)

    def problems(self) -> list[Problem]:
        """Return the first bad record, then all other problems."""
        if self._first_bad is None:
            return self._others
        seq, text = self._first_bad
        return [Problem("record", text, self.row.session_id, seq), *self._others]

    def look(self, records: list[Record]) -> None:
        """Check the next range of records, whose chain is intact."""
        self.records += len(records)
        self.latest = max(self.latest, *(record.at for record in records))
        for record in reversed(records):
            try:
                self._entry(record)
            except DamagedRecord as exc:
                self._bad(record.seq, str(exc))
        if records[-1].seq == self.row.seq and self._first_bad is None and not any(each.redacted for each in records):
            self._compare(fold(records), records[0].seq)

    def _entry(self, record: Record) -> None:
        named = any(first <= record.seq <= last for taken in self.taken for first, last in taken.records)
        if record.redacted:
            self.redacted += 1
            if not named and not self.blind:
                self._bad(record.seq, _about_record(record, "is empty, but no redaction lists it"))
            return
        if named:
            self._bad(record.seq, _about_record(record, "was redacted, but still has its content"))
        body = body_of(record)
        if (taken := taken_by(body)) is not None:
            self.taken.append(taken)
            self.taken_signals.update(taken.signals)
        self._note(record, body)

    def _note(self, record: Record, body: Any) -> None:
        self.reopened = self.reopened or bool(getattr(body, "reopened", ""))
        for effect in getattr(body, "effects", ()):
            self.usd += effect.usd
            self.tokens += effect.tokens
        self.operations += operations_in(body)
        for hash_ in named_by(body):
            if hash_ not in self.names:
                what = f"needs large value {hash_.hex()}, which gc would delete"
                self._bad(record.seq, _about_record(record, what))

    def _compare(self, line: Line, key_frame: int) -> None:
        """Check that the facts in the session's row match its log."""
        row = self.row
        expected = {"step": line.step, "visit": line.visit, "held_by_guard": line.held_by_guard, "key_frame": key_frame}
        for name, value in expected.items():
            if getattr(row, name) != value:
                text = f"its row says {name} = {getattr(row, name)!r}, but its log says {value!r}. {_BACKUP}"
                self.problem("facts", text)
        at_its_end = line.step is None and not line.held_by_guard
        if at_its_end != (row.ended == "completed") and row.ended != "cancelled":
            text = f"its row says ended = {row.ended!r}, but its log says step = {line.step!r}. {_BACKUP}"
            self.problem("facts", text)
