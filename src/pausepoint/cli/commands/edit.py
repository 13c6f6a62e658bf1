"""`edit`, `rewind`, `fork`: a parked session is changed or taken back, or a new one begins from it.

All of them validate with the workflow's own model, so its code must be named. What comes of
them stands still; the command that goes on is printed, and ``--run`` goes on at once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import CONFLICT, DONE, USAGE, Refused, code_of
from pausepoint.cli.options import SESSIONS, STEPS, Usd, common, reason_and_by
from pausepoint.engine import documents
from pausepoint.errors import PausepointError, StateRefused, UnknownSession, ValueRefused

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.definition.workflow import Workflow
    from pausepoint.engine.engine import Engine
    from pausepoint.engine.plan import Plan
    from pausepoint.model.views import SessionInfo

assignments = click.option(
    "--set", "assignments", metavar="FIELD=VALUE", multiple=True,
    help="A field, or a part of one (plan.title): a text, or JSON where the field takes no text.",
)  # fmt: skip
run_option = click.option("--run", is_flag=True, help="Go on at once, here, and show it.")
until_option = click.option(
    "--until", metavar="STEP", shell_complete=STEPS, help="With --run: pause once this step has ended."
)
force_option = click.option("--force", is_flag=True, help="If it runs: pause it first, and wait for it.")
dry_option = click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
reuse_option = click.option("--reuse", is_flag=True, help="Reuse what the visit has finished; only the rest is redone.")


def visit_or_number(ctx: click.Context, option: click.Parameter, text: str | None) -> int | str | None:
    """A visit as it is named, or the number of a checkpoint."""
    return int(text) if text is not None and text.isdecimal() else text


async def find(cli: Cli, engine: Engine, text: str) -> tuple[SessionInfo, Workflow[Any]]:
    """The session that is meant, and its workflow."""
    from pausepoint.cli.sessions import find_session

    info = await find_session(engine, text)
    cli.check_code(engine, info)
    return info, engine.workflows[info.workflow]


async def ensure_parked(cli: Cli, engine: Engine, info: SessionInfo, what: str, force: bool, by: str | None) -> SessionInfo:
    """Refuse a session that somebody drives; with ``force`` stop it first."""
    if info.holder is not None and force:
        from pausepoint.cli.commands.pause import wait_until_settled

        cli.out.note(f"{info.session_id} is {info.status.value}: pausing it, and waiting for it …")
        await engine.pause(info.session_id, reason=f"to be {what}", by=by)
        await wait_until_settled(engine, [info], lambda info: info.pause_requested)
        info = await engine.info(info.session_id)
    if info.holder is not None:
        raise Refused(
            f"session {info.session_id} is {info.status.value}, driven by {info.holder}, and can only be {what} while"
            f" nobody drives it; stop it first: {cli.command('pause', info.session_id)} --wait, or use --force",
            CONFLICT,
        )
    return info


Shape = Callable[["SessionInfo", str], dict[str, Any]]
"""What ``--json`` says of a session, with the command that goes on."""


class FollowUp(NamedTuple):
    """How a session goes on once it is changed: here and at once, or when somebody says so."""

    run: bool
    until: str | None
    by: str | None

    def check(self, workflow: Workflow[Any]) -> None:
        """Before anything is changed."""
        if self.until is not None:
            if not self.run:
                raise Refused("--until says how far to go on: it needs --run", USAGE)
            workflow.step(self.until)

    def go(self, cli: Cli, workflow: Workflow[Any], session_id: str, told: str, document: Shape) -> int:
        """Say how the session stands now and how to go on; or go on."""
        if not self.run:
            report(cli, run_async(_info(cli, session_id)), told, document)
            return DONE
        from pausepoint.cli.drive import DrivenSession

        cli.out.line(told)
        driven = DrivenSession(cli, workflow, self.by)
        return driven.drive(lambda engine: driven.resume(engine, session_id, None, {"by": self.by, "until": self.until}))


async def _info(cli: Cli, session_id: str) -> SessionInfo:
    async with cli.engine() as engine:
        return await engine.info(session_id)


def report(cli: Cli, info: SessionInfo, told: str, document: Shape) -> None:
    from pausepoint.cli.text import position_phrase

    resume = cli.resume(info)
    if not cli.out.for_people:
        cli.out.document(document(info, resume))
        return
    cli.out.line(told)
    cli.out.line(f"{info.session_id} {cli.out.status_phrase(info.status.value)}{position_phrase(info)}.")
    cli.out.note(f"Go on:  {resume}")


# edit


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@assignments
@force_option
@run_option
@until_option
@reason_and_by
@common(target=True)
def edit(
    cli: Cli, session: str, assignments: tuple[str, ...], force: bool, run: bool, until: str | None,
    reason: str, by: str | None,
) -> int:  # fmt: skip
    """Change the state of a parked session: in your editor, or with --set.

    The editor is $VISUAL or $EDITOR; it gets the state as JSON. What differs afterwards is validated and recorded as
    one edit, or refused as a whole.
    """
    onward = FollowUp(run, until, by)
    info, workflow, before, plain = run_async(_read(cli, session, assignments, force, onward))
    how = {"by": by, "reason": reason}
    if assignments:
        plain = {path: value for path, value in plain.items() if not _same(before, path, value)}
        if plain:
            run_async(_apply(cli, info, plain, how))
    else:
        plain = _in_editor(cli, info, before, how)
    if not plain:
        return _unchanged(cli, info)
    told = f"Changed {', '.join(plain)}."
    return onward.go(
        cli, workflow, info.session_id, told, lambda info, resume: documents.edited(info, list(plain), resume)
    )


async def _read(
    cli: Cli, session: str, given: tuple[str, ...], force: bool, onward: FollowUp
) -> tuple[SessionInfo, Workflow[Any], dict[str, Any], dict[str, Any]]:
    """The session, its workflow, its state as plain JSON, and what is to be set."""
    from pausepoint.cli.fields import assigned

    async with cli.engine(code=True, quiet=True) as engine:
        info, workflow = await find(cli, engine, session)
        onward.check(workflow)
        plain = assigned(workflow, given)
        info = await ensure_parked(cli, engine, info, "edited", force, onward.by)
        state = await engine.state(info.session_id)
    return info, workflow, _as_json(cli, state), plain


def _as_json(cli: Cli, state: BaseModel) -> dict[str, Any]:
    """The fields as plain JSON, each by itself: what has no such form must not hide the others."""
    shown: dict[str, Any] = {}
    for name in type(state).model_fields:
        try:
            shown |= state.model_dump(mode="json", by_alias=False, include={name})
        except ValueError as error:  # what cannot be serialised, bytes that are no text among it
            cli.out.note(f"{name} cannot be written as JSON and is left out: {error}")
    return shown


def _same(before: Any, path: str, value: Any) -> bool:
    """Whether a place has that value already. Where that cannot be told, it has not."""
    for part in path.split("."):
        if not isinstance(before, dict) or part not in before:
            return False
        before = before[part]
    return type(before) is type(value) and bool(before == value)


def _unchanged(cli: Cli, info: SessionInfo) -> int:
    cli.out.line("Nothing changed.")
    if not cli.out.for_people:
        cli.out.document(documents.edited(info, [], cli.resume(info)))
    return DONE


async def _apply(cli: Cli, info: SessionInfo, plain: dict[str, Any], how: dict[str, Any]) -> None:
    from pausepoint.cli.fields import typed

    async with cli.engine(code=True, quiet=True) as engine:
        values = typed(engine.workflows[info.workflow], plain)
        await engine.edit(info.session_id, values, based_on=info.seq, **how)


def _in_editor(cli: Cli, info: SessionInfo, before: dict[str, Any], how: dict[str, Any]) -> dict[str, Any]:
    """What was changed. The store is closed meanwhile: people may take a day. A text is never lost."""
    from pausepoint.cli.editor import changes, editor, open_editor, read_back, write_state

    command = editor()
    path = write_state(before, info.session_id)
    while True:
        open_editor(command, path)
        try:
            plain = changes(before, read_back(path))
            if plain:
                run_async(_apply(cli, info, plain, how))
        except (StateRefused, ValueRefused, ValueError) as error:
            if not _again(error):
                raise _kept(str(error), path, USAGE) from None
        except PausepointError as error:
            raise _kept(str(error), path, code_of(error)) from None
        else:
            path.unlink()
            return plain


def _again(error: Exception) -> bool:
    from pausepoint.cli.editor import at_terminal

    if not at_terminal():
        return False
    click.echo(str(error), err=True)
    try:
        return click.confirm("Edit it again?", default=True, err=True)
    except click.Abort:
        return False


def _kept(why: str, path: Path, code: int) -> Refused:
    return Refused(f"{why}; nothing was changed, and your text is kept in {path}", code)


# rewind


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.option("--to", "--from", "to", metavar="STEP[#N]|NUMBER", required=True, callback=visit_or_number, shell_complete=STEPS,
              help="The visit that is redone.")  # fmt: skip
@assignments
@reuse_option
@dry_option
@force_option
@run_option
@until_option
@reason_and_by
@common(target=True)
def rewind(
    cli: Cli, session: str, to: int | str, assignments: tuple[str, ...], reuse: bool, dry_run: bool, force: bool,
    run: bool, until: str | None, reason: str, by: str | None,
) -> int:  # fmt: skip
    """Redo a step of a parked session and what follows, with other values if you like. Nothing is deleted.

    A step means its last visit, STEP#2 the second one, a number the checkpoint of that number
    (`pausepoint checkpoints`).
    """
    back = RewindRequest(to, assignments, reuse, reason)
    if dry_run:
        return int(run_async(_plan_rewind(cli, session, back)))
    onward = FollowUp(run, until, by)
    session_id, workflow, left, changed = run_async(_rewind(cli, session, back, force, onward))
    told = "\n".join(
        filter(None, (f"Rewound to before {to}.", _redone(left), changed and f"Changed {', '.join(changed)}."))
    )
    return onward.go(
        cli, workflow, session_id, told, lambda info, resume: documents.rewound(info, left, changed, resume)
    )


class RewindRequest(NamedTuple):
    """Where a rewind leads, and with what."""

    to: int | str
    assignments: tuple[str, ...]
    reuse: bool
    reason: str

    def changes(self, workflow: Workflow[Any]) -> dict[str, Any]:
        from pausepoint.cli.fields import assigned, typed

        return typed(workflow, assigned(workflow, self.assignments))


async def _plan_rewind(cli: Cli, session: str, back: RewindRequest) -> int:
    async with cli.engine(code=True, quiet=True) as engine:
        info, workflow = await find(cli, engine, session)
        plan = await engine.plan_rewind(info.session_id, back.to, back.changes(workflow), reuse=back.reuse)
        left = rolled_back(await engine.plan(info.session_id), plan)
    print_dry_run(cli, plan, {"left_behind": left}, f"A rewind of {info.session_id} to before {back.to}.", _redone(left))
    if info.holder is not None:
        cli.out.note(f"It is {info.status.value} now. Stop it first:  {cli.command('pause', info.session_id)} --wait")
    return DONE


async def _rewind(
    cli: Cli, session: str, back: RewindRequest, force: bool, onward: FollowUp
) -> tuple[str, Workflow[Any], list[str], list[str]]:
    async with cli.engine(code=True, quiet=True) as engine:
        info, workflow = await find(cli, engine, session)
        onward.check(workflow)
        changes = back.changes(workflow)
        # For a place that is not there, or values that do not fit, nobody is stopped.
        await engine.plan_rewind(info.session_id, back.to, changes, reuse=back.reuse)
        info = await ensure_parked(cli, engine, info, "rewound", force, onward.by)
        before = await engine.plan(info.session_id)
        await engine.rewind(info.session_id, back.to, changes, reuse=back.reuse, reason=back.reason, by=onward.by)
        return info.session_id, workflow, rolled_back(before, await engine.plan(info.session_id)), list(changes)


def rolled_back(before: Plan, after: Plan) -> list[str]:
    """The visits that a rewind takes back."""
    stay = {each.step: each.visits for each in after}
    return [f"{each.step}#{n}" for each in before for n in range(stay.get(each.step, 0) + 1, each.visits + 1)]


def _redone(left: list[str]) -> str:
    """Said of visits.

    >>> _redone(["write#2", "review#2"]), _redone([])
    ('write#2 and review#2 are left behind.', '')
    """
    if len(left) < 2:
        return f"{left[0]} is left behind." if left else ""
    some = left if len(left) <= 6 else [*left[:5], f"{len(left) - 5} more"]
    return f"{', '.join(some[:-1])} and {some[-1]} are left behind."


def print_dry_run(cli: Cli, plan: Plan, more: dict[str, Any], *titles: str) -> None:
    """A plan that nobody has carried out."""
    from pausepoint.cli.plans import print_steps

    if not cli.out.for_people:
        cli.out.document(plan.to_json() | more)
        return
    for title in filter(None, titles):
        cli.out.line(title)
    print_steps(cli, plan)
    cli.out.note("Nothing was changed.")


# fork


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.option("--at-step", "--from", "at_step", metavar="STEP[#N]|NUMBER", callback=visit_or_number, shell_complete=STEPS,
              help="Begin before that visit; else as it stands now.")  # fmt: skip
@assignments
@reuse_option
@click.option("--session-id", metavar="ID", help="The id of the new session.")
@click.option("--owner", help="Its owner; else that of the other one.")
@click.option("--tag", "tags", multiple=True, help="Its tags; else those of the other one.")
@click.option("--budget", type=Usd(), metavar="USD", help="Its budget; else that of the other one.")
@click.option("--folder", metavar="PATH", help="Where its artifacts go, if its steps leave any.")
@dry_option
@force_option
@run_option
@until_option
@reason_and_by
@common(target=True)
def fork(
    cli: Cli, session: str, at_step: int | str | None, assignments: tuple[str, ...], reuse: bool, dry_run: bool,
    force: bool, run: bool, until: str | None, **options: Any,
) -> int:  # fmt: skip
    """Begin a new session from a checkpoint of another one, with other values if you like.

    The other one may be in any status, also running, and is not touched, unless --force stops it first.
    """
    onward = FollowUp(run, until, options["by"])
    options |= {"tags": options["tags"] or None, "reason": options["reason"] or "forked, not started yet"}
    begun = run_async(_fork(cli, session, at_step, assignments, reuse, dry_run, force, onward, options))
    if begun is None:
        return DONE
    source, new, workflow = begun
    told = f"Forked {source} ({_begins(at_step)}) as {new}."
    return onward.go(cli, workflow, new, told, lambda info, resume: documents.forked(info, source, resume))


def _begins(at_step: int | str | None) -> str:
    return "as it stands" if at_step is None else f"before {at_step}"


async def _fork(
    cli: Cli, session: str, at_step: int | str | None, given: tuple[str, ...], reuse: bool, dry_run: bool, force: bool,
    onward: FollowUp, options: dict[str, Any],
) -> tuple[str, str, Workflow[Any]] | None:  # fmt: skip
    """The ids of both, and the workflow; None if only the plan was asked for."""
    from pausepoint.cli.fields import assigned, typed

    async with cli.engine(code=True, quiet=True) as engine:
        info, workflow = await find(cli, engine, session)
        onward.check(workflow)
        changes = typed(workflow, assigned(workflow, given))
        if dry_run:
            plan = await engine.plan_fork(info.session_id, at_step, changes, reuse=reuse)
            print_dry_run(cli, plan, {}, f"A fork of {info.session_id}, {_begins(at_step)}.")
            return None
        await _check_new(engine, options["session_id"])
        if force:
            await ensure_parked(cli, engine, info, "forked", force, onward.by)
        new = await engine.fork(info.session_id, at_step, changes, reuse=reuse, paused=True, **options)
        return info.session_id, new.id, workflow


async def _check_new(engine: Engine, session_id: str | None) -> None:
    """A fork that stands still must not make one stand still that was forked before and runs."""
    if session_id is None:
        return
    try:
        known = await engine.info(session_id)
    except UnknownSession:
        return
    raise Refused(f"session {session_id} exists already and is {known.status.value}; choose another id", CONFLICT)
