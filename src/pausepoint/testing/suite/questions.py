"""Tests of questions: asking them in a commit, finding them, and accepting only the first answer."""

from __future__ import annotations

from typing import Any, get_args
from uuid import uuid4

import pytest
from msgspec.structs import replace

from pausepoint.errors import SessionEnded, UnknownSession
from pausepoint.log.replay import WaitBody, to_payload
from pausepoint.model.questions import Answer, Asked, Inquiry, QuestionRow, QuestionSort, digest, place_of, reply_of
from pausepoint.model.sessions import Filter, QuestionChange, QuestionFacts, QuestionStatus, Status
from pausepoint.stores.base import Store
from pausepoint.testing.suite.base import Driver, Place, Suite, on_loop, operator, parked, started, stored

WAITING, RESUMED = QuestionStatus.WAITING, QuestionStatus.RESUMED


def asking(driver: Driver, text: str = "Well?", key: str = "", **changes: Any) -> tuple[bytes, QuestionFacts]:
    """Return the record of a question and the facts about the question."""
    asked = Asked(str(uuid4()), text, key=key)
    facts = QuestionFacts(asked.id, key, 0, WAITING, 1, digest(asked), driver.at, driver.at, None)
    return to_payload(WaitBody("/ask", "ask", ask=asked)), replace(facts, **changes)


async def asks(driver: Driver, text: str = "Well?", key: str = "", **changes: Any) -> QuestionFacts:
    """Commit a question under the driver's hold."""
    payload, facts = asking(driver, text, key, **changes)
    await driver.commit(payload, kind="wait", asks=(facts,))
    return facts


async def waiting(store: Store, session_id: str = "s1", **changes: Any) -> QuestionFacts:
    """Create a session, park it with a question, and return the question."""
    driver = await started(store, session_id)
    facts = await asks(driver, **changes)
    await driver.commit(release=True, waiting="answer", wakes_at=facts.expires_at)
    return facts


def said(value: bytes = b'"so"', **changes: Any) -> Answer:
    """Return an answer by ann."""
    values: dict[str, Any] = {"value": value, "at": 7000, "by": "ann", "channel": "web"}
    return Answer(**(values | changes))


async def found(store: Store, id: str) -> QuestionRow:
    """Return a stored question, which must exist."""
    (row,) = await store.questions(Inquiry(ids=(id,)))
    return row


