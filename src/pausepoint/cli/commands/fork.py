"""`fork`: start a new session from a checkpoint of another one. It needs the workflow's code, as `edit` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.commands import edit
from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import CONFLICT, DONE, USAGE, Refused
from pausepoint.cli.options import SESSIONS, STEPS, BudgetOption, common, reason_and_by
from pausepoint.errors import UnknownSession

if TYPE_CHECKING:
    from pausepoint.definition.workflow import Workflow
    from pausepoint.engine.engine import Engine


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.option("--at-step", "--from", "at_step", metavar="STEP[#N]|NUMBER", callback=edit.name_or_number,
              shell_complete=STEPS, help="Start before this visit. Default: at the current state.")  # fmt: skip
@click.option("--at-operation", metavar=edit.OPERATION, callback=edit.name_or_number,
              help="Start before this operation, inside its visit.")  # fmt: skip
@edit.assignments
@edit.reuse_option
@click.option("--session-id", metavar="ID", help="The id of the new session.")
@click.option("--owner", help="The owner of the new session. Default: the same.")
@click.option("--tag", "tags", multiple=True, help="A tag of the new session; repeatable. Default: the same.")
@click.option(
    "--budget", type=BudgetOption(), metavar="BUDGET", help="The budget of the new session. Default: the same."
)
@click.option("--folder", metavar="PATH", help="The folder for the artifacts that steps publish.")
@edit.dry_option
@edit.force_option
@edit.run_option
@edit.pause_after_option
@reason_and_by
@common(target=True)
def fork(
    cli: Cli, session: str, at_step: int | str | None, at_operation: int | str | None, assignments: tuple[str, ...],
    reuse: bool, dry_run: bool, force: bool, run: bool, pause_after: str | None, **options: Any,
) -> int:  # fmt: skip
    """Start a new session from a checkpoint of another one. --set changes values of the new session.

    The other session may have any status, even running, and is not changed, unless --force pauses it first.
    """
    follow_up = edit.FollowUp(run, pause_after, options["by"])
    options |= {"tags": options["tags"] or None, "reason": options["reason"] or "forked, not started yet"}
    if at_step is not None and at_operation is not None:
        raise Refused("Name one place: --at-step STEP or --at-operation NAME.", USAGE)
    place = {"at_step": at_step, "at_operation": at_operation, "reuse": reuse}
    begun = run_async(_fork(cli, session, place, assignments, dry_run, force, follow_up, options))
    if begun is None:
        return DONE
    from pausepoint.engine import documents

    source, new, workflow = begun
    message = f"Forked {source} ({_starting_point(place)}) as {new}."
    return follow_up.go(
        cli, workflow, new, message,
        lambda info, resume: documents.Forked.of(info, forked_from=source, resume=resume),
    )  # fmt: skip


def _starting_point(place: dict[str, Any]) -> str:
    named = place["at_step"], place["at_operation"]
    return "current state" if named == (None, None) else f"before {edit.place_of(*named)}"


async def _fork(
    cli: Cli, session: str, place: dict[str, Any], given: tuple[str, ...], dry_run: bool, force: bool,
    follow_up: edit.FollowUp, options: dict[str, Any],
) -> tuple[str, str, Workflow[Any]] | None:  # fmt: skip
    """Return the ids of both sessions and the workflow; None for a dry run."""
    from pausepoint.cli.fields import assigned, typed

    async with cli.engine(code=True, quiet=True) as engine:
        info, workflow = await edit.find(cli, engine, session)
        follow_up.check(workflow)
        changes = typed(workflow, assigned(workflow, given))
        if dry_run:
            plan = await engine.session(info.session_id).plan_fork(changes=changes, **place)
            edit.print_dry_run(cli, plan, {}, f"Plan of a fork of {info.session_id} ({_starting_point(place)}):")
            return None
        await _check_new(engine, options["session_id"])
        if force:
            await edit.ensure_parked(cli, engine, info, "forked", force, follow_up.by)
        new = await engine.session(info.session_id).fork(changes=changes, paused=True, **place, **options)
        return info.session_id, new.id, workflow


async def _check_new(engine: Engine, session_id: str | None) -> None:
    """Refuse an id that exists: a fork is stored paused and would pause the existing session."""
    if session_id is None:
        return
    try:
        known = await engine.session(session_id).info()
    except UnknownSession:
        return
    raise Refused(
        f"Session {session_id!r} already exists and is {known.status.value}. Choose another --session-id.", CONFLICT
    )
