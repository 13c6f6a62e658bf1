"""``watch`` and ``events``: show what happens in sessions. They read the store and never drive a session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from datetime import date
from typing import TYPE_CHECKING

import click

from pausepoint.cli.console import money, span
from pausepoint.cli.context import Cli, exit_code_of, run_async
from pausepoint.cli.description import describe
from pausepoint.cli.exits import DONE, FAILED, PERSON, USAGE, Refused
from pausepoint.cli.options import SESSIONS, Whole, common
from pausepoint.cli.sessions import find_session
from pausepoint.cli.text import counted, one_line, position, short_ids
from pausepoint.clock import to_datetime
from pausepoint.errors import did_you_mean
from pausepoint.model.events import ENGINE_EVENTS

if TYPE_CHECKING:
    from pausepoint.cli.live import Display, View
    from pausepoint.engine.engine import Engine
    from pausepoint.model.sessions import Event
    from pausepoint.model.views import SessionInfo

LOOK_EVERY = 0.2
"""Seconds between two updates."""

GRACE = 3.0
"""Seconds to wait for a process to pick up a ready session."""

NOISE = ("operation.completed", "spent", "progress")
"""Events that a terminal shows only in its status line."""

COLOURS = {
    "step.completed": "green", "session.completed": "green", "session.failed": "red", "item.failed": "red",
    "session.paused": "yellow", "pause.requested": "yellow", "guard.refused": "yellow", "step.retried": "yellow",
    "session.cancelled": "red", "cancel.requested": "red", "redacted": "bright_black",
}  # fmt: skip


# events


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new events until the session ends.")
@click.option("--after", metavar="CURSOR", default="", help="Only events after the one with this cursor.")
@click.option("--type", "types", multiple=True, metavar="TYPE",
              help="Only this type, such as step.completed, or session for all session.*; repeatable.")  # fmt: skip
@click.option("--last", type=Whole(1), metavar="N", help="Only the last N events.")
@common(lines=True)
def events(cli: Cli, session: str, follow: bool, after: str, types: tuple[str, ...], last: int | None) -> None:
    """Show the history of a session, the oldest event first.

    Every event has a cursor, which --jsonl prints. --after CURSOR continues after that event.
    """
    if follow and cli.out.as_json:
        raise Refused("--json prints one document at the end, but --follow keeps printing. Use --jsonl.", USAGE)
    run_async(_events(cli, session, follow, after, types, last))


async def _events(cli: Cli, text: str, follow: bool, after: str, types: tuple[str, ...], last: int | None) -> None:
    from pausepoint.engine import history_documents

    async with cli.engine() as engine:
        info = await find_session(engine, text)
        printer = Printer(cli)
        past = await _past(engine, info, after)
        wanted = [each for each in past if _is_wanted(each, types)]
        if last is not None:
            wanted = wanted[-last:]
        if cli.out.as_json:
            cli.out.document(history_documents.history(info.session_id, wanted))
        for each in wanted:
            printer.event(each)
        if types and not wanted and not follow:
            cli.out.note(_no_match(types, past))
        if follow:
            cursor = past[-1].cursor if past else after
            async for each in engine.session(info.session_id).events(cursor, follow=True):
                if _is_wanted(each, types):
                    printer.event(each)


async def _past(engine: Engine, info: SessionInfo, after: str) -> list[Event]:
    try:
        return [each async for each in engine.session(info.session_id).events(after)]
    except ValueError as error:
        raise Refused(f"--after {error}", USAGE) from None


def _is_wanted(event: Event, types: Sequence[str]) -> bool:
    return not types or any(_matches(event.event_type, wanted) for wanted in types)


def _matches(kind: str, wanted: str) -> bool:
    """Return whether an event type is the wanted one, or begins with its first part.

    >>> _matches("step.completed", "step"), _matches("step.completed", "step.*"), _matches("stepping", "step")
    (True, True, False)
    """
    return kind == wanted or kind.startswith(wanted.removesuffix("*").removesuffix(".") + ".")


def _no_match(types: Sequence[str], past: Sequence[Event]) -> str:
    known = ENGINE_EVENTS | {each.event_type for each in past}
    known |= {kind.partition(".")[0] for kind in known}
    for wanted in types:
        if not any(_matches(kind, wanted) for kind in known):
            return f"There is no event type {wanted!r}{did_you_mean(wanted, known)}"
    return f"None of the {counted(len(past), 'event')} has the type {' or '.join(types)}."


class Printer:
    """Prints events, one per line. A terminal also gets colours and a status line below."""

    def __init__(self, cli: Cli, several: bool = False) -> None:
        self.out = cli.out
        self.several = several
        self.names: dict[str, str] = {}
        self.day = date.today()
        self.below = ""

    def name(self, ids: Iterable[str]) -> None:
        """Set the ids to print, shortened on a terminal."""
        self.names = short_ids(ids) if self.out.terminal else {}

    def named(self, session_id: str) -> str:
        return self.names.get(session_id, session_id)

    def event(self, event: Event) -> None:
        """Print an event as text or JSON."""
        if self.out.as_lines:
            from pausepoint.engine import history_documents

            self.out.record(history_documents.EventDocument.of(event))
        elif self.out.for_people:
            self._clear()
            self.out.line(self.out.fitted(self._line(event)))

    def text(self, line: str) -> None:
        """Print a line between the events."""
        self._clear()
        self.out.line(self.out.fitted(line))

    def status(self, line: str) -> None:
        """Replace the status line, on a terminal only."""
        if not (self.out.terminal and self.out.for_people):
            return
        self.below = self.out.fitted(line)
        click.echo(f"\r\x1b[2K{self.below}", nl=False, color=True)

    def end(self) -> None:
        """Remove the status line."""
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
        if event.event_type == "operation.completed":
            from pausepoint.engine.spans import label_of

            label = one_line(label_of(event.data["id"], event.summary, event.data.get("arguments")))
            said += self.out.paint(f"  {label}", dim=True) if label else ""
        return f"{self.out.paint(when, dim=True)}  {who}{kind}  {f'{agent}: ' if agent else ''}{said}"


# watch


@click.command()
@click.argument("session", required=False, shell_complete=SESSIONS)
@click.option("--history", is_flag=True, help="Show all past events first.")
@common(lines=True)
def watch(cli: Cli, session: str | None, history: bool) -> int:
    """Follow a session live until it ends or needs a person. Without SESSION, follow all that are running.

    A terminal also shows the live output of the session's steps, and --jsonl prints it as lines.

    The exit code reports the outcome: 0 completed, 1 failed or cancelled, 3 needs a person. Ctrl+C stops watching and
    does not affect the session.
    """
    code: int = run_async(_watch(cli, session, history) if session is not None else _watch_all(cli, history))
    return code


async def _watch(cli: Cli, text: str, history: bool) -> int:
    from pausepoint.cli.live import View, chart, display_for
    from pausepoint.engine import documents

    async with cli.engine() as engine:
        info = await find_session(engine, text)
        view = View(info.workflow, list(await engine.session(info.session_id).outline()), info=info)
        view.session_id, view.streamed = info.session_id, 0 if history else None
        show = display_for(cli.out)
        show.logs = True
        async for event in engine.session(info.session_id).events():
            view.apply(event)
            if history:
                show.event(view, event)
        view.mark_kept()
        cli.out.line(_headline(cli, info, len(view.done)))
        info = await _follow(engine, view, show, info)
        if cli.out.as_json:
            cli.out.document(documents.SessionDocument.of(info))
        for line in chart(cli.out, view) if cli.out.terminal else ():
            cli.out.line(line)
        await _print_end(cli, engine, info)
    return exit_code_of(info.status.value)


async def _follow(engine: Engine, view: View, show: Display, info: SessionInfo) -> SessionInfo:
    from pausepoint.cli.streams import streamed

    undriven: float | None = None
    if await _is_progressing(engine, info) is False:
        return info
    show.begin(view)
    try:
        async with streamed(engine, info.session_id, view, show):
            while True:
                view.info = info = await engine.session(info.session_id).info()
                # Read events after the info, so that everything the info reports is shown.
                async for event in engine.session(info.session_id).events(view.cursor):
                    view.apply(event)
                    show.event(view, event)
                show.tick(view, "")
                progressing = await _is_progressing(engine, info)
                undriven = None if progressing is not None else undriven or time.monotonic()
                if progressing is False or (undriven and time.monotonic() - undriven > GRACE):
                    return info
                await asyncio.sleep(LOOK_EVERY)
    finally:
        show.end()


async def _is_progressing(engine: Engine, info: SessionInfo) -> bool | None:
    """Return whether a session runs or will continue on its own. None: a process may be about to pick it up."""
    match info.status.value:
        case "running" | "pausing" | "sleeping":
            return True
        case "ready" | "created":
            return None
        case "waiting":
            if info.wakes_at is not None and "answer" not in info.waiting:  # a question needs a person until it expires
                return True
            moves = [await _is_progressing(engine, each) for each in await engine.session(info.session_id).children()]
            return True if True in moves else None if None in moves else False
    return False


def _headline(cli: Cli, info: SessionInfo, steps: int) -> str:
    done = f"{counted(steps, 'visit')} done" if steps else "nothing done yet"
    where = f", now {'after' if info.held_by_guard else 'at'} {info.step}#{info.visit}" if info.step else ""
    return f"{info.session_id} ({info.workflow}) {cli.out.status_phrase(info.status.value)}: {done}{where}"


async def _print_end(cli: Cli, engine: Engine, info: SessionInfo) -> None:
    out = cli.out
    spent = f", {money(info.spent_usd)}" if info.spent_usd else ""
    took = span(info.updated_at - info.created_at)
    out.line(f"{info.session_id} {out.status_phrase(info.status.value)} ({took} after it was created{spent})")
    for line in (await describe(engine, info, cli)).lines(cli):
        out.say(line)


async def _watch_all(cli: Cli, history: bool) -> int:
    """Follow all running sessions, and those that start meanwhile, until none runs."""
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
    while (running := await _running(engine)) or first or set(cursors) - set(ended):
        printer.name([*cursors, *running])
        for session_id, info in running.items():
            if session_id not in cursors:
                known = first and not history
                cursors[session_id] = await _read(engine, session_id, "", None if known else printer)
                printer.text(
                    f"{printer.named(session_id)} {cli.out.status_phrase(info.status.value)} at {position(info)}"
                )
            ended.pop(session_id, None)
        for session_id in set(cursors) - set(ended):
            cursors[session_id] = await _read(engine, session_id, cursors[session_id], printer)
            if session_id not in running:
                ended[session_id] = await _report_stopped(cli, engine, session_id, printer)
        first = False
        printer.status("  ".join(_brief(cli, printer, info) for info in running.values()))
        if running:
            await asyncio.sleep(LOOK_EVERY)
    printer.end()
    if cli.out.as_json:
        cli.out.document(documents.listing(list(ended.values()), len(ended), (), await engine.standing_pause()))
    if not cursors:
        cli.out.note("Nothing is running.")
    return max((_code(info) for info in ended.values()), default=DONE, key=(DONE, PERSON, FAILED).index)


async def _running(engine: Engine) -> dict[str, SessionInfo]:
    found = [*await engine.sessions(status="running"), *await engine.sessions(status="pausing")]
    return {each.session_id: each for each in found}


async def _read(engine: Engine, session_id: str, cursor: str, printer: Printer | None) -> str:
    """Print new events if there is a printer, and return the new cursor."""
    async for event in engine.session(session_id).events(cursor):
        cursor = event.cursor
        if printer is not None and not (printer.out.terminal and event.event_type in NOISE):
            printer.event(event)
    return cursor


async def _report_stopped(cli: Cli, engine: Engine, session_id: str, printer: Printer) -> SessionInfo:
    info = await engine.session(session_id).info()
    said = (await describe(engine, info)).note()
    printer.text(f"{printer.named(session_id)} {cli.out.status_phrase(info.status.value)}{f': {said}' if said else ''}")
    return info


def _brief(cli: Cli, printer: Printer, info: SessionInfo) -> str:
    progress = f" {info.progress[0]}/{info.progress[1]}" if info.progress else ""
    return f"{printer.named(info.session_id)} {cli.out.status(info.status.value)} {position(info)}{progress}"


def _code(info: SessionInfo) -> int:
    return DONE if info.status.value == "sleeping" else exit_code_of(info.status.value)
