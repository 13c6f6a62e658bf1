"""Stores whose drawers have one fault each, and the tests of the suite that find them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from pausepoint.model.commits import Commit, NewSession
from pausepoint.model.drawers import Change, DrawerId, DrawerValue, Fold, Range
from pausepoint.model.sessions import SessionRow
from pausepoint.model.stores import Tombstone, Whole
from pausepoint.stores.found import FoundStreams
from tests.support.dictstore import DictStore, Kept
from tests.support.dictstore.data import KeptDrawer


class AppendsTwice(DictStore):
    async def drawer_append(
        self, drawer: DrawerId, stream: str, entries: Sequence[bytes], fold: Fold | None, keep_for: int | None = None
    ) -> int:
        return await super().drawer_append(drawer, stream, [*entries, *entries[-1:]], fold, keep_for)


class ReadsTheFirst(DictStore):
    async def drawer_read(
        self, drawer: DrawerId, stream: str, after: int = 0, last: int | None = None
    ) -> list[bytes] | None:
        found = await super().drawer_read(drawer, stream, after)
        return found if found is None or last is None else found[:last]


class PopsTheFirst(DictStore):
    async def drawer_pop(self, drawer: DrawerId, stream: str) -> bytes | None:
        found = self._drawer(drawer).streams.get(stream)
        return found.entries.pop(0) if found is not None and found.entries else None


class StandsStillWithTheClock(DictStore):
    """Takes the clock for the time of a change, however many there are."""

    async def drawer_append(self, drawer: DrawerId, *given: Any, **options: Any) -> int:
        if (known := self.data.drawers.get(self._place(drawer))) is not None:
            known.changed = 0
        return await super().drawer_append(drawer, *given, **options)


class StoresBeforeItFolds(DictStore):
    async def drawer_append(
        self, drawer: DrawerId, stream: str, entries: Sequence[bytes], fold: Fold | None, keep_for: int | None = None
    ) -> int:
        await super().drawer_append(drawer, stream, entries, None, keep_for)
        return await super().drawer_append(drawer, stream, [], fold, keep_for)


class PassesOnWhatAFoldRaises(DictStore):
    """Lets an exception that is no `Exception` out, which cancels the task that waits."""

    async def drawer_append(
        self, drawer: DrawerId, stream: str, entries: Sequence[bytes], fold: Fold | None, keep_for: int | None = None
    ) -> int:
        if fold is not None:
            fold(None, 0)
        return await super().drawer_append(drawer, stream, entries, fold, keep_for)


class TakesAPrefixForAPattern(DictStore):
    async def drawer_streams(self, drawer: DrawerId, prefix: str = "") -> FoundStreams:
        return await super().drawer_streams(drawer, prefix.replace("%", ""))


class IgnoresVersions(DictStore):
    async def drawer_put(self, drawer: DrawerId, changes: Sequence[Change], keep_for: int | None = None) -> list[int]:
        return await super().drawer_put(drawer, [replace(each, if_version=None) for each in changes], keep_for)


class PutsOneByOne(DictStore):
    async def drawer_put(self, drawer: DrawerId, changes: Sequence[Change], keep_for: int | None = None) -> list[int]:
        return [version for each in changes for version in await super(PutsOneByOne, self).drawer_put(drawer, [each])]


class CountsVersionsByKey(DictStore):
    def _put(self, opened: KeptDrawer, change: Change) -> int:
        had = opened.values.get(change.key)
        opened.version = 0 if had is None else had.version
        return super()._put(opened, change)


class ReplacesWhatIsThere(DictStore):
    async def drawer_put(self, drawer: DrawerId, changes: Sequence[Change], keep_for: int | None = None) -> list[int]:
        return await super().drawer_put(drawer, [replace(each, only_new=False) for each in changes], keep_for)


class SortsAsUtf16(DictStore):
    async def drawer_find(self, drawer: DrawerId, keys: Range) -> dict[str, DrawerValue]:
        found = await super().drawer_find(drawer, keys)
        return dict(sorted(found.items(), key=lambda each: each[0].encode("utf-16-be")))


class SharesOneDrawer(DictStore):
    def _place(self, drawer: DrawerId) -> tuple[int, str]:
        super()._place(drawer)
        return 0, drawer.name


class WakesItsSession(DictStore):
    async def drawer_append(self, drawer: DrawerId, *given: Any, **options: Any) -> int:
        if drawer.session_id is not None:
            self._set(self._named(drawer.session_id), wakes_at=0)
        return await super().drawer_append(drawer, *given, **options)


class KeepsTheDrawersOfTheRemoved(DictStore):
    """Keeps drawers by the id of their session."""

    async def strip(self, key: int, limit: int) -> Tombstone | None:
        kept = {place: each for place, each in self.data.drawers.items() if place[0] == key}
        stone = await super().strip(key, limit)
        self.data.drawers |= {(-1, name): each for (_, name), each in kept.items()}
        return stone

    async def create(self, new: NewSession) -> SessionRow | None:
        row = await super().create(new)
        left = {name: each for (key, name), each in self.data.drawers.items() if key == -1}
        if row is not None:
            self.data.drawers |= {(row.key, name): each for name, each in left.items()}
        return row


class RedactsNoDrawer(DictStore):
    def _redact(self, kept: Kept, commit: Commit) -> None:
        super()._redact(kept, replace(commit, empty_drawers=()))


class CountsFromOneAfterARedaction(DictStore):
    def _redact(self, kept: Kept, commit: Commit) -> None:
        super()._redact(kept, commit)
        for name in commit.empty_drawers:
            self.data.drawers.pop((kept.row.key, name), None)


class LendsItsDrawers(DictStore):
    """A fork and its source have the same drawers."""

    async def create(self, new: NewSession) -> SessionRow | None:
        row = await super().create(new)
        if row is not None and new.drawers_of is not None:
            for (key, name), each in list(self.data.drawers.items()):
                if key == new.drawers_of:
                    self.data.drawers[row.key, name] = each
        return row


class ExportsNoDrawers(DictStore):
    async def whole(self, session_id: str) -> list[Whole]:
        return [replace(each, drawers=[]) for each in await super().whole(session_id)]


class ImportsAnyName(DictStore):
    async def import_(self, sessions: Sequence[Whole]) -> bool:
        drawers = [each.drawers for each in sessions]
        done = await super().import_([replace(each, drawers=[]) for each in sessions])
        for each, found in zip(sessions, drawers, strict=True):
            key = self._named(each.row.session_id).row.key
            self.data.drawers |= {(key, one.name): KeptDrawer.of(one) for one in found}
        return done


class ForgetsWhatWasChangedLately(DictStore):
    async def expire_drawers(self, now: int, limit: int) -> int:
        return await super().expire_drawers(now * 2, limit)


class ExpiresEntryByEntry(DictStore):
    """Deletes a part of a long stream, and leaves the rest for the next time."""

    async def expire_drawers(self, now: int, limit: int) -> int:
        for each in self.data.drawers.values():
            for stream in each.streams.values():
                if len(stream.entries) > limit:
                    del stream.entries[:limit]
                    return 2
        return await super().expire_drawers(now, limit)


class LosesDrawersWhenItCloses(DictStore):
    async def close(self) -> None:
        self.data.drawers.clear()
        await super().close()


class ReadsBeforeItsTurn(DictStore):
    """Reads the present entries, lets others write, and stores what it has read and its own."""

    async def drawer_append(self, drawer: DrawerId, stream: str, entries: Sequence[bytes], *given: Any) -> int:
        before = await super().drawer_read(drawer, stream) or []
        await asyncio.sleep(0)
        await super().drawer_append(drawer, stream, entries, *given)
        self._drawer(drawer).streams[stream].entries = [*before, *entries]
        return len(before) + len(entries)


class ComparesBeforeItsTurn(DictStore):
    """Compares versions, lets others write, and stores."""

    async def drawer_put(self, drawer: DrawerId, changes: Sequence[Change], keep_for: int | None = None) -> list[int]:
        values = self._drawer(drawer).values
        for each in changes:
            if each.if_version == (values[each.key].version if each.key in values else 0):
                changes = [replace(each, if_version=None) for each in changes]
        await asyncio.sleep(0)
        return await super().drawer_put(drawer, changes, keep_for)


DRAWER_TWINS: dict[type[DictStore], str] = {
    AppendsTwice: "test_a_stream_returns_what_was_appended_in_order",
    ReadsTheFirst: "test_a_stream_returns_what_was_appended_in_order",
    PopsTheFirst: "test_the_last_entry_is_popped_and_its_number_used_again",
    StandsStillWithTheClock: "test_the_time_of_a_change_is_larger_than_all_before_in_its_drawer",
    StoresBeforeItFolds: "test_a_note_that_cannot_be_made_stores_nothing",
    PassesOnWhatAFoldRaises: "test_a_fold_that_raises_anything_ends_its_own_call_only",
    TakesAPrefixForAPattern: "test_streams_are_listed_by_prefix_and_dropped_with_their_entries",
    IgnoresVersions: "test_a_value_is_replaced_only_under_the_version_that_the_caller_knows",
    PutsOneByOne: "test_a_value_is_replaced_only_under_the_version_that_the_caller_knows",
    CountsVersionsByKey: "test_no_version_of_a_key_is_used_twice",
    ReplacesWhatIsThere: "test_several_values_change_together_and_new_ones_replace_nothing",
    SortsAsUtf16: "test_values_are_found_in_a_range_of_keys_by_code_points",
    SharesOneDrawer: "test_drawers_are_separate",
    WakesItsSession: "test_a_drawer_leaves_its_session_alone",
    KeepsTheDrawersOfTheRemoved: "test_without_its_session_there_is_no_drawer",
    RedactsNoDrawer: "test_a_redaction_empties_a_drawer_with_its_commit",
    CountsFromOneAfterARedaction: "test_a_redaction_empties_a_drawer_with_its_commit",
    LendsItsDrawers: "test_a_fork_gets_a_copy",
    ExportsNoDrawers: "test_drawers_are_exported_and_imported_as_they_were",
    ImportsAnyName: "test_an_import_with_names_that_are_not_valid_stores_nothing",
    ForgetsWhatWasChangedLately: "test_only_what_was_not_changed_for_its_time_expires",
    ExpiresEntryByEntry: "test_a_long_stream_expires_as_a_whole_and_is_deleted_in_portions",
    LosesDrawersWhenItCloses: "test_what_is_stored_is_there_for_other_engines_and_after_they_close",
    ReadsBeforeItsTurn: "test_engines_that_append_at_once_lose_and_double_nothing",
    ComparesBeforeItsTurn: "test_of_several_that_replace_a_value_at_once_one_does",
}
