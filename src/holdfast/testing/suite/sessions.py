"""Creating sessions and finding them again."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import HoldLost, UnknownSession
from holdfast.model import Filter, Status, seal
from holdfast.testing.suite.base import (
    Driver,
    Place,
    Suite,
    created,
    new_session,
    on_loop,
    operator,
    payloads,
    started,
    stored,
)


class SessionTests(Suite):
    """`create`, `get` and `find`."""

    @on_loop
    async def test_a_created_session_reads_back_as_it_was_given(self, place: Place) -> None:
        async with place.store() as store:
            new = new_session(owner="ann", tags=("a", "b"), budget_usd=5_000_000, visit=3, version=2)
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
    async def test_find_combines_what_is_given_and_lists_the_newest_first(self, place: Place) -> None:
        async with place.store() as store:
            await store.create(new_session("a", owner="ann", tags=("x",), created_at=1))
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

    @on_loop
    async def test_filter_values_are_never_sql(self, place: Place) -> None:
        async with place.store() as store:
            await started(store)
            assert await store.find(Filter(owner="' OR 1=1 --", tag="'")) == []

    @on_loop
    async def test_a_session_created_with_several_records_stands_at_the_last(self, place: Place) -> None:
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
            assert (await stored(store, "child")).parent == root.key

    @on_loop
    async def test_what_is_asked_about_a_session_that_does_not_exist_is_an_error(self, place: Place) -> None:
        async with place.store() as store:
            with pytest.raises(UnknownSession):
                await store.records(99, 1)
            with pytest.raises(UnknownSession):
                await store.signals(99, 0)
