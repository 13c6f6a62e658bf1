"""A store in a SQLite file, accessed through apsw."""

from __future__ import annotations

from pausepoint.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
