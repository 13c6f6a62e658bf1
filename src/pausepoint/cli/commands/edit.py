"""`edit`, `ask-again`, `rewind`, `forget`: change a session that is not running.

They need the workflow's code, because they validate with its state model; `ask-again` needs it only to run the session.
Afterwards the session does not run. They print the command that resumes it, and ``--run`` resumes it immediately.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import CONFLICT, DONE, USAGE, Refused, code_of
from pausepoint.cli.options import SESSIONS, STEPS, common, reason_and_by
from pausepoint.errors import PausepointError, StateRefused, ValueRefused

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.definition.workflow import Workflow
    from pausepoint.engine.documents import SessionDocument
    from pausepoint.engine.engine import Engine
    from pausepoint.engine.plans import Plan
    from pausepoint.model.views import SessionInfo

assignments = click.option(
    "--set", "assignments", metavar="FIELD=VALUE", multiple=True,
    help="Set a field, or a part of one (plan.title): text, or JSON if the field is not text; repeatable.",
)  # fmt: skip
run_option = click.option("--run", is_flag=True, help="Resume the session here, and show it.")
pause_after_option = click.option(
    "--pause-after", metavar="STEP", shell_complete=STEPS, help="With --run: pause after this step."
)
force_option = click.option("--force", is_flag=True, help="If the session is running, pause it first.")
dry_option = click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
reuse_option = click.option(
    "--reuse", is_flag=True, help="Reuse the visit's finished operations, and redo only the rest."
)


OPERATION = "NAME[#N]|NUMBER|ID"


def name_or_number(ctx: click.Context, option: click.Parameter, text: str | None) -> int | str | None:
    """Return the name of a visit or of an operation, or the number of its record."""
    return int(text) if text is not None and text.isdecimal() else text


async def find(cli: Cli, engine: Engine, text: str) -> tuple[SessionInfo, Workflow[Any]]:
    """Return the session with this id, and its workflow."""
    from pausepoint.cli.sessions import session_to_change

    info = await session_to_change(engine, text)
    cli.check_code(engine, info)
    return info, engine.workflows[info.workflow]


async def ensure_parked(
    cli: Cli, engine: Engine, info: SessionInfo, what: str, force: bool, by: str | None
) -> SessionInfo:
    """Refuse a running session; with ``force`` pause it first."""
    if info.holder is not None and force:
        from pausepoint.cli.commands.pause import wait_until_settled

        cli.out.note(f"Session {info.session_id} is {info.status.value}. Pausing it first …")
        await engine.session(info.session_id).pause(reason=f"to be {what}", by=by)
        await wait_until_settled(engine, [info], lambda info: info.pause_requested)
        info = await engine.session(info.session_id).info()
    if info.holder is not None:
        raise Refused(
            f"Session {info.session_id!r} is {info.status.value} in {info.holder}, so it cannot be {what}. Pause it"
            f" first: `{cli.command('pause', info.session_id)} --wait`, or use --force.",
            CONFLICT,
        )
    return info


Shape = Callable[["SessionInfo", str], "SessionDocument"]
"""Returns the document for ``--json`` from a session and the command that resumes it."""


class FollowUp(NamedTuple):
    """What happens after a session was changed: it is resumed here (``run``), or the resume command is printed."""

    run: bool
    pause_after: str | None
    by: str | None

    def check(self, workflow: Workflow[Any] | None) -> None:
        """Check the options before anything is changed."""
        if self.pause_after is not None:
            if not self.run:
                raise Refused("--pause-after needs --run. Add --run, or remove --pause-after.", USAGE)
            if workflow is not None:
                workflow.step(self.pause_after)

    def go(self, cli: Cli, workflow: Workflow[Any] | None, session_id: str, message: str, document: Shape) -> int:
        """Resume the session, or print its status and the command that resumes it."""
        if not self.run or workflow is None:
            report(cli, run_async(_info(cli, session_id)), message, document)
            return DONE
        from pausepoint.cli.drive import DrivenSession

        cli.out.line(message)
        driven = DrivenSession(cli, workflow, self.by)
        return driven.drive(
            lambda engine: driven.resume(engine, session_id, None, {"by": self.by, "pause_after": self.pause_after})
        )


async def _info(cli: Cli, session_id: str) -> SessionInfo:
    async with cli.engine() as engine:
        return await engine.session(session_id).info()


def report(cli: Cli, info: SessionInfo, message: str, document: Shape) -> None:
    """Print the message, the session's status and the command that resumes it."""
    from pausepoint.cli.text import position_phrase

    resume = cli.resume(info)
    if not cli.out.for_people:
        cli.out.document(document(info, resume))
        return
    cli.out.line(message)
    cli.out.line(f"{info.session_id} {cli.out.status_phrase(info.status.value)}{position_phrase(info)}.")
    cli.out.note(f"Resume:  {resume}")


