"""All writes of one engine, on one thread: plain commits in batches, everything else in its own transaction.

An error is never ambiguous. If the connection is lost, the writer connects again and looks for what the transaction
would have left: the last record of a commit, by its digest, or the mark that every other transaction leaves. If it is
not there, the work runs again.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import psycopg

from pausepoint.errors import PausepointError, StoreUnavailable
from pausepoint.model.commits import Commit, Flags
from pausepoint.stores.postgres import commits, locks
from pausepoint.stores.postgres.connection import Connection
from pausepoint.stores.postgres.engines import Enrolled, OwnEngine
from pausepoint.stores.postgres.errors import AGAIN, ATTEMPTS, LOST, PATIENCE, translated
from pausepoint.stores.postgres.locks import Lock
from pausepoint.stores.postgres.notices import names_of
from pausepoint.stores.postgres.place import Place
from pausepoint.stores.postgres.schema import WRITES
from pausepoint.stores.postgres.shortcuts import Shortcut, Signature, Unusual
from pausepoint.stores.postgres.threads import Link, Thread, deliver
from pausepoint.stores.sql import sessions

T = TypeVar("T")

SHARED, EXCLUSIVE = "gate_shared", "gate"
MAIL = "gate_of_mail"
"""As `SHARED`, for messages and answers: an engine that has lost its lease may deliver them, too."""


Keys = Callable[[Any], Iterable[int] | None]


class LeaseLost(StoreUnavailable):
    """This engine may not claim sessions until it has another lease. Nothing was written."""


class Work(msgspec.Struct, eq=False):
    """One commit, verb or shortcut, and its result. ``silent`` work concerns no other engine.

    ``keys`` returns the keys of the sessions that the work has changed, from its answer; None stands for anything.

    The writer tries to reach the server for it until ``until``, however long it has waited for other work. ``then`` is
    called on the writer's thread when the work is done or has failed.
    """

    future: asyncio.Future[Any] | None
    commit: Commit | None = None
    verb: Callable[[Connection], Any] | None = None
    shortcut: Shortcut[Any] | None = None
    lock: Lock | None = None
    gate: str | None = None
    silent: bool = False
    then: Callable[[Any], None] | None = None
    keys: Keys | None = None
    until: float = msgspec.field(default_factory=lambda: time.monotonic() + PATIENCE)
    answer: Any = None
    error: BaseException | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it may share a transaction with other commits."""
        return self.commit is not None and self.verb is None


