"""Tests of sessions that wait for a time, a message or a child, and of the spending of a session tree."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pausepoint.errors import SessionEnded, UnknownSession
from pausepoint.model.budgets import Purse
from pausepoint.model.commits import Report
from pausepoint.model.questions import Answer
from pausepoint.model.sessions import Failure, Filter, Pause, Status, ready_at
from pausepoint.testing.suite.base import Driver, Place, Suite, created, on_loop, operator, parked, started, stored
from pausepoint.testing.suite.questions import asking

_LIMITS = ("budget_usd", "budget_tokens", "budget_operations")


class WaitingTests(Suite):
    """Tests of `send`, `mail`, `due`, `next_wake` and `purses`, and of waits, mail and parents in a commit."""

    @on_loop
    async def test_a_session_that_sleeps_becomes_due_when_its_time_comes(self, place: Place) -> None:
        async with place.store() as store:
            wakes = place.clock.now() + 60_000_000
            row = await parked(store, wakes_at=wakes)
            assert (row.status, row.wakes_at, row.due) == (Status.SLEEPING, wakes, False)
            assert await store.due(wakes - 1, ["brief"], 10) == []
            assert await store.next_wake(place.clock.now(), ["brief"]) == wakes
            place.clock.advance(60)
            assert (await stored(store)).status is Status.READY
            assert [row.session_id for row in await store.due(wakes, ["brief"], 10)] == ["s1"]
            assert await store.next_wake(wakes, ["brief"]) is None

    @on_loop
    async def test_only_sessions_that_can_resume_are_due(self, place: Place) -> None:
        async with place.store() as store:
            now = place.clock.now()
            for id in ("free", "paused", "held", "stranger"):
                await parked(store, id, wakes_at=now - 1)
            await (await started(store, "other", workflow="other")).commit(release=True, wakes_at=now - 1)
            await parked(store, "later", wakes_at=now + 1)
            await parked(store, "idle")
            await store.pause(Filter(session_id="paused"), operator())
            await store.claim("held")
            found = await store.due(now, ["brief"], 10)
            assert {row.session_id for row in found} == {"free", "stranger"}
            assert len(await store.due(now, ["brief"], 1)) == 1
            assert [row.session_id for row in await store.due(now, ["other", "none"], 10)] == ["other"]

    @on_loop
    async def test_sessions_that_cannot_be_picked_up_take_no_place_of_those_that_can(self, place: Place) -> None:
        async with place.store() as store:
            now = place.clock.now()
            await store.pause(Filter(), operator(standing=True))
            for id in ("kept", "guarded"):
                await created(store, id)
                driver = Driver(store, await store.claim(id, paused=True))
                if id == "kept":
                    await driver.commit(release=True, only_if_paused=True, kept=True)
                else:
                    await driver.commit(release=True, open_pauses=(Pause("g", "guard", "no sources yet", None, 10),))
            await created(store, "free")
            await store.lift("ben", 6000)
            assert [row.session_id for row in await store.due(now, ["brief"], 1)] == ["free"]
            assert [row.session_id for row in await store.take(now, ["brief"], 1)] == ["free"]

    @on_loop
    async def test_ready_sessions_are_taken_once_and_those_that_waited_longest_first(self, place: Place) -> None:
        async with place.store() as store:
            now = place.clock.now()
            await parked(store, "timer", wakes_at=now - 1)
            await parked(store, "later", wakes_at=now + 1)
            await parked(store, "interrupted")
            await created(store, "new", claim=False)
            await parked(store, "mail", waiting="message")
            await store.send("mail", None, 7000, b"{}")
            await parked(store, "waiting", waiting="message")
            await parked(store, "failed", ended="failed")
            await parked(store, "done", ended="completed")
            await parked(store, "guarded", open_pauses=(Pause("g", "guard", "no sources yet", None, 10),))
            await parked(store, "paused")
            await store.pause(Filter(session_id="paused"), operator())
            await started(store, "held")
            await (await started(store, "other", workflow="other")).commit(release=True)
            assert await store.take(now, ["none"], 9) == []
            skip = {(await stored(store, "new")).key: 1}
            first = await store.take(now, ["brief"], 2, skip)
            assert [(row.session_id, row.status, row.holder) for row in first] == [
                ("interrupted", Status.RUNNING, store.number),
                ("mail", Status.RUNNING, store.number),
            ]
            assert [(row.fence, row.crashes, row.waiting, row.wakes_at) for row in first] == [(2, 0, None, None)] * 2
            rest = await store.take(now, ["brief", "other"], 9)
            assert [row.session_id for row in rest] == ["new", "other", "timer"]
            assert await store.take(now, ["brief", "other"], 9) == []
            assert [row.session_id for row in await store.take(now + 1, ["brief"], 9)] == ["later"]
            flags = await Driver(store, first[0]).commit(release=True)
            assert flags is not None
            assert [row.session_id for row in await store.take(now, ["brief"], 9)] == ["interrupted"]

    @on_loop
    async def test_when_a_session_is_ready_is_stored_as_it_is_defined(self, place: Place) -> None:
        async with place.store() as store:

            async def agree(expected: int | None) -> None:
                row = await stored(store)
                assert row.ready_at == ready_at(row) == expected

            driver = await started(store)
            await agree(None)
            await driver.commit(release=True)
            await agree(0)
            await store.pause(Filter(session_id="s1"), operator())
            await agree(None)
            await store.unpause("s1", None, 6000)
            await agree(0)
            driver = Driver(store, await store.claim("s1"))
            await driver.commit(release=True, waiting="message")
            await agree(None)
            await store.send("s1", None, 7000, b"{}")
            await agree(0)
            driver = Driver(store, await store.claim("s1"))
            await agree(None)
            await driver.commit(release=True, consume=(3,), wakes_at=77)
            await agree(77)
            await store.revise(Driver(store, await stored(store)).next(kind="rewind", release=True))
            await agree(0)
            driver = Driver(store, await store.claim("s1"))
            await store.release(driver.key, driver.fence)
            await agree(0)
            assert (await stored(store)).crashes == 0
            await store.release(driver.key, driver.fence - 1)
            driver = Driver(store, await store.claim("s1"))
            await driver.commit(ended="failed", release=True)
            await agree(None)

    @on_loop
    async def test_what_is_unpaused_for_another_engine_is_due(self, place: Place) -> None:
        async with place.store() as store:
            now = place.clock.now()
            await parked(store, "ready")
            await parked(store, "waiting", waiting="message")
            await parked(store, "failed", ended="failed")
            for id in ("ready", "waiting", "failed"):
                await store.pause(Filter(session_id=id), operator())
                await store.unpause(id, "ben", 6000, wake=True)
            assert [row.session_id for row in await store.due(now, ["brief"], 9)] == ["ready", "failed"]

    @on_loop
    async def test_what_is_unpaused_for_another_engine_keeps_no_other_pause(self, place: Place) -> None:
        async with place.store() as store:
            now = place.clock.now()
            for id, waiting in {"crashed": None, "waiting": "message", "guest": None}.items():
                driver = await started(store, id, guest=id == "guest")
                why = Pause(f"p-{id}", "crashes", "3 processes died", None, 10)
                await driver.commit(open_pauses=(why,), release=True, waiting=waiting)
            assert await store.due(now, ["brief"], 9) == []
            for id in ("crashed", "waiting", "guest"):
                for _ in range(2):
                    await store.unpause(id, "ben", 6000, wake=True)
            assert [row.session_id for row in await store.due(now, ["brief"], 9)] == ["crashed"]
            rows = {id: await stored(store, id) for id in ("crashed", "waiting", "guest")}
            assert [row.status for row in rows.values()] == [Status.READY, Status.WAITING, Status.PAUSED]
            for id in ("crashed", "waiting"):
                (pause,) = await store.pauses(rows[id].key, open_only=False)
                assert (pause.kind, pause.closed_by, pause.closed_at) == ("crashes", "ben", 6000)
                assert [each.kind for each in await store.signals(rows[id].key, 0)] == ["resume"], "only once"
            await store.unpause("guest", "ben", 6000)
            assert (await stored(store, "guest")).open_pauses == 1

    @on_loop
    async def test_a_failed_or_interrupted_session_can_be_handed_to_any_engine(self, place: Place) -> None:
        async with place.store() as store:
            now = place.clock.now()
            failure = Failure("s", "ValueError", "no")
            await parked(store, "ready")
            await parked(store, "failed", ended="failed", failure=failure)
            await parked(store, "waiting", waiting="message")
            await parked(store, "sleeping", wakes_at=now + 9_000_000)
            await (await started(store, "completed")).commit(ended="completed", release=True)
            await started(store, "running")
            for id in ("ready", "failed", "waiting", "sleeping", "completed", "running"):
                for _ in range(2):
                    await store.unpause(id, "ben", 6000, wake=True)
            assert [row.session_id for row in await store.due(now, ["brief"], 9)] == ["ready", "failed"]
            row = await stored(store, "failed")
            assert (row.status, row.ended, row.failure, row.ready_at) == (Status.READY, None, failure, 0)
            assert [(each.kind, each.by) for each in await store.signals(row.key, 0)] == [("resume", "ben")], (
                "only once"
            )
            for id in ("waiting", "sleeping", "completed", "running"):
                row = await stored(store, id)
                assert (row.status.value, await store.signals(row.key, 0)) == (id, [])
            taken = await store.take(now, ["brief"], 9)
            assert {row.session_id for row in taken} == {"ready", "failed"}

    @on_loop
    async def test_only_the_named_session_is_handed_over_and_no_guest(self, place: Place) -> None:
        async with place.store() as store:
            root = await parked(store, "root", ended="failed")
            await (await started(store, "child", parent=root.key)).commit(ended="failed", release=True)
            await (await started(store, "guest", guest=True)).commit(ended="failed", release=True)
            for id in ("root", "guest"):
                await store.unpause(id, "ben", 6000, wake=True)
            found = {row.session_id: row.status.value for row in await store.find(Filter())}
            assert found == {"root": "ready", "child": "failed", "guest": "failed"}

    @on_loop
    async def test_a_session_with_an_obstacle_of_its_own_is_not_handed_over(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store, "broke", ended="failed", open_pauses=(replace(operator(), kind="budget"),))
            row = await store.unpause("broke", "ben", 6000, wake=True)
            assert (row.status, row.ended) == (Status.PAUSED, "failed")

    @on_loop
    async def test_due_sessions_can_be_limited_to_one_tree(self, place: Place) -> None:
        async with place.store() as store:
            now = place.clock.now()
            root = await parked(store, "root")
            for id, parent in (("child", root.key), ("other", None)):
                driver = await started(store, id, parent=parent)
                await driver.commit(release=True, wakes_at=now - 1)
            for id, parent, wakes in (("later", root.key, 20), ("sooner", None, 10)):
                await (await started(store, id, parent=parent)).commit(release=True, wakes_at=now + wakes)
            assert [row.session_id for row in await store.due(now, ["brief"], 1, "root")] == ["child"]
            assert [row.session_id for row in await store.due(now, ["brief"], 9, "child")] == ["child"]
            assert await store.due(now, ["brief"], 9, "nobody") == []
            assert await store.next_wake(now, ["brief"], "root") == now + 20
            assert await store.next_wake(now, ["brief"], "nobody") is None

    @on_loop
    async def test_the_next_to_wake_is_the_first_that_is_not_paused(self, place: Place) -> None:
        async with place.store() as store:
            now = place.clock.now()
            for id, seconds in (("b", 20), ("a", 10), ("c", 30)):
                await parked(store, id, wakes_at=now + seconds)
            assert await store.next_wake(now, ["brief"]) == now + 10
            assert await store.next_wake(now + 10, ["brief"]) == now + 20
            await store.pause(Filter(session_id="a"), operator())
            assert await store.next_wake(now, ["brief"]) == now + 20
            assert await store.next_wake(now, ["other"]) is None

    @on_loop
    async def test_the_sessions_that_wake_next_are_listed_without_those_that_are_stopped(self, place: Place) -> None:
        async with place.store() as store:
            now = place.clock.now()

            async def waking(limit: int = 9, owner: str | None = None) -> list[str]:
                return [row.session_id for row in await store.waking(now, limit, owner)]

            assert await waking() == []
            for id, seconds in (("b", 20), ("a", 10), ("c", 30), ("late", -1), ("guard", 5)):
                pauses = (replace(operator(), kind="guard"),) if id == "guard" else ()
                driver = await started(store, id, owner="ann" if id == "c" else None)
                await driver.commit(release=True, wakes_at=now + seconds, open_pauses=pauses)
            await parked(store, "message", waiting="message")
            await (await started(store, "gone")).commit(release=True, ended="completed")
            assert await waking() == ["a", "b", "c"]
            assert await waking(2) == ["a", "b"]
            assert await waking(1, "ann") == ["c"]
            await store.pause(Filter(session_id="a"), operator())
            assert await waking() == ["b", "c"]
            await store.claim("b")
            assert await waking() == ["c"]
            await store.pause(Filter(), replace(operator(), id="all", standing=True))
            assert await waking() == []
            await store.unpause("c", "ann", 6000)
            assert await waking() == ["c"]

    @on_loop
    async def test_a_claim_ends_the_wait(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store, waiting="message", wakes_at=place.clock.now() + 5)
            row = await store.claim("s1")
            assert (row.waiting, row.wakes_at, row.status) == (None, None, Status.RUNNING)

    @on_loop
    async def test_a_message_is_kept_as_mail_and_wakes_a_session_that_waits_for_one(self, place: Place) -> None:
        async with place.store() as store:
            row = await parked(store, waiting="message")
            assert row.status is Status.WAITING
            row = await store.send("s1", "ann", 7000, b'{"value":1}')
            assert (row.mail, row.due, row.status) == (True, True, Status.READY)
            [message] = await store.mail(row.key)
            assert (message.kind, message.by, message.at, message.payload) == ("message", "ann", 7000, b'{"value":1}')
            assert await store.signals(row.key, 0) == [message]
            assert [row.session_id for row in await store.due(place.clock.now(), ["brief"], 10)] == ["s1"]

    @on_loop
    async def test_a_message_to_another_session_wakes_nobody(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store, waiting="message")
            await parked(store, "s2", waiting="message")
            await parked(store, "s3", waiting="child")
            await store.send("s2", None, 7000, b"{}")
            await store.send("s3", None, 7000, b"{}")  # s3 waits for a child, not for a message
            assert [(await stored(store, id)).due for id in ("s1", "s2", "s3")] == [False, True, False]

    @on_loop
    async def test_a_message_with_a_key_is_delivered_once(self, place: Place) -> None:
        given = Answer(value=b"1", at=7000, by="ann", session_id="s1", message=True, once="k")
        async with place.store() as store:
            row = await parked(store, waiting="message")
            assert (await store.answer(given)).verdict == "queued"
            before = await stored(store)
            again = await store.answer(replace(given, at=8000, by="ben"))
            assert (again.verdict, again.early and again.early.by, await stored(store)) == ("same", "ann", before)
            assert (await store.answer(replace(given, value=b"2"))).verdict == "conflict"
            assert (await store.answer(replace(given, once="other"))).verdict == "queued"
            assert len(await store.mail(row.key)) == 2
            assert await store.check() == []
            driver = Driver(store, await store.claim("s1"))
            await driver.commit(consume=(1, 2), ended="completed", release=True)
            assert (await store.answer(given)).verdict == "same"  # also after the end, when no other one is accepted
            with pytest.raises(SessionEnded):
                await store.answer(replace(given, once="new"))

    @on_loop
    async def test_a_message_that_answers_a_question_keeps_its_key(self, place: Place) -> None:
        given = Answer(value=b"1", at=7000, session_id="s1", message=True, once="k")
        async with place.store() as store:
            driver = await started(store)
            payload, facts = asking(driver)
            await driver.commit(payload, kind="wait", asks=(facts,))
            assert (await store.answer(given)).verdict == "taken"
            assert (await store.answer(given)).verdict == "same"
            assert [signal.kind for signal in await store.signals(driver.key, 0)] == ["answer"]
            assert await store.check() == []

    @on_loop
    async def test_only_a_commit_that_consumes_mail_removes_it(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            for text in (b"1", b"2", b"3"):
                await store.send("s1", None, 7000, text)
            flags = await driver.commit()
            assert flags is not None
            assert flags.mail
            assert [message.payload for message in await store.mail(driver.key)] == [b"1", b"2", b"3"]
            assert [message.payload for message in await store.mail(driver.key, 2)] == [b"1", b"2"]
            await driver.commit(consume=(1, 3))
            assert [message.payload for message in await store.mail(driver.key)] == [b"2"]
            await driver.commit(consume=(2,))
            assert await store.mail(driver.key) == []
            assert not (await stored(store)).mail
            assert len(await store.signals(driver.key, 0)) == 3  # the history stays

    @on_loop
    async def test_mail_that_came_while_a_session_was_about_to_wait_makes_it_due_at_once(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await store.send("s1", None, 7000, b"{}")
            await driver.commit(release=True, waiting="message")
            assert (await stored(store)).status is Status.READY

    @on_loop
    async def test_an_ended_session_accepts_no_messages(self, place: Place) -> None:
        async with place.store() as store:
            await (await started(store)).commit(ended="completed", release=True)
            with pytest.raises(SessionEnded) as refusal:
                await store.send("s1", None, 7000, b"{}")
            assert refusal.value.status == "completed"
            with pytest.raises(UnknownSession):
                await store.send("nobody", None, 7000, b"{}")

    @on_loop
    async def test_the_end_of_a_child_is_mail_for_its_parent(self, place: Place) -> None:
        async with place.store() as store:
            root = await parked(store, "root", waiting="child")
            child = await started(store, "child", parent=root.key)
            report = Report("completed", b'{"child":"child"}', ends=True)
            await child.commit(ended="completed", release=True, parent=root.key, report=report)
            row = await stored(store, "root")
            assert (row.mail, row.status) == (True, Status.READY)
            [message] = await store.mail(root.key)
            assert (message.kind, message.payload) == ("child", b'{"child":"child"}')

    @on_loop
    async def test_a_report_without_an_end_is_noted_and_wakes_no_session(self, place: Place) -> None:
        async with place.store() as store:
            root = await parked(store, "root", waiting="child")
            child = await started(store, "child", parent=root.key)
            await child.commit(parent=root.key, report=Report("paused", b"{}", ends=False))
            assert (await stored(store, "root")).status is Status.WAITING
            assert [signal.kind for signal in await store.signals(root.key, 0)] == ["child"]
            assert await store.mail(root.key) == []

    @on_loop
    async def test_spending_counts_for_all_ancestors(self, place: Place) -> None:
        async with place.store() as store:
            root = await created(store, "root", budget_usd=100)
            middle = await created(store, "middle", parent=root.key)
            leaf = await started(store, "leaf", parent=middle.key, budget_usd=50)
            await leaf.commit(spend_usd=7, spend_tokens=3, spend_operations=2, parent=middle.key)
            spent = [(row.spent_usd, row.spent_tokens, row.spent_operations) for row in await store.find(Filter())]
            assert spent == [(7, 3, 2)] * 3
            above = Purse("root", 7, 3, 2, 100, None, None)
            assert sorted(await store.purses(leaf.key)) == [Purse("leaf", 7, 3, 2, 50, None, None), above]
            assert await store.purses(middle.key) == [above]
            await Driver(store, root).commit(spend_usd=1)
            assert (await stored(store, "leaf")).spent_usd == 7

    @pytest.mark.parametrize("limit", ["budget_usd", "budget_tokens", "budget_operations"])
    @on_loop
    async def test_a_session_with_any_limit_has_a_purse(self, place: Place, limit: str) -> None:
        async with place.store() as store:
            row = await created(store, "s1", **{"budget_usd": None, limit: 5})
            [purse] = await store.purses(row.key)
            assert purse == ("s1", 0, 0, 0, *(5 if name == limit else None for name in _LIMITS))
