"""Transactions on one connection: a batch takes effect as a whole, or each of its items alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import apsw

from pausepoint.errors import PausepointError, StoreReadOnly, StoreRemoved, StoreUnavailable
from pausepoint.model.commits import Commit, Flags
from pausepoint.stores.sqlite import commits, schema
from pausepoint.stores.sqlite.connection import Connection
from pausepoint.stores.sqlite.engines import OwnEngine
from pausepoint.stores.sqlite.errors import BROKEN
from pausepoint.stores.sqlite.sql import QUERIES
from pausepoint.stores.sqlite.trouble import Trouble
from pausepoint.stores.sqlite.work import Work
from pausepoint.stores.suspension import unsuspended

REFUSALS = 3  # after this many refusals in a row by a full disk, the rest of a batch is not tried


class Trace(NamedTuple):
    """A query, and the value that it returns if a transaction took effect."""

    query: str
    bindings: tuple[object, ...]
    expected: object


class Transactions:
    """Runs batches on one connection. Finds out whether a batch took effect even if COMMIT reports an error."""

    def __init__(
        self, place: schema.Place, engine: OwnEngine, trouble: Trouble, tune: Callable[[Connection], None]
    ) -> None:
        self._place = place
        self._engine = engine
        self._trouble = trouble
        self._tune = tune
        self._connection: Connection | None = None
        self._cursor: apsw.Cursor | None = None  # reused for single commits, because creating cursors is slow
        self.commits = 0

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            self._trouble.check_file()  # another process may have created another store at this path
            self._connection = schema.connect(self._place)
            self._tune(self._connection)
        return self._connection

    def close(self) -> None:
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            schema.disconnect(connection)

    def run(self, batch: Sequence[Work]) -> None:
        """Run a batch in one transaction. Afterwards each work item has its answer or its error.

        If one item makes the transaction fail, each item gets its own transaction. Raises `apsw.BusyError`, with
        nothing done, if the database is locked.
        """
        try:
            self._once(batch)
        except apsw.BusyError:
            raise
        except Exception as exc:
            # Do not retry on a broken disk, or if it is unknown whether the batch was written (StoreUnavailable).
            if len(batch) > 1 and not isinstance(exc, (*BROKEN, StoreUnavailable)):
                self._one_by_one(batch)
            else:
                self.fail(batch, exc)

    def _one_by_one(self, batch: Sequence[Work]) -> None:
        refusals = 0
        for work in batch:
            if refusals == REFUSALS:
                work.error = self._trouble.refusal()
                continue
            try:
                self.run((work,))
            except apsw.BusyError as exc:
                self.fail((work,), exc)
            refusals = refusals + 1 if isinstance(work.error, StoreReadOnly) else 0

    def fail(self, batch: Sequence[Work], exc: Exception) -> None:
        busy = str(self._trouble.met(exc)) if isinstance(exc, apsw.BusyError) else ""  # which looks at all processes
        for work in batch:
            work.error = exc
            if isinstance(exc, apsw.Error | UnicodeDecodeError):
                work.error = StoreUnavailable(busy) if busy else self._trouble.met(exc)
                work.error.__cause__ = exc

    @unsuspended
    def move(self, commit: Commit) -> Flags | None:
        """Run a single commit. Does the same as `run`, but faster, for an engine that drives one session."""
        try:
            cursor = self._cursor
            if cursor is None:
                cursor = self._cursor = self.connection.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            self._engine.begin(self.connection)
            outcome = commits.move(cursor, self._engine, commit)
            self._commit(cursor, lambda: _trace(commit))
        except BaseException as exc:
            self._abandon(exc)
            if isinstance(exc, apsw.Error) and not isinstance(exc, apsw.BusyError):
                raise self._trouble.met(exc) from exc
            raise
        if isinstance(outcome, PausepointError):
            raise outcome
        return outcome

    @unsuspended
    def _once(self, batch: Sequence[Work]) -> None:
        connection = self.connection
        newcomer = not self._engine.number
        try:
            connection.execute("BEGIN IMMEDIATE")
            if newcomer:
                self._engine.register(connection)
            self._engine.begin(connection)
            trace = self._perform(connection, batch)
            self._commit(connection, trace)
        except BaseException as exc:  # a KeyboardInterrupt must not leave a transaction open either
            if newcomer:
                self._engine.unregister()
            self._abandon(exc)
            raise

    def _perform(self, connection: Connection, batch: Sequence[Work]) -> Callable[[], Trace | None]:
        """Perform the work and return a function that says how to find out whether it took effect."""
        moved: Commit | None = None
        verbs = False
        for run, verb in _runs(batch):
            if run:
                moved = self._move_all(connection, run) or moved
            if verb is not None:
                verbs = True
                _do(verb, connection)
        if verbs:
            mark = self._mark(connection)
            return lambda: mark
        return lambda: None if moved is None else _trace(moved)

    def _move_all(self, connection: Connection, run: Sequence[Work]) -> Commit | None:
        """Apply the commits, and return the last one that was written; None if all were refused."""
        moves = [work.commit for work in run if work.commit is not None]
        moved: Commit | None = None
        for work, outcome in zip(run, commits.move_all(connection, self._engine, moves), strict=True):
            if isinstance(outcome, PausepointError):
                work.answer, work.error = None, outcome
            else:
                work.answer, work.error = outcome, None
                moved = work.commit if outcome is not None else moved
        return moved

    def _mark(self, connection: Connection) -> Trace:
        mark, number = str(uuid.uuid4()), self._engine.number
        connection.execute(QUERIES["leave_mark"], (mark, *self._engine.drives, number))
        return Trace(QUERIES["mark"], (number,), mark)

    def _commit(self, place: Connection | apsw.Cursor, trace: Callable[[], Trace | None]) -> None:
        self.commits += 1
        try:
            place.execute("COMMIT")
        except apsw.Error as exc:
            if self._place.in_memory:
                raise
            # Do not retry a failed sync on this connection: the second attempt could wrongly report success.
            self.replace()
            if not self._took_effect(trace(), exc):
                raise
        self._trouble.check_file()

    def _took_effect(self, trace: Trace | None, exc: apsw.Error) -> bool:
        if trace is None:
            return True  # there was nothing to write
        try:
            found = self.connection.execute(trace.query, trace.bindings).fetchone()
        except apsw.Error as second:
            raise self._trouble.unknown(exc, second) from exc
        return found is not None and found[0] == trace.expected

    def _abandon(self, exc: BaseException) -> None:
        if self._connection is None:
            return
        if isinstance(exc, BROKEN) and not self._place.in_memory:
            self.replace()
        elif self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error:
                self.replace()

    def fold(self) -> None:
        """Copy as much of the WAL as possible into the database, so that the WAL file can be reused from its start."""
        with suppress(apsw.Error, StoreRemoved):
            self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def replace(self) -> None:
        """Drop the connection. The next use opens another one."""
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            connection.close(True)


def _do(work: Work, connection: Connection) -> None:
    assert work.verb is not None
    work.answer = work.error = None
    before = connection.total_changes()
    try:
        work.answer = work.verb(connection)
    except PausepointError as exc:
        if connection.total_changes() != before:
            raise  # roll back, because a refusal must leave nothing behind
        work.error = exc


def _trace(commit: Commit) -> Trace:
    """Return the trace of a commit. A record's digest includes a random salt, so it identifies the transaction."""
    last = commit.records[-1]
    return Trace(QUERIES["record_digest"], (commit.key, last.seq), last.digest)


def _runs(batch: Sequence[Work]) -> Iterator[tuple[list[Work], Work | None]]:
    """Split a batch into runs of commits that share their statements, each with the write that follows it."""
    run: list[Work] = []
    for work in batch:
        if work.commit is None:
            yield run, work
            run = []
        else:
            run.append(work)
    yield run, None
