"""Tests of `reap`, with engines that died."""

from __future__ import annotations

from pausepoint.model.sessions import Filter, Status
from pausepoint.testing.suite.base import Place, Suite, on_loop, operator, parked, started, stored

NOW = 2_000_000


class CrashTests(Suite):
    """Tests of the sessions that an engine held when it died. They need `lose_engine`."""

    @on_loop
    async def test_sessions_of_an_engine_that_died_are_freed_and_count_a_crash(self, place: Place) -> None:
        async with place.store() as store, place.store() as other:
            keys = {(await started(other, id)).key for id in ("s1", "s2")}
            await parked(other, "parked")
            mine = await started(store, "mine")
            self.lose_engine(other)
            assert await store.reap() == keys
            row = await stored(store)
            assert (row.holder, row.crashes, row.ready_at, row.status) == (None, 1, 0, Status.CREATED)
            assert ((await stored(store, "parked")).crashes, (await stored(store, "mine")).crashes) == (0, 0)
            assert await store.reap() == frozenset()
            taken = await store.take(NOW, ["brief"], 9)
            assert {row.session_id: row.crashes for row in taken} == {"s1": 1, "s2": 1, "parked": 0}
            await mine.commit()

    @on_loop
    async def test_sessions_of_live_engines_are_not_freed(self, place: Place) -> None:
        async with place.store() as store, place.store() as other:
            drivers = [await started(store, "s1"), await started(other, "s2")]
            assert [await each.reap() for each in (store, other)] == [frozenset()] * 2
            for driver in drivers:
                await driver.commit()
            assert [(await stored(store, id)).crashes for id in ("s1", "s2")] == [0, 0]

    @on_loop
    async def test_a_crash_is_counted_once(self, place: Place) -> None:
        async with place.store() as store, place.store() as other:
            for id in ("claimed", "reaped"):
                await started(other, id)
            self.lose_engine(other)
            assert (await store.claim("claimed")).crashes == 1
            await store.reap()
            assert (await store.claim("reaped")).crashes == 1
            assert (await stored(store, "claimed")).crashes == 1

    @on_loop
    async def test_a_paused_session_of_an_engine_that_died_stays_paused(self, place: Place) -> None:
        async with place.store() as store, place.store() as other:
            await started(other)
            await store.pause(Filter(session_id="s1"), operator())
            self.lose_engine(other)
            await store.reap()
            row = await stored(store)
            assert (row.status, row.ready_at, row.crashes) == (Status.PAUSED, None, 1)
            assert await store.take(NOW, ["brief"], 9) == []

    @on_loop
    async def test_a_cancelled_session_of_an_engine_that_died_ends(self, place: Place) -> None:
        async with place.store() as store, place.store() as other:
            parent = await started(other)
            await started(other, "child", parent=parent.key)
            await store.cancel("s1", "ann", "enough", 9500)
            assert (await stored(store)).ended is None
            self.lose_engine(other)
            assert len(await store.reap()) == 2
            assert [(await stored(store, id)).ended for id in ("s1", "child")] == ["cancelled"] * 2
