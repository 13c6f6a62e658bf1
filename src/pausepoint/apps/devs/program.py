"""Working on a run in this process: taking it up, showing it until it stands, and saying how to go on."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import click

from pausepoint import Engine, Question, Status
from pausepoint.apps import model
from pausepoint.apps.devs import display as showing
from pausepoint.apps.devs import workspace
from pausepoint.apps.devs.commands import Commands
from pausepoint.apps.devs.models import Plan
from pausepoint.apps.devs.runs import check_whose, tags_of
from pausepoint.apps.devs.tasks import Worker, log_of
from pausepoint.apps.devs.view import View
from pausepoint.apps.input import BadInput
from pausepoint.apps.words import many, one_line
from pausepoint.cli import Start
from pausepoint.errors import AlreadyRunning, DamagedSnapshot, QuestionError, UnknownSession
from pausepoint.orchestrator import FileStateStore, Orchestrator, OrchestratorState, Task

DONE, FAILED, PERSON, CONFLICT, DECISION, INTERRUPTED, TERMINATED = 0, 1, 3, 5, 6, 130, 143
LISTED = 20
"""How many changed files are named."""

Ending = tuple[int, dict[str, Any] | None]
Act = Callable[[Engine, Orchestrator], Awaitable[None]]


class Stop(Exception):
    """The run is not taken up: with this exit code, and these lines for people."""

    def __init__(self, code: int, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.code = code


class Changed(Exception):
    """Another hand has changed the workspace, and somebody is there to decide. ``files``: how, as it is shown."""

    def __init__(self, files: list[str], text: str) -> None:
        super().__init__(text)
        self.files = files


class Ride:
    """One run that is worked on here until it stands or this program has to end.

    ``named`` is how the person named the plan; ``edits="accept"``: a workspace that another hand has changed is taken
    as it is; ``replan``: so are tasks that the plan's file says otherwise than the run has them.
    """

    def __init__(
        self, start: Start, plan: Plan, named: str, by: str | None, *, budget: float | None = None,
        edits: Literal["accept"] | None = None, replan: bool = False,
    ) -> None:  # fmt: skip
        self.start = start
        self.plan = plan
        self.named = named
        self.by = by
        self.budget = budget
        self.edits = edits
        self.replan = replan
        self.view = View(plan.name)
        self.known = False  # whether there is a run, as far as was seen
        self.taken: list[str] = []  # the changes of the workspace that somebody said yes to

    # the verbs

    def begin(self) -> Ending:
        """Start the run, or go on with it; one that is paused stays paused."""
        return self._driven(self._begin)

    def resume(self) -> Ending:
        """Go on with the run; what failed is tried again."""
        return self._driven(self._resume)

    async def _begin(self, engine: Engine, run: Orchestrator) -> None:
        status = await self._status(engine)
        if status is None:
            await run.start(self.plan.tasks, by=self.by, budget=self.budget, tags=tags_of(self.plan))
        elif status in (Status.PAUSED, Status.PAUSING):
            await self.view.look(engine)
            what = f"{self.plan.name} is {status.value}: {self.view.reason}"
            raise Stop(PERSON, what, self._onward("Go on", "resume"))
        else:
            await self._take_in_plan(engine, run)
            await run.start(by=self.by, budget=self.budget)

    async def _resume(self, engine: Engine, run: Orchestrator) -> None:
        if await self._status(engine) is None:
            raise UnknownSession(
                f"{self.named} has not been run yet; {self.start.command('run', self.named)} does that",
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
            raise BadInput(f"{error}; or delete it: the store knows everything that it says") from None

    async def _take_in_plan(self, engine: Engine, run: Orchestrator) -> None:
        """Notice that the plan's file says other tasks than the run has."""
        found = await self._differences(engine)
        if found and not self.replan:
            raise Stop(
                CONFLICT, f"{self.named} has changed since the run was started:", *(f"  {each}" for each in found),
                self._onward("Take it in (what changed, and what needs it, is done anew)", "resume", "--replan"),
            )  # fmt: skip
        if found:
            await run.replan(self.plan.tasks, by=self.by)

    async def _status(self, engine: Engine) -> Status | None:
        try:
            info = await engine.info(self.plan.name)
        except UnknownSession:
            return None
        check_whose(info, self.plan)
        self.known = True
        return Status(info.status)

    # driving

    def _driven(self, act: Act) -> Ending:
        try:
            self._run(act)
            while self.view.questions and sys.stdin.isatty() and sys.stdout.isatty():
                value = _prompted(self.view.questions[0])
                if value is None:
                    break
                self._run(self._answering(self.view.questions[0], value))
        except Stop as stop:
            click.echo(str(stop), err=True)
            return stop.code, asyncio.run(self._looked()) if self.known else None
        except (KeyboardInterrupt, click.Abort):
            return self._left("Interrupted", INTERRUPTED)
        except SystemExit as end:
            if end.code != TERMINATED:
                raise
            return self._left("Terminated", TERMINATED)
        return self._told()

    def _run(self, act: Act) -> None:
        """Work on the run. Nothing is asked meanwhile: an engine that is open minds Ctrl+C itself."""
        try:
            asyncio.run(self._drive(act))
        except Changed as changed:
            click.echo(str(changed))
            if not click.confirm("Go on with them as they are?", default=False):
                raise Stop(DECISION, "Nothing was done.") from None
            self.taken = changed.files
            self._run(act)

    def _answering(self, question: Question, approved: bool) -> Act:
        async def act(engine: Engine, run: Orchestrator) -> None:
            try:
                await engine.answer(question.id, {"approved": approved}, by=self.by, channel="devs")
            except QuestionError as error:  # somebody else was first, say
                click.echo(str(error), err=True)
            await run.start(by=self.by)

        return act

    async def _drive(self, act: Act) -> None:
        plan = self.plan
        if any(todo.write is not None for todo in plan.todos) and model.settings() is None:
            writes = ", ".join(todo.id for todo in plan.todos if todo.write is not None)
            raise BadInput(f"{plan.path}: a model is needed for {writes}, and none is set up: set PAUSEPOINT_MODEL")
        async with Engine(self.start.store, drives="asked") as engine:  # so an answer alone does not resume the run
            await self._check_free(engine)
            commands = Commands(plan.state, plan.head.grace, plan.head.env)
            run = Orchestrator(
                engine, plan.name, Worker(plan, commands).work, agents=plan.head.agents,
                snapshot_store=FileStateStore(plan.workspace), safety=plan.head.safety.as_safety(), idle_timeout=None,
            )  # fmt: skip
            if self.known:
                await self.view.look(engine)  # what was before is not told again
                if await self._is_done(engine):
                    return
            async with commands:
                if commands.waited:
                    click.echo(
                        f"Another process was at work in {plan.workspace}; its commands have ended now", err=True
                    )
                self._check_workspace()
                workspace.forget(plan)
                try:
                    await self._work(engine, run, act)
                finally:
                    self._keep_workspace()

    async def _is_done(self, engine: Engine) -> bool:
        """Whether nothing is left to do, as the plan is now. What others did to the workspace then does not matter."""
        return self.view.status == "completed" and not await self._differences(engine)

    async def _differences(self, engine: Engine) -> list[str]:
        stored: Any = await engine.state(self.plan.name)
        return differences(stored.tasks, self.plan.tasks)

    async def _work(self, engine: Engine, run: Orchestrator, act: Act) -> None:
        await act(engine, run)
        self.known = True
        await engine.drive_only(self.plan.name)
        outcome = asyncio.ensure_future(run.outcome())
        try:
            await showing.follow(engine, self.view, outcome.done, outcome, showing.show())
            outcome.result()
        finally:
            outcome.cancel()

    def _keep_workspace(self) -> None:
        """So that it is noticed what others change. If that cannot be, it must not hide how the run stands."""
        try:
            workspace.keep(self.plan)
        except OSError as error:
            click.echo(f"What others change in {self.plan.workspace} will not be noticed: {error}", err=True)

    async def _check_free(self, engine: Engine) -> None:
        """Refuse a run that another process works on, and a workspace in which another run stands."""
        if await self._status(engine) is not None:
            holder = (await engine.info(self.plan.name)).holder
            if holder is not None:
                raise AlreadyRunning(
                    f"{self.plan.name} is worked on by {holder}; follow it: {self.start.command('status', self.named)};"
                    f" stop it: {self.start.command('pause', self.named)}",
                    session_id=self.plan.name, holder=holder,
                )  # fmt: skip
        try:
            snapshot = await FileStateStore(self.plan.workspace).load_snapshot()
        except DamagedSnapshot:
            return  # a resume says so
        for other in {str(state.session_id) for state in snapshot.active_agents} if snapshot else ():
            if other != self.plan.name and await _stands(engine, other):
                raise BadInput(
                    f"run {other} stands in {self.plan.workspace}; go on with it or cancel it first, or give this plan"
                    " a workspace of its own"
                )

    def _check_workspace(self) -> None:
        """Notice what another hand has changed since the run stopped; nothing is touched before somebody decides."""
        found = workspace.changes(self.plan)
        if not found or found == self.taken:
            return
        what = f"{many(len(found), 'file')} of {self.plan.workspace} changed since the run stopped:"
        lines = [what, *(f"  {_shown(each)}" for each in found[:LISTED])]
        lines += [f"  … and {len(found) - LISTED} more"] if len(found) > LISTED else []
        if self.edits:
            click.echo("\n".join([*lines, "It goes on with them as they are."]), err=True)
        elif sys.stdin.isatty() and sys.stdout.isatty():
            raise Changed(found, "\n".join(lines))
        else:
            accepted = self._onward("Go on with them as they are", "resume", "--edits", "accept")
            again = self._onward("Or have a task done anew first", "rewind", "TASK")
            raise Stop(DECISION, *lines, "Nothing was done; put them back, or decide:", accepted, again)

    # how it stands

    def _onward(self, what: str, verb: str, *words: str) -> str:
        return f"{what}:  {self.start.command(verb, self.named, *words)}"

    def _document(self) -> dict[str, Any]:
        return showing.document(self.view, self.plan, self.start.command, self.named)

    async def _looked(self) -> dict[str, Any]:
        async with Engine(self.start.store, create=False, drives="none") as engine:
            Orchestrator(engine, self.plan.name, nobody)
            await self.view.look(engine)
        return self._document()

    def _told(self) -> Ending:
        view = self.view
        code = {"completed": DONE, "failed": FAILED, "cancelled": FAILED}.get(view.status, PERSON)
        if sys.stdout.isatty():
            click.echo(showing.graph(view))
        is_over = view.status in ("completed", "failed", "cancelled")
        click.echo(f"{view.name} {'' if is_over else 'is '}{view.status}: {showing.counted(view)}")
        if view.reason and not is_over:
            click.echo(f"Why:  {one_line(view.reason)}")
        for line in self._ways():
            click.echo(line, err=True)
        return code, self._document()

    def _ways(self) -> list[str]:
        """What somebody can do about it."""
        view, found = self.view, list[str]()
        for row in view.failed:
            found.append(f"{row.task.id} failed: {one_line(row.note)}")
            if (log := log_of(self.plan, row.task.id)).exists():
                found.append(f"  its output: {log}")
        for each in view.questions:
            approve = self.start.command("answer", each.id, "--approve")
            found += [one_line(each.next_question), f"  Approve:  {approve}", "  Or refuse it:  --reject WHY instead"]
        if view.failed:
            found.append(self._onward("Skip one", "skip", view.failed[0].task.id))
        if view.status not in ("completed", "cancelled"):
            found.append(self._onward("Try again" if view.failed else "Go on", "resume"))
        return found

    def _left(self, why: str, code: int) -> Ending:
        """This program has to end. What is done is kept; the last line is the command that goes on."""
        if not self.known:
            click.echo(f"{why} before anything was stored", err=True)
            return code, None
        document = asyncio.run(self._looked())
        click.echo(f"{why}; what is done is kept: {showing.counted(self.view)}", err=True)
        click.echo(self._onward("Go on", "resume"), err=True)
        return code, document


