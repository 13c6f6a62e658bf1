"""The dispatcher on the real server of Restate, with workers that are killed."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.clock import to_micros
from pausepoint.testing import ManualClock
from pausepoint.workers.restate import dispatcher, drive_once
from tests.docs.programs import Folder
from tests.support.children import child
from tests.support.loop import PATIENCE, on_loop
from tests.support.ports import free_port
from tests.support.postgres import schema_of
from tests.support.waits import async_until
from tests.workers.restate_program import OPERATIONS, errand, family, gated
from tests.workers.restate_server import HOW, ROOT, Restate, find, serving

COMMAND = find()


class Nothing(BaseModel):
    pass


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restate]:
    if COMMAND is None:
        pytest.skip(HOW)
    with serving(tmp_path_factory.mktemp("restate"), COMMAND) as running:
        yield running


@contextmanager
def working(folder: Path, port: int, name: str, *store: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker in a process of its own."""
    words = [sys.executable, "-m", "tests.workers.restate_program", str(folder), str(port), name, *store]
    with (folder / "worker.log").open("ab") as log, subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log) as worker:
        try:
            yield worker
        finally:
            worker.kill()


async def started(engine: Engine, flow: Workflow[Any, Any], session_id: str, **given: Any) -> None:
    """Store a session that is ready, and drive it nowhere."""
    await engine.start(flow, session_id=session_id, paused=True, **given)
    await engine.session(session_id).resume(here=False)


async def remembered(engine: Engine) -> set[str]:
    """Return the effects whose operation is in the log."""
    found: set[str] = set()
    for info in await engine.sessions(workflow="errand"):
        who = (await engine.session(info.session_id).stored()).values["who"]
        async for event in engine.session(info.session_id).events():
            number = re.search(r"effect\[(\d+)\]", str(event.data.get("id")))
            if event.event_type == "operation.completed" and number is not None:
                found.add(f"{who}/{number[1]}")
    return found


def effects(folder: Path) -> Counter[str]:
    file = folder / "effects"
    return Counter(line.split()[0] for line in file.read_text().splitlines()) if file.exists() else Counter()


@pytest.mark.long
@on_loop
async def test_a_killed_worker_loses_nothing_and_repeats_only_what_was_in_flight(
    server: Restate, tmp_path: Path
) -> None:
    port, place = free_port(), str(tmp_path)
    (tmp_path / "hold").touch()  # no session is complete when the worker is killed
    async with Engine(tmp_path / "fleet.db", drives="none") as engine:
        with working(tmp_path, port, "kills") as worker:
            await asyncio.to_thread(server.register, port)
            for who in ("ann", "ben", "cem", "dea"):
                await started(engine, errand, who, place=place, who=who)
            await started(engine, family, "family", place=place)
            for info in await engine.sessions():
                assert await server.drive("kills", info.session_id) == 202

            async def in_flight() -> bool:
                return len(effects(tmp_path)) >= 14 and any(
                    info.status is Status.RUNNING for info in await engine.sessions(workflow="errand")
                )

            await async_until(in_flight)
            worker.kill()
            assert worker.wait(PATIENCE) == -signal.SIGKILL
        (tmp_path / "hold").unlink()
        before, logged = effects(tmp_path), await remembered(engine)
        unfinished = [
            info.session_id for info in await engine.sessions(workflow="errand", status="ready", level="root")
        ]
        assert logged
        assert logged <= set(before)
        assert unfinished, "the worker was killed too late"
        paused = unfinished[0]
        await engine.session(paused).pause(reason="meanwhile")
        with working(tmp_path, port, "kills"):

            async def others_completed() -> bool:
                found = await engine.sessions()
                return all(info.status is Status.COMPLETED for info in found if info.session_id != paused)

            await async_until(others_completed)
            assert await server.drive("kills", paused, wait=True) == 200  # a drive withdraws no pause
            assert await engine.session(paused).pauses()
            assert (await engine.session(paused).info()).status is Status.PAUSED
            await engine.session(paused).resume(here=False)
            assert await server.drive("kills", paused) == 202
            await async_until(lambda: _is(engine, paused, Status.COMPLETED))
        done = effects(tmp_path)
        everything = {f"{who}/{n}" for who in ("ann", "ben", "cem", "dea", "child") for n in range(OPERATIONS)}
        assert set(done) == everything == await remembered(engine)
        twice = {name for name, count in done.items() if count > 1}
        assert twice <= set(before) - logged, "an operation that the log remembered ran again"
        assert max(done.values()) <= 2
        assert (await engine.verify()).ok


async def _is(engine: Engine, session_id: str, status: Status) -> bool:
    return (await engine.session(session_id).info()).status is status


