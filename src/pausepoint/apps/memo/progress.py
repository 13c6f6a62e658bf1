"""Print the progress of the agents: which agent starts or ends, how long it took and what it cost."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import click

from pausepoint import Engine, Outcome, Session, Status
from pausepoint.apps.memo import research as reading
from pausepoint.apps.memo import workflow as working
from pausepoint.apps.memo.models import MemoState
from pausepoint.apps.memo.workflow import AGENTS
from pausepoint.model import Event

EVERY = 0.1
"""The seconds between two reads of the agents' progress."""

QUIET = 10.0
"""The seconds after which an agent that is still running is named again."""


class Following:
    """Follow one session from a position in its history until it stops running.

    ``kept`` are agents that do not run again. ``until`` is the agent after which the session pauses.
    """

    def __init__(self, engine: Engine, until: str | None = None, kept: Collection[str] = ()) -> None:
        self._engine = engine
        self._until = until
        self._kept = kept
        self._running = ""
        self._finished: list[str] = []
        self._idle: dict[str, str] = {}
        self._spent = 0.0
        self._ending = ""
        self._merged: set[str] = set()
        self._timed = ""
        self._since = self._told_at = 0.0

    async def to_its_end(self, session: Session[MemoState], cursor: str = "") -> Outcome[MemoState]:
        """Print what happens until the session ends or needs a person."""
        state = await session.state()
        if state.deck is None:
            self._idle = {AGENTS[0]: "there is no deck"}
        self._merged = {f"2-sections/{each.section}.md" for each in state.hand_edits}
        await self._engine.session(session.id).drive_only()
        until = asyncio.ensure_future(session.outcome())
        try:
            while True:
                over = until.done()
                info = await session.info()  # read before the events, so that an ended step is reported as ended
                async for event in session.events(cursor):
                    cursor = event.cursor
                    self._tell(event)
                if info.status is Status.RUNNING and info.step is not None and self._will_run(info.step):
                    self._begins(info.step)
                self._tell_ending()
                self._tell_time(asyncio.get_running_loop().time())
                if over:
                    return until.result()
                await asyncio.wait([until], timeout=EVERY)
        finally:
            until.cancel()

    def _tell_time(self, now: float) -> None:
        """Print that an agent is still running, if nothing was printed for a while."""
        if self._running != self._timed:
            self._timed, self._since, self._told_at = self._running, now, now
        elif self._running and self._running not in self._finished and now - self._told_at >= QUIET:
            self._told_at = now
            click.echo(f"Still running: {self._running} ({now - self._since:.0f} s)")

    def _tell_ending(self) -> None:
        """Print what the program waits for when it was asked to end."""
        ending = self._engine.ending
        if ending and not self._ending:
            what = f"current operation of {self._running}" if self._running else "current operation"
            click.echo(f"{ending}: The {what} finishes first. Interrupt again to stop now.", err=True)
        self._ending = ending

    def _will_run(self, agent: str) -> bool:
        """Return whether the next agent runs: not if it is kept, nor if the session pauses before it."""
        return agent not in (*self._kept, *self._finished) and self._until not in self._finished

    def _begins(self, agent: str) -> None:
        if agent != self._running and agent not in self._idle:
            self._running = agent
            click.echo(f"Running agent: {agent}")

    def _tell(self, event: Event) -> None:
        step = str(event.data.get("step", ""))
        match event.event_type:
            case "spent":
                self._spent += event.data["usd"]
            case "step.completed" if step in self._idle:
                self._finished.append(step)
                click.echo(f"Skipped agent: {step} ({self._idle[step]})")
            case "step.completed":
                self._begins(step)
                self._finished.append(step)
                number = AGENTS.index(step) + 1
                cost = f", ${self._spent:.4g}" if self._spent else ""
                click.echo(f"Finished agent: {step} ({number} of {len(AGENTS)}) in {event.data['took']:.2f} s{cost}")
                self._spent = 0.0
            case "artifact.set_aside" if event.data.get("path") in self._merged:
                pass  # enrich_visualizations merges the edit into the new text
            case "step.skipped":
                click.echo(f"Skipped agent: {step} ({event.summary.partition(': ')[2]})")
            case (
                "step.retried"
                | "operation.retried"
                | "artifact.edited"
                | "artifact.restored"
                | "artifact.set_aside"
                | reading.UNREAD
                | working.KEPT
            ):
                click.echo(event.summary)


async def now(session: Session[MemoState]) -> str:
    """Return the current end of a session's history."""
    cursor = ""
    async for event in session.events():
        cursor = event.cursor
    return cursor
