"""What all parts of an engine share: the store, the registered workflows, the sessions that run here, and those that
are still finishing after a pause.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from types import EllipsisType
from typing import Any, Literal, TypeVar, get_args

import msgspec
from msgspec.structs import asdict, replace

from pausepoint.clock import Clock, to_datetime
from pausepoint.codec.values import Limits
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import (
    AlreadyRunning,
    CallRefused,
    DamagedRecord,
    DefinitionError,
    HoldLost,
    StoreClosed,
    StoreUnavailable,
    UnknownSession,
    did_you_mean,
)
from pausepoint.log.replay import EventBody, body_of
from pausepoint.log.timeline import Timeline
from pausepoint.model import ids
from pausepoint.model.ids import SessionId, check_session_id, check_texts
from pausepoint.model.limits import Slots, StoredLimit
from pausepoint.model.records import Record
from pausepoint.model.sessions import Filter, Pause, SessionRow, Status
from pausepoint.model.views import Finishing, SessionInfo, StandingPause, Working
from pausepoint.runtime.drive import Drive
from pausepoint.runtime.driver import LocalDriver
from pausepoint.runtime.hold import OnStep
from pausepoint.runtime.reaper import Reaper
from pausepoint.runtime.signals import closed_by_signal
from pausepoint.runtime.streams import Streams
from pausepoint.runtime.waker import Waker
from pausepoint.stores.base import Store
from pausepoint.stores.text import storable

T = TypeVar("T")

Drives = Literal["all", "asked", "none"]
"""Which sessions an engine drives: all due ones of its workflows, those that its verbs start or resume, or none."""

Until = Literal["ended", "parked"]
"""When to stop following a session."""


def check_until(until: Until) -> None:
    if until not in get_args(Until):
        raise ValueError(f"until must be 'ended' or 'parked', not {ids.shortened(until)}.")


TURN = 128
"""How many sessions are converted for a listing before other tasks get a turn."""


ATTEMPTS = 100
"""How often a verb reads a session again that has changed before its change was stored. Then it raises the error."""


LOOK_EVERY = 1.0
"""Seconds between two checks of a session that another process drives."""


def _was_defined_again(former: Workflow[Any], workflow: Workflow[Any]) -> bool:
    """Return whether a cell of a notebook was run again: its variable has the new workflow, none has the former one."""
    cells = {name: value for name, value in vars(sys.modules["__main__"]).items() if not name.startswith("_")}
    return any(value is workflow for value in cells.values()) and all(value is not former for value in cells.values())


class Service:
    """One store, the registered workflows and the settings of an engine. The parts of the engine share it.

    It knows none of them. `Parts` tells the waker what to do with sessions and schedules that are due.
    """

    drive_class = Drive  # the testing package replaces this class
    hold = 0.0  # how many seconds a paused step is kept in memory
    keep_for: timedelta | None = None  # how long `gc` keeps sessions, unless `start` says otherwise; None means forever
    strict = False  # whether calls pause whose result is remembered for other arguments
    questions_expire: timedelta | EllipsisType | None = ...  # how long a question waits by default; None means forever

    def __init__(self, store: Store, workflows: Iterable[Workflow[Any]], clock: Clock, limits: Limits) -> None:
        self.store = store
        self.clock = clock
        self.sizes = limits
        self.driver = LocalDriver(store)
        self.streams = Streams(store)
        self.workflows: dict[str, Workflow[Any]] = {}
        self.described: dict[str, int] = {}  # workflow → when its stored description was last confirmed
        self.describing: dict[str, asyncio.Task[None]] = {}  # workflow → the task that stores its description
        self.is_open = False
        self.drives: Drives = "all"
        self.standing_by: set[str] = set()  # stopped sessions that this engine continues, as in `Holder.workflows`
        self.on_step: OnStep | None = None
        self.pid = 0  # the process that the engine was opened in
        self.is_here: Callable[[], bool] | None = None  # whether the caller is on the loop of a blocking engine
        self.waker = Waker(store, clock, lambda: list(self.workflows), lambda: self.driver.busy)
        self.waker.prepare = self.declare_limits
        self.undeclared: dict[str, Workflow[Any]] = {}  # workflows whose limits are not stored yet
        self.concurrency: int | None = None
        self.driver.on_news = self.waker.poke
        self.waker.fenced = self.driver.fenced
        self.reaper = Reaper(store, self.driver.on_change, self.driver.is_stranded)
        for workflow in [workflows] if isinstance(workflows, Workflow) else workflows:
            self.register(workflow)

    @property
    def trouble(self) -> str | None:
        """Why the store cannot be written to, since when, and what to do; None while the store is healthy."""
        self.check_open()
        return self.store.trouble

    @property
    def ending(self) -> str:
        """Why this engine is shutting down: a signal, or `close`. Empty before that."""
        return self.driver.ending

    @property
    def running(self) -> tuple[SessionId, ...]:
        """The sessions that this engine drives now, and those that it is about to drive."""
        return tuple(map(SessionId, self.driver.running))

    async def declare_limits(self) -> None:
        """Store the limits of the registered workflows, and forget those that their code no longer has.

        All engines of a store obey them. The engine that declares last decides: engines with older code run for a while
        beside newer ones after an update.
        """
        if not self.undeclared or self.drives == "none":  # an engine that only looks on changes nothing
            return
        stored = await self.store.limits()
        for name, workflow in tuple(self.undeclared.items()):
            former = [limit for limit in stored if limit.declared and (limit.scope, limit.name) == ("workflow", name)]
            limit = workflow.limit
            declared = [] if limit is None else [StoredLimit.of("workflow", name, limit, declared=True)]
            if [replace(limit, full_at=0) for limit in former] != declared:
                if {limit.target for limit in former} - {limit.target for limit in declared}:
                    await self.store.drop_limits("workflow", name, declared=True)
                for new in declared:  # one that only has another number is replaced, so that it counts all the time
                    await self.store.set_limit(new)
            self.undeclared.pop(name, None)

    def kept_for(self, keep_for: timedelta | None) -> int | None:
        """Return how many microseconds a session is kept after its last update; None means forever."""
        found = self.keep_for if keep_for is None else keep_for
        if found is None or found == timedelta.max:
            return None
        if not isinstance(found, timedelta):
            raise TypeError(
                f"keep_for must be a timedelta, such as timedelta(days=30), not {type(found).__name__}:"
                f" {ids.shortened(found)}."
            )
        if found < timedelta(0):
            raise ValueError(f"keep_for cannot be negative: {found!r}.")
        return found // timedelta(microseconds=1)

    def serves(self, queue: str) -> bool:
        """Return whether this engine drives sessions of a queue."""
        return self.waker.queues is None or queue in self.waker.queues

    def has_room(self) -> bool:
        """Return whether this engine may drive one more session that another one starts."""
        return self.concurrency is None or self.waker.room > 0

    def check_open(self) -> None:
        """Raise an error if the engine is closed, or open in another process or on another thread's loop."""
        if not self.is_open:
            if self.driver.ending.startswith("SIG"):
                raise StoreClosed(closed_by_signal(self.driver.ending))
            raise StoreClosed("The engine is not open. Use it inside `async with Engine(…) as engine:`.")
        if os.getpid() != self.pid:
            raise StoreClosed(
                "This engine was opened by another process. Open a new Engine in this process after fork()."
            )
        if self.is_here is not None and not self.is_here():
            raise CallRefused(
                "This Engine was opened with `with`. Use the blocking engine from `with Engine(…) as engine:`."
            )

    def check_drives(self, verb: str, session_id: str) -> None:
        """Raise an error if this engine drives no sessions."""
        if self.drives == "none":
            raise CallRefused(
                f"This engine drives no sessions, so it cannot {verb} {session_id!r}. Open it with"
                ' Engine(drives="asked"), or let another engine drive the session: call start(paused=True) or'
                " resume(here=False) here."
            )

    async def wait_for_change(self, news: asyncio.Event) -> None:
        """Wait until something may have changed, or for `LOOK_EVERY`, since a killed process sends no notice."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY):  # Python 3.11's wait_for() can lose a cancellation
                await news.wait()
        news.clear()  # before the next check, so that no change is missed in between
        self.check_open()

    def register(self, workflow: Workflow[Any]) -> None:
        """Register a workflow. Raises `DefinitionError` if another workflow has the same name.

        A workflow that a notebook defines again replaces the former one; sessions that run now keep the former code.
        """
        if not isinstance(workflow, Workflow):
            raise DefinitionError(
                f"The engine needs a Workflow, not {type(workflow).__name__} {workflow!r:.60}. Create one:"
                " Workflow(name, state=Model, steps=[…])."
            )
        known = self.workflows.get(workflow.name)
        if known is workflow:
            return
        if known is not None and not _was_defined_again(known, workflow):
            raise DefinitionError(
                f"Two different workflows are named {workflow.name!r}. Rename one of them. If it is the same workflow"
                " with newer code, close this engine and open a new one."
            )
        self.workflows[workflow.name] = workflow
        self.undeclared[workflow.name] = workflow
        self.announce()

    def announce(self) -> None:
        """Tell the other engines of the store whose due sessions this one picks up."""
        drives = self.drives == "all" and self.waker.asked is None
        names = [*(self.workflows if drives else ()), *self.standing_by]
        self.store.announce(names, () if self.drives == "none" and not names else self.waker.queues)

    def workflow_of(self, row: SessionRow) -> Workflow[Any]:
        """Return the definition of a session's workflow. Raises `DefinitionError` if this engine lacks it."""
        workflow = self.workflows.get(row.workflow)
        if workflow is None:
            raise DefinitionError(
                f"Session {row.session_id!r} belongs to workflow {row.workflow!r}, which is not registered with this"
                f" engine. Pass it: Engine(…, workflows=[…]){did_you_mean(row.workflow, self.workflows)}"
            )
        if row.version > workflow.version:
            raise DefinitionError(
                f"Session {row.session_id!r} was stored by version {row.version} of {row.workflow!r}, but this code is"
                f" version {workflow.version}. Run the newer code."
            )
        return workflow

    async def row(self, session_id: str) -> SessionRow:
        """Return the facts of a session. Raises `UnknownSession`."""
        row = await self.store.get(check_session_id(session_id), sure=True)
        if row is None:
            raise UnknownSession(
                f"This store has no session {session_id!r}. List its sessions with engine.sessions().",
                session_id=session_id,
            )
        return row

    def timeline(self, row: SessionRow) -> Timeline:
        """Return the history of a session. Renamed steps have their present names, if the workflow is registered."""
        workflow = self.workflows.get(row.workflow)
        return Timeline(self.store, row, {} if workflow is None else workflow.renamed)

    async def retried(
        self, act: Callable[[], Awaitable[T]], changed: tuple[type[Exception], ...] = (HoldLost, AlreadyRunning)
    ) -> T:
        """Call what reads a session and then changes it, until the session stays the same in between.

        A store that refuses each attempt is not asked forever, and other tasks get a turn after each.
        """
        for _ in range(ATTEMPTS - 1):
            try:
                return await act()
            except changed:
                await asyncio.sleep(0)
        return await act()

    async def tended_row(self, session_id: str) -> SessionRow:
        """Return the facts of a session. Raises an error if this engine holds it without driving it."""
        row = await self.row(session_id)
        if self.driver.is_stranded(row):
            row = await self.row(session_id)  # its drive may have ended while the row was read
            if self.driver.is_stranded(row):
                raise self.driver.troubles.get(session_id) or _undriven(row)
        return row

    async def holder(self, row: SessionRow) -> str:
        """Describe the engine that holds a session, for people."""
        if row.holder is None:
            return "nobody"
        return (await self.store.describe_holders([row.holder]))[row.holder]

    async def driven(self, row: SessionRow) -> AlreadyRunning:
        """Return the error for a session that an engine drives."""
        holder = await self.holder(row)
        if row.holder == self.store.number:
            holder = f"this engine ({holder})"
        return AlreadyRunning(
            f"Session {row.session_id!r} is driven by {holder}. Wait for it with"
            f" engine.session({row.session_id!r}).outcome(), pause it, or take it over with"
            f" engine.session({row.session_id!r}).resume(steal=True).",
            session_id=row.session_id, holder=holder,
        )  # fmt: skip

    async def _waits_for_slots(self, rows: Sequence[SessionRow]) -> dict[int, str]:
        """Return the limits that keep ready sessions from work, described for people, by key."""
        limits = [] if not rows else await self.store.limits()
        if not limits:
            return {}
        slots = Slots(limits, [(each, each.sessions) for each in await self.store.at_work()], self.clock.now())
        full = {row.key: slots.full(row) for row in rows if not row.guest}
        by_key = {row.key: row for row in rows}
        return {key: each.described(slots.count(each, by_key[key])) for key, each in full.items() if each is not None}

    async def infos(self, rows: Iterable[SessionRow]) -> list[SessionInfo]:
        """Return the facts of many sessions. Their pauses are read at once; other tasks get a turn in between."""
        rows = list(rows)
        paused = [row.key for row in rows if row.pause_requested or row.open_pauses]
        pauses = await self.store.first_pauses(paused) if paused else {}
        slots = await self._waits_for_slots([row for row in rows if row.status in (Status.CREATED, Status.READY)])
        held = {each for row in rows for each in (row.holder if row.live else None, row.kept_by) if each is not None}
        holders = await self.store.describe_holders(held) if held else {}
        found: list[SessionInfo] = []
        for row in rows:
            found.append(_info(row, pauses.get(row.key), holders, slots.get(row.key)))
            if not len(found) % TURN:
                await asyncio.sleep(0)
        return found


