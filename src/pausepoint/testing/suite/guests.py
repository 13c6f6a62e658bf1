"""Guest sessions: their code runs in a program of its own, so no engine picks them up."""

from __future__ import annotations

from pausepoint.model.sessions import Filter, Status
from pausepoint.testing.suite.base import Driver, Place, Suite, created, on_loop, operator, started, stored

EVER = 2**50
"""A time at which every timer of these tests is due."""


class GuestTests(Suite):
    """Tests of guest sessions on one store."""

    @on_loop
    async def test_a_guest_is_known_as_one_and_other_sessions_are_not(self, place: Place) -> None:
        async with place.store() as store:
            assert (await created(store, "guest", guest=True)).guest
            assert not (await created(store, "other")).guest
            assert [row.guest for row in await store.find(Filter(sort="id"))] == [True, False]
            assert (await store.claim("guest", steal=True)).guest

    @on_loop
    async def test_a_guest_is_never_taken_or_due(self, place: Place) -> None:
        async with place.store() as store:
            await created(store, "new", guest=True, claim=False)
            await (await started(store, "interrupted", guest=True)).commit(release=True)
            await (await started(store, "timer", guest=True)).commit(release=True, wakes_at=77)
            await (await started(store, "mail", guest=True)).commit(release=True, waiting="message")
            await store.send("mail", "ann", 5000, b"{}")
            await (await started(store, "other")).commit(release=True, wakes_at=99)
            assert (await stored(store, "mail")).status is Status.READY, "the message counts, but wakes nobody"
            assert all(row.ready_at is None for row in await store.find(Filter()) if row.guest)
            assert [row.session_id for row in await store.due(EVER, ["brief"], 9)] == ["other"]
            assert await store.due(EVER, ["brief"], 9, "timer") == []
            assert await store.next_wake(1, ["brief"]) == 99
            assert await store.next_wake(1, ["brief"], "timer") is None
            assert [row.session_id for row in await store.take(EVER, ["brief"], 9)] == ["other"]

    @on_loop
    async def test_no_verb_makes_a_guest_due(self, place: Place) -> None:
        async with place.store() as store:

            async def stays() -> None:
                row = await stored(store)
                assert (row.guest, row.ready_at) == (True, None)
                assert await store.due(EVER, ["brief"], 9) == await store.take(EVER, ["brief"], 9) == []

            await (await started(store, guest=True)).commit(release=True)
            await store.pause(Filter(session_id="s1"), operator())
            await stays()
            await store.unpause("s1", "ann", 6000)
            await stays()
            await store.pause(Filter(session_id="s1"), operator())
            await store.unpause("s1", "ann", 6500, wake=True)
            await stays()
            await store.pause(Filter(), operator(standing=True))
            assert (await stored(store)).status is Status.PAUSED
            await store.lift("ann", 7000)
            await stays()
            await store.revise(Driver(store, await stored(store)).next(kind="edit", release=True))
            await stays()
            await (claimed := Driver(store, await store.claim("s1"))).commit(release=True, ended="failed")
            await stays()
            again = await store.claim("s1")
            await store.release(again.key, again.fence)
            await stays()
            assert claimed.fence < again.fence

    @on_loop
    async def test_an_imported_guest_is_a_guest(self, place: Place) -> None:
        async with place.store() as store:
            await (await started(store, guest=True)).commit(release=True)
            moved = await store.whole("s1")
            for removal in await store.remove("s1", None, "", 9000):
                while await store.strip(removal.key, 100) is None:
                    pass
            assert await store.import_(moved)
            row = await stored(store)
            assert (row.guest, row.ready_at) == (True, None)
            assert await store.take(EVER, ["brief"], 9) == []


class SharedGuestTests(Suite):
    """Tests of guests with several engines on the same data."""

    @on_loop
    async def test_a_guest_of_an_engine_that_is_gone_waits_for_its_program(self, place: Place) -> None:
        async with place.store() as first:
            await started(first, guest=True)
        async with place.store() as second:
            assert await second.take(EVER, ["brief"], 9) == []
            assert (await stored(second)).status is not Status.RUNNING
            assert (await second.claim("s1")).guest
