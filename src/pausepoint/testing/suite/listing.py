"""Tests of long lists of sessions: page by page, in every order."""

from __future__ import annotations

from itertools import chain
from typing import Any, get_args

from msgspec.structs import replace

from pausepoint.model.sessions import Failure, Filter, Pause, Position, Sort, Status, position
from pausepoint.stores.base import Store
from pausepoint.testing.suite.base import Driver, Place, Suite, created, on_loop, operator, started, stored

SORTS: tuple[Sort, ...] = get_args(Sort)


async def crowd(store: Store, driven: tuple[int, ...] = ()) -> None:
    """Create sessions that have several values of each sort in common. Three have a tag, and some are driven."""
    for n in range(7):
        tags = ("night",) if n % 3 == 1 or n == 6 else ()
        driver = await started(store, f"s{n * 3 % 7}", workflow="xyz"[n % 3], created_at=1000 + n // 2, tags=tags)
        await driver.commit(spend_usd=n % 2, updated_at=2000 + n // 3, release=n not in driven)


async def pages(store: Store, query: Filter, size: int) -> list[list[str]]:
    """Return the ids of all pages of a list."""
    found: list[list[str]] = []
    after: Position | None = None
    while len(found) < 20:
        page = await store.find(replace(query, limit=size, after=after))
        assert await store.ids(replace(query, limit=size, after=after)) == [row.session_id for row in page]
        found.append([row.session_id for row in page])
        if page.next is None:
            return found
        assert page.next == position(page[-1], query.sort)
        after = page.next
    raise AssertionError(f"the list of {query} does not end")


async def remove(store: Store, session_id: str) -> None:
    """Remove a session with everything that belongs to it."""
    for removal in await store.remove(session_id, "ann", "", 9000):
        while await store.strip(removal.key, 100) is None:
            pass


class ListingTests(Suite):
    """Tests of `find` and `ids` with a limit and a position, and of `first_pauses`."""

    @on_loop
    async def test_the_pages_of_a_list_are_the_list(self, place: Place) -> None:
        async with place.store() as store:
            await crowd(store, driven=(1, 5))
            for sort in SORTS:
                for reverse in (False, True):
                    query = Filter(sort=sort, reverse=reverse)
                    whole = [row.session_id for row in await store.find(query)]
                    assert len(whole) == 7
                    for size in (1, 2, 3, 7, 8):
                        found = await pages(store, query, size)
                        assert list(chain(*found)) == whole, (sort, reverse, size)
                        assert all(len(page) == size for page in found[:-1])
                        assert found[-1], "no page is empty"

    @on_loop
    async def test_a_reversed_list_is_the_list_backwards(self, place: Place) -> None:
        async with place.store() as store:
            await crowd(store)
            for sort in SORTS:
                there = await store.ids(Filter(sort=sort))
                assert await store.ids(Filter(sort=sort, reverse=True)) == there[::-1], sort

    @on_loop
    async def test_what_is_added_or_removed_between_two_pages_moves_nothing_else(self, place: Place) -> None:
        async with place.store() as store:
            await crowd(store)
            for n, (sort, reverse) in enumerate((sort, reverse) for sort in SORTS for reverse in (False, True)):
                query = Filter(sort=sort, reverse=reverse)
                before = await store.ids(query)
                first = await store.find(replace(query, limit=3))
                await created(store, f"a{n}", workflow="a", created_at=1, claim=False)
                await created(store, f"z{n}", workflow="z", created_at=10**9, claim=False)
                rest = await store.ids(replace(query, after=first.next))
                assert [id for id in rest if id in before] == before[3:], (sort, reverse)
                assert not {row.session_id for row in first} & set(rest)

    @on_loop
    async def test_a_page_begins_after_a_session_that_was_removed(self, place: Place) -> None:
        async with place.store() as store:
            await crowd(store)
            for sort in SORTS:
                whole = await store.ids(Filter(sort=sort))
                first = await store.find(Filter(sort=sort, limit=2))
                await remove(store, first[-1].session_id)
                assert await store.ids(Filter(sort=sort, after=first.next)) == whole[2:], sort

    @on_loop
    async def test_pages_keep_the_filters_and_counts_do_not_depend_on_the_page(self, place: Place) -> None:
        async with place.store() as store:
            await crowd(store, driven=(1, 5))
            queries: list[dict[str, Any]] = [
                {"workflow": "x"}, {"since": 2001}, {"statuses": (Status.READY,)}, {"prefix": "s"}, {"level": "root"},
                {"tag": "night"}, {"tag": "night", "workflow": "y"}, {"tag": "night", "statuses": (Status.READY,)},
            ]  # fmt: skip
            for given in queries:
                for sort in SORTS:
                    query = Filter(**given, sort=sort)
                    whole = await store.ids(query)
                    assert whole, given
                    for reverse, listed in ((False, whole), (True, whole[::-1])):
                        found = await pages(store, replace(query, reverse=reverse), 2)
                        assert list(chain(*found)) == listed, (given, sort, reverse)
                    after = position(await stored(store, whole[0]), sort)
                    count = sum((await store.tally(replace(query, after=after, limit=1))).values())
                    assert count == len(whole), given

    @on_loop
    async def test_a_page_of_the_topmost_sessions_has_a_child_whose_parent_lacks_the_tag(self, place: Place) -> None:
        async with place.store() as store:
            for id, tags in (("root", ()), ("other", ("night",))):
                parent = await created(store, id, tags=tags, claim=False)
                await created(store, f"{id}-child", tags=("night",), parent=parent.key, claim=False)
            query = Filter(tag="night", level="top", limit=3, reverse=True)
            assert [row.session_id for row in await store.find(query)] == ["root-child", "other"]

    @on_loop
    async def test_only_a_limit_that_leaves_something_out_has_a_next_page(self, place: Place) -> None:
        async with place.store() as store:
            await crowd(store)
            assert (await store.find(Filter())).next is None
            assert (await store.find(Filter(limit=7))).next is None
            assert (await store.find(Filter(limit=6))).next is not None
            last = (await store.find(Filter(limit=0))).next
            assert last is None, "a page without sessions has no last one"

    @on_loop
    async def test_the_first_open_pauses_of_several_sessions_are_read_at_once(self, place: Place) -> None:
        async with place.store() as store:
            keys = {id: (await created(store, id, claim=False)).key for id in ("a", "b", "c", "d")}
            guard = Pause("g1", "guard", "too dear", None, 4000)
            await Driver(store, await store.claim("b")).commit(open_pauses=(guard,), release=True)
            for id, reason in (("a", "lunch"), ("b", "night"), ("c", "gone")):
                await store.pause(Filter(session_id=id), operator(reason))
            await store.unpause("c", "ann", 6000)
            found = await store.first_pauses([*keys.values(), 999])
            assert found == {keys[id]: (await store.pauses(keys[id]))[0] for id in ("a", "b")}
            assert found[keys["a"]].reason == "lunch"
            assert found[keys["b"]].kind == "guard", "the oldest comes first"
            assert await store.first_pauses([keys["c"]]) == await store.first_pauses([]) == {}

    @on_loop
    async def test_the_pause_of_everything_is_the_first_pause_of_what_it_stops(self, place: Place) -> None:
        async with place.store() as store:
            row, done = await created(store, "a", claim=False), await started(store, "b")
            await done.commit(ended="completed", release=True)
            await store.pause(Filter(), operator("fire", at=7000, standing=True))
            new = await created(store, "c", claim=False)
            found = await store.first_pauses([row.key, done.key, new.key])
            assert {key: (each.reason, each.standing) for key, each in found.items()} == {
                row.key: ("fire", True), new.key: ("fire", True),
            }  # fmt: skip
            assert found == {key: (await store.pauses(key))[0] for key in found}
            await store.lift("ann", 8000)
            assert await store.first_pauses([row.key, done.key, new.key]) == {}

    @on_loop
    async def test_own_pauses_are_told_apart_from_the_pause_of_everything(self, place: Place) -> None:
        async with place.store() as store:
            for id in ("a", "b", "c", "d"):
                await created(store, id, claim=False, owner="ann" if id == "b" else None)
            guard = Pause("g1", "guard", "too dear", None, 4000)
            await Driver(store, await store.claim("a")).commit(open_pauses=(guard,), release=True)
            await Driver(store, await store.claim("d")).commit(ended="completed", release=True)
            await store.pause(Filter(session_id="b"), operator("lunch"))
            assert sorted(await store.ids(Filter(own_pause=True))) == ["a", "b"]
            await store.pause(Filter(), operator("fire", at=7000, standing=True))
            assert sorted(await store.ids(Filter(statuses=(Status.PAUSED,)))) == ["a", "b", "c"]
            assert sorted(await store.ids(Filter(own_pause=True))) == ["a", "b"]
            assert await store.ids(Filter(own_pause=True, owner="ann")) == ["b"]
            assert await store.tally(Filter(own_pause=True)) == {("brief", Status.PAUSED): 2}
            await store.pause(Filter(session_id="c"), operator("too"))
            assert sorted(await store.ids(Filter(own_pause=True))) == ["a", "b", "c"]
            await store.unpause("b", "ann", 8000)
            assert sorted(await store.ids(Filter(own_pause=True))) == ["a", "c"]

    @on_loop
    async def test_spending_is_added_up_by_workflow(self, place: Place) -> None:
        async with place.store() as store:
            assert await store.spending(Filter()) == {}
            root = await started(store, "root", workflow="x", owner="ann")
            child = await started(store, "child", workflow="y", parent=root.key, owner="ann")
            await child.commit(spend_usd=20, parent=root.key, release=True)
            await root.commit(spend_usd=1, release=True, ended="completed")
            await (await started(store, "other", workflow="x")).commit(spend_usd=300, release=True)
            assert await store.spending(Filter()) == {"x": 321, "y": 20}
            assert await store.spending(Filter(level="root")) == {"x": 321}
            assert await store.spending(Filter(level="root", owner="ann")) == {"x": 21}
            assert await store.spending(Filter(workflow="y")) == {"y": 20}
            await remove(store, "root")
            assert await store.spending(Filter()) == {"x": 300}

    @on_loop
    async def test_a_row_counts_what_reached_the_session_from_outside(self, place: Place) -> None:
        async with place.store() as store:
            row = await created(store, claim=False)
            assert row.signals == 0
            await store.pause(Filter(session_id="s1"), operator())
            assert ((await stored(store)).signals, (await stored(store)).seq) == (1, row.seq)
            await store.unpause("s1", "ann", 6000)
            await store.send("s1", "ann", 7000, b"{}")
            row = await stored(store)
            assert row.signals == len(await store.signals(row.key, 0)) == 3
            assert (await store.claim("s1")).signals == 3

    @on_loop
    async def test_sessions_are_found_by_a_part_of_what_a_person_sees(self, place: Place) -> None:
        async with place.store() as store:
            await created(store, "Brief-1", owner="ann@example.com", claim=False)
            await created(store, "b", tags=("Night-run", "x", 'say "Ü\\n"', "tab\t"), claim=False)
            failing = await started(store, "c")
            failure = Failure("first", "LookupError", "no PRICE for 100%_", traceback="line 7 of secret.py")
            await failing.commit(ended="failed", failure=failure, release=True)
            await created(store, "d", claim=False, pause=operator("Waiting for Legal"))
            await created(store, "e", claim=False, pause=operator("over lunch"))
            await store.unpause("e", "ann", 6000)

            async def ids(text: str, **query: Any) -> list[str]:
                found = await store.ids(Filter(text=text, sort="id", **query))
                assert sum((await store.tally(Filter(text=text, **query))).values()) == len(found)
                return found

            assert await ids("rief") == await ids("BRIEF") == await ids("@EXAMPLE") == ["Brief-1"]
            assert await ids("night") == await ids("t-r") == ["b"]
            assert await ids("price for") == await ids("lookup") == await ids("100%_") == ["c"]
            assert await ids("for legal") == ["d"]
            assert await ids("lunch") == [], "the pause is closed"
            assert await ids("secret") == [], "a traceback is not searched"
            assert await ids("%") == await ids("_") == await ids("%_") == ["c"]
            assert await ids('y "Ü') == await ids("\\N") == await ids('"') == await ids("B\t") == ["b"]
            assert await ids("*") == await ids("?") == await ids("[") == await ids('","') == await ids("message") == []
            assert await ids("' OR 1=1 --") == await ids("x" * 60_000) == []
            assert await ids("") == ["Brief-1", "b", "c", "d", "e"]
            assert await ids("e", owner="ann@example.com") == ["Brief-1"]
            assert await ids("i", statuses=(Status.FAILED, Status.PAUSED)) == ["c", "d"]

    @on_loop
    async def test_the_reason_of_the_pause_of_everything_is_found_where_it_stops_a_session(self, place: Place) -> None:
        async with place.store() as store:
            for id in ("a", "b"):
                await created(store, id, claim=False)
            await store.pause(Filter(), operator("Fire drill", standing=True))
            await store.unpause("b", "ann", 6000)
            await created(store, "c", claim=False)
            assert await store.ids(Filter(text="fire", sort="id")) == ["a", "c"]
            await store.lift("ann", 7000)
            assert await store.ids(Filter(text="fire")) == []