async def nobody(agent: object) -> None:
    """For an orchestrator that only looks."""
    raise AssertionError("nobody works here")


async def _stands(engine: Engine, session_id: str) -> bool:
    try:
        return (await engine.info(session_id)).status not in (Status.COMPLETED, Status.CANCELLED)
    except UnknownSession:
        return False


def _shown(path: str) -> str:
    """A path as a terminal can show it, whatever bytes it is made of."""
    return one_line(os.fsencode(path).decode("utf-8", "replace"))


def _prompted(question: Question) -> bool | None:
    """Ask at the terminal; None: later."""
    click.echo(showing.folded(one_line(question.next_question)))
    said = click.prompt("Approve", type=click.Choice(["yes", "no", "later"]), default="later")
    return {"yes": True, "no": False}.get(said)


def differences(before: Sequence[Task], now: Sequence[Task]) -> list[str]:
    """What a plan says otherwise than before, task by task.

    >>> differences([Task(id="a"), Task(id="b")], [Task(id="b", needs=["c"]), Task(id="c")])
    ['gone: a', 'changed: b', 'new: c']
    """
    old, new = ({task.id: task for task in tasks} for tasks in (before, now))
    found = [f"gone: {id}" for id in old if id not in new]
    found += [f"changed: {id}" for id in old if id in new and old[id] != new[id]]
    return found + [f"new: {id}" for id in new if id not in old]
