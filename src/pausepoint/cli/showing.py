"""``show``, ``plan``, ``why``, ``checkpoints`` and ``diff``: one session, closely. Nothing here runs a step."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.common import SESSIONS, STEPS, Cli, common, not_found, run_async
from pausepoint.cli.failing import DONE, FAILED, USAGE, Refused
from pausepoint.cli.host import spoken
from pausepoint.cli.output import ago, facts, money, span
from pausepoint.cli.words import asked, clock, counted, one_line, printable, reasons, standing, value, way_lines
from pausepoint.errors import DamagedRecord, Redacted, SessionError, UnknownCheckpoint, UnknownSession, did_you_mean

if TYPE_CHECKING:
    from pausepoint.api import Engine
    from pausepoint.outcome import Checkpoint, Difference, SessionInfo, StoredState
    from pausepoint.plan import Plan, PlannedStep

TRACE_LINES = 12
"""How much of a traceback a terminal shows; the end of it tells most."""

_ENGINE = re.compile(r'[/\\\\]pausepoint[/\\\\](engine|visit|context|threads)\.py"')


@click.command()
@click.argument("session", metavar="SESSION[@CHECKPOINT]", shell_complete=SESSIONS)
@click.option("--field", metavar="NAME", help="Print this field of the state alone, as it is. Parts: NAME.PART.")
@click.option("--full", is_flag=True, help="Cut nothing.")
@common(target=True)
def show(cli: Cli, session: str, field: str | None, full: bool) -> int:
    """Show a session: its facts, why it stands still, the way out, and its state.

    @CHECKPOINT shows the state as of an earlier checkpoint: its number, or step#visit, such as @write#2 (@write is the
    last visit). The state is shown as it is stored; the workflow's code is not needed.
    """
    code: int = run_async(_show(cli, session, field, full))
    return code


async def _show(cli: Cli, text: str, field: str | None, full: bool) -> int:
    from pausepoint.cli import shapes

    async with cli.engine(what=f"session {text!r}") as engine:
        info, at = await _meant(engine, text)
        stored, wrong = None, ""
        try:
            stored = await engine.stored(info.session_id, at)
        except (DamagedRecord, Redacted) as error:
            if field is not None:
                raise
            wrong = str(error)
        if field is not None and stored is not None:
            _print_field(cli, stored, field)
            return DONE
        reached = await _reached(engine, info, stored) if at is not None else None
        if cli.out.as_json:
            pauses = await engine.pauses(info.session_id)
            questions = [shapes.question(each, cli.command("answer", each.id)) for each in await asked(engine, info)]
            cli.out.document(shapes.shown(info, pauses, questions, reached, stored, wrong))
        else:
            await _tell(cli, engine, info, reached, stored, wrong, full)
        return FAILED if wrong else DONE


async def _meant(engine: Engine, text: str) -> tuple[SessionInfo, int | str | None]:
    """A session, and the checkpoint behind an @. An id may contain one itself, so the whole is tried first."""
    before, mark, at = text.rpartition("@")
    try:
        return await engine.find(text), None
    except UnknownSession as error:
        if not mark or not at:
            raise await _gone(engine, error) from error
    return await engine.find(before), _checkpoint(at)


async def found_session(engine: Engine, text: str) -> SessionInfo:
    """The session that a person means; if it is gone, they are told so."""
    try:
        return await engine.find(text)
    except UnknownSession as error:
        raise await _gone(engine, error) from error


async def _gone(engine: Engine, error: Any) -> Exception:
    """Why there is no such session: perhaps it was removed."""
    from pausepoint.clock import to_datetime

    for stone in await engine.tombstones():
        if stone.session_id == error.session_id:
            who, why = stone.by or "somebody", f": {stone.reason}" if stone.reason else ""
            when = ago(to_datetime(stone.removed_at))
            return not_found(f"session {stone.session_id} ({stone.workflow}) was removed {when} by {who}{why}")
    known = [info.session_id for info in await engine.sessions(sort="updated", limit=1000)]
    if near := did_you_mean(error.session_id, known).partition("did you mean ")[2]:
        return not_found(f"{error}; did you mean {near}")
    return not_found(f"{error}; {spoken('ls')} lists those that are")


def _checkpoint(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


async def _reached(engine: Engine, info: SessionInfo, stored: StoredState | None) -> Checkpoint | None:
    """The last checkpoint at the record that was asked for."""
    if stored is None:
        return None
    found = await engine.checkpoints(info.session_id, before=stored.seq + 1, limit=1)
    return found[0] if found else None


def _print_field(cli: Cli, stored: StoredState, path: str) -> None:
    """Text as it is, anything else as JSON."""
    found: Any = stored.values
    for part in path.split("."):
        if isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        elif isinstance(found, dict) and part in found:
            found = found[part]
        else:
            known = found if isinstance(found, dict) else ()
            raise not_found(f"the state of {stored.session_id} has no field {path!r}{did_you_mean(part, known)}")
    if cli.out.as_json:
        cli.out.document(found)
    else:
        click.echo(found if isinstance(found, str) else json.dumps(found, indent=2, ensure_ascii=False))


async def _tell(
    cli: Cli, engine: Engine, info: SessionInfo, reached: Checkpoint | None, stored: StoredState | None, wrong: str,
    full: bool,
) -> None:  # fmt: skip
    out = cli.out
    facts(out, await _facts(cli, engine, info))
    if reached is not None and stored is not None:
        out.line()
        out.line(out.paint(f"As of record {stored.seq}, {reached.name}", bold=True))
    else:
        _paragraph(cli, await reasons(engine, info))
        for line in ["", *traceback(cli, info, full)] if info.status.value == "failed" else ():
            out.line(line)
        _paragraph(cli, await way_lines(cli, engine, info))
    out.line()
    if wrong:
        out.line(out.paint(f"The state cannot be shown: {wrong}", "red"))
    elif stored is not None:
        _state(cli, stored, full)


async def _facts(cli: Cli, engine: Engine, info: SessionInfo) -> dict[str, object]:
    out = cli.out
    spent = money(info.spent_usd) if info.spent_usd or info.budget_usd is not None else ""
    budget = f" of {money(info.budget_usd)}" if info.budget_usd is not None else ""
    tokens = f", {counted(info.spent_tokens, 'token')}" if info.spent_tokens else ""
    called = await engine.children(info.session_id)
    open_children = [f"{each.session_id} ({each.status.value})" for each in called[:5]]
    more = [f"… and {len(called) - 5:,} more"] if len(called) > 5 else []
    return {
        "session": info.session_id,
        "workflow": f"{info.workflow}, version {info.version}",
        "status": out.status(info.status.value),
        "step": f"{'behind ' if info.leaving else ''}{info.step}#{info.visit}" if info.step else "",
        "progress": f"{info.progress[0]}/{info.progress[1]}" if info.progress else "",
        "asked to": "cancel" if info.cancel_requested else "",
        "owner": one_line(info.owner or ""),
        "tags": one_line(", ".join(info.tags)),
        "created": f"{clock(info.created_at)} ({ago(info.created_at)})",
        "moved": f"{clock(info.updated_at)} ({ago(info.updated_at)})",
        "driven by": info.holder,
        "spent": f"{spent}{budget}{tokens}".lstrip(", "),
        "called by": info.parent_id,
        "forked from": await _origin(engine, info),
        "children": ", ".join(open_children + more),
    }


async def _origin(engine: Engine, info: SessionInfo) -> str:
    try:
        origin = await engine.origin(info.session_id)
    except (DamagedRecord, Redacted):
        return ""  # said where the state is missing
    return f"{origin.session_id} at {origin.at}" if origin is not None else ""


def _paragraph(cli: Cli, lines: Sequence[str]) -> None:
    for line in ["", *lines] if lines else ():
        cli.out.say(line)


def traceback(cli: Cli, info: SessionInfo, full: bool = False) -> list[str]:
    """Where it failed. A terminal shows the end of it, without the engine's own frames."""
    lines = info.failure.traceback.rstrip().splitlines() if info.failure is not None else []
    kept = lines if full or not cli.out.terminal else own_frames(lines)[-TRACE_LINES:]
    whole = f"{cli.command('show', info.session_id)} --full"
    more = [f"  … {counted(len(lines) - len(kept), 'more line')}: {whole}"] if len(kept) < len(lines) else []
    return [cli.out.paint(line, dim=True) for line in [*(f"  {printable(line)}" for line in kept), *more]]


