"""A project with a session of every kind, made in this process, for the commands that look."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from pausepoint import Engine
from pausepoint.cli.app import app
from pausepoint.cli.exits import code_of
from pausepoint.errors import PausepointError
from tests.cli.kit import Done
from tests.cli.samples import STORE, within

CODE = """
import asyncio
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

from pausepoint import Context, Workflow, guard, step


class Brief(BaseModel):
    topic: str
    facts: list[str] = []
    draft: str = ""
    score: int = 0


async def look_up(fact: int, ctx: Context) -> str:
    ctx.spend(usd="0.01")
    return f"fact {fact}"


@step(writes="facts")
async def research(topic: str, ctx: Context) -> list[str]:
    return await ctx.map(look_up, range(3))


@step(writes="draft")
async def write(topic: str, facts: list[str], ctx: Context) -> str:
    if topic == "fail":
        raise ValueError("no tone for\\n it \\x1b[2J")
    if topic == "sleep":
        await ctx.sleep(timedelta(hours=3))
    if topic == "wait":
        return await ctx.receive(str)
    if topic == "ask":
        return await ctx.ask("Which tone?", choices=["formal", "playful"])
    if topic == "no":
        await ctx.confirm("Send it?")
    if topic == "call":
        return (await ctx.call(brief, topic="wait")).draft
    while topic == "hold" and not Path("go").exists():
        await asyncio.sleep(0.02)
    return " ".join(facts) * 30


@step(writes="score")
async def review(draft: str) -> int:
    return len(draft)


@guard(after="review")
def interesting(topic: str) -> str | None:
    return "too dull" if topic == "guard" else None


brief = Workflow("brief", state=Brief, steps=[research, write, review], guards=[interesting])
"""


def project(folder: Path) -> Path:
    """The folder with the code, named in pyproject.toml."""
    (folder / "brief.py").write_text(CODE)
    (folder / "pyproject.toml").write_text('[tool.pausepoint.workflows]\nbrief = "brief.py:brief"\n')
    return folder


def workflow(folder: Path) -> Any:
    """The workflow, imported here."""
    spec = importlib.util.spec_from_file_location("brief_of_the_zoo", folder / "brief.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.brief


def fill(folder: Path, *topics: str, **paused: str) -> dict[str, str]:
    """A session for each topic, until it pauses or ends: the ids, by topic. ``paused``: ids and reasons of others."""
    project(folder)
    brief = workflow(folder)

    async def act(engine: Engine) -> dict[str, str]:
        ids = {}
        for topic in topics:
            session = await engine.start(brief, topic=topic, tags=["zoo"], owner="ann" if topic == "wait" else None)
            ids[topic] = str(session.id)
            while topic == "sleep" and await session.status() != "sleeping":
                await asyncio.sleep(0.01)
            if topic != "sleep":
                await session.outcome()
            if topic == "no":
                await session.answer("no")
                await session.outcome()
        for session_id, reason in paused.items():
            await engine.start(brief, topic="squid", session_id=session_id, paused=True, reason=reason, by="bob")
        return ids

    found: dict[str, str] = within(folder / STORE, act, brief)
    return found


def here(folder: Path, *args: str) -> Done:
    """``pausepoint ARGS`` within this process, for what needs no process of its own."""
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, args, standalone_mode=False)
    if done.exception is not None:
        assert isinstance(done.exception, click.ClickException | PausepointError), done.exception
        code = done.exception.exit_code if isinstance(done.exception, click.ClickException) else code_of(done.exception)
        return Done(code, done.stdout, done.stderr + str(done.exception))
    return Done(done.return_value or 0, done.stdout, done.stderr)