@pytest.mark.long
@on_loop
async def test_the_store_may_be_in_postgres(server: Restate, tmp_path: Path) -> None:
    port = free_port()
    with schema_of() as url:
        async with Engine(url, drives="none") as engine:
            await started(engine, errand, "ann", place=str(tmp_path), who="ann")
            with working(tmp_path, port, "fleet", url) as worker:
                await asyncio.to_thread(server.register, port)
                assert await server.drive("fleet", "ann") == 202
                await async_until(lambda: _has(tmp_path, 3))
                worker.kill()
                assert worker.wait(PATIENCE) == -signal.SIGKILL
            before, logged = effects(tmp_path), await remembered(engine)
            with working(tmp_path, port, "fleet", url):
                await async_until(lambda: _is(engine, "ann", Status.COMPLETED))
            done = effects(tmp_path)
            assert set(done) == {f"ann/{n}" for n in range(OPERATIONS)}
            assert {name for name, count in done.items() if count > 1} <= set(before) - logged
            assert (await engine.verify()).ok


async def _has(folder: Path, count: int) -> bool:
    return len(effects(folder)) >= count


HOLDER = """
from tests.workers.restate_program import gated
async with Engine(args[0]) as engine:
    await engine.start(gated, session_id="held", place=args[1])
    say("started")
    await heard()
"""


@pytest.mark.long
@on_loop
async def test_a_held_session_and_one_without_a_slot_are_tried_again_and_an_unknown_one_is_refused(
    server: Restate, tmp_path: Path
) -> None:
    port = free_port()
    with working(tmp_path, port, "held"), child(HOLDER, tmp_path / "fleet.db", tmp_path) as holder:
        holder.expect("started")
        await asyncio.to_thread(server.register, port)
        async with Engine(tmp_path / "fleet.db", drives="none", create=False) as engine:
            assert await server.drive("held", "nobody", wait=True) == 404
            assert await server.drive("held", "held", wait=True) == 200
            assert (await engine.session("held").info()).status is Status.RUNNING  # in the other process
            await engine.limit(workflow=gated, most=1)
            await started(engine, gated, "second", place=str(tmp_path))
            assert await server.drive("held", "second", wait=True) == 200
            assert (await engine.session("second").info()).waits_for_slot == "workflow gated, 1 of 1 at work"
            holder.signal(signal.SIGKILL)
            assert holder.ended() == -signal.SIGKILL
            (tmp_path / "gate").touch()
            await async_until(lambda: _is(engine, "held", Status.COMPLETED))
            await async_until(lambda: _is(engine, "second", Status.COMPLETED))


@pytest.mark.long
@on_loop
async def test_the_worker_of_the_page_drives_the_agent_before_and_after_an_answer(
    server: Restate, tmp_path: Path
) -> None:
    folder, port = Folder(tmp_path), free_port()
    with folder.running("restate_worker.py", str(port)) as worker:
        await asyncio.to_thread(server.register, port)
        with folder.running("restate_start.py", "trip", "Book a hotel in Lisbon.", str(server.ingress)) as start:
            assert await asyncio.to_thread(start.lines) == ["trip is on its way"]
        async with Engine(folder.store, drives="none", create=False) as engine:
            await async_until(lambda: _is(engine, "trip", Status.WAITING))
            await engine.session("trip").answer(True)
            assert await server.drive("pausepoint", "trip") == 202
            await async_until(lambda: _is(engine, "trip", Status.COMPLETED))
        assert folder.orders("hotels") == ["2 nights, Hotel Astoria in Lisbon"]
        worker.killed()


@step
async def nap(ctx: Context) -> None:
    await ctx.sleep(timedelta(hours=1))
    await ctx.receive()


@on_loop
async def test_a_drive_too_many_writes_nothing(tmp_path: Path) -> None:
    naps = Workflow("naps", state=Nothing, steps=[nap])
    clock = ManualClock(start=to_micros(datetime.now(UTC)))
    path = tmp_path / "fleet.db"
    async with (
        Engine(path, drives="none", clock=clock) as engine,
        Engine(path, workflows=[naps], drives="asked", clock=clock, hold=0) as worker,
    ):
        await started(engine, naps, "nap")
        first = await drive_once(worker, "nap")
        before = await engine.session("nap").info()
        assert (before.status, first.at) == (Status.SLEEPING, before.wakes_at and before.wakes_at.timestamp())
        for _ in range(2):
            assert await drive_once(worker, "nap") == first  # Restate makes one call for these
        after = await engine.session("nap").info()
        assert (after.seq, after.fence) == (before.seq, before.fence)

        await engine.pause_all()
        clock.advance(timedelta(hours=2))
        assert (await drive_once(worker, "nap", first.at)).at is None  # the timer came during the pause
        await engine.lift_pause()
        assert (await drive_once(worker, "nap", first.at)).at is None
        assert (await engine.session("nap").info()).status is Status.WAITING
        assert (await drive_once(worker, "nap")).at is None
        await engine.session("nap").send("wake up")
        await drive_once(worker, "nap")
        assert (await engine.session("nap").info()).status is Status.COMPLETED


def test_without_the_sdk_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "restate", None)
    with pytest.raises(ImportError, match=r"pip install 'pausepoint\[restate\]'"):
        dispatcher(cast(Any, None))
