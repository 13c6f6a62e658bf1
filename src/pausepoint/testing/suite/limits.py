"""Tests of limits: a store never lets more sessions work than they allow, and a slot is free as soon as a hold ends."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from pausepoint.errors import LimitReached
from pausepoint.model.limits import StoredLimit
from pausepoint.model.sessions import Filter, Pause, Status
from pausepoint.testing.suite.base import Driver, Place, Suite, created, new_session, on_loop, operator, started, stored
from pausepoint.testing.suite.queues import NOW, due, ready, released, taken

SECOND = 1_000_000


def at_once(most: int | None, scope: Any = "queue", name: str = "default", **changes: Any) -> StoredLimit:
    """Return a limit of the sessions at work."""
    return StoredLimit(scope, name, most, **changes)


class LimitTests(Suite):
    """Tests of `limits`, `set_limit` and `drop_limits`, and of what `create`, `claim`, `take` and `due` obey."""

    @on_loop
    async def test_limits_are_stored_as_given_and_listed_in_order(self, place: Place) -> None:
        async with place.store() as store:
            given = [
                at_once(2, "lane", "customer-7"), at_once(4), at_once(10, per=SECOND, full_at=3),
                at_once(None, "workflow", "brief", by="owner"),
                at_once(5, "workflow", "brief", by="owner", declared=True),
            ]  # fmt: skip
            for each in reversed(given):
                await store.set_limit(each)
            assert list(await store.limits()) == given
            await store.set_limit(at_once(9))
            assert list(await store.limits())[1] == at_once(9)
            assert await store.drop_limits("workflow", "brief") == 1
            assert await store.drop_limits("workflow", "brief") == 0
            assert await store.drop_limits("queue", "default") == 2
            assert list(await store.limits()) == [given[0], given[4]]
            assert await store.drop_limits("workflow", "brief", declared=True) == 1
            assert not (await store.check())

    @on_loop
    async def test_a_session_without_a_slot_is_stored_ready(self, place: Place) -> None:
        async with place.store() as store:
            await store.set_limit(at_once(1))
            first = await started(store)
            second = await created(store, "s2")
            other = await created(store, "s3", queue="other")
            assert (second.holder, second.status, second.due) == (None, Status.READY, True)
            assert other.holder == store.number, "other queues have no limit"
            assert (await due(store), await taken(store)) == ([], [])
            with pytest.raises(LimitReached):
                await store.claim("s2")
            assert await stored(store, "s2") == second
            for id, facts in (("asleep", {"waiting": "timer", "wakes_at": NOW * 9}), ("failed", {"ended": "failed"})):
                await store.set_limit(at_once(2))
                await Driver(store, await created(store, id)).commit(release=True, **facts)
                await store.set_limit(at_once(1))
                with pytest.raises(LimitReached):
                    await store.claim(id)
                assert ((await stored(store, id)).status, (await stored(store, id)).due) == (Status.READY, True)
                await store.cancel(id, None, "", 6000)
            await first.commit()
            assert await taken(store) == [], "a commit frees no slot"
            await first.commit(release=True, waiting="message")
            assert await due(store) == ["s2"]
            assert await taken(store) == ["s2"]
            assert await store.create(new_session("s2")) is None, "its id is taken"

    @on_loop
    async def test_a_slot_is_free_when_its_session_parks_ends_or_is_removed(self, place: Place) -> None:
        async with place.store() as store:
            await store.set_limit(at_once(1))
            await ready(store, *(f"r{n}" for n in range(9)))
            ends: list[dict[str, Any]] = [
                {"waiting": "timer", "wakes_at": NOW * 9}, {"waiting": "child"}, {"ended": "completed"},
                {"ended": "failed"}, {"open_pauses": (Pause(str(uuid4()), "guard", "why", None, 1),)},
            ]  # fmt: skip
            for n, end in enumerate(ends):
                assert await taken(store) == [f"r{n}"]
                await released(store, f"r{n}", **end)
            (row,) = await store.take(NOW, ["brief"], 9)
            assert await taken(store) == []
            await store.release(row.key, row.fence)
            assert await taken(store) == [row.session_id]
            await store.cancel(row.session_id, None, "", 6000)
            await released(store, row.session_id, ended="cancelled")
            (row,) = await store.take(NOW, ["brief"], 9)
            await released(store, row.session_id, ended="completed")
            await store.remove(row.session_id, "ann", "", 7000)
            assert len(await taken(store)) == 1

    @on_loop
    async def test_limits_count_workflows_lanes_and_each_owner_for_itself(self, place: Place) -> None:
        async with place.store() as store:
            await store.set_limit(at_once(1, "workflow", "other"))
            await store.set_limit(at_once(2, "lane", "vip"))
            await store.set_limit(at_once(1, "workflow", "brief", by="owner"))
            await ready(store, "o1", "o2", workflow="other")
            await ready(store, "v1", "v2", "v3", workflow="other", lane="vip", priority=1)
            await ready(store, "ann1", "ann2", owner="ann", lane="x", priority=2)
            await ready(store, "ben1", "ben2", owner="ben", lane="vip", priority=3)
            await ready(store, "nobody1", "nobody2", priority=4)
            assert await taken(store) == ["o1", "ann1", "ben1", "nobody1"]
            await released(store, "o1", "ann1", ended="completed")
            assert await taken(store) == ["o2", "ann2"]
            await released(store, "o2", ended="completed")
            assert await taken(store) == ["v1"]
            await released(store, "ben1", ended="completed")
            assert await taken(store) == ["ben2"]
            assert await taken(store) == []

    @on_loop
    async def test_a_limit_of_the_code_counts_until_an_operator_overrides_it(self, place: Place) -> None:
        async with place.store() as store:
            await store.set_limit(at_once(1, declared=True))
            await ready(store, "a", "b", "c", "d")
            assert await taken(store) == ["a"]
            await store.set_limit(at_once(2))
            assert await taken(store) == ["b"]
            await store.set_limit(at_once(None))
            assert await taken(store, 1) == ["c"]
            await store.drop_limits("queue", "default")
            assert await taken(store) == [], "three are at work, and the limit of the code is 1"

    @on_loop
    async def test_a_limit_below_what_runs_stops_nothing_that_runs(self, place: Place) -> None:
        async with place.store() as store:
            drivers = [await started(store, f"s{n}") for n in range(3)]
            await store.set_limit(at_once(1))
            await ready(store, "next")
            for driver in drivers:
                assert await taken(store) == []
                await driver.commit()
                await driver.commit(release=True, ended="completed")
            assert await taken(store) == ["next"]

    @on_loop
    async def test_a_claim_takes_over_what_is_at_work_already(self, place: Place) -> None:
        async with place.store() as store:
            await store.set_limit(at_once(1))
            await started(store)
            assert (await store.claim("s1", steal=True)).fence == 2

    @on_loop
    async def test_guests_use_no_slots(self, place: Place) -> None:
        async with place.store() as store:
            await store.set_limit(at_once(1))
            await created(store, "guest", guest=True, claim=False)
            await store.claim("guest")
            assert (await created(store, "s1")).holder == store.number
            await created(store, "guest2", guest=True, claim=False)
            assert (await store.claim("guest2")).holder == store.number

    @on_loop
    async def test_a_parent_that_waits_leaves_its_slot_to_its_child(self, place: Place) -> None:
        async with place.store() as store:
            await store.set_limit(at_once(1))
            parent = await started(store, "parent")
            child = await created(store, "child", parent=parent.key)
            assert (child.holder, child.due) == (None, True)
            await parent.commit(release=True, waiting="child")
            assert await taken(store) == ["child"]

    @on_loop
    async def test_what_is_paused_uses_no_slot_and_stays_paused(self, place: Place) -> None:
        async with place.store() as store:
            await store.set_limit(at_once(1))
            await started(store)
            waiting = await created(store, "s2")
            await store.pause(Filter(session_id="s2"), operator())
            assert (await stored(store, "s2")).status is Status.PAUSED
            await store.pause(Filter(), operator(standing=True))
            assert (await created(store, "s3")).status is Status.PAUSED
            await store.lift("ann", 9000)
            await store.unpause("s2", "ann", 9000, wake=True)
            await released(store, "s1", ended="completed")
            assert await taken(store, 1) == ["s2"]
            assert (await stored(store, "s2")).key == waiting.key
            assert await taken(store) == []
            await released(store, "s2", ended="completed")
            assert await taken(store) == ["s3"]

    @on_loop
    async def test_a_rate_lets_so_many_begin_in_its_time(self, place: Place) -> None:
        async with place.store() as store:
            at = place.clock.now()
            await store.set_limit(at_once(2, per=SECOND))
            assert (await created(store, "s1")).holder
            assert (await created(store, "s2")).holder
            third = await created(store, "s3")
            assert (third.holder, third.due) == (None, True)
            await released(store, "s1", "s2", ended="completed")
            with pytest.raises(LimitReached):
                await store.claim("s3")
            assert (await store.due(at, ["brief"], 9), await store.take(at, ["brief"], 9)) == ([], [])
            assert await store.next_wake(at, ["brief"]) == at + SECOND // 2
            assert await store.take(at + SECOND // 2 - 1, ["brief"], 9) == []
            await ready(store, "s4", "s5", "s6")
            found = await store.take(at + SECOND // 2, ["brief"], 9)
            assert [row.session_id for row in found] == ["s3"]
            found = await store.take(at + 9 * SECOND, ["brief"], 9)
            assert [row.session_id for row in found] == ["s4", "s5"], "it saves up no more than it allows at once"
            assert await store.next_wake(at + 9 * SECOND, ["brief"]) == at + 9 * SECOND + SECOND // 2

    @on_loop
    async def test_a_request_by_key_sets_a_limit_once(self, place: Place) -> None:
        async with place.store() as store:
            await store.remember("k", b"d", None, place.clock.now() + SECOND)
            with store.once("k"):
                await store.set_limit(at_once(1))
            found = await store.recall("k")
            assert found is not None
            assert found.took_effect
            await store.remember("l", b"d", None, place.clock.now() + SECOND)
            with store.once("l"):
                await store.drop_limits("queue", "other")
                await store.drop_limits("queue", "default")
            found = await store.recall("l")
            assert found is not None
            assert found.took_effect


class SharedLimitTests(Suite):
    """Tests of limits with several engines."""

    @on_loop
    async def test_the_slots_of_an_engine_that_died_are_free(self, place: Place) -> None:
        async with place.store() as first, place.store() as second:
            await first.set_limit(at_once(1))
            assert (await created(second, "s1")).holder == second.number
            assert (await created(first, "s2")).holder is None
            self.lose_engine(second)
            assert await due(first) == ["s2"]
            assert (await first.claim("s2")).holder == first.number
            with pytest.raises(LimitReached):
                await first.claim("s1")

    @on_loop
    async def test_engines_together_stay_below_a_limit(self, place: Place) -> None:
        async with place.store() as first, place.store() as second:
            await first.set_limit(at_once(3))
            await ready(first, *(f"s{n}" for n in range(8)))
            found = await asyncio.gather(*(store.take(NOW, ["brief"], 2) for store in (first, second) * 2))
            assert sum(map(len, found)) == 3
            assert (await created(second, "late")).holder is None
            (row, *_) = [row for rows in found for row in rows if row.holder == second.number] or found[0]
            holder = second if row.holder == second.number else first
            await Driver(holder, row).commit(release=True, ended="completed")
            assert len(await second.take(NOW, ["brief"], 9)) == 1

    @on_loop
    async def test_the_slots_of_an_engine_that_left_are_free(self, place: Place) -> None:
        async with place.store() as first:
            await first.set_limit(at_once(2))
            async with place.store() as second:
                await ready(first, "a", "b", "c")
                assert len(await second.take(NOW, ["brief"], 9)) == 2
                assert await taken(first) == []
            assert len(await taken(first)) == 2

    @on_loop
    async def test_limits_outlive_their_engines(self, place: Place) -> None:
        async with place.store() as first:
            await first.set_limit(at_once(1))
        async with place.store() as second:
            assert list(await second.limits()) == [at_once(1)]
            await started(second)
            assert (await created(second, "s2")).holder is None
