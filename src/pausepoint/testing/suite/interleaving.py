"""Runs two engines on one store at the same time, in a chosen interleaving, and records what each call returned.

Each engine has a thread, an event loop and a store of its own. Before each call to the store, it waits at a
`Turnstile` until the schedule lets it pass. A schedule may let both engines pass at the same moment. Inside such
calls, the store's own lock points (see `ConcurrencySuite.watch`) can be used to switch between the engines.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import random
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Literal, NamedTuple, TypeVar

from pausepoint.errors import PausepointError, UnknownSession
from pausepoint.name import NAME
from pausepoint.testing.suite import base

T = TypeVar("T")

Letter = Literal["a", "b"]
LETTERS: tuple[Letter, Letter] = ("a", "b")

LOCKED_AFTER = 0.002
"""Seconds after which an engine that has not reached its next lock point counts as waiting for a lock.

A wrong guess only changes which interleaving is tested: the calls are judged by their results alone.
"""

Draw = Callable[[Sequence[Letter]], Sequence[Letter]]
"""Chooses which of the waiting engines make their next call. Several of them call at the same time."""


def other(letter: Letter) -> Letter:
    """Return the other engine."""
    return "b" if letter == "a" else "a"


class Lane:
    """A thread with an event loop, in which one engine opens its store and calls it."""

    def __init__(self, letter: Letter) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"{NAME}-engine-{letter}", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the lane without waiting for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the lane and return its result."""
        return self.submit(work).result(base.PATIENCE)

    def stop(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(base.PATIENCE)
        if not self._thread.is_alive():
            self._loop.close()


class Turnstile:
    """Lets engines make their next call as ``draw`` chooses, whenever each of them waits here or has finished.

    With ``chance``, it also stops engines at lock points inside their calls. An engine that is stopped there continues
    when the other one has finished, stops at a lock point itself, or seems to wait for a lock.
    """

    def __init__(self, draw: Draw, chance: random.Random | None = None) -> None:
        self._draw = draw
        self._chance = chance
        self._news = threading.Condition()
        self._waiting: set[Letter] = set()
        self._allowed: set[Letter] = set()
        self._finished: set[Letter] = set()
        self._stopped: set[Letter] = set()  # at a lock point
        self._locked: set[Letter] = set()  # seems to wait for a lock that the other engine holds
        self._progress = 0
        self.switches = 0

    def enter(self, letter: Letter) -> None:
        """Wait for the turn of this engine. Blocks the thread: nothing else happens in it meanwhile."""
        with self._news:
            self._waiting.add(letter)
            self._locked.discard(letter)
            self._settle()
            if not self._news.wait_for(lambda: letter in self._allowed, base.PATIENCE):
                raise TimeoutError(f"Engine {letter} waited in vain: a call of engine {other(letter)} does not return.")
            self._allowed.discard(letter)

    def finish(self, letter: Letter) -> None:
        """Note that this engine makes no more calls."""
        with self._news:
            self._finished.add(letter)
            self._settle()

    def _settle(self) -> None:
        self._progress += 1
        if self._waiting and self._waiting | self._finished | self._stopped == set(LETTERS):
            chosen = self._waiting if self._stopped else set(self._draw(sorted(self._waiting)))
            self._allowed |= chosen
            self._waiting = self._waiting - chosen
        self._news.notify_all()

    def reached(self, letter: Letter) -> None:
        """Stop an engine at a lock point inside its call, or not. The store calls this, in any thread."""
        them = other(letter)
        with self._news:
            self._progress += 1
            self._locked.discard(letter)
            if self._chance is None or them in self._finished | self._locked or self._chance.random() < 0.5:
                return
            self.switches += 1
            self._stopped = {letter}  # if the other one was stopped, it continues
            self._settle()
            while letter in self._stopped and them not in self._finished | self._locked:
                seen = self._progress
                moved = self._news.wait_for(lambda: self._progress != seen, LOCKED_AFTER)  # noqa: B023
                if not moved:
                    self._locked.add(them)
            self._stopped.discard(letter)


class Call(NamedTuple):
    """One call to a store: its comparable result, and the moments at which it began and ended."""

    letter: Letter
    verb: str
    result: object
    began: int
    ended: int


class Recorder:
    """A store as one engine sees it. Waits for its turn before each call, and records the result."""

    def __init__(
        self, store: Any, letter: Letter, turnstile: Turnstile, plain: Callable[[Any], object], calls: list[Call],
        ticks: Iterator[int],
    ) -> None:  # fmt: skip
        self.letter: Letter = letter
        self._store = store
        self._turnstile = turnstile
        self._plain = plain
        self._calls = calls
        self._ticks = ticks

    def finish(self) -> None:
        """Note that this engine makes no more calls."""
        self._turnstile.finish(self.letter)

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not inspect.iscoroutinefunction(verb):
            return verb

        async def recorded(*args: Any, **options: Any) -> Any:
            self._turnstile.enter(self.letter)
            began = next(self._ticks)
            result: Any = None
            try:
                return (result := await verb(*args, **options))
            except PausepointError as error:
                result = error
                raise
            finally:
                ended = next(self._ticks)
                if result is None and name == "get":
                    result = UnknownSession("", session_id="")  # a store may do either for a removed session
                self._calls.append(Call(self.letter, name, self._plain(result), began, ended))

        return recorded


def overlap(calls: Sequence[Call]) -> bool:
    """Return whether two calls were under way at the same time."""
    return any(one.began < two.ended and two.began < one.ended for one, two in itertools.combinations(calls, 2))


def serial_orders(calls: Sequence[Call]) -> Iterator[list[Letter]]:
    """Yield the orders in which the calls may have been committed, the most likely one first.

    A call that returned before another one began was committed first. Calls that overlap may be in either order.
    """
    queues = {letter: [call for call in calls if call.letter == letter] for letter in LETTERS}
    yield from _orders(queues["a"], queues["b"])


def _orders(a: list[Call], b: list[Call]) -> Iterator[list[Letter]]:
    if not a or not b:
        yield [call.letter for call in a or b]
        return
    heads = sorted((a[0], b[0]), key=lambda call: call.ended)
    for first, second in (heads, heads[::-1]):
        if second.ended < first.began:
            continue
        for rest in _orders(a[1:], b) if first.letter == "a" else _orders(a, b[1:]):
            yield [first.letter, *rest]


def together(waiting: Sequence[Letter]) -> Sequence[Letter]:
    """Let all engines make their next calls at the same time."""
    return waiting


def overtaking(late: Letter, after: int) -> Draw:
    """Stop one engine after some calls, let the other one make all its calls, then continue the first."""
    made = itertools.count(1)

    def draw(waiting: Sequence[Letter]) -> Sequence[Letter]:
        if late in waiting and (len(waiting) == 1 or next(made) <= after):
            return (late,)
        return (other(late),)

    return draw


def at_random(chance: random.Random) -> Draw:
    """Let one engine or both make their next call."""
    return lambda waiting: waiting if chance.random() < 0.5 else (chance.choice(waiting),)


def in_order(order: Sequence[Letter]) -> Draw:
    """Let the engines make one call at a time, in a given order."""
    left = iter(order)

    def draw(waiting: Sequence[Letter]) -> Sequence[Letter]:
        letter = next(left, waiting[0])
        return (letter,) if letter in waiting else (waiting[0],)  # the calls differ, and so will the results

    return draw
