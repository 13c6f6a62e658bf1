"""Show a run: live on a terminal, as lines elsewhere, and as one document for programs."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from pausepoint import Engine
from pausepoint.apps.devs.models import Plan, log_of
from pausepoint.apps.devs.view import Row, View
from pausepoint.apps.words import display_line, many
from pausepoint.model import Event

if TYPE_CHECKING:
    from rich.live import Live

EVERY = 0.1
"""The seconds between two updates."""

SELDOM = 1.0
"""The seconds between two updates of a run that has stopped while its process stays."""

STILL = 10.0
"""The seconds without news after which a line lists the running tasks."""

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
MARKS = {
    "pending": ("·", "dim"), "blocked": ("·", "dim"), "begun": ("", "cyan"), "asks": ("?", "yellow"),
    "done": ("✓", "green"), "failed": ("✗", "red"), "skipped": ("–", "dim"), "stopped": ("↺", "yellow"),
}  # fmt: skip
WORDS = {"begun": "at work", "asks": "waiting for an answer"}
ORDER = ("done", "skipped", "begun", "asks", "stopped", "failed", "blocked", "pending")

DEEPEST = 10
"""The maximum indentation of the graph. Deeper levels are not indented further, so that names stay visible."""

Line = list[tuple[str, str]]
"""Pieces of text, each with its style."""


def counted(view: View) -> str:
    """Return the number of tasks by status."""
    counts = view.counts
    return ", ".join(f"{counts[each]} {WORDS.get(each, each)}" for each in ORDER if each in counts)


def took(seconds: float) -> str:
    """Return a time span for people.

    >>> took(0.04), took(3.21), took(75), took(7500)
    ('0.0 s', '3.2 s', '1 min 15 s', '2 h 5 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def cost(usd: float, tokens: int) -> str:
    """Return what was spent, as far as it is known.

    >>> cost(0.1234, 1200), cost(0, 300), cost(0, 0)
    ('$0.1234, 1,200 tokens', '300 tokens', '')
    """
    return ", ".join([*([f"${usd:.4f}"] if usd else []), *([f"{tokens:,} tokens"] if tokens else [])])


def drawn(view: View, width: int, height: int | None = None) -> list[Line]:
    """Draw the graph: each task is below and to the right of its dependencies. ``height`` limits the lines."""
    status = view.status
    whole = [_cut([(view.name, "bold"), (f"  {status}  ", "yellow"), (counted(view), "")], width)]
    rows = sorted(view.rows.values(), key=lambda row: row.level)
    room = len(rows) if height is None else max(height - 4, 3)
    chosen = rows if len(rows) <= room else _window(rows, room - 1)
    names = min(max((len(_name(row)) for row in chosen), default=0), max(width // 2, 20))
    whole += [_cut(_row(row, names), width) for row in chosen]
    if len(chosen) < len(rows):
        whole.append([(f"  … and {many(len(rows) - len(chosen), 'task')} more", "dim")])
    paid = {each.id: cost(each.spent_usd, each.spent_tokens) for each in view.agents}
    spent = [f"{agent} {what}" for agent, what in paid.items() if what]
    if spent:
        whole.append(_cut([(f"Spent: {'; '.join(spent)}", "dim")], width))
    if view.reason:
        whole.append(_cut([(f"{status}: {display_line(view.reason)}", "yellow")], width))
    return whole


def _name(row: Row) -> str:
    return f"{'  ' * min(row.level, DEEPEST)}{row.task.id}"


def _row(row: Row, names: int) -> Line:
    mark, style = MARKS[row.status]
    mark = mark or FRAMES[int(time.monotonic() * 10) % len(FRAMES)]
    name = _name(row)
    spent = took(row.seconds) if row.status in ("begun", "asks", "done", "failed") else ""
    who = f"{row.agent}  " if row.status == "begun" else ""
    needs = f"after {', '.join(row.task.needs)}" if row.task.needs else ""
    stopped = f"waits to run {display_line(row.call)}" if row.call else "was running; a resume continues it"
    what = {
        "asks": "waits for an answer", "failed": display_line(row.note), "blocked": "a task that it needs failed",
        "stopped": stopped, "begun": display_line(row.call or row.said),
    }  # fmt: skip
    why = display_line(row.note) or "no reason given"
    said = f"skipped: {why}" if row.status == "skipped" else what.get(row.status)
    dim = "dim" if row.status in ("pending", "blocked", "skipped") else ""
    rest = (said, "dim" if row.status == "begun" else style) if said else (needs, "dim")
    paid = cost(row.spent_usd, row.spent_tokens)
    return [
        (f"{mark} ", style), (f"{name:<{names}}  ", dim), (f"{spent:>10}  {who}", ""),
        (f"{paid}  " if paid else "", "dim"), rest,
    ]  # fmt: skip


def _window(rows: Sequence[Row], room: int) -> list[Row]:
    """Return the most relevant rows in order: running and failed tasks first, then pending, then finished ones."""
    urgency = {"begun": 0, "asks": 0, "stopped": 0, "failed": 1, "pending": 2, "blocked": 3, "skipped": 4, "done": 5}
    last = max((row.began for row in rows), default=0)
    ranked = sorted(rows, key=lambda row: (urgency[row.status], row.level, last - row.began))
    chosen = {row.task.id for row in ranked[:room]}
    return [row for row in rows if row.task.id in chosen]


def _cut(line: Line, width: int) -> Line:
    """Cut a line to a width."""
    found: Line = []
    room = width - 1
    for text, style in line:
        found.append((text if len(text) <= room else f"{text[: max(room - 1, 0)]}…", style))
        room -= len(found[-1][0])
        if room <= 0:
            break
    return found


def plain(line: Line) -> str:
    """Return a line without styles."""
    return "".join(text for text, _ in line).rstrip()


def graph(view: View) -> str:
    """Return the current graph as text, with colours at a terminal."""
    if not sys.stdout.isatty():
        return "\n".join(map(plain, drawn(view, 10_000)))
    return "\n".join(map(_painted, drawn(view, shutil.get_terminal_size((100, 24)).columns)))


def folded(text: str) -> str:
    """Wrap a sentence at a terminal, without breaking words."""
    if not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size((100, 24)).columns
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def _painted(line: Line) -> str:
    if os.environ.get("NO_COLOR"):
        return plain(line)
    looks: dict[str, dict[str, Any]] = {"bold": {"bold": True}, "dim": {"dim": True}, "": {}}
    return "".join(click.style(text, **looks.get(style, {"fg": style})) for text, style in line)


def waiting(view: View) -> str:
    """Return what a run waits for that has stopped while its process stays; empty if it is about to continue."""
    if view.status == "paused":
        return f"Paused: {display_line(view.reason)}; waiting to be resumed"
    return f"Waiting for an answer: {counted(view)}" if view.status == "waiting" else ""


class Lines:
    """A display of plain lines, one per event. ``waits``: the run has stopped, and the process stays."""

    def __init__(self, waits: bool = False) -> None:
        self.told = time.monotonic()
        self.ending = ""
        self.waits = waits
        self.waiting = ""

    def event(self, view: View, event: Event) -> None:
        """Print an event."""
        line = self._line(view, event)
        if line:
            self.told = time.monotonic()
            click.echo(line)

    def _line(self, view: View, event: Event) -> str:
        data = event.data
        row = view.rows.get(str(data.get("task", "")))
        match event.event_type:
            case "task.started":
                return f"{data['agent']} starts {data['task']}"
            case "task.completed" if row is not None:
                return f"{data['task']} is done after {took(row.took)} ({row.place} of {len(view.rows)})"
            case "task.failed":
                return f"{data['task']} failed: {display_line(data['error'])}"
            case "question.asked":
                return f"Asked: {display_line(event.summary)}"
            case "pause.requested":
                return f"Pausing: {display_line(event.summary)}"
            case "operation.retried":
                return display_line(event.summary)
        return ""

    def tick(self, view: View, ending: str) -> None:
        """Report the first request to end, and the progress after `STILL` seconds without news."""
        if self.waits:
            self._tell_waiting(view)
            return
        if ending and not self.ending:
            click.echo(f"{ending}: The running commands finish first. Interrupt again to end them now.", err=True)
        self.ending = ending
        if time.monotonic() - self.told >= STILL:
            self.told = time.monotonic()
            working = [f"{row.task.id} ({took(row.seconds)})" for row in view.rows.values() if row.status == "begun"]
            click.echo(f"Running: {', '.join(working) or 'none'}; {counted(view)}")

    def _tell_waiting(self, view: View) -> None:
        """Print what the run waits for when that changes."""
        told, self.waiting = self.waiting, waiting(view) or self.waiting
        if self.waiting != told:
            click.echo(self.waiting)

    def end(self) -> None:
        """Do nothing: lines need no cleanup."""


class Screen:
    """A live display of the graph. ``waits``: the run has stopped, and the process stays."""

    def __init__(self, waits: bool = False) -> None:
        from rich.console import Console
        from rich.live import Live

        self.live: Live = Live(console=Console(highlight=False), auto_refresh=False, transient=True)
        self.live.start()
        self.waits = waits

    def event(self, view: View, event: Event) -> None:
        """Print an attempt that failed above the graph. The next tick shows all other events."""
        if event.event_type == "operation.retried":
            self.live.console.print(display_line(event.summary), markup=False)

    def tick(self, view: View, ending: str) -> None:
        """Draw the graph again."""
        from rich.text import Text

        size = self.live.console.size
        lines = drawn(view, size.width, size.height - 1)
        if self.waits:
            lines.append([(waiting(view), "yellow")])
        elif ending:
            lines.append([("The running commands finish first. Press Ctrl+C again to end them now.", "yellow")])
        elif view.status == "pausing":
            lines.append([("Pausing: the running commands finish first", "yellow")])
        whole = Text("\n").join(Text.assemble(*line) for line in lines)
        whole.no_wrap = True
        self.live.update(whole, refresh=True)

    def end(self) -> None:
        """Stop the live display and restore the screen."""
        self.live.stop()


def show(waits: bool = False) -> Lines | Screen:
    """Return the display that fits the output."""
    return Screen(waits) if sys.stdout.isatty() else Lines(waits)


async def follow(
    engine: Engine, view: View, over: Callable[[], bool], wait: asyncio.Future[Any] | None, shown: Lines | Screen
) -> None:
    """Show a run until it is over."""
    try:
        while True:
            ended = over()
            for event in await view.look(engine):
                shown.event(view, event)
            shown.tick(view, engine.ending)
            if ended:
                return
            if wait is None:
                await asyncio.sleep(EVERY)
            else:
                await asyncio.wait([wait], timeout=SELDOM if shown.waits else EVERY)
    finally:
        shown.end()


def document(view: View, plan: Plan | None, command: Callable[..., str], named: str) -> dict[str, Any]:
    """Return the run as a document for ``--json``. ``command`` builds command lines that name the plan ``named``."""
    return {
        "run": view.name,
        "plan": None if plan is None else str(plan.path.resolve()),
        "workspace": None if plan is None else str(plan.workspace),
        "status": view.status,
        "reason": view.reason or None,
        "counts": view.counts,
        "spent_usd": view.info.spent_usd,
        "agents": [
            {"id": each.id, "task": each.task, "spent_usd": each.spent_usd, "spent_tokens": each.spent_tokens}
            for each in view.agents
        ],
        "tasks": [_task(row, plan) for row in view.rows.values()],
        "questions": [
            {"id": each.id, "task": view.task_of(each), "question": each.next_question,
             "command": command("answer", each.id, "--approve")}
            for each in view.questions
        ],
        "command": None if view.status == "completed" else command("resume", named),
    }  # fmt: skip


def _task(row: Row, plan: Plan | None) -> dict[str, Any]:
    log = None if plan is None else log_of(plan, row.task.id)
    return {
        "id": row.task.id, "status": row.status, "needs": row.task.needs, "priority": row.task.priority,
        "agent": row.agent or None, "seconds": round(row.seconds, 3), "note": row.note or None,
        "call": row.call or None, "spent_usd": row.spent_usd, "spent_tokens": row.spent_tokens,
        "output": str(log) if log is not None and log.exists() else None,
    }  # fmt: skip
