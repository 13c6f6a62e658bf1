"""``show``, ``plan`` and ``why``: details of one session. None of them runs a step."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.console import ago, facts, money, span, to_json
from pausepoint.cli.context import Cli, not_found, run_async
from pausepoint.cli.description import describe, open_questions
from pausepoint.cli.exits import DONE, FAILED, USAGE, Refused, error_message
from pausepoint.cli.options import SESSIONS, STEPS, common
from pausepoint.cli.plans import VERDICTS, paragraph, print_plan, why_of
from pausepoint.cli.sessions import find_session, session_and_checkpoint
from pausepoint.cli.text import (
    clock,
    counted,
    folded,
    limited,
    one_line,
    position_phrase,
    traceback,
    turn_facts,
    value,
)
from pausepoint.errors import DamagedRecord, FolderRefused, Redacted, did_you_mean
from pausepoint.model.marks import marked_line

if TYPE_CHECKING:
    from pausepoint.artifacts.status import ArtifactState
    from pausepoint.cli.console import Output
    from pausepoint.engine.engine import Engine
    from pausepoint.engine.plans import Plan, PlannedStep
    from pausepoint.model.views import Checkpoint, OperationInfo, SessionInfo, StoredState, Turn


LAST = 50
"""The number of operations or turns to show without ``--full``."""

TURNS = {"assistant": "cyan", "tool": "blue", "question": "magenta", "answer": "magenta", "error": "red"}
"""The colours of the turns of a conversation."""

LONGEST = 400
"""The number of characters of a value to show without a terminal and without ``--full``."""


@click.command()
@click.argument("session", metavar="SESSION[@CHECKPOINT]", shell_complete=SESSIONS)
@click.option("--field", metavar="NAME", help="Print only this field of the state. NAME.PART is a part of a field.")
@click.option("--full", is_flag=True, help="Show values and tracebacks in full.")
@click.option("--no-state", is_flag=True, help="Leave out the state.")
@click.option("--operations", "lists", is_flag=True, help="Show what its last operations received and returned.")
@click.option("--conversation", "talks", is_flag=True, help="Show what models, tools and people have said.")
@common(target=True)
def show(cli: Cli, session: str, field: str | None, full: bool, no_state: bool, lists: bool, talks: bool) -> int:
    """Show a session: its status, why it does not run, what you can do, and its state.

    @CHECKPOINT shows the state at an earlier checkpoint: a number, or step#visit, such as @write#2. @write means the
    last visit of write. The state is shown as it is stored, so the workflow's code is not needed.
    """
    if lists and talks:
        raise Refused("Choose --operations or --conversation.", USAGE)
    if (lists or talks) and (field is not None or no_state):
        option = "--operations" if lists else "--conversation"
        raise Refused(f"{option} shows no state. Leave out --field and --no-state.", USAGE)
    list_of = _show_operations if lists else _show_conversation
    code: int = run_async(list_of(cli, session, full) if lists or talks else _show(cli, session, field, full, no_state))
    return code


async def _show_operations(cli: Cli, text: str, full: bool) -> int:
    from pausepoint.engine import history_documents
    from pausepoint.engine.spans import operations

    async with cli.engine() as engine:
        session_id = (await find_session(engine, text)).session_id
        rows = await operations(engine, session_id, limit=None if full else LAST + 1, whole=full)
    more = not full and len(rows) > LAST
    rows = rows[1:] if more else rows
    if cli.out.as_json:
        cli.out.document(history_documents.operations(session_id, rows))
        return DONE
    if not rows:
        cli.out.line(f"{session_id} has no operation that has ended.")
    place = ""
    for row in rows:
        if place != f"{row.step}#{row.visit}":
            place = f"{row.step}#{row.visit}"
            cli.out.line(cli.out.paint(place, bold=True))
        _print_operation(cli, row, full)
    if more:
        command = f"{cli.command('show', session_id)} --operations --full"
        cli.out.note(f"These are the last {LAST} operations. Show all, in full:  {command}")
    return DONE


async def _show_conversation(cli: Cli, text: str, full: bool) -> int:
    from pausepoint.engine import history_documents
    from pausepoint.engine.conversation import conversation

    async with cli.engine() as engine:
        session_id = (await find_session(engine, text)).session_id
        turns = await conversation(engine, session_id, limit=None if full else LAST, whole=full)
        earlier = [] if full or not turns else await conversation(engine, session_id, before=turns[0].seq, limit=1)
    if cli.out.as_json:
        cli.out.document(history_documents.conversation(session_id, turns))
        return DONE
    if not turns:
        cli.out.line(f"Nobody has said anything in {session_id}, and no operation has ended.")
    for turn in turns:
        _print_turn(cli, turn, full)
    if earlier:
        command = f"{cli.command('show', session_id)} --conversation --full"
        cli.out.note(f"These are the last {len(turns)} turns. Show all, in full:  {command}")
    return DONE


def _print_turn(cli: Cli, turn: Turn, full: bool) -> None:
    out = cli.out
    cost = [money(turn.usd)] * (turn.usd > 0) + [counted(turn.tokens, "token")] * (turn.tokens > 0)
    took = (
        [span(timedelta(seconds=turn.took))] * bool(turn.operation) + cost + ["undone by a rewind"] * turn.left_behind
    )
    head = f"{out.paint(turn.role, TURNS.get(turn.role), bold=True)}  {one_line(turn.name)}"
    out.line(head + (out.paint(f"  {', '.join(took)}", dim=True) if took else ""))
    for text in filter(None, (turn.thinking, turn.text)):
        for line in text.splitlines():
            out.line(out.paint(f"    {marked_line(line)}", dim=text is turn.thinking))
    for call in turn.calls:
        out.line(f"    → {one_line(call.name)}  {value(call.arguments, None if full else LONGEST)}")
    if turn.role == "tool":
        _print_values([*(turn.arguments or {}).items(), *([("→", turn.result)] if turn.operation else [])], out, full)
        if not turn.operation:
            out.line("    has not ended")


def _print_operation(cli: Cli, row: OperationInfo, full: bool) -> None:
    out = cli.out
    cost = [money(row.usd)] * (row.usd > 0) + [counted(row.tokens, "token")] * (row.tokens > 0)
    facts = [f"record {row.seq}", span(row.took), *cost, *["undone by a rewind"] * row.left_behind]
    out.line(f"  {out.paint(row.name, 'cyan')}  {', '.join(facts)}")
    if row.arguments is None:
        out.line("    arguments not recorded")
    _print_values([*(row.arguments or {}).items(), (row.outcome or "→", row.result)], out, full)


def _print_values(values: Sequence[tuple[str, Any]], out: Output, full: bool) -> None:
    width = max((len(name) for name, _ in values), default=0)
    for name, content in values:
        shown = folded(content, width + 6) if full else [_beginning(content)]
        out.line(f"    {one_line(name).ljust(width)}  {shown[0]}")
        for line in shown[1:]:
            out.line(line)


def _beginning(content: Any) -> str:
    """Return a value in one line. One that was cut ends with its size."""
    whole = value(content)
    size = content[content.rfind("… ‹") :] if type(content) is str and content.endswith(" bytes›") else ""
    return f"{whole[: LONGEST - len(size)]}{size}" if size and len(whole) > LONGEST else value(content, LONGEST)


async def _show(cli: Cli, text: str, field: str | None, full: bool, no_state: bool) -> int:
    from pausepoint.engine import documents

    async with cli.engine() as engine:
        info, at = await session_and_checkpoint(engine, text)
        stored, wrong = None, ""
        try:
            stored = await engine.session(info.session_id).stored(at)
        except (DamagedRecord, Redacted) as error:
            if field is not None:
                raise
            wrong = str(error)
        if field is not None and stored is not None:
            _print_field(cli, stored, field)
            return DONE
        reached = await _reached(engine, info, stored) if at is not None else None
        artifacts, trouble = await _artifacts(engine, info) if at is None else ([], "")
        if cli.out.as_json:
            pauses = await engine.session(info.session_id).pauses()
            asked = await open_questions(engine, info)
            questions = [documents.QuestionDocument.of(each, answer=cli.command("answer", each.id)) for each in asked]
            cli.out.document(documents.shown(info, pauses, questions, reached, stored, wrong, artifacts))
        else:
            heading = _heading(stored, reached) if at is not None and stored is not None else ""
            changed = [each for each in artifacts if each.state not in ("valid", "stale")]
            lines = [one_line(f"Artifact {each.path} is {each.state}: {each.why}") for each in changed]
            lines += [one_line(trouble)] if trouble else []
            await _print_session(cli, engine, info, heading, None if no_state else stored, wrong, full, lines)
        return FAILED if wrong else DONE


async def _artifacts(engine: Engine, info: SessionInfo) -> tuple[list[ArtifactState], str]:
    """Return the states of a session's published files, or why its folder cannot be read."""
    if info.holder is not None:
        return [], ""  # while it runs, its folder keeps changing
    try:
        return await engine.session(info.session_id).artifacts(), ""
    except FolderRefused as error:
        return [], error_message(error)
    except (DamagedRecord, Redacted):
        return [], ""  # reported with the state


