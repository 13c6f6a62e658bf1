"""Drive a run in this process: claim it, show it until it stops, and print the next commands."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

import click

from pausepoint import Engine, Question, Status
from pausepoint.apps import model
from pausepoint.apps.devs import display as showing
from pausepoint.apps.devs import workspace
from pausepoint.apps.devs.commands import Commands
from pausepoint.apps.devs.models import Plan, log_of
from pausepoint.apps.devs.pauses import Pauses
from pausepoint.apps.devs.runs import check_whose, differences, stored_tasks, tags_of
from pausepoint.apps.devs.standby import Standby, picked_up, standing_by
from pausepoint.apps.devs.tasks import Worker, last_lines
from pausepoint.apps.devs.view import View
from pausepoint.apps.endings import CONFLICT, DECISION, DONE, FAILED, PERSON, Ending, at_terminal, ended
from pausepoint.apps.input import BadInput, confirmed
from pausepoint.apps.words import display_line, many
from pausepoint.cli import Start
from pausepoint.errors import AlreadyRunning, DamagedSnapshot, QuestionError, UnknownSession
from pausepoint.gate import CALL
from pausepoint.model import approval_of, approval_text
from pausepoint.orchestrator import FileStateStore, Orchestrator, OrchestratorState

LISTED = 20
"""The maximum number of changed files to list."""

R = TypeVar("R")
Act = Callable[[Engine, Orchestrator], Awaitable[None]]


class Stop(Exception):
    """Raised when the run is not driven, with the exit code and the lines to print."""

    def __init__(self, code: int, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.code = code


class Changed(Exception):
    """Raised when files in the workspace have changed and a person at the terminal can decide. ``files`` lists them."""

    def __init__(self, files: list[str], text: str) -> None:
        super().__init__(text)
        self.files = files


class Ride:
    """One run that this process drives until the run stops or the program must end.

    ``named`` is the plan as the user named it. ``edits="accept"`` accepts changed files in the workspace. ``replan``
    accepts changed tasks in the plan's file. ``stay`` keeps the process while the run is paused or waits for an answer,
    and continues when someone resumes or answers it from anywhere.
    """

    def __init__(
        self, start: Start, plan: Plan, named: str, by: str | None, *, budget: float | None = None,
        edits: Literal["accept"] | None = None, replan: bool = False, stay: bool = False,
    ) -> None:  # fmt: skip
        self.start = start
        self.plan = plan
        self.named = named
        self.by = by
        self.budget = budget
        self.edits = edits
        self.replan = replan
        self.stay = stay
        self.view = View(plan.name, last_lines(plan))
        self.known = False  # whether the run is known to exist
        self.withdraws = False  # whether this process resumes the run
        self.taken: list[str] = []  # the changes in the workspace that the user accepted

    # the verbs

    def begin(self) -> Ending:
        """Start or continue the run. A paused run stays paused."""
        return ended(lambda: self._driven(self._begin), self._ended_early)

    def resume(self) -> Ending:
        """Resume the run. Failed tasks are tried again. A run that is still pausing elsewhere continues there."""
        self.withdraws = True
        return ended(lambda: self._driven(self._resume), self._ended_early)

    async def _begin(self, engine: Engine, run: Orchestrator) -> None:
        status = await self._status(engine)
        if status is None:
            await run.start(self.plan.tasks, by=self.by, budget=self.budget, tags=tags_of(self.plan))
        elif status in (Status.PAUSED, Status.PAUSING):
            await self.view.look(engine)
            what = f"{self.plan.name} is {status.value}: {self.view.reason}"
            raise Stop(PERSON, what, self._onward("Resume", "resume"))
        else:
            await self._take_in_plan(engine, run)
            await run.start(by=self.by, budget=self.budget)

    async def _resume(self, engine: Engine, run: Orchestrator) -> None:
        if await self._status(engine) is None:
            raise UnknownSession(
                f"{self.named} has not been run yet. Start it: {self.start.command('run', self.named)}",
                session_id=self.plan.name,
            )
        await self._take_in_plan(engine, run)
        if (await run.report()).failed:
            await run.retry(by=self.by, reason="resumed")
        try:
            await run.start(by=self.by, budget=self.budget)
            if run.get_state() is OrchestratorState.PAUSED:
                await run.resume(self.budget)
        except DamagedSnapshot as error:
            raise BadInput(f"{error} You can also delete the file: the store contains the same data.") from None

    async def _take_in_plan(self, engine: Engine, run: Orchestrator) -> None:
        """Compare the plan's file with the run, and refuse or accept changed tasks."""
        found = await self._differences(engine)
        if found and not self.replan:
            raise Stop(
                CONFLICT, f"{self.named} has changed since the run was started:", *(f"  {each}" for each in found),
                self._onward("Accept it (changed tasks and their dependents are done again)", "resume", "--replan"),
            )  # fmt: skip
        if found:
            await run.replan(self.plan.tasks, by=self.by)

    async def _status(self, engine: Engine) -> Status | None:
        try:
            info = await engine.session(self.plan.name).info()
        except UnknownSession:
            return None
        check_whose(info, self.plan)
        self.known = True
        return Status(info.status)

    # driving

    def _driven(self, act: Act) -> Ending:
        try:
            self._run(act)
            while self.view.questions and not self.stay and at_terminal():
                value = _prompted(self.view.questions[0])
                if value is None:
                    break
                self._run(self._answering(self.view.questions[0], value))
        except Stop as stop:
            click.echo(str(stop), err=True)
            return stop.code, asyncio.run(self._looked()) if self.known else None
        return self._reported()

    def _run(self, act: Act) -> None:
        """Drive the run. Prompts appear only while no engine is open, because an open engine handles Ctrl+C."""
        try:
            asyncio.run(self._drive(act))
        except Changed as changed:
            click.echo(str(changed))
            if not confirmed("Accept the changed files?", default=False):
                raise Stop(DECISION, "Nothing was done.") from None
            self.taken = changed.files
            self._run(act)

    def _answering(self, question: Question, approved: bool) -> Act:
        async def act(engine: Engine, run: Orchestrator) -> None:
            try:
                await engine.answer(question.id, {"approved": approved}, by=self.by, channel="devs")
            except QuestionError as error:  # for example, someone else answered first
                click.echo(str(error), err=True)
            await run.start(by=self.by)

        return act

    async def _drive(self, act: Act) -> None:
        plan = self.plan
        if any(todo.needs_model for todo in plan.todos) and model.settings() is None:
            ids = ", ".join(todo.id for todo in plan.todos if todo.needs_model)
            raise BadInput(
                f"{plan.path}: No model is configured, but these tasks need one: {ids}. Set PAUSEPOINT_MODEL, such as"
                " PAUSEPOINT_MODEL=openai:gpt-5-mini."
            )
        async with Engine(self.start.store, drives="asked") as engine:  # an answer alone does not resume the run
            await self._check_free(engine)
            commands = Commands(plan.state, plan.head.grace, plan.head.env, plan.head.output_limit)
            worker = Worker(plan, commands, engine)
            run = Orchestrator(
                engine, plan.name, worker.work, agents=plan.head.agents,
                snapshot_store=FileStateStore(plan.workspace), safety=plan.head.safety.as_safety(), idle_timeout=None,
                events=[CALL],
            )  # fmt: skip
            if self.known:
                await self.view.look(engine)  # skips the events of the past
                if await self._is_done(engine):
                    return
                await self._leave_to_standby(engine, run)
            async with commands:
                if commands.waited:
                    said = f"Another process was working in {plan.workspace}. Its commands have ended now."
                    click.echo(showing.folded(said), err=True)
                self._check_workspace()
                workspace.forget(plan)
                try:
                    await self._work(engine, run, act, Standby(self, engine, run, worker))
                finally:
                    await worker.gated.close()
                    await commands.end_kept()  # they may write files until they have ended
                    self.keep_workspace()

    async def _is_done(self, engine: Engine) -> bool:
        """Return whether the plan has nothing left to do. Changes in the workspace then do not matter."""
        return self.view.status == "completed" and not await self._differences(engine)

    async def _differences(self, engine: Engine) -> list[str]:
        return differences(await stored_tasks(engine, self.plan.name), self.plan.tasks)

    async def _work(self, engine: Engine, run: Orchestrator, act: Act, standby: Standby) -> None:
        await act(engine, run)
        self.known = True
        pauses = asyncio.ensure_future(Pauses(engine, self.plan.name, standby.worker.commands).follow())
        try:
            while True:
                await engine.session(self.plan.name).drive_only()
                await self.shown(engine, run.outcome())
                if not standby.stays or not await standby.resumed():
                    return
        finally:
            pauses.cancel()
            await asyncio.wait([pauses])

    async def shown(self, engine: Engine, until: Awaitable[R], waits: bool = False) -> R:
        """Show the run until something has happened, and return it. ``waits``: nothing runs in the meantime."""
        wait = asyncio.ensure_future(until)
        try:
            await showing.follow(engine, self.view, wait.done, wait, showing.show(waits))
            return wait.result()
        finally:
            wait.cancel()

    def keep_workspace(self) -> None:
        """Record the workspace for the next comparison. A failure must not hide the result of the run."""
        try:
            workspace.keep(self.plan)
        except OSError as error:
            said = f"Later changes in {self.plan.workspace} will not be detected: {error}"
            click.echo(showing.folded(said), err=True)

    async def _check_free(self, engine: Engine) -> None:
        """Refuse a run that another process drives, and a workspace with another unfinished run."""
        if await self._status(engine) is not None:
            info = await engine.session(self.plan.name).info()
            holder = info.holder
            if holder is not None and self.withdraws and info.status is Status.PAUSING:
                await engine.session(self.plan.name).resume(by=self.by, budget=self.budget, here=False)
                raise Stop(
                    DONE, f"{self.plan.name} was still pausing. The pause is withdrawn, and {holder} continues it.",
                    self._onward("Follow it", "status"),
                )  # fmt: skip
            if holder is not None:
                raise AlreadyRunning(
                    f"Run {self.plan.name} is driven by {holder}. Follow it: {self.start.command('status', self.named)}"
                    f" or stop it: {self.start.command('pause', self.named)}",
                    session_id=self.plan.name, holder=holder,
                )  # fmt: skip
        try:
            snapshot = await FileStateStore(self.plan.workspace).load_snapshot()
        except DamagedSnapshot:
            return  # a resume reports it
        for other in {str(state.session_id) for state in snapshot.active_agents} if snapshot else ():
            if other != self.plan.name and await _is_unfinished(engine, other):
                raise BadInput(
                    f"The unfinished run {other} uses {self.plan.workspace}. Resume or cancel it first, or give this"
                    " plan another workspace."
                )

    async def _leave_to_standby(self, engine: Engine, run: Orchestrator) -> None:
        """If another process stands by to continue the run, leave it to that process."""
        name, found = self.plan.name, await standing_by(engine, self.plan)
        if found is None:
            return
        what = f"{name} is {self.view.status}: {self.view.reason or showing.counted(self.view)}"
        if not self.withdraws or self.view.status == "waiting":
            verb = "resume it" if self.view.status == "paused" else "answer its questions"
            raise Stop(PERSON, what, f"It continues in {found.process} after you {verb}.", *self.ways())
        self._check_workspace()
        self.keep_workspace()  # with the changes that were accepted
        await self._take_in_plan(engine, run)
        if (await run.report()).failed:
            await run.retry(by=self.by, reason="resumed")
        await engine.session(name).resume(by=self.by, budget=self.budget, here=False)
        if (info := await picked_up(engine, found, name)) is not None:
            if info.status is Status.PAUSED:
                raise Stop(PERSON, f"{name} is paused again.", self._onward("See why", "status"))
            raise Stop(DONE, f"{name} continues in {found.process}.", self._onward("Follow it", "status"))

    def _check_workspace(self) -> None:
        """Find files that have changed since the run stopped. Nothing is touched until the user decides."""
        found = workspace.changes(self.plan)
        if not found or found == self.taken:
            return
        what = f"{many(len(found), 'file')} in {self.plan.workspace} changed since the run stopped:"
        lines = [what, *(f"  {_shown(each)}" for each in found[:LISTED])]
        lines += [f"  … and {len(found) - LISTED} more"] if len(found) > LISTED else []
        if self.edits:
            click.echo("\n".join([*lines, "The changes are accepted."]), err=True)
        elif at_terminal():
            raise Changed(found, "\n".join(lines))
        else:
            accepted = self._onward("Accept them", "resume", "--edits", "accept")
            again = self._onward("Or redo a task first", "rewind", "TASK")
            raise Stop(DECISION, *lines, "Nothing was done. Restore the files, or decide:", accepted, again)

    # the result

    def _onward(self, what: str, verb: str, *words: str) -> str:
        return f"{what}:  {self.start.command(verb, self.named, *words)}"

    def _document(self) -> dict[str, Any]:
        return showing.document(self.view, self.plan, self.start.command, self.named)

    async def _looked(self) -> dict[str, Any]:
        async with Engine(self.start.store, create=False, drives="none") as engine:
            await self.view.look(engine)
        return self._document()

    def _reported(self) -> Ending:
        view = self.view
        code = {"completed": DONE, "failed": FAILED, "cancelled": FAILED}.get(view.status, PERSON)
        if sys.stdout.isatty():
            click.echo(showing.graph(view))
        is_over = view.status in ("completed", "failed", "cancelled")
        click.echo(showing.folded(f"{view.name} {'' if is_over else 'is '}{view.status}: {showing.counted(view)}"))
        if view.reason and not is_over:
            click.echo(showing.folded(f"Why:  {display_line(view.reason)}"))
        for line in self.ways():
            click.echo(line, err=True)
        return code, self._document()

    def ways(self) -> list[str]:
        """Return the next commands for the user."""
        view, found = self.view, list[str]()
        for row in view.failed:
            found.append(showing.folded(f"{row.task.id} failed: {display_line(row.note)}"))
            if (log := log_of(self.plan, row.task.id)).exists():
                found.append(f"  its output: {log}")
        for each in view.questions:
            approve = self.start.command("answer", each.id, "--approve")
            found += [
                showing.folded(display_line(each.next_question)),
                f"  Approve:  {approve}",
                "  To reject it, pass --reject WHY instead of --approve.",
            ]
        if view.failed:
            found.append(self._onward(f"Skip {view.failed[0].task.id}", "skip", view.failed[0].task.id))
        if view.status not in ("completed", "cancelled"):
            found.append(self._onward("Try again" if view.failed else "Resume", "resume"))
        return found

    def _ended_early(self, why: str, code: int) -> Ending:
        """Report that the program ends early. The last line is the command that resumes the run."""
        if not self.known:
            click.echo(f"{why} before anything was stored.", err=True)
            return code, None
        document = asyncio.run(self._looked())
        click.echo(showing.folded(f"{why}. Finished work is kept: {showing.counted(self.view)}"), err=True)
        click.echo(self._onward("Resume", "resume"), err=True)
        return code, document


async def nobody(agent: object) -> None:
    """Raise an error, because an orchestrator that only reads has no agents."""
    raise AssertionError("This orchestrator only reads.")


async def _is_unfinished(engine: Engine, session_id: str) -> bool:
    try:
        return (await engine.session(session_id).info()).status not in (Status.COMPLETED, Status.CANCELLED)
    except UnknownSession:
        return False


def _shown(path: str) -> str:
    """Return a path that is safe to print, even if it is not valid UTF-8."""
    return display_line(os.fsencode(path).decode("utf-8", "replace"))


def _prompted(question: Question) -> bool | None:
    """Ask at the terminal, below all of the call. None means later."""
    click.echo(showing.folded(display_line(question.next_question)))
    if (approval := approval_of(question.payload)) is not None:
        click.echo(approval_text(approval, whole=True).replace("\t", "    "))
    said = click.prompt("Approve", type=click.Choice(["yes", "no", "later"]), default="later")
    return {"yes": True, "no": False}.get(said)
