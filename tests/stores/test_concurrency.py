"""Two engines that use a store at the same time, for every pair of verbs; and stores with a fault that this finds."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace as copied
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pausepoint.model.commits import Commit, Flags
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.base import Store
from pausepoint.stores.found import Found
from pausepoint.stores.sqlite import SqliteStore, writer
from pausepoint.stores.sqlite.transactions import Transactions
from pausepoint.stores.sqlite.work import Work
from pausepoint.testing import ManualClock
from pausepoint.testing.suite import ConcurrencySuite, interleaving
from pausepoint.testing.suite.base import Place
from pausepoint.testing.suite.concurrency import PAIRS
from pausepoint.testing.suite.interleaving import Call, Letter, serial_orders
from pausepoint.testing.suite.verbs import VERBS
from tests.support.dictstore import Data
from tests.support.dictstore.locked import LockedDictStore, SharedData
from tests.support.dictstore.reference import DictReference
from tests.support.lockpoints import at_each_statement


class TestSqliteOnAFile(DictReference, ConcurrencySuite):
    def make_store(self, folder: Path, clock: ManualClock) -> Store:
        return SqliteStore(folder / "store.db", clock=clock, synchronous="OFF", poll=0.01)

    def watch(self, store: Store, reached: Callable[[], None]) -> None:
        at_each_statement(store, reached)


class WithoutLock(LockedDictStore):
    """Computes a change from what it has read, and overwrites what others have written since."""

    nested = False

    async def _call(self, verb: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if self.nested:
            return await verb(*args, **options)
        shared = self.data
        with shared.lock:
            read = copy.deepcopy(shared.sessions)
            self.data = copied(shared, sessions=copy.deepcopy(read))
        self.reached()
        try:
            self.nested = True
            return await verb(*args, **options)
        finally:
            changed, self.data, self.nested = self.data, shared, False
            self.reached()
            with shared.lock:
                shared.last_key, shared.standing = max(shared.last_key, changed.last_key), changed.standing
                written = [key for key, kept in changed.sessions.items() if kept != read.get(key)]
                shared.sessions.update({key: changed.sessions[key] for key in written})


class WithoutGate(LockedDictStore):
    """Reads whether everything is paused before it locks its session."""

    nested = False
    gated = ("create", "claim", "take", "revise", "unpause", "import_")

    async def _call(self, verb: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if self.nested or verb.__name__ not in self.gated:
            return await super()._call(verb, *args, **options)
        shared = self.data
        stale = copied(shared, rounds=list(shared.rounds))
        self.reached()
        with shared.lock:
            stale.last_key, stale.last_question = shared.last_key, shared.last_question
            self.data, self.nested = stale, True
            try:
                return await verb(*args, **options)
            finally:
                self.data, self.nested = shared, False
                shared.last_key, shared.last_question = stale.last_key, stale.last_question


class WithoutFence(LockedDictStore):
    """Does not notice that another engine has driven or changed a session since it was read."""

    async def claim(
        self, session_id: str, steal: bool = False, fence: int | None = None, paused: bool = False
    ) -> SessionRow:  # fmt: skip
        return await super().claim(session_id, steal, None, paused)

    async def commit(self, commit: Commit) -> Flags | None:
        row = self.data.sessions[commit.key].row
        return await super().commit(replace(commit, fence=row.fence))

    async def revise(self, commit: Commit) -> Found:
        kept = self.data.sessions.get(commit.key)
        return await super().revise(commit if kept is None else replace(commit, fence=kept.row.fence))


class WithoutStreamLock(LockedDictStore):
    """Changes a copy of the drawers, and overwrites what others have written to them since."""

    unlocked = "drawer_append"

    async def _call(self, verb: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if verb.__name__ != self.unlocked:
            return await super()._call(verb, *args, **options)
        shared = self.data
        with shared.lock:
            self.data = copied(shared, drawers=copy.deepcopy(shared.drawers))
        self.reached()
        try:
            return await verb(*args, **options)
        finally:
            changed, self.data = self.data, shared
            self.reached()
            with shared.lock:
                shared.drawers.update(changed.drawers)


class WithoutValueLock(WithoutStreamLock):
    unlocked = "drawer_put"


class WithoutSlots(LockedDictStore):
    """Counts the sessions at work before it locks anything."""

    counted: list[SessionRow] | None = None

    async def _call(self, verb: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if verb.__name__ != "take":
            return await super()._call(verb, *args, **options)
        self.counted = super()._at_work()
        self.reached()
        try:
            return await super()._call(verb, *args, **options)
        finally:
            self.counted = None

    def _at_work(self) -> list[SessionRow]:
        return super()._at_work() if self.counted is None else self.counted


class Dictionaries(ConcurrencySuite):
    """The suite for one kind of dictionary store. Its name does not begin with Test, so pytest does not collect it."""

    def __init__(self, kind: type[LockedDictStore]) -> None:
        self.kind = kind
        self.kept = SharedData()

    def make_store(self, folder: Path, clock: ManualClock) -> Store:
        return self.kind(self.kept, clock)

    def watch(self, store: Store, reached: Callable[[], None]) -> None:
        assert isinstance(store, LockedDictStore)
        store.reached = reached


def check(suite: ConcurrencySuite, folder: Path, verb: str, trials: int = 1) -> None:
    """Run the suite's test of one verb with all others."""
    place = Place(suite.make_store, folder)
    for trial in range(trials):
        with patience_in(trial):
            suite.test_verbs_at_the_same_time_act_as_if_one_came_first(suite.arena_in(place), verb)


