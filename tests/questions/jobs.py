"""What other processes do with questions; run by the fork server."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.errors import QuestionError
from tests.support.forkserver import say


class Poll(BaseModel):
    log: str
    said: str = ""
    used: str = ""


def note(log: str, line: str) -> str:
    """An effect that can be counted from outside: one line in a file."""
    with open(log, "a", encoding="utf-8") as file:
        file.write(line + "\n")
    return line


@step
async def before(log: str, ctx: Context) -> None:
    """Runs once, whatever happens later."""
    await ctx.do(note, log, "before")


@step(writes=["said", "used"])
async def poll(log: str, ctx: Context) -> dict[str, Any]:
    """Asks, then does something with the answer."""
    said = await ctx.ask("投票？🐙", expires=None)
    return {"said": said, "used": await ctx.do(note, log, f"used {said}")}


polling = Workflow("polling", state=Poll, steps=[before, poll])


def warm_up() -> None:
    """What every job would have to do first."""


def answer(path: str, question: str, value: str, gate: str) -> None:
    """Wait for the gate, then answer."""
    asyncio.run(_answer(path, question, value, gate))


async def _answer(path: str, question: str, value: str, gate: str) -> None:
    async with Engine(path) as engine:
        say({"ready": True})
        while not Path(gate).exists():
            await asyncio.sleep(0.002)
        try:
            receipt = await engine.answer(question, value, by=value, channel="race")
            say({"verdict": "taken", "by": receipt.by})
        except QuestionError as error:
            say({"verdict": type(error).__name__, "by": error.fields.get("by")})


def ask_and_die(path: str, session: str, log: str) -> None:
    """Drive the session until it waits, then die as if the power was gone."""
    asyncio.run(_ask_and_die(path, session, log))


async def _ask_and_die(path: str, session_id: str, log: str) -> None:
    async with Engine(path) as engine:
        session = await engine.start(polling, session_id=session_id, log=log)
        while await session.status() is not Status.WAITING:
            await session.outcome()
        [question] = await session.questions()
        say({"question": question.id, "text": question.next_question})
        os.kill(os.getpid(), signal.SIGKILL)


def drive(path: str, session: str) -> None:
    """Take the session up and bring it to its end."""
    asyncio.run(_drive(path, session))


async def _drive(path: str, session_id: str) -> None:
    async with Engine(path, workflows=[polling]) as engine:
        outcome = await engine.session(session_id).outcome()
        say({"status": outcome.status.value, "said": outcome.state.said})
