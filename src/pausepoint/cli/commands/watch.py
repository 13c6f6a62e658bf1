"""``watch`` and ``events``: what happens, as it happens. Reads what is stored; never drives anything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from datetime import date
from typing import TYPE_CHECKING

import click

from pausepoint.cli.console import money, span
from pausepoint.cli.context import Cli, exit_code_of, run_async
from pausepoint.cli.exits import DONE, FAILED, PERSON, USAGE, Refused
from pausepoint.cli.options import SESSIONS, common
from pausepoint.cli.sessions import find_session
from pausepoint.cli.text import counted, one_line, open_questions, position, short_ids, status_lines, status_note
from pausepoint.clock import to_datetime
from pausepoint.errors import did_you_mean
from pausepoint.model.events import ENGINE_EVENTS

if TYPE_CHECKING:
    from pausepoint.cli.live import Display, View
    from pausepoint.engine.engine import Engine
    from pausepoint.model.sessions import Event
    from pausepoint.model.views import SessionInfo

LOOK_EVERY = 0.2
"""Seconds between two looks."""

GRACE = 3.0
"""Seconds for which a session that nobody drives may be about to be taken up."""

NOISE = ("operation.completed", "spent", "progress")
"""Shown in the line at the bottom of a terminal instead of one by one."""

COLOURS = {
    "step.completed": "green", "session.completed": "green", "session.failed": "red", "item.failed": "red",
    "session.paused": "yellow", "pause.requested": "yellow", "guard.refused": "yellow", "step.retried": "yellow",
    "session.cancelled": "red", "cancel.requested": "red", "redacted": "bright_black",
}  # fmt: skip


# events


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until the session ends.")
@click.option("--after", metavar="CURSOR", default="", help="Only what came after the event with this cursor.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only such: step.completed, or all of session.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last so many.")
@common(lines=True)
def events(cli: Cli, session: str, follow: bool, after: str, types: tuple[str, ...], last: int | None) -> None:
    """Show the history of a session, the oldest first.

    Every event carries a cursor (see --jsonl); --after goes on behind it.
    """
    if follow and cli.out.as_json:
        raise Refused("--json prints one document, and --follow has no end yet; use --jsonl", USAGE)
    run_async(_events(cli, session, follow, after, types, last))


async def _events(cli: Cli, text: str, follow: bool, after: str, types: tuple[str, ...], last: int | None) -> None:
    from pausepoint.engine import documents

    async with cli.engine() as engine:
        info = await find_session(engine, text)
        printer = Printer(cli)
        past = await _past(engine, info, after)
        wanted = [each for each in past if _is_wanted(each, types)]
        if last is not None:
            wanted = wanted[-last:]
        if cli.out.as_json:
            cli.out.document(documents.history(info.session_id, wanted))
        for each in wanted:
            printer.event(each)
        if types and not wanted and not follow:
            cli.out.note(_no_such(types, past))
        if follow:
            cursor = past[-1].cursor if past else after
            async for each in engine.events(info.session_id, cursor, follow=True):
                if _is_wanted(each, types):
                    printer.event(each)


async def _past(engine: Engine, info: SessionInfo, after: str) -> list[Event]:
    try:
        return [each async for each in engine.events(info.session_id, after)]
    except ValueError as error:
        raise Refused(f"--after {error}", USAGE) from None


def _is_wanted(event: Event, types: Sequence[str]) -> bool:
    return not types or any(_fits(event.event_type, wanted) for wanted in types)


def _fits(kind: str, wanted: str) -> bool:
    """A type, or all that begin with its first part.

    >>> _fits("step.completed", "step"), _fits("step.completed", "step.*"), _fits("stepping", "step")
    (True, True, False)
    """
    return kind == wanted or kind.startswith(wanted.removesuffix("*").removesuffix(".") + ".")


def _no_such(types: Sequence[str], past: Sequence[Event]) -> str:
    known = ENGINE_EVENTS | {each.event_type for each in past}
    known |= {kind.partition(".")[0] for kind in known}
    for wanted in types:
        if not any(_fits(kind, wanted) for kind in known):
            return f"No event of type {wanted!r}{did_you_mean(wanted, known)}"
    return f"No event of {' or '.join(types)} among {counted(len(past), 'event')}"


class Printer:
    """Events, one a line; on a terminal with colours, and a line below them that tells how it stands now."""

    def __init__(self, cli: Cli, several: bool = False) -> None:
        self.out = cli.out
        self.several = several
        self.names: dict[str, str] = {}
        self.day = date.today()
        self.below = ""

    def name(self, ids: Iterable[str]) -> None:
        """Those that are spoken of, shortened on a terminal."""
        self.names = short_ids(ids) if self.out.terminal else {}

    def named(self, session_id: str) -> str:
        return self.names.get(session_id, session_id)

    def event(self, event: Event) -> None:
        """One event, in the form that was asked for."""
        if self.out.as_lines:
            from pausepoint.engine import documents

            self.out.record(documents.event(event))
        elif self.out.for_people:
            self._clear()
            self.out.line(self.out.fitted(self._line(event)))

    def text(self, line: str) -> None:
        """A line beside the events."""
        self._clear()
        self.out.line(self.out.fitted(line))

    def status(self, line: str) -> None:
        """How it stands now: replaces itself. Only on a terminal."""
        if not (self.out.terminal and self.out.for_people):
            return
        self.below = self.out.fitted(line)
        click.echo(f"\r\x1b[2K{self.below}", nl=False, color=True)

    def end(self) -> None:
        """Nothing more stands below."""
        self._clear()

    def _clear(self) -> None:
        if self.below:
            click.echo("\r\x1b[2K", nl=False, color=True)
            self.below = ""

    def _line(self, event: Event) -> str:
        moment = to_datetime(event.created_at)
        local = moment.astimezone()
        when = f"{local:%H:%M:%S}" if self.out.terminal else moment.isoformat(timespec="milliseconds")
        if self.out.terminal and local.date() != self.day:
            self.day = local.date()
            self.out.line(self.out.paint(f"{self.day:%A, %d %B %Y}", dim=True))
        who = f"{self.named(event.session_id)}  " if self.several else ""
        kind = self.out.paint(f"{event.event_type:20}", COLOURS.get(event.event_type))
        agent = event.agent_name if event.agent_name and event.agent_name not in event.summary else ""
        said = one_line(event.summary)
        return f"{self.out.paint(when, dim=True)}  {who}{kind}  {f'{agent}: ' if agent else ''}{said}"


# watch


@click.command()
@click.argument("session", required=False, shell_complete=SESSIONS)
@click.option("--history", is_flag=True, help="First all that has happened so far.")
@common(lines=True)
def watch(cli: Cli, session: str | None, history: bool) -> int:
    """Follow a session live until it ends or needs somebody; without one, all that run.

    The exit code tells how it stands then: 0 completed, 1 failed or cancelled, 3 needs somebody. Ctrl+C ends the
    watching, not the session.
    """
    code: int = run_async(_watch(cli, session, history) if session is not None else _watch_all(cli, history))
    return code


async def _watch(cli: Cli, text: str, history: bool) -> int:
    from pausepoint.cli.live import View, chart, display_for
    from pausepoint.engine import documents

    async with cli.engine() as engine:
        info = await find_session(engine, text)
        view = View(info.workflow, list(await engine.outline(info.session_id)), info=info)
        show = display_for(cli.out)
        async for event in engine.events(info.session_id):
            view.apply(event)
            if history:
                show.event(view, event)
        view.mark_kept()
        cli.out.line(_headline(cli, info, len(view.done)))
        info = await _follow(engine, view, show, info)
        if cli.out.as_json:
            cli.out.document(documents.session(info))
        for line in chart(cli.out, view) if cli.out.terminal else ():
            cli.out.line(line)
        await _tell_end(cli, engine, info)
    return exit_code_of(info.status.value)


async def _follow(engine: Engine, view: View, show: Display, info: SessionInfo) -> SessionInfo:
    undriven: float | None = None
    if await _goes_on(engine, info) is False:
        return info
    show.begin(view)
    try:
        while True:
            view.info = info = await engine.info(info.session_id)
            # After the facts: what they say has happened is then shown.
            async for event in engine.events(info.session_id, view.cursor):
                view.apply(event)
                show.event(view, event)
            show.tick(view, "")
            goes_on = await _goes_on(engine, info)
            undriven = None if goes_on is not None else undriven or time.monotonic()
            if goes_on is False or (undriven and time.monotonic() - undriven > GRACE):
                return info
            await asyncio.sleep(LOOK_EVERY)
    finally:
        show.end()


async def _goes_on(engine: Engine, info: SessionInfo) -> bool | None:
    """Whether a session moves, or will by itself. None: somebody may be about to take it up."""
    match info.status.value:
        case "running" | "pausing" | "sleeping":
            return True
        case "ready" | "created":
            return None
        case "waiting":
            if info.wakes_at is not None and "answer" not in info.waiting:  # a question needs somebody until it expires
                return True
            moves = [await _goes_on(engine, each) for each in await engine.children(info.session_id)]
            return True if True in moves else None if None in moves else False
    return False


def _headline(cli: Cli, info: SessionInfo, steps: int) -> str:
    done = f"{counted(steps, 'step')} done" if steps else "nothing done yet"
    where = f", now {'behind' if info.held_by_guard else 'at'} {info.step}#{info.visit}" if info.step else ""
    return f"{info.session_id} ({info.workflow}) {cli.out.status_phrase(info.status.value)}: {done}{where}"


async def _tell_end(cli: Cli, engine: Engine, info: SessionInfo) -> None:
    out = cli.out
    spent = f", {money(info.spent_usd)}" if info.spent_usd else ""
    took = span(info.updated_at - info.created_at)
    out.line(f"{info.session_id} {out.status_phrase(info.status.value)} ({took} after it was created{spent})")
    for line in await status_lines(cli, engine, info):
        out.say(line)


async def _watch_all(cli: Cli, history: bool) -> int:
    """All that run, and those that begin meanwhile, until nothing runs."""
    from pausepoint.engine import documents

    if not (cli.place.exists or cli.place.explicit):
        cli.out.note("Nothing is running: there is no store here.")
        if cli.out.as_json:
            cli.out.document(documents.listing([], 0, ()))
        return DONE
    async with cli.engine() as engine:
        return await _all(cli, engine, history)


async def _all(cli: Cli, engine: Engine, history: bool) -> int:
    from pausepoint.engine import documents

    cursors: dict[str, str] = {}
    ended: dict[str, SessionInfo] = {}
    printer = Printer(cli, several=True)
    first = True
    while (moving := await _moving(engine)) or first or set(cursors) - set(ended):
        printer.name([*cursors, *moving])
        for session_id, info in moving.items():
            if session_id not in cursors:
                known = first and not history
                cursors[session_id] = await _read(engine, session_id, "", None if known else printer)
                printer.text(f"{printer.named(session_id)} {cli.out.status_phrase(info.status.value)} at {position(info)}")
            ended.pop(session_id, None)
        for session_id in set(cursors) - set(ended):
            cursors[session_id] = await _read(engine, session_id, cursors[session_id], printer)
            if session_id not in moving:
                ended[session_id] = await _stopped(cli, engine, session_id, printer)
        first = False
        printer.status("  ".join(_brief(cli, printer, info) for info in moving.values()))
        if moving:
            await asyncio.sleep(LOOK_EVERY)
    printer.end()
    if cli.out.as_json:
        cli.out.document(documents.listing(list(ended.values()), len(ended), (), await engine.standing_pause()))
    if not cursors:
        cli.out.note("Nothing is running.")
    return max((_code(info) for info in ended.values()), default=DONE, key=(DONE, PERSON, FAILED).index)


async def _moving(engine: Engine) -> dict[str, SessionInfo]:
    found = [*await engine.sessions(status="running"), *await engine.sessions(status="pausing")]
    return {each.session_id: each for each in found}


async def _read(engine: Engine, session_id: str, cursor: str, printer: Printer | None) -> str:
    """What is new; printed, unless it was known before. How far that is."""
    async for event in engine.events(session_id, cursor):
        cursor = event.cursor
        if printer is not None and not (printer.out.terminal and event.event_type in NOISE):
            printer.event(event)
    return cursor


async def _stopped(cli: Cli, engine: Engine, session_id: str, printer: Printer) -> SessionInfo:
    info = await engine.info(session_id)
    said = status_note(info, await engine.pauses(session_id), await open_questions(engine, info))
    printer.text(f"{printer.named(session_id)} {cli.out.status_phrase(info.status.value)}{f': {said}' if said else ''}")
    return info


def _brief(cli: Cli, printer: Printer, info: SessionInfo) -> str:
    progress = f" {info.progress[0]}/{info.progress[1]}" if info.progress else ""
    return f"{printer.named(info.session_id)} {cli.out.status(info.status.value)} {position(info)}{progress}"


def _code(info: SessionInfo) -> int:
    return DONE if info.status.value == "sleeping" else exit_code_of(info.status.value)
