"""A statement that a connection prepares once and then executes without a cursor, which costs more than the statement.

Only for what runs at every step. Its bindings are numbers, text and bytes, and so are its columns.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format

_NUMBER = struct.Struct("!q")
_BIGINT, _TEXT = 20, 25


def run(raw: psycopg.Connection[Any], names: dict[str, bytes], text: str, values: list[Any]) -> list[tuple[Any, ...]]:
    """Execute a statement in a transaction of its own. ``names`` has those that the connection has prepared."""
    dumped: list[Any] = [_dumped(value) for value in values]
    if text in names:
        with suppress(psycopg.errors.InvalidSqlStatementName):  # the driver drops all statements after a rollback
            return _executed(raw, names[text], dumped)
    name = names.setdefault(text, b"pausepoint_%d" % len(names))
    _checked(raw, raw.pgconn.prepare(name, text.encode()))
    return _executed(raw, name, dumped)


def _executed(raw: psycopg.Connection[Any], name: bytes, values: list[Any]) -> list[tuple[Any, ...]]:
    result = raw.pgconn.exec_prepared(name, values, [Format.BINARY] * len(values), Format.BINARY)
    _checked(raw, result)
    kinds = [result.ftype(column) for column in range(result.nfields)]
    return [
        tuple(_loaded(kind, result.get_value(row, column)) for column, kind in enumerate(kinds))
        for row in range(result.ntuples)
    ]


def _dumped(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else _NUMBER.pack(value)


def _loaded(kind: int, value: bytes | None) -> Any:
    if value is None:
        return None
    if kind == _BIGINT:
        return _NUMBER.unpack(value)[0]
    if kind == _TEXT:
        return value.decode()
    raise TypeError(f"A prepared statement returned a column of type {kind}. Cast it to bigint or text.")


def _checked(raw: psycopg.Connection[Any], result: Any) -> None:
    """Raise the error of a result."""
    if result.status in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
        return
    if raw.pgconn.status == ConnStatus.BAD and not result.error_field(DiagnosticField.SQLSTATE):
        raise psycopg.OperationalError(result.get_error_message())
    raise psycopg.errors.error_from_result(result)
