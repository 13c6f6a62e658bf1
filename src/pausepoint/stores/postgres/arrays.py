"""Columns of a batch, as arrays in Postgres's binary format. psycopg's own way costs much more for each value."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

_LENGTH = struct.Struct("!i")


class Numbers(list[int]):
    """A ``bigint[]`` without NULLs."""


class Texts(list[str | None]):
    """A ``text[]``."""


class Bytes(list[bytes]):
    """A ``bytea[]`` without NULLs."""


def _head(count: int, oid: int, nulls: bool = False) -> bytes:
    return struct.pack("!iiiii", 1, nulls, oid, count, 1)


def _values(values: Iterable[bytes | None]) -> Iterable[bytes]:
    for value in values:
        if value is None:
            yield _LENGTH.pack(-1)
        else:
            yield _LENGTH.pack(len(value))
            yield value


class _Numbers(Dumper):
    format, oid = Format.BINARY, 1016

    def dump(self, obj: Any) -> bytes:
        pairs = [part for value in obj for part in (8, value)]
        return _head(len(obj), 20) + struct.pack("!" + "iq" * len(obj), *pairs)


class _Texts(Dumper):
    format, oid = Format.BINARY, 1009

    def dump(self, obj: Any) -> bytes:
        encoded = [None if value is None else value.encode() for value in obj]
        return _head(len(obj), 25, None in encoded) + b"".join(_values(encoded))


class _Bytes(Dumper):
    format, oid = Format.BINARY, 1001

    def dump(self, obj: Any) -> bytes:
        return _head(len(obj), 17) + b"".join(_values(obj))


def register(raw: psycopg.Connection[Any]) -> None:
    """Let a connection take arrays of this module as bindings."""
    for kind, dumper in ((Numbers, _Numbers), (Texts, _Texts), (Bytes, _Bytes)):
        raw.adapters.register_dumper(kind, dumper)
