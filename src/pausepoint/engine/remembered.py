"""The verbs for requests that must have one effect: a server's answer to a repeated POST.

`pausepoint.stores.remembered` describes what happens if a process is killed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import timedelta

from pausepoint.engine.base import Service
from pausepoint.model.remembered import Remembered
from pausepoint.stores.base import Store

KEPT_FOR = timedelta(hours=24)
"""How long a request is remembered, unless the call says otherwise."""

UNUSED_FOR = timedelta(days=7) // timedelta(microseconds=1)
"""How long the description of a workflow without sessions is kept."""


class RememberedRequests:
    """The verbs for requests that must have one effect."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def remember(
        self, key: str, digest: bytes, answer: bytes | None = None, *, keep_for: timedelta = KEPT_FOR,
        replaces: bytes | None = None,
    ) -> Remembered:  # fmt: skip
        """Take the key of a request, or store the request's answer. Return what is known about the request."""
        self.service.check_open()
        if keep_for <= timedelta(0):
            raise ValueError(f"keep_for must be a timedelta above zero, not {keep_for!r}.")
        until = self.service.clock.now() + keep_for // timedelta(microseconds=1)
        return await self.service.store.remember(key, digest, answer, until, replaces)

    async def recall(self, key: str) -> Remembered | None:
        """Return what is remembered about a request, without taking its key; None if the key is free."""
        self.service.check_open()
        return await self.service.store.recall(key)

    async def forget(self, key: str) -> bool:
        """Give up the key of a request that this engine has taken and that had no effect. Return whether it is free."""
        self.service.check_open()
        return await self.service.store.forget(key)

    def once(self, key: str, *, each: bool = False) -> AbstractContextManager[None]:
        """Return a block whose first change of a session is stored in one transaction with its key. See `remember`."""
        self.service.check_open()
        return self.service.store.once(key, each)


async def forget_notes(store: Store, now: int, limit: int) -> tuple[int, int]:
    """Delete expired requests, and descriptions of workflows without sessions. Return how many of both.

    Each batch of ``limit`` is a transaction of its own, so that other writers commit in between.
    """
    requests = descriptions = 0
    while count := await store.forget_expired(now, limit):
        requests += count
    while count := await store.forget_descriptions(now - UNUSED_FOR, limit):
        descriptions += count
    return requests, descriptions