# edit


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@assignments
@dry_option
@force_option
@run_option
@pause_after_option
@reason_and_by
@common(target=True)
def edit(
    cli: Cli, session: str, assignments: tuple[str, ...], dry_run: bool, force: bool, run: bool,
    pause_after: str | None, reason: str, by: str | None,
) -> int:  # fmt: skip
    """Change the state of a session that is not running, in your editor or with --set.

    The editor is $VISUAL or $EDITOR; it gets the state as JSON. Your changes are validated and recorded as one edit, or
    refused as a whole.
    """
    if dry_run and not assignments:
        raise Refused("--dry-run needs --set. Add --set, or remove --dry-run.", USAGE)
    follow_up = FollowUp(run, pause_after, by)
    info, workflow, before, plain = run_async(_read(cli, session, assignments, force and not dry_run, follow_up))
    how = {"by": by, "reason": reason}
    if assignments:
        plain = {path: value for path, value in plain.items() if not _same(before, path, value)}
        if plain and dry_run:
            return int(run_async(_plan_edit(cli, info, plain)))
        if plain:
            run_async(_apply(cli, info, plain, how))
    else:
        plain = _in_editor(cli, info, before, how)
    if not plain:
        return _unchanged(cli, info)
    from pausepoint.engine import documents

    message = f"Changed {', '.join(plain)}."
    return follow_up.go(
        cli,
        workflow,
        info.session_id,
        message,
        lambda info, resume: documents.EditedDocument.of(info, changed=list(plain), resume=resume),
    )


async def _read(
    cli: Cli, session: str, given: tuple[str, ...], force: bool, follow_up: FollowUp
) -> tuple[SessionInfo, Workflow[Any], dict[str, Any], dict[str, Any]]:
    """Return the session, its workflow, its state as plain JSON, and the values to set."""
    from pausepoint.cli.fields import assigned

    async with cli.engine(code=True, quiet=True) as engine:
        info, workflow = await find(cli, engine, session)
        follow_up.check(workflow)
        plain = assigned(workflow, given)
        info = await ensure_parked(cli, engine, info, "edited", force, follow_up.by)
        try:
            before = _as_json(cli, await engine.session(info.session_id).state())
        except StateRefused:  # the model has changed, and this edit may be the way out
            before = (await engine.session(info.session_id).stored()).values
    return info, workflow, before, plain


def _as_json(cli: Cli, state: BaseModel) -> dict[str, Any]:
    """Return the fields as plain JSON. A field that cannot be JSON is left out, and does not hide the others."""
    shown: dict[str, Any] = {}
    for name in type(state).model_fields:
        try:
            shown |= state.model_dump(mode="json", by_alias=False, include={name})
        except ValueError as error:  # not serialisable, such as bytes that are not UTF-8
            cli.out.note(f"The field {name!r} cannot be written as JSON and is left out: {error}")
    return shown


