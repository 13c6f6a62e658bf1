"""A memo's session as it is driven from a command line: what is said while agents run, and how it ended."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import click

from holdfast import Engine, Event, Outcome, Question, Session, Start, Status, VersionFolders
from holdfast.apps.input import BadInput
from holdfast.apps.memo.models import MemoState
from holdfast.apps.memo.resuming import Changes, NothingThere, chosen, looked_at, memo_file, session_of
from holdfast.apps.memo.workflow import AGENTS, memo
from holdfast.errors import FolderRefused

DONE, FAILED, PERSON, NOT_FOUND, DECISION = 0, 1, 3, 4, 6
EVERY = 0.1
"""Seconds between two looks at what the agents do."""


@dataclass(frozen=True)
class Stand:
    """How it stands. ``code`` is set where nothing was driven."""

    folder: Path | None = None
    outcome: Outcome[MemoState] | None = None
    code: int = DONE

    @property
    def question(self) -> Question | None:
        """What a person is asked."""
        return next(iter(self.outcome.questions), None) if self.outcome is not None else None


@dataclass
class Drive:
    """One call of the program."""

    start: Start
    company: str
    folders: VersionFolders
    inputs: Callable[[], MemoState]
    changes: Changes
    edits: Literal["accept", "discard"] | None = None
    accept: bool = False
    redo: str | None = None
    until: str | None = None
    by: str | None = None
    folder: Path | None = None
    told: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    spent: float = 0.0

    @property
    def command(self) -> str:
        """What goes on with it."""
        version = [] if self.folder is None else ["--version", self.folder.name.removeprefix(f"{self.folders.name}-")]
        output = [] if str(self.folders.root) == "output" else ["--output", str(self.folders.root)]
        return self.start.command(self.company, "--resume", *version, *output)

    def offered(self) -> bool:
        """Whether somebody wants to go on with what was interrupted, instead of beginning anew."""
        last = self.folders.latest()
        if last is None or last not in self.folders.incomplete(memo):
            return False
        if sys.stdin.isatty() and sys.stdout.isatty():
            return click.confirm(f"{last} was not finished. Resume it?", default=True)
        command = self.start.command(self.company, "--resume")
        click.echo(f"hint: {last} was not finished; to go on with it: {command}", err=True)
        return False

    # beginning

    async def begin(self) -> Stand:
        """A new session, in a folder of its own."""
        state = self.inputs()
        self.folder = self.folders.make()
        async with self._engine() as engine:
            session = await engine.start(
                memo, state, folder=self.folder.absolute(), by=self.by, paused=self.until is not None
            )
            click.echo(f"Session {session.id}: {self.folder}")
            if self.until is not None:
                await session.resume(until=self.until, by=self.by)
            return await self._followed(session)

    def _engine(self) -> Engine:
        self.start.folder.mkdir(parents=True, exist_ok=True)
        return Engine(self.start.store, workflows=[memo])

    # going on

    async def go_on(self, version: str | None) -> Stand:
        """The latest version, or the one that was named."""
        try:
            self.folder = chosen(self.folders, version)
        except NothingThere as error:
            click.echo(str(error), err=True)
            return Stand(code=NOT_FOUND)
        self._warn()
        found = looked_at(self.folder, self.inputs)
        changes_nothing = self.redo is None and self.changes == Changes()
        if found.complete and changes_nothing:
            return self._complete()
        if found.resume_at == "start":
            click.echo("⚠️  No checkpoints found, starting from scratch...")
            if not found.recorded:
                return await self.begin()
        async with self._engine() as engine:
            try:
                session = await session_of(engine, found, self.inputs, self.accept)
            except FolderRefused as error:
                if found.inconsistent:
                    raise BadInput(f"{error}; on the command line that is --accept-gaps") from None
                click.echo(f"⚠️  {error}")
                session = None
            if session is not None:
                return await self._resumed(session, [AGENTS[0]] if found.resume_at == AGENTS[0] else [])
        return await self.begin()  # what cannot be carried over stays as it is

    def _complete(self) -> Stand:
        assert self.folder is not None
        click.echo(f"✓ Memo already complete: {memo_file(self.folder)}")
        return Stand(self.folder)

    def _warn(self) -> None:
        unfinished = self.folders.incomplete(memo)
        if len(unfinished) > 1 and self.folder is not None:
            names = ", ".join(path.name for path in unfinished)
            click.echo(f"⚠️  Several versions are incomplete: {names}; this is {self.folder.name}", err=True)

    async def _resumed(self, session: Session[MemoState], again: list[str]) -> Stand:
        again = [*again, *await self._changed(session)]
        if self.redo is not None:
            await session.rewind(self.redo, by=self.by, reason="--from")
        plan = await session.plan()
        if plan.undecided and self.edits is None and not self._decided(plan):
            return Stand(self.folder, code=DECISION)
        cursor = await _now(session)
        ahead = [each.step for each in plan if each.verdict in ("next", "will run")]
        if not ahead and not again and plan.status is Status.COMPLETED:
            return self._complete()
        if self.until is not None and self.until not in (*ahead, *again):
            raise BadInput(f"--until: {self.until} has ended already; --from {self.until} redoes it")
        first = min([*ahead, *again], key=AGENTS.index, default=None)
        if first is not None and (first != AGENTS[0] or again):
            click.echo(f"✓ Resuming from checkpoint: {first}")
        await session.resume(edits=self.edits, rerun=again, until=self.until, by=self.by)
        self.kept = {each.step for each in await session.plan() if each.verdict in ("done", "left out")}
        click.echo("Agents: " + " ".join(f"{'✓' if name in self.kept else '·'} {name}" for name in AGENTS))
        return await self._followed(session, cursor)

    async def _changed(self, session: Session[MemoState]) -> list[str]:
        """Have the session know what is otherwise now; the agents that have to run again for it."""
        fields = self.changes.fields(await session.state())
        if not fields:
            return []
        await session.edit(fields, by=self.by, reason="given anew with --resume")
        done = {each.step for each in await session.checkpoints(limit=None)}
        return [name for name in memo.readers(*fields) if name in done]

    def _decided(self, plan: Any) -> bool:
        """Ask what is to become of edited files; without anybody to ask, say what has to be said."""
        for each in plan.artifacts:
            if each.path in plan.undecided:
                click.echo(f"{each.path} is {each.state}: {each.why}", err=True)
        for cost in plan.stale:
            click.echo(f"  {cost} runs again if that is accepted", err=True)
        broken = any(each.state == "invalid" for each in plan.artifacts if each.path in plan.undecided)
        ways = ["discard", "stop"] if broken else ["accept", "discard", "stop"]
        if sys.stdin.isatty() and sys.stdout.isatty():
            answer = click.prompt("What is to become of it?", type=click.Choice(ways), default="stop")
            self.edits = {"accept": "accept", "discard": "discard"}.get(answer)  # type: ignore[assignment]
            return self.edits is not None
        options = "--discard-edits, or mend it" if broken else "--accept-edits or --discard-edits"
        click.echo(f"Nothing was done. Decide with {options}: {self.command}", err=True)
        return False

    async def answer(self, question: Question, value: str) -> Stand:
        """A person has answered; the session goes on."""
        async with self._engine() as engine:
            session: Session[MemoState] = await engine.session(question.session_id)
            cursor = await _now(session)
            await engine.answer(question.id, value, by=self.by, channel="cli")
            return await self._followed(session, cursor)

    # while it runs

    async def _followed(self, session: Session[MemoState], cursor: str = "") -> Stand:
        until = asyncio.ensure_future(session.outcome())
        try:
            while True:
                over = until.done()
                async for event in session.events(cursor):
                    cursor = event.cursor
                    self._tell(event)
                info = await session.info()
                if info.status is Status.RUNNING and info.step is not None and self._goes_on_to(info.step):
                    self._runs(info.step)
                if over:
                    return Stand(self.folder, until.result())
                await asyncio.wait([until], timeout=EVERY)
        finally:
            until.cancel()

    def _goes_on_to(self, agent: str) -> bool:
        """Whether the agent that is next really runs: not if it is kept, nor if the session is to pause before it."""
        return agent not in self.kept and self.until not in self.finished

    def _runs(self, agent: str) -> None:
        if self.told[-1:] != [agent]:
            self.told.append(agent)
            click.echo(f"Running agent: {agent}")

    def _tell(self, event: Event) -> None:
        step = str(event.data.get("step", ""))
        match event.event_type:
            case "spent":
                self.spent += event.data["usd"]
            case "step.completed":
                self._runs(step)
                self.finished.append(step)
                number = AGENTS.index(step) + 1
                cost = f", ${self.spent:.4g}" if self.spent else ""
                click.echo(f"Finished agent: {step} ({number} of {len(AGENTS)}) in {event.data['took']:.2f} s{cost}")
                self.spent = 0.0
            case "step.skipped":
                click.echo(f"Skipped agent: {step} ({event.summary.partition(': ')[2]})")
            case "step.retried" | "artifact.edited" | "artifact.set_aside":
                click.echo(event.summary)

    # how it ended

    def ended(self, stand: Stand) -> tuple[int, dict[str, Any] | None]:
        """Say how it stands; the exit code, and the document for ``--json``."""
        outcome = stand.outcome
        if outcome is None or stand.folder is None:
            path = None if stand.folder is None else str(memo_file(stand.folder))
            return stand.code, {"status": None, "memo": path, "exit_code": stand.code}
        code = {Status.COMPLETED: DONE, Status.FAILED: FAILED, Status.CANCELLED: FAILED}.get(outcome.status, PERSON)
        state = outcome.state
        if outcome.status is Status.COMPLETED:
            click.echo(f"✓ Memo complete: {memo_file(stand.folder)}")
        if state.validation.overall_score is not None:
            click.echo(f"Score: {state.validation.overall_score}")
        if outcome.skipped_visits or outcome.saved_usd:
            saved = f"{outcome.saved_time.total_seconds():.2f} s"
            cost = f" and ${outcome.saved_usd:.4g}" if outcome.saved_usd else ""
            click.echo(f"Saved by resuming: {saved}{cost} ({outcome.skipped_visits} agents skipped)")
        if outcome.spent_usd:
            click.echo(f"Spent: ${outcome.spent_usd:.4g}")
        self._stands(stand, outcome)
        return code, self._document(stand, outcome, code)

    def _stands(self, stand: Stand, outcome: Outcome[MemoState]) -> None:
        if stand.question is not None:
            click.echo(stand.question.next_question)
            click.echo(f"Answer: {self.start.command('answer', stand.question.id, 'approve')}", err=True)
        elif outcome.failure is not None:
            failure = outcome.failure
            click.echo(f"{failure.step} failed: {failure.type}: {failure.message}", err=True)
        elif outcome.pauses:
            why = "; ".join(pause.reason or f"by {pause.by or 'somebody'}" for pause in outcome.pauses)
            click.echo(f"Paused: {why}", err=True)
        if outcome.status is not Status.COMPLETED:
            click.echo(f"Resume: {self.command}", err=True)

    def _document(self, stand: Stand, outcome: Outcome[MemoState], code: int) -> dict[str, Any]:
        assert stand.folder is not None
        return {
            "session_id": outcome.session_id, "status": outcome.status.value, "folder": str(stand.folder),
            "memo": str(memo_file(stand.folder)), "overall_score": outcome.state.validation.overall_score,
            "skipped_agents": outcome.skipped_visits, "saved_seconds": outcome.saved_time.total_seconds(),
            "saved_usd": outcome.saved_usd, "spent_usd": outcome.spent_usd,
            "questions": [question.to_json() for question in outcome.questions], "command": self.command,
            "exit_code": code,
        }  # fmt: skip


async def _now(session: Session[MemoState]) -> str:
    """Where the history of a session ends at present."""
    cursor = ""
    async for event in session.events():
        cursor = event.cursor
    return cursor
