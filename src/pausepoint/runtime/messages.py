"""Waits for the session's messages."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec

from pausepoint.clock import LATEST
from pausepoint.codec.values import Typed, typed
from pausepoint.errors import OversizedValue, StateRefused, ValueRefused
from pausepoint.log.replay import OperationBody, WaitBody
from pausepoint.log.state import Blobs, stored
from pausepoint.model.records import SignalRecord
from pausepoint.runtime.handover import Receipt
from pausepoint.runtime.pending import Done, Pending, conclude, is_call, withdrawn
from pausepoint.runtime.visit import Frame, Operation, Visit, Wait

FEW = 8
"""The number of signals that are read first."""

TIMEOUT = "timeout"
"""The outcome of a wait that no message has ended in time."""

_NOTHING = typed(None)


class _Message(msgspec.Struct, frozen=True):
    """The payload of a message, as the signal carries it."""

    value: msgspec.Raw


_message = msgspec.json.Decoder(_Message)


class Receiving(Pending[Any]):
    """A wait for the session's next message that has not been received yet.

    A message that has arrived counts, even if the time-out has passed by the time the step looks.
    """

    rank = 1  # a message that loses a race stays in the mailbox, while an answer would be lost

    def __init__(self, visit: Visit, frame: Frame, kind: Any, span: int | None, scope: str) -> None:
        super().__init__(visit, frame, Operation(visit.nth(frame, f"{scope}/receive"), "receive", "", True))
        self.result = typed(kind)
        self.span = span

    async def recall(self, found: OperationBody) -> Any:
        return None if found.outcome == TIMEOUT else await self.visit.recall(found, self.result)

    async def look(self) -> Done | Wait | None:
        message = await self._next_message()
        due = self._due()
        over = due is not None and due <= self.host.clock.now()
        if (message is not None or over) and self.host.must_stop:
            await self.visit.halt(self.frame)
            return None
        if message is not None:
            return Wait("message", due) if self._is_for_a_rival(message) else await self._take(message)
        if over:
            return Done(
                await conclude(
                    self.visit, self.operation, _NOTHING, None, self.frame, self.rivals, outcome=TIMEOUT
                )
            )  # fmt: skip
        if self.span is not None and due is None:
            await self._open(self.span)
            return None
        return Wait("message", due)

    def _due(self) -> int | None:
        wait = self.host.line.waits.get(self.operation.id)
        if wait is not None:
            return wait.due
        return self.host.clock.now() if self.span == 0 else None

    async def _open(self, span: int) -> None:
        """Record when the wait ends. The time counts from here, over all restarts."""
        now = self.host.clock.now()
        due = min(now + span, LATEST)
        await self.visit.open_wait(
            WaitBody(self.operation.id, self.operation.name, due=due, agent=self.visit.agent, at=now)
        )

    async def _next_message(self) -> SignalRecord | None:
        """Return the oldest message not received yet. Reads only a few signals at a time, since thousands may wait."""
        limit = FEW
        while True:
            mail = await self.visit.mail(limit)
            for signal in mail:
                if signal.kind == "message" and signal.n not in self.visit.taken:
                    return signal
            if len(mail) < limit:
                return None
            limit *= FEW  # all of these are reports of children or were received by other branches

    def _is_for_a_rival(self, message: SignalRecord) -> bool:
        """Return whether a message does not fit, but fits another wait of the race, which takes it."""
        others = [each for each in self.rivals if isinstance(each, Receiving)]
        return bool(others) and not self._fits(message) and any(each._fits(message) for each in others)

    def _fits(self, message: SignalRecord) -> bool:
        try:
            _read(message, self.result)
        except StateRefused:
            return False
        return True

    async def _take(self, message: SignalRecord) -> Done | None:
        self.visit.taken.add(message.n)
        try:
            data = self.result.encode(_read(message, self.result), self.operation.name, self.host.limits)
        except StateRefused as error:
            await self.visit.refuse_mail(message, f"step {self.visit.step.name!r}: {error}")
            return None
        except OversizedValue as error:
            self.visit.taken.discard(message.n)
            await self.visit.refuse(self.frame, "oversized", f"step {self.visit.step.name!r}: {error}")
            return None
        return self._handed_over(message, data)

    def _handed_over(self, message: SignalRecord, data: bytes) -> Done:
        """Return the message to the step. Nothing here may be awaited."""
        visit, operation = self.visit, self.operation
        blobs: Blobs = []
        body = OperationBody(operation.id, operation.name, stored(data, blobs), operation.input, agent=visit.agent)
        facts = partial(withdrawn, visit, self.rivals) if self.rivals else None
        if _is_unattended():
            summary = f"message {message.n} went to a task that no code waited for; race waits with ctx.first()"
            visit.note_unused(operation.id, summary, message.n)
        visit.hand_over(Receipt(body, blobs, message.n, facts))
        return Done(self.result.decode(data, operation.name))


def _is_unattended() -> bool:
    """Return whether the wait is a task of its own whose end no code waits for at this moment."""
    task = asyncio.current_task()
    return task is not None and is_call(task.get_coro()) and not getattr(task, "_callbacks", True)


def _read(message: SignalRecord, result: Typed) -> Any:
    try:
        value = result.decode(bytes(_message.decode(message.payload).value), f"message {message.n}")
        result.encode(value, f"message {message.n}")
    except (ValueRefused, msgspec.MsgspecError) as error:
        raise StateRefused(f"Message {message.n} cannot be received: {error}", field="message") from error
    return value