def _info(row: SessionRow, pause: Pause | None, holders: Mapping[int, str], slot: str | None) -> SessionInfo:
    return SessionInfo(
        SessionId(row.session_id), row.workflow, row.version, row.status, row.step, row.visit, row.owner, row.tags,
        to_datetime(row.created_at), to_datetime(row.updated_at), row.pause_requested, row.cancel_requested,
        holders[row.holder or 0] if row.live else None, row.failure,
        row.spent_usd / 1e6, row.spent_tokens, None if row.budget_usd is None else row.budget_usd / 1e6,
        row.progress, tuple(row.waiting.split(",")) if row.waiting else (),
        to_datetime(row.wakes_at) if row.wakes_at else None, row.parent_id, row.seq,
        row.held_by_guard, None if row.kept_by is None else holders[row.kept_by], row.fence,
        row.spent_operations, row.budget_tokens, row.budget_operations, row.guest, row.signals, pause,
        row.queue, row.priority, row.lane, slot,
    )  # fmt: skip


def check_owner(row: SessionRow | SessionInfo, owner: str | None) -> None:
    """Raise `WrongOwner` if the session has another owner than the given one."""
    ids.check_owner(owned(row.session_id, owner), row.owner)


def owned(session_id: str, owner: str | None) -> str:
    """Return an id with which every verb checks that the session belongs to the owner, if one is given."""
    return session_id if owner is None else ids.OwnedId(session_id, storable(owner))