def own_frames(lines: Sequence[str]) -> list[str]:
    """A traceback without the frames that call a step, which are the same every time.

    >>> own_frames(['  File "/x/pausepoint/engine.py", line 1, in run', '    go()', '  File "a.py"', 'E: e'])
    ['  File "a.py"', 'E: e']
    """
    kept, inside = [], False
    for line in lines:
        if line.startswith("  File "):
            inside = _ENGINE.search(line) is not None
        elif not line.startswith("   "):
            inside = False
        if not inside:
            kept.append(line)
    return kept


def _state(cli: Cli, stored: StoredState, full: bool) -> None:
    out = cli.out
    width = max(map(len, stored.values), default=0)
    room = out.width - width - 4 if out.terminal and not full else None
    out.line(out.paint("state", bold=True))
    for name, content in stored.values.items():
        out.line(f"  {out.paint(name.ljust(width), 'cyan')}  {value(content, room)}")
    if not stored.values:
        out.line("  (no fields)")


# plan and why

VERDICTS = {"done": "green", "next": "yellow", "will run": None, "may run": "blue", "left out": "bright_black"}
MARKS = {"done": "✓", "next": "▸", "will run": "·", "may run": "?", "left out": "–"}


@click.command()
@click.argument("session", required=False, shell_complete=SESSIONS)
@common(target=True)
def plan(cli: Cli, session: str | None) -> int:
    """What a resume would do with every step, and why. Nothing runs, nothing is changed.

    Without a session it is the one that `resume` would take.
    """
    code: int = run_async(_plan(cli, session))
    return code