def _same(before: Any, path: str, value: Any) -> bool:
    """Return whether a place already has that value; False if that is not known."""
    for part in path.split("."):
        if not isinstance(before, dict) or part not in before:
            return False
        before = before[part]
    return type(before) is type(value) and bool(before == value)


def _unchanged(cli: Cli, info: SessionInfo) -> int:
    cli.out.line("Nothing changed.")
    if not cli.out.for_people:
        from pausepoint.engine import documents

        cli.out.document(documents.EditedDocument.of(info, changed=[], resume=cli.resume(info)))
    return DONE


async def _apply(cli: Cli, info: SessionInfo, plain: dict[str, Any], how: dict[str, Any]) -> None:
    from pausepoint.cli.fields import typed

    async with cli.engine(code=True, quiet=True) as engine:
        values = typed(engine.workflows[info.workflow], plain)
        await engine.session(info.session_id).edit(values, based_on=info.seq, **how)


async def _plan_edit(cli: Cli, info: SessionInfo, plain: dict[str, Any]) -> int:
    from pausepoint.cli.fields import typed

    async with cli.engine(code=True, quiet=True) as engine:
        values = typed(engine.workflows[info.workflow], plain)
        plan = await engine.session(info.session_id).plan_edit(values)
    print_dry_run(cli, plan, {}, f"Plan of an edit of {info.session_id}: {', '.join(plain)}.")
    return DONE


def _in_editor(cli: Cli, info: SessionInfo, before: dict[str, Any], how: dict[str, Any]) -> dict[str, Any]:
    """Return the changes made in the editor. The store is closed meanwhile, and the edited text is never lost."""
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
                raise _refused(str(error), path, USAGE) from None
        except PausepointError as error:
            raise _refused(str(error), path, code_of(error)) from None
        else:
            path.unlink()
            return plain


def _again(error: Exception) -> bool:
    from pausepoint.cli.editor import at_terminal
    from pausepoint.cli.prompts import confirmed

    if not at_terminal():
        return False
    click.echo(str(error), err=True)
    try:
        return confirmed("Edit it again?", err=True)
    except click.Abort:
        return False


def _refused(why: str, path: Path, code: int) -> Refused:
    end = "" if why.endswith((".", "?")) else "."
    return Refused(f"{why}{end} Nothing was changed. Edit the session again; your text is in {path}", code)


# ask-again


@click.command("ask-again")
@click.argument("session", shell_complete=SESSIONS)
@click.option("--question", metavar="ID", help="The question. Default: the only one without a valid answer.")
@force_option
@run_option
@pause_after_option
@reason_and_by
@common(target=True)
def ask_again(
    cli: Cli,
    session: str,
    question: str | None,
    force: bool,
    run: bool,
    pause_after: str | None,
    reason: str,
    by: str | None,
) -> int:
    """Ask a question again that was declined or got no valid answer, for a session that is not running.

    Everything else that the step has finished is kept and does not run again. Name an answered question with --question
    to ask it again too.
    """
    follow_up = FollowUp(run, pause_after, by)
    session_id, workflow = run_async(_ask_again(cli, session, question, force, reason, follow_up))
    from pausepoint.engine import documents

    message = "The answer is forgotten. A resume asks the question again."
    return follow_up.go(
        cli, workflow, session_id, message,
        lambda info, resume: documents.EditedDocument.of(info, changed=[], resume=resume),
    )  # fmt: skip


async def _ask_again(
    cli: Cli, session: str, question: str | None, force: bool, reason: str, follow_up: FollowUp
) -> tuple[str, Workflow[Any] | None]:
    from pausepoint.cli.sessions import session_to_change

    async with cli.engine(code=follow_up.run, quiet=True) as engine:
        info, workflow = (
            await find(cli, engine, session) if follow_up.run else (await session_to_change(engine, session), None)
        )
        follow_up.check(workflow)
        info = await ensure_parked(cli, engine, info, "changed", force, follow_up.by)
        await engine.session(info.session_id).ask_again(question, by=follow_up.by, reason=reason)
        return info.session_id, workflow


