"""What the shared verbs need from a connection to a database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from pausepoint.model.records import Record


class Rows(Protocol):
    """The result of a statement."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""

    @property
    def get(self) -> Any:
        """The first row; its only value if it has one column, and None if there is no row."""

    def close(self) -> None:
        """Give up the rows that are left."""

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection to one of the databases.

    Bindings are written as in SQLite: ``?``, ``?1`` or ``:name``. Flags are 0 and 1, also where a caller passes a bool.

    - ``queries`` and ``parts`` are the statements of the database, and the parts of statements, by name.
    - ``hints``: whether a statement has to name its index, because the database would choose badly.
    - ``refusals``: the errors of a write that a row with damaged values does not accept.
    - ``unreadable``: the errors of a read that meets a damaged row.
    """

    @property
    def queries(self) -> Mapping[str, str]: ...

    @property
    def parts(self) -> Mapping[str, str]: ...

    @property
    def hints(self) -> bool: ...

    @property
    def refusals(self) -> tuple[type[Exception], ...]: ...

    @property
    def unreadable(self) -> tuple[type[Exception], ...]: ...

    def execute(self, statements: str, bindings: Any = None, /) -> Rows: ...

    def executemany(self, statements: str, sequenceofbindings: Iterable[Any], /) -> Rows:
        """Execute a statement once for each of the bindings, and return all rows."""

    def changes(self) -> int:
        """Return how many rows the last statement has changed."""

    def create(self, values: tuple[Any, ...]) -> int | None:
        """Execute the query `create`, and return the key of the new session; None if its id is taken."""

    def append(self, key: int, records: Sequence[Record]) -> int:
        """Append the first records of a new session to its log. Return the log id of the first one, if it has one."""

    def strip_log(self, key: int, limit: int) -> bool:
        """Delete up to ``limit`` records of a session, the last ones first. Return whether there were any."""

    def read_records(self, key: int, since: int, until: int | None) -> list[Record]:
        """Return records of a session, as `pausepoint.stores.base.Store.records` does."""

    def read_blob(self, hash: bytes) -> bytes | None:
        """Return a large value, not verified."""
