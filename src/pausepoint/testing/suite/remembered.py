"""Tests of requests that must have one effect: the keys that a store remembers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from pausepoint.errors import CallRefused, KeyLost
from pausepoint.model.files import FileFacts
from pausepoint.model.questions import Answer
from pausepoint.model.remembered import LARGEST_ANSWER, LONGEST_DIGEST, LONGEST_KEY, Remembered
from pausepoint.model.sessions import Filter
from pausepoint.model.stores import Whole
from pausepoint.stores.base import Store
from pausepoint.testing.suite.base import Driver, Place, Suite, created, new_session, on_loop, operator, parked, stored

DIGEST = b"\1" * 32
LATER = 9_000_000
"""When the keys of these tests expire. The clock starts at 1,000,000."""

NOTES = FileFacts("file_1", "notes.pdf", "application/pdf", 12, "ab" * 32, "pdf")


async def taken(store: Store, key: str = "k") -> None:
    """Take a key, which must be free."""
    assert (await store.remember(key, DIGEST, None, LATER)).claimed


async def remembered(store: Store, key: str = "k") -> Remembered:
    """Return what the store remembers about a key, which must be taken."""
    found = await store.recall(key)
    assert found is not None, f"{key} is not remembered"
    return found


async def wrote(store: Store) -> bool:
    """Return whether the request took effect."""
    return (await remembered(store)).took_effect


async def _revise(store: Store) -> Any:
    row = await stored(store)
    return await store.revise(Driver(store, row).next(kind="edit", release=True, fence=row.fence))


async def _import(store: Store) -> Any:
    records = new_session("s3").records
    row = replace(await stored(store), session_id="s3", seq=1, key_frame=1, digest=records[0].digest)
    return await store.import_([Whole(row, list(records), [], [], [], {}, [])])


EFFECTS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "create": lambda store: store.create(new_session("s2")),
    "revise": _revise,
    "import": _import,
    "pause": lambda store: store.pause(Filter(session_id="s1"), operator()),
    "unpause": lambda store: store.unpause("s1", "ann", 6000),
    "pause everything": lambda store: store.pause(Filter(), replace(operator(), standing=True)),
    "lift": lambda store: store.lift("ann", 6000),
    "send": lambda store: store.send("s1", "ann", 6000, b"1"),
    "answer": lambda store: store.answer(Answer(value=b"1", at=6000, session_id="s1", message=True)),
    "add_file": lambda store: store.add_file("s1", "ann", 6000, NOTES),
    "cancel": lambda store: store.cancel("s1", "ann", "over", 6000),
    "remove": lambda store: store.remove("s1", "ann", "old", 6000),
}
"""Every verb whose effect a key can cover, in an order in which all of them are possible."""


UNFIT: list[tuple[Any, Any, Any]] = [
    ("", DIGEST, None),
    ("k" * (LONGEST_KEY + 1), DIGEST, None),
    ("line\nbreak", DIGEST, None),
    ("nul\0", DIGEST, None),
    ("half a surrogate \ud800", DIGEST, None),
    (b"bytes", DIGEST, None),
    ("k", b"", None),
    ("k", b"\1" * (LONGEST_DIGEST + 1), None),
    ("k", "text", None),
    ("k", DIGEST, "text"),
    ("k", DIGEST, bytes(LARGEST_ANSWER + 1)),
]
"""Keys, digests and answers that a store refuses."""


class RememberedTests(Suite):
    """Tests of `remember`, `recall`, `forget`, `once` and `forget_expired`."""

    @on_loop
    async def test_a_key_is_taken_once_and_keeps_the_first_answer(self, place: Place) -> None:
        async with place.store() as store:
            assert await store.recall("k") is None
            first = await store.remember("k", DIGEST, None, LATER)
            assert (first.claimed, first.at_work, first.answer, first.took_effect) == (True, True, None, False)
            again = await store.remember("k", DIGEST, None, LATER + 1)
            assert (again.claimed, again.at_work, again.answer, again.until) == (False, True, None, LATER)
            assert (await store.remember("k", DIGEST, b"done", LATER)).answer == b"done"
            for answer in (None, b"other"):
                kept = await store.remember("k", DIGEST, answer, LATER)
                assert (kept.claimed, kept.at_work, kept.answer) == (False, False, b"done")
            assert (await remembered(store)).answer == b"done"

    @on_loop
    async def test_an_answer_is_replaced_only_by_a_caller_that_knows_it(self, place: Place) -> None:
        async with place.store() as store:
            assert (await store.remember("k", DIGEST, b"one", LATER, b"none yet")).answer == b"one"
            for digest, answer, replaces in (
                (DIGEST, b"two", b"zero"),
                (DIGEST, b"two", None),
                (DIGEST, None, b"one"),
                (b"\2" * 32, b"two", b"one"),
            ):
                found = await store.remember("k", digest, answer, LATER + 1, replaces)
                assert (found.claimed, found.answer, found.until) == (False, b"one", LATER)
            found = await store.remember("k", DIGEST, b"two", LATER + 1, b"one")
            assert (found.claimed, found.at_work, found.answer, found.until) == (False, False, b"two", LATER + 1)
            assert (await remembered(store)).answer == b"two"

    @on_loop
    async def test_another_request_with_the_same_key_changes_nothing(self, place: Place) -> None:
        async with place.store() as store:
            await taken(store)
            for answer in (None, b"done"):
                found = await store.remember("k", b"\2" * 32, answer, LATER + 1)
                assert (found.claimed, found.digest, found.answer, found.until) == (False, DIGEST, None, LATER)
            await taken(store, "another key")

    @on_loop
    async def test_a_request_can_be_answered_without_taking_its_key_first(self, place: Place) -> None:
        async with place.store() as store:
            found = await store.remember("k", DIGEST, b"", LATER)
            assert (found.claimed, found.at_work, found.answer) == (False, False, b"")

    @on_loop
    async def test_a_key_is_free_again_when_it_expires(self, place: Place) -> None:
        async with place.store() as store:
            await store.remember("k", DIGEST, b"done", LATER)
            place.clock.jump(timedelta(microseconds=LATER - place.clock.now() - 1))
            assert (await store.remember("k", DIGEST, None, LATER)).answer == b"done"
            place.clock.jump(timedelta(microseconds=1))
            assert await store.recall("k") is None
            found = await store.remember("k", b"\2" * 32, None, LATER * 2)
            assert (found.claimed, found.digest, found.answer, found.until) == (True, b"\2" * 32, None, LATER * 2)

    @on_loop
    async def test_expired_requests_are_deleted_in_batches(self, place: Place) -> None:
        async with place.store() as store:
            for n in range(5):
                await store.remember(f"k{n}", DIGEST, b"done", LATER + n)
            assert await store.forget_expired(LATER - 1, 10) == 0
            assert await store.forget_expired(LATER + 2, 2) == 2
            assert await store.forget_expired(LATER + 2, 10) == 1
            found = [await store.recall(f"k{n}") is not None for n in range(5)]
            assert found == [False, False, False, True, True]

    @on_loop
    async def test_a_key_can_be_given_up_until_its_request_has_an_effect(self, place: Place) -> None:
        async with place.store() as store:
            assert not await store.forget("k")
            await taken(store)
            assert await store.forget("k")
            await taken(store)
            with store.once("k"):
                await created(store)
            assert not await store.forget("k")
            assert (await store.remember("k", DIGEST, b"done", LATER)).took_effect
            assert not await store.forget("k")
            assert (await remembered(store, "k")).answer == b"done"

    @on_loop
    async def test_an_effect_is_stored_with_its_key(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store)
            for verb, act in EFFECTS.items():
                await taken(store, verb)
                with store.once(verb):
                    await store.get("s1")
                    assert not (await remembered(store, verb)).took_effect, "a read has no effect"
                    await act(store)
                assert (await remembered(store, verb)).took_effect, verb

    @pytest.mark.parametrize("lost", ["never taken", "answered", "expired"])
    @on_loop
    async def test_without_its_key_a_request_has_no_effect(self, place: Place, lost: str) -> None:
        async with place.store() as store:
            before = await parked(store)
            if lost != "never taken":
                await store.remember("k", DIGEST, b"done" if lost == "answered" else None, LATER)
            if lost == "expired":
                place.clock.jump(timedelta(microseconds=LATER))
            for verb, act in EFFECTS.items():
                with store.once("k"), pytest.raises(KeyLost) as refused:
                    await act(store)
                assert refused.value.key == "k", verb
                assert await stored(store) == before, verb
            new = [await store.get("s2"), await store.get("s3"), await store.standing_pause()]
            assert (new, await store.signals(before.key, 0)) == ([None, None, None], [])
            await store.cancel("s1", "ann", "over", 6000)  # outside of the block it works

    @on_loop
    async def test_a_verb_that_changes_nothing_has_no_effect(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store)
            await taken(store)
            with store.once("k"):
                assert await store.create(new_session("s1")) is None
                refused = await store.answer(Answer(value=b"1", at=6000, question=str(UUID(int=7))))
                assert refused.verdict == "unknown"
                assert not await wrote(store)
                await store.send("s1", "ann", 6000, b"1")
            assert await wrote(store)

    @on_loop
    async def test_only_the_first_write_of_the_block_needs_the_key(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store)
            await taken(store)
            with store.once("k"):
                await store.send("s1", "ann", 6000, b"1")
                await store.remember("k", DIGEST, b"done", LATER)
                await store.send("s1", "ann", 6000, b"2")
            assert len(await store.mail((await stored(store)).key)) == 2

    @on_loop
    async def test_a_block_covers_neither_other_tasks_nor_what_it_leaves_running(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store)
            await taken(store)
            go_on = asyncio.Event()

            async def later() -> None:
                await go_on.wait()
                await store.send("s1", "ann", 6000, b"later")

            beside = asyncio.ensure_future(later())
            with store.once("k"):
                started = asyncio.ensure_future(later())
                with pytest.raises(CallRefused), store.once("another"):
                    pass
            go_on.set()
            await asyncio.gather(beside, started)
            assert not await wrote(store)

    @on_loop
    async def test_unfit_keys_digests_and_answers_are_refused(self, place: Place) -> None:
        async with place.store() as store:
            for key, digest, answer in UNFIT:
                with pytest.raises((TypeError, ValueError)):
                    await store.remember(key, digest, answer, LATER)
                for verb in (store.recall, store.forget) if key != "k" else ():
                    with pytest.raises((TypeError, ValueError)):
                        await verb(key)
            assert await store.recall("k") is None

    @on_loop
    async def test_the_longest_key_and_the_largest_answer_are_kept(self, place: Place) -> None:
        async with place.store() as store:
            key, answer = "ß" * LONGEST_KEY, bytes(LARGEST_ANSWER)
            await store.remember(key, b"\1" * LONGEST_DIGEST, answer, LATER)
            assert (await remembered(store, key)).answer == answer

    @on_loop
    async def test_a_request_for_many_sessions_has_one_effect_on_each(self, place: Place) -> None:
        async with place.store() as store:
            for name in ("s1", "s2"):
                await parked(store, name)
            await taken(store)
            both = Filter(ids=("s1", "s2"))
            with store.once("k", each=True):
                assert await store.treated() == []
                await store.pause(Filter(ids=("s1",)), operator())
                assert await store.treated() == ["s1"]
            assert await store.treated() == [], "outside of the block"
            await store.unpause("s1", "bob", 6000)
            with store.once("k", each=True):
                found = await store.pause(both, operator())
                assert {row.session_id: row.pause_requested for row in found} == {"s1": False, "s2": True}
                assert await store.treated() == ["s1", "s2"]
            await store.pause(both, operator())  # another request is not concerned
            assert (await stored(store)).pause_requested

    @pytest.mark.parametrize("verb", ["unpause", "cancel"])
    @on_loop
    async def test_a_session_that_the_request_has_treated_is_left_as_it_is(self, place: Place, verb: str) -> None:
        async with place.store() as store:
            await parked(store)
            await taken(store)
            with store.once("k", each=True):
                await store.unpause("s1", "ann", 6000)  # which changes nothing, and yet treats it
            await store.pause(Filter(session_id="s1"), operator())
            before = await stored(store)
            with store.once("k", each=True):
                await EFFECTS[verb](store)
            assert await stored(store) == before
            await EFFECTS[verb](store)
            assert await stored(store) != before

    @on_loop
    async def test_every_verb_of_a_request_for_many_sessions_needs_the_key(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store)
            await taken(store)
            with store.once("k", each=True):
                await store.unpause("s1", "ann", 6000)
                await store.remember("k", DIGEST, b"done", LATER)
                before = await stored(store)
                for verb in ("pause", "unpause", "cancel"):
                    with pytest.raises(KeyLost):
                        await EFFECTS[verb](store)
                with pytest.raises(CallRefused), store.once("another"):
                    pass
            assert await stored(store) == before

    @pytest.mark.parametrize("end", ["answered", "expired", "deleted"])
    @on_loop
    async def test_another_request_with_the_key_finds_nothing_treated(self, place: Place, end: str) -> None:
        async with place.store() as store:
            await parked(store)
            await taken(store)
            with store.once("k", each=True):
                await store.pause(Filter(session_id="s1"), operator())
            if end == "answered":
                await store.remember("k", DIGEST, b"done", LATER)
            place.clock.jump(timedelta(microseconds=LATER))
            if end == "deleted":
                assert await store.forget_expired(place.clock.now(), 10) == 1
            assert (await store.remember("k", DIGEST, None, LATER * 3)).claimed
            with store.once("k", each=True):
                assert await store.treated() == []


class SharedRememberedTests(Suite):
    """Tests of remembered requests with several engines."""

    @on_loop
    async def test_of_two_engines_one_takes_the_key_and_the_other_learns_the_answer(self, place: Place) -> None:
        async with place.store() as one, place.store() as two:
            found = await asyncio.gather(*(each.remember("k", DIGEST, None, LATER) for each in (one, two) * 3))
            assert [each.claimed for each in found].count(True) == 1
            assert all(each.at_work for each in found)
            first, second = (one, two) if found[0].claimed or found[2].claimed or found[4].claimed else (two, one)
            stolen = await second.remember("k", DIGEST, b"stolen", LATER)
            assert (stolen.answer, stolen.at_work) == (None, True)
            assert not await second.forget("k")
            await parked(second)
            with second.once("k"), pytest.raises(KeyLost):
                await second.send("s1", "ann", 6000, b"1")
            await first.remember("k", DIGEST, b"done", LATER)
            assert (await second.remember("k", DIGEST, None, LATER)).answer == b"done"

    @pytest.mark.parametrize("effect", [False, True])
    @on_loop
    async def test_the_key_of_an_engine_that_is_gone_can_be_taken_again(self, place: Place, effect: bool) -> None:
        async with place.store() as gone:
            await taken(gone)
            if effect:
                with gone.once("k"):
                    await created(gone, claim=False)
        async with place.store() as one, place.store() as two:
            found = await remembered(one)
            assert (found.at_work, found.took_effect) == (False, effect)
            first = await one.remember("k", DIGEST, None, LATER)
            assert (first.claimed, first.at_work, first.took_effect) == (True, True, effect)
            second = await two.remember("k", DIGEST, None, LATER)
            assert (second.claimed, second.at_work) == (False, True)
            with one.once("k"):
                await created(one, "s2")
            assert await wrote(two)

    @on_loop
    async def test_what_an_engine_that_is_gone_has_treated_is_known(self, place: Place) -> None:
        async with place.store() as gone:
            for name in ("s1", "s2"):
                await parked(gone, name)
            await taken(gone)
            with gone.once("k", each=True):
                await gone.pause(Filter(session_id="s2"), operator())
        async with place.store() as store:
            assert (await store.remember("k", DIGEST, None, LATER)).took_effect
            with store.once("k", each=True):
                assert await store.treated() == ["s2"]
                await store.unpause("s2", "ann", 6000)
            assert (await stored(store, "s2")).pause_requested
