"""Walks through everything that is stored and proves it: chains, values, names, facts, tombstones.

A log is read from its end to its beginning, one stretch between two key frames at a time, so that memory does not
follow its length, and so that what a redaction names is known before the entries that it emptied are met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pausepoint.engine.redaction import Taken, named_by, taken_by
from pausepoint.errors import DamagedRecord, PausepointError, UnknownSession
from pausepoint.log.replay import Line, body_of, fold
from pausepoint.model.files import file_facts
from pausepoint.model.questions import Inquiry, digest
from pausepoint.model.records import Record
from pausepoint.model.sessions import Filter, SessionRow
from pausepoint.stores.base import Store
from pausepoint.stores.disk import Folder
from pausepoint.threads import in_thread

SESSIONS = 100
SIGNALS = 1000
VALUES = 16
LOOKS = 3
SECOND = 1_000_000


@dataclass(frozen=True)
class Problem:
    """One thing that is not as it was written. ``seq`` is the number of the record, ``session_id`` whose it is."""

    what: str
    text: str
    session_id: str | None = None
    seq: int | None = None

    def __str__(self) -> str:
        return self.text


@dataclass
class Verification:
    """What was looked at, and what was wrong with it. Of a log, only the first bad record is named."""

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
        """Whether everything is as it was written."""
        return not self.problems

    def __str__(self) -> str:
        found = f"{len(self.problems)} problems" if self.problems else "nothing is damaged"
        return (
            f"{self.sessions} sessions, {self.records} records ({self.redacted} redacted), {self.signals} signals,"
            f" {self.values} large values, {self.files} files, {self.tombstones} tombstones: {found}"
        )


class Inspector:
    """One run over a store. ``tell`` hears of the report whenever it has grown."""

    def __init__(self, store: Store, tell: Callable[[Verification], None]) -> None:
        self.store = store
        self.tell = tell
        self.report = Verification()

    async def everything(self) -> Verification:
        """All sessions, all values, all tombstones, and the database itself."""
        after = 0
        while found := await self.store.survey(after, SESSIONS):
            for after, session_id, facts in found:  # noqa: B007 (where the next batch begins)
                if isinstance(facts, DamagedRecord):
                    self._problem("facts", str(facts), session_id)
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
        self.tell(self.report)
        return self.report

    async def session(self, session_id: str) -> Verification:
        """One session, with the values that it names; or what is left of it."""
        try:
            row = await self.store.get(session_id)
        except DamagedRecord as exc:
            self._problem("facts", str(exc), session_id)
            return self.report
        await self._tombstones(session_id)
        if row is not None:
            await self._session(row)
            await self._values_of(row)
        elif not self.report.tombstones:
            raise UnknownSession(
                f"no session {session_id!r} in this store; engine.sessions() lists those that are",
                session_id=session_id,
            )
        self.tell(self.report)
        return self.report

    def _problem(self, what: str, text: str, session_id: str | None = None, seq: int | None = None) -> None:
        self.report.problems.append(Problem(what, text, session_id, seq))

    async def _session(self, row: SessionRow) -> None:
        """Look at a session, and again if it was changed meanwhile: the parts need not fit each other then."""
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
        self.tell(self.report)

    async def _walked(self, row: SessionRow) -> _Walk:
        walk = _Walk(row, await self.store.names(row.key))
        try:
            await self._log(walk)
            await self._signals(walk)
            self._time(walk)
            await self._money(walk)
            await self._pauses(walk)
            await self._questions(walk)
            await self._files(walk)
        except UnknownSession:  # it was removed meanwhile
            self.report.records -= walk.records
            return _Walk(row, {})
        for hash_, there in walk.names.items():
            if not there:
                walk.problem("value", f"the value {hash_.hex()} is missing; restore the database from a backup")
        return walk

    async def _pauses(self, walk: _Walk) -> None:
        try:
            await self.store.pauses(walk.row.key, open_only=False)
        except DamagedRecord as exc:
            walk.problem("pause", str(exc))

    async def _questions(self, walk: _Walk) -> None:
        """Each says what a record of the log asks, in the round that it says."""
        found = await self.store.questions(Inquiry(session=walk.row.key))
        for damage in found.damaged:
            walk.problem("question", str(damage))
        for row in found:
            try:
                if (asked := row.asked) is not None and digest(asked) != row.facts.seen:
                    walk.problem("question", f"question {asked.id} is not the one that record {row.facts.seq} asks")
            except DamagedRecord as exc:
                walk.problem("question", str(exc))

    async def _files(self, walk: _Walk) -> None:
        """The bytes of each are those that came."""
        try:
            signals = await self.store.files(walk.row.key)
        except DamagedRecord:
            return  # the chain of signals is damaged, which is said of it
        place = self.store.folder(walk.row.session_id)
        if place is None:
            return
        for file in [file_facts(signal.payload) for signal in signals]:
            wrong = await in_thread(Folder(place / "files").damage, file.stored_name, file.sha256, file.size)
            walk.files += 1
            if wrong:
                walk.problem("file", f"file {file.id} ({file.filename}) {wrong}; add the same content again, which puts"
                                     " it back, or restore the folder from a backup")  # fmt: skip

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
            self.tell(self.report)
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
                    walk.problem("signal", f"signal {signal.n} is empty, and no redaction names it")
            walk.signals += len(found)
            after = found[-1].n

    def _time(self, walk: _Walk) -> None:
        """A session was last updated when its last record was written; those of one commit are near each other."""
        if not walk.blind and not walk.latest - SECOND <= walk.row.updated_at <= walk.latest:
            walk.problem("facts", f"its row says updated_at = {walk.row.updated_at}, its log says {walk.latest}")

    async def _money(self, walk: _Walk) -> None:
        """What is spent is what its own records say and what its children have spent."""
        if walk.blind or walk.redacted or walk.row.live:
            return
        try:
            children = await self.store.find(Filter(parent=walk.row.key))
        except PausepointError:
            return
        if children.damaged:
            return  # what is wrong with them is said of them
        usd = walk.usd + sum(child.spent_usd for child in children)
        tokens = walk.tokens + sum(child.spent_tokens for child in children)
        if (usd, tokens) != (walk.row.spent_usd, walk.row.spent_tokens):
            walk.problem(
                "facts",
                f"its row says that {walk.row.spent_usd} micro-dollars and {walk.row.spent_tokens} tokens are spent,"
                f" its records say {usd} and {tokens}",
            )

    async def _values(self) -> None:
        after = 0
        while (found := await self.store.values(after, VALUES)).last is not None:
            after = found.last
            self.report.values += found.count
            for hash_ in found.damaged:
                self._problem("value", f"the value {hash_} does not match its hash; restore the database from a backup")
            self.tell(self.report)

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


class _Walk:
    """One session, from the end of its log to its beginning."""

    def __init__(self, row: SessionRow, names: dict[bytes, bool]) -> None:
        self.row = row
        self.names = names
        self.taken: list[Taken] = []
        self.taken_signals: set[int] = set()
        self.records = self.signals = self.redacted = self.files = 0
        self.usd = self.tokens = 0
        self.latest = -(2**63)  # when the last record of all was written; a clock may stand before 1970
        self.blind = False  # a stretch could not be read, and with it what it says of others
        self._first_bad: tuple[int, str] | None = None
        self._others: list[Problem] = []

    def problem(self, what: str, text: str) -> None:
        self._others.append(Problem(what, f"session {self.row.session_id}: {text}", self.row.session_id))

    def bad_record(self, seq: int, text: str) -> None:
        self.blind = True
        self._bad(seq, text)

    def _bad(self, seq: int, text: str) -> None:
        if self._first_bad is None or seq < self._first_bad[0]:
            self._first_bad = seq, text

    def problems(self) -> list[Problem]:
        """The first bad record, then everything else."""
        if self._first_bad is None:
            return self._others
        seq, text = self._first_bad
        return [Problem("record", text, self.row.session_id, seq), *self._others]

    def look(self, records: list[Record]) -> None:
        """The next stretch, which is chained as it should be."""
        self.records += len(records)
        self.latest = max(self.latest, *(record.at for record in records))
        for record in reversed(records):
            try:
                self._entry(record)
            except DamagedRecord as exc:
                self._bad(record.seq, f"session {self.row.session_id}: {exc}; restore the database from a backup")
        if records[-1].seq == self.row.seq and self._first_bad is None and not any(each.redacted for each in records):
            self._compare(fold(records), records[0].seq)

    def _entry(self, record: Record) -> None:
        named = any(first <= record.seq <= last for taken in self.taken for first, last in taken.records)
        if record.redacted:
            self.redacted += 1
            if not named and not self.blind:
                self._bad(record.seq, self._says(record, "is empty, and no redaction names it"))
            return
        if named:
            self._bad(record.seq, self._says(record, "was redacted, and its content is there"))
        body = body_of(record)
        if (taken := taken_by(body)) is not None:
            self.taken.append(taken)
            self.taken_signals.update(taken.signals)
        self._note(record, body)

    def _note(self, record: Record, body: Any) -> None:
        for effect in getattr(body, "effects", ()):
            self.usd += effect.usd
            self.tokens += effect.tokens
        for hash_ in named_by(body):
            if hash_ not in self.names:
                self._bad(record.seq, self._says(record, f"needs the value {hash_.hex()}, which could be swept"))

    def _says(self, record: Record, what: str) -> str:
        return f"session {self.row.session_id}: record {record.seq} {what}; restore the database from a backup"

    def _compare(self, line: Line, key_frame: int) -> None:
        """The facts in the row are those that the log tells."""
        row = self.row
        told = {"step": line.step, "visit": line.visit, "held_by_guard": line.held_by_guard, "key_frame": key_frame}
        for name, value in told.items():
            if getattr(row, name) != value:
                self.problem("facts", f"its row says {name} = {getattr(row, name)!r}, its log says {value!r}")
        at_its_end = line.step is None and not line.held_by_guard
        if at_its_end != (row.ended == "completed") and row.ended != "cancelled":
            self.problem("facts", f"its row says ended = {row.ended!r}, its log says step = {line.step!r}")
