"""The verbs that remove data: removal by hand or by expiry, redaction and clean-up; and the check for damage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from pausepoint.clock import to_micros
from pausepoint.codec.values import encode
from pausepoint.engine import redaction
from pausepoint.engine.base import Service
from pausepoint.engine.bulk_run import in_pages
from pausepoint.engine.remembered import forget_notes
from pausepoint.errors import (
    AlreadyRunning,
    DamagedRecord,
    HoldLost,
    InvalidSessionId,
    StateRefused,
    StoreUnavailable,
    UnknownSession,
    did_you_mean,
)
from pausepoint.log import events as history
from pausepoint.log.access import StateAccess
from pausepoint.log.replay import body_of, fold
from pausepoint.log.state import Change, Inline, State, stored
from pausepoint.log.timeline import operation_of
from pausepoint.model.files import file_facts
from pausepoint.model.ids import SessionId, check_session_id, check_strings, check_texts, shortened
from pausepoint.model.sessions import Filter, SessionRow, has_expired
from pausepoint.model.stores import Removal, Tombstone
from pausepoint.runtime.files import Files

if TYPE_CHECKING:
    from pausepoint.engine.verify import Inspector, Verification

ROWS = 500
"""The number of rows deleted or read in one transaction. Other writers commit in between."""

TOGETHER = 25
"""The number of expired sessions removed at the same time. They share the store's transactions."""

QUESTIONS_KEPT_FOR = timedelta(days=7)
"""How long a question's row is kept after the question is closed."""

BYTES = 2**20
"""The number of bytes given back to the file system in one transaction."""


_EMPTY = {b'"': b'""', b"[": b"[]", b"{": b"{}", b"t": b"false", b"f": b"false", b"n": b"null"} | {
    sign.encode(): b"0" for sign in "-0123456789"
}
"""The empty value that replaces a stored value, by the first byte of its JSON."""


class CleanUp(msgspec.Struct):
    """What `gc` has done, or would do. Sizes are in bytes; ``expired_bytes`` is set only for a dry run.

    ``kept`` are sessions that could not be removed, with the reason. ``strays`` are the remains of interrupted uploads,
    ``streams`` the live streams of sessions that have ended. ``requests`` are expired answers to requests (see
    `Engine.remember`), ``descriptions`` those of workflows without sessions, and ``drawers`` streams and values in
    drawers whose ``keep_for`` is over. A dry run does not count these three.
    ``unknown`` are ids that have a folder of files but no session in the store. Their folders are kept, because they
    may belong to another copy of the database.
    """

    applied: bool
    expired: list[SessionId] = []
    expired_bytes: int = 0
    completed: list[SessionId] = []
    kept: dict[SessionId, str] = {}
    values: int = 0
    value_bytes: int = 0
    free_bytes: int = 0
    given_back: int = 0
    folded: bool = False
    questions: int = 0
    requests: int = 0
    descriptions: int = 0
    drawers: int = 0
    streams: int = 0
    strays: int = 0
    stray_bytes: int = 0
    unknown: list[str] = []


