"""Stores that are broken on purpose. They prove that the trials notice a fault."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.json import encode
from msgspec.structs import replace

from pausepoint.errors import StoreReadOnly
from pausepoint.model.commits import Commit, Flags, NewSession
from pausepoint.model.sessions import SessionRow
from pausepoint.stores import checksums as sums
from pausepoint.stores.base import Store


class _Twin:
    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Apart(_Twin):
    """Commits the result of a step first, and the session's position in another transaction."""

    _place: tuple[str | None, int, bool] = (None, 0, False)

    async def create(self, new: NewSession) -> SessionRow | None:
        self._place = (new.step, new.visit, False)
        return await self._inner.create(new)

    async def claim(self, *given: Any) -> SessionRow:
        row = await self._inner.claim(*given)
        self._place = (row.step, row.visit, row.held_by_guard)
        return row

    async def commit(self, commit: Commit) -> Flags | None:
        if commit.only_if_paused:
            return await self._inner.commit(commit)
        step, visit, held_by_guard = self._place
        data = replace(commit, step=step, visit=visit, held_by_guard=held_by_guard, ended=None, release=False)
        flags = await self._inner.commit(data)
        self._place = (commit.step, commit.visit, commit.held_by_guard)
        holder = "NULL" if commit.release else "holder"
        statement = (
            "UPDATE sessions SET step = ?, visit = ?, held_by_guard = ?, ended = ?, moved_sum = ?,"
            f" holder = {holder} WHERE key = ?"
        )
        values = (*self._place, commit.ended, _moved(commit), commit.key)
        await self._inner._do(lambda connection: connection.execute(statement, values))  # type: ignore[attr-defined]  # below the protocol
        return flags


def _moved(commit: Commit) -> int:
    last = commit.records[-1]
    failure = None if commit.failure is None else encode(commit.failure).decode()
    progress = None if commit.progress is None else encode(commit.progress).decode()
    return sums.moved(
        last.seq, commit.key_frame, last.digest, commit.step, commit.visit, commit.held_by_guard, commit.ended, failure,
        progress, commit.fence,
    )  # fmt: skip


class Swallows(_Twin):
    """Continues as if nothing had happened when the disk refuses a write."""

    async def commit(self, commit: Commit) -> Flags | None:
        try:
            return await self._inner.commit(commit)
        except StoreReadOnly:
            return Flags(False, "finish", False)


class Early(_Twin):
    """Acknowledges a commit as soon as it is requested, and writes it a little later."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._last: asyncio.Task[None] | None = None

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(verb):
            return verb

        async def after_commits(*args: Any, **kwargs: Any) -> Any:
            if self._last is not None:
                await self._last
            return await verb(*args, **kwargs)

        return after_commits

    async def commit(self, commit: Commit) -> Flags | None:
        if commit.only_if_paused:
            if self._last is not None:
                await self._last
            return await self._inner.commit(commit)
        self._last = asyncio.create_task(self._later(self._last, commit))
        return Flags(False, "finish", False)

    async def _later(self, before: asyncio.Task[None] | None, commit: Commit) -> None:
        if before is not None:
            await before
        await self._inner.commit(commit)
