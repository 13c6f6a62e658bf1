"""Messages that a step has received, but whose receipt is not committed yet.

A wait returns its message to the step without an ``await`` in between, so that a cancelled wait has taken none. The
receipt is committed before the next operation, wait or checkpoint. If the step fails or exits before that, nothing was
written, and the message is still in the mailbox.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from pausepoint.log.replay import OperationBody
from pausepoint.log.state import Blobs
from pausepoint.model.commits import Facts

Commit = Callable[..., Awaitable[None]]


class Receipt(NamedTuple):
    """A message that a step has received. ``facts`` returns what else is committed with the receipt, if anything."""

    body: OperationBody
    blobs: Blobs
    n: int
    facts: Callable[[], Awaitable[Facts]] | None = None


class Handover:
    """The receipts of one visit that are not committed yet, oldest first."""

    __slots__ = ("lock", "open", "receipts")

    def __init__(self) -> None:
        self.receipts: deque[Receipt] = deque()
        self.open = 0  # how many are queued or being committed
        self.lock = asyncio.Lock()

    def add(self, receipt: Receipt) -> None:
        """Queue a receipt."""
        self.receipts.append(receipt)
        self.open += 1

    async def commit(self, remember: Commit, effects: Callable[[], Any]) -> list[str]:
        """Commit all receipts, and wait for those that another branch is committing. Return their operations."""
        done = []
        async with self.lock:
            while self.receipts:
                extra = self.receipts[0].facts
                facts: Facts = {} if extra is None else await extra()
                receipt = self.receipts.popleft()  # from here to the commit nothing is awaited
                facts["consume"] = (receipt.n, *facts.get("consume", ()))
                body = replace(receipt.body, effects=(*receipt.body.effects, *effects()))
                done.append(body.id)
                try:
                    await remember(body, receipt.blobs, **facts)
                finally:
                    self.open -= 1
        return done
