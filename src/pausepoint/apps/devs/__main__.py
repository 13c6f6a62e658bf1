"""``python -m pausepoint.apps.devs``: the command line. Without a plan it runs its sample."""

from __future__ import annotations

import asyncio
import getpass
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import click
from pydantic import Field

from pausepoint import Engine, program
from pausepoint.apps.devs import display as showing
from pausepoint.apps.devs import workspace
from pausepoint.apps.devs.logs import Logs
from pausepoint.apps.devs.models import Plan
from pausepoint.apps.devs.plan import read
from pausepoint.apps.devs.program import Ride, nobody
from pausepoint.apps.devs.runs import looking, path_of, plan_of
from pausepoint.apps.devs.sample import sample_plan
from pausepoint.apps.devs.tasks import last_lines
from pausepoint.apps.devs.view import View
from pausepoint.apps.endings import Ending
from pausepoint.apps.input import BadInput
from pausepoint.apps.words import many
from pausepoint.cli import Start
from pausepoint.errors import AlreadyRunning, did_you_mean
from pausepoint.orchestrator import Orchestrator

HELP = """Run a plan: tasks with commands, in the order of their dependencies, with several agents at once.

PLAN is a TOML or JSON file; after the first run you can also use the run's name. Without a plan, a small sample runs.
You can pause, kill and resume a run at any moment. Finished tasks are not done again.
"""
WITHOUT = (
    "resume", "worker", "status", "plan", "why", "checkpoints", "diff", "artifacts", "pause", "send", "edit", "rewind",
    "fork",
)  # fmt: skip