async def _reached(engine: Engine, info: SessionInfo, stored: StoredState | None) -> Checkpoint | None:
    """Return the last checkpoint up to the stored record."""
    if stored is None:
        return None
    found = await engine.session(info.session_id).checkpoints(before=stored.seq + 1, limit=1)
    return found[0] if found else None


def _heading(stored: StoredState, reached: Checkpoint | None) -> str:
    """Return which moment an earlier state belongs to."""
    if reached is None:
        return f"At record {stored.seq}, before the first checkpoint"
    if reached.seq == stored.seq:
        return f"At checkpoint {stored.seq}, {reached.name}"
    return f"At record {stored.seq}, after checkpoint {reached.seq}, {reached.name}"


def _print_field(cli: Cli, stored: StoredState, path: str) -> None:
    """Print a field: a string as it is, anything else as JSON."""
    found: Any = stored.values
    for part in path.split("."):
        if isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        elif isinstance(found, dict) and part in found:
            found = found[part]
        else:
            known = found if isinstance(found, dict) else ()
            raise not_found(f"The state of {stored.session_id} has no field {path!r}{did_you_mean(part, known)}")
    if cli.out.as_json:
        cli.out.document(found)
    else:
        click.echo(found if isinstance(found, str) else to_json(found, indent=2))


