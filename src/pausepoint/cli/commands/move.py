"""``move``: copy all sessions into another store, and let nothing run in the old one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pausepoint.cli.commands.verify import Ticker
from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import CONFLICT, NOT_FOUND, USAGE, Refused
from pausepoint.cli.host import STORE
from pausepoint.cli.project import Place, place_of
from pausepoint.cli.text import counted
from pausepoint.name import NAME

if TYPE_CHECKING:
    from pausepoint.engine.copies import Move

SHOWN = 10


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--dry-run", is_flag=True, help="Show what would be moved and change nothing.")
@click.option(
    "--timeout", type=click.FloatRange(0), default=60.0, show_default=True, metavar="SECONDS",
    help="How long to wait for a running session to stop.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def move(source: str, target: str, dry_run: bool, timeout: float, as_json: bool) -> None:
    """Move all sessions, schedules, limits and drawers from one store to another.

    FROM and TO are paths or URLs of stores. First everything in FROM is paused, at the next safe points. Then each
    session is copied with its children and files, verified, and continues in TO as it was. FROM stays, and stays
    paused, so that nothing runs twice. Programs that use FROM must be started again with TO.

    The command can be interrupted and repeated: what was moved is left alone, even if it was removed in TO. It exits
    with 5 if something could not be moved. Remembered requests (Idempotency-Key) and live streams are not moved.
    """
    if click.get_current_context().meta.get(STORE):
        raise Refused("`move` names both stores itself. Remove --store.", USAGE)
    cli, to = Cli(source, (), as_json, False), place_of(target)
    if cli.place.url == to.url or _same_file(cli.place.path, to.path):
        raise Refused(f"FROM and TO are the same store: {cli.place.given}. Name another store to move to.", USAGE)
    if not cli.place.exists:
        raise Refused(f"There is no store at {cli.place.shown}. Check FROM.", NOT_FOUND)
    run_async(_move(cli, to, dry_run, timeout))


def _same_file(one: Path | None, other: Path | None) -> bool:
    return one is not None and other is not None and one.exists() and other.exists() and one.samefile(other)


async def _move(cli: Cli, to: Place, dry_run: bool, timeout: float) -> None:
    ticker = Ticker(cli.out)

    def show(report: Move) -> None:
        done = len(report.moved) + len(report.there) + len(report.removed) + len(report.refused)
        ticker(f"{done:,} of {counted(report.total, 'session')}")

    async with cli.engine() as engine:
        ticker("Waiting until all sessions have stopped …")
        reason = f"Moved to {to.given}"
        report = await engine.move(to.url, reason=reason, timeout=timeout, dry_run=dry_run, on_progress=show)
    ticker.end()
    if cli.out.as_json:
        from pausepoint.engine.store_documents import moved

        cli.out.document(moved(cli.place.given, to.given, dry_run, report))
    _report(cli, to, report, dry_run)
    if report.refused:
        raise SystemExit(CONFLICT)


def _report(cli: Cli, to: Place, found: Move, dry_run: bool) -> None:
    what = [counted(len(found.moved), "session")]
    what += [
        counted(len(each), noun)
        for each, noun in ((found.schedules, "schedule"), (found.limits, "limit"), (found.drawers, "drawer"))
        if each
    ]
    last = what.pop()
    listed = f"{', '.join(what)} and {last}" if what else last
    said = f"{'Would move' if dry_run else 'Moved'} {listed} to {to.given}."
    if found.running:
        said += (
            f" {counted(len(found.running), 'of them is running and is', 'of them are running and are')} paused first."
        )
    if found.there:
        said += f" {counted(len(found.there), 'session is', 'sessions are')} there already."
    if found.removed:
        removed = counted(len(found.removed), "session was moved before and", "sessions were moved before and")
        said += f" {removed} removed there."
    cli.out.say(said)
    for session_id, message in list(found.refused.items())[:SHOWN]:
        cli.out.say(f"{'Cannot be moved' if dry_run else 'Not moved'}: {session_id}. {message}")
    if len(found.refused) > SHOWN:
        cli.out.say(f"… and {counted(len(found.refused) - SHOWN, 'other')}. All are listed with --json.")
    if not dry_run and found.refused:
        again = shlex.join([NAME, "move", cli.place.given, to.given])
        cli.out.note(f"Repeat it when these are solved:  {again}")
    elif not dry_run:
        cli.out.say(f"Everything in {cli.place.given} is paused and stays there.")
        cli.out.note(f"Use the new store:  {shlex.join([NAME, 'ls', '--store', to.given])}")
