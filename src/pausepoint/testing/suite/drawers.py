"""Tests of drawers: nothing that was stored is lost, doubled or mixed up, and they share the fate of their session."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from pausepoint.errors import DrawerRefused, UnknownSession, VersionConflict
from pausepoint.model.drawers import Change, DrawerId, DrawerInfo, DrawerValue, Range, StoredDrawer
from pausepoint.stores.base import Store
from pausepoint.testing.suite.base import Driver, Place, Suite, created, new_session, on_loop, parked, started, stored

LG, OTHER, OWN = DrawerId("lg"), DrawerId("other"), DrawerId("lg", "s1")
BYTES = bytes(range(256))


def puts(**values: bytes) -> list[Change]:
    """Return changes that store values."""
    return [Change(key, data) for key, data in values.items()]


async def filled(store: Store, drawer: DrawerId) -> None:
    """Store two streams and two values in a drawer."""
    await store.drawer_append(drawer, "a/1", [b"1", BYTES], lambda old, now: b"note")
    await store.drawer_append(drawer, "b", [b""], None)
    await store.drawer_put(drawer, puts(k=b"v", empty=b""))


async def content(store: Store, drawer: DrawerId) -> dict[str, Any]:
    """Return everything in a drawer, without times."""
    found: dict[str, Any] = {key: value.data for key, value in (await store.drawer_find(drawer, Range())).items()}
    for info in await store.drawer_streams(drawer):
        found[f"stream {info.stream}"] = info.n, info.note, await store.drawer_read(drawer, info.stream)
    return found


FILLED = {"k": b"v", "empty": b"", "stream a/1": (2, b"note", [b"1", BYTES]), "stream b": (1, None, [b""])}
"""The content of a drawer after `filled`."""


class DrawerTests(Suite):
    """Tests of the verbs about drawers."""

    @on_loop
    async def test_a_stream_returns_what_was_appended_in_order(self, place: Place) -> None:
        async with place.store() as store:
            assert await store.drawer_read(LG, "s") is None
            assert await store.drawer_append(LG, "s", [], None) == 0
            assert await store.drawer_read(LG, "s") == []
            assert await store.drawer_append(LG, "s", [b"1", BYTES], None) == 2
            assert await store.drawer_append(LG, "s", [b"", b"4"], None) == 4
            for given, expected in (
                ((0, None), [b"1", BYTES, b"", b"4"]), ((2, None), [b"", b"4"]), ((4, None), []), ((9, None), []),
                ((2**70, None), []), ((0, 2**70), [b"1", BYTES, b"", b"4"]),
                ((0, 1), [b"4"]), ((3, 2), [b"4"]), ((0, 0), []), ((0, 9), [b"1", BYTES, b"", b"4"]),
            ):  # fmt: skip
                assert await store.drawer_read(LG, "s", *given) == expected, given
            assert [each.n for each in await store.drawer_streams(LG)] == [4]

    @on_loop
    async def test_the_last_entry_is_popped_and_its_number_used_again(self, place: Place) -> None:
        async with place.store() as store:
            await store.drawer_append(LG, "s", [b"1", b"2"], lambda old, now: b"note")
            assert await store.drawer_pop(LG, "s") == b"2"
            assert await store.drawer_append(LG, "s", [b"3"], None) == 2
            assert [await store.drawer_pop(LG, "s") for _ in range(3)] == [b"3", b"1", None]
            assert await store.drawer_pop(LG, "nothing") is None
            (info,) = await store.drawer_streams(LG)
            assert (info.n, info.note, await store.drawer_read(LG, "s")) == (0, b"note", [])
            assert await store.drawer_append(LG, "s", [b"4"], None) == 1
            assert await store.drawer_read(LG, "s") == [b"4"]
            assert await store.drawer_damage() == []

    @on_loop
    async def test_the_time_of_a_change_is_larger_than_all_before_in_its_drawer(self, place: Place) -> None:
        async with place.store() as store:
            seen: list[int] = []

            def note(old: bytes | None, now: int) -> bytes:
                seen.append(now)
                return b"%d" % now

            for stream in ("a", "b", "a"):
                await store.drawer_append(LG, stream, [b"x"], note)
            await store.drawer_pop(LG, "b")
            first, second = await store.drawer_streams(LG)
            assert seen[0] == place.clock.now() // 1000
            assert seen == sorted(set(seen))
            assert (first.changed, first.note) == (seen[-1], b"%d" % seen[-1])
            assert second.changed > first.changed, "a pop is a change, too"
            await store.drawer_drop(LG, ["a", "b"])
            await store.drawer_append(LG, "a", [], note)
            assert seen[-1] > second.changed, "the drawer remembers, although the streams are gone"
            place.clock.advance(60)
            await store.drawer_append(LG, "a", [], note)
            assert seen[-1] == place.clock.now() // 1000

    @on_loop
    async def test_a_note_that_cannot_be_made_stores_nothing(self, place: Place) -> None:
        def fails(old: bytes | None, now: int) -> bytes:
            raise ZeroDivisionError

        async with place.store() as store:
            await store.drawer_append(LG, "s", [b"1"], lambda old, now: b"first")
            for stream in ("s", "new"):
                with pytest.raises(ZeroDivisionError):
                    await store.drawer_append(LG, stream, [b"2"], fails)
            with pytest.raises(TypeError):
                await store.drawer_append(LG, "s", [b"2"], lambda old, now: "text")  # type: ignore[arg-type, return-value]
            assert await content(store, LG) == {"stream s": (1, b"first", [b"1"])}
            await store.drawer_append(LG, "s", [b"2"], None)
            await store.drawer_append(LG, "s", [], lambda old, now: None)
            assert await content(store, LG) == {"stream s": (2, None, [b"1", b"2"])}

    @on_loop
    async def test_a_fold_that_raises_anything_ends_its_own_call_only(self, place: Place) -> None:
        async with place.store() as store:
            for number, error in enumerate((StopIteration, asyncio.CancelledError, GeneratorExit), 1):

                def fails(old: bytes | None, now: int, error: type[BaseException] = error) -> bytes:
                    raise error

                found = await asyncio.gather(
                    store.drawer_append(LG, "s", [b"x"], fails), store.drawer_append(LG, "t", [b"x"], None),
                    store.drawer_put(LG, puts(k=b"v")), return_exceptions=True,
                )  # fmt: skip
                assert isinstance(found[0], RuntimeError), (error, found)
                assert [*found[1:]] == [number, [number]], error
            assert await store.drawer_read(LG, "s") is None

    @on_loop
    async def test_streams_are_listed_by_prefix_and_dropped_with_their_entries(self, place: Place) -> None:
        async with place.store() as store:
            for stream in ("a/2", "a%", "a/1", "a_1", "b", "A/1"):
                await store.drawer_append(LG, stream, [stream.encode()], None)
            assert [each.stream for each in await store.drawer_streams(LG, "a/")] == ["a/1", "a/2"]
            assert [each.stream for each in await store.drawer_streams(LG, "a%")] == ["a%"]
            assert await store.drawer_drop(LG, ["a/1", "a_1", "nothing", "a/1"]) == 2
            assert await store.drawer_read(LG, "a/1") is None
            assert await store.drawer_append(LG, "a/1", [b"again"], None) == 1
            assert await store.drawer_read(LG, "a/1") == [b"again"]
            assert await store.drawer_read(LG, "a/2") == [b"a/2"]

    @on_loop
    async def test_a_value_is_replaced_only_under_the_version_that_the_caller_knows(self, place: Place) -> None:
        async with place.store() as store:
            (first,) = await store.drawer_put(LG, [Change("k", b"1", if_version=0)])
            assert first > 0
            (second,) = await store.drawer_put(LG, [Change("k", b"2", if_version=first)])
            assert second > first
            for expected in (first, 0, second + 1):
                with pytest.raises(VersionConflict) as refused:
                    await store.drawer_put(LG, [Change("new", b"x"), Change("k", b"3", if_version=expected)])
                assert (refused.value.key, refused.value.expected, refused.value.found) == ("k", expected, second)
            with pytest.raises(VersionConflict):
                await store.drawer_put(LG, [Change("new", b"x", if_version=second)])
            with pytest.raises(VersionConflict):
                await store.drawer_put(OTHER, [Change("new", b"x", if_version=1)])
            assert await store.drawer_get(LG, ["k", "new"]) == {"k": DrawerValue(b"2", second)}, (
                "a refusal writes nothing"
            )
            assert await store.drawers() == [DrawerInfo("lg", None, 0, 1, 1)]

    @on_loop
    async def test_no_version_of_a_key_is_used_twice(self, place: Place) -> None:
        async with place.store() as store:
            (first,) = await store.drawer_put(LG, puts(k=b"1"))
            assert await store.drawer_put(LG, [Change("k", None, if_version=first)]) == [0]
            (second,) = await store.drawer_put(LG, puts(k=b"1"))
            await store.drawer_clear(LG)
            (third,) = await store.drawer_put(LG, puts(k=b"1"))
            assert first < second < third
            with pytest.raises(VersionConflict):
                await store.drawer_put(LG, [Change("k", b"2", if_version=first)])

    @on_loop
    async def test_several_values_change_together_and_new_ones_replace_nothing(self, place: Place) -> None:
        async with place.store() as store:
            await store.drawer_put(LG, puts(a=b"1", b=b"2", c=b"3"))
            a = (await store.drawer_get(LG, ["a"]))["a"]
            versions = await store.drawer_put(
                LG, [Change("a", b"no", only_new=True), Change("d", b"4", only_new=True), Change("b", None),
                     Change("c", b"5"), Change("nothing", None)],
            )  # fmt: skip
            found = await store.drawer_get(LG, ["d", "c", "b", "a", "nothing"])
            assert {key: value.data for key, value in found.items()} == {"d": b"4", "c": b"5", "a": b"1"}
            assert list(found) == ["d", "c", "a"], "in the order of the keys"
            assert versions == [a.version, found["d"].version, 0, found["c"].version, 0]
            assert len({value.version for value in found.values()}) == 3

    @on_loop
    async def test_values_are_found_in_a_range_of_keys_by_code_points(self, place: Place) -> None:
        keys = ["a", "a/", "a/1", "a/\ue000", "a/\uffff", "a/\U00010000", "a0", "a_1", "ä", "\U0001f600"]
        async with place.store() as store:
            await store.drawer_put(LG, [Change(key, key.encode()) for key in reversed(keys)])
            await store.drawer_put(OTHER, puts(b=b""))
            for asked, expected in (
                (Range(), keys), (Range("a/"), keys[1:6]), (Range("a_"), ["a_1"]), (Range("b"), []),
                (Range("a", after="a/1", before="a0"), keys[3:6]), (Range(after="a_1"), keys[8:]),
                (Range("a/", limit=2), keys[1:3]), (Range("a/", limit=2, last=True), keys[4:6]),
                (Range(before="a/1", limit=1, last=True), ["a/"]), (Range(limit=0), []), (Range(limit=99), keys),
                (Range(limit=2**70), keys), (Range("a/1", after="a"), ["a/1"]),
                (Range("a", after="a/1", limit=1), keys[3:4]),
                (Range("a/", before="a"), []), (Range("\U0001f600"), keys[9:]),
            ):  # fmt: skip
                found = await store.drawer_find(LG, asked)
                assert list(found) == expected, asked
                assert [value.data.decode() for value in found.values()] == expected
            for prefix, expected in (("", keys), ("a/", keys[1:6]), ("b", [])):
                assert await store.drawer_keys(LG, prefix) == expected
            assert await store.drawer_clear(LG, "a/") == 5
            assert list(await store.drawer_find(LG, Range())) == ["a", "a0", "a_1", "ä", "\U0001f600"]
            assert await store.drawer_clear(LG, "nothing") == 0

    @on_loop
    async def test_drawers_are_separate(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store)
            await parked(store, "s2")
            second = DrawerId("lg", "s2")
            await filled(store, OWN)
            for other in (LG, OTHER, second):
                assert await content(store, other) == {}
                await store.drawer_append(other, "b", [b"mine"], None)
            assert await content(store, OWN) == FILLED
            assert await store.drawer_drop(second, ["a/1"]) == 0
            assert await store.drawer_clear(LG) == 0
            assert await content(store, OWN) == FILLED
            assert [each.name for each in await store.drawers()] == ["lg", "other"]
            assert await store.drawers("s1") == [DrawerInfo("lg", "s1", 2, 2, 262)]
            assert await store.drawers("s2") == [DrawerInfo("lg", "s2", 1, 0, 4)]

    @on_loop
    async def test_a_drawer_leaves_its_session_alone(self, place: Place) -> None:
        async with place.store() as store:
            driver = await started(store)
            before = await stored(store)
            await filled(store, OWN)
            assert await stored(store) == before
            await driver.commit(release=True, ended="completed")
            ended = await stored(store)
            await store.drawer_append(OWN, "b", [b"late"], None)
            assert await stored(store) == ended, "what has ended may still be described"
            assert await store.drawer_read(OWN, "b") == [b"", b"late"]

    @on_loop
    async def test_without_its_session_there_is_no_drawer(self, place: Place) -> None:
        async with place.store() as store:
            row = await parked(store)
            await filled(store, OWN)
            await filled(store, LG)
            before = await store.weight("s1")
            assert before >= 262
            await store.drawer_append(OWN, "b", [], lambda old, now: bytes(1000))
            assert await store.weight("s1") == before + 1000
            await store.remove("s1", None, "", 9000)
            gone = DrawerId("lg", "nobody")
            for drawer in (OWN, gone):
                for verb in (
                    store.drawer_append(drawer, "s", [b""], None), store.drawer_put(drawer, puts(k=b"")),
                    store.drawer_read(drawer, "a/1"), store.drawer_get(drawer, ["k"]), store.drawer_pop(drawer, "s"),
                    store.drawer_find(drawer, Range()), store.drawer_streams(drawer), store.drawer_drop(drawer, ["s"]),
                    store.drawer_keys(drawer), store.drawer_clear(drawer), store.drawers(drawer.session_id),
                    store.drawer_damage(drawer.session_id),
                ):  # fmt: skip
                    with pytest.raises(UnknownSession):
                        await verb
            while await store.strip(row.key, 2) is None:
                pass
            await parked(store)
            assert await content(store, OWN) == {}, "the next session of this id has its own drawers"
            assert await content(store, LG) == FILLED
            assert await store.check() == []

    @on_loop
    async def test_a_redaction_empties_a_drawer_with_its_commit(self, place: Place) -> None:
        async with place.store() as store:
            row = await parked(store)
            other = DrawerId("other", "s1")
            for drawer in (OWN, other, LG):
                await filled(store, drawer)
            (stale,) = await store.drawer_put(OWN, puts(k=b"v"))
            (before, _) = await store.drawer_streams(OWN)
            commit = Driver(store, row).next(kind="event", release=True, empty_drawers=("lg",))
            await store.revise(commit)
            assert await content(store, OWN) == {}
            assert await content(store, other) == await content(store, LG) == FILLED
            assert [each.name for each in await store.drawers("s1")] == ["other"]
            (version,) = await store.drawer_put(OWN, puts(k=b"new"))
            with pytest.raises(VersionConflict):
                await store.drawer_put(OWN, [Change("k", b"stale", if_version=stale)])
            assert version > stale, "the drawer remembers, although its content is gone"
            await store.drawer_append(OWN, "a/1", [], None)
            assert (await store.drawer_streams(OWN))[0].changed > before.changed
            assert await store.drawer_damage("s1") == await store.check() == []

    @on_loop
    async def test_a_fork_gets_a_copy(self, place: Place) -> None:
        async with place.store() as store:
            row = await parked(store)
            await filled(store, OWN)
            await store.drawer_put(OWN, puts(k=b"v"))
            (version,) = await store.drawer_put(OWN, puts(k=b"v"))
            await store.create(new_session("s2", drawers_of=row.key))
            copy = DrawerId("lg", "s2")
            assert await content(store, copy) == FILLED
            assert (await store.drawer_get(copy, ["k"]))["k"].version == version
            assert await store.drawer_streams(copy) == await store.drawer_streams(OWN)
            await store.drawer_append(copy, "b", [b"more"], None)
            await store.drawer_put(copy, puts(k=b"new"))
            assert await content(store, OWN) == FILLED
            assert await store.drawer_append(OWN, "b", [b"other"], None) == 2
            assert await store.drawer_read(copy, "b") == [b"", b"more"]
            assert await store.drawer_damage("s2") == await store.drawer_damage("s1") == []
            await store.remove("s1", None, "", 9000)
            with pytest.raises(UnknownSession) as unknown:
                await store.create(new_session("s3", drawers_of=row.key))
            assert unknown.value.session_id == "s1"
            assert await content(store, copy) == FILLED | {"k": b"new", "stream b": (2, None, [b"", b"more"])}

    @on_loop
    async def test_drawers_are_exported_and_imported_as_they_were(self, place: Place) -> None:
        async with place.store() as store:
            row = await parked(store)
            await filled(store, OWN)
            await filled(store, LG)
            (whole,) = await store.whole("s1")
            own = await store.whole_drawer("lg")
            assert own is not None
            assert len(own.streams) == len(own.values) == 2
            assert not await store.import_drawer(own)
            assert await store.whole_drawer("nothing") is None
            assert await store.import_drawer(replace(own, name="copy"))
            assert await content(store, DrawerId("copy")) == FILLED
            (version,) = await store.drawer_put(OTHER, puts(k=b""))
            assert not await store.import_drawer(replace(own, name="other", version=0))
            await store.drawer_clear(OTHER)
            assert await store.import_drawer(replace(own, name="other", version=0, values=[]))
            assert await store.drawer_put(OTHER, puts(k=b"")) == [version + 1], "an empty one is replaced"
            await store.remove("s1", None, "", 9000)
            while await store.strip(row.key, 100) is None:
                pass
            assert await store.import_([whole])
            assert await content(store, OWN) == FILLED
            assert (await store.whole("s1"))[0].drawers == whole.drawers
            (version,) = await store.drawer_put(OWN, puts(k=b"new"))
            assert version > max(each.version for each in whole.drawers[0].values)
            await store.drawer_append(OWN, "b", [], None)
            assert (await store.drawer_streams(OWN, "b"))[0].changed > whole.drawers[0].changed

    @on_loop
    async def test_an_import_with_names_that_are_not_valid_stores_nothing(self, place: Place) -> None:
        async with place.store() as store:
            row = await parked(store)
            await filled(store, OWN)
            (whole,) = await store.whole("s1")
            await store.remove("s1", None, "", 9000)
            while await store.strip(row.key, 100) is None:
                pass
            (drawer,) = whole.drawers
            stream, value = drawer.streams[0], drawer.values[0]
            bad: list[list[StoredDrawer]] = [
                [replace(drawer, name="../x")], [drawer, drawer], [replace(drawer, version=0)],
                [replace(drawer, streams=[replace(stream, stream="")])], [replace(drawer, streams=[stream, stream])],
                [replace(drawer, values=[replace(value, key="a\0")])], [replace(drawer, keep_for=-1)],
                [replace(drawer, values=[replace(value, changed=2**63)])],
                [replace(drawer, values=[replace(value, version=0)])], [replace(drawer, changed=2**62)],
                [replace(drawer, version=2**62)], [replace(drawer, values=[replace(value, changed=2**62)])],
            ]  # fmt: skip
            for drawers in bad:
                with pytest.raises(DrawerRefused):
                    await store.import_([replace(whole, drawers=drawers)])
            assert await store.get("s1") is None

    @on_loop
    async def test_only_what_was_not_changed_for_its_time_expires(self, place: Place) -> None:
        async with place.store() as store:
            await parked(store)
            for drawer in (LG, OTHER, OWN):
                await filled(store, drawer)
            now = place.clock.now()
            assert await store.expire_drawers(now * 1000, 100) == 0, "nothing says how long they are kept"
            await store.drawer_put(LG, puts(k=b"v"), 60_000_000)
            await store.drawer_put(LG, puts(k=b"v"))
            place.clock.advance(30)
            await store.drawer_append(LG, "b", [b"new"], None)
            await store.drawer_put(LG, puts(k=b"new"))
            assert await store.expire_drawers(now + 59_000_000, 100) == 0
            done = 0
            while count := await store.expire_drawers(now + 61_000_000, 1):
                done += count
            assert done == 2
            assert await content(store, LG) == {"k": b"new", "stream b": (2, None, [b"", b"new"])}
            assert await content(store, OTHER) == await content(store, OWN) == FILLED
            assert (await store.check(), await store.drawer_damage()) == ([], [])

    @on_loop
    async def test_a_long_stream_expires_as_a_whole_and_is_deleted_in_portions(self, place: Place) -> None:
        """What expires disappears at once, also if the process is killed before the last portion."""
        async with place.store() as store:
            await store.drawer_append(LG, "long", [b"x"] * 25, None, 60_000_000)
            await store.drawer_append(LG, "short", [b"x"], None)
            later = place.clock.now() + 61_000_000
            assert await store.expire_drawers(later, 10) == 2
            assert await content(store, LG) == {}
        async with place.store() as store:
            assert await store.drawer_append(LG, "long", [b"new"], None) == 1
            assert (await store.check(), await store.drawer_damage()) == ([], [])
            while count := await store.delete_discarded(10):
                assert count <= 10
                assert (await store.check(), await store.drawer_damage()) == ([], [])
            assert await content(store, LG) == {"stream long": (1, None, [b"new"])}


class SharedDrawerTests(Suite):
    """Tests of drawers with several engines."""

    @on_loop
    async def test_what_is_stored_is_there_for_other_engines_and_after_they_close(self, place: Place) -> None:
        async with place.store() as first:
            async with place.store() as second:
                await created(first)
                await filled(second, OWN)
                await filled(second, LG)
                assert await content(first, OWN) == FILLED
            assert await content(first, LG) == FILLED
        async with place.store() as third:
            assert await content(third, LG) == await content(third, OWN) == FILLED

    @on_loop
    async def test_engines_that_append_at_once_lose_and_double_nothing(self, place: Place) -> None:
        async with place.store() as first, place.store() as second:
            given = [b"%d" % n for n in range(40)]

            def count(old: bytes | None, now: int) -> bytes:
                return b"%d" % (int(old or b"0") + 1)

            numbers = await asyncio.gather(
                *((first, second)[n % 2].drawer_append(LG, "s", [each], count) for n, each in enumerate(given))
            )
            assert sorted(numbers) == list(range(1, 41))
            found = await first.drawer_read(LG, "s")
            assert found is not None
            assert [found[n - 1] for n in numbers] == given
            assert (await second.drawer_streams(LG))[0].note == b"40"
            assert await second.drawer_damage() == []

    @on_loop
    async def test_of_several_that_replace_a_value_at_once_one_does(self, place: Place) -> None:
        async with place.store() as first, place.store() as second:
            version = 0
            for turn in range(5):
                found = await asyncio.gather(
                    *(
                        store.drawer_put(LG, [Change("k", name, if_version=version), Change(name.decode(), b"")])
                        for store, name in ((first, b"one"), (second, b"two"), (first, b"three"))
                    ),
                    return_exceptions=True,
                )
                done = [each for each in found if isinstance(each, list)]
                assert len(done) == 1, (turn, found)
                assert all(isinstance(each, list | VersionConflict) for each in found)
                version = done[0][0]
            assert (await second.drawer_get(LG, ["k"]))["k"].version == version
