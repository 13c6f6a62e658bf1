"""Tests of exporting and importing whole sessions, and of a store's description of itself."""

from __future__ import annotations

from hashlib import sha256

import pytest
from msgspec.json import encode
from msgspec.structs import replace

from pausepoint.errors import FileRefused, HoldLost, InvalidSessionId, UnknownSession
from pausepoint.model.files import FileFacts
from pausepoint.model.questions import Answer
from pausepoint.model.records import first_digest, seal_signal
from pausepoint.model.sessions import Filter, Status
from pausepoint.model.stores import Whole
from pausepoint.stores.base import Store
from pausepoint.testing.suite.base import Driver, Place, Suite, created, on_loop, operator, parked, started, stored

BLOB = (sha256(b"large").digest(), b"large")


class MovingTests(Suite):
    """Tests of `whole`, `import_` and `about`."""

    @on_loop
    async def test_a_session_comes_back_as_it_was(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store, blobs=(BLOB,), owner="ann", tags=("a",), budget_usd=5, keep_for=100)
            await store.pause(Filter(), operator(freeze=True))
            await driver.commit(b"[1]", release=True, waiting="message", spend_usd=3, spend_tokens=4, progress=(1, 2))
            await store.send("s1", "ben", 6000, b'{"value":1}')
            await store.unpause("s1", "ann", 7000)
            before = await store.whole("s1")
            await gone(store, "s1")
            assert await store.import_(before)
            assert [same(each) for each in await store.whole("s1")] == [same(each) for each in before]
            assert before[0].blobs == dict([BLOB])
            assert (len(before[0].signals), before[0].mail, len(before[0].pauses)) == (3, [2], 1)

    @on_loop
    async def test_unread_mail_is_still_unread_after_an_import(self, place: Place) -> None:
        async with place.store() as store:
            row = await parked(store, waiting="message")
            await store.send("s1", None, 6000, b'{"value":1}')
            sessions = await store.whole("s1")
            await gone(store, "s1")
            await store.import_(sessions)
            row = await stored(store)
            assert row.due
            assert [signal.n for signal in await store.mail(row.key)] == [1]
            row = await store.claim("s1")
            await Driver(store, row).commit(consume=(1,), release=True)
            await store.send("s1", None, 6001, b"{}")  # the digest chain continues
            assert [signal.n for signal in await store.signals(row.key, 0)] == [1, 2]
            assert (await stored(store)).mail

    @on_loop
    async def test_the_key_of_a_message_still_counts_after_an_import(self, place: Place) -> None:
        given = Answer(value=b"1", at=6000, session_id="s1", message=True, once="k")
        async with place.store() as store:
            await parked(store, waiting="message")
            await store.answer(given)
            sessions = await store.whole("s1")
            await gone(store, "s1")
            await store.import_(sessions)
            assert (await store.answer(given)).verdict == "same"
            await gone(store, "s1")
            await parked(store)
            assert (await store.answer(given)).verdict == "queued"  # the keys were removed with the session
            assert await store.check() == []

    @on_loop
    async def test_an_imported_session_is_free_and_its_former_driver_cannot_write(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await driver.commit()
            sessions = await store.whole("s1")
            await driver.commit(release=True)
            await gone(store, "s1")
            await store.import_(sessions)
            row = await stored(store)
            assert (row.holder, row.live, row.seq) == (None, False, 2)
            with pytest.raises(HoldLost):
                await Driver(store, row).commit()

    @on_loop
    async def test_names_that_could_lead_out_of_the_store_are_refused(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store)
            [whole] = await store.whole("s1")
            await gone(store, "s1")
            for names in ({"session_id": "../out"}, {"parent_id": "/etc"}):
                with pytest.raises(InvalidSessionId):
                    await store.import_([replace(whole, row=replace(whole.row, **names))])
            facts = FileFacts("../../out", "out.txt", "text/plain", 3, "0" * 64, "txt")
            signal = seal_signal(first_digest("s1"), 1, 1, "file", None, 5000, encode(facts))
            with pytest.raises(FileRefused, match="is not derived from its hash"):
                await store.import_([replace(whole, signals=[signal])])
            assert await store.find(Filter()) == []

    @on_loop
    async def test_a_tree_moves_as_one(self, place: Place) -> None:
        async with place.store() as store:
            root = await parked(store, "root")
            child = await created(store, "child", parent=root.key, claim=False)
            await created(store, "grandchild", parent=child.key, claim=False)
            sessions = await store.whole("root")
            assert [each.row.session_id for each in sessions] == ["root", "child", "grandchild"]
            assert [each.row.session_id for each in await store.whole("child")] == ["child", "grandchild"]
            await gone(store, "root")
            assert await store.import_(sessions)
            assert [(await stored(store, id)).parent_id for id in ("child", "grandchild")] == ["root", "child"]

    @on_loop
    async def test_a_child_session_is_imported_without_its_parent(self, place: Place) -> None:
        async with place.store() as store:
            root = await parked(store, "root")
            await created(store, "child", parent=root.key, claim=False)
            sessions = await store.whole("child")
            await gone(store, "root")
            assert await store.import_(sessions)
            assert (await stored(store, "child")).parent_id is None

    @on_loop
    async def test_nothing_is_stored_if_one_of_the_ids_is_taken(self, place: Place) -> None:
        async with place.store() as store:
            root = await parked(store, "root")
            await created(store, "child", parent=root.key, claim=False)
            sessions = await store.whole("root")
            await gone(store, "root")
            await created(store, "child", claim=False)
            assert not await store.import_(sessions)
            assert [row.session_id for row in await store.find(Filter())] == ["child"]

    @on_loop
    async def test_an_unknown_session_cannot_be_exported(self, place: Place) -> None:
        async with place.store() as store:
            with pytest.raises(UnknownSession):
                await store.whole("nobody")

    @on_loop
    async def test_sessions_whose_process_died_are_found(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store, "calm")
            for id, facts in (("crashed", {}), ("ended", {"ended": "failed"})):
                await parked(store, id, **facts)
                [session] = await store.whole(id)
                await gone(store, id)
                await store.import_([replace(session, row=replace(session.row, crashes=2))])
            found = await store.find(Filter(crashed=True))
            assert [(row.session_id, row.crashes) for row in found] == [("crashed", 2)]
            assert await store.tally(Filter(crashed=True)) == {("brief", Status.READY): 1}
            await Driver(store, await store.claim("crashed")).commit()
            assert await store.find(Filter(crashed=True)) == [], "a commit is progress"

    @on_loop
    async def test_a_store_describes_itself_and_the_engines_that_hold_sessions(self, place: Place) -> None:
        async with place.store() as store:
            await started(store)
            await parked(store, "s2")
            about = await store.about()
            assert about.kind
            assert about.schema >= 1
            [holder] = about.holders
            assert (holder.number, holder.live, holder.sessions) == (store.number, True, ("s1",))


def same(session: Whole) -> Whole:
    """Return the session without the values that differ from store to store."""
    return replace(session, row=replace(session.row, key=0, fence=0, parent=None))


async def gone(store: Store, session_id: str) -> None:
    """Remove a session and its children."""
    await store.remove(session_id, None, "", 9000)
    for removal in await store.removing():
        while await store.strip(removal.key, 100) is None:
            pass
