"""A removal that is killed, or that runs next to other work: the next run completes it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest
from pydantic import BaseModel

from pausepoint import Engine, Workflow, step
from pausepoint.engine import retention
from pausepoint.errors import HoldLost
from pausepoint.model.commits import Commit
from pausepoint.model.stores import Tombstone
from pausepoint.stores.folders import session_folder
from pausepoint.stores.sqlite import SqliteStore
from tests.stores.kit import Driver, opened, started
from tests.support.forkserver import ForkServer
from tests.support.loop import on_loop
from tests.support.mortal import MortalStore


class Page(BaseModel):
    text: str = ""
    count: int = 0


@step(writes=["text", "count"])
async def fill(count: int) -> dict[str, Any]:
    return {"text": f"page {count} " * 2000, "count": count + 1}


pages = Workflow("pages", state=Page, steps=[fill])
IDS = ("by-hand", "expired-1", "expired-2", "kept")


@pytest.fixture(scope="module")
def cleaners() -> Iterator[ForkServer]:
    with ForkServer("tests.faults.removals") as server:
        yield server


@pytest.fixture
def template(folder: Path) -> Path:
    """Create four sessions with files and large values. Two of them expired long ago."""
    path = folder / "template" / "store.db"
    asyncio.run(_filled(path))
    return path


async def _filled(path: Path) -> None:
    async with Engine(SqliteStore(path, ballast=0), workflows=[pages], signals=False) as engine:
        for session_id in IDS:
            keep_for = timedelta(0) if session_id.startswith("expired") else None
            session = await engine.start(pages, session_id=session_id, keep_for=keep_for, count=len(session_id))
            await session.outcome()
            await session.redact(field="text", value=f"a text of {session_id}")
            folder = session_folder(Path(f"{path}.sessions"), session_id)
            folder.mkdir(parents=True)
            (folder / "report.txt").write_text(session_id)


async def looked_at(path: Path) -> tuple[list[str], list[Tombstone], list[str]]:
    """Run another cleaner, and return the remaining content and the result of verify."""
    async with Engine(SqliteStore(path, ballast=0), workflows=[pages], signals=False) as engine:
        await engine.gc(apply=True)
        sessions = sorted(str(info.session_id) for info in await engine.sessions())
        assert (await engine.session("kept").state()) == Page(text="a text of kept", count=5)
        space = await engine.store.space()
        assert space.free == 0
        problems = [str(problem) for problem in (await engine.verify()).problems]
        return sessions, await engine.tombstones(), problems


@pytest.mark.covers("S3.95")
def test_a_cleaner_killed_at_any_write_is_completed_by_the_next_one(
    cleaners: ForkServer, folder: Path, template: Path
) -> None:
    touches = recorded(cleaners, fresh(template, folder / "count"))
    assert len(touches) > 40
    assert trials(cleaners, folder, template, touches[:: max(1, len(touches) // 10)]) == []


@pytest.mark.long
def test_the_harness_catches_a_cleaner_that_deletes_files_last(
    cleaners: ForkServer, folder: Path, template: Path
) -> None:
    touches = recorded(cleaners, fresh(template, folder / "count"))
    buried = [touch for touch in touches if (touch["kind"], touch["file"]) == ("sync", "-wal")]
    found = trials(cleaners, folder, template, buried, "files last")
    assert any(text.startswith("files of ") for text in found), found


def trials(
    cleaners: ForkServer, folder: Path, template: Path, touches: list[dict[str, Any]], twin: str = ""
) -> list[str]:
    """Kill a cleaner at each of these touches. Return what is wrong after the next cleaner."""
    found: list[str] = []
    missed = 0
    for turn, touch in enumerate(touches):
        path = fresh(template, folder / "trial")
        variant = touch["variants"][turn % len(touch["variants"])]
        child = cleaners.start(
            "tests.faults.removals:die", path=str(path), index=touch["index"], variant=variant, twin=twin
        )
        code = child.wait()
        if (code, child.said) == (0, []):  # a fast cleaner shares transactions, and needs fewer writes
            missed += 1
        else:
            assert (code, child.said) == (-9, [{"fired": touch["index"]}])
        found += [f"{text} after {touch}, {variant}" for text in wrong(path)]
    assert missed <= len(touches) / 5
    return found


def wrong(path: Path) -> Iterator[str]:
    sessions, stones, problems = asyncio.run(looked_at(path))
    yield from problems
    # A process that died before it began has removed nothing by hand. Otherwise nothing remains.
    by_hand = [stone for stone in stones if stone.session_id == "by-hand"]
    if sessions != (["kept"] if by_hand else ["by-hand", "kept"]):
        yield f"there are {sessions}"
    if sorted(stone.session_id for stone in stones) != sorted(IDS[0 if by_hand else 1 : 3]):
        yield f"tombstones: {stones}"
    for stone in by_hand:
        if (stone.by, stone.reason, stone.status, stone.records) != ("ann", "test", "completed", 4):
            yield f"another tombstone: {stone}"
    left = sorted(each.name for each in Path(f"{path}.sessions").iterdir())
    if left != sessions:
        yield f"files of {left} are left"


def recorded(cleaners: ForkServer, path: Path) -> list[dict[str, Any]]:
    child = cleaners.start("tests.faults.removals:count", path=str(path))
    assert child.wait() == 0
    return [said for said in child.said if said]


def fresh(template: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template.parent, folder)
    return folder / template.name


# next to other work


@on_loop
async def test_two_cleaners_at_once_do_not_get_in_each_others_way(folder: Path, template: Path) -> None:
    path = fresh(template, folder / "both")
    async with (
        Engine(SqliteStore(path, ballast=0), signals=False) as first,
        Engine(SqliteStore(path, ballast=0), signals=False) as second,
    ):
        removed, one, other = await asyncio.gather(
            first.session("by-hand").remove(by="ann"), first.gc(apply=True), second.gc(apply=True)
        )
        assert removed.by == "ann"
        assert sorted({*one.expired, *other.expired}) == ["expired-1", "expired-2"]
        assert one.kept == other.kept == {}
        await first.gc(apply=True)
        assert sorted(stone.session_id for stone in await second.tombstones()) == list(IDS[:3])
        assert (await second.verify()).ok


@on_loop
async def test_a_cleaner_that_finds_the_work_done_is_content(folder: Path, template: Path) -> None:
    path = fresh(template, folder / "late")

    class Late(SqliteStore):
        async def strip(self, key: int, limit: int) -> Tombstone | None:
            await second.gc(apply=True)
            return await super().strip(key, limit)

    async with (
        Engine(Late(path, ballast=0), signals=False) as first,
        Engine(SqliteStore(path, ballast=0), signals=False) as second,
    ):
        stone = await first.session("by-hand").remove(by="ann")
        assert [stone] == await second.tombstones("by-hand")


@on_loop
async def test_a_log_whose_chain_is_broken_is_removed_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        for session_id in ("s1", "s2"):
            driver = await started(store, session_id)
            for _ in range(20):
                await driver.commit()
            await driver.commit(release=True)
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM log WHERE session = 1 AND seq = 10")
    connection.close()
    async with opened(path) as store:
        [removal] = await store.remove("s1", None, "", 9000)
        turns = 0
        while await store.strip(removal.key, 4) is None:
            turns += 1
        assert turns > 5
        assert await store.check() == []
        assert len(await store.records(2, 1)) == 22


@on_loop
async def test_a_zombie_can_write_nothing_into_a_session_that_is_being_removed(tmp_path: Path) -> None:
    """The process counts as dead, so its session may be removed. Then the process wakes up."""
    path = tmp_path / "store.db"
    zombie = MortalStore(path)
    await zombie.open(lambda keys: None)
    driver = await started(zombie)
    zombie._hold.drop()  # makes the process look dead although it runs
    async with opened(path) as store:
        [removal] = await store.remove("s1", "ann", "", 9000)
        with pytest.raises(HoldLost):
            await driver.commit()
        while await store.strip(removal.key, 100) is None:
            pass
        with pytest.raises(HoldLost):
            await driver.commit()
        again = await started(store)
        assert again.key != driver.key
        with pytest.raises(HoldLost):
            await driver.commit()
    await zombie.bury()


@on_loop
async def test_others_commit_between_the_batches_of_a_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "ROWS", 10)
    path = tmp_path / "store.db"
    order: list[str] = []

    class Watched(SqliteStore):
        async def strip(self, key: int, limit: int) -> Tombstone | None:
            order.append("strip")
            return await super().strip(key, limit)

        async def commit(self, commit: Commit) -> Any:
            order.append("commit")
            return await super().commit(commit)

    async with Engine(Watched(path), signals=False) as engine:
        store = engine.store
        assert isinstance(store, SqliteStore)
        long = await started(store, "long")
        for _ in range(200):
            await long.commit()
        await long.commit(release=True)
        other = await started(store, "other")
        order.clear()
        removal = asyncio.create_task(engine.session("long").remove())
        while not removal.done():
            await other.commit()
            await asyncio.sleep(0)
        stone = await removal
        assert stone.records == 202
        assert order.count("strip") > 20
        first, last = order.index("strip"), len(order) - order[::-1].index("strip")
        assert order[first:last].count("commit") > 10
        assert len(await store.records(other.key, 1)) == other.seq


@on_loop
async def test_a_value_that_is_named_while_it_is_swept_is_not_lost(tmp_path: Path) -> None:
    data = b"large" * 1000
    value = (sha256(data).digest(), data)
    async with opened(tmp_path / "store.db") as store, opened(tmp_path / "store.db") as cleaner:
        first = await started(store, "first", blobs=(value,))
        await first.commit(release=True)
        [removal] = await cleaner.remove("first", None, "", 9000)
        while await cleaner.strip(removal.key, 100) is None:
            pass
        second = await started(store, "second")

        async def name() -> None:
            for _ in range(20):
                await second.commit(blobs=(value,))

        async def sweep() -> None:
            for _ in range(20):
                await cleaner.sweep(0, 10, apply=True)

        await asyncio.gather(name(), sweep())
        assert await store.blobs([value[0]]) == dict([value])


@on_loop
async def test_a_cleaner_that_is_cancelled_between_batches_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ROWS", 1)
    async with Engine(tmp_path / "store.db", signals=False) as engine:
        assert isinstance(engine.store, SqliteStore)
        driver: Driver = await started(engine.store, "long")
        for _ in range(100):
            await driver.commit()
        await driver.commit(release=True)
        removal = asyncio.create_task(engine.session("long").remove(by="ann"))
        while not await engine.store.removing():
            await asyncio.sleep(0)
        removal.cancel()  # a hundred batches remain
        with pytest.raises(asyncio.CancelledError):
            await removal
        report = await engine.gc(apply=True)
        assert report.completed == ["long"]
        [stone] = await engine.tombstones()
        assert (stone.by, stone.records) == ("ann", 102)
