"""A memo's session as it is driven from a command line: what is said while agents run, and how it ended."""

from __future__ import annotations

import asyncio
import shutil
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import click

from holdfast import Detection, Engine, Event, Outcome, Plan, Question, Session, Start, Status, VersionFolders
from holdfast.apps.input import BadInput
from holdfast.apps.memo import research as reading
from holdfast.apps.memo.models import MemoState
from holdfast.apps.memo.resuming import (
    Changes,
    NothingThere,
    check_company,
    chosen,
    company_of,
    looked_at,
    memo_file,
    session_of,
)
from holdfast.apps.memo.workflow import AGENTS, memo
from holdfast.apps.words import many
from holdfast.errors import FolderMisfit, FolderRefused, UnknownSession

DONE, FAILED, PERSON, NOT_FOUND, DECISION = 0, 1, 3, 4, 6
GIVEN_ANEW = "given anew with --resume"
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
    idle: dict[str, str] = field(default_factory=dict)
    spent: float = 0.0

    @property
    def command(self) -> str:
        """What goes on with it."""
        version = [] if self.folder is None else ["--version", self.folder.name.removeprefix(f"{self.folders.name}-")]
        output = [] if str(self.folders.root) == "output" else ["--output", str(self.folders.root)]
        options = ["--resume", *version, *output]
        is_like_an_option = self.company.startswith("-")
        return self.start.command(*([*options, "--", self.company] if is_like_an_option else [self.company, *options]))

    def offered(self) -> bool:
        """Whether somebody wants to go on with what was interrupted, instead of beginning anew."""
        last = self.folders.latest()
        if last is None or last not in self.folders.incomplete(memo):
            return False
        if sys.stdin.isatty() and sys.stdout.isatty():
            return click.confirm(f"{last} was not finished. Resume it?", default=True)
        click.echo(f"hint: {last} was not finished; to go on with it: {self.command}", err=True)
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
        try:
            found = looked_at(self.folder, self.inputs)
            if found.resume_at == "start":
                for odd in found.inconsistent:
                    click.echo(f"⚠️  {self.folder}: {odd}", err=True)
                click.echo("⚠️  No checkpoints found, starting from scratch...")
                if not found.recorded:
                    return await self.begin()
            async with self._engine() as engine:
                if await self._is_complete(engine, found):
                    return self._complete()
                session = await self._session(engine, found)
                lost_deck = not found.recorded and found.resume_at == AGENTS[0]
                return await self._resumed(session, [AGENTS[0]] if lost_deck else [])
        except FolderMisfit as error:
            click.echo(f"⚠️  {error}")
            click.echo(f"⚠️  Starting from scratch in a new folder; {self.folder} stays as it is...")
        return await self.begin()

    async def _is_complete(self, engine: Engine, found: Detection) -> bool:
        """Whether nothing is left to do. The store knows best: a memo may have been killed right behind a rewind."""
        if not (found.complete and _as_recorded(found)) or self.redo is not None or self.changes != Changes():
            return False
        try:
            return found.session_id is None or (await engine.info(found.session_id)).status is Status.COMPLETED
        except UnknownSession:
            return True

    async def _session(self, engine: Engine, found: Detection) -> Session[MemoState]:
        try:
            return await session_of(engine, found, self.inputs, self.accept)
        except FolderRefused as error:
            if not found.inconsistent or self.accept:
                raise
            raise BadInput(f"{error}; on the command line that is --accept-gaps") from None

    def _complete(self) -> Stand:
        assert self.folder is not None
        check_company(self.company, company_of(self.folder), str(self.folder))
        click.echo(f"✓ Memo already complete: {memo_file(self.folder)}")
        return Stand(self.folder)

    def _warn(self) -> None:
        unfinished = self.folders.incomplete(memo)
        if len(unfinished) > 1 and self.folder is not None:
            names = ", ".join(path.name for path in unfinished)
            click.echo(f"⚠️  Several versions are incomplete: {names}; this is {self.folder.name}", err=True)

    async def _resumed(self, session: Session[MemoState], again: list[str]) -> Stand:
        """Look at everything first, so that what is refused or left undecided has changed nothing."""
        state = await session.state()
        check_company(self.company, state.company_name, str(self.folder))
        fields = self.changes.fields(state)
        redo = await self._redone(session, fields)
        plan = await self._planned(session, redo, fields, again)
        if self.until is not None and self.until not in (*again, *_ahead(plan)):
            raise BadInput(f"--until: {self.until} has ended already; --from {self.until} redoes it")
        if plan.undecided and self.edits is None and not self._decided(plan):
            return Stand(self.folder, code=DECISION)
        if plan.undecided and self.edits == "discard":
            await self._put_back(session, plan)
            plan = await self._planned(session, redo, fields, again)
        ahead = [*again, *_ahead(plan)]
        if not ahead and plan.status is Status.COMPLETED and _as_recorded(plan):
            return self._complete()
        cursor = await _now(session)
        self._says_where(ahead, bool(again or redo) or len(_ahead(plan)) < len(AGENTS))
        if redo is not None:
            await session.rewind(redo, fields, by=self.by, reason="--from" if redo == self.redo else GIVEN_ANEW)
        elif fields:
            await session.edit(fields, by=self.by, reason=GIVEN_ANEW)
        await session.resume(edits=self.edits, rerun=again, until=self.until, by=self.by)
        self.kept = {each.step for each in await session.plan() if each.verdict in ("done", "left out")}
        click.echo(shown("Agents: " + " ".join(f"{'✓' if name in self.kept else '·'}\xa0{name}" for name in AGENTS)))
        return await self._followed(session, cursor)

    async def _redone(self, session: Session[MemoState], fields: dict[str, Any]) -> str | None:
        """The agent to redo, with all behind it: that of --from, or the first that has read what is otherwise now."""
        done = {each.step for each in await session.checkpoints(limit=None) if not each.left_behind}
        read = [name for name in memo.readers(*fields) if name in done]
        return min([*read, *([self.redo] if self.redo else [])], key=AGENTS.index, default=None)

    async def _planned(
        self, session: Session[MemoState], redo: str | None, fields: dict[str, Any], again: list[str]
    ) -> Plan:  # fmt: skip
        """What going on would do. Nothing is changed by asking."""
        return await (session.plan(rerun=again) if redo is None else session.plan_rewind(redo, fields))

    def _says_where(self, ahead: list[str], anew: bool) -> None:
        first = min(ahead, key=AGENTS.index, default=None)
        if first is not None and (first != AGENTS[0] or anew):
            click.echo(f"✓ Resuming from checkpoint: {first}")

    def _decided(self, plan: Plan) -> bool:
        """Ask what is to become of edited files; without anybody to ask, say what has to be said."""
        for each in plan.artifacts:
            if each.path in plan.undecided:
                click.echo(f"{each.path} is {each.state}: {each.why}", err=True)
        for cost in plan.stale:
            click.echo(f"  {cost} would run again", err=True)
        broken = any(each.state == "invalid" for each in plan.artifacts if each.path in plan.undecided)
        ways = ["discard", "stop"] if broken else ["accept", "discard", "stop"]
        if sys.stdin.isatty() and sys.stdout.isatty():
            answer = click.prompt("What is to become of it?", type=click.Choice(ways), default="stop")
            self.edits = {"accept": "accept", "discard": "discard"}.get(answer)  # type: ignore[assignment]
            return self.edits is not None
        options = "--discard-edits, or mend it" if broken else "--accept-edits or --discard-edits"
        redo = "" if self.redo is None else f" --from {self.redo}"
        click.echo(f"Nothing was done. Decide with {options}: {self.command}{redo}", err=True)
        return False

    async def _put_back(self, session: Session[MemoState], plan: Plan) -> None:
        """Discard edits. What this store has never seen can only be made again."""
        try:
            await session.restore(plan.undecided)
        except FolderRefused as error:
            agents = [each.step for each in plan.artifacts if each.path in plan.undecided]
            first = min(agents, key=AGENTS.index)
            if first.startswith("enrich"):
                first = "draft"  # what it left has been enriched since, in the same files
            raise BadInput(f"{error}; on the command line that is --accept-edits, or --from {first}") from None

    async def answer(self, question: Question, value: str) -> Stand:
        """A person has answered; the session goes on."""
        async with self._engine() as engine:
            session: Session[MemoState] = await engine.session(question.session_id)
            cursor = await _now(session)
            await engine.answer(question.id, value, by=self.by, channel="cli")
            return await self._followed(session, cursor)

    # while it runs

    async def _followed(self, session: Session[MemoState], cursor: str = "") -> Stand:
        if (await session.state()).deck is None:
            self.idle = {AGENTS[0]: "there is no deck"}
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
        if self.told[-1:] != [agent] and agent not in self.idle:
            self.told.append(agent)
            click.echo(f"Running agent: {agent}")

    def _tell(self, event: Event) -> None:
        step = str(event.data.get("step", ""))
        match event.event_type:
            case "spent":
                self.spent += event.data["usd"]
            case "step.completed" if step in self.idle:
                self.finished.append(step)
                click.echo(f"Skipped agent: {step} ({self.idle[step]})")
            case "step.completed":
                self._runs(step)
                self.finished.append(step)
                number = AGENTS.index(step) + 1
                cost = f", ${self.spent:.4g}" if self.spent else ""
                click.echo(f"Finished agent: {step} ({number} of {len(AGENTS)}) in {event.data['took']:.2f} s{cost}")
                self.spent = 0.0
            case "step.skipped":
                click.echo(f"Skipped agent: {step} ({event.summary.partition(': ')[2]})")
            case "step.retried" | "artifact.edited" | "artifact.set_aside" | reading.UNREAD:
                click.echo(event.summary)

    # how it ended

    def ended(self, stand: Stand) -> tuple[int, dict[str, Any] | None]:
        """Say how it stands; the exit code, and the document for ``--json``."""
        outcome = stand.outcome
        if outcome is None or stand.folder is None:
            status = Status.COMPLETED.value if stand.code == DONE else None
            return stand.code, {"status": status, "exit_code": stand.code, **_places(stand.folder)}
        code = {Status.COMPLETED: DONE, Status.FAILED: FAILED, Status.CANCELLED: FAILED}.get(outcome.status, PERSON)
        state = outcome.state
        if outcome.status is Status.COMPLETED:
            click.echo(f"✓ Memo complete: {memo_file(stand.folder)}")
        if state.validation.overall_score is not None:
            click.echo(f"Score: {state.validation.overall_score}")
        if outcome.skipped_visits or outcome.saved_usd:
            saved = f"{outcome.saved_time.total_seconds():.2f} s"
            cost = f" and ${outcome.saved_usd:.4g}" if outcome.saved_usd else ""
            click.echo(f"Saved by resuming: {saved}{cost} ({many(outcome.skipped_visits, 'agent')} skipped)")
        if outcome.spent_usd:
            click.echo(f"Spent: ${outcome.spent_usd:.4g}")
        self._stands(stand, outcome)
        return code, self._document(stand, outcome, code)

    def _stands(self, stand: Stand, outcome: Outcome[MemoState]) -> None:
        if stand.question is not None:
            click.echo(shown(stand.question.next_question))
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
        failure = outcome.failure
        return {
            "session_id": outcome.session_id, "status": outcome.status.value, **_places(stand.folder),
            "overall_score": outcome.state.validation.overall_score,
            "skipped_agents": outcome.skipped_visits, "saved_seconds": outcome.saved_time.total_seconds(),
            "saved_usd": outcome.saved_usd, "spent_usd": outcome.spent_usd,
            "questions": [question.to_json() for question in outcome.questions], "command": self.command,
            "failure": failure and {"agent": failure.step, "type": failure.type, "message": failure.message},
            "exit_code": code,
        }  # fmt: skip


def shown(text: str) -> str:
    """A long line, at a terminal without a break within a word."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
    return text.replace("\xa0", " ")


def _ahead(plan: Plan) -> list[str]:
    """The agents that are to run."""
    return [each.step for each in plan if each.verdict in ("next", "will run")]


def _as_recorded(found: Plan | Detection) -> bool:
    """Whether no file is otherwise than its agent has left it."""
    return all(each.state == "valid" for each in found.artifacts)


def _places(folder: Path | None) -> dict[str, str | None]:
    """Where things lie, as far as they are there."""
    if folder is None:
        return {"folder": None, "memo": None}
    written = memo_file(folder)
    return {"folder": str(folder), "memo": str(written) if written.exists() else None}


async def _now(session: Session[MemoState]) -> str:
    """Where the history of a session ends at present."""
    cursor = ""
    async for event in session.events():
        cursor = event.cursor
    return cursor
