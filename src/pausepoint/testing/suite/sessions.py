"""Tests of creating and finding sessions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pausepoint.errors import HoldLost, UnknownSession
from pausepoint.model.records import seal
from pausepoint.model.sessions import Filter, Sort, Status
from pausepoint.testing.suite.base import (
    Driver,
    Place,
    Suite,
    created,
    new_session,
    on_loop,
    operator,
    parked,
    payloads,
    started,
    stored,
)


class SessionTests(Suite):
    """Tests of `create`, `get`, `find` and `tally`."""

    @on_loop
    async def test_a_created_session_reads_back_as_it_was_given(self, place: Place) -> None:
        async with place.store() as store:
            limits: Any = {"budget_usd": 5_000_000, "budget_tokens": 7, "budget_operations": 9, "keep_for": 60}
            new = new_session(owner="ann", tags=("a", "b"), visit=3, version=2, held_by_guard=True, **limits)
            row = await store.create(new)
            assert row == await store.get("s1")
            assert row is not None
            assert (row.owner, row.tags, row.budget_usd, row.visit, row.version) == ("ann", ("a", "b"), 5_000_000, 3, 2)
            assert (row.created_at, row.updated_at, row.seq, row.key_frame) == (1000, 1000, 1, 1)
            assert (row.fence, row.live, row.status) == (1, True, Status.RUNNING)
            assert await store.records(row.key, 1) == list(new.records)

    @on_loop
    async def test_a_session_created_without_a_claim_is_held_by_nobody(self, place: Place) -> None:
        async with place.store() as store:
            row = await store.create(new_session(claim=False))
            assert row is not None
            assert (row.holder, row.fence, row.status) == (None, 0, Status.CREATED)
            with pytest.raises(HoldLost):
                await Driver(store, row).commit()

    @on_loop
    async def test_a_taken_id_creates_nothing(self, place: Place) -> None:
        async with place.store() as store:
            first = await store.create(new_session())
            assert await store.create(new_session(workflow="other", pause=operator())) is None
            assert await store.get("s1") == first
            assert len(await store.find(Filter())) == 1

    @on_loop
    async def test_an_unknown_session_is_none(self, place: Place) -> None:
        async with place.store() as store:
            assert await store.get("nobody") is None

    @on_loop
    async def test_find_combines_its_filters_and_lists_the_newest_first(self, place: Place) -> None:
        async with place.store() as store:
            await store.create(new_session("a", owner="ann", tags=("x",), created_at=1, queue="gpu"))
            await store.create(new_session("b", owner="ben", tags=("x", "y"), created_at=3))
            done = await started(store, "c", workflow="other", owner="ann", created_at=2)
            await done.commit(ended="completed", release=True)

            async def ids(**query: Any) -> list[str]:
                return [row.session_id for row in await store.find(Filter(**query))]

            assert await ids() == ["b", "c", "a"]
            assert await ids(owner="ann") == ["c", "a"]
            assert await ids(owner="ann", workflow="brief") == ["a"]
            assert await ids(tag="x") == ["b", "a"]
            assert await ids(tag="y") == ["b"]
            assert await ids(unended=True) == ["b", "a"]
            assert await ids(limit=1) == ["b"]
            assert await ids(session_id="a") == ["a"]
            assert await ids(session_id="a", owner="ben") == []
            assert await ids(ids=("a", "c", "nobody")) == ["c", "a"]
            assert await ids(ids=("a", "c"), tag="x") == ["a"]
            assert await ids(ids=()) == []
            assert await ids(queue="gpu", workflow="brief") == await ids(queue="gpu") == ["a"]
            assert await store.tally(Filter(queue="gpu")) == {("brief", Status.RUNNING): 1}
            for query in (Filter(), Filter(owner="ann"), Filter(tag="x"), Filter(queue="gpu", limit=1)):
                assert await store.ids(query) == [row.session_id for row in await store.find(query)]
            assert await store.ids(Filter(unended=True, reverse=True)) == ["a", "b"]
            assert await store.ids(Filter(tag="z")) == []

    @on_loop
    async def test_sessions_are_found_by_the_time_of_their_last_update(self, place: Place) -> None:
        async with place.store() as store:
            for id, at in (("a", 5), ("b", 7), ("c", 9)):
                await store.create(new_session(id, created_at=1, claim=False))
                await Driver(store, await store.claim(id)).commit(updated_at=at, release=True)

            async def ids(**query: Any) -> list[str]:
                return await store.ids(Filter(reverse=True, **query))

            assert await ids(since=7) == ["b", "c"]
            assert await ids(until=7) == ["a", "b"]
            assert await ids(since=6, until=8) == ["b"]
            assert await ids(since=10) == []
            assert await store.tally(Filter(since=6)) == {("brief", Status.READY): 2}

    @on_loop
    async def test_several_sessions_are_found_with_their_descendants(self, place: Place) -> None:
        async with place.store() as store:
            for id in ("a", "b", "c"):
                root = await created(store, id, claim=False)
                child = await created(store, f"{id}.1", parent=root.key, claim=False)
                await created(store, f"{id}.1.1", parent=child.key, claim=False)
            found = await store.find(Filter(ids=("a", "c.1", "c.1.1"), tree=True))
            assert {row.session_id for row in found} == {"a", "a.1", "a.1.1", "c.1", "c.1.1"}
            assert len(found) == 5, "each once"
            await store.pause(Filter(ids=("a", "b.1"), tree=True), operator())
            paused = await store.ids(Filter(statuses=(Status.PAUSED,), sort="id"))
            assert paused == ["a", "a.1", "a.1.1", "b.1", "b.1.1"]

    @on_loop
    async def test_a_removed_session_is_no_longer_found_by_its_tag(self, place: Place) -> None:
        async with place.store() as store:
            for id in ("a", "b"):
                await store.create(new_session(id, tags=("x", "x", "y"), claim=False))
            for removal in await store.remove("a", "ann", "", 5):
                while await store.strip(removal.key, 100) is None:
                    pass
            assert await store.ids(Filter(tag="x")) == await store.ids(Filter(tag="y")) == ["b"]
            assert await store.check() == []

    @on_loop
    async def test_sessions_are_found_and_counted_by_status(self, place: Place) -> None:
        async with place.store() as store:
            now = place.clock.now()
            await started(store, "running")
            await started(store, "pausing")
            await store.pause(Filter(session_id="pausing"), operator())
            await store.create(new_session("created", claim=False))
            await store.create(new_session("paused", claim=False, pause=operator()))
            await parked(store, "ready")
            await parked(store, "due", waiting="message", wakes_at=0)
            await parked(store, "waiting", waiting="message", wakes_at=now + 1_000_000)
            await parked(store, "sleeping", wakes_at=now + 1_000_000)
            for id in ("completed", "failed", "cancelled"):
                await (await started(store, id, workflow="other")).commit(ended=id, release=True)
            expected = {row.session_id: row.status for row in await store.find(Filter())}
            assert set(expected.values()) == set(Status)
            for status in Status:
                found = await store.find(Filter(statuses=(status,)))
                assert {row.session_id for row in found} == {id for id in expected if expected[id] is status}, status
            some = await store.find(Filter(statuses=(Status.READY, Status.CREATED), limit=2))
            assert len(some) == 2
            ended = ("completed", "failed", "cancelled")
            counts = Counter(("other" if id in ended else "brief", status) for id, status in expected.items())
            assert await store.tally(Filter()) == counts
            assert await store.tally(Filter(workflow="other", statuses=(Status.FAILED,))) == {
                ("other", Status.FAILED): 1
            }

    @on_loop
    async def test_counts_agree_with_listings_whatever_the_filter(self, place: Place) -> None:
        async with place.store() as store:
            for n, ended in enumerate(("completed", "completed", "cancelled", "failed", None)):
                for workflow in ("brief", "other"):
                    driver = await started(store, f"{workflow}{n}", workflow=workflow, owner="ann" if n else None)
                    await driver.commit(ended=ended, release=True)
            await store.remove("brief0", None, "", 9000)
            for status in ((), (Status.COMPLETED,), (Status.CANCELLED, Status.READY), (Status.FAILED,)):
                for query in (
                    Filter(statuses=status), Filter(statuses=status, workflow="other"),
                    Filter(statuses=status, workflow="nothing"), Filter(statuses=status, unended=True),
                    Filter(statuses=status, failed=False), Filter(statuses=status, failed=True),
                    Filter(statuses=status, owner="ann"), Filter(statuses=status, level="root"),
                    Filter(statuses=status, since=1002),
                ):  # fmt: skip
                    found = await store.find(query)
                    counts = Counter((row.workflow, row.status) for row in found)
                    assert await store.tally(query) == counts, query
                    assert [row.session_id for row in found] == await store.ids(query), query

    @on_loop
    async def test_a_listing_shows_every_write_that_was_acknowledged(self, place: Place) -> None:
        async with place.store() as store:
            for n in range(1, 6):
                driver = await started(store, f"s{n}")
                assert len(await store.find(Filter())) == len(await store.ids(Filter())) == n
                await driver.commit(ended="completed", release=True)
                assert await store.tally(Filter()) == {("brief", Status.COMPLETED): n}

    @on_loop
    async def test_the_order_can_be_chosen_and_reversed(self, place: Place) -> None:
        async with place.store() as store:
            for id, workflow, spent in (("b", "x", 1), ("c", "y", 3), ("a", "x", 2)):
                driver = await started(store, id, workflow=workflow)
                place.clock.advance(1)
                await driver.commit(spend_usd=spent, updated_at=place.clock.now(), release=True)

            async def ids(sort: Sort, **query: Any) -> str:
                return "".join(row.session_id for row in await store.find(Filter(sort=sort, **query)))

            assert await ids("updated") == "acb"
            assert await ids("updated", reverse=True) == "bca"
            assert await ids("workflow") == "abc", "of each workflow the newest first"
            assert await ids("workflow", reverse=True) == "cba"
            assert await ids("spent", limit=2) == "ca"
            assert await ids("spent", reverse=True) == "bac"
            place.clock.advance(1)
            await Driver(store, await store.claim("b")).commit(spend_usd=9, updated_at=place.clock.now())
            assert await ids("spent", limit=2) == "bc", "a session that is driven is found too"
            assert await ids("workflow", limit=2) == "ab", "whatever was updated last"
            assert await ids("id") == "abc"
            assert await ids("id", reverse=True, limit=1) == "c"

    @on_loop
    async def test_sessions_are_found_by_their_input_and_by_the_beginning_of_their_id(self, place: Place) -> None:
        async with place.store() as store:
            for id, digest in (("ab", b"1" * 32), ("abc", b"1" * 32), ("b", b"2" * 32), ("a%", b"2" * 32)):
                await store.create(new_session(id, input_digest=digest))

            async def ids(**query: Any) -> set[str]:
                return {row.session_id for row in await store.find(Filter(**query))}

            assert await ids(input_digest=b"1" * 32) == {"ab", "abc"}
            assert await ids(prefix="ab") == {"ab", "abc"}
            assert await ids(prefix="a%") == {"a%"}
            assert await ids(prefix="abcd") == set()

    @on_loop
    async def test_failed_sessions_are_found_and_counted_even_if_they_are_paused(self, place: Place) -> None:
        async with place.store() as store:
            for id, ended in (("a", "failed"), ("b", "failed"), ("c", None), ("d", "completed")):
                await (await started(store, id)).commit(ended=ended, release=True)

            async def failed() -> tuple[set[str], dict[tuple[str, Status], int], set[str]]:
                rows, others = await store.find(Filter(failed=True)), await store.find(Filter(failed=False))
                counts = await store.tally(Filter(failed=True))
                return {row.session_id for row in rows}, counts, {row.session_id for row in others}

            assert await failed() == ({"a", "b"}, {("brief", Status.FAILED): 2}, {"c", "d"})
            await store.pause(Filter(session_id="a"), operator())
            both = {("brief", Status.FAILED): 1, ("brief", Status.PAUSED): 1}
            assert await failed() == ({"a", "b"}, both, {"c", "d"})
            assert [row.session_id for row in await store.find(Filter(failed=True, statuses=(Status.PAUSED,)))] == ["a"]
            await store.unpause("a", "ann", 6000)
            assert await failed() == ({"a", "b"}, {("brief", Status.FAILED): 2}, {"c", "d"})

    @on_loop
    async def test_filter_values_are_never_sql(self, place: Place) -> None:
        async with place.store() as store:
            await started(store)
            assert await store.find(Filter(owner="' OR 1=1 --", tag="'")) == []

    @on_loop
    async def test_a_session_created_with_several_records_is_at_the_last_one(self, place: Place) -> None:
        async with place.store() as store:
            new = new_session()
            first = new.records[0]
            second = seal(first.digest, 2, 1, "checkpoint", "first", 1, 1000, b"skipped")
            row = await created(store, records=(first, second), step="second")
            assert (row.seq, row.key_frame, row.digest, row.step) == (2, 1, second.digest, "second")
            assert await payloads(store, row.key) == [b"{}", b"skipped"]

    @on_loop
    async def test_sessions_have_keys_of_their_own(self, place: Place) -> None:
        async with place.store() as store:
            keys = {(await created(store, f"s{n}")).key for n in range(5)}
            assert len(keys) == 5

    @on_loop
    async def test_children_are_found_by_their_parent_and_in_its_tree(self, place: Place) -> None:
        async with place.store() as store:
            root = await created(store, "root", created_at=1)
            child = await created(store, "child", parent=root.key, created_at=2)
            await created(store, "grandchild", parent=child.key, created_at=3)
            await created(store, "other", created_at=4)

            async def ids(**query: Any) -> list[str]:
                return [row.session_id for row in await store.find(Filter(**query))]

            assert await ids(parent=root.key) == ["child"]
            assert await ids(session_id="root", tree=True) == ["grandchild", "child", "root"]
            assert await ids(session_id="child", tree=True) == ["grandchild", "child"]
            assert await ids(level="root") == ["other", "root"]
            assert await ids(level="top") == ["other", "root"]
            assert await ids(parent=root.key, level="top") == ["child"]
            assert await ids(prefix="grand", level="top") == ["grandchild"]
            assert await ids(prefix="grand", level="root") == []
            assert (await stored(store, "child")).parent == root.key

    @on_loop
    async def test_reading_a_session_that_does_not_exist_is_an_error(self, place: Place) -> None:
        async with place.store() as store:
            with pytest.raises(UnknownSession):
                await store.records(99, 1)
            with pytest.raises(UnknownSession):
                await store.signals(99, 0)
