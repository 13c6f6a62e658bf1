"""The store suite finds faulty stores: each store here is correct except for one fault."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pausepoint.model.commits import Commit, Flags, NewSession
from pausepoint.model.files import FileFacts
from pausepoint.model.questions import Inquiry
from pausepoint.model.records import Record, SignalRecord
from pausepoint.model.remembered import Remembered
from pausepoint.model.schedules import Fired, Schedule
from pausepoint.model.sessions import Filter, Pause, Position, SessionRow, position, ready_at
from pausepoint.stores.base import OnChange, Store
from pausepoint.stores.files import Files
from pausepoint.stores.found import Found, FoundQuestions
from pausepoint.testing import ManualClock
from pausepoint.testing.suite import SharedStoreSuite
from pausepoint.testing.suite import base as suite_base
from pausepoint.testing.suite.base import Place
from tests.stores.drawer_twins import DRAWER_TWINS
from tests.stores.standing_twins import STANDING_TWINS
from tests.support.dictstore import Data, DictStore, Kept
from tests.support.dictstore.files import DictFiles


class ForgetsTheFence(DictStore):
    async def commit(self, commit: Commit) -> Flags | None:
        kept = self.data.sessions.get(commit.key)
        if kept is not None and kept.row.holder is not None:
            commit = replace(commit, fence=kept.row.fence)
        return await super().commit(commit)


class ForgetsWhereItStood(DictStore):
    async def commit(self, commit: Commit) -> Flags | None:
        kept = self.data.sessions.get(commit.key)
        return await super().commit(commit if kept is None else replace(commit, base_seq=kept.row.seq))


class LosesARelease(DictStore):
    async def commit(self, commit: Commit) -> Flags | None:
        return await super().commit(replace(commit, release=False))


class ListsPausesUnordered(DictStore):
    async def pauses(self, key: int, open_only: bool = True) -> list[Pause]:
        return (await super().pauses(key, open_only))[::-1]


class NeverHearsOfAPause(DictStore):
    async def commit(self, commit: Commit) -> Flags | None:
        flags = await super().commit(commit)
        return None if flags is None else replace(flags, pause_requested=False)


class KeepsTheFenceOnAClaim(DictStore):
    async def claim(
        self, session_id: str, steal: bool = False, fence: int | None = None, paused: bool = False
    ) -> SessionRow:  # fmt: skip
        row = await super().claim(session_id, steal, fence, paused)
        self.data.sessions[row.key].row = replace(row, fence=row.fence - 1)
        return replace(row, fence=row.fence - 1)


class TakesWhatIsHeld(DictStore):
    async def claim(
        self, session_id: str, steal: bool = False, fence: int | None = None, paused: bool = False
    ) -> SessionRow:  # fmt: skip
        return await super().claim(session_id, True, fence, paused)


class TakesWhatIsPaused(DictStore):
    async def claim(
        self, session_id: str, steal: bool = False, fence: int | None = None, paused: bool = False
    ) -> SessionRow:  # fmt: skip
        return await super().claim(session_id, steal, fence, True)


class LosesMail(DictStore):
    async def commit(self, commit: Commit) -> Flags | None:
        self.data.sessions[commit.key].inbox.clear()
        return await super().commit(commit)


class ListsTheOldestFirst(DictStore):
    def _matching(self, query: Filter) -> list[Kept]:
        return super()._matching(query)[::-1]


class ProvesNothing(DictStore):
    async def records(self, key: int, since: int, until: int | None = None) -> list[Record]:
        found = self._by(key).records
        return [each for each in found if since <= each.seq <= (until or each.seq)]


class DoublesSignals(DictStore):
    def _ask(self, kept: Kept, pause: Pause) -> None:
        super()._ask(kept, pause)
        self._signal(kept, "pause", pause.by, pause.created_at, b"{}")


class TurnsTimeBack(DictStore):
    def _move(self, kept: Kept, commit: Commit) -> None:
        super()._move(kept, commit)
        kept.row = replace(kept.row, updated_at=commit.updated_at)


class OverwritesATakenId(DictStore):
    async def create(self, new: NewSession) -> SessionRow | None:
        if (taken := self._find_id(new.session_id)) is not None:
            del self.data.sessions[taken.row.key]
        return await super().create(new)


class WakesThePaused(DictStore):
    async def due(self, now: int, workflows: Any, limit: int, *others: Any, **options: Any) -> list[SessionRow]:
        rows = [row for row in map(self._seen, self._known()) if row.wakes_at is not None and row.wakes_at <= now]
        return [row for row in rows if row.workflow in workflows and not row.live][:limit]


class KeepsItsHoldsWhenItCloses(DictStore):
    async def close(self) -> None:
        held = {key: kept.row.holder for key, kept in self.data.sessions.items()}
        await super().close()
        for key, holder in held.items():
            self.data.sessions[key].row = replace(self.data.sessions[key].row, holder=holder)


class WorksOnWhenClosed(DictStore):
    def _check(self) -> None:
        return None


class HandsOutSignalsTwice(DictStore):
    async def signals(self, key: int, after: int, until: int | None = None) -> list[SignalRecord]:
        return await super().signals(key, max(after - 1, 0), until)


class TakesWhatIsKept(DictStore):
    def _seen(self, kept: Kept) -> SessionRow:
        return replace(super()._seen(kept), kept_by=None)


class KeepsForEver(DictStore):
    async def unkeep(self, key: int, fence: int) -> None:
        await super().unkeep(key, 0)


class TakesGuests(DictStore):
    def _seen(self, kept: Kept) -> SessionRow:
        row = super()._seen(kept)
        return replace(row, ready_at=ready_at(replace(row, guest=False)))


class WakesGuests(DictStore):
    async def due(self, *given: Any, **options: Any) -> list[SessionRow]:
        guests = [kept for kept in self._known() if kept.row.guest]
        for kept in guests:
            self._set(kept, guest=False)
        found = await super().due(*given, **options)
        for kept in guests:
            self._set(kept, guest=True)
        return found


class ImportsGuestsAsOthers(DictStore):
    async def import_(self, sessions: Any) -> bool:
        return await super().import_([replace(each, row=replace(each.row, guest=False)) for each in sessions])


class ForgetsFrozenTime(DictStore):
    def _settle_lifted(self, kept: Kept) -> None:
        frozen = kept.row.frozen
        super()._settle_lifted(kept)
        self._set(kept, frozen=frozen)


class ExemptsForEver(DictStore):
    def _stopped(self, kept: Kept) -> bool:
        return super()._stopped(kept) and kept.exempt == 0


class LeavesTheParkedOpen(DictStore):
    """Only requests the end, and relies on engines to end the sessions that none of them drives."""

    def _end(self, kept: Kept, at: int) -> None:
        return None


class EndsTheTreeInPieces(DictStore):
    """Ends the session and its descendants in one transaction each."""

    async def cancel(self, session_id: str, by: str | None, reason: str, at: int) -> Found:
        found = [self._named(session_id), *self._below(self._named(session_id))]
        for kept in found:
            self._cancel([kept], by, reason, at)
            await asyncio.sleep(0)
        return Found(self._seen(kept) for kept in found)


class ForgetsTheEndedTree(DictStore):
    """Takes an ended session for the end of everything below it."""

    async def cancel(self, session_id: str, by: str | None, reason: str, at: int) -> Found:
        top = self._named(session_id)
        return Found([top.row]) if top.row.ended else await super().cancel(session_id, by, reason, at)


class LeavesTheDeadAlone(DictStore):
    """Does not end cancelled sessions when it opens."""

    async def open(self, on_change: OnChange) -> None:
        end, self._end = self._end, lambda kept, at: None  # type: ignore[method-assign]
        await super().open(on_change)
        self._end = end  # type: ignore[method-assign]


class TakesAKeyFromTheLiving(DictStore):
    async def remember(
        self, key: str, digest: bytes, answer: bytes | None, until: int, replaces: bytes | None = None
    ) -> Remembered:
        kept = self.data.requests.get(key)
        if kept is not None and kept.answer is None:
            kept.holder = self._number
        found = await super().remember(key, digest, answer, until, replaces)
        return replace(found, claimed=found.answer is None)


class ReplacesEveryAnswer(DictStore):
    async def remember(
        self, key: str, digest: bytes, answer: bytes | None, until: int, replaces: bytes | None = None
    ) -> Remembered:
        kept = self.data.requests.get(key)
        present = None if kept is None or replaces is None else kept.answer
        return await super().remember(key, digest, answer, until, present)


class ForgetsTheEffect(DictStore):
    def _took_effect(self, effect: bool = True) -> None:
        pass


class ActsWithoutTheKey(DictStore):
    def _check_key(self) -> None:
        pass


class RepeatsTheLast(DictStore):
    """Begins a page with the last session of the page before."""

    async def find(self, query: Filter) -> Found:
        found = await super().find(query)
        if query.after is None or not found:
            return found
        whole = list(await super().find(replace(query, after=None, limit=None)))
        at = whole.index(found[0])
        return Found(whole[at - 1 : at - 1 + len(found)], next=found.next)


class CountsOffsets(DictStore):
    """Skips as many sessions as there were before the position."""

    async def find(self, query: Filter) -> Found:
        whole = await super().find(replace(query, after=None, limit=None))
        skipped = 0 if query.after is None else self._offsets[query.after]
        page = whole[skipped:][: query.limit]
        next = position(page[-1], query.sort) if page and skipped + len(page) < len(whole) else None
        if next is not None:
            self._offsets[next] = skipped + len(page)
        return Found(page, next=next)

    _offsets: dict[Position, int] = {}


class NamesTheLastPause(DictStore):
    async def first_pauses(self, keys: Sequence[int]) -> dict[int, Pause]:
        found = {key: await self.pauses(key) for key in await super().first_pauses(keys)}
        return {key: pauses[-1] for key, pauses in found.items()}


class CountsThePauseOfEverythingAsOwn(DictStore):
    def _has_own_pause(self, kept: Kept) -> bool:
        return super()._has_own_pause(kept) or self._stopped(kept)


class SpendsWithoutOwner(DictStore):
    async def spending(self, query: Filter) -> dict[str, int]:
        return await super().spending(replace(query, owner=None))


class WakesGuarded(DictStore):
    async def waking(self, now: int, limit: int, owner: str | None = None) -> Found:
        rows = [row for row in await self.find(Filter(owner=owner)) if row.wakes_at and row.wakes_at > now]
        free = [row for row in rows if not row.pause_requested]
        return Found(sorted(free, key=lambda row: row.wakes_at or 0)[:limit])


class CountsNoSignals(DictStore):
    def _seen(self, kept: Kept) -> SessionRow:
        return replace(super()._seen(kept), signals=0)


class SortsQuestionsByNumber(DictStore):
    async def questions(self, query: Inquiry) -> FoundQuestions:
        return await super().questions(replace(query, sort="asked"))


class AnnouncesNothingNew(DictStore):
    """Knows only what an engine drove when it opened."""

    def announce(self, workflows: Sequence[str], queues: Sequence[str] | None = None) -> None:
        if not self._number:
            super().announce(workflows, queues)


class AnnouncesNoQueues(DictStore):
    def announce(self, workflows: Sequence[str], queues: Sequence[str] | None = None) -> None:
        super().announce(workflows)


class FiresTwice(DictStore):
    """Does not check that the schedule is still the one that was read."""

    async def set_schedule(self, before: Schedule | None, after: Schedule, new: NewSession | None = None) -> Fired:
        return await super().set_schedule(self.data.schedules.get(after.name), after, new)


class FiresWhatIsPaused(DictStore):
    async def due_schedules(self, now: int, workflows: Sequence[str]) -> list[Schedule]:
        found = [each for each in await self.schedules() if each.workflow in workflows and each.next_at <= now]
        return sorted(found, key=lambda each: each.next_at)


class SleepsThroughSchedules(DictStore):
    async def next_wake(self, now: int, workflows: Sequence[str], tree: str | None = None) -> int | None:
        return await super().next_wake(now, workflows, tree or "")


class StartsARunAlone(DictStore):
    """Stores the session of a run, and not the next time."""

    async def set_schedule(self, before: Schedule | None, after: Schedule, new: NewSession | None = None) -> Fired:
        if new is None or before is None:
            return await super().set_schedule(before, after, new)
        return await super().set_schedule(before, before, new)


class IgnoresALimit(DictStore):
    """Knows no limits when it takes ready sessions."""

    async def take(self, *given: Any, **options: Any) -> list[SessionRow]:
        limits, self.data.limits = self.data.limits, {}
        try:
            return await super().take(*given, **options)
        finally:
            self.data.limits = limits


class IgnoresPriority(DictStore):
    def _in_turn(self, rows: list[SessionRow], now: int, limit: int) -> list[SessionRow]:
        found = super()._in_turn([replace(row, priority=0) for row in rows], now, limit)
        return [row for each in found for row in rows if row.key == each.key]


class LetsOneLaneBlockTheOthers(DictStore):
    def _in_turn(self, rows: list[SessionRow], now: int, limit: int) -> list[SessionRow]:
        found = super()._in_turn([replace(row, lane=None) for row in rows], now, limit)
        return [row for each in found for row in rows if row.key == each.key]


class LeaksTheSlotsOfTheDead(DictStore):
    """Counts every session that has a holder, whether or not that engine lives."""

    def _at_work(self) -> list[SessionRow]:
        return [kept.row for kept in self._known() if kept.row.holder is not None and not kept.row.guest]


class SavesUpForEver(DictStore):
    """A rate that was not used for long lets everything through at once."""

    async def take(self, now: int, *given: Any, **options: Any) -> list[SessionRow]:
        if now > 5_000_000:
            self.data.limits = {key: each for key, each in self.data.limits.items() if not each.per}
        return await super().take(now, *given, **options)


class CountsNoCrash(DictStore):
    def _free(self, kept: Kept) -> bool:
        crashes = kept.row.crashes
        died = super()._free(kept)
        self._set(kept, crashes=crashes)
        return died


class FreesTheLiving(DictStore):
    """Takes every other engine for dead."""

    async def reap(self) -> frozenset[int]:
        engines, self.data.engines = self.data.engines, {self._number: self.data.engines[self._number]}
        try:
            return await super().reap()
        finally:
            self.data.engines = engines


class StoresAnyText(DictStore):
    """Keeps text that Postgres could not hold."""

    async def send(self, session_id: str, by: str | None, at: int, payload: bytes) -> SessionRow:
        row = await super().send(session_id, None, at, payload)
        signals = self.data.sessions[row.key].signals
        signals[-1] = replace(signals[-1], by=by)
        return row


class TrustsContents(DictFiles):
    def wrong(self, file: FileFacts) -> str:
        return "" if file.stored_name in self.stored else "is missing"


class ReturnsDamagedContents(DictStore):
    """Does not compare content with its hash."""

    def files_of(self, session_id: str) -> Files | None:
        return TrustsContents(self.data, session_id)


class ForgetsUploads(DictFiles):
    @property
    def in_use(self) -> list[str]:
        return []


class ClearsUploadsAway(DictStore):
    """Takes content that is about to be recorded for a leftover."""

    def files_of(self, session_id: str) -> Files | None:
        found = DictFiles(self.data, session_id)
        found.clear = ForgetsUploads(self.data, session_id).clear  # type: ignore[method-assign]
        return found


class TellsOtherKeys(DictStore):
    def _tell(self, *keys: int) -> None:
        super()._tell(*(key + 1000 for key in keys))


TWINS: dict[type[DictStore], str] = {
    **DRAWER_TWINS,
    **STANDING_TWINS,
    StoresAnyText: "test_text_that_not_every_store_can_hold_is_replaced_and_not_taken_for_damage",
    ReturnsDamagedContents: "test_content_that_is_missing_or_was_changed_is_never_returned",
    ClearsUploadsAway: "test_a_clean_up_keeps_what_is_recorded_or_being_added",
    IgnoresALimit: "test_a_session_without_a_slot_is_stored_ready",
    IgnoresPriority: "test_the_lowest_priority_number_comes_first_then_the_longest_wait",
    LetsOneLaneBlockTheOthers: "test_lanes_take_turns",
    LeaksTheSlotsOfTheDead: "test_the_slots_of_an_engine_that_died_are_free",
    SavesUpForEver: "test_a_rate_lets_so_many_begin_in_its_time",
    CountsNoCrash: "test_sessions_of_an_engine_that_died_are_freed_and_count_a_crash",
    FreesTheLiving: "test_sessions_of_live_engines_are_not_freed",
    TellsOtherKeys: "test_an_engine_is_told_which_session_has_changed_or_that_anything_may_have",
    FiresTwice: "test_of_several_that_start_a_run_one_does",
    FiresWhatIsPaused: "test_only_schedules_whose_time_has_come_are_due",
    SleepsThroughSchedules: "test_only_schedules_whose_time_has_come_are_due",
    StartsARunAlone: "test_a_run_is_stored_with_the_next_time_of_its_schedule",
    TakesAKeyFromTheLiving: "test_of_two_engines_one_takes_the_key_and_the_other_learns_the_answer",
    ReplacesEveryAnswer: "test_an_answer_is_replaced_only_by_a_caller_that_knows_it",
    ForgetsTheEffect: "test_the_key_of_an_engine_that_is_gone_can_be_taken_again",
    ActsWithoutTheKey: "test_without_its_key_a_request_has_no_effect",
    LeavesTheParkedOpen: "test_cancel_ends_what_no_engine_drives_with_the_request",
    EndsTheTreeInPieces: "test_a_cancel_that_is_cut_off_ends_the_whole_tree_or_nothing",
    ForgetsTheEndedTree: "test_cancel_of_an_ended_session_ends_what_is_open_below_it",
    LeavesTheDeadAlone: "test_opening_ends_what_was_cancelled_and_left_open",
    ForgetsTheFence: "test_a_claim_raises_the_fence_and_the_older_fence_is_refused",
    ForgetsWhereItStood: "test_of_two_simultaneous_commits_one_takes_effect",
    LosesARelease: "test_after_a_release_the_old_fence_writes_nothing",
    ListsPausesUnordered: "test_pauses_are_listed_oldest_first",
    NeverHearsOfAPause: "test_a_commit_does_not_erase_a_pause_that_came_meanwhile",
    KeepsTheFenceOnAClaim: "test_a_claim_raises_the_fence_and_the_older_fence_is_refused",
    TakesWhatIsHeld: "test_a_session_is_held_by_one_engine_at_a_time",
    TakesWhatIsKept: "test_an_engine_that_keeps_a_step_claims_it_again_under_its_fence",
    KeepsForEver: "test_a_step_that_is_no_longer_kept_is_anyones",
    TakesWhatIsPaused: "test_a_paused_session_is_claimed_only_by_a_resume",
    LosesMail: "test_only_a_commit_that_consumes_mail_removes_it",
    ListsTheOldestFirst: "test_find_combines_its_filters_and_lists_the_newest_first",
    ProvesNothing: "test_a_damaged_record_is_named_and_never_returned",
    DoublesSignals: "test_a_second_pause_changes_nothing",
    TurnsTimeBack: "test_updated_at_rises_with_writes_and_never_falls",
    OverwritesATakenId: "test_a_taken_id_creates_nothing",
    WakesThePaused: "test_only_sessions_that_can_resume_are_due",
    KeepsItsHoldsWhenItCloses: "test_closing_releases_all_holds_and_counts_no_crash",
    WorksOnWhenClosed: "test_a_store_that_is_not_open_says_so",
    HandsOutSignalsTwice: "test_signals_are_read_after_a_number",
    TakesGuests: "test_a_guest_is_never_taken_or_due",
    WakesGuests: "test_a_guest_is_never_taken_or_due",
    ImportsGuestsAsOthers: "test_an_imported_guest_is_a_guest",
    ForgetsFrozenTime: "test_frozen_time_is_added_up_and_the_timers_are_computed_again",
    NamesTheLastPause: "test_the_first_open_pauses_of_several_sessions_are_read_at_once",
    CountsThePauseOfEverythingAsOwn: "test_own_pauses_are_told_apart_from_the_pause_of_everything",
    SpendsWithoutOwner: "test_spending_is_added_up_by_workflow",
    WakesGuarded: "test_the_sessions_that_wake_next_are_listed_without_those_that_are_stopped",
    CountsNoSignals: "test_a_row_counts_what_reached_the_session_from_outside",
    SortsQuestionsByNumber: "test_questions_are_sorted_and_their_pages_are_the_list",
    AnnouncesNothingNew: "test_what_each_engine_drives_is_known_to_the_others",
    AnnouncesNoQueues: "test_what_each_engine_drives_is_known_to_the_others",
    RepeatsTheLast: "test_the_pages_of_a_list_are_the_list",
    CountsOffsets: "test_what_is_added_or_removed_between_two_pages_moves_nothing_else",
    ExemptsForEver: "test_a_resumed_session_runs_until_everything_is_paused_again",
}


class Dictionaries(SharedStoreSuite):
    """The suite for one kind of dictionary store. Its name does not begin with Test, so pytest does not collect it."""

    def __init__(self, kind: type[DictStore]) -> None:
        self.kind = kind
        self.kept = Data()

    def make_store(self, folder: Path, clock: ManualClock) -> Store:
        return self.kind(self.kept, clock)

    def damage_record(self, store: Store, key: int, seq: int) -> None:
        records = self.kept.sessions[key].records
        records[seq - 1] = replace(records[seq - 1], payload=b"{|")

    def lose_engine(self, store: Store) -> None:
        self.kept.engines.pop(store.number)


def cases(test: Callable[..., None]) -> Iterator[dict[str, Any]]:
    """Yield the arguments with which pytest would call the test."""
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    rows = [[{mark.args[0]: value} for value in mark.args[1]] for mark in marks]
    for combined in itertools.product(*rows):
        yield {name: value for each in combined for name, value in each.items()}


def failing(kind: type[DictStore], folder: Path, only: str = "test_") -> set[str]:
    """Return the names of the suite's tests that fail, of those whose names begin with ``only``."""
    failed: set[str] = set()
    for name, test in inspect.getmembers(Dictionaries, inspect.isfunction):
        for given in cases(test) if name.startswith(only) else ():
            suite = Dictionaries(kind)
            try:
                test(suite, place=Place(suite.make_store, folder), **given)
            except pytest.skip.Exception:
                continue
            except (Exception, pytest.fail.Exception):
                failed.add(name)
    return failed


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite_base, "PATIENCE", 0.5)


@pytest.mark.long
def test_the_sound_one_passes(tmp_path: Path) -> None:
    assert failing(DictStore, tmp_path) == set()


@pytest.mark.long
@pytest.mark.usefixtures("impatient")  # some twins hang
@pytest.mark.parametrize("kind", TWINS, ids=lambda kind: kind.__name__)
def test_a_store_that_is_sound_but_for_one_thing_is_found_out(kind: type[DictStore], tmp_path: Path) -> None:
    assert TWINS[kind] in failing(kind, tmp_path, only=TWINS[kind])
