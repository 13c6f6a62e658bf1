"""Keeps track of the sessions that this process drives, and notifies their listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pausepoint.errors import DamagedRecord, HoldLost, StoreError
from pausepoint.log.lines import ParkedLines
from pausepoint.log.state import State
from pausepoint.model.commits import Flags
from pausepoint.model.sessions import SessionRow
from pausepoint.name import NAME
from pausepoint.runtime.drive import Drive
from pausepoint.runtime.lease import LeaseGuard
from pausepoint.runtime.listeners import Listeners
from pausepoint.stores.base import Store

if TYPE_CHECKING:
    from pausepoint.runtime.loop_watch import LoopWatch


class Run:
    """One drive of a session in this process, and the facts that are needed once it has ended."""

    __slots__ = ("broken", "drive", "ended", "final", "saved", "task", "waiting")

    def __init__(self, drive: Drive, task: asyncio.Task[None]) -> None:
        self.drive: Drive | None = drive
        self.task = task
        self.saved = drive.saved
        self.ended = asyncio.Event()
        self.broken: BaseException | None = None
        self.waiting = 0
        self.final: tuple[int, State] | None = None  # seq and state at the end, for callers that wait

    @property
    def is_kept(self) -> bool:
        """Whether the session is parked, and its step is only kept in memory."""
        return (drive := self.drive) is not None and drive.is_kept  # another thread may ask

    async def finished(self) -> None:
        """Wait until the drive has ended, or has parked the session and keeps its step."""
        while (drive := self.drive) is not None and not self.ended.is_set():
            await drive.keeper.quiet.wait()
            if drive.is_kept:
                return


@contextmanager
def waited_for(run: Run | None) -> Iterator[None]:
    """Keep a run's final state in memory inside this block, so that the waiting caller need not read it again."""
    if run is None:
        yield
        return
    run.waiting += 1
    try:
        yield
    finally:
        run.waiting -= 1
        if not run.waiting:
            run.final = None  # a parked session must not keep its state in memory


