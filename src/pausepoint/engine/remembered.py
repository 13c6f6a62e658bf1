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


class RequestKeys:
    """The keys of requests that must have one effect, such as a repeated POST. See `remember`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def remember(
        self, key: str, digest: bytes, answer: bytes | None = None, *, keep_for: timedelta = KEPT_FOR,
        replaces: bytes | None = None,
    ) -> Remembered:  # fmt: skip
        """Take the key of a request, or store the request's answer. Return what is known about the request.

        A client repeats a request with the same key if it got no answer. All engines of the store then agree on who
        carries it out:

        1. ``found = await engine.keys.remember(key, digest)``. Carry out the request only if ``found.claimed``.
           Otherwise return ``found.answer``, or say that the request is ``at_work``. If ``found.digest`` is not yours,
           the key was used for another request.
        2. ``with engine.keys.once(key): await session.pause(…)``. If ``found.took_effect``, a process that was killed
           has done that before: leave it out, and answer from the present facts.
        3. ``await engine.keys.remember(key, digest, answer)``, or `forget` if the request was refused.

        - ``key``: 1 to 255 printable characters. Put the name of the client into it, so that clients cannot meet.
        - ``digest``: 1 to 64 bytes that identify the request, such as the SHA-256 of its method, path and body.
        - ``answer``: at most 1 MiB. The first answer stays.
        - ``replaces``: the present answer. If it is still this one, ``answer`` takes its place, for ``keep_for``. A
          reader of `Engine.changes` keeps its mark like this.
        - ``keep_for``: how long the key is taken. After that, the same request would be carried out again.

        >>> import asyncio
        >>> from pausepoint import Engine
        >>> async def post(engine: Engine, key: str) -> bytes | None:
        ...     found = await engine.keys.remember(key, b"PUT /standing-pause")
        ...     if found.claimed:
        ...         with engine.keys.once(key):
        ...             await engine.pause_all(reason="lunch")
        ...         found = await engine.keys.remember(key, found.digest, b"paused")
        ...     return found.answer
        >>> async def main() -> None:
        ...     async with Engine(":memory:") as engine:
        ...         print(await post(engine, "ann 7f1c"))
        ...         await engine.lift_pause()
        ...         print(await post(engine, "ann 7f1c"), await engine.standing_pause())
        >>> asyncio.run(main())
        b'paused'
        b'paused' None
        """
        self._service.check_open()
        if keep_for <= timedelta(0):
            raise ValueError(f"keep_for must be a timedelta above zero, not {keep_for!r}.")
        until = self._service.clock.now() + keep_for // timedelta(microseconds=1)
        return await self._service.store.remember(key, digest, answer, until, replaces)

    async def recall(self, key: str) -> Remembered | None:
        """Return what is remembered about a request, without taking its key; None if the key is free."""
        self._service.check_open()
        return await self._service.store.recall(key)

    async def forget(self, key: str) -> bool:
        """Give up the key of a request that this engine has taken and that had no effect. Return whether it is free.

        A request that took effect keeps its key: store an answer instead.
        """
        self._service.check_open()
        return await self._service.store.forget(key)

    def once(self, key: str, *, each: bool = False) -> AbstractContextManager[None]:
        """Return a block whose first change of a session is stored in one transaction with its key. See `remember`.

        It counts for one verb, in the present task or thread. If this engine does not hold the key any more, the verb
        raises `KeyLost`, and nothing is changed.

        With ``each``, a bulk `pause`, `resume` or `cancel` has one effect on each session. If a process was killed
        meanwhile, repeat the verb in such a block, even if ``took_effect``: sessions that the request has treated are
        reported as done, and left as they are now. A `resume` needs ``here=False``: a process that is killed before it
        drives a session could not complete that later.
        """
        self._service.check_open()
        return self._service.store.once(key, each)


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
