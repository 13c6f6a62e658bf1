"""Tests of the pause of everything: it applies to sessions created later, and lifting it keeps other pauses."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from pausepoint.errors import VerbRefused
from pausepoint.model.budgets import Allowance
from pausepoint.model.sessions import Filter, Pause, SessionRow, Status, Stopping
from pausepoint.stores.base import Store
from pausepoint.testing.suite.base import (
    Driver,
    Place,
    Suite,
    created,
    new_session,
    on_loop,
    operator,
    parked,
    started,
    stored,
)

ALL = Filter(unended=True)


def everything(reason: str = "fire drill", by: str | None = "ann", at: int = 5000, **changes: object) -> Pause:
    """Return a request to pause everything."""
    return operator(reason, by, at, standing=True, **changes)


async def standing(store: Store) -> Pause:
    """Return the pause of everything, which must be in effect."""
    found = await store.standing_pause()
    assert found is not None
    return found


async def requests(store: Store, row: SessionRow) -> list[tuple[str, bool]]:
    """Return the open pauses of a session: each reason, and whether it belongs to a pause of everything."""
    return [(pause.reason, pause.standing) for pause in await store.pauses(row.key)]


class StandingTests(Suite):
    """Tests of `standing_pause` and `lift`, and of `pause`, `create`, `revise` and `import_` under such a pause."""

    @on_loop
    async def test_a_pause_of_everything_stays_in_effect_until_it_is_lifted(self, place: Place) -> None:
        async with place.store() as store:
            assert await store.standing_pause() is None
            assert await store.lift("ben", 4000) is False
            await store.pause(Filter(), operator())
            assert await store.standing_pause() is None, (
                "a filter that matches all sessions pauses only the existing ones"
            )
            await store.pause(ALL, everything(mode="abort", freeze=True))
            pause = await standing(store)
            assert (pause.reason, pause.by, pause.created_at) == ("fire drill", "ann", 5000)
            assert (pause.mode, pause.freeze, pause.standing) == ("abort", True, True)
            assert await store.lift("ben", 6000) is True
            assert await store.standing_pause() is None

    @on_loop
    async def test_a_second_pause_of_everything_keeps_the_author_and_can_only_strengthen_it(self, place: Place) -> None:
        async with place.store() as store:
            await store.pause(ALL, everything(freeze=True))
            first = await standing(store)
            await store.pause(ALL, everything("again", "ben", 6000))
            assert await standing(store) == first
            await store.pause(ALL, everything("now", "ben", 7000, mode="abort"))
            assert await standing(store) == replace(first, mode="abort")
            await store.pause(ALL, everything("later", "cid", 8000))
            assert await standing(store) == replace(first, mode="abort")

    @on_loop
    async def test_it_stops_every_session_and_nothing_is_written_for_them(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store, "driven")
            for id, facts in (("ready", {}), ("waiting", {"waiting": "message"}), ("sleeping", {"wakes_at": 10**12})):
                await parked(store, id, **facts)
            await parked(store, "failed", ended="failed")
            await parked(store, "done", ended="completed")
            before = {row.session_id: row for row in await store.find(Filter())}
            assert await store.pause(ALL, everything(mode="abort")) == []
            found = {row.session_id: row for row in await store.find(Filter())}
            stopped = ["driven", "ready", "sleeping", "waiting"]
            assert sorted(row.session_id for row in found.values() if row.under_everything) == stopped
            statuses = [found[id].status for id in (*stopped, "failed", "done")]
            assert statuses == [Status.PAUSING, *[Status.PAUSED] * 3, Status.FAILED, Status.COMPLETED]
            for id in stopped:
                row = found[id]
                assert (row.pause_requested, row.pause_mode, row.own_pause) == (True, "abort", False)
                assert row.ready_at == before[id].ready_at, "what it would be without the pause"
                assert await requests(store, row) == [("fire drill", True)]
                assert await store.signals(row.key, 0) == []
            [(_, flags)] = (await store.flags([driver.key])).values()
            assert (flags.pause_requested, flags.pause_mode) == (True, "abort")
            assert await driver.commit() == flags
            counts = await store.tally(Filter(statuses=(Status.PAUSED, Status.PAUSING)))
            assert counts == {("brief", Status.PAUSED): 3, ("brief", Status.PAUSING): 1}
            await store.lift("ben", 6000)
            assert {row.session_id: row.status for row in await store.find(Filter())} == {
                row.session_id: row.status for row in before.values()
            }
            assert (await store.flags([driver.key]))[driver.key][1].pause_requested is False

    @on_loop
    async def test_nobody_picks_up_what_it_stops(self, place: Place) -> None:
        async with place.store() as store:
            now = place.clock.now()
            for id in ("timer", "other"):
                await parked(store, id, wakes_at=now - 1)
            await parked(store, "later", wakes_at=now + 9)
            await store.pause(ALL, everything())
            assert await store.due(now, ["brief"], 9) == []
            assert await store.take(now, ["brief"], 9) == []
            assert await store.next_wake(now, ["brief"]) is None
            with pytest.raises(VerbRefused):
                await store.claim("timer")
            for id in ("timer", "later"):
                await store.unpause(id, "ben", 6000)
            assert [row.session_id for row in await store.due(now, ["brief"], 9)] == ["timer"]
            assert await store.next_wake(now, ["brief"]) == now + 9
            assert [row.session_id for row in await store.take(now, ["brief"], 9)] == ["timer"]
            await store.lift("ben", 7000)
            assert [row.session_id for row in await store.take(now, ["brief"], 9)] == ["other"]

    @on_loop
    async def test_who_parks_under_it_has_a_record_and_is_due_when_it_is_lifted(self, place: Place) -> None:
        async with place.store() as store:
            now = place.clock.now()
            driver = await started(store)
            await store.pause(ALL, everything(at=5000))
            flags = await driver.commit(release=True, only_if_paused=True)
            assert flags is not None
            [pause] = await store.pauses(driver.key)
            assert (pause.by, pause.created_at, pause.step, pause.standing) == ("ann", 5000, "second", True)
            assert [(each.kind, each.after) for each in await store.signals(driver.key, 0)] == [("pause", 1)]
            assert await store.due(now, ["brief"], 9) == []
            await store.lift("ben", 6000)
            row = await stored(store)
            assert (row.status, row.due) == (Status.READY, True)
            [closed] = await store.pauses(driver.key, open_only=False)
            assert (closed.closed_at, closed.closed_by) == (6000, "ben")
            assert await store.pauses(driver.key) == []
            await store.claim("s1")
            assert await store.pauses(driver.key, open_only=False) == [closed]
            signals = [(each.kind, each.by, each.at) for each in await store.signals(driver.key, 0)]
            assert signals == [("pause", "ann", 5000), ("resume", "ben", 6000)]
            await store.pause(ALL, everything("again", "cid", 7000))
            assert await requests(store, row) == [("again", True)], "the record of the lifted pause stays closed"

    @on_loop
    async def test_a_cancel_after_the_lift_closes_the_record_as_the_lift_did(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await store.pause(ALL, everything(at=5000))
            await driver.commit(release=True, only_if_paused=True)
            await store.lift("ben", 6000)
            await store.cancel("s1", "cid", "", 7000)
            [closed] = await store.pauses(driver.key, open_only=False)
            assert (closed.closed_at, closed.closed_by) == (6000, "ben")
            signals = [(each.kind, each.by, each.at) for each in await store.signals(driver.key, 0)]
            assert sorted(signals) == [("cancel", "cid", 7000), ("pause", "ann", 5000), ("resume", "ben", 6000)]

    @on_loop
    async def test_a_later_lift_does_not_change_when_an_earlier_pause_was_lifted(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await store.pause(ALL, everything(at=5000))
            await driver.commit(release=True, only_if_paused=True)
            await store.lift("ben", 6000)
            await store.pause(ALL, everything("again", "cid", 7000))
            await store.lift("dan", 8000)
            for _ in ("as it was left", "as the claim has written it"):
                closed, *_ = await store.pauses(driver.key, open_only=False)
                assert (closed.reason, closed.closed_at, closed.closed_by) == ("fire drill", 6000, "ben")
                await store.claim("s1", steal=True)

    @on_loop
    async def test_a_session_created_meanwhile_is_paused_and_not_held(self, place: Place) -> None:
        async with place.store() as store:
            await store.pause(ALL, everything(freeze=True))
            row = await created(store)
            assert (row.status, row.holder, row.fence) == (Status.PAUSED, None, 0)
            [pause] = await store.pauses(row.key)
            assert (pause.reason, pause.by, pause.created_at, pause.freeze) == ("fire drill", "ann", 1000, True)
            assert [(signal.kind, signal.by) for signal in await store.signals(row.key, 0)] == [("pause", "ann")]
            await store.lift("ben", 6000)
            assert (await created(store, "s2")).status is Status.RUNNING

    @on_loop
    async def test_lifting_it_closes_its_own_pauses_and_no_others(self, place: Place) -> None:
        async with place.store() as store:
            both, own = await created(store, "both"), await created(store, "own")
            await store.pause(Filter(session_id="own"), operator(at=4000))
            await store.pause(ALL, everything())
            await store.pause(Filter(session_id="both"), operator("by itself", "cid", 6000))
            waits = await store.create(new_session("later", pause=operator("not yet", at=6000), claim=False))
            assert waits is not None
            new = await created(store, "new", claim=False)
            assert await requests(store, own) == [("lunch", False), ("fire drill", True)]
            assert await requests(store, both) == [("fire drill", True), ("by itself", False)]
            assert await requests(store, waits) == [("fire drill", True), ("not yet", False)]
            await store.lift("ben", 9000)
            assert await requests(store, both) == [("by itself", False)]
            assert await requests(store, waits) == [("not yet", False)]
            asked = [(await stored(store, name)).pause_requested for name in ("both", "own", "later", "new")]
            assert asked == [True, True, True, False]
            closed = [pause for pause in await store.pauses(new.key, open_only=False) if pause.closed_at is not None]
            assert [(pause.closed_by, pause.closed_at) for pause in closed] == [("ben", 9000)]
            assert [signal.kind for signal in await store.signals(both.key, 0)] == ["pause"]
            assert await store.lift("ben", 9500) is False

    @on_loop
    async def test_of_two_pauses_the_one_that_aborts_counts(self, place: Place) -> None:
        async with place.store() as store:
            row = await created(store)
            await store.pause(ALL, everything())
            await store.pause(Filter(session_id="s1"), operator(mode="abort", at=6000))
            assert [pause.mode for pause in await store.pauses(row.key)] == ["finish", "abort"]
            assert (await stored(store)).pause_mode == "abort"
            other = await created(store, "other", claim=False)
            await store.pause(Filter(session_id="other"), operator(at=6500))
            await store.pause(ALL, everything(mode="abort", at=7000))
            assert [pause.mode for pause in await store.pauses(other.key)] == ["abort", "finish"]
            assert (await stored(store, "other")).pause_mode == "abort"
            await store.lift("ben", 8000)
            assert (await stored(store, "other")).pause_mode == "finish"

    @on_loop
    async def test_a_resumed_session_runs_until_everything_is_paused_again(self, place: Place) -> None:
        async with place.store() as store:
            row = await parked(store)
            await store.pause(ALL, everything())
            assert not (await store.unpause("s1", "ben", 6000)).pause_requested
            await standing(store)
            assert await requests(store, row) == []
            await store.pause(ALL, everything(at=7000))
            assert await requests(store, row) == [("fire drill", True)]
            assert [pause.created_at for pause in await store.pauses(row.key)] == [7000]

    @pytest.mark.parametrize("plain", [True, False])
    @on_loop
    async def test_a_commit_asks_a_resumed_session_to_stop_only_if_everything_is_paused_again(
        self, place: Place, plain: bool
    ) -> None:
        async with place.store() as store:
            await parked(store)
            await store.pause(ALL, everything())
            await store.unpause("s1", "ben", 6000)
            driver = Driver(store, await store.claim("s1"))
            for asked in (False, True):
                flags = await driver.commit(plain=plain)
                assert flags is not None
                assert flags.pause_requested is asked
                await store.pause(ALL, everything(at=7000))

    @on_loop
    async def test_what_is_resumed_by_itself_is_left_to_who_resumes_it(self, place: Place) -> None:
        async with place.store() as store:
            now = place.clock.now()
            await store.pause(ALL, everything())
            for id in ("mine", "handed over"):
                await created(store, id)
            await store.unpause("mine", "ben", 6000)
            await store.unpause("handed over", "ben", 6000, wake=True)
            assert [row.session_id for row in await store.due(now, ["brief"], 9)] == ["handed over"]
            assert (await stored(store, "mine")).ready_at == 0

    @on_loop
    async def test_a_failed_session_that_is_resumed_is_exempt(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store, ended="failed")
            await store.pause(ALL, everything())
            assert (await store.unpause("s1", "ben", 6000)).status is Status.FAILED
            assert (await store.claim("s1", paused=True)).status is Status.RUNNING

    @on_loop
    async def test_a_start_lets_nothing_run_while_everything_is_paused(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store, "failed", ended="failed")
            await parked(store, "waiting", waiting="message")
            await store.pause(Filter(session_id=(await parked(store, "paused")).session_id), operator())
            await store.pause(ALL, everything())
            before = await store.find(Filter())
            for row in before:
                assert await store.unpause(row.session_id, "ben", 6000, Allowance(usd=9), True, exempt=False) == row
                with pytest.raises(VerbRefused):
                    await store.claim(row.session_id)
            assert await store.find(Filter()) == before
            await store.lift("ben", 7000)
            assert not (await store.unpause("paused", "ben", 8000, exempt=False)).pause_requested
            assert (await store.claim("failed")).status is Status.RUNNING

    @on_loop
    async def test_after_the_lift_sessions_are_as_they_were(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store, "ready")
            await parked(store, "failed", ended="failed")
            await parked(store, "waiting", waiting="message")
            await parked(store, "sleeping", wakes_at=10**12)
            held = await parked(store, "guarded", open_pauses=(Pause("g", "guard", "no sources yet", None, 10),))
            await started(store, "running")
            await store.pause(ALL, everything())
            await created(store, "new")
            await store.lift("ben", 6000)
            found = {row.session_id: row.status.value for row in await store.find(Filter())}
            assert found == {name: name for name in found} | {"guarded": "paused", "new": "ready"}
            assert len(found) == 7
            assert await requests(store, held) == [("no sources yet", False)]
            assert [row.session_id for row in await store.due(2_000_000, ["brief"], 9)] == ["new"]
            taken = await store.take(2_000_000, ["brief"], 9)
            assert [row.session_id for row in taken] == ["ready", "new"]

    @on_loop
    async def test_frozen_time_is_added_up_and_the_timers_are_computed_again(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store, "s1", wakes_at=10**12)
            await parked(store, "s2", wakes_at=10**12)
            await parked(store, "s3", wakes_at=10**12)
            await store.pause(ALL, everything(at=5000, freeze=True))
            await store.pause(Filter(session_id="s2"), operator(at=5300))
            await store.unpause("s3", "ann", 5200)
            await store.pause(ALL, everything(at=5600))
            await store.lift("ben", 5700)
            found = {row.session_id: row for row in await store.find(Filter())}
            assert {id: row.frozen for id, row in found.items()} == {"s1": 700, "s2": 700, "s3": 300}
            assert [row.pause_requested for row in found.values()] == [False, True, False]
            for id in ("s1", "s2", "s3"):
                assert (await store.claim(id, paused=True)).frozen == found[id].frozen
            await store.pause(ALL, everything(at=8000))
            await store.lift("ben", 9000)
            assert (await stored(store, "s1")).frozen == 700, "this one did not freeze"

    @on_loop
    async def test_timers_that_two_pauses_freeze_are_frozen_once(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store, wakes_at=10**12)
            await store.pause(ALL, everything(at=5000, freeze=True))
            await store.pause(Filter(session_id="s1"), operator(at=5300, freeze=True))
            await store.lift("ben", 5500)
            assert (await stored(store)).frozen == 300
            assert (await store.unpause("s1", "ann", 6400)).frozen == 1400

    @on_loop
    async def test_a_child_follows_its_parent(self, place: Place) -> None:
        async with place.store() as store:
            root = await created(store, "root")
            await store.pause(ALL, everything())
            child = await created(store, "child", parent=root.key)
            assert await requests(store, child) == [("fire drill", True)]
            await store.unpause("root", "ben", 6000)
            free = await created(store, "free", parent=root.key)
            assert (free.status, free.holder) == (Status.RUNNING, store.number)
            await store.pause(ALL, everything(at=6500))
            await store.pause(Filter(session_id="root"), operator(at=7000))
            late = await created(store, "late", parent=root.key)
            assert await requests(store, late) == [("fire drill", True), ("lunch", False)], "both apply to it"

    @on_loop
    async def test_a_reopened_session_is_paused_too(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await driver.commit(ended="completed", release=True)
            await store.pause(ALL, everything())
            assert (await stored(store)).status is Status.COMPLETED
            await store.revise(driver.next(kind="event", ended="completed", release=True))
            assert (await stored(store)).status is Status.COMPLETED
            row = await stored(store)
            again = Driver(store, row)
            await store.revise(again.next(kind="rewind", release=True))
            assert (await stored(store)).status is Status.PAUSED
            assert await requests(store, row) == [("fire drill", True)]

    @on_loop
    async def test_an_imported_session_is_paused_too(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store, "s1")
            await (await started(store, "done")).commit(ended="completed", release=True)
            moved = [(await store.whole(name))[0] for name in ("s1", "done")]
            await store.pause(ALL, everything())
            paused = (await store.whole("s1"))[0]
            for name in ("s1", "done"):
                await removed(store, name)
            assert await store.import_(moved)
            assert await requests(store, await stored(store)) == [("fire drill", True)]
            assert (await stored(store, "done")).status is Status.COMPLETED
            await removed(store, "s1")
            assert await store.import_([paused])
            assert await requests(store, await stored(store)) == [("fire drill", False), ("fire drill", True)], (
                "an imported pause of everything is an ordinary pause here"
            )
            await store.lift("ben", 9000)
            assert (await stored(store)).status is Status.PAUSED

    @pytest.mark.parametrize("turns", range(6))
    @on_loop
    async def test_a_session_created_at_that_moment_is_stopped_or_created_paused(
        self, place: Place, turns: int
    ) -> None:
        async with place.store() as store:
            await asyncio.gather(*created_and_stopped(store, store, turns))
            assert [row.pause_requested for row in await store.find(Filter())] == [True] * 6


class StopTests(Suite):
    """Tests of when a pause took effect: `stopping`, and ``took_effect_at`` of pauses."""

    @on_loop
    async def test_the_commit_that_parks_a_session_writes_when_the_pause_took_effect(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await parked(store, "s2")
            await store.pause(Filter(), operator(at=5000))
            await driver.commit()
            [pause] = await store.pauses(driver.key)
            assert pause.took_effect_at is None
            await driver.commit(release=True, only_if_paused=True, updated_at=5700)
            [pause] = await store.pauses(driver.key)
            assert (pause.created_at, pause.took_effect_at) == (5000, 5700)
            [other] = await store.pauses((await stored(store, "s2")).key)
            assert other.took_effect_at is None  # it was not running

    @on_loop
    async def test_stopping_counts_the_driven_sessions_and_the_longest_time_to_stop(self, place: Place) -> None:
        async with place.store() as store:
            assert await store.stopping() == Stopping()
            one, two, three = [await started(store, f"s{n}") for n in (1, 2, 3)]
            await parked(store, "idle")
            await store.pause(Filter(), operator(at=5000, standing=True))
            assert await store.stopping() == Stopping(3)
            await created(store, "new", created_at=5100)
            await one.commit(release=True, only_if_paused=True, updated_at=5400)
            await two.commit(release=True, only_if_paused=True, updated_at=5900)
            await three.commit(release=True, ended="completed", updated_at=9000)
            assert await store.stopping() == Stopping(3, 900)
            [pause] = await store.pauses(two.key)
            assert (pause.standing, pause.created_at, pause.took_effect_at) == (True, 5000, 5900)
            [pause] = await store.pauses((await stored(store, "new")).key)
            assert pause.took_effect_at is None
            await store.lift(None, 9100)
            assert await store.stopping() == Stopping()

    @on_loop
    async def test_a_second_request_also_counts_the_sessions_that_were_resumed_meanwhile(self, place: Place) -> None:
        async with place.store() as store:
            first = await started(store)
            await started(store, "s2")
            await store.pause(Filter(), operator(at=5000, standing=True))
            await first.commit(release=True, only_if_paused=True, updated_at=5400)
            await store.unpause("s1", None, 6000)
            again = Driver(store, await store.claim("s1"))
            assert (await store.stopping()).asked == 2
            await store.pause(Filter(), operator(at=7000, standing=True))
            assert (await store.stopping()).asked == 3
            await again.commit(release=True, only_if_paused=True, updated_at=9000)
            assert await store.stopping() == Stopping(3, 2000)
            await store.lift(None, 9100)
            await store.pause(Filter(), operator(at=9500, standing=True))
            assert await store.stopping() == Stopping(1)


class SharedStandingTests(Suite):
    """Tests of the pause of everything across several engines."""

    @pytest.mark.parametrize("turns", range(6))
    @on_loop
    async def test_a_session_that_another_engine_creates_at_that_moment_is_paused_too(
        self, place: Place, turns: int
    ) -> None:
        async with place.store() as mine, place.store() as other:
            await asyncio.gather(*created_and_stopped(mine, other, turns))
            assert [row.pause_requested for row in await other.find(Filter())] == [True] * 6

    @on_loop
    async def test_another_engine_knows_that_everything_is_paused(self, place: Place) -> None:
        async with place.store() as mine:
            await mine.pause(ALL, everything())
        async with place.store() as other:
            assert (await standing(other)).by == "ann"
            assert (await created(other)).status is Status.PAUSED


def created_and_stopped(creating: Store, pausing: Store, turns: int) -> list[asyncio.Future[object]]:
    """Create six sessions, and pause everything after ``turns`` turns of the loop."""

    async def stop() -> object:
        for _ in range(turns):
            await asyncio.sleep(0)
        return await pausing.pause(ALL, everything())

    async def create(number: int) -> object:
        for _ in range(number):
            await asyncio.sleep(0)
        return await created(creating, f"s{number}")

    return [asyncio.ensure_future(stop()), *(asyncio.ensure_future(create(number)) for number in range(6))]


async def removed(store: Store, session_id: str) -> None:
    """Remove a session completely."""
    for removal in await store.remove(session_id, None, "", 8000):
        while await store.strip(removal.key, 100) is None:
            pass
