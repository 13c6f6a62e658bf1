"""The sessions that this process drives, and who wants to hear of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from pausepoint.errors import DamagedRecord, StoreError
from pausepoint.log.state import State
from pausepoint.model.sessions import Flags, SessionRow
from pausepoint.name import NAME
from pausepoint.runtime.drive import Drive
from pausepoint.stores.base import Store


class Run:
    """One drive of a session in this process: what remains to be known of it once it has ended."""

    __slots__ = ("broken", "drive", "ended", "final", "kept", "task", "waiting")

    def __init__(self, drive: Drive, task: asyncio.Task[None]) -> None:
        self.drive: Drive | None = drive
        self.task = task
        self.kept = drive.kept
        self.ended = asyncio.Event()
        self.broken: BaseException | None = None
        self.waiting = 0
        self.final: tuple[int, State] | None = None  # for who waits: seq and state at the end, not to be read again

    async def finished(self) -> None:
        """Wait for the end of the drive."""
        await self.ended.wait()


@contextmanager
def waited_for(run: Run | None) -> Iterator[None]:
    """Somebody wants to know the end of a run: until then its last state is kept, so that it need not be read again."""
    if run is None:
        yield
        return
    run.waiting += 1
    try:
        yield
    finally:
        run.waiting -= 1
        if not run.waiting:
            run.final = None  # a parked session costs a row, not its state in memory


class LocalDriver:
    """Runs a `Drive` per session as a task of this event loop. A parked session leaves nothing behind here."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.runs: dict[str, Run] = {}
        self.beginning: dict[str, asyncio.Event] = {}  # held, or about to be, but not yet driven
        self.untils: dict[str, str] = {}  # sessions that are to stand still after a step, even if they park before
        self.troubles: dict[str, BaseException] = {}  # why drives ended here without giving the hold back
        self.listeners: dict[str, set[asyncio.Event]] = {}
        self.refreshing: asyncio.Task[None] | None = None
        self.errands: set[asyncio.Task[None]] = set()
        self.ending = ""
        self.on_news: Callable[[], None] = lambda: None  # somebody wrote, or a drive ended

    def begin(self, drive: Drive) -> Run:
        """Drive a session in the background."""
        if (former := self.drive(drive.session_id)) is not None:
            # Overtaken by its own engine: the watcher only sees the drives that count.
            former.notice(drive.row.fence, former.flags)
        task = asyncio.get_running_loop().create_task(drive.run(), name=f"{NAME} {drive.session_id}")
        run = self.runs[drive.session_id] = Run(drive, task)
        self.troubles.pop(drive.session_id, None)
        task.add_done_callback(lambda done: self._ended(run, drive))
        if self.ending:
            drive.stop(self.ending)
        return run

    def _ended(self, run: Run, drive: Drive) -> None:
        if self.runs.get(drive.session_id) is run:
            del self.runs[drive.session_id]
        run.broken, run.drive, run.kept = drive.broken, None, drive.kept
        if run.broken is not None and not drive.ledger.parked:
            self.troubles[drive.session_id] = run.broken
        if run.waiting:
            run.final = drive.ledger.seq, drive.line.state
        if not run.task.cancelled():
            run.task.exception()  # kept as ``broken``; looked at here so that asyncio does not complain
        run.ended.set()
        if drive.row.parent_id is None:
            self.changed(drive.session_id)
        else:
            self._tell_all()  # whoever waits for one above it waits for this as well
        above = self.drive(drive.row.parent_id) if drive.row.parent_id is not None else None
        if above is not None and above.visit is not None:
            above.visit.look_again(drive.session_id)  # it may be busy with something else, and hear of nothing
        self.on_news()

    def strands(self, row: SessionRow) -> bool:
        """This engine holds the session and nobody drives it: the store refused when it should have been given back."""
        ours = row.holder is not None and row.holder == self.store.number
        return ours and row.session_id not in self.runs and row.session_id not in self.beginning

    @contextmanager
    def begins(self, session_id: str) -> Iterator[None]:
        """From before the hold is taken until the drive has begun; a second attempt meanwhile finds it taken."""
        if session_id in self.beginning:
            yield
            return
        begun = self.beginning[session_id] = asyncio.Event()
        try:
            yield
        finally:
            del self.beginning[session_id]
            begun.set()

    async def begun(self, session_id: str) -> None:
        """Wait until a session that is being taken up is driven, or is not after all."""
        if (begun := self.beginning.get(session_id)) is not None:
            await begun.wait()

    def drive(self, session_id: str) -> Drive | None:
        """The drive of a session that runs here."""
        run = self.runs.get(session_id)
        return None if run is None else run.drive

    async def idle(self, session_ids: Collection[str] = ()) -> None:
        """Wait until none of these sessions is driven here; without any, until nothing is."""
        while tasks := [run.task for id, run in self.runs.items() if not session_ids or id in session_ids]:
            await asyncio.wait(tasks)
            await asyncio.sleep(0)  # what a drive does at its end comes first
        for session_id in tuple(self.beginning):
            if not session_ids or session_id in session_ids:
                await self.begun(session_id)
                await self.idle(session_ids)
                return

    async def stop(self, reason: str) -> None:
        """End every drive after its current operation."""
        self.ending = reason
        self._tell_all()
        if self.errands:
            await asyncio.wait(self.errands)
        for run in list(self.runs.values()):
            if run.drive is not None:
                run.drive.stop(reason)
        while self.runs:
            await asyncio.wait([run.task for run in self.runs.values()])
            await asyncio.sleep(0)

    def abort(self, reason: str) -> None:
        """End every drive at once."""
        for run in list(self.runs.values()):
            if run.drive is not None:
                run.drive.stop(reason, now=True)

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something in the background that has to be done before the end."""
        task = asyncio.get_running_loop().create_task(work)
        self.errands.add(task)
        task.add_done_callback(self.errands.discard)

    # news

    def changed(self, session_id: str) -> None:
        """A session of ours moved."""
        for listener in self.listeners.get(session_id, ()):
            listener.set()

    def on_change(self, budgets: bool = False) -> None:
        """Somebody wrote to the store: tell the listeners, and look for requests to the sessions that we drive.

        ``budgets``: one of them, or one above it, may have a budget now.
        """
        for run in self.runs.values() if budgets else ():
            if run.drive is not None:
                run.drive.budgeted = None
        self._tell_all()
        self.on_news()
        if self.runs and (self.refreshing is None or self.refreshing.done()):
            self.refreshing = asyncio.get_running_loop().create_task(self.refresh(), name=f"{NAME} refresh")

    def _tell_all(self) -> None:
        for listeners in self.listeners.values():
            for listener in listeners:
                listener.set()

    async def refresh(self) -> None:
        """Look for requests to the sessions that this engine drives. Afterwards they know of them."""
        driven = {run.drive.row.key: run.drive for run in self.runs.values() if run.drive is not None}
        try:
            found = await self._flags(list(driven))
        except StoreError:
            return  # the next commit meets the same trouble, and is heard
        for key, (fence, flags) in found.items():
            driven[key].notice(fence, flags)

    async def _flags(self, keys: list[int]) -> dict[int, tuple[int, Flags]]:
        """What is asked of these sessions. One that is damaged must not keep the others from hearing it."""
        try:
            return await self.store.flags(keys)
        except DamagedRecord:
            if len(keys) == 1:
                return {}  # its next commit meets that
            return {key: found for each in keys for key, found in (await self._flags([each])).items()}

    @contextmanager
    def listening(self, session_id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the session may have moved."""
        listener = asyncio.Event()
        self.listeners.setdefault(session_id, set()).add(listener)
        try:
            yield listener
        finally:
            self.listeners[session_id].discard(listener)
            if not self.listeners[session_id]:
                del self.listeners[session_id]