async def _plan(cli: Cli, text: str | None) -> int:
    async with cli.engine(what=f"session {text!r}" if text else "nothing to plan", code=True, quiet=True) as engine:
        if text is None:
            from pausepoint.cli.running import candidates, listed

            some = await candidates(cli, engine)
            if len(some) > 1:
                return await listed(cli, engine, some)
            text = some[0].session_id
        info, found = await _planned(cli, engine, text)
        if cli.out.as_json:
            cli.out.document(found.to_json())
        else:
            print_plan(cli, found, await way_lines(cli, engine, info))
    return DONE


async def _planned(cli: Cli, engine: Engine, text: str) -> tuple[SessionInfo, Plan]:
    info = await found_session(engine, text)
    cli.check_code(engine, info)
    return info, await engine.plan(info.session_id)


def print_plan(cli: Cli, found: Plan, ways: Sequence[str] = ()) -> None:
    """A plan for a person; ``ways``: what can be done, one a line."""
    out = cli.out
    out.line(f"{found.session_id} {out.stands(found.status.value)}: {_in_short(found)}")
    print_steps(cli, found)
    _paragraph(cli, ways)


def print_steps(cli: Cli, found: Plan) -> None:
    """What becomes of every step."""
    out = cli.out
    for obstacle in found.obstacles:
        out.say(out.paint(f"! {obstacle}", "red"), 2)
    out.line()
    rows = [
        [out.paint(f"{MARKS[each.verdict]} {each.verdict}", VERDICTS[each.verdict]), each.step, _why(each)]
        for each in found
    ]
    out.table(["", "STEP", "WHY"], rows)
    if found.stale or found.artifacts:
        from pausepoint.cli.artifacts import in_short, redone  # few workflows leave any

        lines = {"Runs again": ", ".join(map(redone, found.stale)), "Artifacts": in_short(found.artifacts)}
        for name, said in lines.items():
            if said:
                out.say(f"{name}: {said}")


def _why(planned: PlannedStep) -> str:
    return one_line(planned.why)


def _in_short(found: Plan) -> str:
    counts = Counter(each.verdict for each in found)
    running = counts["next"] + counts["will run"]
    perhaps = f", {counts['may run']} perhaps" if counts["may run"] else ""
    visits = sum(each.visits for each in found)
    return f"{visits} {'visit' if visits == 1 else 'visits'} done, {running} to run{perhaps}"


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.argument("step", shell_complete=STEPS)
@common(target=True)
def why(cli: Cli, session: str, step: str) -> int:
    """Why a resume would run a step, or would not."""
    code: int = run_async(_why_step(cli, session, step))
    return code


