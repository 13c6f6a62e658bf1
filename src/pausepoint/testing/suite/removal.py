"""Tests of removing sessions, of sweeping large values without references, and of surveying a whole store."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256

import pytest

from pausepoint.errors import AlreadyRunning, DamagedRecord, UnknownSession, VerbRefused
from pausepoint.model.sessions import Filter
from pausepoint.model.stores import Sweep, Tombstone
from pausepoint.stores.base import Store
from pausepoint.testing.suite.base import Place, Suite, created, new_session, on_loop, operator, parked, started, stored

BLOB = (sha256(b"large").digest(), b"large")


class EndTests(Suite):
    """Tests of removal (`remove`, `removing`, `strip`, `expired`, `tombstones`) and of whole-store verbs.

    The whole-store verbs are `sweep`, `survey`, `names`, `values` and `check`.
    """

    @on_loop
    async def test_a_session_that_is_being_removed_is_unknown_to_every_other_verb(self, place: Place) -> None:
        async with place.store() as store:
            row = await parked(store, wakes_at=place.clock.now() - 1)
            await store.send("s1", None, 1, b"{}")
            [removal] = await store.remove("s1", "ann", "done with it", 9000)
            assert removal.key == row.key
            with suppress(UnknownSession):  # a store may return None or raise an error with more detail
                assert await store.get("s1") is None
            assert await store.find(Filter()) == []
            assert await store.due(place.clock.now(), ["brief"], 10) == []
            assert await store.survey(0, 10) == []
            for verb in (store.claim("s1"), store.send("s1", None, 1, b"{}"), store.cancel("s1", None, "", 1)):
                with pytest.raises(UnknownSession):
                    await verb

    @on_loop
    async def test_a_removal_proceeds_in_batches_and_ends_in_a_tombstone(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store, owner="ann")
            for _ in range(7):
                await driver.commit()
            await store.pause(Filter(), operator())
            await driver.commit(release=True)
            row = await stored(store)
            [removal] = await store.remove("s1", "ben", "old", 9000)
            assert await store.removing() == [removal]
            stone, turns = await stripped(store, row.key, 2)
            assert stone == removal.tombstone
            assert stone == Tombstone("s1", "brief", "ann", "paused", 1000, 9000, "ben", "old", row.seq, row.digest)
            assert turns > 4
            assert await store.removing() == []
            assert await store.tombstones() == await store.tombstones("s1") == [stone]
            assert await store.tombstones("other") == []

    @on_loop
    async def test_a_removed_id_can_be_used_again_and_its_key_never(self, place: Place) -> None:
        async with place.store() as store:
            row = await parked(store)
            await store.remove("s1", None, "", 9000)
            await stripped(store, row.key, 100)
            again = await created(store)
            assert again.key > row.key
            assert (again.seq, await store.signals(again.key, 0)) == (1, [])

    @on_loop
    async def test_a_held_session_is_not_removed(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            before = await stored(store)
            with pytest.raises(AlreadyRunning):
                await store.remove("s1", None, "", 9000)
            assert await stored(store) == before
            await driver.commit()
            with pytest.raises(UnknownSession):
                await store.remove("nobody", None, "", 9000)

    @on_loop
    async def test_a_session_whose_child_is_held_is_not_removed(self, place: Place) -> None:
        async with place.store() as store:
            root = await parked(store, "root")
            driver = await started(store, "child", parent=root.key)
            with pytest.raises(AlreadyRunning):
                await store.remove("root", None, "", 9000)
            assert await store.removing() == []
            await driver.commit(release=True)
            assert len(await store.remove("root", None, "", 9000)) == 2

    @on_loop
    async def test_a_tree_is_removed_by_its_root_children_first(self, place: Place) -> None:
        async with place.store() as store:
            root = await parked(store, "root")
            child = await created(store, "child", parent=root.key, claim=False)
            with pytest.raises(VerbRefused):
                await store.remove("child", None, "", 9000)
            removals = await store.remove("root", None, "", 9000)
            assert {removal.key for removal in removals} == {root.key, child.key}
            assert [removal.key for removal in await store.removing()] == [child.key, root.key]

    @on_loop
    async def test_a_session_that_is_being_removed_gets_no_children(self, place: Place) -> None:
        async with place.store() as store:
            root = await parked(store, "root")
            await store.remove("root", None, "", 9000)
            with pytest.raises(UnknownSession):
                await store.create(new_session("late", parent=root.key))
            assert await store.get("late") is None
            assert await store.find(Filter()) == []
            await stripped(store, root.key, 100)
            with pytest.raises(UnknownSession):
                await store.create(new_session("late", parent=root.key))
            assert await store.get("late") is None

    @on_loop
    async def test_a_session_unchanged_for_as_long_as_it_is_kept_has_expired(self, place: Place) -> None:
        async with place.store() as store:
            for id, keep_for in (("a", 100), ("b", 500), ("c", None), ("d", 100)):
                await created(store, id, keep_for=keep_for, claim=False)
            found = await store.expired(1200, 0, 10)
            assert [session_id for _, session_id in found] == ["a", "d"]
            assert [id for _, id in await store.expired(1200, found[0][0], 10)] == ["d"]
            assert len(await store.expired(1200, 0, 1)) == 1
            assert await store.expired(1050, 0, 10) == []
            assert await store.remove("b", None, "expired", 1200, expired=True) == []
            assert len(await store.remove("a", None, "expired", 1200, expired=True)) == 1

    @on_loop
    async def test_ended_sessions_without_their_own_keep_for_use_the_given_one(self, place: Place) -> None:
        async with place.store() as store:
            for id, keep_for in (("a", None), ("b", 9000), ("c", None)):
                driver = await started(store, id, keep_for=keep_for)
                await driver.commit(release=True, ended="completed" if id != "c" else None)
            assert await store.expired(1500, 0, 10) == []
            assert [id for _, id in await store.expired(1500, 0, 10, ended_for=400)] == ["a"]
            assert await store.expired(1300, 0, 10, ended_for=400) == []
            for id, at in (("a", 1300), ("b", 1500), ("c", 1500)):
                assert await store.remove(id, None, "expired", at, expired=True, ended_for=400) == []
            assert len(await store.remove("a", None, "expired", 1500, expired=True, ended_for=400)) == 1

    @on_loop
    async def test_the_weight_counts_only_data_that_no_other_session_needs(self, place: Place) -> None:
        async with place.store() as store:
            shared, own = ((sha256(data).digest(), data) for data in (b"s" * 9000, b"o" * 5000))
            root = await created(store, blobs=(shared, own), claim=False)
            await created(store, "child", parent=root.key, names=(own[0],), claim=False)
            await created(store, "s2", names=(shared[0],), claim=False)
            assert 5000 < await store.weight("s1") < 6000
            assert await store.weight("child") < 1000
            assert await store.weight("nobody") == await store.weight() == 0
            assert await store.weight("s1", "s2", "nobody") > 14_000, "nothing else needs what they share"

    @on_loop
    async def test_strip_is_for_sessions_that_are_being_removed(self, place: Place) -> None:
        async with place.store() as store:
            row = await parked(store)
            with pytest.raises(DamagedRecord):
                await store.strip(row.key, 10)
            assert len(await store.records(row.key, 1)) == 2

    @on_loop
    async def test_only_large_values_without_references_are_swept(self, place: Place) -> None:
        async with place.store() as store:
            loose = (sha256(b"loose").digest(), b"loose")
            await created(store, blobs=(BLOB,), claim=False)
            other = await created(store, "s2", blobs=(BLOB, loose), claim=False)
            assert await store.names(other.key) == {BLOB[0]: True, loose[0]: True}
            await store.remove("s2", None, "", 9000)
            await stripped(store, other.key, 100)
            assert await store.sweep(0, 10, apply=False) == Sweep(None, 1, 5)
            assert (await store.blobs([loose[0]]))[loose[0]] == b"loose"
            assert await store.sweep(0, 10, apply=True) == Sweep(None, 1, 5)
            assert await store.sweep(0, 10, apply=True) == Sweep(None, 0, 0)
            assert await store.blobs([BLOB[0]]) == dict([BLOB])
            with pytest.raises(DamagedRecord):
                await store.blobs([loose[0]])

    @on_loop
    async def test_a_commit_can_drop_a_reference_to_a_large_value(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store, blobs=(BLOB,))
            await created(store, "s2", names=(BLOB[0],))
            await driver.commit(unname=(BLOB[0],))
            assert await store.names(driver.key) == {}
            assert await store.blobs([BLOB[0]]) == dict([BLOB])  # another session refers to it

    @on_loop
    async def test_a_value_that_two_sessions_reference_stays_until_both_are_removed(self, place: Place) -> None:
        async with place.store() as store:
            first = await created(store, blobs=(BLOB,), claim=False)
            second = await created(store, "s2", names=(BLOB[0],), claim=False)
            for row, left in ((first, 0), (second, 1)):
                await store.remove(row.session_id, None, "", 9000)
                await stripped(store, row.key, 100)
                assert (await store.sweep(0, 10, apply=True)).count == left

    @on_loop
    async def test_a_session_cannot_reference_a_missing_value(self, place: Place) -> None:
        async with place.store() as store:
            with pytest.raises(DamagedRecord):
                await store.create(new_session(names=(BLOB[0],)))
            assert await store.get("s1") is None

    @on_loop
    async def test_a_store_can_be_surveyed_in_parts(self, place: Place) -> None:
        async with place.store() as store:
            rows = [await created(store, f"s{n}", blobs=((sha256(b"%d" % n).digest(), b"%d" % n),)) for n in range(3)]
            assert await store.survey(0, 10) == [(row.key, row.session_id, row) for row in rows]
            assert [id for _, id, _ in await store.survey(rows[0].key, 1)] == ["s1"]
            proved = await store.values(0, 2)
            assert (proved.count, proved.damaged) == (2, ())
            assert proved.last is not None
            assert (await store.values(proved.last, 2)).count == 1
            assert await store.check() == []

    @on_loop
    async def test_free_space_is_reported_and_can_be_given_back(self, place: Place) -> None:
        async with place.store() as store:
            await created(store, blobs=((sha256(b"x" * 100_000).digest(), b"x" * 100_000),))
            space = await store.space()
            assert space.total >= 100_000
            assert 0 <= space.free <= space.total
            assert await store.compact(1_000_000) >= 0
            assert await store.fold() in (True, False)


async def stripped(store: Store, key: int, limit: int) -> tuple[Tombstone, int]:
    """Strip a session that is being removed. Return its tombstone and the number of `strip` calls."""
    for turn in range(1, 100):
        stone = await store.strip(key, limit)
        if stone is not None:
            return stone, turn
    raise AssertionError("strip did not finish the removal in 99 calls")