# rewind


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.option("--to", "--from", "to", metavar="STEP[#N]|NUMBER", callback=name_or_number, shell_complete=STEPS,
              help="The visit to redo.")  # fmt: skip
@click.option("--to-operation", metavar=OPERATION, callback=name_or_number,
              help="The operation to run again, inside a visit that is kept up to there.")  # fmt: skip
@click.option("--result", metavar="JSON", help="With --to-operation: what it returns now, instead of running again.")
@assignments
@reuse_option
@dry_option
@force_option
@run_option
@pause_after_option
@reason_and_by
@common(target=True)
def rewind(
    cli: Cli, session: str, to: int | str | None, to_operation: int | str | None, result: str | None,
    assignments: tuple[str, ...], reuse: bool, dry_run: bool, force: bool, run: bool, pause_after: str | None,
    reason: str, by: str | None,
) -> int:  # fmt: skip
    """Redo a step of a session that is not running, and the steps after it. Nothing is deleted.

    --to STEP means the last visit of the step, STEP#2 its second visit, and NUMBER a checkpoint (see `pausepoint
    checkpoints`). --set changes values before the step runs again.

    --to-operation NAME means the last call of an operation, NAME#3 the third one in its visit, and NUMBER its record
    (see `pausepoint show SESSION --operations`). What began after it had ended runs again, too.
    """
    if (to is None) == (to_operation is None):
        raise Refused("Name one place: a visit with --to STEP, or an operation with --to-operation NAME.", USAGE)
    if result is not None and to_operation is None:
        raise Refused("--result is what an operation returns. Name it with --to-operation.", USAGE)
    back = RewindRequest(to, to_operation, assignments, reuse, reason, result)
    return _go_back(cli, session, back, dry_run, force, FollowUp(run, pause_after, by))


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.argument("operation", metavar=OPERATION, callback=name_or_number)
@dry_option
@force_option
@run_option
@pause_after_option
@reason_and_by
@common(target=True)
def forget(
    cli: Cli, session: str, operation: int | str, dry_run: bool, force: bool, run: bool, pause_after: str | None,
    reason: str, by: str | None,
) -> int:  # fmt: skip
    """Forget the result of an operation, such as a model's bad reply. A resume runs the operation again.

    The session must not be running. NAME means the last call, NAME#3 the third one (see `pausepoint show SESSION
    --operations`). What began after the operation had ended is forgotten, too. Same as `rewind --to-operation`.
    """
    back = RewindRequest(None, operation, (), False, reason)
    return _go_back(cli, session, back, dry_run, force, FollowUp(run, pause_after, by))


def _go_back(
    cli: Cli, session: str, back: RewindRequest, dry_run: bool, force: bool, follow_up: FollowUp
) -> int:  # fmt: skip
    if dry_run:
        return int(run_async(_plan_rewind(cli, session, back)))
    session_id, workflow, undone, changed, again = run_async(_rewind(cli, session, back, force, follow_up))
    from pausepoint.engine import documents

    lines = (
        f"Rewound to before {back.place}.", _visits("Rolled back", undone), again and f"Forgotten: {again}.",
        changed and f"Changed {', '.join(changed)}.",
    )  # fmt: skip
    return follow_up.go(
        cli, workflow, session_id, "\n".join(filter(None, lines)),
        lambda info, resume: documents.Rewound.of(info, left_behind=undone, changed=changed, resume=resume),
    )  # fmt: skip


