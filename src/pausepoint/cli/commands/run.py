"""`run` and `resume`: drive a session in this process, show it, and print its outcome and the command to resume it.

The exit code is the session's: 0 completed, 1 failed or cancelled, 3 needs a person; 130 and 143 if this program was
interrupted or terminated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pausepoint.cli.context import Cli, picked_up, program_of, run_async, when_picked_up
from pausepoint.cli.description import GUEST
from pausepoint.cli.drive import DrivenSession
from pausepoint.cli.exits import DONE, PERSON, USAGE, Refused
from pausepoint.cli.fields import Field, collect_values, field_help, input_of, options_for, start_arguments, typed
from pausepoint.cli.filters import Filters, filter_options
from pausepoint.cli.host import TARGET, Start, command_line
from pausepoint.cli.options import (
    SESSIONS,
    STEPS,
    TARGETS,
    BudgetOption,
    OneOf,
    Whole,
    by_option,
    common,
    turn_options,
    was_given,
)
from pausepoint.cli.project import find_project
from pausepoint.cli.prompts import confirmed
from pausepoint.cli.sessions import RESUMABLE, candidates, list_candidates, session_to_change, status_and_age
from pausepoint.cli.text import short_holder
from pausepoint.errors import did_you_mean

if TYPE_CHECKING:
    from pausepoint.definition.workflow import Workflow
    from pausepoint.engine.engine import Engine
    from pausepoint.engine.plans import Plan
    from pausepoint.model.views import SessionInfo


WITHOUT_CODE = ("by", "owner", "budget")
"""The options of a resume that do not need the code of the session."""


_OPTIONS = (
    "session_id", "owner", "tags", "budget", "at_step", "paused", "by", "folder", "queue", "priority", "lane",
)  # fmt: skip


NEW_ONLY = {name: f"--{name}" for name in ("paused", "queue", "priority", "lane", "folder")} | {"tags": "--tag"}
"""The options of a run that an existing session cannot take."""


class Loaded(NamedTuple):
    """The workflow that TARGET names. ``begin``: a program's function that makes the starting state from ``fields``."""

    target: str
    workflow: Workflow[Any]
    fields: dict[str, Field]
    begin: Callable[[dict[str, Any], Start], dict[str, Any]] | None = None
    arguments: Sequence[str] = ()

    def start(self, cli: Cli, given: dict[str, Any]) -> dict[str, Any]:
        """Return the values to start with."""
        values = collect_values(given, given["pairs"], self.fields)
        if self.begin is None:
            return typed(self.workflow, values)
        return self.begin(values, cli.start(given["owner"], given["session_id"]))


