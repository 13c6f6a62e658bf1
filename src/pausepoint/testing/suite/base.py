"""What the tests of the suite share: where a store lives, and sessions and commits in few words."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from pausepoint.model.records import Record, first_digest, seal
from pausepoint.model.sessions import Commit, Flags, NewSession, Pause, SessionRow
from pausepoint.stores.base import Store
from pausepoint.testing.clock import ManualClock

P = ParamSpec("P")

PATIENCE = 20.0
"""Seconds after which a test that waits for something is taken to hang."""


def on_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an ``async def`` test on a loop of its own; one that hangs fails."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE))

    return run


class Place:
    """A folder of the test's own, a clock, and stores on them."""

    def __init__(self, make: Callable[[Path, ManualClock], Store], folder: Path) -> None:
        self.make = make
        self.folder = folder
        self.clock = ManualClock(start=1_000_000)

    @asynccontextmanager
    async def store(self, on_change: Callable[[], None] = lambda: None) -> AsyncIterator[Store]:
        """A store, open for the length of the block."""
        store = self.make(self.folder, self.clock)
        await store.open(on_change)
        try:
            yield store
        finally:
            await store.close()


class Suite:
    """The base of all parts of the suite."""

    def make_store(self, folder: Path, clock: ManualClock) -> Store:
        """A store of the kind that is to be proved, not yet open. Called again with the same folder: the same data."""
        raise NotImplementedError(
            f"{type(self).__name__} must say how to make a store: def make_store(self, folder, clock)"
        )

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        """Where the test's stores are."""
        return Place(self.make_store, tmp_path)


def new_session(session_id: str = "s1", **changes: Any) -> NewSession:
    """A session to create."""
    first = seal(first_digest(session_id), 1, 0, "key", "first", 1, 1000, b"{}")
    values: dict[str, Any] = {
        "session_id": session_id, "workflow": "brief", "version": 1, "owner": None, "tags": (),
        "input_digest": b"\0" * 32, "created_at": 1000, "step": "first", "visit": 1, "budget_usd": None,
        "records": (first,),
    }  # fmt: skip
    return NewSession(**(values | changes))


def operator(reason: str = "lunch", by: str | None = "ann", at: int = 5000, **changes: Any) -> Pause:
    """A request to pause."""
    return Pause("", "operator", reason, by, at, **changes)


class Driver:
    """Plays the engine: knows where its session stands and moves it on."""

    def __init__(self, store: Store, row: SessionRow) -> None:
        self.store, self.key, self.fence = store, row.key, row.fence
        self.seq, self.digest, self.at = row.seq, row.digest, row.updated_at

    def next(self, payload: bytes = b"{}", kind: Any = "checkpoint", **changes: Any) -> Commit:
        """The next commit; the driver now stands behind it."""
        record = seal(self.digest, self.seq + 1, self.seq, kind, "first", 1, self.at, payload)
        values: dict[str, Any] = {
            "key": self.key, "fence": self.fence, "base_seq": self.seq, "records": (record,),
            "updated_at": self.at + 1, "key_frame": 1, "step": "second", "visit": 1,
        }  # fmt: skip
        self.seq, self.digest, self.at = record.seq, record.digest, self.at + 1
        return Commit(**(values | changes))

    def commit(self, payload: bytes = b"{}", **changes: Any) -> Awaitable[Flags | None]:
        """Move the session on by one record."""
        return self.store.commit(self.next(payload, **changes))


async def created(store: Store, session_id: str = "s1", **changes: Any) -> SessionRow:
    """Create a session, which must not be there yet."""
    row = await store.create(new_session(session_id, **changes))
    assert row is not None, f"{session_id} was taken"
    return row


async def started(store: Store, session_id: str = "s1", **changes: Any) -> Driver:
    """Create a session and hold it."""
    return Driver(store, await created(store, session_id, **changes))


async def parked(store: Store, session_id: str = "s1", **facts: Any) -> SessionRow:
    """Create a session and let go of it, with what it waits for."""
    await (await started(store, session_id)).commit(release=True, **facts)
    return await stored(store, session_id)


async def stored(store: Store, session_id: str = "s1") -> SessionRow:
    """The facts about a session, which must be there."""
    row = await store.get(session_id)
    assert row is not None, f"{session_id} is not stored"
    return row


async def payloads(store: Store, key: int) -> list[bytes]:
    """What the log of a session says."""
    found: list[Record] = await store.records(key, 1)
    return [record.payload for record in found]