def tags_of(tags: str | Sequence[str]) -> tuple[str, ...]:
    found = (tags,) if isinstance(tags, str) else tuple(tags)
    for tag in found:
        if not isinstance(tag, str):
            raise TypeError(f"A tag must be a string, not {type(tag).__name__}: {ids.shortened(tag)}.")
        check_texts(tag=tag)
    return found


def _undriven(row: SessionRow) -> StoreUnavailable:
    return StoreUnavailable(
        f"Session {row.session_id!r} is held by this engine but not driven, because the store failed to release it."
        f" Resume it with engine.session({row.session_id!r}).resume()."
    )


# until paused sessions have stopped

FIRST_LOOK, LONGEST_WAIT = 0.005, 0.1
"""Seconds until the second look at the sessions, and the most seconds between two looks."""

WINDOW = 64
"""How many records are searched for the holder's confirmation. It is one of the last ones."""


async def standstill(
    service: Service, query: Filter, since: int, timeout: float | timedelta | None
) -> tuple[Working, ...]:  # fmt: skip
    """Wait until no engine works on the matching sessions; return what is still worked on after ``timeout``.

    ``since`` is the time of the pause. A session that stopped begins nothing until it is resumed, because an engine
    can drive it only after a claim, and a paused session cannot be claimed.
    """
    loop = asyncio.get_running_loop()
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    end = None if seconds is None else loop.time() + seconds
    pause = FIRST_LOOK
    while True:
        rows = await service.store.find(replace(query, statuses=(Status.PAUSING,), unended=True))
        if not rows and not rows.damaged:
            return ()
        if end is not None and loop.time() >= end:
            return (*[await _working(service, row, since) for row in rows], *map(_unreadable, rows.damaged))
        await asyncio.sleep(pause if end is None else min(pause, max(end - loop.time(), 0)))
        pause = min(2 * pause, LONGEST_WAIT)


