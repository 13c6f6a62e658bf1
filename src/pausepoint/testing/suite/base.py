"""Helpers that the tests of the suite share: a place for stores, and short ways to make sessions and commits."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from pausepoint.model.commits import Commit, Flags, NewSession
from pausepoint.model.records import Record, first_digest, seal
from pausepoint.model.sessions import Pause, SessionRow
from pausepoint.stores.base import OnChange, Store
from pausepoint.testing.clock import ManualClock

P = ParamSpec("P")

PATIENCE = 600.0
"""Seconds after which a waiting test fails. It costs nothing in a run that passes. Set more on a slow machine."""


def on_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an ``async def`` test on a new event loop, and fail it if it hangs."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE))

    return run


class Place:
    """A test's own folder and clock, and the stores that use them."""

    def __init__(self, make: Callable[[Path, ManualClock], Store], folder: Path) -> None:
        self.make = make
        self.folder = folder
        self.clock = ManualClock(start=1_000_000)

    @asynccontextmanager
    async def store(self, on_change: OnChange = lambda keys: None) -> AsyncIterator[Store]:
        """Open a store for the duration of the block."""
        store = self.make(self.folder, self.clock)
        await store.open(on_change)
        try:
            yield store
        finally:
            await store.close()


class Suite:
    """The base class of all parts of the suite. Override `make_store` to test your store."""

    def make_store(self, folder: Path, clock: ManualClock) -> Store:
        """Return a new, unopened store of the kind under test.

        In a `SharedStoreSuite`, all stores that are made with the same folder must share their data.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not create a store. Define make_store(self, folder, clock) to return one."
        )

    def lose_engine(self, store: Store) -> None:
        """Let a store look as if the process of its engine had died. If not overridden, its tests are skipped."""
        pytest.skip(f"{type(self).__name__} does not define lose_engine(self, store)")

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        """The place where the test opens its stores."""
        return Place(self.make_store, tmp_path)


def new_session(session_id: str = "s1", **changes: Any) -> NewSession:
    """Return the facts of a session to create."""
    first = seal(first_digest(session_id), 1, 0, "key", "first", 1, 1000, b"{}")
    values: dict[str, Any] = {
        "session_id": session_id, "workflow": "brief", "version": 1, "owner": None, "tags": (),
        "input_digest": b"\0" * 32, "created_at": 1000, "step": "first", "visit": 1, "budget_usd": None,
        "records": (first,),
    }  # fmt: skip
    return NewSession(**(values | changes))


def operator(reason: str = "lunch", by: str | None = "ann", at: int = 5000, **changes: Any) -> Pause:
    """Return an operator's request to pause."""
    return Pause("", "operator", reason, by, at, **changes)


class Driver:
    """Plays the engine: tracks the position of its session and commits the next records."""

    def __init__(self, store: Store, row: SessionRow) -> None:
        self.store, self.key, self.fence = store, row.key, row.fence
        self.seq, self.digest, self.at = row.seq, row.digest, row.updated_at

    def next(self, payload: bytes = b"{}", kind: Any = "checkpoint", **changes: Any) -> Commit:
        """Return the next commit, and advance the driver as if the store had accepted it."""
        record = seal(self.digest, self.seq + 1, self.seq, kind, "first", 1, self.at, payload)
        values: dict[str, Any] = {
            "key": self.key, "fence": self.fence, "base_seq": self.seq, "records": (record,),
            "updated_at": self.at + 1, "key_frame": 1, "step": "second", "visit": 1,
        }  # fmt: skip
        self.seq, self.digest, self.at = record.seq, record.digest, self.at + 1
        return Commit(**(values | changes))

    def commit(self, payload: bytes = b"{}", **changes: Any) -> Awaitable[Flags | None]:
        """Commit the next record of the session."""
        return self.store.commit(self.next(payload, **changes))


async def created(store: Store, session_id: str = "s1", **changes: Any) -> SessionRow:
    """Create a session, which must not exist yet."""
    row = await store.create(new_session(session_id, **changes))
    assert row is not None, f"{session_id} already exists"
    return row


async def started(store: Store, session_id: str = "s1", **changes: Any) -> Driver:
    """Create a session and return a driver that holds it."""
    return Driver(store, await created(store, session_id, **changes))


async def parked(store: Store, session_id: str = "s1", **changes: Any) -> SessionRow:
    """Create a session and release it. ``changes`` say what it waits for."""
    await (await started(store, session_id)).commit(release=True, **changes)
    return await stored(store, session_id)


async def stored(store: Store, session_id: str = "s1") -> SessionRow:
    """Return the row of a session, which must exist."""
    row = await store.get(session_id)
    assert row is not None, f"{session_id} is not stored"
    return row


async def payloads(store: Store, key: int) -> list[bytes]:
    """Return the payloads of all records of a session."""
    found: list[Record] = await store.records(key, 1)
    return [record.payload for record in found]
