"""Tests of commits, and of the hold that a commit needs."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

import pytest
from msgspec.structs import replace

from pausepoint.errors import AlreadyRunning, DamagedRecord, HoldLost, SessionEnded
from pausepoint.model.sessions import Failure, Filter, Pause, Status
from pausepoint.testing.suite.base import Driver, Place, Suite, created, on_loop, operator, payloads, started, stored


class CommitTests(Suite):
    """Tests of `commit` and `claim`."""

    @on_loop
    async def test_a_commit_sets_the_facts_it_carries(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            failure = Failure("first", "ValueError", "no", 3, "trace")
            first = driver.next(
                spend_usd=5, spend_tokens=7, progress=(1, 4), key_frame=2, held_by_guard=True, version=9
            )
            await store.commit(first)
            row = await stored(store)
            assert (row.seq, row.digest, row.key_frame) == (2, driver.digest, 2)
            assert (row.step, row.held_by_guard, row.version, row.progress) == ("second", True, 9, (1, 4))
            await driver.commit(spend_usd=1, ended="failed", failure=failure, release=True)
            row = await stored(store)
            assert (row.spent_usd, row.spent_tokens, row.version, row.progress) == (6, 7, 9, None)
            assert (row.failure, row.holder, row.status) == (failure, None, Status.FAILED)
            assert [record.seq for record in await store.records(row.key, 2)] == [2, 3]

    @on_loop
    async def test_a_commit_with_several_records_stores_them_all(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            one, two = driver.next(b"1"), driver.next(b"2")
            await store.commit(driver.next(b"3", base_seq=1, records=(*one.records, *two.records)))
            assert await payloads(store, driver.key) == [b"{}", b"1", b"2"]
            assert (await stored(store)).seq == 3

    @pytest.mark.parametrize("changes", [{"fence": 0}, {"fence": 2}, {"base_seq": 0}, {"base_seq": 2}, {"key": 99}])
    @on_loop
    async def test_a_commit_that_does_not_fit_writes_nothing(self, place: Place, changes: dict[str, Any]) -> None:
        async with place.store() as store:
            driver = await started(store)
            before = await stored(store)
            blob = (sha256(b"x").digest(), b"x")
            with pytest.raises(HoldLost, match=r"(?i)nothing was written"):
                await driver.commit(blobs=(blob,), open_pauses=(operator(),), release=True, **changes)
            assert await stored(store) == before
            assert await payloads(store, driver.key) == [b"{}"]
            with pytest.raises(DamagedRecord):
                await store.blobs([blob[0]])

    @pytest.mark.parametrize("count", [1, 2])
    @pytest.mark.parametrize("changes", [{"fence": 0}, {"fence": 2}, {"base_seq": 0}, {"key": 99}])
    @on_loop
    async def test_a_plain_commit_that_does_not_fit_writes_nothing(
        self, place: Place, changes: dict[str, Any], count: int
    ) -> None:
        async with place.store() as store:
            driver = await started(store)
            before = await stored(store)
            first, *others = [driver.next(plain=True, **changes) for _ in range(count)]
            records = (*first.records, *(record for each in others for record in each.records))
            with pytest.raises(HoldLost, match=r"(?i)nothing was written"):
                await store.commit(replace(first, records=records))
            assert await stored(store) == before
            assert await payloads(store, driver.key) == [b"{}"]

    @on_loop
    async def test_of_two_simultaneous_commits_one_takes_effect(self, place: Place) -> None:
        async with place.store() as store:
            driver, rival = await started(store), Driver(store, await stored(store))
            results = await asyncio.gather(driver.commit(b"one"), rival.commit(b"two"), return_exceptions=True)
            assert [type(result) for result in results].count(HoldLost) == 1
            kept = await payloads(store, driver.key)
            assert kept in ([b"{}", b"one"], [b"{}", b"two"])

    @on_loop
    async def test_after_a_release_the_old_fence_writes_nothing(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await driver.commit(release=True)
            with pytest.raises(HoldLost, match="nobody"):
                await driver.commit()

    @on_loop
    async def test_commits_of_one_session_take_effect_in_the_order_given(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            commits = [driver.next(b"%d" % n) for n in range(20)]
            await asyncio.gather(*map(store.commit, commits))
            assert await payloads(store, driver.key) == [b"{}", *(b"%d" % n for n in range(20))]

    @on_loop
    async def test_commits_that_spend_and_commits_that_do_not_keep_their_order(self, place: Place) -> None:
        async with place.store() as store:
            await started(store, "other")  # so that the store may write the commits together
            driver = await started(store)
            commits = [driver.next(b"%d" % n, spend_usd=n % 2, spend_operations=n % 2) for n in (1, 2, 3, 4)]
            await asyncio.gather(*map(store.commit, commits))
            row = await stored(store)
            assert (row.seq, row.spent_usd, row.spent_operations) == (5, 2, 2)
            assert await payloads(store, driver.key) == [b"{}", b"1", b"2", b"3", b"4"]

    @on_loop
    async def test_a_commit_only_if_paused_waits_for_a_pause(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            parked = driver.next(only_if_paused=True, release=True)
            assert await store.commit(parked) is None
            assert (await stored(store)).seq == 1
            await store.pause(Filter(), operator())
            flags = await store.commit(parked)
            assert flags is not None
            assert flags.pause_requested
            assert (await stored(store)).status == Status.PAUSED

    @on_loop
    async def test_a_conditional_commit_returns_none_even_if_another_follows_immediately(self, place: Place) -> None:
        async with place.store() as store:
            await started(store, "other")
            driver = await started(store)
            twin = Driver(store, await stored(store))
            results = await asyncio.gather(
                driver.commit(only_if_paused=True), twin.commit(b"went on"), return_exceptions=True
            )
            assert results[0] is None
            assert await payloads(store, driver.key) == [b"{}", b"went on"]

    @on_loop
    async def test_updated_at_rises_with_writes_and_never_falls(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store, created_at=1000)
            seen = [(await stored(store)).updated_at]
            for now in (2000, 500, 3000, -5):  # the machine's clock jumps back twice
                await driver.commit(updated_at=now)
                seen.append((await stored(store)).updated_at)
            assert seen == [1000, 2000, 2000, 3000, 3000]
            assert (await stored(store)).created_at == 1000

    @on_loop
    async def test_a_commit_opens_and_closes_pause_records(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            guard = Pause("p1", "guard", "no sources yet", None, 10, step="first")
            await driver.commit(open_pauses=(guard,))
            row = await stored(store)
            assert (row.open_pauses, row.status) == (1, Status.PAUSING)
            assert await store.pauses(row.key) == [guard]
            await driver.commit(close_pauses=("p1",), closed_by="ann", updated_at=7000)
            assert await store.pauses(row.key) == []
            [closed] = await store.pauses(row.key, open_only=False)
            assert (closed.closed_at, closed.closed_by) == (7000, "ann")

    @on_loop
    async def test_a_large_value_is_stored_once(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            blob = (sha256(b"large").digest(), b"large")
            await driver.commit(blobs=(blob,))
            await driver.commit(blobs=(blob,))
            assert await store.blobs([blob[0]]) == dict([blob])

    @on_loop
    async def test_a_claim_raises_the_fence_and_the_older_fence_is_refused(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            with pytest.raises(AlreadyRunning) as refusal:
                await store.claim("s1")
            assert await store.describe_holders([store.number]) == {store.number: refusal.value.holder}
            row = await store.claim("s1", steal=True)
            assert (row.fence, row.crashes) == (2, 0)
            with pytest.raises(HoldLost):
                await driver.commit()
            assert await Driver(store, row).commit()

    @on_loop
    async def test_a_failed_session_can_be_claimed_and_keeps_its_failure_until_it_moves(self, place: Place) -> None:
        async with place.store() as store:
            failure = Failure("first", "ValueError", "no")
            await (await started(store)).commit(ended="failed", failure=failure, release=True)
            row = await store.claim("s1")
            assert (row.ended, row.failure, row.status) == (None, failure, Status.RUNNING)
            await Driver(store, row).commit()
            assert (await stored(store)).failure is None

    @pytest.mark.parametrize("ended", ["completed", "cancelled"])
    @on_loop
    async def test_an_ended_session_cannot_be_claimed(self, place: Place, ended: str) -> None:
        async with place.store() as store:
            await (await started(store)).commit(ended=ended, release=True)
            with pytest.raises(SessionEnded) as refusal:
                await store.claim("s1", steal=True)
            assert refusal.value.status == ended

    @pytest.mark.parametrize("ended", ["completed", "cancelled"])
    @on_loop
    async def test_a_commit_that_ends_the_session_closes_its_pauses_and_withdraws_the_request(
        self, place: Place, ended: str
    ) -> None:
        async with place.store() as store:
            driver = await started(store)
            await driver.commit(open_pauses=(Pause("g", "guard", "no sources yet", None, 10),))
            await store.pause(Filter(), operator())
            await driver.commit(ended=ended, release=True)
            row = await stored(store)
            assert (row.pause_requested, row.open_pauses, row.status) == (False, 0, Status(ended))
            assert await store.pauses(row.key) == []
            assert len(await store.pauses(row.key, open_only=False)) == 2

    @on_loop
    async def test_a_hold_that_was_never_released_still_belongs_to_this_engine(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            row = await stored(store)
            assert (row.holder, row.live) == (store.number, True)
            named = await store.describe_holders([store.number, 9_999])
            assert list(named) == [store.number, 9_999]
            assert len(set(named.values())) == 2
            assert await store.describe_holders([]) == {}
            await driver.commit(release=True)
            assert ((await stored(store)).holder, (await stored(store)).live) == (None, False)

    @on_loop
    async def test_a_revision_changes_an_undriven_session_in_any_status(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await store.cancel("s1", "ann", "too slow", 1)
            await driver.commit(ended="cancelled", release=True)
            row = await stored(store)
            await store.revise(Driver(store, row).next(b"revised", release=True))
            again = await stored(store)
            assert (again.seq, again.fence, again.holder, again.ended) == (row.seq + 1, row.fence + 1, None, None)
            assert not again.cancel_requested
            assert (await payloads(store, row.key))[-1] == b"revised"

    @on_loop
    async def test_a_revision_of_a_held_session_or_of_one_that_changed_is_refused(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            with pytest.raises(AlreadyRunning):
                await store.revise(Driver(store, await stored(store)).next(release=True))
            await driver.commit(release=True)
            row = await stored(store)
            late = Driver(store, row)
            await store.revise(Driver(store, row).next(b"first", release=True))
            with pytest.raises(HoldLost):
                await store.revise(late.next(b"second", release=True))
            assert (await payloads(store, row.key))[-1] == b"first"

    @on_loop
    async def test_an_event_that_is_added_to_a_session_which_became_due_meanwhile_is_refused(
        self, place: Place
    ) -> None:
        async with place.store() as store:
            driver = await started(store)
            await driver.commit(release=True)
            await store.pause(Filter(session_id="s1"), operator())
            row = await stored(store)
            await store.unpause("s1", "ann", 2, wake=True)
            assert (await stored(store)).wakes_at == 0
            with pytest.raises(HoldLost):
                await store.revise(Driver(store, row).next(b"late", kind="event", release=True, wakes_at=row.wakes_at))
            now = await stored(store)
            assert (now.wakes_at, now.seq) == (0, row.seq)
            await store.revise(Driver(store, now).next(b"added", kind="event", release=True, wakes_at=now.wakes_at))
            assert (await stored(store)).wakes_at == 0
            assert [each.session_id for each in await store.due(3, [row.workflow], 10)] == ["s1"]

    @on_loop
    async def test_a_revision_can_cancel_all_children_of_a_session(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            child = await created(store, "child", parent=driver.key, claim=False)
            await created(store, "grandchild", parent=child.key, claim=False)
            await driver.commit(release=True)
            late = Driver(store, await stored(store))
            await store.revise(Driver(store, await stored(store)).next(release=True))
            with pytest.raises(HoldLost):
                await store.revise(late.next(release=True, cancel_children="late"))
            below = [await stored(store, "child"), await stored(store, "grandchild")]
            assert [row.cancel_requested for row in below] == [False, False]
            found = await store.revise(
                Driver(store, await stored(store)).next(release=True, cancel_children="rewound", closed_by="ann")
            )
            below = [await stored(store, "child"), await stored(store, "grandchild")]
            assert found == below
            assert [(row.cancel_requested, row.ended) for row in below] == [(True, "cancelled")] * 2
            assert not (await stored(store)).cancel_requested
            [signal] = await store.signals(child.key, 0)
            assert (signal.kind, signal.by, b"rewound" in signal.payload) == ("cancel", "ann", True)

    @on_loop
    async def test_redacted_content_is_deleted_and_the_chain_stays_valid(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await driver.commit(b"secret")
            await store.send("s1", None, 1, b"secret")
            await driver.commit(b"kept", redact=(2,), redact_signals=(1,))
            assert await payloads(store, driver.key) == [b"{}", b"", b"kept"]
            assert [record.redacted for record in await store.records(driver.key, 1)] == [False, True, False]
            assert [signal.redacted for signal in await store.signals(driver.key, 0)] == [True]
