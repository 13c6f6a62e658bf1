"""A call of the context that a step leaves running: a warning names it, and asyncio prints nothing of its own."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, durable, step
from tests.support.loop import on_loop


class Mail(BaseModel):
    sent: int = 0


async def slow() -> str:
    await asyncio.sleep(0.05)
    return "sent"


async def fails_late() -> str:
    await asyncio.sleep(0.05)
    raise ValueError("no such address")


async def fails() -> str:
    raise ValueError("no such address")


def forget(call: Coroutine[Any, Any, Any]) -> None:
    task = asyncio.ensure_future(call)
    assert not task.done()


async def told(caplog: pytest.LogCaptureFixture, body: Callable[[Context], Awaitable[Any]]) -> tuple[Status, list[str]]:
    """Run a step, let what it has left running end, and return the session's status and the warnings."""

    @step(writes="sent")
    async def deliver(ctx: Context) -> int:
        await body(ctx)
        return 1

    caplog.clear()
    mail = Workflow("mail", state=Mail, steps=[deliver])
    async with Engine(":memory:", workflows=[mail]) as engine:
        outcome = await (await engine.start(mail, session_id="mail-1")).outcome()
        await asyncio.sleep(0.1)
        gc.collect()
        assert [record for record in caplog.records if record.name == "asyncio"] == []
    warned = [record for record in caplog.records if record.name == "pausepoint.advice"]
    assert {(record.levelno, record.__dict__["session_id"], record.__dict__["step"]) for record in warned} <= {
        (logging.WARNING, "mail-1", "deliver")
    }
    return outcome.status, [record.getMessage() for record in warned]


@pytest.mark.long
@on_loop
async def test_a_call_that_runs_when_the_step_ends_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def body(ctx: Context) -> None:
        forget(ctx.do(slow))
        await asyncio.sleep(0)

    assert await told(caplog, body) == (
        Status.COMPLETED,
        [
            "session mail-1: Step 'deliver' ended while ctx.do(slow) was still running. The function runs to its end,"
            " but its result is not kept. Await the task before the step returns, or use asyncio.gather(),"
            " asyncio.TaskGroup or ctx.map()."
        ],
    )


@pytest.mark.long
@on_loop
async def test_a_call_inside_a_task_of_the_step_is_named_too(caplog: pytest.LogCaptureFixture) -> None:
    over = asyncio.Event()

    async def deliver_to(name: str) -> None:
        await over.wait()

    async def body(ctx: Context) -> None:
        async def all_mail() -> None:
            await ctx.map(deliver_to, ["Ada", "Bea"])

        forget(all_mail())
        for number in range(200):  # more calls than are remembered at first
            await ctx.do(asyncio.sleep, 0, number)
        over.set()

    status, [warning] = await told(caplog, body)
    assert status is Status.COMPLETED
    assert "ended while ctx.map(deliver_to) was still running" in warning


@pytest.mark.long
@on_loop
async def test_a_call_that_fails_after_the_end_of_its_step_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def body(ctx: Context) -> None:
        forget(ctx.do(fails_late))
        await asyncio.sleep(0)

    status, [_, failure] = await told(caplog, body)
    assert status is Status.COMPLETED
    assert failure == (
        "session mail-1: ctx.do(fails_late), which step 'deliver' did not await, failed after the step had ended:"
        " ValueError: no such address. Await its task in the step to handle the error."
    )


@pytest.mark.long
@on_loop
async def test_a_call_that_failed_unseen_before_the_end_of_its_step_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @durable
    async def lost() -> None:
        raise ValueError("lost, too")

    async def body(ctx: Context) -> None:
        seen = asyncio.create_task(ctx.do(fails, key="seen"))
        unseen = asyncio.create_task(ctx.do(fails)), asyncio.create_task(lost())
        await asyncio.wait([seen, *unseen])
        assert isinstance(seen.exception(), ValueError)

    status, warnings = await told(caplog, body)
    assert status is Status.COMPLETED
    assert sorted(warning.partition(", which")[0] for warning in warnings) == [
        "session mail-1: ctx.do(fails)", "session mail-1: ctx.do(lost)",
    ]  # fmt: skip
    assert "did not await, failed: ValueError: no such address." in "".join(warnings)


@pytest.mark.long
@on_loop
async def test_the_call_that_a_failing_step_leaves_running_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def body(ctx: Context) -> None:
        forget(ctx.do(slow))
        await asyncio.sleep(0)
        await ctx.do(fails)

    status, [warning] = await told(caplog, body)
    assert status is Status.FAILED
    assert "ended while ctx.do(slow) was still running" in warning


@pytest.mark.long
@on_loop
async def test_a_wait_that_is_left_is_cancelled_and_named(caplog: pytest.LogCaptureFixture) -> None:
    ends: list[str] = []

    async def body(ctx: Context) -> None:
        async def listen() -> None:
            try:
                await ctx.receive()
            finally:
                ends.append("listen")

        forget(listen())
        await ctx.do(slow)

    status, [warning] = await told(caplog, body)
    assert status is Status.COMPLETED
    assert "ended without awaiting ctx.receive(). The wait is cancelled." in warning
    assert ends == ["listen"]


@pytest.mark.long
@on_loop
async def test_what_a_step_cancels_or_has_never_begun_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    async def cancels(ctx: Context) -> None:
        task = asyncio.create_task(ctx.do(slow))
        await asyncio.sleep(0)
        task.cancel()

    async def begins_nothing(ctx: Context) -> None:
        forget(ctx.do(slow))

    assert await told(caplog, cancels) == (Status.COMPLETED, [])
    assert await told(caplog, begins_nothing) == (Status.FAILED, [])  # its failure names the call


@pytest.mark.long
@pytest.mark.parametrize("mode", ["finish", "abort"])
@on_loop
async def test_a_step_that_is_made_to_exit_has_forgotten_nothing(mode: Any, caplog: pytest.LogCaptureFixture) -> None:
    begun = asyncio.Event()

    @step
    async def deliver(ctx: Context) -> None:
        async def listen() -> None:
            await ctx.do(slow)
            await ctx.receive()

        later = asyncio.create_task(listen())
        await asyncio.sleep(0)
        begun.set()
        await (ctx.sleep(3600) if mode == "finish" else asyncio.sleep(3600))
        await later

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("mail", state=Mail, steps=[deliver]))
        await begun.wait()
        await session.pause(mode=mode)
        assert (await session.outcome()).status is Status.PAUSED
        await asyncio.sleep(0.1)
        gc.collect()
    assert [record for record in caplog.records if record.name in ("asyncio", "pausepoint.advice")] == []


PROGRAM = """
import asyncio, sys, logging
from pausepoint import Context, run, workflow
if sys.argv[1:]:
    logging.getLogger("pausepoint").addHandler(logging.FileHandler(sys.argv[1]))

async def slow():
    await asyncio.sleep(0.01)

@workflow
async def hasty(ctx: Context) -> int:
    asyncio.create_task(ctx.do(slow))
    await asyncio.sleep(0)
    return 1

print(run(hasty, store=":memory:"))
"""


@pytest.mark.long
def test_a_program_without_logging_prints_the_warning_and_one_with_logging_handles_it(tmp_path: Any) -> None:
    (tmp_path / "hasty.py").write_text(PROGRAM)

    def printed(*arguments: str) -> str:
        command = [sys.executable, "hasty.py", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stderr

    [line] = printed().splitlines()
    assert "Step 'hasty' ended while ctx.do(slow) was still running" in line
    assert printed("log") == ""
    assert "ended while ctx.do(slow)" in (tmp_path / "log").read_text()
