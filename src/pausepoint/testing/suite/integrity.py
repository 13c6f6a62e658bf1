"""Tests that a store returns exactly what was written: record order, digests and large values."""

from __future__ import annotations

from hashlib import sha256

import pytest

from pausepoint.errors import DamagedRecord
from pausepoint.model.files import FileFacts
from pausepoint.model.records import first_digest, intact
from pausepoint.model.sessions import Filter
from pausepoint.stores.base import Store
from pausepoint.testing.suite.base import Place, Suite, on_loop, operator, started


class ProofTests(Suite):
    """Tests of `records`, `key_frame`, `blobs` and `signals`, also with stored data that was damaged."""

    def damage_record(self, store: Store, key: int, seq: int) -> None:
        """Change the payload of a stored record without using the store. If not overridden, its test is skipped."""
        pytest.skip(f"{type(self).__name__} does not define damage_record(self, store, key, seq)")

    def damage_signal(self, store: Store, key: int, n: int) -> None:
        """Change the payload of a stored signal without using the store. If not overridden, its test is skipped."""
        pytest.skip(f"{type(self).__name__} does not define damage_signal(self, store, key, n)")

    def damage_blob(self, store: Store, hash: bytes) -> None:
        """Change a stored large value without using the store. If not overridden, its test is skipped."""
        pytest.skip(f"{type(self).__name__} does not define damage_blob(self, store, hash)")

    @on_loop
    async def test_a_range_of_records_can_be_read(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            for n in range(5):
                await driver.commit(b"%d" % n)

            async def seqs(since: int, until: int | None = None) -> list[int]:
                return [record.seq for record in await store.records(driver.key, since, until)]

            assert await seqs(1) == [1, 2, 3, 4, 5, 6]
            assert await seqs(3) == [3, 4, 5, 6]
            assert await seqs(3, 4) == [3, 4]
            assert await seqs(7) == []
            assert await seqs(1, 99) == [1, 2, 3, 4, 5, 6]

    @on_loop
    async def test_records_come_back_byte_for_byte_so_that_the_chain_can_be_verified(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            for payload in (b"{}", "\u00fc\u2028".encode(), b"x" * 100_000):
                await driver.commit(payload)
            previous = first_digest("s1")
            for record in await store.records(driver.key, 1):
                assert intact(record, previous)
                previous = record.digest
            assert previous == driver.digest

    @on_loop
    async def test_text_that_not_every_store_can_hold_is_replaced_and_not_taken_for_damage(self, place: Place) -> None:
        bad, good = "b\0b\udcff", "b\ufffdb\ufffd"
        async with place.store() as store:
            driver = await started(store, owner=bad, tags=(bad,))
            await store.pause(Filter(), operator(bad, by=bad))
            await store.send("s1", bad, 1, b"{}")
            await store.add_file("s1", bad, 2, FileFacts("file_1", "a.txt", "text/plain", 1, "ab" * 32, "txt"))
            await store.cancel("s1", bad, bad, 3)
            await driver.commit(release=True, closed_by=bad, ended="completed")
            [row] = await store.find(Filter(owner=bad, tag=bad))
            assert (row.owner, row.tags) == (good, (good,))
            (pause,) = await store.pauses(row.key, open_only=False)
            assert (pause.reason, pause.by, pause.closed_by) == (good, good, good)
            assert [signal.by for signal in await store.signals(row.key, 0)] == [good] * 4
            assert await store.check() == []
            await store.remove("s1", bad, bad, 9)
            [removal] = await store.removing()
            assert (removal.tombstone.by, removal.tombstone.reason) == (good, good)

    @on_loop
    async def test_the_last_key_frame_up_to_a_record_is_found(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            for kind in ("checkpoint", "key", "checkpoint", "key"):
                await driver.commit(kind=kind)
            assert [await store.key_frame(driver.key, seq) for seq in (1, 2, 3, 4, 5)] == [1, 1, 3, 3, 5]

    @on_loop
    async def test_large_values_are_found_by_their_hashes_and_a_missing_one_is_named(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            values = {sha256(data).digest(): data for data in (b"one", b"two" * 50_000)}
            await driver.commit(blobs=tuple(values.items()))
            assert await store.blobs(values) == values
            assert await store.blobs([]) == {}
            with pytest.raises(DamagedRecord):
                await store.blobs([sha256(b"three").digest()])

    @on_loop
    async def test_a_damaged_record_is_named_and_never_returned(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            for _ in range(4):
                await driver.commit()
            self.damage_record(store, driver.key, 3)
            with pytest.raises(DamagedRecord, match="3"):
                await store.records(driver.key, 1)
            assert len(await store.records(driver.key, 4)) == 2  # records that do not need it can still be read

    @on_loop
    async def test_a_damaged_signal_is_named_and_never_returned(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await store.pause(Filter(), operator())
            await store.unpause("s1", "ann", 2)
            self.damage_signal(store, driver.key, 2)
            with pytest.raises(DamagedRecord, match="2"):
                await store.signals(driver.key, 0)

    @on_loop
    async def test_a_damaged_large_value_is_named_and_never_returned(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            blob = (sha256(b"large").digest(), b"large")
            await driver.commit(blobs=(blob,))
            self.damage_blob(store, blob[0])
            with pytest.raises(DamagedRecord, match=blob[0].hex()):
                await store.blobs([blob[0]])
