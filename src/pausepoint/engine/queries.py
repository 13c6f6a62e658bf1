"""The verbs that read sessions: their facts, state, outcome and history. Nothing here writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast, get_args

from msgspec.structs import replace

from pausepoint.clock import to_datetime
from pausepoint.codec.values import as_plain, decode
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.base import Service, Until, check_until, standing_pause
from pausepoint.engine.filters import Statuses, When, check_limit, filter_of
from pausepoint.errors import (
    AmbiguousSession,
    DamagedRecord,
    DefinitionError,
    StateRefused,
    UnknownSession,
    did_you_mean,
)
from pausepoint.log import events as history
from pausepoint.log.access import StateAccess
from pausepoint.log.events import retries_of
from pausepoint.log.replay import KeyBody, Line, Origin, body_of, fold
from pausepoint.log.state import State
from pausepoint.log.versions import migrate_line
from pausepoint.model.cursors import from_cursor, to_cursor
from pausepoint.model.ids import KEPT, SessionId, check_strings, check_texts, is_session_id, shortened
from pausepoint.model.questions import Inquiry, Question, question_of
from pausepoint.model.records import Record
from pausepoint.model.sessions import Event, Filter, Level, Pause, QuestionStatus, SessionRow, Sort, Status
from pausepoint.model.stores import Tombstone
from pausepoint.model.views import (
    Checkpoint,
    Diff,
    Listing,
    Misfit,
    Obstacles,
    Outcome,
    Retrying,
    SessionInfo,
    StandingPause,
    StoredState,
)
from pausepoint.runtime.driver import Run, waited_for
from pausepoint.stores.found import Found
from pausepoint.threads import in_thread

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.engine.obstacles import Examiner
    from pausepoint.log.spans import Span

DECODED_HERE = 32 * 2**10
"""A state with more bytes is decoded on another thread. These take less than a millisecond."""

WINDOW, WIDEST = 256, 4096
"""The number of records of a log that are read at a time, and the most if many of them are read."""


class Queries:
    """The verbs that only read."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def info(self, session_id: str) -> SessionInfo:
        """Return a session's facts, such as status, position and cost, without reading its state."""
        self.service.check_open()
        return await self._info_of(await self.service.row(session_id))

    async def _info_of(self, row: SessionRow) -> SessionInfo:
        (info,) = await self.service.infos((row,))
        return info

    async def sessions(
        self, *, workflow: str | None = None, owner: str | None = None, tag: str | None = None,
        status: Statuses = None, failed: bool | None = None, since: When | None = None, until: When | None = None,
        prefix: str | None = None, text: str | None = None, parent: str | None = None, tree: str | None = None,
        level: Level = "any", sort: Sort = "created", reverse: bool = False, limit: int | None = None,
        after: str | None = None, own_pause: bool = False, queue: str | None = None,
    ) -> Listing[SessionInfo]:  # fmt: skip
        """Return the sessions that match, newest first. Unreadable ones are listed in ``damaged`` of the result."""
        self.service.check_open()
        if sort not in get_args(Sort):
            raise ValueError(f"{shortened(sort)} is not a sort of sessions{did_you_mean(str(sort), get_args(Sort))}")
        check_limit(limit, "sessions")
        check_texts(prefix=prefix, tree=tree)
        above = None if parent is None else (await self.service.row(parent)).key
        query = replace(
            filter_of(
                self.service.clock.now(), workflow=workflow, owner=owner, tag=tag, status=status, failed=failed,
                since=since, until=until, text=text, queue=queue,
            ),
            prefix=prefix, parent=above, session_id=tree, tree=tree is not None, level=level, sort=sort,
            reverse=reverse, limit=limit, own_pause=own_pause, after=from_cursor("sessions", sort, reverse, after),
        )  # fmt: skip
        found = await self.service.store.find(query)
        next = to_cursor("sessions", sort, reverse, found.next)
        return Listing(await self.service.infos(found), found.damaged, next=next)

    async def tally(
        self, *, workflow: str | None = None, owner: str | None = None, tag: str | None = None,
        status: Statuses = None, failed: bool | None = None, since: When | None = None, until: When | None = None,
        text: str | None = None, level: Level = "any", queue: str | None = None,
    ) -> dict[tuple[str, Status], int]:  # fmt: skip
        """Return the number of sessions that match, by workflow and status, without reading them."""
        self.service.check_open()
        query = filter_of(
            self.service.clock.now(), workflow=workflow, owner=owner, tag=tag, status=status, failed=failed,
            since=since, until=until, text=text, queue=queue,
        )  # fmt: skip
        return await self.service.store.tally(replace(query, level=level))

    async def find(self, beginning: str, *, exact: bool = False) -> SessionInfo:
        """Return the session whose id is, or begins with, what a person typed."""
        self.service.check_open()
        check_strings(beginning=beginning)
        row = await self.service.store.get(beginning) if is_session_id(beginning) else None
        if row is not None:
            return await self._info_of(row)
        if is_session_id(beginning) and (stones := await self.service.store.tombstones(beginning)):
            raise _removed(stones[-1])
        if not exact:
            return await self._find_beginning(beginning)
        near = await self._near(beginning)
        hint = "List the sessions with engine.sessions()." if near is None else f"Did you mean {near!r}?"
        raise UnknownSession(
            f"This store has no session {shortened(beginning)}. {hint}", session_id=beginning[:KEPT], near=near
        )

    async def _near(self, beginning: str) -> str | None:
        """Return the only id that begins with a text, also of a damaged session; None if there is none."""
        try:
            return str((await self._find_beginning(beginning)).session_id)
        except UnknownSession:
            return None
        except DamagedRecord as damage:
            return damage.fields.get("session_id")

    async def _find_beginning(self, beginning: str) -> SessionInfo:
        rows = await self.service.store.find(Filter(prefix=beginning)) if beginning else Found()
        if rows.damaged:
            raise rows.damaged[0]
        ids = {row.session_id for row in rows}
        above = [row for row in rows if row.parent_id not in ids]
        if len(above) == 1:
            return await self._info_of(above[0])
        if not rows:
            return await self._find_child(beginning)
        some = ", ".join(row.session_id for row in above[:10]) + (", …" if len(above) > 10 else "")
        raise AmbiguousSession(
            f"{len(above)} session ids begin with {beginning!r}: {some}. Type more of the id.",
            session_id=beginning, candidates=[row.session_id for row in above],
        )  # fmt: skip

    async def _find_child(self, beginning: str) -> SessionInfo:
        called_by, dot, rest = beginning.rpartition(".")
        if dot and is_session_id(beginning):
            with suppress(UnknownSession):
                whole = f"{(await self.find(called_by)).session_id}.{rest}"
                if whole != beginning:
                    return await self.find(whole)
        if is_session_id(beginning):
            await self.service.store.get(beginning, sure=True)
        raise UnknownSession(
            f"No session id begins with {shortened(beginning)}. List the sessions with engine.sessions().",
            session_id=beginning[:KEPT],
        )

    async def children(self, session_id: str) -> Listing[SessionInfo]:
        """Return the child sessions of a session, newest first."""
        self.service.check_open()
        found = await self.service.store.find(Filter(parent=(await self.service.row(session_id)).key))
        return Listing(await self.service.infos(found), found.damaged)

    async def state(self, session_id: str, at_checkpoint: int | str | None = None) -> BaseModel:
        """Return the session's state at its last checkpoint, or at an earlier one."""
        self.service.check_open()
        row = await self.service.row(session_id)
        return await self.state_of(self.service.workflow_of(row), row, at_checkpoint)

    async def stored(self, session_id: str, at_checkpoint: int | str | None = None) -> StoredState:
        """Return the stored state as plain JSON, without the workflow's code."""
        self.service.check_open()
        row = await self.service.row(session_id)
        seq, state = await self._state_at(row, at_checkpoint)
        if needed := state.needs(state.slots):
            state.provide(await self.service.store.blobs(needed))
        found = {name: state.read(name) or b"null" for name in state.slots}
        if sum(map(len, found.values())) > DECODED_HERE:
            values = await asyncio.to_thread(_plain, found)
        else:
            values = _plain(found)
        return StoredState(SessionId(row.session_id), seq, values)

    async def workflow_of(self, session_id: str) -> Workflow[Any]:
        """Return the definition of a session's workflow. Raises `DefinitionError` if it is not registered here."""
        self.service.check_open()
        return self.service.workflow_of(await self.service.row(session_id))

    async def outline(self, session_id: str) -> tuple[str, ...]:
        """Return the workflow's steps in order, as of the last run of the session, without the workflow's code."""
        self.service.check_open()
        line = await self.service.timeline(await self.service.row(session_id)).line()
        return tuple(line.outline)

    async def retries(self, session_id: str) -> list[Retrying]:
        """Return the operations of a session that wait to be retried, without the workflow's code."""
        self.service.check_open()
        row = await self.service.row(session_id)
        return retries_of(await self.service.timeline(row).line(), self.service.clock.now() if row.live else 0)

    async def state_of(
        self, workflow: Workflow[Any], row: SessionRow, at_checkpoint: int | str | None = None
    ) -> BaseModel:
        timeline = self.service.timeline(row)
        line = await timeline.line(None if at_checkpoint is None else await timeline.find(at_checkpoint))
        await migrate_line(workflow, line, self.service.store, self.service.sizes)
        return await self._built(workflow, line.state)

    async def _built(self, workflow: Workflow[Any], state: State) -> BaseModel:
        access = StateAccess(workflow, state, self.service.store, self.service.sizes)
        access.fill_new_fields()
        await access.prefetch()
        return cast("BaseModel", access.build())

    async def outcome(
        self, session_id: str, run: Run | None = None, *, wait: bool = True, until: Until = "parked"
    ) -> Outcome[Any]:
        """Wait until a session stops, or has ended, and return its outcome."""
        self.service.check_open()
        check_until(until)
        if wait and until == "ended":
            await self._wait_for_end(session_id, run)
        run = self.service.driver.runs.get(session_id, run) if wait else None
        with waited_for(run):
            if run is not None:
                await run.finished()
                if run.broken is not None:
                    raise run.broken
            row = await (self._unheld(session_id) if wait else self.service.row(session_id))
            state = await self._final_state(row, run)
        visits, took, usd = run.saved if run is not None else (0, 0, 0)
        pauses = await self.service.store.pauses(row.key) if row.pause_requested or row.open_pauses else []
        return Outcome(
            SessionId(row.session_id), row.status, tuple(pauses), row.failure,
            visits, timedelta(microseconds=took), usd / 1e6, row.spent_usd / 1e6, row.spent_tokens, state,
            await self._open_questions(row), self.service.workflow_of(row).returns, row.step,
        )  # fmt: skip

    async def _open_questions(self, row: SessionRow) -> tuple[Question, ...]:
        """Return the open questions of a session and its children. Reads nothing if the session does not wait."""
        if row.ended is not None or row.waiting is None:
            return ()
        now = self.service.clock.now()
        query = Inquiry(session_id=row.session_id, statuses=(QuestionStatus.WAITING,))
        found = await self.service.store.questions(query)
        for damage in found.damaged:
            raise damage
        return tuple(question_of(each, now) for each in found)

    async def _final_state(self, row: SessionRow, run: Run | None) -> BaseModel | StateRefused:
        workflow = self.service.workflow_of(row)
        final = None if run is None else run.final
        try:
            if final is not None and final[0] == row.seq and row.version == workflow.version:
                return await self._built(workflow, final[1])
            return await self.state_of(workflow, row)
        except StateRefused as error:
            return error

    async def _wait_for_end(self, session_id: str, run: Run | None) -> None:
        """Wait until a session has ended, until its run in this process is broken, or until this engine ends."""
        with self.service.driver.listening(session_id) as news:
            while True:
                run = self.service.driver.runs.get(session_id, run)
                if run is not None:
                    await run.finished()
                row = await self._unheld(session_id)
                is_broken = run is not None and run.broken is not None
                if row.ended is not None or is_broken or self.service.driver.released:
                    return
                self.service.workflow_of(row)  # raise now rather than after the wait
                await self.service.wait_for_change(news)

    async def _unheld(self, session_id: str) -> SessionRow:
        with self.service.driver.listening(session_id) as news:
            while True:
                row = await self.service.tended_row(session_id)
                if self.service.driver.released or not (row.live or await self.continues_on_its_own(row)):
                    return row
                self.service.workflow_of(row)  # raise now rather than after the wait
                await self.service.wait_for_change(news)

    async def continues_on_its_own(self, row: SessionRow) -> bool:
        """Return whether a parked session will continue on its own, because a timer runs or a child works."""
        if row.session_id in self.service.driver.fenced:
            return True
        if row.resumes_on_its_own:
            return not self.service.waker.skips(row)
        if row.status is not Status.WAITING or row.awaits_timer:
            return row.status is Status.WAITING
        if not row.awaits_child:
            return False
        tree = await self.service.store.find(Filter(session_id=row.session_id, tree=True, unended=True))
        if row not in tree:
            return True  # a child has ended since the row was read, and has reported to it
        return any(each.live or each.resumes_on_its_own for each in tree if each.key != row.key)

    async def _is_parked(self, row: SessionRow) -> bool:
        """Return whether the session does not run until someone acts. A wait for a person may have a time limit."""
        if row.live:
            return False
        waits = row.status is Status.WAITING and row.awaits_someone
        return waits or not await self.continues_on_its_own(row)

    async def pauses(self, session_id: str) -> list[Pause]:
        """Return the open pauses of a session: why it does not run."""
        self.service.check_open()
        return await self.service.store.pauses((await self.service.row(session_id)).key)

    async def standing_pause(self) -> StandingPause | None:
        """Return the pause of everything: who asked for it, why, and since when. None if it is not in effect."""
        self.service.check_open()
        return await standing_pause(self.service)

    async def obstacles(self, session_id: str) -> Obstacles:
        """Return why a resume would not run the session now. Changes nothing."""
        self.service.check_open()
        row = await self.service.row(session_id)
        line = fold(await self.service.store.records(row.key, row.key_frame))
        return await self.examiner(self.service.workflow_of(row), row, line).found(
            await self.service.store.pauses(row.key)
        )

    def examiner(self, workflow: Workflow[Any], row: SessionRow, line: Line) -> Examiner:
        from pausepoint.engine.obstacles import Examiner  # programs that only run sessions do not need it

        return Examiner(workflow, row, line, StateAccess(workflow, line.state, self.service.store, self.service.sizes))

    async def misfits(self, *, limit: int | None = None, after: str | None = None) -> Listing[Misfit]:
        """Return the parked sessions that cannot be resumed with the present code, and why."""
        self.service.check_open()
        check_limit(limit, "sessions")
        start = from_cursor("sessions", "created", False, after)
        found = await self.service.store.find(Filter(unended=True, limit=limit, after=start))
        next = to_cursor("sessions", "created", False, found.next)
        misfits = Listing[Misfit](damaged=found.damaged, next=next)
        for row in found:
            if row.guest and row.workflow not in self.service.workflows:
                continue  # a resume needs no code: the session's own program has it
            if not row.live and (wrong := await self._misfit(row)) is not None:
                misfits.append(Misfit(await self._info_of(row), wrong.reasons, wrong.ways))
            await asyncio.sleep(0)  # other tasks get a turn
        return misfits

    async def _misfit(self, row: SessionRow) -> Obstacles | None:
        """Return why a session cannot be resumed and what to do about it; None if it can."""
        try:
            line = fold(await self.service.store.records(row.key, row.key_frame))
            return await self.misfit_of(self.service.workflow_of(row), line)
        except (DefinitionError, DamagedRecord) as error:
            return Obstacles((str(error),))

    async def misfit_of(self, workflow: Workflow[Any], line: Line) -> Obstacles | None:
        from pausepoint.engine.obstacles import misfit_of  # programs that only run sessions do not need it

        return await misfit_of(
            workflow, line, StateAccess(workflow, line.state, self.service.store, self.service.sizes)
        )

    async def checkpoints(
        self, session_id: str, *, before: int | None = None, limit: int | None = 100
    ) -> list[Checkpoint]:
        """Return the checkpoints of the last finished visits, newest last. Those undone by a rewind are marked."""
        self.service.check_open()
        check_limit(limit, "checkpoints")
        return await self.service.timeline(await self.service.row(session_id)).checkpoints(before, limit)

    async def spans(
        self, session_id: str, *, before: int | None = None, at: int | str | None = None, limit: int = 100
    ) -> list[Span]:
        """Return the session's last visits with their operations, waits, retries and cost, oldest first."""
        from pausepoint.engine.spans import spans_from, spans_of  # programs that only run sessions do not need it

        self.service.check_open()
        check_limit(limit, "visits")
        if before is not None and at is not None:
            raise ValueError("spans() takes before= or at=, not both: the page ends before a visit or begins with one.")
        row = await self.service.row(session_id)
        timeline = self.service.timeline(row)
        if at is not None:
            return await spans_from(self.service.store, timeline, row, at, limit)
        return await spans_of(self.service.store, timeline, row, before, limit)

    async def diff(
        self, session_id: str, a: int | str | None = None, b: int | str | None = None, *, other: str | None = None
    ) -> Diff:
        """Compare the state at two checkpoints, given as for `state`. None means now."""
        from pausepoint.log.diff import Comparison  # programs that only run sessions do not need it

        self.service.check_open()
        if a is None and other is None:
            raise ValueError("Name a checkpoint to compare with, or pass other= to compare two sessions.")
        row = await self.service.row(session_id)
        second = row if other is None else await self.service.row(other)
        (seq_a, state_a), (seq_b, state_b) = await self._state_at(row, a), await self._state_at(second, b)
        found = Comparison(state_a, state_b)
        while needed := await in_thread(found.needs):  # it may decode and compare large values
            found.provide(await self.service.store.blobs(needed))
        changes = await in_thread(lambda: tuple(found.changes()))
        other_id = None if other is None else SessionId(second.session_id)
        return Diff(SessionId(row.session_id), seq_a, seq_b, changes, other_id)

    async def _state_at(self, row: SessionRow, at_checkpoint: int | str | None) -> tuple[int, State]:
        timeline = self.service.timeline(row)
        seq = row.seq if at_checkpoint is None else await timeline.find(at_checkpoint)
        return seq, (await timeline.line(seq)).state

    async def origin(self, session_id: str) -> Origin | None:
        """Return what a fork comes from; None if the session is not a fork, or if its first record was redacted."""
        self.service.check_open()
        (first,) = await self.service.store.records((await self.service.row(session_id)).key, 1, 1)
        if first.redacted:  # the session can still be read
            return None
        body: KeyBody = body_of(first)
        return body.origin

    async def events(
        self, session_id: str, after: str = "", *, follow: bool = False, until: Until = "ended"
    ) -> AsyncIterator[Event]:
        """Yield a session's events after a cursor. With ``follow``, keep yielding new ones until the session ends."""
        events = self._stored_events(session_id, after, follow, until)
        try:
            async for event in events:
                after = event.cursor or after
                yield event
        except UnknownSession:
            last = await self._last_event(session_id)
            if last is None:
                raise
            if not after or history.Cursor.parse(after).seq < history.Cursor.parse(last.cursor).seq:
                yield last
        finally:
            await events.aclose()

    async def _last_event(self, session_id: str) -> Event | None:
        if any(removal.tombstone.session_id == session_id for removal in await self.service.store.removing()):
            return None
        stones = await self.service.store.tombstones(session_id)
        return history.of_tombstone(stones[-1]) if stones else None

    async def _stored_events(
        self, session_id: str, after: str, follow: bool, until: Until
    ) -> AsyncGenerator[Event, None]:  # fmt: skip
        """Yield the events of a session that is in the store."""
        self.service.check_open()
        check_until(until)
        cursor = history.Cursor.parse(after) if after else history.Cursor()
        progress: tuple[int, int] | None = None
        with self.service.driver.listening(session_id) as news:
            while True:
                last = self.service.driver.released
                row = await self.service.row(session_id)
                async with aclosing(self._events_since(row, cursor)) as found:
                    async for event in found:
                        cursor = history.Cursor.parse(event.cursor)
                        yield event
                if not follow or last or row.ended is not None:
                    return
                if until == "parked" and await self._is_parked(row):
                    return
                drive = self.service.driver.drive(session_id)
                shown = drive.ledger.progress if drive is not None else row.progress
                if shown is not None and shown != progress:
                    progress = shown
                    done, total = shown
                    data = {"done": done, "total": total}
                    now = self.service.clock.now()
                    yield Event("", session_id, now, row.step or "", "progress", f"{done}/{total}", data)
                await self.service.wait_for_change(news)

    async def watch(self, session_id: str) -> AsyncGenerator[SessionInfo, None]:
        """Yield a session's facts now and whenever they may have changed, until the session has ended."""
        self.service.check_open()
        with self.service.driver.listening(session_id) as news:
            while True:
                last = self.service.driver.released
                row = await self.service.row(session_id)
                yield await self._info_of(row)
                if last or row.ended is not None:
                    return
                await self.service.wait_for_change(news)

    async def last_event(self, session_id: str, event_type: str, *, since: int | None = None) -> Event | None:
        """Return the last event of a type that `emit` or a step added; None if there is none."""
        self.service.check_open()
        row = await self.service.row(session_id)
        until = row.seq
        while until > 0:
            first = max(1, until - WINDOW + 1)
            for record in reversed(await self.service.store.records(row.key, first, until)):
                if since is not None and record.at < since:
                    return None
                for event in reversed(self._events_of(row, record)):
                    if event.event_type == event_type:
                        return await self._with_cursor(row, record, event)
            until = first - 1
        return None

    def _events_of(self, row: SessionRow, record: Record, signal: int = 0) -> list[Event]:
        cursor = history.Cursor(record.seq - 1, signal)
        return [] if record.redacted else list(history.events(row.session_id, cursor, [record], []))

    async def _with_cursor(self, row: SessionRow, record: Record, event: Event) -> Event:
        """Give an event the cursor that a reader of the whole history sees: it also counts signals."""
        before = [signal.n for signal in await self.service.store.signals(row.key, 0) if signal.after < record.seq]
        found = self._events_of(row, record, max(before, default=0))
        return next(each for each in reversed(found) if each.event_type == event.event_type)

    async def _events_since(self, row: SessionRow, cursor: history.Cursor) -> AsyncGenerator[Event, None]:
        """Yield the events up to record ``row.seq``, from a few records at a time: a log may be long."""
        # Signals first: those that arrived after record row.seq belong to the next read.
        read = await self.service.store.signals(row.key, cursor.signal) if row.signals != cursor.signal else ()
        signals = [signal for signal in read if signal.after <= row.seq]
        size = WINDOW
        while signals or cursor.seq < row.seq:
            until = min(cursor.seq + size, row.seq)
            size = min(2 * size, WIDEST)  # a store may have to walk back from the end of a step for every read
            records = await self.service.store.records(row.key, cursor.seq + 1, until) if cursor.seq < until else []
            due = [signal for signal in signals if signal.after <= until]
            for event in history.events(row.session_id, cursor, records, due):
                yield event
            signals = signals[len(due) :]
            cursor = history.Cursor(until, due[-1].n if due else cursor.signal)


def _removed(stone: Tombstone) -> UnknownSession:
    when = to_datetime(stone.removed_at).isoformat(timespec="seconds")
    return UnknownSession(
        f"Session {stone.session_id!r} was removed at {when}. List the sessions with engine.sessions().",
        session_id=stone.session_id,
    )


def _plain(fields: dict[str, bytes]) -> dict[str, Any]:
    return {name: as_plain(decode(data)) for name, data in fields.items()}
