"""``run --detach`` and ``resume --detach``: a background process drives the session.

This process returns when the session is stored, or has been resumed.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.drive import DRIVING
from pausepoint.cli.exits import DONE, Refused
from pausepoint.model.ids import new_session_id

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine

LOOK_EVERY = 0.02
"""Seconds between two checks whether the session is stored."""


def detach(cli: Cli, workflow: str, args: list[str], session_id: str | None) -> int:
    """Start a session in a background process with the same arguments, and print how to follow it."""
    name = session_id or new_session_id()
    log = _log(cli, name)
    child = _background(cli, log, ["run", "--detached-as", name, *args])
    run_async(_stored(cli, name, child, log))
    return _report(cli, workflow, name, child.pid, log)


def detach_resume(cli: Cli, workflow: str, session_id: str, start: str | None, how: dict[str, Any]) -> int:
    """Resume a session in a background process with the same options, and print how to follow it."""
    log = _log(cli, session_id)
    before = log.stat().st_size if log.exists() else 0
    options = {"from": start, **how, "target": cli.targets}
    child = _background(cli, log, ["resume", session_id, "--detached", *option_words(options)])
    _wait_until_driven(cli, child, log, before)
    return _report(cli, workflow, session_id, child.pid, log)


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Return options as words of a command line.

    >>> option_words({"pause_after": "write", "steal": True, "wake": False, "budget": None, "rerun": ("a", "b")})
    ['--pause-after', 'write', '--steal', '--rerun', 'a', '--rerun', 'b']
    """
    words = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        for each in value if isinstance(value, tuple) else [value]:
            if each is True:
                words.append(option)
            elif each is not None and each is not False:
                words += [option, str(each)]
    return words


def _background(cli: Cli, log: Path, words: list[str]) -> subprocess.Popen[bytes]:
    store = [] if cli.named_store is None else ["--store", cli.named_store]  # given before the verb, it is not in words
    with log.open("ab") as file:
        return subprocess.Popen(
            [*cli.host.launch, *store, *words], stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            start_new_session=True, close_fds=True,
        )  # fmt: skip


def _wait_until_driven(cli: Cli, child: subprocess.Popen[bytes], log: Path, before: int) -> None:
    """Wait until the process has resumed the session. If it exits before that, refuse with its error message."""
    while True:
        code = child.poll()  # before the log, so that its last words are in the log
        said = log.read_bytes()[before:].decode(errors="replace").strip()
        if DRIVING in said:
            return
        if code is not None:
            said = said.removeprefix(f"{cli.host.name}: ")
            raise Refused(said or f"The background process exited with code {code}. See {log}", code or 1)
        time.sleep(LOOK_EVERY)


def _log(cli: Cli, name: str) -> Path:
    folder = cli.folder / "logs"
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
        return bool(await engine.session(name).info())
    except UnknownSession:
        return False


def _report(cli: Cli, workflow: str, name: str, process: int, log: Path) -> int:
    from pausepoint.cli.documents import Detached

    watch = cli.command("watch", name)
    if not cli.out.for_people:
        cli.out.document(Detached(name, process, str(log), watch))
        return DONE
    cli.out.line(f"Session {name} of {workflow} is running in the background, in process {process}")
    cli.out.note(f"Watch:  {watch}")
    cli.out.note(f"Pause:  {cli.command('pause', name)}")
    cli.out.note(f"Log:    {log}")
    return DONE
