"""A connection to Postgres, with the statements of the store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import psycopg
from msgspec.structs import astuple

from pausepoint.model.records import Record
from pausepoint.stores.postgres import prepared
from pausepoint.stores.postgres import records as log
from pausepoint.stores.postgres.sql import PARTS, QUERIES
from pausepoint.stores.text import storable

Statement = tuple[str, Any]
"""A statement and its bindings."""

_COMMIT: Statement = ("COMMIT", None)

# Stated, because the server or the account may have another default: then a statement after the gate would not see what
# was written while the gate was awaited.
_WRITES = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_READS = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

_TOKENS = re.compile(r"'(?:[^']|'')*'|\?\d*|(?<!:):[a-z_]\w*")


@lru_cache(maxsize=2000)
def numbered(statement: str) -> tuple[str, tuple[int | str, ...]]:
    """Return a statement with Postgres's parameters, and which binding is which of them.

    >>> numbered("SELECT ? + ?")
    ('SELECT $1 + $2', (0, 1))
    >>> numbered("SELECT ?3, :now, ?3, 'why?', 1::text")
    ("SELECT $1, $2, $1, 'why?', 1::text", (2, 'now'))
    """
    order: list[int | str] = []

    def number(match: re.Match[str]) -> str:
        token = match[0]
        if token[0] == "'":
            return token
        binding: int | str = token[1:] if token[0] == ":" else int(token[1:]) - 1 if token[1:] else len(order)
        if token == "?" or binding not in order:
            order.append(binding)
        return f"${order.index(binding) + 1}"

    return _TOKENS.sub(number, statement), tuple(order)


def _bound(value: Any) -> Any:
    """Return a binding as Postgres takes it: flags are numbers, and text has neither NUL nor lone surrogates."""
    kind = type(value)
    if kind is int or kind is bytes or value is None:  # most are
        return value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        return storable(value)
    return value


class Rows:
    """The rows of statements, which are executed when the first one is read, or before."""

    def __init__(self, execute: Callable[[], None]) -> None:
        self._execute = execute
        self._found: list[Any] = []
        self._iterator: Iterator[Any] | None = None

    def add(self, cursor: Any) -> None:
        """Take the rows of a statement that was executed."""
        result = cursor.pgresult  # its `description` would make an object for each column
        if result is not None and result.nfields:
            self._found += cursor.fetchall()

    def fetchone(self) -> Any:
        return next(iter(self), None)

    def fetchall(self) -> list[Any]:
        return list(self)

    @property
    def get(self) -> Any:
        row = self.fetchone()
        return row[0] if row is not None and len(row) == 1 else row

    def close(self) -> None:
        self._iterator = iter(())

    def __iter__(self) -> Iterator[Any]:
        if self._iterator is None:
            self._execute()
            self._iterator = iter(self._found)
        return self._iterator


class Connection:
    """A `pausepoint.stores.sql.connection.Connection`. ``reached`` is called before each statement, for tests.

    A statement waits until its rows are read, or until the transaction ends. What waits is then executed in one round
    trip. So an error of a statement that returns nothing may be raised later, but before the transaction is committed.
    """

    queries: Mapping[str, str] = QUERIES
    parts: Mapping[str, str] = PARTS
    hints = False
    refusals: tuple[type[Exception], ...] = (psycopg.IntegrityError, psycopg.DataError)
    unreadable: tuple[type[Exception], ...] = (UnicodeDecodeError,)

    def __init__(self, raw: psycopg.Connection[Any], begin: str = "BEGIN") -> None:
        self.raw = raw
        self.reached: Callable[[], None] = lambda: None
        self._begin = begin
        self._changes = 0
        self._opening: list[Statement] = []  # what begins the transaction, until its first statement
        self._waiting: list[tuple[Statement, Rows]] = []
        self._prepared: dict[str, bytes] = {}  # the names of statements

    def execute(self, statement: str, bindings: Any = None, /) -> Rows:
        return self.executemany(statement, (bindings,))

    def executemany(self, statement: str, many: Iterable[Any], /) -> Rows:
        rows = Rows(self._flush)
        self._waiting += [((statement, bindings), rows) for bindings in many]
        return rows

    def changes(self) -> int:
        self._flush()
        return self._changes

    def _flush(self, *last: Statement, fresh: str | None = None) -> None:
        """Execute the statements that wait, and ``last``, in one round trip. ``fresh`` is as in `transact`."""
        opening, waiting = self._opening, self._waiting
        self._opening, self._waiting = [], []
        statements = [*opening, *(statement for statement, _ in waiting), *last]
        if not waiting and not last:
            self._opening = opening
            return
        cursors = [self._send(statements[0])] if len(statements) == 1 else self._pipelined(statements, fresh)
        self._changes = 0
        for (_, rows), cursor in zip(waiting, cursors[len(opening) :], strict=False):
            rows.add(cursor)
            same = waiting[-1][1] is rows
            self._changes += max(cursor.rowcount, 0) if same else 0

    def _pipelined(self, statements: Sequence[Statement], fresh: str | None) -> list[Any]:
        with self.raw.pipeline():
            return [self._send(each, fresh=each[0] is fresh) for each in statements]

    def _send(self, statement: Statement, fresh: bool = False) -> Any:
        self.reached()
        text, order = numbered(statement[0])
        cursor = self.raw.cursor(binary=True)
        return cursor.execute(text, _arranged(order, statement[1]), prepare=False if fresh else None)

    def transact(self, *statements: Statement, fresh: bool = False, gate: str | None = None) -> list[list[Any]]:
        """Run a transaction in one round trip, and return the rows of each statement.

        ``fresh`` plans the last one for these bindings: the size of its arrays decides which plan is good. ``gate`` is
        as in `begin`.
        """
        self.begin(gate=gate)
        found = [self.execute(*statement) for statement in statements]
        self._flush(_COMMIT, fresh=statements[-1][0] if fresh else None)
        return [rows.fetchall() for rows in found]

    def transact_one(self, statement: str, bindings: Any) -> list[Any]:
        """Run one statement as a transaction, and return its rows."""
        if self.needs_begin:
            return self.transact((statement, bindings))[-1]
        self.reached()
        text, order = numbered(statement)
        return prepared.run(self.raw, self._prepared, text, _arranged(order, bindings) or [])

    @property
    def needs_begin(self) -> bool:
        """Whether even a single statement needs a transaction around it, which names the schema."""
        return self._begin != "BEGIN"

    def begin(self, *, reads: bool = False, gate: str | None = None) -> None:
        """Begin a transaction, together with its first statements, in one round trip.

        ``reads``: all its statements see the same moment. ``gate`` is a query that locks it, by a statement of its own,
        because the statements after it must not see an older moment.
        """
        text = self._begin.replace("BEGIN", _READS if reads else _WRITES)
        self._opening = [(each, None) for each in text.split("; ")]
        if gate is not None:
            self._opening.append((QUERIES[gate], None))

    def commit(self, *last: Statement) -> None:
        """Execute the last statements of a transaction and commit it, in one round trip."""
        if last or self._waiting or not self._opening:
            self._flush(*last, _COMMIT)
        self._opening = []

    def rollback(self) -> None:
        self._opening, self._waiting = [], []
        self.raw.execute("ROLLBACK")

    def create(self, values: tuple[Any, ...]) -> int | None:
        key: int | None = self.execute(QUERIES["create"], values).get
        return key

    def append(self, key: int, records: Sequence[Record]) -> int:
        self.executemany(QUERIES["append"], [(key, *astuple(record)) for record in records])
        return 0

    def strip_log(self, key: int, limit: int) -> bool:
        return bool(self.execute(QUERIES["strip_log"], (key, limit)).fetchall())

    def read_records(self, key: int, since: int, until: int | None) -> list[Record]:
        return log.read(self, key, since, until)

    def read_blob(self, hash: bytes) -> bytes | None:
        data: bytes | None = self.execute(QUERIES["blob"], (hash,)).get
        return data


def _arranged(order: tuple[int | str, ...], bindings: Any) -> list[Any] | None:
    if not order:
        return None
    return [_bound(bindings[name]) for name in order]
