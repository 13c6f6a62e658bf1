"""One call of the memo's program: choose the folder, check it, and drive its session."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from pausepoint import Engine, Question, Session, Status
from pausepoint.apps.endings import DECISION, FAILED, NOT_FOUND, at_terminal
from pausepoint.apps.input import BadInput, confirmed
from pausepoint.apps.memo.carried import carried
from pausepoint.apps.memo.decisions import Edits, earliest, put_back
from pausepoint.apps.memo.folders import (
    Changes,
    NothingThere,
    check_company,
    chosen,
    final_of,
    looked_at,
    memo_file,
    session_of,
)
from pausepoint.apps.memo.models import MemoState
from pausepoint.apps.memo.progress import Following, now
from pausepoint.apps.memo.report import Stand, rejection, shown
from pausepoint.apps.memo.workflow import AGENTS, SECTIONS, memo
from pausepoint.artifacts import Detection, VersionFolders
from pausepoint.cli import Start
from pausepoint.engine import Plan
from pausepoint.errors import AlreadyRunning, FolderMisfit, FolderRefused, UnknownSession

CHANGED = "changed with --resume"


@dataclass
class Drive:
    """One call of the program."""

    start: Start
    company: str
    folders: VersionFolders
    inputs: Callable[[], MemoState]
    changes: Changes
    edits: Edits | None = None
    incomplete: Literal["accept"] | None = None
    redo: str | None = None
    until: str | None = None
    by: str | None = None
    budget: float | None = None
    folder: Path | None = None

    @property
    def command(self) -> str:
        """The command that resumes the memo."""
        return self._command(self.folder)

    @property
    def same_command(self) -> str:
        """The same command with all options of this call."""
        asked = {"--from": self.redo, "--until": self.until, **self.changes.options}
        return self._command(self.folder, *(str(word) for pair in asked.items() if pair[1] for word in pair))

    def _command(self, folder: Path | None, *more: str, resume: bool = True) -> str:
        version = [] if folder is None else ["--version", folder.name.removeprefix(f"{self.folders.name}-")]
        output = [] if str(self.folders.root) == "output" else ["--output", str(self.folders.root)]
        options = [*(["--resume"] if resume else []), *version, *output, *more]
        is_like_an_option = self.company.startswith("-")
        return self.start.command(*([*options, "--", self.company] if is_like_an_option else [self.company, *options]))

    def offered(self) -> bool:
        """Return whether the user wants to resume an unfinished version instead of starting a new one."""
        last = self.folders.latest()
        if last is None or last not in self.folders.incomplete(memo):
            return False
        if at_terminal():
            return confirmed(f"{last} was not finished. Resume it?", default=True)
        click.echo(f"hint: {last} was not finished. Resume it: {self._command(last)}", err=True)
        return False

    # starting

    async def begin(self) -> Stand:
        """Start a new session in a new folder."""
        state = self.inputs()
        self.folder = self.folders.make()
        async with self._engine() as engine:
            session = await engine.start(
                memo, state, session_id=await self._id(engine), folder=self.folder.absolute(), by=self.by,
                paused=self.until is not None, budget=self.budget,
            )  # fmt: skip
            click.echo(f"Session {session.id}: {self.folder}")
            if self.until is not None:
                await session.resume(pause_after=self.until, by=self.by)
            return Stand(self.folder, await Following(engine, self.until).to_its_end(session))

    async def _id(self, engine: Engine) -> str | None:
        """Return the name of the folder as the id of its session, so that commands find it by the company; or None.

        Another folder of the same name may have taken it, and some companies have names that are not valid ids.
        """
        assert self.folder is not None
        if not re.fullmatch(r"(?!.*\.\.)[A-Za-z0-9][\w.+-]{0,127}", self.folder.name, re.ASCII):
            return None
        try:
            await engine.session(self.folder.name).info()
        except UnknownSession:
            return self.folder.name
        return None

    def _engine(self) -> Engine:
        self.start.folder.mkdir(parents=True, exist_ok=True)
        # "asked": other memos in the store are not driven, and this one only after the checks.
        return Engine(self.start.store, workflows=[memo], drives="asked")

    # resuming

    async def go_on(self, version: str | None) -> Stand:
        """Resume the latest version, or the named one."""
        try:
            self.folder = chosen(self.folders, version)
        except NothingThere as error:
            click.echo(str(error), err=True)
            if version is None:
                click.echo(f"Start a memo: {self._command(None, resume=False)}", err=True)
            return Stand(code=NOT_FOUND)
        self._warn()
        return await self.taken_up(self.folder)

    async def taken_up(self, folder: Path) -> Stand:
        """Resume the memo in a folder, or return the decision that is needed first."""
        try:
            found = looked_at(folder, self.inputs)
            if found.resume_at == "start":
                for odd in found.inconsistent:
                    click.echo(f"⚠️  {folder}: {odd}", err=True)
                click.echo("⚠️  No checkpoints found, starting from scratch...")
                if not found.recorded:
                    return await self.begin()
            async with self._engine() as engine:
                if await self._is_complete(engine, found):
                    return self._complete()
                session = await self._session(engine, found)
                lost_deck = not found.recorded and found.resume_at == AGENTS[0]
                return await self._resumed(engine, session, [AGENTS[0]] if lost_deck else [])
        except FolderMisfit as error:
            click.echo(f"⚠️  {error}")
            click.echo(f"⚠️  Starting from scratch in a new folder; {folder} is not changed...")
        return await self.begin()

    async def _is_complete(self, engine: Engine, found: Detection) -> bool:
        """Return whether there is nothing left to do.

        The store decides, because a memo may have been killed right after a rewind.
        """
        if not (found.complete and _as_recorded(found)) or self.redo is not None or self.changes != Changes():
            return False
        if rejection(final_of(found.folder)) is not None:
            return False
        try:
            return (
                found.session_id is None or (await engine.session(found.session_id).info()).status is Status.COMPLETED
            )
        except UnknownSession:
            return True

    async def _session(self, engine: Engine, found: Detection) -> Session[MemoState]:
        try:
            return await session_of(engine, found, self.inputs, self.incomplete)
        except FolderRefused as error:
            if not found.inconsistent or self.incomplete:
                raise
            raise BadInput(f"{error} On the command line, that is --incomplete accept.") from None

    def _complete(self) -> Stand:
        assert self.folder is not None
        check_company(self.company, final_of(self.folder).company_name, str(self.folder))
        click.echo(f"✓ Memo already complete: {memo_file(self.folder)}")
        return Stand(self.folder)

    def _warn(self) -> None:
        unfinished = self.folders.incomplete(memo)
        if len(unfinished) > 1 and self.folder is not None:
            names = ", ".join(path.name for path in unfinished)
            click.echo(f"⚠️  Several versions are incomplete: {names}; resuming {self.folder.name}", err=True)

    def _warn_of_strays(self, names: Collection[str]) -> None:
        """Name the files beside the sections that are not part of the memo."""
        for path in sorted((self.folder or Path()).glob(SECTIONS)):
            if path.stem not in names:
                click.echo(f"⚠️  {path} is not a section of the outline, so the memo does not contain it. Add it to the"
                           " outline, or remove the file.", err=True)  # fmt: skip

    async def _resumed(self, engine: Engine, session: Session[MemoState], again: list[str]) -> Stand:
        """Resume a session. All checks come first, so that a refusal or an open decision changes nothing."""
        holder = (await session.info()).holder
        if holder is not None:
            message = f"{self.folder} is being written by another process."
            raise AlreadyRunning(message, session_id=session.id, holder=holder)
        state = await session.state()
        check_company(self.company, state.company_name, str(self.folder))
        self._warn_of_strays({section.name for section in state.outline})
        rejected = None if self.redo else rejection(state.final)
        if rejected is not None and not rejected.agent:
            return Stand(self.folder, code=FAILED, rejected=rejected)
        fields = self.changes.fields(state)
        redo = await self._redone(session, fields) if rejected is None else rejected.agent
        plan = await self._planned(session, redo, fields, again)
        if self.until is not None and self.until not in (*again, *_ahead(plan)):
            raise BadInput(f"--until: {self.until} has already finished. Redo it with --from {self.until}.")
        kept = await carried(session, state, plan, self.edits)
        if plan.needs_decision and self.edits is None:
            return Stand(self.folder, code=DECISION, undecided=plan, merged=kept.merged)
        if plan.undecided and self.edits == "discard":
            await put_back(session, plan)
            plan = await self._planned(session, redo, fields, again)
        ahead = [*again, *_ahead(plan)]
        if not ahead and plan.status is Status.COMPLETED and _as_recorded(plan):
            return self._complete()
        cursor = await now(session)
        _tell_where(ahead, bool(again or redo) or len(_ahead(plan)) < len(AGENTS))
        if redo is not None:
            why = "--from" if redo == self.redo else CHANGED if rejected is None else f"rejected: {rejected.reason}"
            fields |= kept.over_rewind(rejected, self.redo)
            await session.rewind(redo, fields, by=self.by, reason=why)
        elif fields := fields | kept.over_rerun(ahead):
            await session.edit(fields, by=self.by, reason=CHANGED)
        await session.resume(edits=self.edits, rerun=again, pause_after=self.until, by=self.by, budget=self.budget)
        done = {each.step for each in await session.plan() if each.verdict in ("done", "left out")}
        click.echo(shown("Agents: " + " ".join(f"{'✓' if name in done else '·'}\xa0{name}" for name in AGENTS)))
        return Stand(self.folder, await Following(engine, self.until, done).to_its_end(session, cursor))

    async def _redone(self, session: Session[MemoState], fields: dict[str, Any]) -> str | None:
        """Return the first agent to redo: that of --from, or the first that has read a changed input."""
        done = {each.step for each in await session.checkpoints(limit=None) if not each.left_behind}
        if self.redo is not None and self.redo not in done:
            raise BadInput(
                f"--from: {self.redo} has not finished yet, so there is nothing to redo. Resume: {self.command}"
            )
        read = [name for name in memo.readers(*fields) if name in done]
        return min([*read, *([self.redo] if self.redo else [])], key=AGENTS.index, default=None)

    async def _planned(
        self, session: Session[MemoState], redo: str | None, fields: dict[str, Any], again: list[str]
    ) -> Plan:  # fmt: skip
        """Return what a resume would do, without changing anything."""
        if redo is None:
            return await session.plan(rerun=again)
        try:
            return await session.plan_rewind(redo, fields)
        except FolderRefused as error:
            if (first := earliest(redo)) == redo:
                raise
            raise BadInput(
                f"{redo} cannot be redone alone: the store with the previous version of {error.path} is missing."
                f" Write it again with --from {first}."
            ) from None

    async def answer(self, question: Question, value: str) -> Stand:
        """Answer a question and resume the session."""
        async with self._engine() as engine:
            session: Session[MemoState] = engine.session(question.session_id)
            cursor = await now(session)
            await engine.answer(question.id, value, by=self.by, channel="cli")
            return Stand(self.folder, await Following(engine).to_its_end(session, cursor))


def _tell_where(ahead: list[str], again: bool) -> None:
    first = min(ahead, key=AGENTS.index, default=None)
    if first is not None and (first != AGENTS[0] or again):
        click.echo(f"✓ Resuming from checkpoint: {first}")


def _ahead(plan: Plan) -> list[str]:
    """Return the agents that will run."""
    return [each.step for each in plan if each.verdict in ("next", "will run")]


def _as_recorded(found: Plan | Detection) -> bool:
    """Return whether all files match their records."""
    return all(each.state == "valid" for each in found.artifacts)