async def _why_step(cli: Cli, text: str, step: str) -> int:
    async with cli.engine(what=f"session {text!r}", code=True, quiet=True) as engine:
        info, found = await _planned(cli, engine, text)
        planned = next((each for each in found if each.step == step), None)
        if planned is None:
            known = [each.step for each in found]
            raise not_found(f"workflow {info.workflow!r} has no step {step!r}{did_you_mean(step, known)}")
        last = await _last_visit(engine, info, step)
        ways = await standing(cli, engine, info) if planned.verdict == "next" and await asked(engine, info) else []
    if cli.out.as_json:
        from pausepoint.cli import shapes

        cli.out.document(shapes.why(found, step, last))
        return DONE
    _tell_why(cli, info, planned, last, found)
    for line in ways:
        cli.out.say(line)
    return DONE


async def _last_visit(engine: Engine, info: SessionInfo, step: str) -> Checkpoint | None:
    found = await engine.checkpoints(info.session_id, limit=None)
    return next((each for each in reversed(found) if each.step == step and not each.left_behind), None)


def _tell_why(
    cli: Cli, info: SessionInfo, planned: PlannedStep, last: Checkpoint | None, found: Plan
) -> None:  # fmt: skip
    out = cli.out
    says = {
        "done": "is done and would not run again",
        "next": "is the next to run",
        "will run": "will run",
        "may run": "may run",
        "left out": "would not run",
    }[planned.verdict]
    out.line(f"{out.paint(planned.step, bold=True)} {out.paint(says, VERDICTS[planned.verdict])}: {_why(planned)}")
    if last is not None:
        out.line(f"Last: {_visit(last)}")
        if planned.verdict == "done":
            out.line(f"Redo it:  {cli.command('rewind', info.session_id, info.workflow)} --to {last.name}")
    if found.artifacts:
        from pausepoint.cli.artifacts import of_step  # few workflows leave any

        of_step(cli, [each for each in found.artifacts if each.step == planned.step])
    for obstacle in found.obstacles:
        out.say(out.paint(f"! The session would not go on at all: {obstacle}", "red"), 2)


def _visit(found: Checkpoint) -> str:
    return f"{found.name}, {ago(found.at)}, {_happened(found)}"


def _happened(found: Checkpoint) -> str:
    if found.redacted:
        return "redacted"
    if found.skipped:
        return f"skipped: {found.skipped}"
    wrote = f", wrote {', '.join(found.fields)}" if found.fields else ""
    return f"took {span(found.took)}{wrote}"


# checkpoints


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, metavar="N", help="The last so many."
)
@click.option("--before", type=int, metavar="NUMBER", help="Those before this number: to page backwards.")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@common(lines=True)
def checkpoints(cli: Cli, session: str, limit: int, before: int | None, everything: bool) -> None:
    """List the checkpoints of a session, the newest last.

    Each has a number and a name (step#visit): `show SESSION@NAME`, `diff`, `rewind` and `fork` take both.
    """
    run_async(_checkpoints(cli, session, before, None if everything else limit))


async def _checkpoints(cli: Cli, text: str, before: int | None, limit: int | None) -> None:
    from pausepoint.cli import shapes

    async with cli.engine(what=f"session {text!r}") as engine:
        info = await found_session(engine, text)
        found = await engine.checkpoints(info.session_id, before=before, limit=limit)
    if cli.out.as_json:
        cli.out.document(shapes.checkpoints(info.session_id, found))
    elif cli.out.as_lines:
        for each in found:
            cli.out.record(shapes.checkpoint(each))
    elif not found:
        cli.out.note(f"{info.session_id} has no checkpoint yet: no step has ended.")
    else:
        _checkpoint_table(cli, found)
        if len(found) == limit:
            cli.out.note(f"The last {limit}; --all lists them all, --before {found[0].seq} those before.")


def _checkpoint_table(cli: Cli, found: Iterable[Checkpoint]) -> None:
    out = cli.out
    rows = []
    for each in found:
        notes = ["redacted"] if each.redacted else []
        notes += [f"skipped: {each.skipped}"] if each.skipped else []
        notes += [f"{each.attempts} attempts"] if each.attempts > 1 else []
        notes += ["left behind by a rewind"] if each.left_behind else []
        took = "" if each.redacted or each.skipped else span(each.took)
        row = [str(each.seq), each.name, ago(each.at), took, ", ".join(each.fields), "; ".join(notes)]
        rows.append([out.paint(cell, dim=True) for cell in row] if each.left_behind else row)
    out.table(["NUMBER", "VISIT", "WHEN", "TOOK", "WROTE", "NOTE"], rows)


