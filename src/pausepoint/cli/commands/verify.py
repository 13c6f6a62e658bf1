"""``verify`` and ``gc``: check that everything stored is intact, and clean up."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.console import Output
from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import DONE, FAILED, error_message
from pausepoint.cli.host import how_to_start
from pausepoint.cli.options import SESSIONS, common
from pausepoint.cli.project import check_exists
from pausepoint.cli.sessions import unknown_session
from pausepoint.cli.text import counted, one_line, size, wrap_after

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.engine.retention import CleanUp
    from pausepoint.engine.verify import Verification
    from pausepoint.model.ids import SessionId

UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
SHOWN = 20


class Duration(click.ParamType[timedelta]):
    """A duration such as ``90d``, ``12h``, ``30m`` or ``2w``.

    >>> Duration().convert("90d", None, None)
    datetime.timedelta(days=90)
    """

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"(\d{1,6})([mhdw])", str(value))
        if found is None:
            self.fail(f"{value!r} is not a duration. Write for example 90d, 12h, 30m or 2w.", param, ctx)
        return timedelta(**{UNITS[found[2]]: int(found[1])})


class Ticker:
    """A progress line on a terminal. It disappears at the end."""

    def __init__(self, out: Output) -> None:
        self.shows = out.for_people and sys.stderr.isatty()
        self.width = out.width
        self.next = time.monotonic() + 0.5  # quick work shows no progress

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if self.shows and now >= self.next:
            self.next = now + 0.1
            click.echo(f"\r\x1b[K{text[: self.width - 1]}", nl=False, err=True)

    def end(self) -> None:
        """Clear the line."""
        if self.shows:
            click.echo("\r\x1b[K", nl=False, err=True)


def without_store(cli: Cli, empty: Any) -> bool:
    """Return whether there is no store yet, after saying so. A store that was named explicitly must exist."""
    if cli.place.exists:
        return False
    if cli.place.explicit:
        check_exists(cli.place)
    if cli.out.as_json:
        cli.out.document(empty)
    cli.out.say(f"There is no store at {cli.place.shown} yet. The first session creates it. {how_to_start()}")
    return True


# verify


@click.command()
@click.argument("session", required=False, shell_complete=SESSIONS)
@common()
def verify(cli: Cli, session: str | None) -> int:
    """Check that everything stored is intact, in one SESSION or in the whole store.

    Reads every record, signal, large value, file and tombstone (the mark of a removed session), and compares each with
    its digest. Nothing is changed. Exits with 1 if something is damaged, and names the first damaged record of each
    session.
    """
    if session is None:
        from pausepoint.engine.store_documents import verification
        from pausepoint.engine.verify import Verification

        if without_store(cli, verification(Verification(), None)):
            return DONE
    return int(run_async(_verify(cli, session)))


async def _verify(cli: Cli, session: str | None) -> int:
    tick = Ticker(cli.out)

    def show_progress(report: Verification) -> None:
        tick(f"{counted(report.sessions, 'session')}, {counted(report.records, 'record')} checked …")

    from pausepoint.engine.store_documents import verification
    from pausepoint.engine.verify import Problem, Verification
    from pausepoint.errors import StoreDamaged

    try:
        async with cli.engine() as engine:
            report, session_id = await _verified(engine, session, show_progress)
    except StoreDamaged as error:  # nothing else can be checked
        report, session_id = Verification(problems=[Problem("log", error_message(error))]), None
    tick.end()
    if cli.out.as_json:
        cli.out.document(verification(report, session_id))
    _show_problems(cli.out, report)
    return DONE if report.ok else FAILED


async def _verified(
    engine: Engine, session: str | None, show_progress: Callable[[Verification], None]
) -> tuple[Verification, str | None]:
    """Verify a session or the store. A removed or unreadable session needs its whole id."""
    from pausepoint.errors import DamagedRecord, UnknownSession

    if session is None:
        return await engine.verify(on_progress=show_progress), None
    try:
        session_id = str((await engine.find(session)).session_id)
    except (UnknownSession, DamagedRecord) as error:
        try:
            return await engine.session(session).verify(on_progress=show_progress), session
        except UnknownSession:
            raise (error if isinstance(error, DamagedRecord) else await unknown_session(engine, error)) from None
    return await engine.session(session_id).verify(on_progress=show_progress), session_id


def _show_problems(out: Output, report: Verification) -> None:
    for problem in report.problems:
        wrap_after(out, f"{out.paint('bad', 'red', bold=True)}  ", 5, problem.text)
    if report.ok:
        out.line(f"{out.paint('ok', 'green', bold=True)}   everything is intact")
    else:
        out.line(f"     {counted(len(report.problems), 'problem')}")
    wrap_after(out, "     ", 5, f"checked: {_checked(report)}")


def _checked(report: Verification) -> str:
    redacted = f" ({report.redacted:,} redacted)" if report.redacted else ""
    counts = {
        "session": report.sessions, "record": report.records, "signal": report.signals, "large value": report.values,
        "file": report.files, "tombstone": report.tombstones,
    }  # fmt: skip
    said = [counted(count, name) + (redacted if name == "record" else "") for name, count in counts.items() if count]
    return ", ".join(said) or "an empty store"


# gc


@click.command()
@click.option("--apply", is_flag=True, help="Clean up. Without this option nothing is changed.")
@click.option(
    "--keep-for", type=Duration(), metavar="SPAN",
    help="Remove completed and cancelled sessions after this time (90d, 12h, 30m, 2w), unless they have their own"
    " keep_for.",
)  # fmt: skip
@common()
def gc(cli: Cli, apply: bool, keep_for: timedelta | None) -> int:
    """Show what can be cleaned up; --apply cleans it up.

    Removes expired sessions, completes interrupted removals, deletes unused large values, and returns free space to the
    file system. Other processes keep working meanwhile. You can interrupt it at any time.
    """
    from pausepoint.engine.retention import CleanUp
    from pausepoint.engine.store_documents import clean_up

    if without_store(cli, clean_up(CleanUp(apply), 0)):
        return DONE
    return int(run_async(_gc(cli, apply, keep_for)))


async def _gc(cli: Cli, apply: bool, keep_for: timedelta | None) -> int:
    tick = Ticker(cli.out)

    def show_progress(report: CleanUp) -> None:
        gone = len(report.expired) + len(report.completed)
        tick(f"{counted(gone, 'session')}, {counted(report.values, 'large value')}, {size(report.given_back)} …")

    async with cli.engine() as engine:
        report = await engine.gc(apply=apply, keep_for=keep_for, on_progress=show_progress)
        total = (await engine.health()).store.size
    tick.end()
    if cli.out.as_json:
        from pausepoint.engine.store_documents import clean_up

        cli.out.document(clean_up(report, total))
    _show_clean_up(cli.out, report, total)
    return FAILED if apply and report.kept else DONE


def _show_clean_up(out: Output, report: CleanUp, total: int) -> None:
    rows = _rows_of(report)
    for verb, what, much, ids in rows:
        out.line(f"{verb:<12}  {what}" + (f", {much}" if much else ""))
        for session_id in ids[:SHOWN]:
            out.line(f"              {session_id}")
        if len(ids) > SHOWN:
            out.line(f"              and {len(ids) - SHOWN:,} more; --json lists all")
    for session_id, why in report.kept.items():
        out.line(f"{out.paint('kept', 'yellow')}          {session_id}: {one_line(why)}")
    if report.unknown:
        more = len(report.unknown) - SHOWN
        found = ", ".join(report.unknown[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")
        out.note(f"The store has no session for these file folders: {found}. Delete them yourself, unless they belong"
                 " to another copy of the database.")  # fmt: skip
    if not rows:
        out.line("There was nothing to clean up." if report.applied else "There is nothing to clean up.")
    out.line(f"The store's size is {'now ' if report.applied else ''}{size(total)}.")
    if rows and not report.applied:
        out.note("Nothing was changed. Clean up with --apply.")
    elif report.applied and not report.folded:
        out.note("Another process was reading, so deleted bytes may still be in the write-ahead log. Run it again"
                 " later.")  # fmt: skip


def _rows_of(report: CleanUp) -> list[tuple[str, str, str, list[SessionId]]]:
    """Return what was done or would be done: the verb, the object, its size, and the sessions."""
    done = report.applied
    expired = counted(len(report.expired), "expired session")
    removals = counted(len(report.completed), "interrupted removal")
    values = counted(report.values, "unused large value")
    questions = counted(report.questions, "old question")
    requests = counted(report.requests, "expired request")
    descriptions = counted(report.descriptions, "unused description")
    drawers = counted(report.drawers, "old stream or value in drawers", "old streams and values in drawers")
    streams = counted(report.streams, "live stream of an ended session", "live streams of ended sessions")
    strays = counted(report.strays, "file of an interrupted upload", "files of interrupted uploads")
    weight = "" if done else size(report.expired_bytes)
    free = report.given_back if done else report.free_bytes
    rows: list[tuple[bool, str, str, str, list[SessionId]]] = [
        (bool(report.expired), "removed" if done else "to remove", expired, weight, report.expired),
        (bool(report.completed), "completed" if done else "to complete", removals, "", report.completed),
        (bool(report.values), "deleted" if done else "to delete", values, size(report.value_bytes), []),
        (bool(report.questions), "deleted" if done else "to delete", questions, "", []),
        (bool(report.requests), "deleted", requests, "", []),
        (bool(report.descriptions), "deleted", descriptions, "", []),
        (bool(report.drawers), "deleted", drawers, "", []),
        (bool(report.streams), "deleted" if done else "to delete", streams, "", []),
        (bool(report.strays), "deleted" if done else "to delete", strays, size(report.stray_bytes), []),
        (bool(free), "returned" if done else "to return", "free space in the file", size(free), []),
    ]
    return [(verb, what, much, ids) for there, verb, what, much, ids in rows if there]