class Retention:
    """The verbs that remove data, and the one that checks it for damage."""

    def __init__(self, service: Service) -> None:
        self.service = service

    # removal

    async def remove(self, session_id: str, *, by: str | None = None, reason: str = "") -> Tombstone:
        """Delete a session and its children: their files first, then their records. Return the tombstone that stays."""
        self.service.check_open()
        check_texts(by=by, reason=reason)
        try:
            removals = await self.service.store.remove(
                check_session_id(session_id), by, reason, self.service.clock.now()
            )
        except UnknownSession:
            removals = await self.service.store.removing()
            if all(removal.tombstone.session_id != session_id for removal in removals):
                raise
        stones = [await self._complete(removal) for removal in _children_first(removals)]
        return next(stone for stone in stones if stone.session_id == session_id)

    async def _complete(self, removal: Removal) -> Tombstone:
        session_id = removal.tombstone.session_id
        if (contents := self.service.store.files_of(session_id)) is not None:
            await contents.delete_all()
        forget_stream(self.service, removal.key, session_id)
        stone = await self._stripped(removal)
        self.service.driver.lines.drop(removal.key)
        self.service.driver.on_change()
        return stone

    async def _stripped(self, removal: Removal) -> Tombstone:
        try:
            while (stone := await self.service.store.strip(removal.key, self._at_once(ROWS))) is None:
                await asyncio.sleep(0)
        except DamagedRecord:
            # Nothing remains to be deleted, perhaps because another process has completed the same removal.
            if removal.tombstone not in await self.service.store.tombstones(removal.tombstone.session_id):
                raise
            return removal.tombstone
        return stone

    def _at_once(self, many: int) -> int:
        """Return the size of one batch. It is small on a full disk, where the ballast file provides the only space."""
        return many if self.service.store.trouble is None else max(1, many // 32)

    async def tombstones(self, session_id: str | None = None) -> list[Tombstone]:
        """Return the tombstones of removed sessions in the order of removal, of all sessions or of one id."""
        self.service.check_open()
        return await self.service.store.tombstones(session_id)

    # clean-up

    async def gc(
        self, *, apply: bool = False, now: datetime | None = None, keep_for: timedelta | None = None,
        keep_questions_for: timedelta = QUESTIONS_KEPT_FOR,
        on_progress: Callable[[CleanUp], None] | None = None,
    ) -> CleanUp:  # fmt: skip
        """Report what could be cleaned up; with ``apply=True``, clean it up."""
        self.service.check_open()
        report = CleanUp(apply)
        ended_for = None if keep_for is None else self.service.kept_for(keep_for)
        notify = on_progress or (lambda report: None)
        await self._complete_removals(report, notify)
        at = self.service.clock.now() if now is None else to_micros(now)
        await self._remove_expired(report, at, ended_for, notify)
        kept_for = self.service.kept_for(keep_questions_for)
        await self._forget_questions(report, 0 if kept_for is None else at - kept_for, notify)
        if apply:
            report.requests, report.descriptions = await forget_notes(self.service.store, at, self._at_once(ROWS))
            while count := await self.service.store.expire_drawers(at, self._at_once(ROWS)):
                report.drawers += count
            while await self.service.store.delete_discarded(self._at_once(ROWS)):
                notify(report)
        await self._sweep(report, notify)
        await self._clear_strays(report, notify)
        report.streams = await clear_streams(self.service, apply)
        report.free_bytes = (await self.service.store.space()).free
        while apply and (given := await self.service.store.compact(self._at_once(BYTES))):
            report.given_back += given
            notify(report)
        report.folded = apply and await self.service.store.fold()
        notify(report)
        return report

    async def _complete_removals(self, report: CleanUp, notify: Callable[[CleanUp], None]) -> None:
        for removal in await self.service.store.removing():
            session_id = SessionId(removal.tombstone.session_id)
            if report.applied:
                try:
                    await self._complete(removal)
                except (StoreUnavailable, InvalidSessionId) as error:
                    report.kept[session_id] = str(error)
                    continue
            report.completed.append(session_id)
            notify(report)

    async def _remove_expired(
        self, report: CleanUp, now: int, ended_for: int | None, notify: Callable[[CleanUp], None]
    ) -> None:
        after = 0
        while batch := await self.service.store.expired(now, after, ROWS, ended_for):
            after = batch[-1][0]
            for some in in_pages((session_id for _, session_id in batch), TOGETHER):
                found = await asyncio.gather(*[self._expire(report, each, now, ended_for) for each in some])
                expired = [session_id for session_id, done in zip(some, found, strict=True) if done]
                if expired and not report.applied:
                    report.expired_bytes += await self.service.store.weight(*expired)
                report.expired += map(SessionId, expired)
                notify(report)

    async def _expire(self, report: CleanUp, session_id: str, now: int, ended_for: int | None) -> bool:
        """Remove a session that has expired. Return whether it has; if it cannot be removed, report why."""
        try:
            return await self._expires(session_id, report.applied, now, ended_for)
        except UnknownSession:
            pass  # another process has removed it
        except (DamagedRecord, StoreUnavailable, AlreadyRunning, InvalidSessionId) as error:
            report.kept[SessionId(session_id)] = str(error)
        return False

    async def _expires(self, session_id: str, apply: bool, now: int, ended_for: int | None) -> bool:
        if apply:
            check_session_id(session_id)  # before it is marked as removed, because its id names the folder to delete
            removals = await self.service.store.remove(
                session_id, None, "expired", now, expired=True, ended_for=ended_for
            )
            for removal in _children_first(removals):
                await self._complete(removal)
            return bool(removals)
        tree = await self.service.store.find(Filter(session_id=session_id, tree=True))
        if tree.damaged:
            raise tree.damaged[0]
        return has_expired(tree, now, ended_for)

    async def _forget_questions(self, report: CleanUp, before: int, notify: Callable[[CleanUp], None]) -> None:
        """Delete closed questions. A dry run does not count them."""
        while report.applied and (count := await self.service.store.forget_questions(before, self._at_once(ROWS))):
            report.questions += count
            notify(report)

    async def _sweep(self, report: CleanUp, notify: Callable[[CleanUp], None]) -> None:
        after: int | None = 0
        while after is not None:
            found = await self.service.store.sweep(after, self._at_once(ROWS), report.applied)
            report.values += found.count
            report.value_bytes += found.bytes
            after = found.last
            notify(report)

    def _files(self, row: SessionRow) -> Files:
        return Files(self.service.store, self.service.clock, row.session_id)

    async def _clear_strays(self, report: CleanUp, notify: Callable[[CleanUp], None]) -> None:
        going = {removal.tombstone.session_id for removal in await self.service.store.removing()}
        for session_id in await self.service.store.sessions_with_files():
            try:
                row = await self.service.row(session_id)
                count, size = await self._files(row)._clear(row.key, apply=report.applied)
            except UnknownSession:
                report.unknown += [session_id] if session_id not in going else []
            except DamagedRecord:
                pass  # its records cannot say which files belong to it
            else:
                report.strays += count
                report.stray_bytes += size
            notify(report)

    # redaction

    async def redact(
        self, session_id: str, *, field: str | None = None, value: Any = redaction.DEFAULT, seq: int | None = None,
        signal: int | None = None, event: str | None = None, file: str | None = None, drawer: str | None = None,
        by: str | None = None, reason: str = "",
    ) -> redaction.Redaction:  # fmt: skip
        """Permanently remove content from the store. The history still shows that it existed and who removed it."""
        self.service.check_open()
        check_texts(by=by, reason=reason)
        if sum(each is not None for each in (field, seq, signal, event, file, drawer)) != 1:
            raise ValueError(
                "redact() takes exactly one thing to redact. Pass one of field=, seq= (a record), signal=, event="
                " (a cursor), file= and drawer=."
            )
        texts = {"field": field, "event": event, "file": file, "drawer": drawer}
        check_strings(**{name: text for name, text in texts.items() if text is not None})

        async def attempt() -> redaction.Redaction:
            row = await self.service.row(session_id)
            where = (seq, signal) if event is None else await self._entry(row, event)
            if file is not None:
                where = None, (await self._files(row)._signal(file)).n
            taken = redaction.Taken(field=field, drawer=drawer, by=by, reason=reason)
            return await self._redact(row, field, value, *where, taken)

        return await self.service.retried(attempt, (HoldLost,))

    async def _redact(
        self,
        row: SessionRow,
        field: str | None,
        value: Any,
        seq: int | None,
        signal: int | None,
        taken: redaction.Taken,
    ) -> redaction.Redaction:
        line = fold(await self.service.store.records(row.key, row.key_frame, row.seq))
        work = redaction.Work(row, line, redaction.Carriers(), taken)
        if field is not None:
            await self._redact_field(work, field, value)
        elif seq is not None:
            await self._redact_record(work, seq)
        elif taken.drawer is not None:
            await self._redact_drawer(work, taken.drawer)
        else:
            assert signal is not None
            await self._redact_signal(work, signal)
        if not row.live:  # first, because what is redacted cannot be redacted again if this fails
            forget_stream(self.service, row.key, row.session_id, "then redact again. Nothing was redacted.")
        await self.service.store.revise(work.commit(self.service.clock.now()))
        self.service.driver.lines.drop(row.key)
        if work.files:
            await self._files(row)._forget(work.files)
        self.service.driver.on_change()
        return redaction.Redaction(tuple(sorted(work.found.seqs)), work.signals, await self.service.store.fold())

    async def _entry(self, row: SessionRow, cursor: str) -> tuple[int | None, int | None]:
        """Return the record or signal that an event comes from: the later of the two in its cursor."""
        at = history.Cursor.parse(cursor)
        if at.index or not at.signal:
            return at.seq + bool(at.index), None
        found = await self.service.store.signals(row.key, at.signal - 1)
        if found and found[0].after >= at.seq:
            return None, at.signal
        return at.seq, None

    async def _redact_field(self, work: redaction.Work, name: str, value: Any) -> None:
        workflow, state = self.service.workflow_of(work.row), work.line.state
        harmless: list[bytes] = []
        if work.line.version != workflow.version and name in workflow.shape.fields and name not in state.slots:
            raise StateRefused(
                f"Session {work.row.session_id!r} was stored by version {work.line.version} of {workflow.name!r}, which"
                f" has no field {shortened(name)}. Use a stored name ({', '.join(sorted(state.slots))}), or resume the"
                " session first to migrate it.",
                field=name,
            )
        if name in workflow.shape.fields:
            access = StateAccess(workflow, state.copy(), self.service.store, self.service.sizes)
            with suppress(StateRefused):
                harmless.append(_encoded(access, name, _default(access, name)))
            work.changes = await self._replacement(access, name, value, work)
            harmless += [bytes(change.value.data) for change in work.changes if isinstance(change.value, Inline)]
        elif name in state.slots and work.line.version != workflow.version:
            work.changes = (await self._emptied(state, name, value),)  # a later migration still reads it
        elif name in state.slots:  # stored before the model lost it
            state.carry({}, {}, (name,))
        is_current = work.line.version == workflow.version and name in workflow.shape.fields
        spared = {*workflow.outline}.difference(workflow.readers(name)) if is_current else set[str]()
        if work.line.step not in spared:
            work.forget_arguments()
        work.found = await redaction.carriers_of_field(self.service.store, work.row, name, harmless, spared)
        if name not in workflow.shape.fields and not work.found.has_field:
            raise StateRefused(
                f"No record of session {work.row.session_id!r} has a field {shortened(name)}"
                + did_you_mean(name, workflow.shape.fields),
                field=name,
            )

    async def _emptied(self, state: State, name: str, value: Any) -> Change:
        """Return the change that empties a field that only an older version has, judging its type by its JSON."""
        if value is not redaction.DEFAULT:
            return Change(name, "set", Inline(msgspec.Raw(encode(value, name, self.service.sizes))))
        if needed := state.needs([name]):
            state.provide(await self.service.store.blobs(needed))
        return Change(name, "set", Inline(msgspec.Raw(_EMPTY.get((state.read(name) or b"null")[:1], b"null"))))

    async def _replacement(
        self, access: StateAccess, name: str, value: Any, work: redaction.Work
    ) -> tuple[Change, ...]:
        """Return the validated changes that replace a field. For an older version, only the field itself is checked."""
        place, blobs = access.shape.fields[name], work.blobs
        value = _default(access, name) if value is redaction.DEFAULT else place.check(value)
        changes: tuple[Change, ...] = (Change(name, "set", stored(_encoded(access, name, value), blobs)),)
        if not access.shape.needs_whole or work.row.version != access.workflow.version:
            return changes
        access.fill_new_fields()
        return await access.validated_whole(changes, blobs)

    async def _redact_drawer(self, work: redaction.Work, name: str) -> None:
        known = [each.name for each in await self.service.store.drawers(work.row.session_id)]
        if name not in known:
            raise work.refusal(f"has no drawer {shortened(name)}" + did_you_mean(str(name), known))
        work.found = await redaction.carriers_of_records(self.service.store, work.row, ())

    async def _redact_record(self, work: redaction.Work, seq: int) -> None:
        row = work.row
        found = await self.service.store.records(row.key, seq, seq) if 1 <= seq <= row.seq else []
        if not found:
            raise work.refusal(f"has no record {seq}. Its log has the records 1 to {row.seq}.")
        (record,) = found
        if record.redacted:
            raise work.refusal(f"has no content in record {seq}: it was redacted before. Nothing was changed.")
        operation = operation_of(record)  # a rewind may have kept it, in a key frame
        is_kept = operation is not None and work.line.operations.get(operation.id) == operation
        if is_kept or (record.kind in ("operation", "wait") and seq > work.line.opened):
            raise work.refusal(
                f"still needs record {seq}: the open visit {work.line.step}#{work.line.visit} would run the operation"
                " again without it. Let the visit end, or rewind it, then redact the record."
            )
        if redaction.taken_by(body_of(record)) is not None:
            raise work.refusal(
                f"needs record {seq}: it lists what was redacted, and the log cannot be verified without it."
                " Redact another record."
            )
        work.found = await redaction.carriers_of_records(self.service.store, row, {seq}, operation)

    async def _redact_signal(self, work: redaction.Work, n: int) -> None:
        found = await self.service.store.signals(work.row.key, n - 1) if n >= 1 else []
        if not found:
            raise work.refusal(f"has no signal {n}. Check the number.")
        if found[0].redacted:
            raise work.refusal(f"has no content in signal {n}: it was redacted before. Nothing was changed.")
        work.signals = (n,)
        if found[0].kind == "file":
            work.files = (file_facts(found[0].payload),)
            work.line.chunked.pop(work.files[0].id, None)
        work.found = await redaction.carriers_of_records(self.service.store, work.row, ())
        if any(signal.n == n for signal in await self.service.store.mail(work.row.key)):
            work.consume = (n,)  # no step can read it any more

    # verification

    async def verify(self, *, on_progress: Callable[[Verification], None] | None = None) -> Verification:
        """Check the whole store for damage, and return what was found. Changes nothing."""
        return await self._inspector(on_progress).everything()

    async def verify_session(
        self, session_id: str, *, on_progress: Callable[[Verification], None] | None = None
    ) -> Verification:
        """Check one session for damage, and return what was found. Changes nothing."""
        return await self._inspector(on_progress).session(check_session_id(session_id))

    def _inspector(self, on_progress: Callable[[Verification], None] | None) -> Inspector:
        from pausepoint.engine.verify import Inspector  # programs that only run sessions do not need it

        self.service.check_open()
        return Inspector(self.service.store, on_progress or (lambda report: None))


def _default(access: StateAccess, name: str) -> Any:
    try:
        others = {each: None for each in access.shape.fields if each != name}
        return getattr(access.shape.build(others), name)
    except StateRefused as error:
        raise StateRefused(f"Field {name!r} has no default. Pass value= to replace it.", field=name) from error


def _encoded(access: StateAccess, name: str, value: Any) -> bytes:
    return access.shape.fields[name].typed.encode(value, name, access.limits)


def _children_first(removals: list[Removal]) -> list[Removal]:
    return sorted(removals, key=lambda removal: removal.key, reverse=True)


def forget_stream(service: Service, key: int, session_id: str, then: str = "then call engine.gc(apply=True).") -> None:
    """Delete the live stream of a session. Raises `StoreUnavailable` if the disk refuses it, and says what to do."""
    try:
        service.streams.forget(key)
    except OSError as exc:
        whose = f"session {session_id!r}" if session_id else "a session that no longer exists"
        raise StoreUnavailable(
            f"The live stream of {whose} cannot be deleted ({exc.strerror}). Check the permissions of the folder next"
            f" to the store whose name ends in -streams, {then}"
        ) from exc


async def clear_streams(service: Service, apply: bool) -> int:
    """Count the live streams of sessions that have ended or no longer exist; with ``apply``, delete them."""
    count = 0
    for key in await asyncio.to_thread(service.streams.present):
        await asyncio.sleep(0)  # there may be thousands, and sessions keep running
        found = await service.store.survey(key - 1, 1)
        row = found[0][2] if found and found[0][0] == key else None
        if isinstance(row, DamagedRecord) or (row is not None and row.ended is None):
            continue
        count += 1
        if apply:
            forget_stream(service, key, "" if row is None else row.session_id)
    return count
