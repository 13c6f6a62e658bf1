"""The store that a URL or a path names. Only this module imports concrete stores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pausepoint.clock import Clock, SystemClock
from pausepoint.errors import StoreError
from pausepoint.name import DEFAULT_STORE
from pausepoint.stores.base import Store
from pausepoint.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from pausepoint.stores.postgres import PostgresStore

DEFAULT_URL = f"sqlite:///{DEFAULT_STORE}"


def accept_loss(url: str | Path = DEFAULT_URL) -> str | None:
    """Make a store that raises `StoreDamaged` usable again, without the commits that cannot be read.

    Sessions are then at their last record that can be read, and operations after it run again. Restore a backup instead
    if you have one. Returns the path of a copy of the damaged log; None if nothing is damaged, which changes nothing.
    Blocks until it is done; close all engines of the store first.
    """
    store = store_from(url, SystemClock())
    return store.accept_loss() if isinstance(store, SqliteStore) else None


def store_from(url: str | Path | Store, clock: Clock, create: bool = True) -> Store:
    """Return the store for a URL, a path or a `Store`."""
    if isinstance(url, Path):
        return SqliteStore(url, clock=clock, create=create)
    if not isinstance(url, str):
        if not hasattr(url, "commit"):
            raise StoreError(
                f"{type(url).__name__} {url!r:.60} is not a store. Pass a path, a URL or a Store to the engine."
            )
        if not create:
            raise StoreError(
                f"create=False works only with a path or a URL. Pass create=False to {type(url).__name__} instead."
            )
        return url
    if url in (":memory:", "sqlite:///:memory:", "sqlite://:memory:", "sqlite://"):
        return SqliteStore(":memory:", clock=clock, create=create)
    if url.startswith("sqlite:///"):
        return SqliteStore(url.removeprefix("sqlite:///"), clock=clock, create=create)
    if url.startswith(("postgresql://", "postgres://")):
        return _postgres(url, clock, create)
    if "://" not in url:
        return SqliteStore(url, clock=clock, create=create)
    raise StoreError(
        f"{url!r} is not the URL of a store that Pausepoint supports. Use sqlite:///path/to/file.db, a path, :memory:,"
        " or postgresql://host/database."
    )


def has_store(url: str) -> bool:
    """Return whether the database that a URL names has a store. Raises `StoreError` if it cannot be reached."""
    return _postgres(url, SystemClock(), create=False).exists()


def _postgres(url: str, clock: Clock, create: bool) -> PostgresStore:
    try:
        from pausepoint.stores.postgres import PostgresStore
    except ImportError as exc:
        raise StoreError(
            f"A store in Postgres needs psycopg, which is not installed ({exc}). Install it with"
            " `pip install 'pausepoint[postgres]'`."
        ) from exc
    return PostgresStore(url, clock=clock, create=create)
