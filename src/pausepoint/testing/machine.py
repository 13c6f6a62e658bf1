"""Simulate a process that is killed at a chosen write: the store stays open, the engine is dropped.

At the crash point, every verb of the store stops responding, so a step sees no error that a killed process would
not see. Then the machine cancels the tasks and refuses everything they still try to write. There is one
difference from a real kill: ``finally`` blocks run. The next engine on the machine finds the session without a
live holder and claims it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, NamedTuple, NoReturn, Self, TypeVar, cast

from pausepoint.definition.workflow import Workflow
from pausepoint.engine.stores import store_from
from pausepoint.errors import StoreClosed
from pausepoint.log.replay import body_of
from pausepoint.model.commits import Commit, Flags, NewSession
from pausepoint.model.records import Record
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.base import OnChange, Store
from pausepoint.stores.found import Found
from pausepoint.testing.clock import ManualClock
from pausepoint.testing.inline import InlineEngine

T = TypeVar("T")

When = Literal["before", "after"]


class Write(NamedTuple):
    """One durable write of a session. ``kind`` is the kind of its first record, or ``start`` for a new session.

    ``name`` is the id of an operation or wait, or the type of an event. ``session`` tells child sessions apart.
    """

    number: int
    kind: str
    step: str
    visit: int
    name: str
    session: int = 0

    def __str__(self) -> str:
        where = f" {self.step}#{self.visit}" if self.step else ""
        return f"write {self.number}: {self.kind}{where}{f' {self.name}' if self.name else ''}"


@dataclass(frozen=True)
class CrashPoint:
    """The point at which a process crashes: before or after the first write that matches every given field.

    Create it with `before` or `after`. A crash before the write of an operation is a crash between the operation
    and its record: the operation ran, but the store does not know.
    """

    when: When
    write: int | None = None
    kind: str | None = None
    step: str | None = None
    visit: int | None = None
    name: str | None = None

    def fits(self, write: Write) -> bool:
        """Return whether the write matches this point."""
        return (
            self.write in (None, write.number)
            and self.kind in (None, write.kind)
            and self.step in (None, write.step)
            and self.visit in (None, write.visit)
            and (self.name is None or self.name in write.name)
        )

    def __str__(self) -> str:
        given = (("write", self.write), ("kind", self.kind), ("step", self.step), ("visit", self.visit))
        parts = [f"{label} {value}" for label, value in (*given, ("name", self.name)) if value is not None]
        return f"{self.when} {', '.join(parts) or 'the first write'}"


def before(
    write: int | None = None, *, kind: str | None = None, step: str | None = None, visit: int | None = None,
    name: str | None = None,
) -> CrashPoint:  # fmt: skip
    """Return the point before a write. The process crashes there and the write never happens.

    ``write`` counts from 1, the start of the session; ``kind`` is ``start``, ``operation``, ``checkpoint``, ``event``,
    ``edit`` or ``rewind``; ``name`` is a part of an operation's id or an event's type.

    >>> print(before(kind="checkpoint", step="research"))
    before kind checkpoint, step research
    """
    return CrashPoint("before", write, kind, step, visit, name)


def after(
    write: int | None = None, *, kind: str | None = None, step: str | None = None, visit: int | None = None,
    name: str | None = None,
) -> CrashPoint:  # fmt: skip
    """Return the point after a write took effect, before its caller learns of it. Takes the arguments of `before`.

    >>> print(after(3))
    after write 3
    """
    return CrashPoint("after", write, kind, step, visit, name)


class CrashPointMissed(AssertionError):
    """The process ended without reaching the point at which it should have crashed."""


class Machine:
    """A store that outlives the simulated processes that use it, with a list of their writes.

    ``doubled`` lists the operations and checkpoints that were written twice although they were remembered.

    >>> from pydantic import BaseModel
    >>> from pausepoint import Workflow, step
    >>> class Sum(BaseModel):
    ...     of: list[int]
    ...     total: int = 0
    >>> @step(writes="total")
    ... async def add(of: list[int]) -> int:
    ...     return sum(of)
    >>> adding = Workflow("adding", state=Sum, steps=[add])
    >>> async def main() -> None:
    ...     async with Machine(adding) as machine:
    ...         life = lambda engine: engine.run(adding, session_id="s", of=[1, 2])
    ...         print(await machine.crash(life, before(kind="checkpoint")))
    ...         print((await machine.run(lambda engine: engine.session("s").state())).total)  # nothing was written
    ...         print((await machine.run(life)).state.total)
    >>> asyncio.run(main())
    write 2: checkpoint add#1
    0
    3
    """

    def __init__(
        self, *workflows: Workflow[Any], store: str | Store = ":memory:", clock: ManualClock | None = None
    ) -> None:
        self.workflows = workflows
        self.clock = clock or ManualClock(auto=True)
        self.store = store_from(store, self.clock)
        self.writes: list[Write] = []
        self.doubled: list[Write] = []
        self._remembered: set[tuple[Any, ...]] = set()
        self.begun = 0  # writes begun, whether or not they finished
        self._process: _Process | None = None

    async def __aenter__(self) -> Self:
        await self.store.open(self._on_change)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.store.close()

    def _on_change(self, keys: frozenset[int] | None) -> None:
        if self._process is not None:
            self._process.on_change(keys)

    async def run(self, life: Callable[[InlineEngine], Awaitable[T]]) -> T:
        """Run a process without a crash: call ``life`` with an open engine and return its result."""
        async with self._engine(_Process(self, None)) as engine:
            return await life(engine)

    async def crash(self, life: Callable[[InlineEngine], Awaitable[Any]], point: CrashPoint) -> Write:
        """Run a process until it crashes at ``point``, and return the write at which it crashed.

        Raises `CrashPointMissed` if the process ends without reaching the point.
        """
        process = _Process(self, point)
        engine = self._engine(process)

        async def live() -> None:
            async with engine:
                await life(engine)

        living = asyncio.ensure_future(live())
        dying = asyncio.ensure_future(process.died.wait())
        await asyncio.wait([living, dying], return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if process.fatal is None:
            await living  # an error before the crash point takes precedence
            seen = "".join(f"\n  {write}" for write in self.writes)
            raise CrashPointMissed(
                f"The process ended without reaching the crash point {point}. Choose one of its writes:{seen}"
            )
        await process.bury(engine, living)
        return process.fatal

    def _engine(self, process: _Process) -> InlineEngine:
        self._process = process
        # The type checker cannot see the verbs that go through `__getattr__`.
        return InlineEngine(*self.workflows, store=cast(Store, process), clock=self.clock)

    def note(self, write: Write) -> None:
        """Note a write that took effect. A remembered write that is repeated is doubled, unless it was rewound."""
        if write.kind == "rewind":
            self._remembered = {known for known in self._remembered if known[-1] != write.session}
        elif write.kind in ("operation", "checkpoint"):
            if write[1:] in self._remembered:
                self.doubled.append(write)
            self._remembered.add(write[1:])
        self.writes.append(write)


class _Process:
    """The machine's store, as seen by one process."""

    def __init__(self, machine: Machine, point: CrashPoint | None) -> None:
        self.inner = machine.store
        self.machine = machine
        self.point = point
        self.on_change: OnChange = lambda keys: None
        self.died = asyncio.Event()
        self.fatal: Write | None = None
        self.burial = asyncio.Event()
        self.under_way: set[asyncio.Task[Any]] = set()

    async def open(self, on_change: OnChange) -> None:
        self.on_change = on_change

    async def close(self) -> None:
        self.on_change = lambda keys: None

    async def create(self, new: NewSession) -> SessionRow | None:
        return await self._write(new.records[0], "start", lambda: self.inner.create(new))

    async def commit(self, commit: Commit) -> Flags | None:
        record = commit.records[0]
        return await self._write(record, record.kind, lambda: self.inner.commit(commit), commit.key)

    async def revise(self, commit: Commit) -> Found:
        return await self._write(
            commit.records[0], commit.records[0].kind, lambda: self.inner.revise(commit), commit.key
        )

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.inner, name)
        return self._silent if self.is_dead() else verb

    def lease_left(self, number: int) -> float | None:
        return None

    def has_news(self) -> bool:
        return not self.is_dead() and self.inner.has_news()

    def is_dead(self) -> bool:
        return self.fatal is not None

    async def _silent(self, *args: Any, **options: Any) -> NoReturn:
        """Never answer a dead process. Refuse what its ``finally`` blocks still try to write."""
        await self.burial.wait()
        raise StoreClosed("This simulated process is dead.")

    async def _write(self, record: Record, kind: str, act: Callable[[], Awaitable[T]], session: int = 0) -> T:
        if self.is_dead():
            await self._silent()
        write = self._name(record, kind, session)
        if self._dies("before", write):
            await self._silent()
        # Shielded: a write that has begun when the process dies may still take effect, and must then be noted.
        task = asyncio.ensure_future(self._act(write, act))
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        result = await asyncio.shield(task)
        if self.is_dead():
            await self._silent()
        return result

    async def _act(self, write: Write, act: Callable[[], Awaitable[T]]) -> T:
        result = await act()
        if result is not None:  # None: a conditional commit was not written
            self.machine.note(write)
            self._dies("after", write)
        return result

    def _name(self, record: Record, kind: str, session: int) -> Write:
        self.machine.begun += 1
        body = body_of(record)
        name = getattr(body, "id", getattr(body, "type", ""))
        return Write(self.machine.begun, kind, record.step, record.visit, name, session)

    def _dies(self, when: When, write: Write) -> bool:
        point = self.point
        if self.is_dead() or point is None or point.when != when or not point.fits(write):
            return False
        self.fatal = write
        self.died.set()
        return True

    async def bury(self, engine: InlineEngine, living: asyncio.Task[None]) -> None:
        """Cancel the remaining tasks of the dead process."""
        await asyncio.gather(*self.under_way, return_exceptions=True)
        self.burial.set()
        runs = list(engine._service.driver.runs.values())
        for run in runs:
            if run.drive is not None:
                run.drive.ledger.parked = True  # a dead process must not report trouble
            run.task.cancel()
        await asyncio.gather(*(run.task for run in runs), return_exceptions=True)
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