class RewindRequest(NamedTuple):
    """Where to rewind, and with which values."""

    to: int | str | None
    operation: int | str | None
    assignments: tuple[str, ...]
    reuse: bool
    reason: str
    result: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The new result of the operation, if there is one, as an argument."""
        if self.result is None:
            return {}
        try:
            return {"result": json.loads(self.result)}
        except ValueError as error:
            raise Refused(f"--result is not JSON: {error}. Text needs quotes: --result '\"text\"'.", USAGE) from None

    @property
    def place(self) -> str:
        return place_of(self.to, self.operation)

    def changes(self, workflow: Workflow[Any]) -> dict[str, Any]:
        from pausepoint.cli.fields import assigned, typed

        return typed(workflow, assigned(workflow, self.assignments))


def place_of(visit: int | str | None, operation: int | str | None) -> str:
    """Return the place that a person has named.

    >>> place_of("write#2", None), place_of(None, 17), place_of(None, "think#3")
    ('write#2', 'operation 17', 'operation think#3')
    """
    return f"{visit}" if operation is None else f"operation {operation}"


async def _plan_rewind(cli: Cli, session: str, back: RewindRequest) -> int:
    async with cli.engine(code=True, quiet=True) as engine:
        info, workflow = await find(cli, engine, session)
        plan = await engine.session(info.session_id).plan_rewind(
            back.to, back.changes(workflow), to_operation=back.operation, reuse=back.reuse, **back.given
        )
        undone = rolled_back(await engine.session(info.session_id).plan(), plan)
    title = f"Plan of a rewind of {info.session_id} to before {back.place}:"
    print_dry_run(cli, plan, {"left_behind": undone}, title, _visits("Would roll back", undone))
    if info.holder is not None:
        pause = cli.command("pause", info.session_id)
        cli.out.note(f"The session is {info.status.value}. Pause it first:  {pause} --wait")
    return DONE


async def _rewind(
    cli: Cli, session: str, back: RewindRequest, force: bool, follow_up: FollowUp
) -> tuple[str, Workflow[Any], list[str], list[str], str]:
    async with cli.engine(code=True, quiet=True) as engine:
        info, workflow = await find(cli, engine, session)
        follow_up.check(workflow)
        changes = back.changes(workflow)
        # Check the place and the values before a running session is paused.
        place: dict[str, Any] = {"to": back.to, "to_operation": back.operation, "reuse": back.reuse, **back.given}
        plan = await engine.session(info.session_id).plan_rewind(changes=changes, **place)
        info = await ensure_parked(cli, engine, info, "rewound", force, follow_up.by)
        before = await engine.session(info.session_id).plan()
        await engine.session(info.session_id).rewind(changes=changes, reason=back.reason, by=follow_up.by, **place)
        return (
            info.session_id,
            workflow,
            rolled_back(before, await engine.session(info.session_id).plan()),
            list(changes),
            _forgotten(plan) if back.operation is not None else "",
        )


def _forgotten(plan: Plan) -> str:
    """Return the operations that a plan runs again, in the order of the plan."""
    rows = [each for each in plan.operations if each.verdict == "runs again"]
    return ", ".join(each.operation if each.count == 1 else f"{each.operation} ({each.count:,})" for each in rows)


def rolled_back(before: Plan, after: Plan) -> list[str]:
    """Return the visits that a rewind rolls back."""
    stay = {each.step: each.visits for each in after}
    return [f"{each.step}#{n}" for each in before for n in range(stay.get(each.step, 0) + 1, each.visits + 1)]


def _visits(label: str, undone: list[str]) -> str:
    """Return a line about visits, or an empty string without visits.

    >>> _visits("Rolled back", ["write#2", "review#2"]), _visits("Rolled back", [])
    ('Rolled back: write#2, review#2.', '')
    """
    some = undone if len(undone) <= 6 else [*undone[:5], f"and {len(undone) - 5} more"]
    return f"{label}: {', '.join(some)}." if undone else ""


def print_dry_run(cli: Cli, plan: Plan, more: dict[str, Any], *titles: str) -> None:
    """Print a plan that is not carried out."""
    from pausepoint.cli.plans import print_steps

    if not cli.out.for_people:
        cli.out.document(plan.to_json() | more)
        return
    for title in filter(None, titles):
        cli.out.line(title)
    print_steps(cli, plan)
    cli.out.note("This is a dry run: nothing was changed.")
