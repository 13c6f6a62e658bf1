"""The demo's story, told by a process that does no work itself: it starts workers, kills one and pauses another."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pausepoint import Engine, Session, Status
from pausepoint.apps.demo.pipeline import Report, report
from pausepoint.apps.demo.screen import Screen
from pausepoint.apps.demo.view import View

OPERATOR, REASON = "the operator", "lunch"


class OutOfStep(Exception):
    """The session is not where the demo expects it. On a very busy machine it may have run ahead."""


class Story:
    """Run, kill -9, resume, pause, resume."""

    def __init__(self, engine: Engine, folder: Path, session_id: str, pace: float, screen: Screen) -> None:
        self.engine = engine
        self.session_id = session_id
        self.store = folder / "pausepoint.db"
        self.calls = folder / f"{session_id}.calls.txt"
        self.pace = pace
        self.screen = screen
        self.view = View()
        self.chapter = 0
        self.workers: list[Process] = []

    async def tell(self) -> None:
        """Run all chapters, from the first process to the last."""
        try:
            worker = await self._begin("starts the session", "start")
            session = await self._appear(worker)
            await self._watch(session, worker, lambda: self.view.rows["survey"].items >= 3)
            await self._kill(session, worker)
            worker = await self._begin("resumes the session. Finished work is not done again", "resume")
            await self._resumed(session, worker)
            await self._watch(session, worker, lambda: self.view.rows["draft"].items >= 1)
            await self._pause(session, worker)
            worker = await self._begin("resumes the session once more", "resume")
            await self._resumed(session, worker)
            await self._watch(session, worker)
            await self._finish(session, worker)
        finally:
            await self._send_home()

    # the chapters

    async def _begin(self, what: str, verb: str) -> Process:
        words = ("-m", "pausepoint.apps.demo.worker", verb, self.store, self.session_id, str(self.pace), self.calls)
        worker = await asyncio.create_subprocess_exec(sys.executable, *words, stdin=DEVNULL)
        self.workers.append(worker)
        self._title(f"Process {worker.pid} {what}.")
        return worker

    async def _kill(self, session: Session[Report], worker: Process) -> None:
        await asyncio.sleep(self.pace / 2)  # into the next two items
        await self._read(session, running=True)
        self.screen.say(f"\n   $ kill -9 {worker.pid}", "red")
        if worker.returncode is None:
            worker.send_signal(signal.SIGKILL)
        code = await worker.wait()
        if code != -signal.SIGKILL:
            raise OutOfStep(f"Process {worker.pid} ended with exit code {code} before it could be killed.")
        await self.view.refresh(session)
        status = await session.status()
        self.screen.say(f"   Process {worker.pid} was ended by {signal.Signals(-code).name}. The session is {status}.")
        await self._rest()

    async def _pause(self, session: Session[Report], worker: Process) -> None:
        [asked, *_] = await session.pause(REASON, by=OPERATOR)
        self.screen.say(
            f"\n   Process {os.getpid()} (this one) requests a pause. The session is {asked.status}.", "yellow"
        )
        await self._watch(session, worker, brief=True)
        info = await session.info()
        if info.status is not Status.PAUSED:
            raise OutOfStep(f"The session is {info.status}, but it should be paused.")
        for pause in await session.pauses():
            self.screen.say(
                f"\n   The session is {info.status} at {info.step}, by {pause.by}: {pause.reason}.", "yellow"
            )
        done = sum(row.done for row in self.view.rows.values())
        self.screen.say(f"   {done} of {len(self.view.rows)} steps are done, ${info.spent_usd:.2f} spent.")
        self.screen.say(f"   Process {worker.pid} has ended (exit code {worker.returncode}).")
        self.screen.say("   A paused session needs no process.")
        await self._rest()

    async def _finish(self, session: Session[Report], worker: Process) -> None:
        outcome = await session.outcome()
        if outcome.status is not Status.COMPLETED:
            raise OutOfStep(
                f"The session is {outcome.status}. Process {worker.pid} ended with exit code {worker.returncode}."
            )
        self._title(f"The session is {outcome.status}. Its report, {outcome.state.words} words:")
        for line in outcome.state.text.splitlines():
            self.screen.say(f"   {line}")
        self._title("Work that was not done again:")
        self._say_savings(outcome.spent_usd)
        self._say_calls()

    def _say_savings(self, spent: float) -> None:
        view, say = self.view, self.screen.say
        say(f"   {'resumed at':<12}{'skipped':<20}{'work':>8}{'cost':>8}", "dim")
        for saving in view.savings:
            skipped = f"{_count(saving.steps, 'step')}, {_count(saving.items, 'item')}"
            say(f"   {saving.at:<12}{skipped:<20}{saving.seconds:>6.2f} s{f'${saving.usd:.2f}':>8}")
        say(f"   {'saved':<32}{view.saved_seconds:>6.2f} s{f'${view.saved_usd:.2f}':>8}", "green")
        say(f"   {'spent':<40}{f'${spent:.2f}':>8}")

    def _say_calls(self) -> None:
        calls = Counter(line.split("\t")[0] for line in self.calls.read_text().splitlines())
        again = [name for name, times in calls.items() if times > 1]
        self.screen.say(f"   {_count(calls.total(), 'call')} for {_count(len(calls), 'piece')} of work.")
        if again:
            self.screen.say(f"   Called again because the kill interrupted them: {', '.join(again)}.")

    # watching

    async def _appear(self, worker: Process) -> Session[Report]:
        """Wait until the worker has stored its session."""
        while not any(info.session_id == self.session_id for info in await self.engine.sessions(workflow=report.name)):
            await self._wait_for(worker)
        return self.engine.session(self.session_id)

    async def _resumed(self, session: Session[Report], worker: Process) -> None:
        """Wait until the worker has picked up the session."""
        known = len(self.view.savings)
        while len(self.view.savings) == known:
            await self._wait_for(worker)
            await self.view.refresh(session)

    async def _wait_for(self, worker: Process) -> None:
        if worker.returncode is not None:
            raise OutOfStep(f"Process {worker.pid} ended with exit code {worker.returncode} before it began to work.")
        await asyncio.sleep(0.02)

    async def _watch(
        self,
        session: Session[Report],
        worker: Process,
        enough: Callable[[], bool] = lambda: False,
        brief: bool = False,
    ) -> None:
        """Show the session's progress until ``enough()`` is true or its process has ended."""
        while worker.returncode is None and not enough():
            await asyncio.sleep(min(0.08, self.pace / 3))
            await self._read(session, worker.returncode is None, brief)
        await self._read(session, worker.returncode is None, brief)

    async def _read(self, session: Session[Report], running: bool, brief: bool = False) -> None:
        await self.view.refresh(session)
        self.screen.draw(self.view, running, brief)

    async def _send_home(self) -> None:
        """Terminate all workers that are still running, even after an error."""
        for worker in self.workers:
            if worker.returncode is None:
                worker.terminate()
                await worker.wait()

    async def _rest(self) -> None:
        """Wait so that people can read the screen."""
        await asyncio.sleep(self.pace * 1.5)

    def _title(self, text: str) -> None:
        self.chapter += 1
        self.screen.chapter(f"{self.chapter}. {text}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
