"""A store on a failing disk: it is read-only while the trouble lasts, and uses the ballast for the last writes."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pausepoint.errors import StoreReadOnly, StoreRemoved, StoreUnavailable
from pausepoint.model.commits import Commit
from pausepoint.model.records import seal
from pausepoint.model.sessions import Filter, SessionRow
from pausepoint.stores.sqlite import SqliteStore, ballast, trouble, writer
from pausepoint.stores.sqlite.ballast import SIZE, SLICE, Ballast
from pausepoint.stores.sqlite.sql import QUERIES
from pausepoint.stores.sqlite.transactions import REFUSALS
from tests.faults.vfs import Fail, FaultVFS
from tests.stores.kit import Driver, new_session, on_loop, opened, operator, process, started, stored
from tests.support.waits import async_until


class FillingDisk(Fail):
    """A disk that is full or broken while ``healed`` is False."""

    def __init__(self, kind: Any = "full") -> None:
        super().__init__(0, kind, once=False)
        self.healed = True
        self.vfs = FaultVFS("filling", self)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble, "FIRST_WAIT", 0.01)


def file_of(path: Path) -> Path:
    return Path(f"{path}-ballast")


# the ballast


def test_it_takes_real_space_for_its_owner_only(path: Path) -> None:
    assert Ballast(str(path), SIZE).make()
    found = file_of(path).stat()
    assert (found.st_size, found.st_mode & 0o777) == (SIZE, 0o600)
    assert found.st_blocks * 512 >= SIZE


def test_it_is_written_where_space_cannot_be_allocated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    assert Ballast(str(path), SIZE).make()
    assert file_of(path).stat().st_blocks * 512 >= SIZE
    assert len(set(file_of(path).read_bytes())) == 256  # cannot be compressed


def test_it_is_given_up_slice_by_slice_and_made_whole_again(path: Path) -> None:
    reserve = Ballast(str(path), SIZE)
    reserve.make()
    assert not reserve.short()
    given = 0
    while reserve.give():
        given += 1
        assert reserve.short()
    assert given == SIZE // SLICE
    assert file_of(path).stat().st_size == 0
    assert reserve.make()
    assert not reserve.short()


def test_without_room_nothing_is_taken(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = Ballast(str(path), SIZE)

    def no_room(descriptor: int, start: int, length: int) -> None:
        os.ftruncate(descriptor, start + length // 2)
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(ballast, "_allocate", no_room)
    assert not reserve.make()
    assert not file_of(path).exists()
    assert not reserve.short()  # the ballast never existed, so its absence does not mean a full disk
    file_of(path).write_bytes(bytes(SLICE))
    assert not reserve.make()
    assert file_of(path).stat().st_size == SLICE
    assert reserve.short()


def test_a_folder_that_cannot_be_written_has_none(tmp_path: Path) -> None:
    reserve = Ballast(str(tmp_path / "missing" / "store.db"), SIZE)
    assert not reserve.make()
    assert not reserve.give()


def test_a_link_in_its_place_is_not_followed(path: Path) -> None:
    precious = path.parent / "precious"
    precious.write_bytes(b"precious")
    file_of(path).symlink_to(precious)
    assert not Ballast(str(path), SIZE).make()
    assert precious.read_bytes() == b"precious"


@on_loop
async def test_none_is_kept_if_none_is_wanted(path: Path) -> None:
    async with opened(path, ballast=0) as store:
        await started(store)
        assert not file_of(path).exists()
        assert store.trouble is None
    with pytest.raises(ValueError, match="0 to reserve none"):
        SqliteStore(path, ballast=-1)


# read-only, and the writes that are still allowed


@on_loop
async def test_only_what_stops_sessions_is_paid_for_with_the_ballast(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trouble, "FIRST_WAIT", 1_000.0)  # the disk is checked once, and not again during the test
    disk = FillingDisk()
    async with opened(path, vfs="filling") as store:
        running, other = await started(store, "running"), await started(store, "other")
        note = _note(await stored(store, "other"), b"{}")
        disk.healed = False
        for verb in (
            store.create(new_session("new")), store.claim("other", steal=True), store.commit(running.next(b"result")),
            store.commit(other.next(release=True)), store.unpause("other", "ann", 1),
            store.send("other", "ann", 1, b"{}"),
        ):  # fmt: skip
            with pytest.raises(StoreReadOnly, match="the disk is full"):
                await verb
        assert file_of(path).stat().st_size == SIZE
        for stop in (store.pause(Filter(), operator()), store.cancel("other", "ann", "", 1), store.commit(note)):
            before = disk.fired
            file_of(path).write_bytes(bytes(SLICE))
            with pytest.raises(StoreReadOnly):  # this disk stays full even after the ballast is released
                await stop
            assert disk.fired > before
            assert file_of(path).stat().st_size == 0
        disk.healed = True
    disk.vfs.unregister()


@on_loop
async def test_what_was_refused_a_commit_can_be_stopped_and_ended_on_a_full_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as store:
        driver, other = await started(store, "cut"), await started(store, "other")
        await other.commit(release=True)
        monkeypatch.setattr(Ballast, "make", lambda ballast: False)  # the disk stays full; some ballast remains
        monkeypatch.setattr(Ballast, "short", lambda ballast: True)
        store._writer.look()
        with pytest.raises(StoreReadOnly):
            await driver.commit()
        assert (await stored(store, "cut")).live
        asked = (await store.cancel("cut", "ann", "no more", 1))[0]
        assert (asked.live, asked.cancel_requested, asked.crashes, asked.ended) == (False, True, 0, "cancelled")
        with pytest.raises(StoreReadOnly):
            await store.claim("other")


@pytest.mark.parametrize("standing", [False, True])
@on_loop
async def test_a_paused_session_that_is_refused_a_commit_stops_looking_driven(
    path: Path, monkeypatch: pytest.MonkeyPatch, standing: bool
) -> None:
    async with opened(path) as store:
        driver, _ = await started(store, "cut"), await started(store, "other")
        monkeypatch.setattr(Ballast, "make", lambda ballast: False)  # the disk stays full; some ballast remains
        monkeypatch.setattr(Ballast, "short", lambda ballast: True)
        store._writer.look()
        await store.pause(Filter(session_id=None if standing else "cut"), operator(standing=standing))
        with pytest.raises(StoreReadOnly):
            await driver.commit()
        while (await stored(store, "cut")).live:
            await asyncio.sleep(0.001)
        assert ((await stored(store, "cut")).status.value, (await stored(store, "other")).live) == ("paused", True)
        assert store.trouble is not None


@on_loop
async def test_a_checkpoint_is_not_a_last_note(path: Path) -> None:
    async with opened(path) as store:
        driver = await started(store)
        assert not writer.parks(driver.next(release=True))  # its record is of the kind "checkpoint"
        row = await stored(store)
        note = _note(row, b"{}")
        assert writer.parks(note)
        assert not writer.parks(_note(row, bytes(2**17)))
        assert not writer.parks(_note(row, b"{}", release=False))
        assert not writer.parks(_note(row, b"{}", blobs=((b"h", b"d"),)))


def _note(row: SessionRow, payload: bytes, **changes: Any) -> Commit:
    record = seal(row.digest, row.seq + 1, row.seq, "event", "first", 1, row.updated_at, payload)
    values: dict[str, Any] = {"release": True} | changes
    return Commit(row.key, row.fence, row.seq, (record,), row.updated_at, 1, "first", 1, **values)


@pytest.mark.parametrize("kind", ["full", "io"])
@on_loop
async def test_it_becomes_writable_by_itself_tells_so_and_lets_go_what_was_refused(path: Path, kind: str) -> None:
    disk, heard = FillingDisk(kind), [""]
    store = SqliteStore(path, vfs="filling")
    await store.open(lambda keys: heard.append(store.trouble or ""))
    driver = await started(store)
    disk.healed = False
    with pytest.raises(StoreReadOnly) as caught:
        await driver.commit(b"lost")
    assert caught.value.path == str(path)
    assert caught.value.full is (kind == "full")
    assert (await stored(store)).live
    await async_until(lambda: any(heard))
    disk.healed = True
    await async_until(lambda: store.trouble is None and not heard[-1])
    row = await stored(store)
    assert (row.holder, row.seq, row.crashes) == (None, 1, 0)
    await Driver(store, await store.claim("s1")).commit(b"kept")
    await store.close()
    disk.vfs.unregister()


async def still_held(path: Path, *refused: str) -> bool:
    """Refuse commits of an older and a newer hold on one session, and return whether the session is held afterwards."""
    disk = FillingDisk()
    async with opened(path, vfs="filling") as store:
        other, older = await started(store, "other"), await started(store)
        newer = Driver(store, await store.claim("s1", steal=True))
        disk.healed = False
        for name in ("other", *refused):
            with pytest.raises(StoreReadOnly):
                await {"other": other, "older": older, "newer": newer}[name].commit()
        disk.healed = True
        await async_until(lambda: store.trouble is None)
        assert (await stored(store, "other")).holder is None
        held = (await stored(store)).holder == store.number
    disk.vfs.unregister()
    return held


@on_loop
async def test_only_the_hold_that_was_refused_a_commit_is_given_back(path: Path) -> None:
    assert await still_held(path, "older")


@on_loop
async def test_a_hold_is_given_back_even_if_an_older_one_was_refused_later(path: Path) -> None:
    assert not await still_held(path, "newer", "older")


@pytest.mark.parametrize("kind", ["full", "io"])
@on_loop
async def test_a_step_that_exits_on_a_failing_disk_no_longer_counts_as_kept_afterwards(path: Path, kind: str) -> None:
    disk = FillingDisk(kind)
    async with opened(path, vfs="filling", ballast=0) as store:
        driver = await started(store)
        await store.pause(Filter(session_id="s1"), operator())
        await driver.commit(release=True, only_if_paused=True, kept=True)
        await store.unpause("s1", "ben", 6000)
        disk.healed = False
        await store.unkeep(driver.key, driver.fence)
        assert (await stored(store)).kept_by == store.number
        disk.healed = True
        await async_until(lambda: store.trouble is None)
        assert [row.session_id for row in await store.due(6000, ["brief"], 1)] == ["s1"]
    disk.vfs.unregister()


@on_loop
async def test_a_hold_that_cannot_be_released_on_a_failing_disk_is_released_afterwards(path: Path) -> None:
    disk = FillingDisk("io")
    async with opened(path, vfs="filling", ballast=0) as store:
        driver = await started(store)
        disk.healed = False
        await store.release(driver.key, driver.fence)
        assert (await stored(store)).live
        disk.healed = True
        await async_until(lambda: store.trouble is None)
        assert (await stored(store)).holder is None
    disk.vfs.unregister()


@on_loop
async def test_a_store_that_gives_back_without_the_fence_is_caught(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = QUERIES["give_back"]
    monkeypatch.setitem(QUERIES, "give_back", sound.replace("fence = ?", "? IS NOT NULL"))
    assert not await still_held(path, "older")


@on_loop
async def test_after_three_refusals_in_a_row_the_rest_of_a_batch_is_not_tried(path: Path) -> None:
    disk = FillingDisk()
    async with opened(path, vfs="filling") as store:
        drivers = [await started(store, f"s{n}") for n in range(20)]
        disk.healed = False
        results = await asyncio.gather(*(driver.commit() for driver in drivers), return_exceptions=True)
        assert [type(result) for result in results] == [StoreReadOnly] * 20
        assert disk.fired <= 1 + REFUSALS
        disk.healed = True
        await async_until(lambda: store.trouble is None)
        assert {row.holder for row in await store.find(Filter())} == {None}
    disk.vfs.unregister()


@on_loop
async def test_a_commit_that_is_too_large_for_the_disk_stops_no_other(path: Path) -> None:
    async with opened(path) as store:
        small, large = await started(store, "small"), await started(store, "large")
        for transactions in (store._writer.inline, store._writer.threaded):
            pages = transactions.connection.pragma("page_count")
            transactions.connection.pragma("max_page_count", pages + 5)
        first = await asyncio.gather(small.commit(), large.commit(bytes(10**6)), return_exceptions=True)
        assert isinstance(first[1], StoreReadOnly)
        assert not isinstance(first[0], Exception)
        await small.commit()  # the disk is checked first and found healthy
        assert store.trouble is None


# opening


@on_loop
async def test_a_store_opens_for_reading_when_it_cannot_even_note_who_opened_it(path: Path) -> None:
    async with opened(path) as store:
        await started(store)
    disk = FillingDisk()
    disk.healed = False
    async with opened(path, vfs="filling") as store:
        assert disk.fired
        assert (store.number, (await stored(store)).seq) == (0, 1)
        assert store.trouble
        assert "the disk is full" in store.trouble
        with pytest.raises(StoreReadOnly):
            await store.claim("s1")
        disk.healed = True
        await async_until(lambda: store.trouble is None)
        assert store.number > 0
        assert (await store.claim("s1")).holder == store.number
    disk.vfs.unregister()


@on_loop
async def test_an_empty_file_cannot_become_a_store_on_a_full_disk(path: Path) -> None:
    path.touch()
    disk = FillingDisk()
    disk.healed = False
    with pytest.raises(StoreUnavailable, match=r"the disk is full .* Nothing was written\. Free some space"):
        async with opened(path, vfs="filling"):
            pass
    disk.healed = True
    async with opened(path, vfs="filling") as store:
        await started(store)
    disk.vfs.unregister()


# Prints every change of trouble. The first input line lets it find space again, the next one ends it.
ANOTHER = """
import asyncio, sys
from pausepoint.stores.sqlite import SqliteStore, ballast
from tests.stores.test_trouble import no_space

