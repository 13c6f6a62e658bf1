"""Tests of opening and closing a store, and of several engines on one store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pausepoint.errors import AlreadyRunning, HoldLost, StoreClosed
from pausepoint.model.sessions import Filter, Status
from pausepoint.stores.base import Store
from pausepoint.testing.suite.base import (
    Driver,
    Place,
    Suite,
    created,
    new_session,
    on_loop,
    operator,
    payloads,
    started,
    stored,
)

# Calls of each kind: verbs that read, verbs that drive a session, and verbs from outside.
VERBS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "get": lambda store: store.get("s1"),
    "find": lambda store: store.find(Filter()),
    "tally": lambda store: store.tally(Filter()),
    "records": lambda store: store.records(1, 1),
    "claim": lambda store: store.claim("s1"),
    "reap": lambda store: store.reap(),
    "take": lambda store: store.take(1, ["brief"], 1),
    "flags": lambda store: store.flags([1]),
    "pause": lambda store: store.pause(Filter(), operator()),
    "send": lambda store: store.send("s1", None, 1, b"{}"),
}


class LifeTests(Suite):
    """Tests of `open`, `close`, `number`, `trouble` and `describe_holders`."""

    @pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
    @on_loop
    async def test_a_store_that_is_not_open_says_so(
        self, place: Place, verb: Callable[[Store], Awaitable[Any]]
    ) -> None:
        store = place.make(place.folder, place.clock)
        with pytest.raises(StoreClosed):
            await verb(store)
        await store.open(lambda keys: None)
        driver = await started(store)
        await asyncio.gather(store.close(), store.close())
        await store.close()
        with pytest.raises(StoreClosed):
            await verb(store)
        with pytest.raises(StoreClosed):
            await driver.commit()
        with pytest.raises(StoreClosed):
            await store.create(new_session("s2"))

    @on_loop
    async def test_a_store_that_was_never_opened_closes_quietly(self, place: Place) -> None:
        store = place.make(place.folder, place.clock)
        await store.close()
        with pytest.raises(StoreClosed):
            await store.get("s1")

    @on_loop
    async def test_a_store_reports_whether_it_can_be_written(self, place: Place) -> None:
        async with place.store() as store:
            assert store.trouble is None

    @on_loop
    async def test_closing_finishes_what_was_submitted(self, place: Place) -> None:
        store = place.make(place.folder, place.clock)
        await store.open(lambda keys: None)
        drivers = [await started(store, f"s{n}") for n in range(5)]
        commits = [asyncio.ensure_future(driver.commit(b"last")) for driver in drivers]
        await asyncio.sleep(0)  # the calls are submitted now, but not finished
        await store.close()
        assert all(commit.done() and commit.result() is not None for commit in commits)


class SharingTests(Suite):
    """Tests for stores that keep their data after closing and that several engines can open at the same time."""

    @on_loop
    async def test_data_is_still_there_after_the_store_is_opened_again(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store, tags=("a",))
            await driver.commit(b"kept", spend_usd=5)
            await store.pause(Filter(), operator())
        async with place.store() as store:
            row = await stored(store)
            assert (row.seq, row.tags, row.spent_usd, row.status) == (2, ("a",), 5, Status.PAUSED)
            assert await payloads(store, row.key) == [b"{}", b"kept"]
            assert [pause.reason for pause in await store.pauses(row.key)] == ["lunch"]

    @on_loop
    async def test_closing_releases_all_holds_and_counts_no_crash(self, place: Place) -> None:
        async with place.store() as store:
            await started(store)
        async with place.store() as store:
            row = await stored(store)
            assert (row.holder, row.live) == (None, False)
            row = await store.claim("s1")
            assert (row.fence, row.crashes) == (2, 0)

    @on_loop
    async def test_opening_ends_what_was_cancelled_and_left_open(self, place: Place) -> None:
        async with place.store() as store:
            left, failed = await started(store, "left"), await started(store, "failed")
            for id in ("left", "failed"):
                await store.cancel(id, "ann", "", 9500)
            await left.commit(release=True, waiting="message")
            await failed.commit(release=True, ended="failed")
            driven = await started(store, "driven")
            await store.cancel("driven", "ann", "", 9500)
            async with place.store() as other:
                assert [(await stored(other, id)).ended for id in ("left", "failed")] == ["cancelled"] * 2
                assert (await stored(other, "driven")).ended is None
                await driven.commit()
        async with place.store() as store:  # closing released it
            assert (await stored(store, "driven")).ended == "cancelled"

    @on_loop
    async def test_a_session_is_held_by_one_engine_at_a_time(self, place: Place) -> None:
        async with place.store() as mine, place.store() as other:
            assert mine.number != other.number
            driver = await started(mine)
            row = await stored(other)
            assert (row.holder, row.live, row.status) == (mine.number, True, Status.RUNNING)
            with pytest.raises(AlreadyRunning) as refusal:
                await other.claim("s1")
            assert {mine.number: refusal.value.holder} == await other.describe_holders([mine.number])
            await driver.commit(release=True)
            taken = await other.claim("s1")
            assert (taken.fence, taken.holder) == (2, other.number)
            with pytest.raises(AlreadyRunning):
                await mine.claim("s1")

    @on_loop
    async def test_an_engine_that_keeps_a_step_claims_it_again_under_its_fence(self, place: Place) -> None:
        async with place.store() as keeper, place.store() as other:
            driver = await started(keeper)
            await keeper.pause(Filter(session_id="s1"), operator())
            await driver.commit(release=True, kept=True, only_if_paused=True)
            row = await stored(other)
            assert (row.status, row.holder, row.kept_by, row.fence) == (Status.PAUSED, None, keeper.number, 1)
            await other.unpause("s1", "ben", 6000)
            now = place.clock.now()
            assert (await other.due(now, ["brief"], 9), await other.take(now, ["brief"], 9)) == ([], [])
            row = await keeper.claim("s1", fence=1)
            assert (row.holder, row.kept_by, row.fence, row.crashes) == (keeper.number, None, 2, 0)

    @on_loop
    async def test_a_step_that_is_no_longer_kept_is_anyones(self, place: Place) -> None:
        async with place.store() as other:
            async with place.store() as keeper:
                for name in ("unkept", "stolen", "closed"):
                    driver = await started(keeper, name)
                    await keeper.pause(Filter(session_id=name), operator())
                    await driver.commit(release=True, kept=True, only_if_paused=True)
                    await other.unpause(name, "ben", 6000)
                await keeper.unkeep((await stored(other, "unkept")).key, 7)  # another fence: nothing happens
                assert (await stored(other, "unkept")).kept_by == keeper.number
                await keeper.unkeep((await stored(other, "unkept")).key, 1)
                assert (await stored(other, "unkept")).kept_by is None
                await other.claim("stolen", steal=True)
                with pytest.raises(AlreadyRunning):
                    await keeper.claim("stolen", fence=1)
            assert [(await stored(other, name)).kept_by for name in ("unkept", "stolen", "closed")] == [None] * 3
            due = await other.due(place.clock.now(), ["brief"], 9)
            assert sorted(row.session_id for row in due) == ["closed", "unkept"]

    @on_loop
    async def test_a_claim_can_require_the_fence_that_was_read(self, place: Place) -> None:
        async with place.store() as mine, place.store() as other:
            await (await started(mine)).commit(release=True)
            seen = await stored(other)
            driver = Driver(mine, await mine.claim("s1", fence=seen.fence))
            await driver.commit(release=True, ended="failed")
            with pytest.raises(HoldLost):
                await other.claim("s1", fence=seen.fence)
            assert ((await stored(other)).status, (await stored(other)).fence) == (Status.FAILED, seen.fence + 1)
            with pytest.raises(HoldLost):
                await other.claim("s1", steal=True, fence=seen.fence)

    @on_loop
    async def test_what_each_engine_drives_is_known_to_the_others(self, place: Place) -> None:
        mine = place.make(place.folder, place.clock)
        mine.announce(["memo", "brief"])
        await mine.open(lambda keys: None)
        async with place.store() as other:
            drives = {each.number: each.workflows for each in (await other.about()).holders if each.live}
            assert drives == {mine.number: ("brief", "memo"), other.number: ()}
            other.announce(["devs"])
            await created(other)  # the next write carries it
            mine.announce([])
            await mine.pause(Filter(), operator())
            drives = {each.number: each.workflows for each in (await mine.about()).holders if each.live}
            assert drives == {mine.number: (), other.number: ("devs",)}
            other.announce(["devs"], ["mail", "gpu"])
            await created(other, "s2")
            queues = {each.number: each.queues for each in (await mine.about()).holders if each.live}
            assert queues == {mine.number: None, other.number: ("gpu", "mail")}
            other.announce(["devs", "memo"])
            await mine.close()
            await other.pause(Filter(), operator("night", mode="abort"))
            [last] = [each for each in (await other.about()).holders if each.live]
            assert (last.number, last.workflows) == (other.number, ("devs", "memo"))

    @on_loop
    async def test_of_two_engines_that_take_at_once_each_gets_its_own(self, place: Place) -> None:
        async with place.store() as mine, place.store() as other:
            for n in range(6):
                await (await started(mine, f"s{n}")).commit(release=True)
            now = place.clock.now()
            found = await asyncio.gather(*(store.take(now, ["brief"], 2) for store in (mine, other, mine, other)))
            taken = [row.session_id for rows in found for row in rows]
            assert sorted(taken) == [f"s{n}" for n in range(6)]

    @on_loop
    async def test_an_engine_whose_session_was_stolen_writes_nothing(self, place: Place) -> None:
        async with place.store() as mine, place.store() as other:
            driver = await started(mine)
            thief = Driver(other, await other.claim("s1", steal=True))
            with pytest.raises(HoldLost):
                await driver.commit(b"of the past")
            await thief.commit(b"of the thief")
            assert await payloads(mine, thief.key) == [b"{}", b"of the thief"]

    @on_loop
    async def test_a_pause_from_another_engine_comes_back_with_the_next_commit(self, place: Place) -> None:
        async with place.store() as mine, place.store() as other:
            driver = await started(mine)
            await other.pause(Filter(), operator())
            flags = await driver.commit()
            assert flags is not None
            assert flags.pause_requested

    @on_loop
    async def test_an_engine_is_notified_soon_after_another_one_wrote(self, place: Place) -> None:
        heard = asyncio.Event()
        async with place.store(lambda keys: heard.set()), place.store() as other:
            heard.clear()
            await created(other)
            await heard.wait()

    @on_loop
    async def test_an_engine_is_told_which_session_has_changed_or_that_anything_may_have(self, place: Place) -> None:
        heard: asyncio.Queue[frozenset[int] | None] = asyncio.Queue()
        async with place.store(heard.put_nowait), place.store() as other:
            first, second = await started(other, "s1"), await started(other, "s2")
            verbs: list[tuple[int, Callable[[], Awaitable[Any]]]] = [
                (first.key, lambda: other.send("s1", "ann", 9500, b"{}")),
                (second.key, lambda: other.pause(Filter(session_id="s2"), operator())),
                (first.key, lambda: first.commit(release=True)),
                (first.key, lambda: other.claim("s1")),
            ]
            for key, verb in verbs:
                while not heard.empty():
                    heard.get_nowait()
                await verb()
                while (keys := await heard.get()) is not None and key not in keys:
                    pass
