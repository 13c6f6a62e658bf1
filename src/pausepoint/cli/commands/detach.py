"""``run --detach``: a background process drives the session; this one returns when the session is stored."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import DONE, Refused
from pausepoint.model.ids import new_session_id

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine

LOOK_EVERY = 0.02
"""Seconds between two checks whether the session is stored."""


def detach(cli: Cli, workflow: str, args: list[str], session_id: str | None) -> int:
    """Start a background process with the same arguments, and print how to follow it."""
    name = session_id or new_session_id()
    log = _log(cli, name)
    store = [] if cli.named_store is None else ["--store", cli.named_store]  # given before `run`, it is not in args
    command = [*cli.host.launch, *store, "run", "--detached-as", name, *args]
    with log.open("ab") as file:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, close_fds=True
        )
    run_async(_stored(cli, name, child, log))
    return _report(cli, workflow, name, child.pid, log)


def _log(cli: Cli, name: str) -> Path:
    assert cli.place.path is not None
    folder = cli.place.path.parent / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.log"


async def _stored(cli: Cli, name: str, child: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the session is stored. If the process exits before that, refuse with its error message."""
    async with cli.engine(create=True) as engine:
        while not await _is_there(engine, name):
            if (code := child.poll()) is not None and not await _is_there(engine, name):
                said = log.read_text(encoding="utf-8", errors="replace").strip().removeprefix(f"{cli.host.name}: ")
                raise Refused(said or f"The background process exited with code {code}. See {log}", code or 1)
            await asyncio.sleep(LOOK_EVERY)


async def _is_there(engine: Engine, name: str) -> bool:
    from pausepoint.errors import UnknownSession

    try:
        return bool(await engine.info(name))
    except UnknownSession:
        return False


def _report(cli: Cli, workflow: str, name: str, process: int, log: Path) -> int:
    from pausepoint.engine import documents

    watch = cli.command("watch", name)
    if not cli.out.for_people:
        cli.out.document(documents.detached(name, process, str(log), watch))
        return DONE
    cli.out.line(f"Session {name} of {workflow} is running in the background, in process {process}")
    cli.out.note(f"Watch:  {watch}")
    cli.out.note(f"Pause:  {cli.command('pause', name)}")
    cli.out.note(f"Log:    {log}")
    return DONE
