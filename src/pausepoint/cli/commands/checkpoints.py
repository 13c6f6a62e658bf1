"""``checkpoints`` and ``diff``: list a session's checkpoints, and show what changed between two of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from pausepoint.cli.console import ago, span
from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import DONE, USAGE, Refused
from pausepoint.cli.host import command_line
from pausepoint.cli.options import SESSIONS, Whole, common
from pausepoint.cli.sessions import checkpoint_of, find_session, session_and_checkpoint
from pausepoint.cli.text import counted, value
from pausepoint.errors import SessionError, UnknownCheckpoint

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.views import Checkpoint, Difference, SessionInfo


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.option("--limit", type=Whole(1), default=50, show_default=True, metavar="N", help="List the last N.")
@click.option("--before", type=Whole(1), metavar="NUMBER", help="List those before this number, to page back.")
@click.option("--all", "everything", is_flag=True, help="List all.")
@common(lines=True)
def checkpoints(cli: Cli, session: str, limit: int, before: int | None, everything: bool) -> None:
    """List the checkpoints of a session, the newest last.

    Each has a number and a name (step#visit). `show SESSION@NAME`, `diff`, `rewind` and `fork` accept both.
    """
    run_async(_checkpoints(cli, session, before, None if everything else limit))


async def _checkpoints(cli: Cli, text: str, before: int | None, limit: int | None) -> None:
    from pausepoint.engine import history_documents

    async with cli.engine() as engine:
        info = await find_session(engine, text)
        found = await engine.session(info.session_id).checkpoints(before=before, limit=limit)
    if cli.out.as_json:
        cli.out.document(history_documents.checkpoints(info.session_id, found))
    elif cli.out.as_lines:
        for each in found:
            cli.out.record(history_documents.CheckpointDocument.of(each))
    elif not found:
        cli.out.note(f"Session {info.session_id} has no checkpoint yet: no step has finished.")
    else:
        _checkpoint_table(cli, found)
        if len(found) == limit:
            cli.out.note(f"These are the last {limit}. --before {found[0].seq} lists earlier ones, --all lists all.")


def _checkpoint_table(cli: Cli, found: Iterable[Checkpoint]) -> None:
    out = cli.out
    rows = []
    for each in found:
        notes = ["redacted"] if each.redacted else []
        notes += [f"skipped: {each.skipped}"] if each.skipped else []
        notes += [f"{each.attempts} attempts"] if each.attempts > 1 else []
        notes += ["rolled back by a rewind"] if each.left_behind else []
        took = "" if each.redacted or each.skipped else span(each.took)
        row = [str(each.seq), each.name, ago(each.ended_at), took, ", ".join(each.fields), "; ".join(notes)]
        rows.append([out.paint(cell, dim=True) for cell in row] if each.left_behind else row)
    out.table(["NUMBER", "VISIT", "WHEN", "TOOK", "WROTE", "NOTE"], rows)


@click.command()
@click.argument("session", metavar="SESSION[@A]", shell_complete=SESSIONS)
@click.argument("others", nargs=-1, metavar="[A] [B]")
@click.option("--full", is_flag=True, help="Show values in full.")
@common()
def diff(cli: Cli, session: str, others: tuple[str, ...], full: bool) -> int:
    """Show the differences in the state between two checkpoints.

    \b
    pausepoint diff SESSION A       from checkpoint A to now
    pausepoint diff SESSION A B     from A to B
    pausepoint diff SESSION@A B     the same
    pausepoint diff SESSION OTHER   between two sessions

    A checkpoint is a number or step#visit. To compare two sessions, such as a fork and its source, at a checkpoint,
    append @CHECKPOINT to each. --json prints the values as they are stored.
    """
    code: int = run_async(_diff(cli, session, others, full))
    return code


async def _diff(cli: Cli, session: str, others: tuple[str, ...], full: bool) -> int:
    async with cli.engine() as engine:
        first, at = await session_and_checkpoint(engine, session)
        given = ([] if at is None else [at]) + [checkpoint_of(text) for text in others]
        if not 1 <= len(given) <= 2:
            raise Refused(
                f"diff needs one or two checkpoints, or another session. See `{command_line('diff', '--help')}`.", USAGE
            )
        other = await _other(engine, first, str(given[-1])) if at is None or len(given) == 2 else None
        if other is None:
            found = await engine.session(first.session_id).diff(*given)
            title = f"{found.session_id}  {given[0]} → {given[1] if len(given) == 2 else 'now'}"
        else:
            (second, b), a = other, given[0] if len(given) == 2 else None
            found = await engine.session(first.session_id).diff(a, b, other=second.session_id)
            title = f"{first.session_id}@{a or 'now'} → {second.session_id}@{b or 'now'}"
    if cli.out.as_json:
        cli.out.document(found)
    else:
        _print_diff(cli, title, list(found), full)
    return DONE


async def _other(engine: Engine, first: SessionInfo, text: str) -> tuple[SessionInfo, int | str | None] | None:
    """Return another session, unless the text names a checkpoint of the first one."""
    try:
        await engine.session(first.session_id).diff(checkpoint_of(text), checkpoint_of(text))
        return None
    except UnknownCheckpoint as error:
        try:
            return await session_and_checkpoint(engine, text)
        except (Refused, SessionError):
            raise error from None


def _print_diff(cli: Cli, title: str, changes: list[Difference], full: bool) -> None:
    out = cli.out
    out.line(out.paint(title, bold=True))
    if not changes:
        out.line("no differences")
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
