"""Stay with a run that has stopped, and continue it when someone resumes or answers it from anywhere.

The process keeps the workspace and its record meanwhile. Before it continues, it compares both with the run, exactly as
``resume`` does; if something has changed, it pauses the run again and says why.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pausepoint import Engine, Status
from pausepoint.apps.devs import workspace
from pausepoint.apps.devs.commands import LOCK
from pausepoint.apps.devs.display import folded
from pausepoint.apps.devs.models import Plan
from pausepoint.apps.devs.plan import read
from pausepoint.apps.devs.runs import differences, stored_tasks
from pausepoint.apps.devs.tasks import Worker
from pausepoint.apps.input import BadInput
from pausepoint.apps.words import display_line, many
from pausepoint.model import SessionInfo
from pausepoint.orchestrator import Orchestrator

if TYPE_CHECKING:
    from pausepoint.apps.devs.program import Ride

BY = "devs"
"""The author of a pause that this process requests, because it cannot continue the run."""

PATIENCE = 5.0
"""How many seconds a process that has just stopped may take to stand by."""

PICKED_UP_WITHIN = 60.0
"""How many seconds a process that stands by may take to continue after a resume, on a busy machine."""

LOOK_EVERY = 0.2
"""Seconds between two looks at the processes that this one stays for."""

LISTED = 3
"""The maximum number of changes to name in the reason of a pause."""


class Standby:
    """This process, while the run that it drives has stopped."""

    def __init__(self, ride: Ride, engine: Engine, run: Orchestrator, worker: Worker) -> None:
        self.ride = ride
        self.engine = engine
        self.run = run
        self.worker = worker

    @property
    def stays(self) -> bool:
        """Whether the process stays with the run: the user asked for it, or it keeps processes of the run."""
        stopped = self.ride.view.status in ("paused", "waiting") and not self.engine.ending
        return stopped and (self.ride.stay or bool(self.worker.commands.kept))

    async def resumed(self) -> bool:
        """Wait until the run is resumed, and continue it. Return False if this process is done with it."""
        if self.ride.plan.name in self.engine.running:
            return True  # someone has resumed it a moment ago
        waiting = asyncio.ensure_future(self._waited())
        await asyncio.sleep(0)  # from here on nothing runs, so the workspace can be recorded
        self.ride.keep_workspace()
        if kept := self.worker.commands.kept:
            said = f"This process stays with the commands of: {', '.join(kept)}. Press Ctrl+C to end them."
            click.echo(folded(said), err=True)
        for line in self.ride.ways():
            click.echo(line, err=True)
        while await self.ride.shown(self.engine, waiting, waits=True):
            obstacle = await self._obstacle()
            if not obstacle:
                workspace.forget(self.ride.plan)
                await self.run.start()
                return True
            await self.engine.session(self.ride.plan.name).pause(reason=obstacle, by=BY)
            waiting = asyncio.ensure_future(self._waited())
        return False

    async def _waited(self) -> bool:
        """Wait until the run is resumed. Return False if that is over, or if nothing is left to stay for.

        A run that waited for an answer may be paused meanwhile. This process has its agents, so it saves the snapshot.
        """
        tasks: list[asyncio.Future[Any]] = [resumed := asyncio.ensure_future(self.run.stand_by())]
        waited = self.ride.view.status == "waiting"
        try:
            while self.ride.stay or self.worker.commands.kept:
                done, _ = await asyncio.wait([resumed], timeout=LOOK_EVERY)
                if done:
                    return resumed.result()
                if waited and self.ride.view.status == "paused":
                    waited = False
                    tasks.append(asyncio.ensure_future(self.run.outcome()))
            return False
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _obstacle(self) -> str:
        """Return why the run cannot continue here; otherwise take in the plan as it is now."""
        old = self.ride.plan
        try:
            plan = read(old.path, code=True)
        except BadInput as error:
            return display_line(str(error))
        if (plan.name, plan.workspace) != (old.name, old.workspace):
            return f"{plan.path} now has another name or workspace; change that back"
        if found := differences(await stored_tasks(self.engine, plan.name), plan.tasks):
            return f"{plan.path} has changed ({_some(found)}); accept it: {self._command('--replan')}"
        if found := workspace.changes(plan):
            files = many(len(found), "file")
            return f"{files} in the workspace changed ({_some(found)}); accept: {self._command('--edits', 'accept')}"
        self._take_in(plan)
        return ""

    def _take_in(self, plan: Plan) -> None:
        self.ride.plan = plan
        self.run.agents = plan.head.agents
        self.worker.change(plan)

    def _command(self, *words: str) -> str:
        return self.ride.start.command("resume", self.ride.named, *words)


def _some(found: list[str]) -> str:
    more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
    return display_line(os.fsencode(", ".join(found[:LISTED])).decode("utf-8", "replace")) + more


class Stayer(NamedTuple):
    """A process that stays with a stopped run, and the number of its engine."""

    engine: int
    process: str


async def standing_by(engine: Engine, plan: Plan) -> Stayer | None:
    """Return the process that stays with a stopped run, or None.

    A process that has just stopped locks the workspace before it stands by, or before it ends: wait for either.
    """
    end = asyncio.get_running_loop().time() + PATIENCE
    while (await engine.session(plan.name).info()).status in (Status.PAUSED, Status.WAITING):
        for each in await engine.engines():
            if each.picks_up(plan.name, plan.name):
                return Stayer(each.number, f"process {each.pid} on {each.host}")
        if not _is_locked(plan) or asyncio.get_running_loop().time() > end:
            return None
        await asyncio.sleep(0.05)
    return None


def _is_locked(plan: Plan) -> bool:
    """Return whether a process works in the workspace."""
    try:
        with open(plan.state / LOCK, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no process has worked there
    return False


async def picked_up(engine: Engine, stayer: Stayer, name: str) -> SessionInfo | None:
    """Return the run once the process that stayed has reacted to a resume; None if it has ended or does not react."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PICKED_UP_WITHIN), aclosing(engine.session(name).watch()) as news:
            async for info in news:
                if info.holder is not None or info.status not in (Status.READY, Status.CREATED):
                    return info
                if all(each.number != stayer.engine for each in await engine.engines()):
                    return None
    return None
