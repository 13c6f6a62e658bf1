"""Devs as a job of the fork server: a real process that imports nothing anew, and can be struck at a named moment.

``HELD_AT`` names it: ``begin b`` (before the command of b), ``during b`` (its command runs), ``end b`` (it has run, and
nobody has remembered that). There the process sends itself ``HELD_BY``; without one it says that it is there.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pausepoint.apps.devs.__main__ import main
from pausepoint.apps.devs.commands import Commands, Ran
from tests.apps.devs_kit import task, write_plan
from tests.support.forkserver import say
from tests.support.held import as_program

_run = Commands.run


def here(moment: str) -> None:
    if moment != os.environ.get("HELD_AT"):
        return
    if os.environ.get("HELD_BY"):
        os.kill(os.getpid(), signal.Signals[os.environ["HELD_BY"]])
    else:
        say({"at": moment})


async def watched(
    self: Commands, command: str | Sequence[str], folder: Path, log: Path, timeout: float | None,
    env: Mapping[str, str], **more: Any,
) -> Ran:  # fmt: skip
    task = env["DEVS_TASK"]
    here(f"begin {task}")
    beginning = asyncio.ensure_future(_begun(folder, task, _count(folder, task)))
    try:
        found = await _run(self, command, folder, log, timeout, env, **more)
    finally:
        beginning.cancel()
    here(f"end {task}")
    return found


async def _begun(folder: Path, task: str, known: int) -> None:
    """Until the command says that it runs."""
    while _count(folder, task) == known:
        await asyncio.sleep(0.005)
    here(f"during {task}")
    if os.environ.get("HELD_BY"):
        (folder / f"hold-{task}").unlink(missing_ok=True)  # it was held until the signal was there


def _count(folder: Path, task: str) -> int:
    path = folder / "began"
    return path.read_text().count(f"{task} ") if path.exists() else 0


def warm_up() -> None:
    """Run a plan once: what is made on first use is then there in every fork. So is the client of models."""
    import pausepoint.apps.model.run  # noqa: F401

    with TemporaryDirectory() as folder:
        path = write_plan(Path(folder), [task("a")])
        main(["run", str(path), "--store", f"{folder}/devs.db"], standalone_mode=False)


def job(args: list[str], **place: Any) -> None:
    """``python -m pausepoint.apps.devs ARGS``."""
    with as_program("pausepoint.apps.devs", args, **place):
        Commands.run = watched  # type: ignore[method-assign]  # in this process alone
        main(args)
