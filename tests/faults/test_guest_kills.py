"""``kill -9`` in the block of a guest session: the next visit, in another process, continues it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from pausepoint import Engine, Parked, Status
from tests.engine.guest import AGENT
from tests.support.children import child
from tests.support.loop import on_loop

VISIT = """
from tests.engine.guest import AGENT
from pausepoint import durable
from pausepoint.runtime.visit import Visit

if args[3:] == ["forgets operations"]:
    Visit.remembered = lambda visit, operation: None

@durable
async def turn(n):
    with open(args[1], "a") as file:
        file.write(f"{n}\\n")
    say(n)
    if n == int(args[2]):
        await asyncio.Event().wait()
    return n

async with Engine(args[0]) as engine:
    async with engine.visit(AGENT, session_id="t", input={"topic": "otters"}) as ctx:
        total = sum([await turn(n) for n in range(4)])
        ctx.output = {"turns": total, "answer": await ctx.ask("Fine?", expires=None)}
"""


async def listen(engine: Engine) -> None:
    """Visit the session with other code, which waits for a message."""
    async with engine.visit(AGENT, session_id="t") as ctx:
        known = ctx._visit.host.line.operations.values()
        assert [operation.name for operation in known] == ["turn", "turn"]
        await ctx.receive()


@pytest.mark.long
@on_loop
async def test_a_killed_program_continues_with_its_next_visit_and_nobody_else_does(tmp_path: Path) -> None:
    path, log = tmp_path / "h.db", tmp_path / "log"
    for last in (1, 2):
        with child(VISIT, path, log, last) as running:
            while running.line() != str(last):
                pass
            running.signal(signal.SIGKILL)
            assert running.ended() == -signal.SIGKILL
    assert log.read_text().split() == ["0", "1", "1", "2"]  # the fault fired: only the operation in flight repeats
    async with Engine(path, workflows=[AGENT]) as engine:
        before = await engine.session("t").info()
        assert (before.status, before.holder) == (Status.READY, None)
        assert await engine.take_ready() == []
        with pytest.raises(Parked, match="waiting"):
            await listen(engine)
        await engine.session("t").send("go on")
        assert await engine.store.due(2**50, ["agent"], 9) == []  # what a waker asks
        assert (await engine.session("t").info()).status is Status.READY
    with child(VISIT, path, log, -1) as running:
        assert [running.line(), running.line()] == ["2", "3"]
        assert running.ended() == 1  # the question parks it, and nobody catches that in this program
    async with Engine(path) as engine:
        await engine.session("t").answer("yes")
    with child(VISIT, path, log, -1) as running:
        assert running.ended() == 0
    async with Engine(path, workflows=[AGENT]) as engine:
        assert (await engine.session("t").info()).status is Status.COMPLETED
        assert (await engine.session("t").state()).model_dump() == {"topic": "otters", "answer": "yes", "turns": 6}
    assert log.read_text().split() == ["0", "1", "1", "2", "2", "3"]


@pytest.mark.long
@on_loop
async def test_an_engine_that_forgets_operations_is_caught(tmp_path: Path) -> None:
    path, log = tmp_path / "h.db", tmp_path / "log"
    for last in (1, 2):
        with child(VISIT, path, log, last, "forgets operations") as running:
            while running.line() != str(last):
                pass
            running.signal(signal.SIGKILL)
            assert running.ended() == -signal.SIGKILL
    assert log.read_text().split() == ["0", "1", "0", "1", "2"]