# diff


@click.command()
@click.argument("session", metavar="SESSION[@A]", shell_complete=SESSIONS)
@click.argument("others", nargs=-1, metavar="[A] [B]")
@click.option("--full", is_flag=True, help="Cut nothing.")
@common()
def diff(cli: Cli, session: str, others: tuple[str, ...], full: bool) -> int:
    """What differs in the state between two checkpoints.

    \b
    pausepoint diff SESSION A       from checkpoint A to how it stands
    pausepoint diff SESSION A B     from A to B
    pausepoint diff SESSION@A B     the same
    pausepoint diff SESSION OTHER   between two sessions

    A checkpoint is a number or step#visit. Of two sessions, such as a fork and its source, each may have its
    @CHECKPOINT. With --json values are as they are stored.
    """
    code: int = run_async(_diff(cli, session, others, full))
    return code


async def _diff(cli: Cli, session: str, others: tuple[str, ...], full: bool) -> int:
    async with cli.engine(what=f"session {session!r}") as engine:
        first, at = await _meant(engine, session)
        given = ([] if at is None else [at]) + [_checkpoint(text) for text in others]
        if not 1 <= len(given) <= 2:
            raise Refused(f"name one checkpoint, or two, or another session; see {spoken('diff', '--help')}", USAGE)
        other = await _other(engine, first, str(given[-1])) if at is None or len(given) == 2 else None
        if other is None:
            found = await engine.diff(first.session_id, *given)
            changes, shape = list(found), found.to_json()
            title = f"{found.session_id}  {given[0]} → {given[1] if len(given) == 2 else 'now'}"
        else:
            changes, shape, title = await _between(engine, first, given[0] if len(given) == 2 else None, *other)
    if cli.out.as_json:
        cli.out.document(shape)
    else:
        _tell_diff(cli, title, changes, full)
    return DONE


async def _other(engine: Engine, first: SessionInfo, text: str) -> tuple[SessionInfo, int | str | None] | None:
    """Another session, unless the text names a checkpoint of the first one."""
    try:
        await engine.diff(first.session_id, _checkpoint(text), _checkpoint(text))
        return None
    except UnknownCheckpoint as error:
        try:
            return await _meant(engine, text)
        except (Refused, SessionError):
            raise error from None


async def _between(
    engine: Engine, first: SessionInfo, a: int | str | None, second: SessionInfo, b: int | str | None
) -> tuple[list[Difference], dict[str, Any], str]:
    from pausepoint.diff import compare
    from pausepoint.outcome import Diff

    one, two = await engine.stored(first.session_id, a), await engine.stored(second.session_id, b)
    changes = list(compare("", one.values, two.values))
    shape = Diff(first.session_id, one.seq, two.seq, tuple(changes)).to_json() | {"other_id": second.session_id}
    return changes, shape, f"{first.session_id}@{a or 'now'} → {second.session_id}@{b or 'now'}"


def _tell_diff(cli: Cli, title: str, changes: list[Difference], full: bool) -> None:
    out = cli.out
    out.line(out.paint(title, bold=True))
    if not changes:
        out.line("no difference")
    room = max(out.width - 4, 20) if out.terminal and not full else None
    for change in changes:
        out.line(f"{out.paint(change.path, 'cyan')}{_kind(change)}")
        for sign, colour, text in _sides(change, room):
            out.line(out.paint(f"  {sign} {text}", colour))


def _kind(change: Difference) -> str:
    if change.kind == "grown":
        return f"  {counted(len(change.added), 'item')} added"
    return "" if change.kind == "changed" else f"  {change.kind}"


def _sides(change: Difference, room: int | None) -> list[tuple[str, str, str]]:
    if change.kind == "grown":
        return [("+", "green", value(each, room)) for each in change.added]
    before = [("-", "red", value(change.before, room))] if change.kind in ("changed", "removed") else []
    after = [("+", "green", value(change.after, room))] if change.kind in ("changed", "added") else []
    return before + after
