"""`resume --all`: lift a pause of everything, and drive the sessions whose code this project has."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pausepoint.cli.commands.pause import LOOK_EVERY, print_sessions
from pausepoint.cli.commands.worker import STOPPED, shown_log
from pausepoint.cli.context import Cli, picked_up, program_of, run_async, when_picked_up
from pausepoint.cli.exits import CONFLICT, DONE, stopped_by
from pausepoint.cli.text import counted, standing_pause_line
from pausepoint.engine import documents
from pausepoint.errors import DamagedRecord

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.views import Listing, SessionInfo, StandingPause


def lift(cli: Cli, by: str | None) -> int:
    """Lift a pause of everything, and drive the sessions whose code this project has until none of them runs."""
    if not cli.place.exists and not cli.place.explicit:
        cli.out.line("There is no store here, so nothing is paused.")
        if cli.out.as_json:
            cli.out.document(documents.listing([], 0, ()))
        return DONE
    try:
        return int(run_async(_lift(cli, by)))
    except (KeyboardInterrupt, SystemExit) as end:
        code = stopped_by(end)
        cli.out.note(STOPPED)
        return code


async def _lift(cli: Cli, by: str | None) -> int:
    async with cli.engine(code=True) as engine:
        pause = await _standing_pause(engine)
        if pause is not None:
            cli.out.say(f"{standing_pause_line(pause)}. Lifting the pause.")
        with shown_log(cli.out, {}):
            found = await engine.lift_pause(by=by)
            await _report(cli, engine, pause, found)
            await _note_paused(cli, engine)
            await _driven(engine)
        if cli.out.as_json:
            infos = [await engine.session(info.session_id).info() for info in found]
            cli.out.document(documents.listing(infos, len(infos), found.damaged))
    return CONFLICT if found.damaged else DONE


async def _standing_pause(engine: Engine) -> StandingPause | None:
    try:
        return await engine.standing_pause()
    except DamagedRecord:  # lifting the pause repairs it
        return None


async def _report(cli: Cli, engine: Engine, pause: StandingPause | None, found: Listing[SessionInfo]) -> None:
    if pause is None and not found:
        cli.out.line("There is nothing to lift: no `pause --all` is in effect.")
    print_sessions(cli, found)
    for damage in found.damaged:
        cli.out.line(f"{damage.fields['session_id']}  is damaged and cannot continue: {damage}")
    idle = [info for info in found if info.status.value in ("ready", "created") and info.kept_by is None]
    left = [info for info in idle if info.workflow not in engine.workflows and not info.guest]
    taken = await picked_up(engine, left)
    left = [info for info in left if info not in taken]
    named = [info for info in left if program_of(info.tags) is not None]
    # A process that stands by may be about to begin.
    for now in await asyncio.gather(*(when_picked_up(engine, info.session_id) for info in named)):
        if now.status.value in ("ready", "created"):
            cli.out.note(cli.resume_line(now))
    left = [info for info in left if info not in named]
    if left:
        many = counted(len(left), "session is ready, but its code is", "sessions are ready, but their code is")
        worker = cli.command("worker", workflow=left[0].workflow)
        cli.out.note(f"{many} not loaded. A process that has the code runs {'it' if len(left) == 1 else 'them'}.")
        cli.out.note(f"Run all of them{cli.to_add(left[0])}:  {worker}")
        cli.out.note(cli.resume_line(left[0], "Run one of them"))


async def _note_paused(cli: Cli, engine: Engine) -> None:
    """Print how many sessions stay paused, because they have pauses of their own."""
    count = sum((await engine.tally(status="paused")).values())
    some = await engine.sessions(status="paused", limit=1)
    if some:
        many = counted(count, "session stays paused: it has a pause", "sessions stay paused: they have pauses")
        which = "Resume it" if count == 1 else "Resume one of them"
        cli.out.note(f"{many} of {'its' if count == 1 else 'their'} own. {cli.resume_line(some[0], which)}")


async def _driven(engine: Engine) -> None:
    """Wait until no session runs here. The end of one session may wake another, so check twice."""
    quiet = 0
    while quiet < 2:
        await asyncio.sleep(LOOK_EVERY)
        quiet = 0 if engine.running else quiet + 1
