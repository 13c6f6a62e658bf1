"""Runs one function over many items concurrently: records the set of items first, then each item as it finishes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pausepoint.codec.values import encode, fingerprint
from pausepoint.definition.functions import callee
from pausepoint.errors import ContextClosed, MapFailed, StepError, error_text
from pausepoint.log.replay import OperationBody
from pausepoint.log.state import Blobs, stored
from pausepoint.runtime.attempts import Policy
from pausepoint.runtime.visit import Operation

if TYPE_CHECKING:
    from pausepoint.runtime.context import Context

R = TypeVar("R")

DEFAULT_CONCURRENCY = 8


@dataclass(frozen=True)
class Batch(Generic[R]):
    """The results and errors of ``ctx.map(…, on_error="collect")``, by position of the item."""

    done: dict[int, R] = field(default_factory=dict)
    failed: dict[int, Exception] = field(default_factory=dict)


class FanOut:
    """One call of `Context.map`."""

    def __init__(
        self, ctx: Context, fn: Callable[..., Any], items: list[Any], key: Callable[[Any], str | int] | None,
        policy: Policy | None = None,
    ) -> None:  # fmt: skip
        self.policy = policy
        self.visit = ctx._visit
        self.ctx = ctx
        self.fn = fn
        self.items = items
        self.what = callee(fn)
        self.done: dict[int, Any] = {}
        self.failed: dict[int, Exception] = {}
        # Items are identified by content, not by the order of the visit's maps, because branches may race.
        self.scope = f"{ctx._frame.scope}/map:{self._name(key)}"
        self.operations = [self._identify(item, key) for item in items]
        self._refuse_doubles(key)
        self.queue: deque[int] = deque(range(len(items)))

    def _name(self, key: object) -> str:
        if self.what.name == "<lambda>" and key is None:
            raise StepError(
                f"Step {self.visit.step.name!r} passed a lambda to map, which has no name to be remembered by."
                " Pass key=, or a named function."
            )
        return self.what.name

    def _identify(self, item: Any, key: Callable[[Any], str | int] | None) -> Operation:
        given = None if key is None else key(item)
        return self.visit.identify(self.ctx._frame, self.what, (item,), {}, given, within=self.scope)

    def _refuse_doubles(self, key: object) -> None:
        seen: set[str] = set()
        for operation in self.operations if key is not None else ():
            if operation.id in seen:
                raise StepError(
                    f"Step {self.visit.step.name!r}: two items of the map {self.what.name!r} have the same key,"
                    f" {operation.id!r}. Make key= return a different key for each item."
                )
            seen.add(operation.id)

    async def run(self, concurrency: int) -> None:
        """Run until every item is done or has failed."""
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}.")
        await self._expect()
        while self.queue:
            await self.ctx._gather([self._work() for _ in range(min(concurrency, len(self.queue)))])
            if self.queue:
                await self.visit.halt(self.ctx._frame)

    async def _expect(self) -> None:
        """Record the set of items once, before the first item starts."""
        ids = [operation.id for operation in self.operations]
        if not ids:
            return
        print_ = fingerprint(ids).hex()[:24]
        header = self._header(
            Operation(self.visit.nth(self.ctx._frame, f"{self.scope}={print_}"), self.what.name, print_, True)
        )
        if self.visit.remembered(header) is not None:
            return
        await self.visit.admit(header, self.ctx._frame, None)
        misses, known = self.visit.misses, self.visit.host.line.operations
        misses.unclaimed.difference_update(ids)  # items that come later in the map are not replaced by earlier ones
        await misses.check(self.ctx._frame, [each for each in self.operations if each.id not in known])
        self.visit.check_open()
        blobs: Blobs = []
        value = stored(encode(ids, header.id), blobs)
        body = OperationBody(
            header.id,
            self.what.name,
            value,
            print_,
            total=len(ids),
            agent=self.visit.agent,
            effects=self.visit.host.ledger.take_effects(),
            part=header.part,
        )
        await self.visit.host.remember(body, blobs)

    def _header(self, header: Operation) -> Operation:
        return header

    async def _work(self) -> None:
        while self.queue:
            index = self.queue[0]
            operation = self.operations[index]
            if operation.id not in self.visit.host.line.operations and self.visit.host.must_stop:
                return
            self.queue.popleft()
            try:
                self.done[index] = await self._one(index)
            except ContextClosed:
                raise  # the step is exiting; the item itself has not failed
            except Exception as error:
                self.failed[index] = error
                self._note_failure(index, error)
            self.visit.host.show_progress(len(self.done), len(self.items))

    async def _one(self, index: int) -> Any:
        return await self.ctx._once(self.operations[index], self.what, self.fn, (self.items[index],), {}, self.policy)

    def _note_failure(self, index: int, error: Exception) -> None:
        visit, operation = self.visit, self.operations[index]
        summary = f"{operation.name}, item {self._label(index)}: {type(error).__name__}: {error_text(error)}"
        data, run = {"id": operation.id}, visit.run
        visit.host.ledger.effect(f"failed:{operation.id}:{run}", "item.failed", summary, data, visit.step.agent)

    def _label(self, index: int) -> str:
        """Return an item's key or the beginning of its value; its position if it has neither."""
        return self.operations[index].label or str(index)

    def error(self) -> MapFailed:
        """Return all failures as one error."""
        errors = {index: self.failed[index] for index in sorted(self.failed)}
        first = next(iter(errors.values()))
        failed = {}
        for index, error in errors.items():
            label = self._label(index)
            failed[f"{label} ({index})" if label in failed else label] = f"{type(error).__name__}: {error_text(error)}"
        whole = MapFailed(
            f"{len(failed)} of {len(self.items)} items of {self.what.name!r} failed. The other results are kept;"
            f" resume the session to retry the failed items. First error: {type(first).__name__}: {error_text(first)}",
            failed=failed,
        )
        whole.errors = tuple(errors.values())
        whole.__cause__ = first
        return whole
