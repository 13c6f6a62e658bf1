"""Code of a step that blocks the event loop: one warning names it. What only looks like it causes none."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.runtime import loop_watch
from pausepoint.runtime.loop_watch import TOO_LONG, LoopWatch
from tests.support.loop import PATIENCE, on_loop

WAYS = " Or use await asyncio.sleep() or await asyncio.to_thread() there."


class Work(BaseModel):
    done: list[str] = []


watches: list[LoopWatch] = []


@pytest.fixture(autouse=True)
def _known_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    def known(runs: Any) -> LoopWatch:
        watches.append(LoopWatch(runs))
        return watches[-1]

    watches.clear()
    monkeypatch.setattr(loop_watch, "LoopWatch", known)


def block(began: float | None = None) -> None:
    """Block the loop until its watch has seen that for long enough. On a busy machine it seldom gets to look."""
    began = time.monotonic() if began is None else began
    give_up = began + PATIENCE
    while time.monotonic() < give_up:
        time.sleep(0.05)
        (watch,) = watches
        if watch._culprit is not None and watch._looked_at - max(began, watch._since) > TOO_LONG:
            return


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [record for record in caplog.records if record.name == "pausepoint.advice"]
    assert all(record.levelno == logging.WARNING for record in records)
    return [record.getMessage() for record in records]


def is_watched() -> bool:
    return any(thread.name == "pausepoint-loop-watch" for thread in threading.enumerate())


async def run(*bodies: Callable[[Context], Awaitable[Any]]) -> None:
    """Run a workflow with a step for each function."""

    def stepped(body: Callable[[Context], Awaitable[Any]]) -> Any:
        async def act(ctx: Context) -> None:
            await body(ctx)

        act.__name__ = body.__name__
        return step(act)

    works = Workflow("works", state=Work, steps=[stepped(body) for body in bodies])
    async with Engine(":memory:") as engine:
        session = await engine.start(works, session_id="works-1")
        assert (await session.outcome()).status is Status.COMPLETED


@pytest.mark.long
@on_loop
async def test_a_step_that_blocks_the_loop_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    @step
    async def sleeps() -> None:
        if not caplog.records:
            block()
        else:
            time.sleep(2)

    works = Workflow("works", state=Work, steps=[sleeps])
    async with Engine(":memory:") as engine:
        for session_id in ("works-1", "works-2"):
            session = await engine.start(works, session_id=session_id)
            assert (await session.outcome()).status is Status.COMPLETED
    [record] = [record for record in caplog.records if record.name == "pausepoint.advice"]
    assert (record.__dict__["session_id"], record.__dict__["step"], record.__dict__["visit"]) == (
        "works-1",
        "sleeps",
        1,
    )
    message = record.getMessage()
    assert message.startswith("session works-1: Step 'sleeps' blocked the event loop for ")
    assert float(message.partition(" for ")[2].partition(" s")[0]) >= TOO_LONG
    assert f"at {Path(__file__).name}:" in message
    assert message.endswith("Make the step a plain def: it then runs in a thread." + WAYS)


@pytest.mark.long
@on_loop
async def test_a_block_that_goes_on_is_told_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    def computes() -> None:
        give_up = time.monotonic() + 30
        while not warnings(caplog) and time.monotonic() < give_up:
            pass

    async def busy(ctx: Context) -> None:
        computes()

    await run(busy)
    [warning] = warnings(caplog)
    assert "Step 'busy' has blocked the event loop for 3." in warning
    assert " s so far" in warning


@pytest.mark.long
@on_loop
async def test_operations_items_and_tasks_are_named(caplog: pytest.LogCaptureFixture) -> None:
    async def load(name: str) -> None:
        block()

    async def operation(ctx: Context) -> None:
        await ctx.do(load, "a", timeout=60)

    async def item(ctx: Context) -> None:
        await ctx.map(load, ["a"])

    async def task(ctx: Context) -> None:
        await asyncio.create_task(load("a"))

    async def several(ctx: Context) -> None:
        began = time.monotonic()
        for number in range(5):  # in memory, nothing gives the loop a turn between them
            await ctx.do(nap, number, began)

    async def nap(number: int, began: float) -> None:
        time.sleep(0.2)
        if number == 4:
            block(began)

    await run(operation, item, task, several)
    begins = [warning.removeprefix("session works-1: ").partition(" blocked")[0] for warning in warnings(caplog)]
    assert begins == [
        "Operation 'load' of step 'operation'",
        "Operation 'load' of step 'item'",
        "Step 'task'",
        "Operation 'nap' of step 'several'",
    ]
    assert "Make the operation a plain def" in warnings(caplog)[0]


@pytest.mark.long
@on_loop
async def test_what_leaves_the_loop_free_causes_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    debugger: dict[str, Any] = {"__name__": "bdb", "sleep": time.sleep}
    exec("def prompt():\n    sleep(1.5)", debugger)

    async def waits(ctx: Context) -> None:
        await asyncio.sleep(1.5)

    async def blocks_often(ctx: Context) -> None:
        for _ in range(4):
            time.sleep(0.4)
            await asyncio.sleep(0)

    async def in_a_thread(ctx: Context) -> None:
        await ctx.do(time.sleep, 1.5)

    async def debugged(ctx: Context) -> None:
        debugger["prompt"]()

    await run(waits, blocks_often, in_a_thread, debugged)
    assert warnings(caplog) == []


@pytest.mark.long
@on_loop
async def test_an_engine_is_watched_only_while_sessions_run() -> None:
    go = asyncio.Event()

    @step
    async def waits(ctx: Context) -> None:
        await go.wait()
        await ctx.receive()

    async def ended() -> None:
        while is_watched():
            await asyncio.sleep(0.05)

    await asyncio.wait_for(ended(), 10)  # that of an earlier test
    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("works", state=Work, steps=[waits]))
        await asyncio.sleep(0.6)
        assert is_watched()
        go.set()
        await asyncio.wait_for(ended(), 10)
        assert (await session.info()).status is Status.WAITING
        await session.send("hello")
        assert (await session.outcome()).status is Status.COMPLETED
    assert not is_watched(), "a program may fork when its engine is closed"


@on_loop
async def test_a_step_that_continues_in_place_is_watched_again() -> None:
    go = asyncio.Event()

    @step
    async def holds(ctx: Context) -> None:
        await asyncio.sleep(0.05)
        await ctx.safe_point()
        await go.wait()

    async def until(watched: bool) -> None:
        while is_watched() is not watched:
            await asyncio.sleep(0.05)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("works", state=Work, steps=[holds], hold=60))
        await session.pause()
        assert (await session.outcome()).status is Status.PAUSED
        await asyncio.wait_for(until(False), 10)
        await session.resume()
        await asyncio.wait_for(until(True), 10)
        go.set()
        assert (await session.outcome()).status is Status.COMPLETED


PROGRAM = """
import time
from pausepoint import run, workflow

@workflow
async def busy() -> int:
    print("runs", flush=True)
    end = time.thread_time() + 0.3
    while time.thread_time() < end:
        pass
    return 1

run(busy, store=":memory:")
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGSTOP")
def test_a_process_that_is_suspended_does_not_count_as_blocked(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(PROGRAM)
    with subprocess.Popen([sys.executable, "busy.py"], cwd=tmp_path, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as program:  # fmt: skip
        assert program.stdout is not None
        assert program.stdout.readline() == "runs\n"
        time.sleep(0.1)
        program.send_signal(signal.SIGSTOP)
        time.sleep(4)
        program.send_signal(signal.SIGCONT)
        _, stderr = program.communicate(timeout=60)
    assert stderr == ""


@pytest.mark.long
def test_pausepoint_run_prints_the_warning(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(PROGRAM.replace("0.3", "2").partition("\nrun(")[0])
    command = [sys.executable, "-m", "pausepoint", "run", "busy:busy", "--store", "s.db"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "blocked the event loop for" in done.stderr
