"""Tests of `changes`: every write is found once, in order, from any mark, whatever was removed meanwhile."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from pausepoint.model.changes import Mark, Moved, Point
from pausepoint.model.sessions import Filter
from pausepoint.stores.base import Store
from pausepoint.testing.suite.base import Driver, Place, Suite, created, on_loop, operator, parked, started
from pausepoint.testing.suite.removal import stripped

Line = tuple[int, int]
"""A record or a signal in the order of a session's history: (seq, 0), or (the seq before it, n)."""


@dataclass
class Reader:
    """Follows a store, and keeps what it has read by session key."""

    mark: Mark | None = field(default_factory=Mark)
    lines: dict[int, list[Line]] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    resets: int = 0

    async def read(self, store: Store, limit: int, most: int | None = None) -> int:
        """Read up to ``most`` changes, or all, and return how many there were."""
        count = 0
        while True:
            page = await store.changes(self.mark, limit)
            if page is None:
                self.resets, self.mark = self.resets + 1, Mark()
                self.lines.clear()
                continue
            for moved in page.moved:
                if count == most:
                    return count
                await self.take(store, moved)
                self.mark = Mark.parse(str(moved.mark))
                count += 1
            self.mark = page.mark
            if not page.more:
                return count

    async def take(self, store: Store, moved: Moved) -> None:
        """Keep the records and signals of one change, in the order of the session's history."""
        if moved.stone is not None:
            self.removed.append(moved.stone.session_id)
            return
        signals = await store.signals(moved.key, moved.after, moved.last) if moved.after < moved.last else []
        seqs = range(moved.since, moved.until + 1)
        lines = [(seq, 0) for seq in seqs] + [(signal.after, signal.n) for signal in signals]
        self.lines.setdefault(moved.key, []).extend(sorted(lines))


async def history(store: Store) -> dict[int, list[Line]]:
    """Return the whole history of each session, as its log and its signals tell it."""
    found: dict[int, list[Line]] = {}
    for key, _, _ in await store.survey(0, 10_000):
        lines = [(record.seq, 0) for record in await store.records(key, 1)]
        lines += [(signal.after, signal.n) for signal in await store.signals(key, 0)]
        found[key] = sorted(lines)
    return found


class Writer:
    """Writes a random history: sessions, records, signals, pauses that take effect, and removals."""

    def __init__(self, store: Store, chance: random.Random, removes: bool = True) -> None:
        self.store, self.chance, self.removes = store, chance, removes
        self.drivers: dict[str, Driver] = {}
        self.count = 0

    async def write(self) -> None:
        """Make one random write."""
        acts = [self.begin, self.move, self.move, self.send, self.park] + [self.remove] * self.removes
        await self.chance.choice(acts)()

    async def begin(self) -> None:
        self.count += 1
        name = f"s{self.count}"
        self.drivers[name] = await started(self.store, name)

    async def move(self) -> None:
        if self.drivers:
            await self._any().commit(b"x" * self.chance.choice((1, 1, 1, 5000)))

    async def send(self) -> None:
        for row in (await self.store.find(Filter()))[:2]:
            await self.store.send(row.session_id, None, 1, b"{}")

    async def park(self) -> None:
        """Stop a session under the pause of everything: its commit writes a record and an earlier signal."""
        if self.drivers:
            name = self.chance.choice(list(self.drivers))
            await self.store.pause(Filter(), operator(standing=True))
            await self.drivers.pop(name).commit(release=True, only_if_paused=True)
            await self.store.lift(None, 6000)

    async def remove(self) -> None:
        rows = [row for row in await self.store.find(Filter()) if not row.live]
        if rows:
            row = self.chance.choice(rows)
            await self.store.remove(row.session_id, None, "", 9000)
            await stripped(self.store, row.key, 3)

    def _any(self) -> Driver:
        return self.drivers[self.chance.choice(list(self.drivers))]


