"""The verbs that read sessions: their facts, state, outcome and history. Nothing here writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast, get_args

from msgspec.structs import replace

from pausepoint.codec.values import as_plain, decode
from pausepoint.definition.steps import as_names
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.base import Until
from pausepoint.engine.filters import Statuses, When, filter_of
from pausepoint.engine.overview import Overview
from pausepoint.engine.standstill import standing_pause
from pausepoint.engine.streams import follow_stream
from pausepoint.errors import (
    AmbiguousSession,
    DamagedRecord,
    DefinitionError,
    StateRefused,
    StoreUnavailable,
    UnknownSession,
    did_you_mean,
)
from pausepoint.log import events as history
from pausepoint.log.access import StateAccess
from pausepoint.log.events import retries_of
from pausepoint.log.replay import KeyBody, Line, Origin, body_of, fold
from pausepoint.log.state import State
from pausepoint.log.timeline import Timeline
from pausepoint.log.versions import migrate_line
from pausepoint.model.cursors import from_cursor, to_cursor
from pausepoint.model.ids import SessionId, is_session_id
from pausepoint.model.questions import Inquiry, Question, question_of
from pausepoint.model.records import Record
from pausepoint.model.sessions import Event, Filter, Level, Pause, QuestionStatus, SessionRow, Sort, Status
from pausepoint.model.streams import StreamItem
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
    from pausepoint.engine.plan import Plan
    from pausepoint.log.spans import Span

DECODED_HERE = 32 * 2**10
"""A state with more bytes is decoded on another thread. These take less than a millisecond."""

WINDOW, WIDEST = 256, 4096
"""The number of records of a log that are read at a time, and the most if many of them are read."""


class Queries(Overview):
    """The verbs that only read."""

    async def info(self, session_id: str) -> SessionInfo:
        """Return a session's facts, such as status, position and cost, without reading its state.

        Raises `UnknownSession` if there is no session with this id.
        """
        self._check_open()
        return await self._info_of(await self._row(session_id))

    async def _info_of(self, row: SessionRow) -> SessionInfo:
        (info,) = await self._infos((row,))
        return info

    async def sessions(
        self, *, workflow: str | None = None, owner: str | None = None, tag: str | None = None,
        status: Statuses = None, failed: bool | None = None, since: When | None = None, until: When | None = None,
        prefix: str | None = None, text: str | None = None, parent: str | None = None, tree: str | None = None,
        level: Level = "any", sort: Sort = "created", reverse: bool = False, limit: int | None = None,
        after: str | None = None, own_pause: bool = False,
    ) -> Listing[SessionInfo]:  # fmt: skip
        """Return the sessions that match, newest first. Unreadable ones are listed in ``damaged`` of the result.

        - ``workflow``, ``owner``, ``tag``, ``status``: filters. ``status`` may be one status or several.
        - ``failed``: only sessions that have failed, or only others. A failed session that is paused has the status
          ``paused``, so ``status="failed"`` does not find it.
        - ``since``, ``until``: only sessions that were last updated in this time. Pass a datetime with a time zone, or
          a timedelta for a time ago.
        - ``prefix``: the beginning of the id.
        - ``text``: a part of the id, the owner, a tag, the type or message of the failure, or the reason of an open
          pause. ``%`` and ``_`` are ordinary characters. The letters A to Z match in both cases. All sessions that the
          other filters leave are read for it.
        - ``parent``: the id of a session, to list only its children. ``tree``: the id of a session, to list it with
          all its descendants.
        - ``level``: ``"root"`` leaves out all children; ``"top"`` leaves out children whose parent matches too.
        - ``sort``: ``"created"``, ``"updated"``, ``"workflow"``, ``"spent"`` or ``"id"``. ``reverse`` turns the order
          around.
        - ``limit``: the most sessions to read and return. If there are more, ``next`` of the result is a cursor.
        - ``after``: a cursor, to return the next page. Pass the same sort and filters. Sessions that are created or
          removed meanwhile move no other session to another page. Sorted by ``"updated"`` or ``"spent"``, a session
          that changes moves in the list and may appear on two pages or on none. Raises `ValueError` for a text that is
          not a cursor of such a list.
        - ``own_pause``: only unended sessions that have a pause of their own. While everything is paused,
          ``status="paused"`` finds all that it stops.
        """
        self._check_open()
        if sort not in get_args(Sort):
            raise ValueError(f"{sort!r} is not a sort of sessions{did_you_mean(str(sort), get_args(Sort))}")
        if limit is not None and limit < 0:
            raise ValueError(f"limit must be a number of sessions, 0 or more, or None for all, not {limit}.")
        above = None if parent is None else (await self._row(parent)).key
        query = replace(
            filter_of(
                self.clock.now(), workflow=workflow, owner=owner, tag=tag, status=status, failed=failed, since=since,
                until=until, text=text,
            ),
            prefix=prefix, parent=above, session_id=tree, tree=tree is not None, level=level, sort=sort,
            reverse=reverse, limit=limit, own_pause=own_pause, after=from_cursor("sessions", sort, reverse, after),
        )  # fmt: skip
        found = await self.store.find(query)
        next = to_cursor("sessions", sort, reverse, found.next)
        return Listing(await self._infos(found), found.damaged, next=next)

    async def tally(
        self, *, workflow: str | None = None, owner: str | None = None, tag: str | None = None,
        status: Statuses = None, failed: bool | None = None, since: When | None = None, until: When | None = None,
        text: str | None = None, level: Level = "any",
    ) -> dict[tuple[str, Status], int]:  # fmt: skip
        """Return the number of sessions that match, by workflow and status, without reading them.

        The filters are those of `sessions`.
        """
        self._check_open()
        query = filter_of(
            self.clock.now(), workflow=workflow, owner=owner, tag=tag, status=status, failed=failed, since=since,
            until=until, text=text,
        )  # fmt: skip
        return await self.store.tally(replace(query, level=level))

    async def find(self, beginning: str) -> SessionInfo:
        """Return the session whose id is, or begins with, what a person typed.

        A child's id begins with its parent's id; if both match, the parent is returned. Both parts of a child's id may
        be shortened: ``k3f9.8348``. Raises `UnknownSession`, or `AmbiguousSession` with the candidates.
        """
        self._check_open()
        row = await self.store.get(beginning) if is_session_id(beginning) else None
        if row is not None:
            return await self._info_of(row)
        rows = await self.store.find(Filter(prefix=beginning)) if beginning else Found()
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
        if dot:
            with suppress(UnknownSession):
                whole = f"{(await self.find(called_by)).session_id}.{rest}"
                if whole != beginning:
                    return await self.find(whole)
        if is_session_id(beginning):
            await self.store.get(beginning, sure=True)
        raise UnknownSession(
            f"No session id begins with {beginning!r}. List the sessions with engine.sessions().", session_id=beginning
        )

    async def children(self, session_id: str) -> Listing[SessionInfo]:
        """Return the child sessions of a session, newest first."""
        self._check_open()
        found = await self.store.find(Filter(parent=(await self._row(session_id)).key))
        return Listing(await self._infos(found), found.damaged)

    async def state(self, session_id: str, at_checkpoint: int | str | None = None) -> BaseModel:
        """Return the session's state at its last checkpoint, or at an earlier one.

        ``at_checkpoint`` is a visit (``"write#2"``, or ``"write"`` for the last one) or the number of any record of the
        log. The workflow must be registered; use `stored` if it is not. Raises `UnknownCheckpoint` if there is no such
        checkpoint, and `StateRefused` if the model does not accept the stored state.
        """
        self._check_open()
        row = await self._row(session_id)
        return await self._state(self._workflow_of(row), row, at_checkpoint)

    async def stored(self, session_id: str, at_checkpoint: int | str | None = None) -> StoredState:
        """Return the stored state as plain JSON, without the workflow's code.

        ``at_checkpoint`` is as for `state`.
        """
        self._check_open()
        row = await self._row(session_id)
        seq, state = await self._state_at(row, at_checkpoint)
        if needed := state.needs(state.slots):
            state.provide(await self.store.blobs(needed))
        found = {name: state.read(name) or b"null" for name in state.slots}
        if sum(map(len, found.values())) > DECODED_HERE:
            values = await asyncio.to_thread(_plain, found)
        else:
            values = _plain(found)
        return StoredState(SessionId(row.session_id), seq, values)

    async def workflow_of(self, session_id: str) -> Workflow[Any]:
        """Return the definition of a session's workflow. Raises `DefinitionError` if it is not registered here."""
        self._check_open()
        return self._workflow_of(await self._row(session_id))

    async def outline(self, session_id: str) -> tuple[str, ...]:
        """Return the workflow's steps in order, as of the last run of the session, without the workflow's code."""
        self._check_open()
        line = await self._timeline(await self._row(session_id)).line()
        return tuple(line.outline)

    async def retries(self, session_id: str) -> list[Retrying]:
        """Return the operations of a session that wait to be retried, without the workflow's code."""
        self._check_open()
        row = await self._row(session_id)
        return retries_of(await self._timeline(row).line(), self.clock.now() if row.live else 0)

    async def _state(
        self, workflow: Workflow[Any], row: SessionRow, at_checkpoint: int | str | None = None
    ) -> BaseModel:
        timeline = self._timeline(row)
        line = await timeline.line(None if at_checkpoint is None else await timeline.find(at_checkpoint))
        await migrate_line(workflow, line, self.store, self.limits)
        return await self._built(workflow, line.state)

    def _timeline(self, row: SessionRow) -> Timeline:
        workflow = self.workflows.get(row.workflow)
        return Timeline(self.store, row, {} if workflow is None else workflow.renamed)

    async def _built(self, workflow: Workflow[Any], state: State) -> BaseModel:
        access = StateAccess(workflow, state, self.store, self.limits)
        access.fill_new_fields()
        await access.prefetch()
        return cast("BaseModel", access.build())

    async def outcome(self, session_id: str, run: Run | None = None, *, wait: bool = True) -> Outcome[Any]:
        """Wait until a session stops, and return its outcome.

        A session has stopped when it has ended, is paused, or waits for a message or an answer. While a timer runs or a
        child works, this keeps waiting. If this engine could not continue driving, it raises the error that broke the
        drive. If a signal to a server stops the engine, the outcome has the session's status at that time.

        ``wait=False`` returns the present outcome immediately, whatever the session does.
        """
        self._check_open()
        run = self.driver.runs.get(session_id, run) if wait else None
        with waited_for(run):
            if run is not None:
                await run.finished()
                if run.broken is not None:
                    raise run.broken
            row = await (self._unheld(session_id) if wait else self._row(session_id))
            state = await self._final_state(row, run)
        visits, took, usd = run.saved if run is not None else (0, 0, 0)
        pauses = await self.store.pauses(row.key) if row.pause_requested or row.open_pauses else []
        return Outcome(
            SessionId(row.session_id), row.status, tuple(pauses), row.failure,
            visits, timedelta(microseconds=took), usd / 1e6, row.spent_usd / 1e6, row.spent_tokens, state,
            await self._open_questions(row), self._workflow_of(row).returns,
        )  # fmt: skip

    async def _open_questions(self, row: SessionRow) -> tuple[Question, ...]:
        """Return the open questions of a session and its children. Reads nothing if the session does not wait."""
        if row.ended is not None or row.waiting is None:
            return ()
        now = self.clock.now()
        query = Inquiry(session_id=row.session_id, statuses=(QuestionStatus.WAITING,))
        found = await self.store.questions(query)
        for damage in found.damaged:
            raise damage
        return tuple(question_of(each, now) for each in found)

    async def _final_state(self, row: SessionRow, run: Run | None) -> BaseModel | StateRefused:
        workflow = self._workflow_of(row)
        final = None if run is None else run.final
        try:
            if final is not None and final[0] == row.seq and row.version == workflow.version:
                return await self._built(workflow, final[1])
            return await self._state(workflow, row)
        except StateRefused as error:
            return error

    async def _unheld(self, session_id: str) -> SessionRow:
        with self.driver.listening(session_id) as news:
            while True:
                row = await self._row(session_id)
                if self.driver.is_stranded(row):
                    raise self.driver.troubles.get(session_id) or _undriven(row)
                if self.driver.released or not (row.live or await self._continues_on_its_own(row)):
                    return row
                self._workflow_of(row)  # raise now rather than after the wait
                await self._wait_for_change(news)

    async def _continues_on_its_own(self, row: SessionRow) -> bool:
        """Return whether a parked session will continue on its own, because a timer runs or a child works."""
        if row.resumes_on_its_own:
            return not self.waker.skips(row)
        if row.status is not Status.WAITING or row.awaits_timer:
            return row.status is Status.WAITING
        if not row.awaits_child:
            return False
        tree = await self.store.find(Filter(session_id=row.session_id, tree=True, unended=True))
        if row not in tree:
            return True  # a child has ended since the row was read, and has reported to it
        return any(each.live or each.resumes_on_its_own for each in tree if each.key != row.key)

    async def _is_parked(self, row: SessionRow) -> bool:
        """Return whether the session does not run until someone acts. A wait for a person may have a time limit."""
        if row.live:
            return False
        waits = row.status is Status.WAITING and row.awaits_someone
        return waits or not await self._continues_on_its_own(row)

    async def pauses(self, session_id: str) -> list[Pause]:
        """Return the open pauses of a session: why it does not run."""
        self._check_open()
        return await self.store.pauses((await self._row(session_id)).key)

    async def standing_pause(self) -> StandingPause | None:
        """Return the pause of everything: who asked for it, why, and since when. None if it is not in effect.

        It also tells how the pause took effect: how many sessions ran and were asked to stop, how many have stopped,
        what the others still finish, and the longest time that one took.
        """
        self._check_open()
        return await standing_pause(self)

    async def plan(self, session_id: str, *, rerun: str | Sequence[str] = (), wake: bool = False) -> Plan:
        """Return what a resume would do with each step, and why. Runs and changes nothing.

        ``rerun`` and ``wake`` are as for `resume`.
        """
        self._check_open()
        row = await self._row(session_id)
        row = replace(row, wakes_at=0) if wake else row
        workflow = self._workflow_of(row)
        line = fold(await self.store.records(row.key, row.key_frame))
        return await self._planned(workflow, row, line, await self.store.pauses(row.key), as_names(rerun))

    async def _planned(
        self, workflow: Workflow[Any], row: SessionRow, line: Line, pauses: list[Pause], rerun: Sequence[str] = ()
    ) -> Plan:
        from pausepoint.engine.operations import item_ids  # programs that only run sessions do not need them
        from pausepoint.engine.plan import make_plan

        found = await self._examiner(workflow, row, line).found(pauses)
        maps = await item_ids(self.store, line)
        return make_plan(workflow, row, line, pauses, found.reasons, self.clock.now(), maps)

    async def obstacles(self, session_id: str) -> Obstacles:
        """Return why a resume would not run the session now. Changes nothing.

        Stored pauses are tested again, as a resume does: with the present code, state and budget.
        """
        self._check_open()
        row = await self._row(session_id)
        line = fold(await self.store.records(row.key, row.key_frame))
        return await self._examiner(self._workflow_of(row), row, line).found(await self.store.pauses(row.key))

    def _examiner(self, workflow: Workflow[Any], row: SessionRow, line: Line) -> Examiner:
        from pausepoint.engine.obstacles import Examiner  # programs that only run sessions do not need it

        return Examiner(workflow, row, line, StateAccess(workflow, line.state, self.store, self.limits))

    async def misfits(self, *, limit: int | None = None, after: str | None = None) -> Listing[Misfit]:
        """Return the parked sessions that cannot be resumed with the present code, and why.

        Changes nothing: migrations are tried in memory. Reads each session's records from its last key frame on.
        ``limit`` is the most sessions to examine, newest first. If there are more, ``next`` of the result is a cursor;
        pass it as ``after`` to examine the next ones.
        """
        self._check_open()
        if limit is not None and limit < 0:
            raise ValueError(f"limit must be a number of sessions, 0 or more, or None for all, not {limit}.")
        start = from_cursor("sessions", "created", False, after)
        found = await self.store.find(Filter(unended=True, limit=limit, after=start))
        next = to_cursor("sessions", "created", False, found.next)
        misfits = Listing[Misfit](damaged=found.damaged, next=next)
        for row in found:
            if row.guest and row.workflow not in self.workflows:
                continue  # a resume needs no code: the session's own program has it
            if not row.live and (wrong := await self._misfit(row)) is not None:
                misfits.append(Misfit(await self._info_of(row), wrong.reasons, wrong.ways))
            await asyncio.sleep(0)  # other tasks get a turn
        return misfits

    async def _misfit(self, row: SessionRow) -> Obstacles | None:
        """Return why a session cannot be resumed and what to do about it; None if it can."""
        try:
            line = fold(await self.store.records(row.key, row.key_frame))
            return await self._misfit_of(self._workflow_of(row), line)
        except (DefinitionError, DamagedRecord) as error:
            return Obstacles((str(error),))

    async def _misfit_of(self, workflow: Workflow[Any], line: Line) -> Obstacles | None:
        from pausepoint.engine.obstacles import misfit_of  # programs that only run sessions do not need it

        return await misfit_of(workflow, line, StateAccess(workflow, line.state, self.store, self.limits))

    async def checkpoints(
        self, session_id: str, *, before: int | None = None, limit: int | None = 100
    ) -> list[Checkpoint]:
        """Return the checkpoints of the last finished visits, newest last. Those undone by a rewind are marked.

        To page backwards, pass the ``seq`` of the first checkpoint you have as ``before``. ``limit=None`` returns all.
        """
        self._check_open()
        if limit is not None and limit < 0:
            raise ValueError(f"limit must be a number of checkpoints, 0 or more, or None for all, not {limit}.")
        return await self._timeline(await self._row(session_id)).checkpoints(before, limit)

    async def spans(self, session_id: str, *, before: int | None = None, limit: int = 100) -> list[Span]:
        """Return the session's last visits with their operations, waits, retries and cost, oldest first.

        Visits that a rewind left behind are marked. The open visit comes last. To page backwards, pass the ``seq`` of
        the first visit you have as ``before``. The cost follows the page, not the length of the log.
        """
        from pausepoint.engine.spans import spans_of  # programs that only run sessions do not need it

        self._check_open()
        if limit < 0:
            raise ValueError(f"limit must be a number of visits, 0 or more, not {limit}.")
        row = await self._row(session_id)
        return await spans_of(self.store, self._timeline(row), row, before, limit)

    async def diff(
        self, session_id: str, a: int | str | None = None, b: int | str | None = None, *, other: str | None = None
    ) -> Diff:
        """Compare the state at two checkpoints, given as for `state`. None means now.

        Pass ``other=`` to compare with another session, such as a fork: ``b`` is then a checkpoint of that one.
        Stored values are compared, so the two states may be of different versions of the workflow.
        """
        from pausepoint.log.diff import Comparison  # programs that only run sessions do not need it

        self._check_open()
        if a is None and other is None:
            raise ValueError("Name a checkpoint to compare with, or pass other= to compare two sessions.")
        row = await self._row(session_id)
        second = row if other is None else await self._row(other)
        (seq_a, state_a), (seq_b, state_b) = await self._state_at(row, a), await self._state_at(second, b)
        found = Comparison(state_a, state_b)
        while needed := await in_thread(found.needs):  # it may decode and compare large values
            found.provide(await self.store.blobs(needed))
        changes = await in_thread(lambda: tuple(found.changes()))
        other_id = None if other is None else SessionId(second.session_id)
        return Diff(SessionId(row.session_id), seq_a, seq_b, changes, other_id)

    async def _state_at(self, row: SessionRow, at_checkpoint: int | str | None) -> tuple[int, State]:
        timeline = self._timeline(row)
        seq = row.seq if at_checkpoint is None else await timeline.find(at_checkpoint)
        return seq, (await timeline.line(seq)).state

    async def origin(self, session_id: str) -> Origin | None:
        """Return the session and checkpoint that a fork comes from; None if the session is not a fork."""
        self._check_open()
        (first,) = await self.store.records((await self._row(session_id)).key, 1, 1)
        body: KeyBody = body_of(first)
        return body.origin

    async def events(
        self, session_id: str, after: str = "", *, follow: bool = False, until: Until = "ended"
    ) -> AsyncIterator[Event]:
        """Yield the session's events after a cursor. `Engine.events` describes the options."""
        self._check_open()
        if until not in get_args(Until):
            raise ValueError(f"until must be 'ended' or 'parked', not {until!r}.")
        cursor = history.Cursor.parse(after) if after else history.Cursor()
        progress: tuple[int, int] | None = None
        with self.driver.listening(session_id) as news:
            while True:
                last = self.driver.released
                row = await self._row(session_id)
                async with aclosing(self._events_since(row, cursor)) as found:
                    async for event in found:
                        cursor = history.Cursor.parse(event.cursor)
                        yield event
                if not follow or last or row.ended is not None:
                    return
                if until == "parked" and await self._is_parked(row):
                    return
                drive = self.driver.drive(session_id)
                shown = drive.ledger.progress if drive is not None else row.progress
                if shown is not None and shown != progress:
                    progress = shown
                    done, total = shown
                    data = {"done": done, "total": total}
                    now = self.clock.now()
                    yield Event("", session_id, now, row.step or "", "progress", f"{done}/{total}", data)
                await self._wait_for_change(news)

    async def watch(self, session_id: str) -> AsyncGenerator[SessionInfo, None]:
        """Yield a session's facts now and whenever they may have changed, until the session has ended.

        Another process may change the session without notifying this one, so it is also checked every second.
        """
        self._check_open()
        with self.driver.listening(session_id) as news:
            while True:
                last = self.driver.released
                row = await self._row(session_id)
                yield await self._info_of(row)
                if last or row.ended is not None:
                    return
                await self._wait_for_change(news)

    async def stream(
        self, session_id: str, after: int | None = 0, *, follow: bool = True, until: Until = "parked"
    ) -> AsyncIterator[StreamItem]:
        """Yield the live output that the session's steps send with ``ctx.stream``, in this process or another.

        The stream begins with what is still there, at most 256 KiB. ``after`` is the ``n`` of the last item you have
        seen; None leaves out what was sent before this call. Besides chunks, it yields a `Restarted` when operations
        run again, and their text so far is void, and a `Gap` if items were lost.

        It ends when the session stops, as `outcome` defines it; with ``until="ended"``, only when the session has
        ended. With ``follow=False``, it ends when everything that was sent so far has been read.
        """
        self._check_open()
        async for item in follow_stream(self, session_id, after, follow, until):
            yield item

    async def last_event(self, session_id: str, event_type: str) -> Event | None:
        """Return the last event of a type that `emit` or a step added; None if there is none."""
        self._check_open()
        row = await self._row(session_id)
        until = row.seq
        while until > 0:
            since = max(1, until - WINDOW + 1)
            for record in reversed(await self.store.records(row.key, since, until)):
                for event in reversed(self._events_of(row, record)):
                    if event.event_type == event_type:
                        return await self._with_cursor(row, record, event)
            until = since - 1
        return None

    def _events_of(self, row: SessionRow, record: Record, signal: int = 0) -> list[Event]:
        cursor = history.Cursor(record.seq - 1, signal)
        return [] if record.redacted else list(history.events(row.session_id, cursor, [record], []))

    async def _with_cursor(self, row: SessionRow, record: Record, event: Event) -> Event:
        """Give an event the cursor that a reader of the whole history sees: it also counts signals."""
        before = [signal.n for signal in await self.store.signals(row.key, 0) if signal.after < record.seq]
        found = self._events_of(row, record, max(before, default=0))
        return next(each for each in reversed(found) if each.event_type == event.event_type)

    async def _events_since(self, row: SessionRow, cursor: history.Cursor) -> AsyncGenerator[Event, None]:
        """Yield the events up to record ``row.seq``, from a few records at a time: a log may be long."""
        # Signals first: those that arrived after record row.seq belong to the next read.
        signals = [signal for signal in await self.store.signals(row.key, cursor.signal) if signal.after <= row.seq]
        size = WINDOW
        while signals or cursor.seq < row.seq:
            until = min(cursor.seq + size, row.seq)
            size = min(2 * size, WIDEST)  # a store may have to walk back from the end of a step for every read
            records = await self.store.records(row.key, cursor.seq + 1, until) if cursor.seq < until else []
            due = [signal for signal in signals if signal.after <= until]
            for event in history.events(row.session_id, cursor, records, due):
                yield event
            signals = signals[len(due) :]
            cursor = history.Cursor(until, due[-1].n if due else cursor.signal)


def _plain(fields: dict[str, bytes]) -> dict[str, Any]:
    return {name: as_plain(decode(data)) for name, data in fields.items()}


def _undriven(row: SessionRow) -> StoreUnavailable:
    return StoreUnavailable(
        f"Session {row.session_id!r} is held by this engine but not driven, because the store failed to release it."
        f" Resume it with engine.resume({row.session_id!r})."
    )
