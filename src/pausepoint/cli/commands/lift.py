"""`resume --all`: a pause of everything is lifted, and what can go on here does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pausepoint.cli.commands.pause import LOOK_EVERY, print_sessions
from pausepoint.cli.commands.worker import STOPPED, shown_log
from pausepoint.cli.context import Cli, program_of, run_async
from pausepoint.cli.exits import CONFLICT, DONE, INTERRUPTED, TERMINATED
from pausepoint.cli.host import command_line
from pausepoint.cli.text import counted, standing_pause_line
from pausepoint.engine import documents
from pausepoint.errors import DamagedRecord

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.sessions import Pause
    from pausepoint.model.views import Listing, SessionInfo


def lift(cli: Cli, by: str | None) -> int:
    """Lift it, and drive here what this project has the code of, until that stands."""
    if not cli.place.exists and not cli.place.explicit:
        cli.out.line("There is no store here, so nothing stands still.")
        if cli.out.as_json:
            cli.out.document(documents.listing([], 0, ()))
        return DONE
    try:
        return int(run_async(_lift(cli, by)))
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != TERMINATED:
            raise
        cli.out.note(STOPPED)
        return TERMINATED if isinstance(end, SystemExit) else INTERRUPTED


async def _lift(cli: Cli, by: str | None) -> int:
    async with cli.engine(code=True) as engine:
        stood = await _stood(engine)
        if stood is not None:
            cli.out.line(f"{standing_pause_line(stood).replace('stands still', 'stood still')}. That is over.")
        with shown_log(cli.out, {}):
            found = await engine.lift_pause(by=by)
            _tell(cli, engine, stood, found)
            await _driven(engine)
        if cli.out.as_json:
            infos = [await engine.info(info.session_id) for info in found]
            cli.out.document(documents.listing(infos, len(infos), found.damaged))
    return CONFLICT if found.damaged else DONE


async def _stood(engine: Engine) -> Pause | None:
    try:
        return await engine.standing_pause()
    except DamagedRecord:  # to lift it is the way out
        return None


def _tell(cli: Cli, engine: Engine, stood: Pause | None, found: Listing[SessionInfo]) -> None:
    if stood is None and not found:
        cli.out.line("Nothing to lift: no pause of everything stands.")
    print_sessions(cli, found)
    for damage in found.damaged:
        cli.out.line(f"{damage.fields['session_id']}  stays as it is, and is damaged: {damage}")
    left = [info for info in found if info.status.value == "ready" and info.workflow not in engine.workflows]
    for info in (named := [info for info in left if program_of(info.tags) is not None]):
        cli.out.note(f"Go on:  {cli.resume(info)}")
    left = [info for info in left if info not in named]
    if left:
        many = counted(len(left), "is ready, and its code is not here", "are ready, and their code is not here")
        cli.out.note(f"{many}: who has it open drives it, or `{command_line('worker')}` with its --target")


async def _driven(engine: Engine) -> None:
    """Until nothing runs here. What one session ends may wake another, so look twice."""
    quiet = 0
    while quiet < 2:
        await asyncio.sleep(LOOK_EVERY)
        quiet = 0 if engine.running else quiet + 1