class ChangeTests(Suite):
    """Tests of `changes` on one open store."""

    @on_loop
    async def test_changes_name_each_session_with_its_new_records_and_signals(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store, "root")
            child = await created(store, "child", parent=driver.key, claim=False)
            page = await store.changes(Mark(), 100)
            assert page is not None
            assert [(each.session_id, each.since, each.until, each.after, each.last) for each in page.moved] == [
                ("root", 1, 1, 0, 0),
                ("child", 1, 1, 0, 0),
            ]
            assert [each.above for each in page.moved] == [(), ("root",)]
            await driver.commit()
            await store.send("root", None, 1, b"{}")
            again = await store.changes(page.mark, 100)
            assert again is not None
            [moved] = again.moved
            assert (moved.key, moved.since, moved.until, moved.after, moved.last) == (driver.key, 2, 2, 0, 1)
            assert child.key != moved.key
            nothing = await store.changes(again.mark, 100)
            assert nothing is not None
            assert (nothing.moved, nothing.mark, nothing.more) == ((), again.mark, False)

    @on_loop
    async def test_the_present_mark_leaves_out_what_was_written_before(self, place: Place) -> None:
        async with place.store() as store:
            empty = await store.changes(None, 100)
            driver = await started(store)
            await store.send("s1", None, 1, b"{}")
            present = await store.changes(None, 100)
            assert empty is not None
            assert present is not None
            assert (present.moved, present.more) == ((), False)
            await driver.commit()
            for mark, since in ((empty.mark, 1), (present.mark, 2)):
                page = await store.changes(mark, 100)
                assert page is not None
                assert [(each.since, each.until) for each in page.moved] == [(since, 2)]

    @pytest.mark.parametrize("seed", range(4))
    @on_loop
    async def test_a_random_history_is_read_once_and_in_order(self, place: Place, seed: int) -> None:
        """The reader begins again from the text of its mark after every few changes, as after a kill."""
        chance = random.Random(seed)
        async with place.store() as store:
            writer, reader = Writer(store, chance, removes=False), Reader()
            for _ in range(60):
                await writer.write()
                if chance.random() < 0.3:
                    await reader.read(store, chance.choice((1, 2, 7)), chance.choice((0, 1, 2, 5)))
            await reader.read(store, chance.choice((1, 3, 100)))
            assert reader.lines == await history(store)
            assert reader.resets == 0

    @pytest.mark.parametrize("seed", range(4))
    @on_loop
    async def test_removals_make_nothing_missing_and_nothing_double(self, place: Place, seed: int) -> None:
        """Numbers of rows can be used again after a removal. Then the reader must be told to begin again."""
        chance = random.Random(seed)
        async with place.store() as store:
            writer, reader = Writer(store, chance), Reader()
            for _ in range(60):
                await writer.write()
                if chance.random() < 0.5:
                    await reader.read(store, chance.choice((1, 2, 7)), chance.choice((0, 1, 2, 5)))
            await reader.read(store, 5)
            expected = await history(store)
            assert {key: reader.lines.get(key) for key in expected} == expected
            assert set(reader.removed) == {stone.session_id for stone in await store.tombstones()}

    @on_loop
    async def test_a_removal_is_a_change_and_comes_before_a_new_session_with_that_id(self, place: Place) -> None:
        async with place.store() as store:
            row = await parked(store)
            await parked(store, "s2")
            page = await store.changes(None, 100)
            assert page is not None
            await store.remove("s1", "ann", "old", 9000)
            marked = await store.changes(page.mark, 100)
            assert marked is not None  # the last row that was read is another session's
            assert marked.moved == ()
            await stripped(store, row.key, 100)
            again = await created(store)
            reader = Reader(page.mark)
            await reader.read(store, 1)
            assert reader.removed == ["s1"]
            assert reader.lines == {again.key: [(1, 0)]}

    @on_loop
    async def test_a_mark_of_rows_that_the_store_does_not_have_is_lost(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            await store.send("s1", None, 1, b"{}")
            page = await store.changes(None, 100)
            assert page is not None
            point = page.mark.record
            for other in (Point(point.number, bytes(8)), Point(point.number + 1, point.digest), Point(2**63 - 1, b"x")):
                assert await store.changes(replace(page.mark, record=other), 100) is None
            assert await store.changes(replace(page.mark, stone=Point(9, bytes(8))), 100) is None
            await driver.commit()
            assert await store.changes(page.mark, 100) is not None


class SharedChangeTests(Suite):
    """Tests of `changes` with several engines."""

    @on_loop
    async def test_the_writes_of_all_engines_are_found_by_each_also_after_one_has_closed(self, place: Place) -> None:
        reader = Reader()
        async with place.store() as one:
            async with place.store() as two:
                first, second = await started(one, "a"), await started(two, "b")
                for _ in range(5):
                    await first.commit()
                    await second.commit()
                await reader.read(one, 3, 4)
            await reader.read(one, 3)
            assert reader.lines == await history(one)
