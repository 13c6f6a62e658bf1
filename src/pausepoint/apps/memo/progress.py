"""What is said while agents run: which one begins, which has ended, how long that took and what it cost."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import click

from pausepoint import Engine, Outcome, Session, Status
from pausepoint.apps.memo import research as reading
from pausepoint.apps.memo.models import MemoState
from pausepoint.apps.memo.workflow import AGENTS
from pausepoint.model import Event

EVERY = 0.1
"""Seconds between two looks at what the agents do."""


class Following:
    """One session, from a cursor of its history on until it stands.

    ``kept`` are agents that do not run again; ``until`` is the one behind which it is to pause.
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

    async def to_its_end(self, session: Session[MemoState], cursor: str = "") -> Outcome[MemoState]:
        """Tell what happens until somebody is needed or nothing is left to do."""
        if (await session.state()).deck is None:
            self._idle = {AGENTS[0]: "there is no deck"}
        await self._engine.drive_only(session.id)
        until = asyncio.ensure_future(session.outcome())
        try:
            while True:
                over = until.done()
                info = await session.info()  # before the events: what has ended by then is told as ended
                async for event in session.events(cursor):
                    cursor = event.cursor
                    self._tell(event)
                if info.status is Status.RUNNING and info.step is not None and self._goes_on_to(info.step):
                    self._begins(info.step)
                self._tell_ending()
                if over:
                    return until.result()
                await asyncio.wait([until], timeout=EVERY)
        finally:
            until.cancel()

    def _tell_ending(self) -> None:
        """This program was told to end: say what it waits for."""
        ending = self._engine.ending
        if ending and not self._ending:
            what = f"what {self._running} is at" if self._running else "what runs"
            click.echo(f"{ending}: {what} is finished first; once more ends it", err=True)
        self._ending = ending

    def _goes_on_to(self, agent: str) -> bool:
        """Whether the agent that is next really runs: not if it is kept, nor if the session is to pause before it."""
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
            case "step.skipped":
                click.echo(f"Skipped agent: {step} ({event.summary.partition(': ')[2]})")
            case "step.retried" | "artifact.edited" | "artifact.set_aside" | reading.UNREAD:
                click.echo(event.summary)


async def now(session: Session[MemoState]) -> str:
    """Where the history of a session ends at present."""
    cursor = ""
    async for event in session.events():
        cursor = event.cursor
    return cursor