class LocalDriver:
    """Runs one `Drive` per session as a task of this event loop.

    Parked sessions take no memory here, except in `lines`, which is bounded.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.runs: dict[str, Run] = {}
        self._loop_watch: LoopWatch | None = None
        self.claims: dict[str, asyncio.Event] = {}  # sessions that are being claimed and are not driven yet
        self.waking: set[str] = set()  # those of them that the waker claims
        self.taking = 0  # calls that take sessions of which only the store knows the ids yet
        self.pauses_after: dict[str, str] = {}  # the step after which a session must pause, even if it parks earlier
        self.troubles: dict[str, BaseException] = {}  # why drives ended here without releasing the hold
        self.lines = ParkedLines()
        self.listeners = Listeners(store)
        self.changed = self.listeners.tell
        self.listening = self.listeners.listening
        self.listening_to_all = self.listeners.listening_to_all
        self.refreshing: asyncio.Task[None] | None = None
        self._unread: frozenset[int] | None = frozenset()  # the sessions whose requests are to be read; None: all
        self._in_reading: frozenset[int] | None = frozenset()  # those whose requests are being read; None: all
        self.background: set[asyncio.Task[Any]] = set()
        self.lease = LeaseGuard(store, self._end_with_lease)
        self.fenced: set[str] = set()  # sessions that were stopped because the lease ended, to be continued here
        self.ending = ""
        self.drain: timedelta | None = None  # how long operations may take to finish when the engine stops
        self.released = False  # callers that wait for a session must not wait any longer
        self.on_news: Callable[[], None] = lambda: None  # called when the store changed or a drive ended

    def begin(self, drive: Drive) -> Run:
        """Drive a session in the background."""
        if (former := self.drive(drive.session_id)) is not None:
            # This engine took the session over from itself. The watcher sees only the new drive: notify the old one.
            former.requests.notice(drive.row.fence, former.flags)
        drive.keeper.on_parked = lambda: self.on_news()  # its slot is free, although its drive has not ended
        drive.requests.is_unread = lambda: self._is_unread(drive.row.key)
        drive.keeper.on_resumed = self._watch_loop
        task = asyncio.get_running_loop().create_task(drive.run(), name=f"{NAME} {drive.session_id}")
        run = self.runs[drive.session_id] = Run(drive, task)
        self.troubles.pop(drive.session_id, None)
        self.lines.drop(drive.row.key)  # the drive has it, and will change it
        self.fenced.discard(drive.session_id)
        self._watch_loop()
        task.add_done_callback(lambda done: self._ended(run, drive))
        if self.ending:
            drive.requests.stop(self.ending)
        return run

    def _watch_loop(self) -> None:
        """Warn of code that blocks the event loop from now on, until no session runs."""
        if self._loop_watch is None:
            from pausepoint.runtime.loop_watch import LoopWatch  # programs that only look at sessions do not need it

            self._loop_watch = LoopWatch(self.runs)
        self._loop_watch.start()

    def leave_loop(self) -> None:
        """End the watch of the event loop, because the engine closes."""
        if self._loop_watch is not None:
            self._loop_watch.stop()

    def _ended(self, run: Run, drive: Drive) -> None:
        if self.runs.get(drive.session_id) is run:
            del self.runs[drive.session_id]
        fenced = isinstance(drive.broken, HoldLost) and self.lease.has_ended(drive.row) and not self.ending
        run.broken, run.drive, run.saved = None if fenced else drive.broken, None, drive.saved
        if fenced:
            self.fenced.add(drive.session_id)
        elif run.broken is not None and not drive.ledger.parked:
            self.troubles[drive.session_id] = run.broken
        if run.waiting:
            run.final = drive.ledger.seq, drive.line.state
        if not run.task.cancelled():
            run.task.exception()  # stored as ``broken``; retrieved here so that asyncio does not warn about it
        run.ended.set()
        drive.keeper.quiet.set()
        self.changed(drive.session_id)
        if drive.row.parent_id is not None:  # callers that wait for a parent also wait for this session
            self.changed(drive.row.parent_id)
            self.listeners.look()
        above = self.drive(drive.row.parent_id) if drive.row.parent_id is not None else None
        if above is not None and above.visit is not None:
            above.visit.recheck_waits(drive.session_id)  # the parent may be busy and miss the listeners' event
        self.on_news()
        if drive.parks is not None and drive.ledger.parked and drive.broken is None:
            self.lines.keep(drive.row.key, drive.ledger.seq, drive.ledger.digest, drive.line)  # it may be woken soon

    def is_stranded(self, row: SessionRow) -> bool:
        """Return whether this engine holds the session without driving it, because the store failed to release it."""
        ours = row.holder is not None and row.holder == self.store.number and not self.taking
        known = row.session_id in self.runs or row.session_id in self.claims or row.session_id in self.fenced
        return ours and not known

    @contextmanager
    def claiming(self, session_id: str) -> Iterator[None]:
        """Mark a session as being claimed inside this block, so that no second claim starts meanwhile."""
        if session_id in self.claims:
            yield
            return
        begun = self.claims[session_id] = asyncio.Event()
        try:
            yield
        finally:
            del self.claims[session_id]
            begun.set()

    async def wait_for_claim(self, session_id: str) -> None:
        """Wait until a session that is being claimed is driven, or the claim has failed."""
        if (begun := self.claims.get(session_id)) is not None:
            await begun.wait()

    @property
    def running(self) -> list[str]:
        """The sessions that are driven or claimed here, without those whose step is only kept in memory."""
        return [*(id for id, run in self.runs.items() if not run.is_kept), *self.claims]

    @property
    def busy(self) -> int:
        """The number of sessions that are driven here."""
        return sum(not run.is_kept for run in self.runs.values())

    @property
    def in_flight(self) -> list[str]:
        """The names of the operations in flight, and of the steps that run without one. Any thread may ask."""
        drives = [run.drive for run in list(self.runs.values()) if run.drive is not None and not run.is_kept]
        visits = [drive.visit for drive in drives if drive.visit is not None and not drive.visit.exited]
        return [name for each in visits for name in each.in_flight or [each.step.name] * (not each.waits)]

    async def let_go(self, session_id: str) -> None:
        """Make a step that is kept here exit, and wait for it: the session is about to change or to start again."""
        run = self.runs.get(session_id)
        if run is not None and run.drive is not None and run.is_kept:
            run.drive.keeper.stop_keeping()
            await run.ended.wait()

    def drive(self, session_id: str) -> Drive | None:
        """Return the drive of a session that runs here, or None."""
        run = self.runs.get(session_id)
        return None if run is None else run.drive

    async def idle(self, session_ids: Collection[str] = ()) -> None:
        """Wait until none of these sessions is driven here. Without ids, wait until no session is."""
        while runs := [run for id, run in self.runs.items() if not session_ids or id in session_ids]:
            if all(run.is_kept for run in runs):
                break
            await asyncio.wait([asyncio.ensure_future(run.finished()) for run in runs if not run.is_kept])
            await asyncio.sleep(0)  # let the tasks' done callbacks run first
        for session_id in tuple(self.claims):
            if not session_ids or session_id in session_ids:
                await self.wait_for_claim(session_id)
                await self.idle(session_ids)
                return

    async def stop(self, reason: str) -> None:
        """Stop every drive after its current operation, or when the time to ``drain`` is over."""
        late = f"{reason}, and the time to drain is over"
        loop = asyncio.get_running_loop()
        limit = None if self.drain is None else loop.call_later(self.drain.total_seconds(), self.abort, late)
        try:
            await self._stop(reason)
        finally:
            if limit is not None:
                limit.cancel()

    async def _stop(self, reason: str) -> None:
        self.ending = self.ending or reason
        self.listeners.tell_all()
        if self.background:
            await asyncio.wait(self.background)
        for run in list(self.runs.values()):
            if run.drive is not None:
                run.drive.requests.stop(reason)
        while self.runs:
            await asyncio.wait([run.task for run in self.runs.values()])
            await asyncio.sleep(0)
        self.lines.clear()

    def release(self) -> None:
        """Release all callers that wait for a session, because this engine drives nothing more."""
        self.released = True
        self.listeners.tell_all()

    def _end_with_lease(self) -> None:
        """Stop the drives that are under a lease which has ended. Their sessions stay at their last record."""
        for run in list(self.runs.values()):
            if run.drive is not None:
                run.drive.requests.end_with_lease()

    def abort(self, reason: str) -> None:
        """Stop every drive immediately."""
        for run in list(self.runs.values()):
            if run.drive is not None:
                run.drive.requests.stop(reason, now=True)

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; `stop` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    def finish(self, task: asyncio.Task[Any]) -> None:
        """Let a task whose caller was cancelled run to its end; `stop` waits for it."""
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    # notifications

    def on_change(self, keys: frozenset[int] | None = None, *, budgets: bool = False) -> None:
        """React to a change in the store: notify listeners, and check for requests to the sessions driven here.

        ``keys``: the sessions that have changed; by default, anything may have. ``budgets``: a driven session or one of
        its parents may have a new budget.
        """
        for run in self.runs.values() if budgets else ():
            if run.drive is not None:
                run.drive.budgeted = None
        self.listeners.look()
        self.on_news()
        if not self.runs:
            self._unread = frozenset()  # a drive that begins has read its requests
            return
        self._unread = None if keys is None or self._unread is None else self._unread | keys
        if self.refreshing is None or self.refreshing.done():
            self.refreshing = asyncio.get_running_loop().create_task(self.refresh(), name=f"{NAME} refresh")

    @contextmanager
    def told(self, row: SessionRow) -> Iterator[None]:
        """React to a change of one session, unless this engine begins to drive it inside this block.

        A drive that begins reads its requests itself, and nothing else is due because of such a change. Only listeners
        need to know.
        """
        if row.parent_id is None:
            self.changed(row.session_id)
        else:
            self.listeners.look()  # finds its ancestors, too
        before = self.runs.get(row.session_id)
        try:
            yield
        finally:
            if before is not None or row.session_id not in self.runs:
                self.on_change(frozenset((row.key,)))

    async def refresh(self) -> None:
        """Read the pending requests to the sessions that have changed and pass them to their drives."""
        while self._unread is None or self._unread:
            unread, self._unread = self._unread, frozenset()
            drives = [run.drive for run in self.runs.values() if run.drive is not None]
            driven = {each.row.key: each for each in drives if unread is None or each.row.key in unread}
            if not driven:
                continue
            self._in_reading = unread
            try:
                found = await self._flags(list(driven))
            except StoreError:
                return  # the next commit raises the same error
            finally:
                self._in_reading = frozenset()
            for key, (fence, flags) in found.items():
                driven[key].requests.notice(fence, flags)

    def _is_unread(self, key: int) -> bool:
        """Return whether requests to a session may have arrived that its drive does not know."""
        return any(keys is None or key in keys for keys in (self._unread, self._in_reading))

    async def _flags(self, keys: list[int]) -> dict[int, tuple[int, Flags]]:
        """Return the fences and flags of these sessions. A damaged session must not affect the others."""
        try:
            return await self.store.flags(keys)
        except DamagedRecord:
            if len(keys) == 1:
                return {}  # the session's next commit raises the error
            return {key: found for each in keys for key, found in (await self._flags([each])).items()}
