"""`schedule`: start sessions at the times of a cron expression; list, pause, resume, trigger and remove schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.context import ADD, Cli, run_async
from pausepoint.cli.exits import CONFLICT, DONE, NOT_FOUND, USAGE, Refused
from pausepoint.cli.host import command_line, host
from pausepoint.cli.options import TARGETS, OneOf, by_option, common, turn_options, was_given
from pausepoint.cli.project import find_project
from pausepoint.cli.text import one_line

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.schedules import ScheduleInfo
    from pausepoint.model.views import Listing

ACTIONS = ("ls", "add", "pause", "resume", "trigger", "rm")


_OPTIONS = ("zone", "overlap", "catch_up", "owner", "queue", "priority", "lane")


@click.command()
@click.argument("action", metavar="ls|add|pause|resume|trigger|rm", type=OneOf(ACTIONS))
@click.argument("name", required=False)
@click.argument("where", metavar="[TARGET]", required=False, shell_complete=TARGETS)
@click.option("--target", multiple=True, hidden=True, shell_complete=TARGETS)  # as other commands name the code
@click.option("--cron", metavar="EXPR", help="With add: minute, hour, day of the month, month, day of the week.")
@click.option("--zone", metavar="ZONE", help="With add: the time zone, such as Europe/Berlin. Default: UTC.")
@click.option("--overlap", type=OneOf(("skip", "queue", "allow")), metavar="skip|queue|allow",
              help="With add: what to do if the previous session has not ended. Default: skip.")  # fmt: skip
@click.option("--catch-up", type=OneOf(("newest", "all", "none")), metavar="newest|all|none",
              help="With add: which missed runs to start late. Default: newest.")  # fmt: skip
@click.option(
    "--field", "pairs", multiple=True, metavar="NAME=VALUE", help="With add: a field of the input; repeatable."
)
@click.option("--owner", metavar="NAME", help="With add: the owner of the sessions.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="With add: a tag of the sessions; repeatable.")
@turn_options("With add: the sessions'")
@click.option("--replace", is_flag=True, help="With add: replace a schedule with this name.")
@by_option
@common()
def schedule(
    cli: Cli, action: str, name: str | None, by: str | None, where: str | None = None, **given: Any
) -> int:  # fmt: skip
    """Start sessions at the times of a cron expression.

    \b
    ls       list the schedules
    add      add a schedule: add NAME TARGET --cron "0 7 * * 1-5" --field topic=squid
    pause    start no sessions until resume
    resume   start sessions again, from the next time on
    trigger  start a session now
    rm       remove the schedule; its sessions stay

    Sessions start in a process that is open and has the workflow, such as a worker.
    """
    named = [*([where] if where else []), *(cli.targets if cli.may_import or not where else ())]
    if len(named) > 1:
        raise click.UsageError(f"There are several targets: {', '.join(named)}. Name one.")
    where, cli.targets = named[0] if named else None, ()
    own = cli.host.workflows  # a program has its workflow, and no TARGET
    _check(action, name, where if not own or action != "add" else own[0].name, given)
    if action == "ls" and not cli.place.exists and not cli.place.explicit:
        raise Refused(
            f"There is no store at {cli.place.shown} yet. `{command_line('schedule', 'add', '--help')}` explains how to"
            " add a schedule.",
            NOT_FOUND,
        )
    code: int = run_async(_schedule(cli, action, name or "", where or "", by, given))
    return code


def _check(action: str, name: str | None, where: str | None, given: dict[str, Any]) -> None:
    if (name is None) is not (action == "ls"):
        raise click.UsageError("ls takes no name." if action == "ls" else f"{action} needs the NAME of a schedule.")
    if action != "add" and (where is not None or any(map(was_given, given))):
        raise click.UsageError(f"{action} takes no TARGET and no options of a schedule. They belong to add.")
    if action == "add" and (where is None or given["cron"] is None):
        raise click.UsageError('add needs a TARGET and --cron: add NAME TARGET --cron "0 7 * * 1-5".')


async def _schedule(cli: Cli, action: str, name: str, where: str, by: str | None, options: dict[str, Any]) -> int:
    from pausepoint.engine.store_documents import ScheduleChanged, ScheduleDocument, ScheduleRemoved

    async with cli.engine(create=action == "add", quiet=action == "ls") as engine:
        if action == "ls":
            return _list(cli, await engine.schedules.list())
        if action == "rm":
            await engine.schedules.remove(name)
            cli.out.line(f"Removed schedule {name}. Its sessions stay.")
            if cli.out.as_json:
                cli.out.document(ScheduleRemoved(name))
            return DONE
        session_id = None
        if action == "add":
            info = await _add(engine, name, where, by, options)
            if where and where not in cli.project.targets:
                cli.targets = (where,)  # for the command of a worker
        elif action == "trigger":
            session_id = await engine.schedules.trigger(name, by=by)
            info = next(each for each in await engine.schedules.list() if each.name == name)
        elif action == "pause":
            info = await engine.schedules.pause(name, by=by)
        else:
            info = await engine.schedules.resume(name)
        await _report(cli, engine, action, info, session_id)
    if cli.out.as_json:
        cli.out.document(ScheduleChanged(ScheduleDocument.of(info), session_id))
    return DONE


async def _add(engine: Engine, name: str, where: str, by: str | None, given: dict[str, Any]) -> ScheduleInfo:
    from pausepoint.cli.fields import collect_values, input_of, start_arguments, typed
    from pausepoint.cli.targets import load_named

    workflow = load_named(where, find_project())[1] if where else host().workflows[0]
    inputs, named = input_of(workflow), {pair.partition("=")[0] for pair in given["pairs"]}
    if missing := [name for name, each in inputs.items() if each.required and name not in named]:
        raise Refused(
            f"Workflow {workflow.name!r} needs the field {missing[0]!r}. Add --field {missing[0]}=VALUE.", USAGE
        )
    values = typed(workflow, collect_values({}, given["pairs"], inputs))
    state, fields = start_arguments(workflow, values)
    known = await engine.schedules.list()
    if not given["replace"] and name in [*(each.name for each in known), *(e.fields["name"] for e in known.damaged)]:
        raise Refused(f"There is a schedule {name!r} already. Choose another name, or add --replace.", CONFLICT)
    options = {key: given[key] for key in _OPTIONS if given[key] is not None}
    return await engine.schedule(
        name, workflow, state, cron=given["cron"], tags=given["tags"], by=by, **options, **fields
    )  # fmt: skip


def _list(cli: Cli, infos: Listing[ScheduleInfo]) -> int:
    from pausepoint.engine.store_documents import schedules

    rows = [
        [each.name, each.cron, each.zone, _state(cli, each), each.workflow, each.last_session_id or "-"]
        for each in infos
    ]
    if rows:
        cli.out.table(["NAME", "CRON", "ZONE", "NEXT", "WORKFLOW", "LAST SESSION"], rows)
    elif not infos.damaged:
        cli.out.line("There are no schedules in this store.")
    for error in infos.damaged:
        cli.out.line(f"{error.fields['name']}  {one_line(str(error))}")
    if cli.out.as_json:
        cli.out.document(schedules(infos))
    return CONFLICT if infos.damaged else DONE


def _state(cli: Cli, each: ScheduleInfo) -> str:
    if each.triggered_at is not None:
        return "now"
    if each.next_at is None:
        return cli.out.paint("paused", "yellow")
    from pausepoint.engine.cron import local
    from pausepoint.model.schedules import LATE_AFTER

    at = f"{local(each.next_at, each.zone):%Y-%m-%d %H:%M}"
    is_late = datetime.now(UTC) - each.next_at > timedelta(microseconds=LATE_AFTER)
    return cli.out.paint(f"{at}, overdue", "yellow") if is_late else at


async def _report(cli: Cli, engine: Engine, action: str, found: ScheduleInfo, session_id: str | None) -> None:
    from pausepoint.engine.cron import local

    done = {"add": "Stored", "pause": "Paused", "resume": "Resumed", "trigger": "Triggered"}[action]
    cli.out.line(f"{done} schedule {found.name} ({found.cron}, {found.zone}) of workflow {found.workflow}.")
    if session_id is not None:
        cli.out.line(f"Its session is {session_id}.")
    elif found.next_at is not None:
        cli.out.line(f"Next run: {local(found.next_at, found.zone):%Y-%m-%d %H:%M} in {found.zone}.")
    if action != "pause" and not any(each.picks_up(found.workflow, "") for each in await engine.engines()):
        worker = cli.command("worker", workflow=found.workflow)
        add = "" if cli.has_code(found.workflow) else ADD
        cli.out.note(f"No running process has the workflow. Start one{add}:  {worker}")
