"""`gate serve`: hold the agents of a project under the pause button, one guest session each."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import CONFLICT, DONE, Refused, stopped_by
from pausepoint.cli.text import one_line

if TYPE_CHECKING:
    from pausepoint.gate.settings import GateSettings

ENDED = "Stopped. Agents that wait get half a minute to find another server; then the settings decide."


def serve(cli: Cli, settings: GateSettings, words: bool) -> int:
    """Serve the gate until the process is stopped. ``words``: store what the agents are told and say."""
    try:
        return int(run_async(_served(cli, settings, words)))
    except (KeyboardInterrupt, SystemExit) as end:
        code = stopped_by(end)
        cli.out.note(ENDED)
        return code


async def _served(cli: Cli, settings: GateSettings, words: bool) -> int:
    from pausepoint.engine.engine import Engine
    from pausepoint.errors import GateRefused
    from pausepoint.gate.guests import GuestAgents
    from pausepoint.gate.settings import make_private

    path = Path(settings.socket)
    make_private(path.parent)
    say = partial(_line, cli)
    async with Engine(cli.place.url) as engine:
        try:
            async with GuestAgents(engine, path, settings.restricted, say, words) as agents:
                _say(cli, settings)
                await asyncio.gather(agents.watched(), asyncio.Event().wait())
        except GateRefused as refused:
            raise Refused(str(refused), CONFLICT) from refused
    return DONE


def _line(cli: Cli, name: str, text: str) -> None:
    cli.out.line(f"{time.strftime('%H:%M:%S')}  {name}  {one_line(text)}")


def _say(cli: Cli, settings: GateSettings) -> None:
    if cli.out.as_json:  # on one line, for programs that read lines while the server runs
        from pausepoint.cli.documents import GateServe

        cli.out.record(GateServe(settings.socket, str(cli.place.path), settings.restricted))
    cli.out.note(f"Agents of {cli.project.root} stop here when they are paused; Ctrl+C ends it.")
    for pattern in settings.restricted:
        cli.out.note(f"A person must approve:  {pattern}")
