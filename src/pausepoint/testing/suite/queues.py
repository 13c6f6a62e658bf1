"""Tests of queues: which ready sessions a store gives to an engine, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from pausepoint.model.queues import DEFAULT_QUEUE, WINDOW
from pausepoint.model.sessions import Filter
from pausepoint.stores.base import Store
from pausepoint.testing.suite.base import Driver, Place, Suite, created, on_loop, operator, started, stored

NOW = 2_000_000


async def ready(store: Store, *ids: str, **changes: Any) -> None:
    """Create sessions that any engine may pick up at once."""
    for id in ids:
        await created(store, id, claim=False, due=True, **changes)


async def taken(store: Store, limit: int = 9, queues: Sequence[str] | None = None) -> list[str]:
    """Take sessions, and return their ids."""
    return [row.session_id for row in await store.take(NOW, ["brief", "other"], limit, queues=queues)]


async def due(store: Store, limit: int = 9, queues: Sequence[str] | None = None) -> list[str]:
    """Return the ids of the sessions that are due."""
    return [row.session_id for row in await store.due(NOW, ["brief", "other"], limit, queues=queues)]


async def released(store: Store, *ids: str, **changes: Any) -> None:
    """Give up the hold of sessions, with a record."""
    for id in ids:
        await Driver(store, await stored(store, id)).commit(release=True, **changes)


class QueueTests(Suite):
    """Tests of the order of `take` and `due`."""

    @on_loop
    async def test_queue_priority_and_lane_are_stored_with_the_session(self, place: Place) -> None:
        async with place.store() as store:
            plain = await created(store)
            given = await created(store, "s2", queue="gpu", priority=-5, lane="customer-7", claim=False)
            assert (plain.queue, plain.priority, plain.lane) == (DEFAULT_QUEUE, 0, None)
            assert (given.queue, given.priority, given.lane) == ("gpu", -5, "customer-7")
            assert await stored(store, "s2") == given
            await store.claim("s2")
            await released(store, "s2")
            after = await stored(store, "s2")
            assert (after.queue, after.priority, after.lane) == ("gpu", -5, "customer-7")

    @on_loop
    async def test_ready_sessions_are_counted_by_queue_and_workflow(self, place: Place) -> None:
        async with place.store() as store:
            await ready(store, "a", "b", queue="gpu")
            await ready(store, "c", queue="gpu", workflow="other")
            await ready(store, "d")
            await created(store, "held")
            await (await started(store, "later")).commit(release=True, wakes_at=NOW + 1)
            found = set(await store.ready_counts(NOW))
            assert found == {("gpu", "brief", 2), ("gpu", "other", 1), ("default", "brief", 1)}
            await taken(store, 2, ["gpu"])
            assert sum(each.sessions for each in await store.ready_counts(NOW + 1)) == 3

    @on_loop
    async def test_a_copy_of_a_session_has_its_queue_priority_and_lane(self, place: Place) -> None:
        async with place.store() as store:
            await ready(store, "s1", queue="gpu", priority=-5, lane="customer-7")
            (whole,) = await store.whole("s1")
            await store.import_([replace(whole, row=replace(whole.row, session_id="s2"))])
            copy = await stored(store, "s2")
            assert (copy.queue, copy.priority, copy.lane) == ("gpu", -5, "customer-7")
            assert sorted(await taken(store, queues=["gpu"])) == ["s1", "s2"]

    @on_loop
    async def test_a_session_that_no_engine_holds_can_be_due_from_the_start(self, place: Place) -> None:
        async with place.store() as store:
            await ready(store, "due")
            await created(store, "later", claim=False)
            assert (await stored(store, "due")).due
            assert await due(store) == ["due"]
            assert sorted(await taken(store)) == ["due", "later"]

    @on_loop
    async def test_the_lowest_priority_number_comes_first_then_the_longest_wait(self, place: Place) -> None:
        async with place.store() as store:
            await ready(store, "b0")
            await ready(store, "a9", priority=9)
            await ready(store, "urgent", priority=-1000)
            await ready(store, "other", workflow="other", queue="gpu")
            await (await started(store, "timer")).commit(release=True, waiting="timer", wakes_at=5)
            await ready(store, "last", priority=9)
            order = ["urgent", "b0", "other", "timer", "a9", "last"]
            assert await due(store) == order
            assert await due(store, 2) == order[:2]
            assert await taken(store, 1) == order[:1]
            assert await taken(store, 2) == order[1:3]
            assert await taken(store) == order[3:]

    @on_loop
    async def test_only_the_queues_that_are_named_are_looked_at(self, place: Place) -> None:
        async with place.store() as store:
            await ready(store, "plain")
            await ready(store, "gpu", queue="gpu")
            await ready(store, "mail", queue="mail", priority=-1)
            for queues, found in ((["none"], []), (["gpu"], ["gpu"]), (["gpu", "mail"], ["mail", "gpu"])):
                assert await due(store, queues=queues) == found
            assert await taken(store, queues=["none"]) == []
            assert await taken(store, queues=["gpu", "mail"]) == ["mail", "gpu"]
            assert await taken(store) == ["plain"]

    @on_loop
    async def test_lanes_take_turns(self, place: Place) -> None:
        async with place.store() as store:
            await ready(store, "a1", "a2", "a3", lane="a")
            await ready(store, "b1", "b2", lane="b")
            await ready(store, "c1", lane="c", priority=1)
            found = await due(store)
            assert ({*found[:2]}, {*found[2:4]}, found[4:]) == ({"a1", "b1"}, {"a2", "b2"}, ["a3", "c1"])
            rows = [await store.due(NOW + n, ["brief"], 1) for n in range(30)]
            assert {row.lane for (row,) in rows} == {"a", "b"}, "neither lane has to wait for all of the other one"
            assert {*await taken(store, 1), *await taken(store, 1)} == {"a1", "b1"}, "each lane has one at work"
            await released(store, "b1", ended="completed")
            assert await taken(store, 1) == ["b2"], "the lane with the fewest sessions at work comes first"
            assert await taken(store) == ["a2", "a3", "c1"]

    @on_loop
    async def test_priorities_and_queues_hold_among_many_ready_sessions(self, place: Place) -> None:
        async with place.store() as store:
            await ready(store, *(f"s{n:03}" for n in range(WINDOW + 5)))
            await ready(store, "urgent", priority=-1)
            await ready(store, "gpu", queue="gpu")
            assert (await due(store, 2))[0] == (await taken(store, 1))[0] == "urgent"
            assert await due(store, queues=["gpu"]) == await taken(store, queues=["gpu"]) == ["gpu"]
            assert len(set(await taken(store, WINDOW + 99))) == WINDOW + 5

    @on_loop
    async def test_what_cannot_be_taken_holds_nothing_up(self, place: Place) -> None:
        async with place.store() as store:
            await ready(store, "paused", "skipped", priority=-3)
            await store.pause(Filter(session_id="paused"), operator())
            await ready(store, "future", priority=-2)
            await store.claim("future")
            await released(store, "future", waiting="timer", wakes_at=NOW + 1)
            await ready(store, "last")
            skipped = await stored(store, "skipped")
            found = await store.take(NOW, ["brief"], 1, {skipped.key: skipped.seq})
            assert [row.session_id for row in found] == ["last"]
