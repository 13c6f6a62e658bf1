"""A folder with the workflow of `tests.cli.brief`: what the tests of `run`, `resume` and `worker` begin with."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import time
from contextlib import chdir
from pathlib import Path
from typing import Any

import click

from pausepoint import Engine, Status
from pausepoint.cli.app import app
from pausepoint.cli.exits import code_of
from pausepoint.errors import PausepointError
from pausepoint.model.views import SessionInfo
from tests.cli import brief as sample
from tests.cli.kit import plain
from tests.support.loop import PATIENCE


class Desk:
    """A project folder. Its file ``calls.txt`` tells what was executed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = root / ".pausepoint" / "pausepoint.db"
        shutil.copy(sample.__file__, root / "brief.py")

    @property
    def calls(self) -> list[str]:
        path = self.root / "calls.txt"
        return path.read_text().splitlines() if path.exists() else []

    def reaches(self, call: str) -> None:
        """Wait until something was begun."""
        end = time.monotonic() + PATIENCE
        while call not in self.calls:
            assert time.monotonic() < end, f"{call} was never reached: {self.calls}"
            time.sleep(0.01)

    def forget_calls(self) -> None:
        (self.root / "calls.txt").unlink(missing_ok=True)

    def hold(self, step: str) -> None:
        (self.root / f"hold-{step}").touch()

    def release(self, step: str) -> None:
        (self.root / f"hold-{step}").unlink()

    def breaks(self, step: str) -> None:
        (self.root / f"break-{step}").touch()

    def mend(self, step: str) -> None:
        (self.root / f"break-{step}").unlink()

    def sessions(self) -> list[SessionInfo]:
        """What is stored, newest first."""

        async def look() -> list[SessionInfo]:
            async with Engine(self.store) as engine:
                return list(await engine.sessions())

        return asyncio.run(look())

    def failed(self, step: str, session_id: str = "mine") -> str:
        """A session that failed in a step, which is mended since. Made without a process of its own."""

        async def start() -> None:
            async with Engine(self.store) as engine:
                session = await engine.start(sample.brief, topic="otters", session_id=session_id)
                assert (await session.outcome()).status is Status.FAILED

        self.breaks(step)
        with chdir(self.root):
            asyncio.run(start())
        self.mend(step)
        self.forget_calls()
        return session_id

    def refused(self, *args: str) -> tuple[int, str]:
        """The exit code and the words of a command that is refused before anything runs: needs no process."""
        try:
            with chdir(self.root):
                app(list(args), standalone_mode=False)
        except click.ClickException as error:
            return error.exit_code, error.format_message()
        except PausepointError as error:
            return code_of(error), str(error)
        raise AssertionError(f"{args} was not refused")

    def stored(self, *ids: str, **options: Any) -> None:
        """Sessions that were stored paused."""

        async def start() -> None:
            async with Engine(self.store) as engine:
                for session_id in ids:
                    await engine.start(sample.brief, topic="otters", session_id=session_id, paused=True, **options)

        asyncio.run(start())


def last_line(text: str) -> str:
    return plain(text).rstrip().splitlines()[-1]


def resume_command(text: str) -> list[str]:
    """The arguments of the command to go on with, which was printed last."""
    said, _, command = last_line(text).partition(":")
    assert said == "Resume", text
    words = shlex.split(command)
    assert words[:2] == ["pausepoint", "resume"], text
    return words[1:]
