"""Sessions in a SQLite file, through apsw."""

from __future__ import annotations

from holdfast.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
