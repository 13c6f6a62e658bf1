"""Tests of schedules: they are stored as given, and a run starts once, together with the schedule's next time."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from pausepoint.model.schedules import Schedule, run_id
from pausepoint.model.sessions import Filter, Status
from pausepoint.testing.suite.base import Place, Suite, new_session, on_loop, operator, stored

HOUR = 3_600_000_000


def nightly(name: str = "nightly", **changes: Any) -> Schedule:
    """Return a schedule whose next run is in an hour."""
    given = Schedule(name, "brief", "0 3 * * *", "UTC", "skip", "newest", b'{"topic":"squid"}', "ann", ("a", "b"), 1000,
                     "ben", next_at=HOUR)  # fmt: skip
    return replace(given, **changes)


class ScheduleTests(Suite):
    """Tests of `schedules`, `schedule`, `due_schedules`, `set_schedule`, `drop_schedule` and `next_wake`."""

    @on_loop
    async def test_schedules_are_stored_as_given_and_listed_by_name(self, place: Place) -> None:
        async with place.store() as store:
            full = nightly(
                "b", zone="Europe/Berlin", overlap="queue", catch_up="all", owner=None, tags=(), by=None,
                triggered_at=5, triggered_by="ann", paused_at=6, paused_by="ben", last_at=7, last_session="b@1",
                skipped=3, queue="gpu", priority=-5, lane="c7",
            )  # fmt: skip
            for each in (full, nightly("a")):
                assert (await store.set_schedule(None, each)).written
            assert list(await store.schedules()) == [nightly("a"), full]
            assert (await store.schedule("b"), await store.schedule("c")) == (full, None)
            assert await store.drop_schedule("b")
            assert not await store.drop_schedule("b")
            assert list(await store.schedules()) == [nightly("a")]

    @on_loop
    async def test_a_schedule_that_has_changed_since_it_was_read_is_not_replaced(self, place: Place) -> None:
        async with place.store() as store:
            first, second = nightly(), nightly(cron="0 4 * * *")
            assert not (await store.set_schedule(first, second, new_session("s1"))).written
            assert (await store.set_schedule(None, first)).written
            assert not (await store.set_schedule(None, second)).written
            assert not (await store.set_schedule(second, nightly(skipped=1), new_session("s1"))).written
            assert (await store.schedule("nightly"), await store.get("s1")) == (first, None)
            assert (await store.set_schedule(first, second)).written
            assert await store.schedule("nightly") == second

    @on_loop
    async def test_a_run_is_stored_with_the_next_time_of_its_schedule(self, place: Place) -> None:
        async with place.store() as store:
            before, after = nightly(), nightly(next_at=2 * HOUR, last_at=HOUR, last_session="nightly@1")
            await store.set_schedule(None, before)
            fired = await store.set_schedule(before, after, new_session("nightly@1"))
            assert fired.written
            assert fired.row is not None
            assert (fired.row.holder, fired.row.status) == (store.number, Status.RUNNING)
            assert await store.schedule("nightly") == after
            again = await store.set_schedule(after, replace(after, skipped=1), new_session("nightly@1"))
            assert again == (True, None)

    @on_loop
    async def test_of_several_that_start_a_run_one_does(self, place: Place) -> None:
        async with place.store() as store:
            before = nightly()
            await store.set_schedule(None, before)
            ids = [run_id("nightly", n * HOUR) for n in range(4)]
            afters = [nightly(next_at=2 * HOUR, last_session=id) for id in ids]
            fired = await asyncio.gather(
                *(store.set_schedule(before, after, new_session(id)) for after, id in zip(afters, ids, strict=True))
            )
            assert sum(each.written for each in fired) == 1
            assert [row.session_id for row in await store.find(Filter())] == [
                each.row.session_id for each in fired if each.row is not None
            ]

    @on_loop
    async def test_only_schedules_whose_time_has_come_are_due(self, place: Place) -> None:
        async with place.store() as store:
            given = [
                nightly("later", next_at=HOUR + 1), nightly("now"), nightly("before", next_at=HOUR - 1),
                nightly("paused", paused_at=1), nightly("other", workflow="other"),
                nightly("asked", next_at=9 * HOUR, paused_at=1, triggered_at=1),
            ]  # fmt: skip
            for each in given:
                await store.set_schedule(None, each)
            assert [each.name for each in await store.due_schedules(HOUR, ["brief"])] == ["before", "now", "asked"]
            assert [each.name for each in await store.due_schedules(HOUR, ["none", "other"])] == ["other"]
            assert await store.next_wake(HOUR, ["brief"]) == HOUR + 1
            assert await store.next_wake(HOUR + 1, ["brief"]) is None
            assert await store.next_wake(0, ["other", "none"]) == HOUR
            assert await store.next_wake(0, ["brief"], "s1") is None

    @on_loop
    async def test_while_everything_is_paused_a_run_is_stored_paused(self, place: Place) -> None:
        async with place.store() as store:
            await store.pause(Filter(), operator(standing=True))
            await store.set_schedule(None, nightly())
            assert await store.due_schedules(HOUR, ["brief"]) == [nightly()]
            fired = await store.set_schedule(nightly(), nightly(next_at=2 * HOUR), new_session("nightly@1"))
            assert fired.row is not None
            assert (fired.row.holder, fired.row.status) == (None, Status.PAUSED)
            assert await store.take(HOUR, ["brief"], 9) == []
            await store.lift("ann", HOUR)
            assert [row.session_id for row in await store.take(HOUR, ["brief"], 9)] == ["nightly@1"]

    @on_loop
    async def test_a_request_by_key_changes_a_schedule_once(self, place: Place) -> None:
        async with place.store() as store:
            await store.remember("k", b"d", None, place.clock.now() + HOUR)
            with store.once("k"):
                await store.set_schedule(None, nightly())
            found = await store.recall("k")
            assert found is not None
            assert found.took_effect
            await store.remember("l", b"d", None, place.clock.now() + HOUR)
            with store.once("l"):
                assert not await store.drop_schedule("other")
                assert await store.drop_schedule("nightly")
            found = await store.recall("l")
            assert found is not None
            assert found.took_effect


class SharedScheduleTests(Suite):
    """Tests of schedules with several engines."""

    @on_loop
    async def test_schedules_outlive_their_engines_and_each_hears_of_changes(self, place: Place) -> None:
        async with place.store() as first:
            await first.set_schedule(None, nightly())
        news = asyncio.Event()
        async with place.store(lambda keys: news.set()) as second, place.store() as third:
            assert await second.schedule("nightly") == nightly()
            assert (await third.set_schedule(nightly(), nightly(triggered_at=5))).written
            await news.wait()
            assert [each.name for each in await second.due_schedules(0, ["brief"])] == ["nightly"]
            assert not (await second.set_schedule(nightly(), nightly(skipped=1))).written
            assert (await stored_run(second, third)) == 1


async def stored_run(*stores: Any) -> int:
    """Let several engines start the same run; return how many did."""
    before = await stores[0].schedule("nightly")
    after = replace(before, triggered_at=None, last_session="nightly@1")
    fired = [await store.set_schedule(before, after, new_session("nightly@1")) for store in stores]
    assert (await stored(stores[0], "nightly@1")).live
    return sum(each.written for each in fired)