def who() -> str | None:
    """Return the login name, the default for ``--by``."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def run(
    start: Start,
    plan: Annotated[str | None, Field(description="The plan's file. Default: the sample.")] = None,
    budget: Annotated[float | None, Field(description="The cost limit for models, in dollars.")] = None,
    replan: Annotated[bool, Field(description="Accept the changes in the plan.")] = False,
    edits: Annotated[Literal["accept"] | None, Field(description="Accept changed files in the workspace.")] = None,
    stay: Annotated[bool, Field(description="Stay while the run is stopped; continue when it is resumed.")] = False,
    by: Annotated[str | None, Field(description="Your name for the history. Default: the login name.")] = None,
) -> Ending:
    """Start or continue a plan, and show it until it ends or needs a person.

    After Ctrl+C, the running commands finish first; a second Ctrl+C ends them. The last line is the command that
    resumes the run.
    """
    named = str(sample_plan(start.folder)) if plan is None else plan
    found = read(asyncio.run(path_of(start, named)), code=True)
    size = f"{many(len(found.todos), 'task')}, {many(found.head.agents, 'agent')}"
    click.echo(showing.folded(f"Plan {found.name}: {size}, in {found.workspace}"))
    return Ride(start, found, named, by or who(), budget=budget, edits=edits, replan=replan, stay=stay).begin()


main = program(instead=run, without=WITHOUT, arguments=["plan"], name="devs", help=HELP)

plan_argument = click.argument("plan")
by_option = click.option(
    "--by", metavar="NAME", default=who, show_default=False, help="Your name for the history. Default: the login name."
)
reason_option = click.option("--reason", metavar="TEXT", default="", help="The reason, kept in the history.")


@main.verb()
@plan_argument
@click.option("--edits", type=click.Choice(["accept"]), help="Accept changed files in the workspace.")
@click.option("--replan", is_flag=True, help="Accept the changes in the plan.")
@click.option("--budget", type=float, metavar="USD", help="The new cost limit for models.")
@click.option("--stay", is_flag=True, help="Stay while the run is stopped; continue when it is resumed.")
@by_option
def resume(
    start: Start, plan: str, edits: Literal["accept"] | None, replan: bool, budget: float | None, stay: bool,
    by: str | None,
) -> Ending:  # fmt: skip
    """Resume a run. Failed tasks are tried again.

    If files in the workspace have changed since the run stopped, they are listed, and nothing is done until you decide.
    If another process stays for the run (--stay), the run continues there.
    """
    found = read(asyncio.run(path_of(start, plan)), code=True)
    return Ride(start, found, plan, by, budget=budget, edits=edits, replan=replan, stay=stay).resume()


@main.verb()
@plan_argument
@click.option("--abort", is_flag=True, help="End the running commands. A resume runs them again.")
@click.option("--freeze", is_flag=True, help="Freeze the running commands in the middle. A resume continues them.")
@click.option("--wait", is_flag=True, help="Wait until all agents have stopped.")
@reason_option
@by_option
def pause(start: Start, plan: str, abort: bool, freeze: bool, wait: bool, reason: str, by: str | None) -> Any:
    """Stop all agents of a run when their current commands have finished."""
    if abort and freeze:
        raise ValueError("Pass --abort to end the running commands, or --freeze to keep them, not both.")
    asked: dict[str, Any] = {"reason": reason, "by": by, "mode": "abort" if abort else "finish", "freeze": freeze}
    return asyncio.run(_pause(start, plan, wait, asked))


async def _pause(start: Start, plan: str, wait: bool, asked: dict[str, Any]) -> Any:
    async with looking(start, plan, changes=True) as (engine, name):
        began = time.monotonic()
        await engine.session(name).pause(**asked)
        while wait and (await engine.session(name).info()).holder is not None:
            await asyncio.sleep(showing.EVERY)
        took = time.monotonic() - began
        view, found = await _looked(engine, name), await plan_of(engine, name, plan)
        if view.info.holder is None and found is not None and view.status == "paused":
            _keep_if_unknown(found)
        working = [f"{row.agent} at {row.task.id}" for row in view.rows.values() if row.status == "begun"]
        still = f"; still finishing: {', '.join(working)}" if view.info.holder is not None and working else ""
        stood = f" after {took:.1f} s" if wait else ""
        text = f"{name} is {view.status}{stood}: {showing.counted(view)}{still}"
        return text, showing.document(view, found, start.command, plan)


def _keep_if_unknown(plan: Plan) -> None:
    """Record the workspace if there is no record, for example after a kill. Comparisons start from here."""
    if workspace.kept(plan) is None:
        workspace.keep(plan)


async def _looked(engine: Engine, name: str, plan: Plan | None = None) -> View:
    view = View(name) if plan is None else View(name, last_lines(plan))
    await view.look(engine)
    return view


@main.verb()
@plan_argument
@click.option("--once", is_flag=True, help="Show it once, even at a terminal.")
def status(start: Start, plan: str, once: bool) -> Any:
    """Show the graph of a run; at a terminal live, until the run stops."""
    return asyncio.run(_status(start, plan, live=sys.stdout.isatty() and not once))


async def _status(start: Start, plan: str, live: bool) -> tuple[str, dict[str, Any]]:
    async with looking(start, plan) as (engine, name):
        found = await plan_of(engine, name, plan)
        view = await _looked(engine, name, found)
        if live and view.info.holder is not None:
            await showing.follow(engine, view, lambda: view.info.holder is None, None, showing.show())
        return showing.graph(view), showing.document(view, found, start.command, plan)


@main.verb()
@plan_argument
@click.argument("task", required=False)
@click.option("--follow", "-f", is_flag=True, help="Print new output, too, until the run stops.")
@click.option("--lines", "-n", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each task.")
def logs(start: Start, plan: str, task: str | None, follow: bool, lines: int | None) -> Any:
    """Print the output of a TASK, or of all tasks with their names before each line."""
    return asyncio.run(_logs(start, plan, task, follow, lines))


async def _logs(start: Start, plan: str, task: str | None, follow: bool, lines: int | None) -> Any:
    async with looking(start, plan) as (engine, name):
        view, found = await _looked(engine, name), await plan_of(engine, name, plan)
        if found is None:
            raise BadInput(f"The plan of run {name} cannot be read. Fix it, or read the files in .devs/output.")
        if task is not None:
            _check_task(view, task)
        printed = Logs(found, list(view.rows) if task is None else [task], lines, named=task is None)
        if follow:
            while view.info.holder is not None:
                printed.show()
                await asyncio.sleep(showing.EVERY)
                await view.look(engine)
            printed.show(last=True)
            return 0
        texts = {each.task: each.everything() for each in printed.tasks}
        document = {"run": name, "tasks": [{"id": id, "text": text} for id, text in texts.items()]}
        return "".join(texts.values()).removesuffix("\n") or "There is no output yet.", document


def _check_task(view: View, task: str) -> None:
    if task not in view.rows:
        raise BadInput(f"Run {view.name} has no task {task!r}{did_you_mean(task, view.rows)}")


@main.verb()
@plan_argument
@click.argument("task")
@reason_option
@by_option
def skip(start: Start, plan: str, task: str, reason: str, by: str | None) -> Any:
    """Count a TASK as done without doing it, so that dependent tasks can start."""
    return asyncio.run(_skip(start, plan, task, reason, by))


async def _skip(start: Start, plan: str, task: str, reason: str, by: str | None) -> Any:
    async with changing(start, plan, [task]) as (engine, run, view):
        if view.rows[task].status == "done":
            again = start.command("rewind", plan, task)
            raise BadInput(f"Task {task} is already done, and other tasks may build on it. To do it again: {again}")
        await run.skip(task, reason, by)
        return await _changed(start, engine, view, plan, f"{task} is skipped.")


@main.verb()
@plan_argument
@click.argument("tasks", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Do all tasks again.")
@reason_option
@by_option
def rewind(start: Start, plan: str, tasks: tuple[str, ...], everything: bool, reason: str, by: str | None) -> Any:
    """Do TASKS and all tasks that depend on them again when the run resumes. Files are not changed."""
    if everything == bool(tasks):
        raise ValueError("Name the tasks to do again, or pass --all.")
    return asyncio.run(_rewind(start, plan, tasks, reason, by))


async def _rewind(start: Start, plan: str, tasks: tuple[str, ...], reason: str, by: str | None) -> Any:
    async with changing(start, plan, tasks) as (engine, run, view):
        chosen = tasks or [id for id, row in view.rows.items() if not row.task.needs]
        again = await run.redo(chosen, reason, by)
        return await _changed(start, engine, view, plan, f"To be done again: {', '.join(again)}.")


@asynccontextmanager
async def changing(start: Start, plan: str, tasks: Sequence[str]) -> AsyncIterator[tuple[Engine, Orchestrator, View]]:
    """Open a run to change these tasks. Refuse unknown tasks and a run that another process drives."""
    async with looking(start, plan, changes=True) as (engine, name):
        run, view = Orchestrator(engine, name, nobody), View(name)
        await view.look(engine)
        for task in tasks:
            _check_task(view, task)
        if view.info.holder is not None:
            stop = start.command("pause", plan, "--wait")
            raise AlreadyRunning(
                f"Run {name} is driven by {view.info.holder}. Stop it first: {stop}",
                session_id=name, holder=view.info.holder,
            )  # fmt: skip
        yield engine, run, view


async def _changed(start: Start, engine: Engine, view: View, plan: str, told: str) -> tuple[str, dict[str, Any]]:
    await view.look(engine)
    document = showing.document(view, await plan_of(engine, view.name, plan), start.command, plan)
    return f"{told}\n{view.name} is {view.status}. Resume:  {start.command('resume', plan)}", document


if __name__ == "__main__":
    main()