TRIALS = 10
"""How often a twin is tried: on a busy machine the two engines may take turns in all interleavings of one trial."""


@contextmanager
def patience_in(trial: int) -> Iterator[None]:
    """Wait longer in each trial until an engine counts as locked. A busy machine makes engines slow, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interleaving, "LOCKED_AFTER", min(interleaving.LOCKED_AFTER * 2**trial, 0.5))
        yield


TWINS = {WithoutLock: "send", WithoutGate: "pause_everything", WithoutFence: "take_up"}


@pytest.mark.long
@pytest.mark.parametrize("verb", TWINS.values())
def test_the_sound_one_passes(tmp_path: Path, verb: str) -> None:
    check(Dictionaries(LockedDictStore), tmp_path, verb)


@pytest.mark.long
@pytest.mark.parametrize("kind", TWINS, ids=lambda kind: kind.__name__)
def test_each_fault_is_found(tmp_path: Path, kind: type[LockedDictStore]) -> None:
    with pytest.raises(AssertionError, match="no serial order explains it"):
        check(Dictionaries(kind), tmp_path, TWINS[kind], TRIALS)


def test_a_store_that_counts_slots_without_a_lock_is_found(tmp_path: Path) -> None:
    def check_takes(kind: type[LockedDictStore], trials: int) -> None:
        for trial in range(trials):
            suite, folder = Dictionaries(kind), tmp_path / f"{kind.__name__}-{trial}"
            folder.mkdir()
            place = Place(suite.make_store, folder)
            with patience_in(trial):
                suite.test_engines_that_take_at_the_same_time_stay_below_a_limit(suite.arena_in(place))

    check_takes(LockedDictStore, 1)
    with pytest.raises(AssertionError, match="no serial order explains it"):
        check_takes(WithoutSlots, TRIALS)


@pytest.mark.long
def test_a_store_that_loses_a_charge_is_found(tmp_path: Path) -> None:
    def check_charges(kind: type[LockedDictStore], trials: int) -> None:
        for trial in range(trials):
            suite, folder = Dictionaries(kind), tmp_path / f"{kind.__name__}-{trial}"
            folder.mkdir()
            arena = suite.arena_in(Place(suite.make_store, folder))
            with patience_in(trial):
                suite.test_children_that_spend_at_the_same_time_charge_their_parent_for_all_of_it(arena)

    check_charges(LockedDictStore, 1)
    with pytest.raises(AssertionError, match="no serial order explains it"):
        check_charges(WithoutLock, TRIALS)


@pytest.mark.long
@pytest.mark.parametrize("broken", [WithoutStreamLock, WithoutValueLock])
def test_a_store_that_loses_a_write_to_a_drawer_is_found(tmp_path: Path, broken: type[LockedDictStore]) -> None:
    def check_drawers(kind: type[LockedDictStore], trials: int) -> None:
        for trial in range(trials):
            suite, folder = Dictionaries(kind), tmp_path / f"{kind.__name__}-{trial}"
            folder.mkdir()
            arena = suite.arena_in(Place(suite.make_store, folder))
            suite.test_writes_to_a_drawer_at_the_same_time_act_as_if_one_came_first(arena)

    check_drawers(LockedDictStore, 1)
    with pytest.raises(AssertionError, match="no serial order explains it"):
        check_drawers(broken, TRIALS)


class WithoutTransactions(Transactions):
    """Writes every statement on its own."""

    def move(self, commit: Commit) -> Flags | None:
        work = Work(commit)
        self._once((work,))
        flags: Flags | None = work.result()
        return flags

    def _once(self, batch: Any) -> None:
        if not self._engine.number:
            self._engine.register(self.connection)
        self._perform(self.connection, batch)


def test_a_sqlite_store_without_transactions_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "Transactions", WithoutTransactions)
    suite = TestSqliteOnAFile()
    suite.kept = Data()
    with pytest.raises(AssertionError, match="no serial order explains it"):
        check(suite, tmp_path, "send", TRIALS)


# the suite itself


def test_every_verb_is_paired_with_every_other_and_itself() -> None:
    assert {frozenset(pair) for pair in PAIRS} == {frozenset((one, two)) for one in VERBS for two in VERBS}


def orders(*calls: tuple[Letter, int, int]) -> list[str]:
    found = serial_orders([Call(letter, "send", None, began, ended) for letter, began, ended in calls])
    return ["".join(order) for order in found]


def test_calls_that_overlap_have_either_order_and_others_the_order_of_their_times() -> None:
    assert orders(("a", 0, 1), ("b", 2, 3)) == ["ab"]
    assert orders(("b", 0, 1), ("a", 2, 3), ("b", 4, 5)) == ["bab"]
    assert orders(("a", 0, 3), ("b", 1, 2)) == ["ba", "ab"]  # what ended first was probably committed first
    assert orders(("a", 0, 5), ("b", 1, 2), ("b", 3, 4)) == ["bba", "bab", "abb"]
    assert orders(("a", 0, 2), ("b", 1, 4), ("a", 3, 6), ("b", 5, 7)) == ["abab", "abba", "aabb", "baab", "baba"]


def test_engines_call_at_the_same_time_and_take_turns_at_lock_points(tmp_path: Path) -> None:
    suite = TestSqliteOnAFile()
    suite.kept = Data()
    with suite.arena_in(Place(suite.make_store, tmp_path)) as arena:
        trials = [arena.trial(("send", "edit"), n) for n in range(12)]
    assert [trial.wrong for trial in trials if trial.wrong] == []
    assert any(trial.overlapped for trial in trials)
    assert sum(trial.switches for trial in trials) > 0