async def _print_session(
    cli: Cli, engine: Engine, info: SessionInfo, heading: str, stored: StoredState | None, wrong: str, full: bool,
    artifacts: list[str],
) -> None:  # fmt: skip
    out = cli.out
    facts(out, await _facts(cli, engine, info))
    if heading:
        out.line()
        out.line(out.paint(heading, bold=True))
    else:
        found = await describe(engine, info, cli)
        paragraph(cli, [*found.reasons(cli), *await _retries(engine, info)])
        failed = info.failure is not None and info.status.value in ("failed", "paused")
        for line in ["", *traceback(cli, info, full)] if failed else ():
            out.line(line)
        paragraph(cli, found.commands(cli))
        paragraph(cli, artifacts)
    if wrong:
        out.line()
        out.line(out.paint(f"The state cannot be shown: {wrong}", "red"))
    elif stored is not None:
        out.line()
        _state(cli, stored, full)


async def _facts(cli: Cli, engine: Engine, info: SessionInfo) -> dict[str, object]:
    out = cli.out
    spent = money(info.spent_usd) if info.spent_usd or info.budget_usd is not None else ""
    budget = f" of {money(info.budget_usd)}" if info.budget_usd is not None else ""
    tokens = f", {counted(info.spent_tokens, 'token')}" if info.spent_tokens and info.budget_tokens is None else ""
    tokens += "".join(f", {each}" for each in limited(info))
    called = await engine.session(info.session_id).children()
    open_children = [f"{each.session_id} ({each.status.value})" for each in called[:5]]
    more = [f"… and {len(called) - 5:,} more"] if len(called) > 5 else []
    return {
        "session": info.session_id,
        "workflow": f"{info.workflow}, version {info.version}",
        "status": out.status(info.status.value),
        "step": f"{'after ' if info.held_by_guard else ''}{info.step}#{info.visit}" if info.step else "",
        "progress": f"{info.progress[0]}/{info.progress[1]}" if info.progress else "",
        "requested": "cancel" if info.cancel_requested else "",
        "owner": one_line(info.owner or ""),
        "tags": one_line(", ".join(info.tags)),
        **turn_facts(info),
        "created": f"{clock(info.created_at)} ({ago(info.created_at)})",
        "updated": f"{clock(info.updated_at)} ({ago(info.updated_at)})",
        "running in": info.holder,
        "step kept by": info.kept_by,
        "spent": f"{spent}{budget}{tokens}".lstrip(", "),
        "parent": info.parent_id,
        "forked from": await _origin(engine, info),
        "children": ", ".join(open_children + more),
    }


async def _retries(engine: Engine, info: SessionInfo) -> list[str]:
    """Return a line for every operation that waits to be retried."""
    if info.status.value in ("completed", "cancelled", "failed"):
        return []
    try:
        found = await engine.session(info.session_id).retries()
    except (DamagedRecord, Redacted):
        return []  # the damage is reported with the state
    return [one_line(str(each)) for each in found]


async def _origin(engine: Engine, info: SessionInfo) -> str:
    try:
        origin = await engine.session(info.session_id).origin()
    except (DamagedRecord, Redacted):
        return ""  # the damage is reported with the state
    return f"{origin.session_id} at {origin.at_step}" if origin is not None else ""


def _state(cli: Cli, stored: StoredState, full: bool) -> None:
    out = cli.out
    width = max(map(len, stored.values), default=0)
    room = out.width - width - 4 if out.terminal else LONGEST
    out.line(out.paint("state", bold=True))
    for name, content in stored.values.items():
        lines = folded(content, width + 4) if full else [value(content, room)]
        out.line(f"  {out.paint(name.ljust(width), 'cyan')}  {lines[0]}")
        for line in lines[1:]:
            out.line(line)
    if not stored.values:
        out.line("  (no fields)")


# plan and why


