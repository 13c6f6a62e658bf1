"""Tests with two engines that use a store at the same time, for every pair of verbs.

**The oracle.** Each call is one transaction, so calls that overlap must act as if one of them came first. The calls
are repeated on a reference store, one after the other, in each order in which they may have been committed. In one of
these orders, every call must return there what it returned here, and all sessions must be in the same state afterwards.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

import pytest

from pausepoint.errors import PausepointError
from pausepoint.stores.base import Store
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing.clock import ManualClock
from pausepoint.testing.suite import base
from pausepoint.testing.suite.base import Place, Suite
from pausepoint.testing.suite.comparison import Plain, differences, state_of
from pausepoint.testing.suite.interleaving import (
    LETTERS,
    Call,
    Lane,
    Letter,
    Recorder,
    Turnstile,
    at_random,
    in_order,
    overlap,
    overtaking,
    serial_orders,
    together,
)
from pausepoint.testing.suite.verbs import (
    OTHER_SETTINGS,
    OTHER_VERBS,
    SETTINGS,
    VERBS,
    Actor,
    Scene,
    prepare_move,
    settings_for,
    strip,
)

INTERLEAVINGS = 3
"""How many interleavings of each pair of verbs the suite tests."""

PAIRS = tuple(itertools.combinations_with_replacement(VERBS, 2))
"""Every pair of verbs, and each verb with itself."""

DRAWER_PAIRS = (
    ("append", "append"), ("append", "pop"), ("replace", "replace"), ("append", "replace"), ("append", "remove"),
)  # fmt: skip
"""The pairs of verbs about drawers. All of them use one drawer of the main session."""

PEOPLE: dict[Letter, str] = {"a": "ann", "b": "ben"}
"""For whom each engine acts."""

Stores = dict[Letter, Store]


class Case(NamedTuple):
    """What happens in an interleaving: the verb of each engine, the sessions before, and who prepared them."""

    verbs: tuple[str, str]
    setting: str
    holder: Letter

    def __str__(self) -> str:
        a, b = self.verbs
        return f"engine a: {a}, engine b: {b}, with a session that engine {self.holder} prepared as {self.setting!r}"


class Played(NamedTuple):
    """The calls of both engines, and the state that they left."""

    calls: list[Call]
    state: dict[str, Any]

    def of(self, letter: Letter) -> list[Any]:
        """Return the calls of one engine with their results, in its order."""
        return [{call.verb: call.result} for call in self.calls if call.letter == letter]


class Trial(NamedTuple):
    """The result of one interleaving. ``wrong`` is empty if a serial order explains it."""

    case: Case
    calls: int
    overlapped: bool
    switches: int
    orders: int
    wrong: str
    state: dict[str, Any]

    @property
    def may_run(self) -> list[str]:
        """The sessions that may still run afterwards although everything is paused."""
        wholes = {id: whole for tree in self.state["sessions"].values() for id, whole in tree.items()}
        return [id for id, whole in wholes.items() if not (whole["row"]["ended"] or whole["row"]["under_everything"])]


class Arena:
    """Two engines on one store, and two on the reference store. Use it as a context manager.

    Entering an open arena again does nothing, so that several tests can share one.
    """

    def __init__(
        self, make_store: Callable[[], Store], make_reference: Callable[[], Store], clock: ManualClock,
        watch: Callable[[Store, Callable[[], None]], None] = lambda store, reached: None,
    ) -> None:  # fmt: skip
        self._make_store = make_store
        self._make_reference = make_reference
        self._clock = clock
        self._watch = watch
        self._runs = itertools.count(1)
        self._turnstile: Turnstile | None = None
        self._depth = 0

    def __enter__(self) -> Self:
        self._depth += 1
        if self._depth > 1:
            return self
        self._lanes = {letter: Lane(letter) for letter in LETTERS}
        self._stores = {letter: self._open(letter, self._make_store()) for letter in LETTERS}
        self._references = {letter: self._open(letter, self._make_reference()) for letter in LETTERS}
        for letter, store in self._stores.items():
            self._watch(store, partial(self._reached, letter))
        return self

    def _reached(self, letter: Letter) -> None:
        if self._turnstile is not None:
            self._turnstile.reached(letter)

    def _open(self, letter: Letter, store: Store) -> Store:
        self._lanes[letter].call(store.open(lambda keys: None))
        return store

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        for letter, lane in self._lanes.items():
            for store in (self._stores[letter], self._references[letter]):
                with suppress(TimeoutError):  # a call that hangs was reported before
                    lane.call(store.close())
            lane.stop()

    def trial(self, pair: tuple[str, str], n: int, seed: int = 0, setting: str = "") -> Trial:
        """Run interleaving ``n`` of a pair of verbs, and search for a serial order that explains it.

        The first three are the same with every seed, apart from the sessions that they use: both engines at once, and
        each engine overtaken by the other one after its first call. All others are random. ``setting`` names the
        sessions before, which are drawn otherwise.
        """
        chance = random.Random(f"{seed} {pair} {n}")
        case = draw_case(pair, chance)
        if setting:
            case = case._replace(setting=setting)
        turnstile = schedule(n, chance)
        played = self._play(self._stores, case, turnstile)
        orders, wrong = self._explain(case, played)
        text = f"{case}, interleaving {n} of seed {seed}: {wrong}" if wrong else ""
        return Trial(case, len(played.calls), overlap(played.calls), turnstile.switches, orders, text, played.state)

    def _explain(self, case: Case, played: Played) -> tuple[int, str]:
        """Return how many orders were tried, and why none of them explains what happened."""
        nearest: list[str] = []
        orders = 0
        for orders, order in enumerate(serial_orders(played.calls), 1):
            found = _compare(played, self._play(self._references, case, Turnstile(in_order(order))))
            if not found:
                return orders, ""
            found.insert(0, f"no serial order explains it. In the order {'-'.join(order)}:")
            nearest = found if not nearest or len(found) < len(nearest) else nearest
        return orders, "\n  ".join(nearest[:12])

    def _play(self, stores: Stores, case: Case, turnstile: Turnstile) -> Played:
        scene = Scene(f"run-{next(self._runs)}-", self._clock.now())
        plain = Plain(scene, {store.number: letter for letter, store in stores.items()})
        lanes, calls = self._lanes, list[Call]()
        lanes[case.holder].call(_prepare(stores[case.holder], case, scene))
        self._turnstile, ticks = turnstile, itertools.count()
        running = [
            lanes[letter].submit(_act(Recorder(stores[letter], letter, turnstile, plain, calls, ticks), verb, scene))
            for letter, verb in zip(LETTERS, case.verbs, strict=True)
        ]
        if wait(running, base.PATIENCE).not_done:
            raise TimeoutError(f"{case}: the calls did not return within {base.PATIENCE:g} s.")
        for each in running:
            each.result()
        self._turnstile = None
        state = lanes["a"].call(state_of(stores["a"], scene, plain))
        lanes["a"].call(_clean_up(stores["a"], scene, self._clock.now()))
        return Played(calls, state)


async def _clean_up(store: Store, scene: Scene, now: int) -> None:
    """End what would affect the next run."""
    await store.drop_limits("workflow", scene.run)
    await store.lift(None, now)
    await strip(store)


def schedule(n: int, chance: random.Random) -> Turnstile:
    """Return the schedule of interleaving ``n``."""
    if n in (1, 2):
        return Turnstile(overtaking(LETTERS[n - 1], 1))
    return Turnstile(together if n == 0 else at_random(chance), chance)


def draw_case(pair: tuple[str, str], chance: random.Random) -> Case:
    """Draw the sessions for a pair of verbs, such that one of the verbs can take effect."""
    holder = chance.choice(LETTERS)
    return Case(pair, chance.choice(settings_for(pair[LETTERS.index(holder)])), holder)


async def _prepare(store: Store, case: Case, scene: Scene) -> None:
    if "import" in case.verbs:
        await prepare_move(store, scene)
    await (SETTINGS | OTHER_SETTINGS)[case.setting](store, scene)


async def _act(recorder: Recorder, verb: str, scene: Scene) -> None:
    try:
        await (VERBS | OTHER_VERBS)[verb](Actor(cast(Store, recorder), scene, PEOPLE[recorder.letter]))
    except PausepointError:
        pass  # a refusal is a result like any other, and is recorded
    finally:
        recorder.finish()


def _compare(found: Played, expected: Played) -> list[str]:
    wrong = [
        f"engine {letter}, call {n}: {text}"
        for letter in LETTERS
        for n, (one, two) in enumerate(itertools.zip_longest(found.of(letter), expected.of(letter)), 1)
        for text in differences(one, two)
    ]
    return wrong + list(differences(found.state, expected.state))


class ConcurrencySuite(Suite):
    """Tests of two engines that use a store at the same time, for every pair of verbs.

    The engines are in two threads, each with its own event loop and a store from `make_store`. Stores that are made
    with the same folder must share their data. Set ``interleavings`` to test more or fewer of each pair of verbs.
    """

    interleavings = INTERLEAVINGS

    def make_reference(self, folder: Path, clock: ManualClock) -> Store:
        """Return a new, unopened store that is known to be correct. By default it is a SQLite store.

        The reference is used by one engine at a time. Stores that are made with the same folder must share their data.
        """
        return SqliteStore(folder / "reference.db", clock=clock, synchronous="OFF")

    def watch(self, store: Store, reached: Callable[[], None]) -> None:
        """Make an open store call ``reached`` at its lock points: before each statement that it sends to its database.

        ``reached`` can be called in any thread, and blocks for a few milliseconds, so that the other engine can do
        something in between. If you do not override this, the engines are only interleaved between calls, and where
        their calls happen to overlap.
        """

    @pytest.fixture
    def arena(self, place: Place) -> Arena:
        """The engines of a test, which opens them."""
        return self.arena_in(place)

    def arena_in(self, place: Place) -> Arena:
        """Return two engines on a store in this place, unopened."""
        return Arena(
            lambda: self.make_store(place.folder, place.clock), lambda: self.make_reference(place.folder, place.clock),
            place.clock, self.watch,
        )  # fmt: skip

    @pytest.mark.parametrize("verb", VERBS)
    def test_verbs_at_the_same_time_act_as_if_one_came_first(self, arena: Arena, verb: str) -> None:
        """Test a verb with itself and with each verb after it in `VERBS`."""
        with arena:
            for pair in PAIRS:
                for n in range(self.interleavings if pair[0] == verb else 0):
                    assert not (wrong := arena.trial(pair, n).wrong), wrong

    def test_engines_that_take_at_the_same_time_stay_below_a_limit(self, arena: Arena) -> None:
        with arena:
            for n in range(2 * INTERLEAVINGS):
                assert not (wrong := arena.trial(("take", "take"), n, setting="limited").wrong), wrong

    @pytest.mark.parametrize("setting", SETTINGS)
    def test_a_start_and_a_pause_of_everything_at_the_same_time_let_nothing_run(
        self, arena: Arena, setting: str
    ) -> None:
        with arena:
            for n in range(2 * self.interleavings):
                trial = arena.trial(("start_again", "pause_everything"), n, setting=setting)
                assert not trial.wrong, trial.wrong
                assert not trial.may_run, f"{trial.case}, interleaving {n}"

    def test_writes_to_a_drawer_at_the_same_time_act_as_if_one_came_first(self, arena: Arena) -> None:
        with arena:
            for pair in DRAWER_PAIRS:
                for n in range(self.interleavings):
                    assert not (wrong := arena.trial(pair, n, setting="waiting").wrong), wrong

    def test_children_that_spend_at_the_same_time_charge_their_parent_for_all_of_it(self, arena: Arena) -> None:
        with arena:
            for n in range(2 * INTERLEAVINGS):
                assert not (wrong := arena.trial(("spend", "spend"), n, setting="siblings").wrong), wrong