async def standing_pause(service: Service) -> StandingPause | None:
    """Return the pause of everything with what is still finishing; None if it is not in effect."""
    pause = await service.store.standing_pause()
    if pause is None:
        return None
    stopping = await service.store.stopping()
    rows = await service.store.find(Filter(statuses=(Status.PAUSING,), unended=True))
    late: list[Working] = []
    for row in rows:
        if row.under_everything:
            late.append(await _working(service, row, pause.created_at))
            await asyncio.sleep(0)  # other tasks get a turn
    late += map(_unreadable, rows.damaged)
    since = to_datetime(pause.created_at)
    finishing = [
        Finishing(each.session_id, each.step, operation, since)
        for each in late
        for operation in each.operations or ("",)
    ]
    longest = None if stopping.longest is None else timedelta(microseconds=stopping.longest)
    stopped = max(stopping.asked - len(late), 0)
    return StandingPause(
        **asdict(pause), asked=stopping.asked, stopped=stopped, finishing=tuple(finishing), longest=longest
    )


async def _working(service: Service, row: SessionRow, since: int) -> Working:
    holder = await service.holder(row)
    step = f"{row.step}#{row.visit}" if row.step else ""
    records: list[Record] = []
    with suppress(DamagedRecord, UnknownSession):  # then nothing is known to be confirmed
        records = await service.store.records(row.key, max(row.seq - WINDOW, row.key_frame), row.seq)
    for record in reversed(records):
        body = None if record.redacted or record.at < since else body_of(record)
        if isinstance(body, EventBody) and body.type == "session.pausing":
            operations = tuple(msgspec.json.decode(body.data)["operations"])
            return Working(SessionId(row.session_id), holder, step, operations, confirmed=True)
    return Working(SessionId(row.session_id), holder, step, (), confirmed=False)


def _unreadable(damage: DamagedRecord) -> Working:
    """Return a session that a process still drives, although its facts are damaged."""
    return Working(SessionId(damage.fields["session_id"]), "a process that cannot be read", "", (), confirmed=False)