@click.command()
@click.argument("session", required=False, shell_complete=SESSIONS)
@common(target=True)
def plan(cli: Cli, session: str | None) -> int:
    """Show what a resume would do with every step, and why. Nothing runs and nothing is changed.

    Without SESSION, plan the session that `resume` would pick.
    """
    code: int = run_async(_plan(cli, session))
    return code


async def _plan(cli: Cli, text: str | None) -> int:
    async with cli.engine(code=True, quiet=True) as engine:
        if text is None:
            from pausepoint.cli.sessions import candidates, list_candidates

            some = await candidates(cli, engine)
            if len(some) > 1:
                return await list_candidates(cli, engine, some)
            text = some[0].session_id
        info, found = await _planned(cli, engine, text)
        if cli.out.as_json:
            cli.out.document(found.to_json())
        else:
            print_plan(cli, found, (await describe(engine, info, cli)).commands(cli, planned=True))
    return DONE


async def _planned(cli: Cli, engine: Engine, text: str) -> tuple[SessionInfo, Plan]:
    info = await find_session(engine, text)
    cli.check_code(engine, info)
    return info, await engine.session(info.session_id).plan()


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.argument("step", required=False, shell_complete=STEPS)
@common(target=True)
def why(cli: Cli, session: str, step: str | None) -> int:
    """Explain why a resume would run a step, or would not.

    Without STEP, explain why the session does not run, and what helps.
    """
    code: int = run_async(_why_session(cli, session) if step is None else _why_step(cli, session, step))
    return code


async def _why_session(cli: Cli, text: str) -> int:
    async with cli.engine(code=True, quiet=True) as engine:
        if cli.out.as_json:
            _, found = await _planned(cli, engine, text)
            cli.out.document(found.to_json())
            return DONE
        info = await find_session(engine, text)
        running = info.status.value in ("running", "completed")
        said = f" in {info.holder}" if info.holder is not None and running else ""
        cli.out.line(f"{info.session_id} {cli.out.status_phrase(info.status.value)}{position_phrase(info)}{said}.")
        for line in (await describe(engine, info, cli)).lines(cli):
            cli.out.say(line)
    return DONE


async def _why_step(cli: Cli, text: str, step: str) -> int:
    async with cli.engine(code=True, quiet=True) as engine:
        info, found = await _planned(cli, engine, text)
        planned = next((each for each in found if each.step == step), None)
        if planned is None:
            known = [each.step for each in found]
            raise not_found(f"Workflow {info.workflow!r} has no step {step!r}{did_you_mean(step, known)}")
        last = await _last_visit(engine, info, step)
        ways = (await describe(engine, info, cli)).commands(cli, planned=True) if found.obstacles else []
        if planned.verdict == "next" and await open_questions(engine, info):
            ways = (await describe(engine, info, cli)).lines(cli)
    if cli.out.as_json:
        from pausepoint.engine import documents

        cli.out.document(documents.why(found, step, last))
        return DONE
    _print_why(cli, info, planned, last, found)
    for line in ways:
        cli.out.say(line)
    return DONE


async def _last_visit(engine: Engine, info: SessionInfo, step: str) -> Checkpoint | None:
    found = await engine.session(info.session_id).checkpoints(limit=None)
    return next((each for each in reversed(found) if each.step == step and not each.left_behind), None)


def _print_why(
    cli: Cli, info: SessionInfo, planned: PlannedStep, last: Checkpoint | None, found: Plan
) -> None:  # fmt: skip
    out = cli.out
    says = {
        "done": "is done and would not run again",
        "next": "would run next",
        "will run": "would run",
        "may run": "might run",
        "left out": "would not run",
    }[planned.verdict]
    out.line(f"{out.paint(planned.step, bold=True)} {out.paint(says, VERDICTS[planned.verdict])}: {why_of(planned)}")
    if last is not None:
        out.line(f"Last visit: {_visit(last)}")
        if planned.verdict == "done" and not found.obstacles:
            out.line(f"Redo it:  {cli.command('rewind', info.session_id, info.workflow)} --to {last.name}")
    if found.artifacts:
        from pausepoint.cli.commands.artifacts import print_step_artifacts  # few workflows publish artifacts

        print_step_artifacts(cli, [each for each in found.artifacts if each.step == planned.step])
    for obstacle in found.obstacles:
        out.say(out.paint(f"! A resume would not continue the session: {obstacle}", "red"), 2)


def _visit(found: Checkpoint) -> str:
    return f"{found.name}, {ago(found.ended_at)}, {_happened(found)}"


def _happened(found: Checkpoint) -> str:
    if found.redacted:
        return "redacted"
    if found.skipped:
        return f"skipped: {found.skipped}"
    wrote = f", wrote {', '.join(found.fields)}" if found.fields else ""
    return f"took {span(found.took)}{wrote}"
