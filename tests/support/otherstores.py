"""A store that wraps another one and can refuse commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pausepoint.model.commits import Commit, Flags
from pausepoint.stores.base import Store


class ProxyStore:
    """Passes every verb of the protocol, and nothing else, to another store. ``before_commit`` may raise instead."""

    def __init__(self, inner: Store, before_commit: Callable[[Commit], None] = lambda commit: None) -> None:
        self._inner = inner
        self.before_commit = before_commit
        self.used: set[str] = set()

    async def commit(self, commit: Commit) -> Flags | None:
        self.used.add("commit")
        self.before_commit(commit)
        return await self._inner.commit(commit)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Store, name):
            raise AttributeError(f"{name} is not a verb of the Store protocol")
        self.used.add(name)
        return getattr(self._inner, name)
