"""Tests of requests from outside: pauses, their withdrawal and cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pausepoint.errors import UnknownSession, VerbRefused, WrongOwner
from pausepoint.model.budgets import Allowance
from pausepoint.model.ids import OwnedId
from pausepoint.model.questions import Answer, Inquiry
from pausepoint.model.sessions import Filter, Pause, QuestionStatus, Status
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
from pausepoint.testing.suite.questions import asks


class OutsideTests(Suite):
    """Tests of `pause`, `unpause`, `cancel`, `pauses`, `signals` and `flags`."""

    @pytest.mark.parametrize(
        "verb",
        [
            lambda store: store.pause(Filter(session_id="nobody"), operator()),
            lambda store: store.unpause("nobody", "ann", 1),
            lambda store: store.cancel("nobody", "ann", "", 1),
            lambda store: store.claim("nobody"),
        ],
    )
    @on_loop
    async def test_an_unknown_session_is_refused_by_name(self, place: Place, verb: Callable[[Store], Any]) -> None:
        async with place.store() as store:
            with pytest.raises(UnknownSession, match="nobody") as refusal:
                await verb(store)
            assert refusal.value.session_id == "nobody"

    @pytest.mark.parametrize(
        "verb",
        [
            lambda store, bobs: store.get(bobs),
            lambda store, bobs: store.pause(Filter(session_id=bobs, tree=True), operator()),
            lambda store, bobs: store.unpause(bobs, "bob", 1),
            lambda store, bobs: store.cancel(bobs, "bob", "", 1),
            lambda store, bobs: store.claim(bobs),
            lambda store, bobs: store.send(bobs, "bob", 1, b"null"),
            lambda store, bobs: store.answer(Answer(value=b"1", shown=1, at=1, session_id=bobs, message=True)),
            lambda store, bobs: store.answer(Answer(value=b"1", shown=1, at=1, session_id=bobs, question="q")),
            lambda store, bobs: store.remove(bobs, "bob", "", 1),
        ],
    )
    @on_loop
    async def test_an_id_with_another_owner_is_refused_in_the_transaction(
        self, place: Place, verb: Callable[[Store, str], Any]
    ) -> None:
        async with place.store() as store:
            await store.create(new_session(owner="ann"))
            before = await store.get("s1")
            assert await store.get(OwnedId("s1", "ann")) == before
            with pytest.raises(WrongOwner, match="'s1' belongs to 'ann', not to 'bob'"):
                await verb(store, OwnedId("s1", "bob"))
            assert await store.get("s1") == before

    @on_loop
    async def test_a_pause_is_a_flag_a_record_and_a_signal(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            [row] = await store.pause(Filter(session_id="s1"), operator())
            assert (row.pause_requested, row.pause_mode, row.open_pauses, row.status) == (
                True,
                "finish",
                1,
                Status.PAUSING,
            )
            [pause] = await store.pauses(row.key)
            assert (pause.kind, pause.by, pause.reason, pause.created_at, pause.step) == (
                "operator",
                "ann",
                "lunch",
                5000,
                "first",
            )
            [signal] = await store.signals(row.key, 0)
            assert (signal.n, signal.after, signal.kind, signal.by, signal.at) == (1, 1, "pause", "ann", 5000)
            assert signal.payload == b'{"reason":"lunch","mode":"finish"}'
            flags = await driver.commit()
            assert flags is not None
            assert flags.pause_requested
            assert (await store.flags([row.key, 99])) == {row.key: (1, flags)}

    @on_loop
    async def test_a_second_pause_changes_nothing(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            first = await store.pause(Filter(), operator())
            before = await store.pauses(driver.key), await store.signals(driver.key, 0)
            assert await store.pause(Filter(), operator("again", "ben", 9000)) == first
            assert (await store.pauses(driver.key), await store.signals(driver.key, 0)) == before

    @on_loop
    async def test_abort_overrides_finish_and_never_the_other_way(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await store.pause(Filter(), operator())
            await store.pause(Filter(), operator(by="ben", mode="abort"))
            await store.pause(Filter(), operator(by="cid", mode="finish"))
            assert (await stored(store)).pause_mode == "abort"
            [pause] = await store.pauses(driver.key)
            assert (pause.by, pause.mode) == ("ann", "abort")
            assert [signal.by for signal in await store.signals(driver.key, 0)] == ["ann", "ben"]

    @on_loop
    async def test_a_pause_by_filter_reaches_all_sessions_that_have_not_ended(self, place: Place) -> None:
        async with place.store() as store:
            await started(store, "a", owner="ann")
            await (await started(store, "b", owner="ann")).commit(ended="failed", release=True)
            await (await started(store, "c", owner="ann")).commit(ended="completed", release=True)
            await started(store, "d", owner="ben")
            rows = await store.pause(Filter(owner="ann"), operator())
            assert {row.session_id: row.status for row in rows} == {
                "a": Status.PAUSING, "b": Status.PAUSED, "c": Status.COMPLETED,
            }  # fmt: skip
            assert not (await stored(store, "d")).pause_requested
            assert not (await stored(store, "c")).pause_requested

    @on_loop
    async def test_a_session_can_be_created_paused(self, place: Place) -> None:
        async with place.store() as store:
            row = await store.create(new_session(pause=operator("not yet"), claim=False))
            assert row is not None
            assert row.status == Status.PAUSED
            assert [pause.reason for pause in await store.pauses(row.key)] == ["not yet"]
            assert [signal.kind for signal in await store.signals(row.key, 0)] == ["pause"]

    @on_loop
    async def test_unpause_withdraws_the_operators_pauses_only(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await driver.commit(open_pauses=(Pause("g", "guard", "no sources yet", None, 10),))
            await store.pause(Filter(), operator(mode="abort"))
            row = await store.unpause("s1", "ben", 8000)
            assert (row.pause_requested, row.pause_mode, row.open_pauses) == (False, "finish", 1)
            closed = [pause for pause in await store.pauses(row.key, open_only=False) if pause.closed_at is not None]
            assert [(pause.by, pause.closed_by, pause.closed_at) for pause in closed] == [("ann", "ben", 8000)]
            assert [signal.kind for signal in await store.signals(row.key, 0)] == ["pause", "resume"]

    @on_loop
    async def test_unpause_with_nothing_to_withdraw_leaves_no_trace_unless_it_sets_a_budget(self, place: Place) -> None:
        async with place.store() as store:
            before = (await started(store)).key, await stored(store)
            assert await store.unpause("s1", "ann", 1) == before[1]
            assert await store.signals(before[0], 0) == []
            row = await store.unpause("s1", "ann", 1, Allowance(usd=9))
            assert row.budget_usd == 9
            assert [signal.payload for signal in await store.signals(row.key, 0)] == [b'{"budget_usd":9}']
            row = await store.unpause("s1", "ann", 2, Allowance(tokens=5, operations=6))
            assert (row.budget_usd, row.budget_tokens, row.budget_operations) == (9, 5, 6)  # the first stays

    @on_loop
    async def test_cancel_is_a_flag_and_one_signal(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            [row] = await store.cancel("s1", "ann", "too slow", 6000)
            assert row.cancel_requested
            assert await store.cancel("s1", "ben", "again", 7000) == [row]
            [signal] = await store.signals(row.key, 0)
            assert (signal.kind, signal.by, signal.payload) == ("cancel", "ann", b'{"reason":"too slow"}')
            flags = await driver.commit(ended="cancelled", release=True)
            assert flags is not None
            assert flags.cancel_requested
            assert await store.cancel("s1", "ann", "late", 8000) == [await stored(store)]

    @on_loop
    async def test_a_commit_does_not_erase_a_pause_that_came_meanwhile(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            ahead = driver.next()  # built before the pause, committed after it
            await store.pause(Filter(), operator())
            flags = await store.commit(ahead)
            assert flags is not None
            assert flags.pause_requested
            assert (await stored(store)).pause_requested

    @pytest.mark.parametrize("steal", [False, True])
    @on_loop
    async def test_a_paused_session_is_claimed_only_by_a_resume(self, place: Place, steal: bool) -> None:
        async with place.store() as store:
            await parked(store)
            seen = await stored(store)
            await store.pause(Filter(session_id="s1"), operator())
            with pytest.raises(VerbRefused) as refusal:
                await store.claim("s1", steal, fence=seen.fence)
            assert (refusal.value.session_id, refusal.value.status) == ("s1", "paused")
            assert (await stored(store)).fence == seen.fence
            row = await store.claim("s1", steal, fence=seen.fence, paused=True)
            assert (row.status, row.holder, row.fence) == (Status.PAUSING, store.number, seen.fence + 1)
            await Driver(store, row).commit(release=True, only_if_paused=True)
            await store.unpause("s1", "ben", 8000)
            assert (await store.claim("s1", steal)).status is Status.RUNNING

    @on_loop
    async def test_pauses_are_listed_oldest_first(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            for id in ("c", "a", "b"):
                await driver.commit(open_pauses=(Pause(id, "guard", f"reason {id}", None, 10),))
            await driver.commit(close_pauses=("a",))
            assert [pause.id for pause in await store.pauses(driver.key)] == ["c", "b"]
            assert [pause.id for pause in await store.pauses(driver.key, open_only=False)] == ["c", "a", "b"]

    @on_loop
    async def test_signals_are_read_after_a_number(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await store.pause(Filter(), operator())
            await store.unpause("s1", "ann", 2)
            assert [signal.n for signal in await store.signals(driver.key, 0)] == [1, 2]
            assert [signal.kind for signal in await store.signals(driver.key, 1)] == ["resume"]
            assert [signal.n for signal in await store.signals(driver.key, 0, 1)] == [1]
            assert await store.signals(driver.key, 2) == []

    @on_loop
    async def test_a_signal_records_the_position_of_the_log(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await store.pause(Filter(), operator())
            await driver.commit()
            await store.unpause("s1", "ann", 2)
            assert [signal.after for signal in await store.signals(driver.key, 0)] == [1, 2]

    @on_loop
    async def test_pause_unpause_and_cancel_follow_the_tree(self, place: Place) -> None:
        async with place.store() as store:
            root = await created(store, "root")
            await created(store, "child", parent=root.key)
            await created(store, "other")

            async def asked() -> list[bool]:
                return [(await stored(store, id)).pause_requested for id in ("root", "child", "other")]

            await store.pause(Filter(session_id="root", tree=True), operator())
            assert await asked() == [True, True, False]
            late = await created(store, "late", parent=root.key)
            assert late.pause_requested  # a new child of a paused session is paused
            await store.unpause("root", "ben", 9000)
            assert await asked() == [False, False, False]
            rows = await store.cancel("root", "ann", "", 9500)
            assert rows[0].session_id == "root"
            assert sorted(row.session_id for row in rows) == ["child", "late", "root"]
            assert not (await stored(store, "other")).cancel_requested
            later = await created(store, "later", parent=root.key)
            assert later.cancel_requested  # a new child of a cancelled session is cancelled

    @on_loop
    async def test_cancel_ends_what_no_engine_drives_with_the_request(self, place: Place) -> None:
        async with place.store() as store:
            root = await parked(store, "root", waiting="child")
            child = await created(store, "child", parent=root.key, claim=False)
            grandchild = await started(store, "grandchild", parent=child.key)
            question = await asks(grandchild)
            await grandchild.commit(release=True, waiting="answer", kind="event")
            driven = await started(store, "driven", parent=child.key)
            rows = {row.session_id: row for row in await store.cancel("root", "ann", "enough", 9500)}
            for id in ("root", "child", "grandchild"):
                assert (rows[id].ended, rows[id].cancel_requested, rows[id].holder) == ("cancelled", True, None), id
                assert rows[id] == await stored(store, id)
                assert [each.kind for each in await store.signals(rows[id].key, 0)] == ["cancel"], id
            last = (await store.records(child.key, 1))[-1]
            told = {"type": "session.cancelled", "summary": "cancelled", "agent": "first"}
            assert (last.kind, last.at, msgspec.json.decode(last.payload)) == ("event", 9500, told)
            [asked] = await store.questions(Inquiry(ids=(question.id,)))
            assert asked.facts.status is QuestionStatus.CANCELLED
            assert (rows["driven"].ended, rows["driven"].cancel_requested) == (None, True)
            flags = await driven.commit(ended="cancelled", release=True)
            assert flags is not None
            assert flags.cancel_requested

    @on_loop
    async def test_cancel_returns_the_sessions_as_they_are_afterwards(self, place: Place) -> None:
        async with place.store() as store:
            root = await started(store, "root")
            middle = await started(store, "middle", parent=root.key)
            for id, above in (("child", root), ("grandchild", middle)):
                await (await started(store, id, parent=above.key)).commit(release=True)
            rows = await store.cancel("root", "ann", "", 9500)  # the ended ones report to their parents
            assert [(row.session_id, row.mail) for row in rows[:2]] == [("root", True), ("middle", True)]
            assert [await stored(store, row.session_id) for row in rows] == list(rows)

    @on_loop
    async def test_a_cancel_that_is_cut_off_ends_the_whole_tree_or_nothing(self, place: Place) -> None:
        async with place.store() as store:
            for ticks in range(8):
                root = await parked(store, f"root{ticks}", waiting="child")
                await created(store, f"child{ticks}", parent=root.key, claim=False)
                query = Filter(session_id=f"root{ticks}", tree=True)
                call = asyncio.ensure_future(store.cancel(f"root{ticks}", "ann", "", 9500))
                for _ in range(ticks):
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.wait([call])
                ended = [row.ended for row in await store.find(query)]
                assert ended in ([None, None], ["cancelled", "cancelled"]), ticks
                await store.cancel(f"root{ticks}", "ann", "", 9600)
                assert [row.ended for row in await store.find(query)] == ["cancelled", "cancelled"]

    @on_loop
    async def test_cancel_of_an_ended_session_ends_what_is_open_below_it(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            child = await started(store, "child", parent=driver.key)
            await store.cancel("s1", "ann", "enough", 6000)
            await driver.commit(ended="cancelled", release=True)
            await child.commit(release=True, waiting="message")  # as an engine that dies before it has ended the child
            top = await stored(store)
            rows = await store.cancel("s1", "ben", "really", 7000)
            assert rows == [top, await stored(store, "child")]
            assert rows[1].ended == "cancelled"
            [asked] = [each for each in await store.signals(child.key, 0) if each.kind == "cancel"]
            assert asked.by == "ann"

    @on_loop
    async def test_time_under_a_freezing_pause_is_added_up_until_a_commit_resets_it(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await store.pause(Filter(), operator(at=5000, freeze=True))
            assert (await store.unpause("s1", "ann", 5700)).frozen == 700
            await store.pause(Filter(), operator(at=6000))
            assert (await store.unpause("s1", "ann", 9000)).frozen == 700
            await driver.commit(thaw=True)
            assert (await stored(store)).frozen == 0

    @on_loop
    async def test_a_second_pause_freezes_if_the_first_did_not(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await store.pause(Filter(), operator(at=1000, mode="abort"))
            for at in (2000, 3000):
                row = (await store.pause(Filter(), operator(at=at, freeze=True)))[0]
                assert (row.open_pauses, row.pause_mode) == (2, "abort")
            assert [(each.created_at, each.freeze) for each in await store.pauses(driver.key)] == [
                (1000, False),
                (2000, True),
            ]
            assert (await store.unpause("s1", "ann", 2500)).frozen == 500