async def main():
    store = SqliteStore(sys.argv[1], poll=0.01)
    await store.open(lambda keys: print(store.trouble or "well", flush=True))
    ballast._allocate, allocate = no_space, ballast._allocate
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    ballast._allocate = allocate
    await asyncio.to_thread(sys.stdin.readline)
    await store.close()

asyncio.run(main())
"""


def no_space(descriptor: int, start: int, length: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.long
@on_loop
async def test_what_one_process_takes_from_the_ballast_all_others_hear_of(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as store:
        with process(ANOTHER, path) as other:
            monkeypatch.setattr(ballast, "_allocate", no_space)
            while store._ballast.give():
                pass
            await async_until(lambda: store.trouble is not None)
            with pytest.raises(StoreReadOnly, match="reported by another process"):
                await store.create(new_session())
            while "reported by another process" not in await asyncio.to_thread(other.line):
                pass
            other.send()
            while await asyncio.to_thread(other.line) != "well":
                pass
            await async_until(lambda: store.trouble is None)  # any process may have restored the ballast
            await started(store)


@pytest.mark.parametrize("how", ["removed", "replaced"])
@on_loop
async def test_a_database_that_is_removed_or_replaced_acknowledges_nothing(path: Path, how: str) -> None:
    async with opened(path) as store:
        driver = await started(store)
        aside = path.with_suffix(".aside")
        path.rename(aside)
        if how == "replaced":
            shutil.copy(aside, path)
        for act in (driver.commit, lambda: store.send("s1", "ann", 1, b"{}"), lambda: store.claim("s1", steal=True)):
            with pytest.raises(StoreRemoved, match=r"removed or replaced .* Put the file back"):
                await act()
        assert isinstance(store.trouble, str)
        aside.replace(path)
        await async_until(lambda: store.trouble is None)
        assert (await stored(store)).seq == 2, "the commit that was refused is in the file that was put back"


@on_loop
async def test_a_store_that_only_watches_notices_that_its_database_was_removed(path: Path) -> None:
    async with opened(path) as store:
        path.unlink()
        await async_until(lambda: store.trouble is not None)