class RunCommand(click.Command):
    """A command with additional options: the fields of the workflow that its argument names."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *ctx.meta.get(f"{TARGET}.options", ())]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            target = self._target(ctx, args)
            if target is not None:
                self._take_in(ctx, _loaded(target), args)
        except click.ClickException:
            if not ctx.resilient_parsing:  # shell completion works with what it has
                raise
        return super().parse_args(ctx, args)

    def _take_in(self, ctx: click.Context, loaded: Loaded, args: list[str]) -> None:
        taken = [name for param in super().get_params(ctx) for name in (*param.opts, *param.secondary_opts)]
        ctx.meta[f"{TARGET}.options"] = options_for(loaded.fields.values(), taken, loaded.arguments)
        ctx.meta[TARGET] = loaded, list(args)

    def _target(self, ctx: click.Context, args: list[str]) -> str | None:
        """Return the first word that is neither an option nor the value of one."""
        known = {name: param for param in super().get_params(ctx) for name in param.opts}
        words = iter(args)
        for word in words:
            if word == "--":
                return next(words, None)
            if not word.startswith("-"):
                return word
            name, mark, _ = word.partition("=")
            option = known.get(name)
            if option is None:
                raise click.UsageError(f"{name} comes before TARGET. Put fields after TARGET.", ctx)
            if not mark and isinstance(option, click.Option) and not option.is_flag:
                next(words, None)
        return None

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[--FIELD VALUE]..."]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in super().get_params(ctx) if isinstance(param, click.Option)]
        own = [record for option in options if (record := option.get_help_record(ctx))]
        if TARGET in ctx.meta:
            loaded: Loaded = ctx.meta[TARGET][0]
            written = {path.partition(".")[0] for step in loaded.workflow.steps for path in step.places}
            groups: dict[str, list[tuple[str, str]]] = {}
            for field in loaded.fields.values():
                title = "steps write" if field.name in written and not field.required else "input"
                groups.setdefault(title, []).append((field.usage, field_help(field)))
            for title, what in (("input", "Fields"), ("steps write", "Fields that steps write, optional as input")):
                if title in groups:
                    with formatter.section(f"{what} ({loaded.workflow.name})"):
                        formatter.write_dl(groups[title])
        with formatter.section("Options"):
            formatter.write_dl(own)


def _loaded(target: str) -> Loaded:
    from pausepoint.cli.targets import load_named

    place, workflow = load_named(target, find_project())
    return Loaded(place, workflow, input_of(workflow))


@click.command(cls=RunCommand, options_metavar="[OPTIONS]", short_help="Start a session.")
@click.argument("where", metavar="TARGET", shell_complete=TARGETS)
@click.option("--field", "pairs", multiple=True, metavar="NAME=VALUE", help="Set any field by its name; repeatable.")
@click.option("--paused", is_flag=True, help="Store the session paused, without running it.")
@click.option("--session-id", metavar="ID", help="The session's id. An existing session with this input is resumed.")
@click.option("--owner", metavar="NAME", help="The session's owner.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag to find the session by; repeatable.")
@click.option(
    "--budget", type=BudgetOption(), metavar="BUDGET", help="Dollars, or limits: usd=2,tokens=9000,operations=50."
)
@turn_options("The session's")
@click.option("--at-step", metavar="STEP", shell_complete=STEPS, help="Start at a later step.")
@click.option("--folder", metavar="PATH", help="The folder for the artifacts that steps publish.")
@click.option("--resume", "again", is_flag=True, help="Resume an interrupted session that has the same input.")
@click.option("--force-restart", is_flag=True, help="Start a new session even if one with this input is interrupted.")
@click.option("--detach", is_flag=True, help="Run in the background; return when the session is stored.")
@click.option("--detached-as", metavar="ID", hidden=True)
@by_option
@common(lines=True)
def run(cli: Cli, **given: Any) -> int:
    """Start a session and show it until it ends or needs a person.

    TARGET is file.py, file.py:name, package.module:name, or the name of a workflow in [tool.pausepoint.workflows]. The
    fields of the workflow's state are options after TARGET: pausepoint run TARGET --help lists them.

    At a terminal, you can answer the session's questions directly. Ctrl+C finishes the current operation and prints the
    command that resumes the session; a second Ctrl+C aborts the operation. Without a terminal, the command exits with
    code 3 when the session sleeps for more than a few seconds; a worker or a later `resume` wakes it. It stays while
    the session waits to retry an operation.
    """
    loaded, args = click.get_current_context().meta[TARGET]
    if loaded.workflow.is_guest:
        raise Refused(
            f"Workflow {loaded.workflow.name!r} is a guest: its code is part of a program that visits its sessions."
            " Start that program instead.",
            USAGE,
        )
    cli.targets = (loaded.target,)
    values = loaded.start(cli, given)
    if given["again"] and given["force_restart"]:
        raise click.UsageError("--resume and --force-restart contradict each other. Give one of them.")
    if given["again"] and (wrong := [option for name, option in NEW_ONLY.items() if was_given(name)]):
        raise click.UsageError(f"{' and '.join(wrong)} cannot be used with --resume: the session may exist already.")
    options = {name: given[name] for name in _OPTIONS}
    if given["detached_as"]:
        options["session_id"] = given["detached_as"]
    elif options["session_id"] is None and not given["force_restart"]:
        asks = not given["detach"] and not given["paused"]
        former = _former(cli, loaded.workflow, values, options["at_step"], given["again"], asks)
        if former is not None:
            how = {name: options[name] for name in WITHOUT_CODE}
            return _resumed(cli, loaded.workflow, former, detach=given["detach"], **how)
    driven = DrivenSession(cli, loaded.workflow, options["by"], stays=bool(given["detached_as"]))
    driven.check_start(values, options)
    if given["detach"] and not given["detached_as"]:
        from pausepoint.cli.commands.detach import detach

        return detach(cli, loaded.workflow.name, args, options["session_id"])
    return driven.drive(lambda engine: driven.start(engine, values, options))


# an interrupted session with the same input


def _former(
    cli: Cli, workflow: Workflow[Any], values: dict[str, Any], at_step: str | None, again: bool, asks: bool
) -> SessionInfo | None:
    """Return the interrupted session to resume instead of starting a new one, if the person wants that."""
    alike = run_async(_alike(cli, workflow, values, at_step)) if cli.place.exists else []
    interrupted = [info for info in alike if info.status.value in RESUMABLE]
    if again:
        complete = [info for info in alike if info.status.value == "completed"]
        if not interrupted and not complete:
            cli.out.note("No checkpoints found, starting from scratch")
        return next(iter(interrupted or complete), None)
    if not interrupted:
        return None
    last = interrupted[0]
    more = f", and {len(interrupted) - 1} more like it (`{command_line('ls')}`)" if len(interrupted) > 1 else ""
    what = f"Session {last.session_id} of {workflow.name} has the same input: {status_and_age(last)}{more}"
    if asks and cli.out.for_people and cli.out.terminal and sys.stdin.isatty():
        cli.out.say(f"{what}.")
        return last if confirmed("Resume it?") else None
    cli.out.note(f"Hint: {what}. Resume it instead:  {cli.command('resume', last.session_id, workflow.name)}")
    return None


async def _alike(cli: Cli, workflow: Workflow[Any], values: dict[str, Any], at_step: str | None) -> list[SessionInfo]:
    async with cli.engine() as engine:
        state, fields = start_arguments(workflow, values)
        return await engine.same_input(workflow, state, at_step=at_step, **fields)


# resume


@click.command()
@click.argument("session", required=False, shell_complete=SESSIONS)
@filter_options("Resume all sessions", without=("owner",))
@click.option("--jobs", type=Whole(1), default=8, show_default=True, metavar="N",
              help="With filters: the number of sessions to drive at the same time.")  # fmt: skip
@click.option("--hand-over", is_flag=True, help="Drive nothing here: leave the sessions to open processes and workers.")
@click.option("--dry-run", is_flag=True, help="Show the plan, or the sessions that match, and run nothing.")
@click.option("--from", "start", metavar="STEP", shell_complete=STEPS, help="Rewind to this step first.")
@click.option("--pause-after", metavar="STEP", shell_complete=STEPS, help="Pause after this step.")
@click.option("--steal", is_flag=True, help="Take the session over from a process that hangs.")
@click.option("--code", type=OneOf(["accept"]),
              help="Resume although earlier steps have changed, and run strict calls that have.")  # fmt: skip
@click.option("--edits", type=OneOf(["accept", "discard"]),
              help="Accept edited artifacts, or restore edited and damaged ones.")  # fmt: skip
@click.option("--rerun", multiple=True, metavar="STEP", shell_complete=STEPS,
              help="Redo a finished step, and the steps that read its artifacts or fields; repeatable.")  # fmt: skip
@click.option("--wake", is_flag=True, help="Wake a sleeping session now.")
@click.option("--budget", type=BudgetOption(), metavar="BUDGET", help="A new budget: dollars, or limits as for `run`.")
@click.option("--owner", metavar="NAME", help="Refuse if the session has another owner. Without SESSION, a filter.")
@click.option("--detach", is_flag=True, help="Run in the background; return when the session has been resumed.")
@click.option("--detached", is_flag=True, hidden=True)
@click.option("--all", "everything", is_flag=True, help="Lift a `pause --all` and resume what it paused.")
@by_option
@common(lines=True, target=True)
def resume(
    cli: Cli, session: str | None, dry_run: bool, start: str | None, everything: bool, detach: bool, detached: bool,
    jobs: int, hand_over: bool, **how: Any,
) -> int:  # fmt: skip
    """Resume an interrupted, paused or failed session, and show it until it ends or needs a person.

    Without SESSION, the last interrupted session of this project is resumed; if there are several, they are listed. At
    a terminal, you can answer the session's questions directly. Without a terminal, the command exits with code 3 when
    the session sleeps for more than a few seconds. Without the code of the session, the command withdraws its pause,
    and a process that has the code continues it.

    With filters, all sessions that match are resumed, and failed ones are retried: --status failed --tag night. The
    command ends when each of them has stopped. Its exit code is 0 if all completed, 1 if some failed, and 3 if some
    need a person. Ctrl+C leaves the rest as it was and prints the command that continues.

    --all lifts a `pause --all`: the sessions that it paused continue, and new sessions run again. Sessions that were
    paused individually stay paused. This command drives the sessions whose code this project has; other processes and
    workers drive the rest.
    """
    if everything:
        from pausepoint.cli.commands.lift import lift

        given = session or dry_run or start or detach or hand_over or was_given("jobs")
        if given or any(value for name, value in how.items() if name != "by"):
            raise click.UsageError("--all is for the whole store. Give no session, and no other option but --by.")
        return lift(cli, how["by"])
    filters = _filters(session, how)
    if filters != Filters():
        return _resume_bulk(cli, filters, {"from": start, "detach": detach} | how, jobs, hand_over, dry_run)
    chosen = run_async(_chosen(cli, session, start, dry_run, how, hand_over, detach))
    if isinstance(chosen, int):
        return chosen
    info, workflow = chosen
    return _resumed(cli, workflow, info, start, detach=detach, stays=detached, **how)


def _filters(session: str | None, how: dict[str, Any]) -> Filters:
    """Remove the filters from the options, and return them. --owner has another meaning for a session."""
    filters = Filters.taken_from(how)
    if session is None and filters != Filters():
        return filters
    how["owner"] = filters.owner
    if filters._replace(owner=None) != Filters():
        raise click.UsageError(f"Give a session or filters ({' '.join(filters._replace(owner=None).words)}), not both.")
    return Filters()


def _resume_bulk(
    cli: Cli, filters: Filters, how: dict[str, Any], jobs: int, hand_over: bool, dry_run: bool
) -> int:  # fmt: skip
    """Resume all sessions that match."""
    from pausepoint.cli.bulk import BulkCommand

    single = ["from", "detach", "pause-after", "steal", "rerun"] + (["wake", "code", "edits"] if hand_over else [])
    if wrong := [f"--{name}" for name in single if how.get(name.replace("-", "_"))]:
        where = "with --hand-over" if hand_over else "with filters"
        raise click.UsageError(f"{' and '.join(wrong)} cannot be used {where}.")
    options = {name: how[name] for name in ("by", "budget", "wake", "code", "edits")}
    words = ["--wake"] * how["wake"]
    words += [word for name in ("code", "edits") if how[name] for word in (f"--{name}", how[name])]
    words += ["--hand-over"] if hand_over else ["--jobs", str(jobs)]
    options |= {"jobs": jobs, "here": not hand_over}
    return BulkCommand(cli, "resume", filters, options, dry_run=dry_run, drives=not hand_over, words=words).run()


async def _chosen(
    cli: Cli, session: str | None, start: str | None, dry_run: bool, how: dict[str, Any], hand_over: bool, detach: bool
) -> tuple[SessionInfo, Workflow[Any]] | int:
    """Return the session to resume and its workflow; or an exit code if there is nothing more to do."""
    from pausepoint.engine.base import check_owner

    pause_after = how["pause_after"]

    async with cli.engine(code=True, quiet=True) as engine:
        found = await candidates(cli, engine) if session is None else [await session_to_change(engine, session)]
        if len(found) > 1:
            return await list_candidates(cli, engine, found)
        info = found[0]
        check_owner(info, how["owner"])  # before anything is rewound or withdrawn
        if info.guest:
            return await _resumed_guest(cli, engine, info, {"from": start, "dry-run": dry_run} | how)
        if hand_over:
            return await _handed_over(cli, engine, info, {"from": start, "dry-run": dry_run, "detach": detach} | how)
        if info.workflow not in engine.workflows and await _can_withdraw(cli, engine, info, start, dry_run, how):
            return await _withdrawn(cli, engine, info, **{name: how[name] for name in WITHOUT_CODE})
        cli.check_code(engine, info)
        workflow = engine.workflows[info.workflow]
        _check_rerun(workflow, how["rerun"])
        publishes = bool(workflow.publishes) and info.holder is None
        if dry_run or pause_after is not None or publishes:
            id, again = info.session_id, how["rerun"]
            if start is None:
                plan = await engine.session(id).plan(rerun=again, wake=how["wake"])
            else:
                plan = await engine.session(id).plan_rewind(start, rerun=again)
            if pause_after is not None:
                _check_ahead(plan, pause_after)
            if dry_run:
                return _planned(cli, plan, start, pause_after)
            if publishes:
                from pausepoint.cli.commands.artifacts import decide_edits

                how["edits"] = decide_edits(cli, plan, how["edits"])
        return info, workflow


async def _can_withdraw(
    cli: Cli, engine: Engine, info: SessionInfo, start: str | None, dry_run: bool, how: dict[str, Any]
) -> bool:
    """Return whether a resume without the code can withdraw the pause, so that a process with the code continues."""
    if dry_run or start is not None or any(value for name, value in how.items() if name not in WITHOUT_CODE):
        return False
    if info.kept_by is not None or info.status.value == "pausing":
        return True
    if info.status.value != "paused" or not info.pause_requested:
        return False
    own = cli.host.drives or bool(cli.host.workflows) or program_of(info.tags) is not None
    return not own or bool(await picked_up(engine, [info]))


async def _handed_over(cli: Cli, engine: Engine, info: SessionInfo, how: dict[str, Any]) -> int:
    """Leave a session to the open processes that have its code."""
    known = {name: how.pop(name) for name in WITHOUT_CODE}
    if wrong := [f"--{name}" for name, value in how.items() if value]:
        raise Refused(f"{' and '.join(wrong)} cannot be used with --hand-over.", USAGE)
    return await _withdrawn(cli, engine, info, **known)


async def _withdrawn(cli: Cli, engine: Engine, info: SessionInfo, owner: str | None, **known: Any) -> int:
    """Withdraw the pause of a session whose code is not loaded. A process that has the code continues it."""
    await engine.session(info.session_id, owner=owner).resume(here=False, **known)
    now = await when_picked_up(engine, info.session_id)
    holder = now.holder or now.kept_by or info.kept_by or info.holder
    alone = holder is None and now.status.value in ("ready", "created")
    where = f" It continues in {short_holder(holder)}." if holder else f" It {cli.out.status_phrase(now.status.value)}."
    name = info.session_id
    what = f"The pause of {name} is withdrawn." if info.pause_requested else f"{name} is handed over."
    cli.out.line(f"{what}{'' if alone else where}")
    if alone:
        cli.out.note(f"No open process has its workflow {info.workflow!r}. Start one, or run the session here.")
        cli.out.note(cli.resume_line(now))
    is_paused = now.status.value == "paused"  # the process that picked it up has tested the reason again
    for pause in await engine.session(name).pauses() if is_paused else ():
        cli.out.note(f"{pause.kind}: {pause.reason}")
    if is_paused:
        cli.out.note(cli.resume_line(now))
    if not cli.out.for_people:
        from pausepoint.engine import documents

        cli.out.document(documents.StoppedDocument.of(now, resume=cli.resume(now)))
    return PERSON if alone or is_paused else DONE


async def _resumed_guest(cli: Cli, engine: Engine, info: SessionInfo, how: dict[str, Any]) -> int:
    """Withdraw the pauses of a guest session. Its own program continues it."""
    known = {name: how.pop(name) for name in (*WITHOUT_CODE, "wake")}
    if wrong := [f"--{name}" for name, value in how.items() if value]:
        raise Refused(
            f"{' and '.join(wrong)} cannot be used for session {info.session_id!r}, which is a guest. {GUEST}", USAGE
        )
    session = engine.session(info.session_id, owner=known.pop("owner"))
    await session.resume(here=False, **known)
    after = await session.info()
    done = f"{info.session_id} {cli.out.status_phrase(after.status.value)}."
    cli.out.line(done if after.status.value == "completed" else f"{done} {GUEST}")
    if not cli.out.for_people:
        from pausepoint.engine import documents

        cli.out.document(documents.StoppedDocument.of(after, resume=cli.resume(after)))
    return DONE


def _check_rerun(workflow: Workflow[Any], steps: Sequence[str]) -> None:
    for step in steps:
        workflow.step(step)  # refuses a name that does not exist
    if steps and not workflow.publishes:
        raise Refused(
            f"Workflow {workflow.name!r} publishes no artifacts, so --rerun has no effect. Redo the step and all steps"
            f" after it with --from {steps[0]}.",
            USAGE,
        )


def _check_ahead(plan: Plan, step: str) -> None:
    steps = {each.step: each for each in plan}
    if step not in steps:
        raise Refused(f"The workflow has no step {step!r}{did_you_mean(step, steps)}", USAGE)
    if steps[step].verdict in ("done", "left out"):
        raise Refused(
            f"Step {step!r} would not run ({steps[step].why}), so the session would not pause after it. Redo the"
            f" step with --from {step}.",
            USAGE,
        )


def _planned(cli: Cli, plan: Plan, start: str | None, pause_after: str | None) -> int:
    from pausepoint.cli.plans import print_steps

    if not cli.out.for_people:
        cli.out.document(plan.to_json())
        return DONE
    rewound = f", rewound to before {start}" if start else ""
    cli.out.line(
        f"Session {plan.session_id} {cli.out.status_phrase(plan.status.value)}{rewound}. A resume would do this:"
    )
    print_steps(cli, plan)
    if pause_after is not None:
        cli.out.line(f"It would pause after {pause_after}.")
    cli.out.note("This is a dry run: nothing has run.")
    return DONE


def _resumed(
    cli: Cli, workflow: Workflow[Any], info: SessionInfo, start: str | None = None, *, detach: bool = False,
    stays: bool = False, **how: Any,
) -> int:  # fmt: skip
    if detach:
        from pausepoint.cli.commands.detach import detach_resume

        return detach_resume(cli, workflow.name, info.session_id, start, how)
    driven = DrivenSession(cli, workflow, how["by"], stays)
    return driven.drive(lambda engine: driven.resume(engine, info.session_id, start, how))