class Writer:
    """Runs the writes of one store, in the order in which they were submitted. ``first`` is its first connection."""

    def __init__(
        self, place: Place, engine: OwnEngine, channel: str, reached: Callable[[], None], first: Connection
    ) -> None:  # fmt: skip
        self._place, self._engine, self._channel = place, engine, channel
        self._link = Link(place, reached, WRITES, first)
        self._marked: int | None = None
        self._attempts = 0  # those whose connection was lost before they had an effect
        self._thread: Thread[Work] = Thread("writer", self._serve, self._link.drop)

    async def stop(self) -> None:
        await self._thread.stop()

    async def commit(self, commit: Commit) -> Flags | None:
        future = asyncio.get_running_loop().create_future()
        if commit.plain:
            self._thread.put(Work(future, commit=commit))
        else:
            lock, silent = locks.of_commit(commit), not commit.release
            move = lambda connection: self._engine.move(connection, commit)  # noqa: E731
            # A large value that one commit removes may be named by another at the same time.
            gate = EXCLUSIVE if commit.unname else SHARED
            keys = (lambda _: (commit.key,)) if commit.parent is None else None
            self._thread.put(Work(future, commit, move, lock=lock, gate=gate, silent=silent, keys=keys))
        flags: Flags | None = await future
        return flags

    async def do(
        self, verb: Callable[[Connection], T], lock: Lock | None = None, gate: str | None = None, silent: bool = False,
        keys: Keys | None = None,
    ) -> T:  # fmt: skip
        future = asyncio.get_running_loop().create_future()
        self._thread.put(Work(future, None, verb, lock=lock, gate=gate, silent=silent, keys=keys))
        answer: T = await future
        return answer

    async def do_at_once(self, shortcut: Shortcut[T]) -> T | Unusual:
        future = asyncio.get_running_loop().create_future()
        self._thread.put(Work(future, shortcut=shortcut, gate=SHARED))
        answer: T | Unusual = await future
        return answer

    def begin_again(self, number: int, done: Callable[[], None]) -> None:
        """Get another number and lease for the engine, after the work that is waiting. May be called in any thread."""

        def then(enrolled: Enrolled | None) -> None:
            if enrolled is not None:
                self._engine.become(enrolled)
            done()

        verb = lambda connection: self._engine.begin_again(connection, number)  # noqa: E731
        self._thread.put(Work(None, None, verb, then=then))

    # on the thread

    def _serve(self, batch: list[Work]) -> None:
        for run in _runs(batch):
            self._settle(run)

    def _settle(self, run: Sequence[Work]) -> None:
        try:
            self._attempt(run)
        except BaseException as exc:  # no task may wait forever
            if len(run) > 1:  # one of them cannot be written, and must not fail the others
                for work in run:
                    self._settle([work])
                return
            run[0].error = self._told(exc)
        for work in run:
            if work.error is not None:
                work.answer = None  # its transaction may have been rolled back
            elif isinstance(work.answer, PausepointError):  # an error that comes with writes, which are committed
                work.answer, work.error = None, work.answer
            if work.then is not None:
                work.then(work.answer)
        self._thread.post(_deliver, run)

    def _told(self, exc: BaseException) -> BaseException:
        if not isinstance(exc, psycopg.Error | UnicodeError):
            return exc
        error = translated(exc, self._place.shown, writes=True)
        error.__cause__ = exc
        return error

    def _attempt(self, run: Sequence[Work]) -> None:
        mark = "" if run[0].is_plain else str(uuid.uuid4())  # the records of a plain commit are its mark
        lost, refused, unleased = False, 0, 0
        if self._link.failure is not None:
            self._give_up(run, self._link.failure)  # what has waited long enough for the work before it
        while run := [work for work in run if work.error is None]:
            try:
                if unleased:
                    self._become_another(unleased)
                    unleased = 0
                if lost and self._took_effect(run, mark):
                    return
                lost = False
                self._perform(run, mark)
                return
            except AGAIN:
                self._link.rollback()
                refused += 1
                if refused == ATTEMPTS:
                    raise
            except LOST as exc:
                self._link.drop()
                self._engine.lost_connection()
                lost = True
                self._give_up(run, exc)
                time.sleep(0.1)
            except LeaseLost as exc:
                self._link.rollback()
                unleased = self._engine.number
                self._give_up(run, exc)
            except BaseException:
                self._link.rollback()
                raise

    def _give_up(self, run: Sequence[Work], exc: BaseException) -> None:
        """Fail the work whose time is over."""
        for work in run:
            if time.monotonic() > work.until:
                work.error = self._told(exc)

    def _become_another(self, number: int) -> None:
        connection = self._link.connection
        connection.begin()
        enrolled = self._engine.begin_again(connection, number)
        connection.commit()
        if enrolled is not None:
            self._engine.become(enrolled)

    def _perform(self, run: Sequence[Work], mark: str) -> None:
        connection = self._link.connection
        self._engine.backend = connection.raw.pgconn.backend_pid
        self._engine.look(connection)
        work = run[0]
        if work.shortcut is not None:
            work.answer = self._cut_short(connection, work.shortcut, mark)
            return
        if work.verb is None:
            self._move(connection, run)
            return
        connection.begin(gate=work.gate)
        if work.lock is not None:
            work.lock(connection)
        work.answer = work.verb(connection)
        self._marked = self._engine.number  # the watch may give the engine another one meanwhile
        needs_lease = work.gate not in (None, MAIL) and not isinstance(work.answer, PausepointError)
        marks = mark, *self._engine.drives, self._marked, int(needs_lease)
        keys = None if work.keys is None or isinstance(work.answer, PausepointError) else work.keys(work.answer)
        changed = None if keys is None else list(keys)
        silent = work.silent or changed == []
        waves = [] if silent else [(connection.queries["wave"], (self._channel, names_of(changed)))]
        with self._leased():
            connection.commit((connection.queries["leave_mark"], marks), *waves)

    def _cut_short(self, connection: Connection, shortcut: Shortcut[Any], mark: str) -> Any:
        """Run the usual case of a verb in one round trip."""
        self._marked = self._engine.number
        statements = shortcut.statements(self._engine, Signature(mark, self._channel, self._attempts))
        named = [(connection.queries[name], bindings) for name, bindings in statements]
        with self._leased():
            found = connection.transact(*named, gate=SHARED)
        return shortcut.result(connection, self._engine, found)

    @contextmanager
    def _leased(self) -> Iterator[None]:
        """Raise `LeaseLost` if the transaction was rolled back because this engine has no lease."""
        try:
            yield
        except psycopg.errors.DivisionByZero as exc:
            raise LeaseLost(
                f"{self._place.shown}: this engine lost its lease and got no other one in {PATIENCE:g} s. Nothing was"
                " written. Try again."
            ) from exc

    def _move(self, connection: Connection, run: Sequence[Work]) -> None:
        """Run plain commits of different sessions."""
        moves = [work.commit for work in run if work.commit is not None]
        found = commits.move_all(connection, self._engine, moves)
        for work, commit, flags in zip(run, moves, found, strict=True):
            work.answer = flags
            if flags is None:
                connection.begin(reads=True)
                work.error = commits.refusal(connection, self._engine, commit)
                connection.commit()

    def _took_effect(self, run: Sequence[Work], mark: str) -> bool:
        """Return whether the last attempt was written although its answer was lost."""
        connection = self._link.connection
        connection.begin(gate=run[0].gate)
        try:
            # The locks wait for a transaction that is still ending.
            work = run[0]
            if work.verb is not None or work.shortcut is not None:
                if work.lock is not None:
                    work.lock(connection)
                found: str | None = connection.execute(connection.queries["mark"], (self._marked,)).get
                if found is None or not found.startswith(mark):
                    self._attempts += 1
                    connection.execute(connection.queries["give_up_attempts"], (self._attempts, self._marked))
                    return False
                if work.shortcut is not None:
                    keys = [int(key) for key in found.removeprefix(mark).split()]
                    work.answer = work.shortcut.repeated(connection, self._engine, keys)
                return True
            moves = [work.commit for work in run if work.commit is not None]
            locks.keys(connection, [commit.key for commit in moves])
            written = [commits.is_written(connection, commit) for commit in moves]
            if not any(written):
                return False  # they are one transaction
            for work, commit, done in zip(run, moves, written, strict=True):
                if done:
                    _, _, *requests = connection.execute(connection.queries["flags"], (commit.key,)).get
                    work.answer = sessions.flags_of(*requests)
                else:
                    work.error = commits.refusal(connection, self._engine, commit)
            return True
        finally:
            connection.commit()


def _deliver(run: Sequence[Work]) -> None:
    for work in run:
        if work.future is not None:
            deliver(work.future, work.answer, work.error)


def _runs(batch: Sequence[Work]) -> list[list[Work]]:
    """Split a batch into runs of plain commits of different sessions, and other work alone."""
    runs: list[list[Work]] = []
    keys: set[int] = set()
    for work in batch:
        plain = work.is_plain
        if plain and runs and runs[-1][0].is_plain and work.commit is not None and work.commit.key not in keys:
            runs[-1].append(work)
        else:
            runs.append([work])
            keys = set()
        if plain and work.commit is not None:
            keys.add(work.commit.key)
    return runs
