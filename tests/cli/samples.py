"""Projects with sessions in them, made in this process, for commands that look at them from others."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
from pydantic import BaseModel

from pausepoint import Context, Engine, Workflow, step
from tests.cli.letter import Letter, letter

__all__ = ["CODE", "STORE", "Letter", "crowd", "execute", "letter", "letters", "post_letters", "project", "within"]

STORE = ".pausepoint/pausepoint.db"

CODE = Path(__file__).with_name("letter.py").read_text(encoding="utf-8")


class Crowd(BaseModel):
    size: int


@step
async def invite(size: int, ctx: Context) -> None:
    await asyncio.gather(*(ctx.call(letter, name=str(number)) for number in range(size)))


crowd = Workflow("crowd", state=Crowd, steps=[invite])
"""Calls as many letters, all of which wait for a reply."""


def project(folder: Path, code: str = CODE) -> Path:
    """A folder with that workflow in ``letter.py``, named in pyproject.toml."""
    (folder / "letter.py").write_text(textwrap.dedent(code))
    (folder / "pyproject.toml").write_text('[tool.pausepoint.workflows]\nletter = "letter.py:letter"\n')
    return folder


def within(store: Path | str, act: Callable[[Engine], Awaitable[Any]], *workflows: Workflow[Any]) -> Any:
    """Open a store here, do something, and close it."""

    async def main() -> Any:
        async with Engine(store, workflows=workflows or [letter]) as engine:
            return await act(engine)

    return asyncio.run(main())


def letters(folder: Path, **names: str) -> Path:
    """A store with a session for each: by its id, to whom the letter goes. All of them wait for a reply."""
    store = folder / STORE
    post_letters(store, **names)
    return store


def post_letters(store: Path | str, **names: str) -> None:
    """Start the sessions of `letters` in a store."""

    async def start(engine: Engine) -> None:
        for session_id, name in names.items():
            await (await engine.start(letter, session_id=session_id, name=name)).outcome()

    within(store, start)


def execute(store: Path, statement: str, *values: object) -> None:
    """Change a database that nobody has open."""
    connection = apsw.Connection(str(store))
    connection.execute(statement, values)
    connection.close()