class AskingTests(Suite):
    """Tests of `answer`, `questions` and `forget_questions`, and of the questions in a commit."""

    @on_loop
    async def test_a_question_is_found_with_its_text_and_its_session(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store, owner="ann")
            facts = await asks(driver, "Which?", "k")
            row = await found(store, facts.id)
            assert row.facts == replace(facts, seq=2)
            assert (row.session_id, row.root_id, row.workflow, row.owner) == ("s1", "s1", "brief", "ann")
            assert (row.step, row.answer, row.failure) == ("first", None, None)
            assert row.asked is not None
            assert (row.asked.id, row.asked.text) == (facts.id, "Which?")
            assert await store.questions(Inquiry(ids=("nonsense", str(uuid4())))) == []

    @on_loop
    async def test_a_question_of_a_child_is_found_by_its_root_session(self, place: Place) -> None:
        async with place.store() as store:
            root = await parked(store, "root")
            child = await started(store, "child", parent=root.key)
            grandchild = await started(store, "grandchild", parent=child.key, workflow="other")
            facts = await asks(grandchild)
            (row,) = await store.questions(Inquiry(session_id="root"))
            assert (row.facts.id, row.session_id, row.root_id, row.workflow) == (
                facts.id, "grandchild", "root", "brief",
            )  # fmt: skip
            assert len(await store.questions(Inquiry(session_id="grandchild"))) == 1
            assert await store.questions(Inquiry(session_id="child")) == []
            assert (await store.answer(said(session_id="root"))).verdict == "taken"

    @on_loop
    async def test_questions_are_listed_by_status_and_by_page(self, place: Place) -> None:
        async with place.store() as store:
            one = await waiting(store, "s1")
            two = await waiting(store, "s2", key="k")
            late = await waiting(store, "s3", expires_at=place.clock.now())
            await store.answer(said(question=one.id))

            async def listed(**query: Any) -> list[str]:
                return [row.facts.id for row in await store.questions(Inquiry(**query))]

            assert await listed() == [one.id, two.id, late.id]
            assert await listed(statuses=(WAITING,)) == [two.id]
            assert await listed(statuses=(RESUMED, WAITING)) == [one.id, two.id]
            assert await listed(statuses=(QuestionStatus.EXPIRED,)) == [late.id]
            assert await listed(key="k") == await listed(session_id="s2") == [two.id]
            assert await listed(workflow="other") == await listed(owner="ann") == []
            (first,) = await store.questions(Inquiry(limit=1))
            assert await listed(after=(first.n,), limit=1) == [two.id]
            assert await listed(statuses=(WAITING,), limit=1) == [two.id]

    @on_loop
    async def test_questions_are_sorted_and_their_pages_are_the_list(self, place: Place) -> None:
        async with place.store() as store:
            limits = {"a": 9_000_000, "b": None, "c": 5_000_000, "d": None, "e": 5_000_000}
            ids = {(await waiting(store, name, expires_at=at)).id: name for name, at in limits.items()}
            for n, name in enumerate("bea"):
                await store.answer(said(session_id=name, at=7000 + n))

            async def listed(**query: Any) -> str:
                return "".join(ids[row.facts.id] for row in await store.questions(Inquiry(**query)))

            assert await listed() == "abcde"
            assert await listed(sort="expires") == "ceabd", "those without a limit come last"
            assert await listed(sort="updated") == "aebdc"
            sorts: tuple[QuestionSort, ...] = get_args(QuestionSort)
            for sort in sorts:
                whole = await listed(sort=sort)
                assert await listed(sort=sort, reverse=True) == whole[::-1]
                for query in (Inquiry(sort=sort), Inquiry(sort=sort, reverse=True, statuses=(WAITING, RESUMED))):
                    pages = [await store.questions(replace(query, limit=2))]
                    while (after := pages[-1].next) is not None and len(pages) < 9:
                        assert after == place_of(pages[-1][-1].n, pages[-1][-1].facts, sort)
                        pages.append(await store.questions(replace(query, limit=2, after=after)))
                    found = "".join(ids[row.facts.id] for page in pages for row in page)
                    assert found == (whole[::-1] if query.reverse else whole)
                    assert sum((await store.tally_questions(replace(query, after=(9, 9), limit=1))).values()) == 5
            assert (await store.questions(Inquiry(limit=5))).next is None

    @on_loop
    async def test_an_answer_is_accepted_once_and_wakes_the_session(self, place: Place) -> None:
        async with place.store() as store:
            facts = await waiting(store)
            assert (await stored(store)).status is Status.WAITING
            taken = await store.answer(said(question=facts.id, seen=facts.seen))
            assert taken.verdict == "taken"
            assert taken.row is not None
            assert (taken.row.status, taken.row.mail, taken.row.due) == (Status.READY, True, True)
            row = await found(store, facts.id)
            assert (row.facts.status, row.facts.answer, row.facts.updated_at) == (RESUMED, 1, 7000)
            [signal] = await store.mail(taken.row.key)
            assert (signal, signal.kind, signal.by) == (row.answer, "answer", "ann")
            reply = reply_of(signal.payload)
            assert (reply.question, reply.version, reply.channel, bytes(reply.value)) == (facts.id, 1, "web", b'"so"')

    @on_loop
    async def test_the_same_answer_again_changes_nothing_and_a_different_one_is_noted(self, place: Place) -> None:
        async with place.store() as store:
            facts = await waiting(store)
            await store.answer(said(question=facts.id))
            same = await store.answer(said(question=facts.id, by="bob"))
            assert same.verdict == "same"
            assert same.question is not None
            assert same.question.answer is not None
            assert same.question.answer.by == "ann"
            other = await store.answer(said(b'"no"', question=facts.id, by="bob"))
            assert other.verdict == "conflict"
            key = (await stored(store)).key
            assert [(each.kind, each.by) for each in await store.signals(key, 0)] == [
                ("answer", "ann"), ("refused", "bob"),
            ]  # fmt: skip
            assert b"no" not in (await store.signals(key, 1))[0].payload
            assert len(await store.mail(key)) == 1

    @on_loop
    async def test_a_refused_answer_says_why(self, place: Place) -> None:
        async with place.store() as store:
            open_ = await waiting(store, "s1")
            late = await waiting(store, "s2", expires_at=7000)
            await parked(store, "s3")
            assert (await store.answer(said(question=str(uuid4())))).verdict == "unknown"
            assert (await store.answer(said(question=open_.id, seen=b"x"))).verdict == "changed"
            assert (await store.answer(said(question=open_.id, session_id="s2"))).verdict == "elsewhere"
            assert (await store.answer(said(question=late.id))).verdict == "expired"
            assert (await store.answer(said(question=late.id, at=6999))).verdict == "taken"
            assert (await store.answer(said(session_id="s3"))).verdict == "none"
            with pytest.raises(UnknownSession):
                await store.answer(said(session_id="nobody"))
            assert (await found(store, open_.id)).facts.status is WAITING

    @on_loop
    async def test_an_invalid_message_is_mail_once_and_a_valid_answer_replaces_it(self, place: Place) -> None:
        async with place.store() as store:
            facts = await waiting(store)
            refused = await store.answer(said(b"{}", shown={}, question=facts.id))
            assert refused.row is not None
            assert (refused.verdict, refused.row.due) == ("invalid", False)
            wrong = await store.answer(said(b"{}", shown={}, question=facts.id, message=True))
            assert wrong.row is not None
            assert (wrong.verdict, wrong.row.due) == ("invalid", True)
            row = await found(store, facts.id)
            assert (row.facts.status, row.winner, row.objection) == (WAITING, None, "it must be text, not dict")
            assert (await store.answer(said(b"[]", shown=[], question=facts.id))).verdict == "invalid"
            key = (await stored(store)).key
            [signal] = await store.mail(key, kind="answer", about=facts.id)
            assert (signal.n, bytes(reply_of(signal.payload).value)) == (2, b"null")
            assert (await store.answer(said(shown="so", question=facts.id))).verdict == "taken"
            assert [signal.n for signal in await store.mail(key)] == [4]
            row = await found(store, facts.id)
            assert (row.facts.status, row.facts.answer, row.facts.refused) == (RESUMED, 4, 2)
            assert row.winner is not None

    @on_loop
    async def test_refused_answers_are_counted_and_not_all_of_them_noted(self, place: Place) -> None:
        async with place.store() as store:
            facts = await waiting(store)
            for _ in range(40):
                await store.answer(said(question=facts.id, seen=b"x"))
            row = await found(store, facts.id)
            assert (row.facts.refused, row.facts.status, row.facts.answer) == (40, WAITING, None)
            refused = await store.signals((await stored(store)).key, 0)
            assert [reply_of(signal.payload).count for signal in refused] == [*range(1, 17), 32]
            assert await store.mail((await stored(store)).key) == []

    @on_loop
    async def test_questions_are_found_by_the_beginning_of_their_id(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            ids = [(await asks(driver)).id for _ in range(20)]
            for size in (1, 7, 8, 9, 10, 13, 14, 35, 36):
                alike = [id for id in ids if id.startswith(ids[3][:size])]
                assert [row.facts.id for row in await store.questions(Inquiry(prefix=ids[3][:size]))] == alike
            for none in ("x", "%", ids[3] + "0", ids[3].replace("-", "")[:10], "-"):
                assert await store.questions(Inquiry(prefix=none)) == []

    @on_loop
    async def test_questions_are_counted_by_their_current_status(self, place: Place) -> None:
        async with place.store() as store:
            now = place.clock.now()
            for name, expires_at in (("s1", None), ("s2", now + 1_000_000), ("s3", now + 1_000_000)):
                await waiting(store, name, expires_at=expires_at)
            answered = await waiting(store, "s4", key="k")
            await store.answer(said(question=answered.id))
            await store.pause(Filter(session_id="s3"), operator(at=now, freeze=True))
            place.clock.advance(2)
            every = await store.tally_questions(Inquiry())
            assert every == {WAITING: 2, QuestionStatus.EXPIRED: 1, RESUMED: 1}
            assert await store.tally_questions(Inquiry(statuses=(WAITING,))) == {WAITING: 2}
            assert await store.tally_questions(Inquiry(statuses=(QuestionStatus.EXPIRED,))) == {
                QuestionStatus.EXPIRED: 1
            }
            assert await store.tally_questions(Inquiry(session_id="s4", key="k")) == {RESUMED: 1}
            assert await store.tally_questions(Inquiry(workflow="other")) == {}

    @on_loop
    async def test_mail_is_found_by_its_kind_and_by_what_it_is_about(self, place: Place) -> None:
        async with place.store() as store:
            key = (await parked(store)).key
            for number in range(3):
                await store.send("s1", None, number, b'{"value":1}')
                await store.answer(said(session_id="s1", key=f"k{number}"))
            assert [signal.n for signal in await store.mail(key, kind="message")] == [1, 3, 5]
            assert [signal.n for signal in await store.mail(key, 2, "early")] == [2, 4]
            assert [signal.n for signal in await store.mail(key, 1, "early", "k1")] == [4]
            assert await store.mail(key, kind="early", about="k9") == []
            assert len(await store.mail(key)) == 6

    @on_loop
    async def test_an_answer_without_an_id_goes_to_the_only_waiting_question(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            one, two = await asks(driver, key="one"), await asks(driver, key="two")
            several = await store.answer(said(session_id="s1"))
            assert several.verdict == "several"
            assert [row.facts.id for row in several.several] == [one.id, two.id]
            assert (await store.answer(said(session_id="s1", key="two"))).verdict == "taken"
            taken = await store.answer(said(session_id="s1"))
            assert taken.question is not None
            assert (taken.verdict, taken.question.facts.id) == ("taken", one.id)

    @on_loop
    async def test_an_early_answer_is_mail_that_wakes_no_session(self, place: Place) -> None:
        async with place.store() as store:
            await waiting(store)
            early = await store.answer(said(session_id="s1", key="later"))
            assert early.early is not None
            assert (early.verdict, early.early.n) == ("early", 1)
            again = await store.answer(said(session_id="s1", key="later", by="ben"))
            assert (again.verdict, again.early) == ("early", early.early)
            other = await store.answer(said(b'"else"', session_id="s1", key="later", by="ben"))
            assert (other.verdict, other.early) == ("conflict", early.early)
            row = await stored(store)
            assert (row.mail, row.due, row.status) == (True, False, Status.WAITING)
            [signal] = await store.mail(row.key)
            assert (signal.kind, reply_of(signal.payload).key) == ("early", "later")
            await (await started(store, "s2")).commit(ended="completed", release=True)
            with pytest.raises(SessionEnded):
                await store.answer(said(session_id="s2", key="later"))

    @on_loop
    async def test_a_message_is_an_answer_or_a_message_and_the_first_after_an_expiry_is_neither(
        self, place: Place
    ) -> None:
        async with place.store() as store:
            await waiting(store, "s1", expires_at=8000)
            await parked(store, "s2", waiting="message")
            assert (await store.answer(said(session_id="s1", message=True))).verdict == "taken"
            assert (await store.answer(said(session_id="s1", message=True))).verdict == "queued"
            queued = await store.answer(said(session_id="s2", message=True))
            assert queued.row is not None
            assert (queued.verdict, queued.row.due) == ("queued", True)
            [message] = await store.mail(queued.row.key)
            assert (message.kind, message.payload) == ("message", b'{"value":"so"}')
            facts = await waiting(store, "s3", expires_at=6000)
            assert (await store.answer(said(session_id="s3", message=True))).verdict == "expired"
            assert (await found(store, facts.id)).facts.told
            assert (await store.answer(said(session_id="s3", message=True))).verdict == "queued"

    @on_loop
    async def test_the_next_round_is_the_same_question_waiting_again(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            facts = await asks(driver)
            await store.answer(said(question=facts.id))
            asked = Asked(facts.id, "Again?", round=2)
            again = replace(facts, version=2, seen=digest(asked), created_at=9999, updated_at=9000, expires_at=9500)
            await driver.commit(to_payload(WaitBody("/ask", "ask", ask=asked)), asks=(again,), consume=(1,))
            row = await found(store, facts.id)
            assert (row.facts.status, row.facts.version, row.facts.answer, row.facts.seq) == (WAITING, 2, None, 3)
            assert (row.facts.created_at, row.facts.expires_at) == (facts.created_at, 9500)
            assert (await store.answer(said(question=facts.id, seen=facts.seen))).verdict == "changed"
            assert (await store.answer(said(question=facts.id, seen=again.seen))).verdict == "taken"

    @on_loop
    async def test_an_answer_that_arrives_while_a_step_refuses_another_one_answers_the_next_round(
        self, place: Place
    ) -> None:
        async with place.store() as store:
            driver = await started(store)
            facts = await asks(driver)
            await store.answer(said(b"{}", shown={}, question=facts.id, message=True))
            assert (await store.answer(said(question=facts.id))).verdict == "taken"
            asked = Asked(facts.id, "Again?", round=2)
            again = replace(facts, version=2, seen=digest(asked), updated_at=9000)
            await driver.commit(to_payload(WaitBody("/ask", "ask", ask=asked)), asks=(again,), consume=(1,))
            row = await found(store, facts.id)
            assert (row.facts.status, row.facts.version, row.facts.answer) == (RESUMED, 2, 2)
            assert [signal.n for signal in await store.mail(driver.key)] == [2]

    @on_loop
    async def test_an_unread_answer_is_dropped_with_its_question(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            facts = await asks(driver)
            await store.answer(said(b"{}", shown={}, question=facts.id, message=True))
            await driver.commit(questions=(QuestionChange(facts.id, QuestionStatus.CANCELLED),))
            row = await stored(store)
            assert (row.mail, await store.mail(row.key)) == (False, [])

    @on_loop
    async def test_a_commit_only_if_a_question_waits_is_refused_after_the_answer(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            one, two = await asks(driver), await asks(driver)
            change = QuestionChange(one.id, QuestionStatus.EXPIRED)
            assert await driver.commit(only_if_waiting=one.id, questions=(change,)) is not None
            assert (await found(store, one.id)).facts.status is QuestionStatus.EXPIRED
            await store.answer(said(question=two.id))
            late = driver.next(only_if_waiting=two.id)
            assert await store.commit(late) is None
            assert (await stored(store)).seq == late.base_seq
            assert (await found(store, two.id)).facts.status is RESUMED

    @on_loop
    async def test_changes_are_for_open_questions_only(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            facts = await asks(driver)
            await driver.commit(questions=(QuestionChange(facts.id, expires_at=9000),))
            row = await found(store, facts.id)
            assert (row.facts.expires_at, row.facts.status) == (9000, WAITING)
            await driver.commit(questions=(QuestionChange(facts.id, QuestionStatus.CANCELLED),))
            await driver.commit(questions=(QuestionChange(facts.id, WAITING),))
            assert (await found(store, facts.id)).facts.status is QuestionStatus.CANCELLED
            assert (await store.answer(said(question=facts.id))).verdict == "cancelled"

    @pytest.mark.parametrize("ended", [None, "completed", "cancelled"])
    @on_loop
    async def test_the_end_of_a_visit_settles_its_questions(self, place: Place, ended: Any) -> None:
        async with place.store() as store:
            driver = await started(store)
            read, unread, open_ = await asks(driver), await asks(driver), await asks(driver)
            await store.answer(said(question=read.id))
            await store.answer(said(question=unread.id))
            await driver.commit(consume=(1,))
            end: dict[str, Any] = {"settles": True} if ended is None else {"ended": ended, "release": True}
            await driver.commit(**end)
            used = "CANCELLED" if ended == "cancelled" else "COMPLETED"
            rows = await store.questions(Inquiry(session=driver.key))
            assert [row.facts.status.value for row in rows] == [used, "CANCELLED", "CANCELLED"]
            assert [row.facts.id for row in rows] == [read.id, unread.id, open_.id]
            assert await store.mail(driver.key) == []
            assert not (await stored(store)).mail

    @on_loop
    async def test_an_answer_that_came_while_a_session_was_about_to_wait_makes_it_due_at_once(
        self, place: Place
    ) -> None:
        async with place.store() as store:
            driver = await started(store)
            facts = await asks(driver)
            await store.answer(said(question=facts.id))
            await driver.commit(release=True, waiting="answer")
            assert (await stored(store)).status is Status.READY

    @on_loop
    async def test_frozen_timers_make_a_question_expire_later(self, place: Place) -> None:
        async with place.store() as store:
            start = place.clock.now()
            facts = await waiting(store, expires_at=start + 10_000_000)
            await store.pause(Filter(session_id="s1"), operator(at=start, freeze=True))
            place.clock.advance(100)
            row = await found(store, facts.id)
            assert row.status_at(place.clock.now()) is WAITING
            await store.unpause("s1", None, place.clock.now())
            row = await found(store, facts.id)
            assert (row.deferred, row.status_at(place.clock.now())) == (100_000_000, WAITING)
            place.clock.advance(10)
            assert (await found(store, facts.id)).status_at(place.clock.now()) is QuestionStatus.EXPIRED

    @on_loop
    async def test_settled_questions_can_be_deleted_and_open_ones_cannot(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            done, open_ = await asks(driver), await asks(driver)
            await driver.commit(questions=(QuestionChange(done.id, QuestionStatus.EXPIRED),))
            at = (await found(store, done.id)).facts.updated_at
            assert await store.forget_questions(at, 10) == 0
            assert await store.forget_questions(at + 1, 10) == 1
            assert [row.facts.id for row in await store.questions(Inquiry())] == [open_.id]

    @on_loop
    async def test_questions_are_removed_and_imported_with_their_session(self, place: Place) -> None:
        async with place.store() as store:
            facts = await waiting(store)
            await store.answer(said(question=facts.id))
            sessions = await store.whole("s1")
            before = await found(store, facts.id)
            await store.remove("s1", None, "", 9000)
            assert await store.questions(Inquiry()) == []
            assert (await store.answer(said(question=facts.id))).verdict == "unknown"
            for removal in await store.removing():
                while await store.strip(removal.key, 100) is None:
                    pass
            assert await store.import_(sessions)
            after = await found(store, facts.id)
            assert (after.facts, after.payload, after.answer) == (before.facts, before.payload, before.answer)
            assert await store.whole("s1") is not None
