"""Show a session while it runs: a view folded from its events, and the displays of that view.

A terminal gets a live display and a chart at the end, a pipe gets plain lines, ``--jsonl`` gets the events themselves.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from pausepoint.cli.console import COLOURS, Output, money, span
from pausepoint.cli.host import host
from pausepoint.cli.streams import Redirected, Scroll, before_debugger, shown_line, streamed
from pausepoint.cli.text import clock, counted, limited, one_line, wait_phrase
from pausepoint.engine import history_documents
from pausepoint.engine.spans import Spans

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from pausepoint.engine.engine import Engine
    from pausepoint.engine.spans import Span
    from pausepoint.model.sessions import Event
    from pausepoint.model.streams import StreamItem
    from pausepoint.model.views import Outcome, SessionInfo

IsParked: TypeAlias = "Callable[[Engine, View], Awaitable[bool]]"

EVERY = 0.1
"""Seconds between two updates."""

REDRAW = 0.05
"""Seconds between two updates while a step sends live output."""

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
"""The frames of the spinner."""

UNUSED = ("operation.missed", "operation.unused")
"""The events about remembered results that are not used. The last lines repeat them."""

TOLD = ("step.retried", "operation.retried", "artifact.set_aside", *UNUSED)
"""The events that are shown as they are."""

SAY_PROGRESS = 10.0
"""Seconds between two progress lines about the items of a map, without a terminal."""


def visit_name(step: str, visit: int) -> str:
    """Return the short name of a visit.

    >>> visit_name("write", 1), visit_name("write", 2)
    ('write', 'write#2')
    """
    return step if visit == 1 else f"{step}#{visit}"


@dataclass
class Visit:
    """A finished visit. ``kept``: it finished before this command started."""

    span: Span
    kept: bool = False

    @property
    def step(self) -> str:
        return self.span.step

    @property
    def number(self) -> int:
        return self.span.visit

    @property
    def name(self) -> str:
        return visit_name(self.step, self.number)

    @property
    def took(self) -> float:
        return self.span.took.total_seconds()

    @property
    def usd(self) -> float:
        return self.span.usd

    @property
    def skipped(self) -> str:
        return self.span.skipped

    @property
    def ended_at(self) -> float:
        return 0.0 if self.span.ended_at is None else self.span.ended_at.timestamp() * 1e6


@dataclass
class View:
    """The current knowledge of a session, folded from its events."""

    workflow: str
    outline: list[str] = field(default_factory=list)
    done: list[Visit] = field(default_factory=list)
    info: SessionInfo | None = None
    session_id: str = ""
    cursor: str = ""
    streamed: int | None = 0  # the last item of the session's stream that was shown; None: begin with what comes
    spans: Spans = field(default_factory=Spans)
    stored_paused: bool = False  # the session was stored paused and has not run yet
    resuming: bool = False  # a resume was requested and is not in the log yet
    unused: list[str] = field(default_factory=list)  # what was said in this run about results that are not used
    tried_again: tuple[tuple[int, ...], bool] = (
        (),
        False,
    )  # do operations wait to be retried, as of these records?
    began: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> timedelta:
        return timedelta(seconds=time.monotonic() - self.began)

    def apply(self, event: Event) -> None:
        """Fold in one event."""
        self.cursor = event.cursor or self.cursor
        self.spans.apply(event)
        match event.event_type:
            case "step.completed" | "step.skipped":
                self._ended()
            case "session.created" | "session.forked" | "session.resumed":
                self.resuming = False
            case "session.rewound":
                kept = {span.seq for span in self.spans.done if not span.left_behind}
                self.done = [visit for visit in self.done if visit.span.seq in kept]
            case "pause.requested":
                self.stored_paused = not self.done and not self.remembered
            case "session.paused":
                self.stored_paused = False
            case kind if kind in UNUSED:
                self.unused.append(event.summary)

    def _ended(self) -> None:
        visit = Visit(self.spans.done[-1])
        self.resuming = False
        self.done.append(visit)
        if visit.step not in self.outline:
            self.outline.append(visit.step)

    @property
    def remembered(self) -> int:
        """The number of operations of the open visit that have ended."""
        return self.spans.remembered

    def mark_kept(self) -> None:
        """Mark all visits so far as finished before this command started."""
        self.unused.clear()
        for visit in self.done:
            visit.kept = True

    def visits(self, step: str) -> list[Visit]:
        return [visit for visit in self.done if visit.step == step]

    def by_step(self) -> dict[str, list[Visit]]:
        found: dict[str, list[Visit]] = {}
        for visit in self.done:
            found.setdefault(visit.step, []).append(visit)
        return found

    @property
    def open(self) -> tuple[str, int] | None:
        """The visit that is running now."""
        info = self.info
        if info is None or info.step is None or self.resuming or info.status.value not in ("running", "pausing"):
            return None
        here = (info.step, info.visit)
        return None if any((visit.step, visit.number) == here for visit in self.visits(info.step)) else here

    @property
    def last(self) -> str | None:
        """The name of the last checkpoint."""
        return self.done[-1].name if self.done else None


class Display:
    """How a session is shown. This base class shows nothing, which ``--json`` needs."""

    streams = False  # whether live output of steps is shown
    logs = False  # whether it includes what they log; a session of this process logs to the terminal itself

    def begin(self, view: View) -> None:
        """Prepare the display."""

    def event(self, view: View, event: Event) -> None:
        """Show an event. The view already contains it."""

    def step(self, step: str, visit: int) -> None:
        """Show that a step is about to run. All events before it have been shown."""

    def stream(self, view: View, item: StreamItem) -> None:
        """Show live output."""

    def tick(self, view: View, ending: str) -> None:
        """Update the display. ``ending``: why this program must exit, if it must."""

    def end(self) -> None:
        """Close the display."""


class Records(Display):
    """Prints every event as a line of JSON."""

    streams = True

    def __init__(self, out: Output) -> None:
        self.out = out

    def event(self, view: View, event: Event) -> None:
        self.out.record(history_documents.EventDocument.of(event))

    def stream(self, view: View, item: StreamItem) -> None:
        self.out.record(history_documents.stream_item(view.session_id, item))


class Lines(Display):
    """Prints plain lines, in the order of the events."""

    def __init__(self, out: Output) -> None:
        self.out = out
        self.word = host().step_word
        self.announced: set[tuple[str, int]] = set()
        self.progress: tuple[int, int] | None = None
        self.progress_at = time.monotonic()
        self.ending = ""
        self.pausing = False
        self.slot: str | None = None

    def event(self, view: View, event: Event) -> None:
        match event.event_type:
            case "session.resumed" if self.out.shows_steps:
                for line in resume_lines(view, event):
                    self.out.line(line)
            case "step.completed" if self.out.shows_steps:
                visit = view.done[-1]
                self.step(visit.step, visit.number)
                cost = f", {money(visit.usd)}" if visit.usd else ""
                self.out.line(f"Finished {self.word}: {visit.name} in {span(timedelta(seconds=visit.took))}{cost}")
            case "step.skipped" if self.out.shows_steps:
                self.out.line(f"Skipped {self.word}: {view.done[-1].name} ({one_line(view.done[-1].skipped)})")
            case "session.waiting":
                self.out.line(f"Waiting {one_line(event.summary.removeprefix('waits '))}")
            case kind if kind in TOLD:
                self.out.line(one_line(event.summary))

    def step(self, step: str, visit: int) -> None:
        if self.out.shows_steps and (step, visit) not in self.announced:
            self.announced.add((step, visit))
            self.out.line(f"Running {self.word}: {visit_name(step, visit)}")

    def tick(self, view: View, ending: str) -> None:
        here, info = view.open, view.info
        slot = None if info is None else info.waits_for_slot
        if slot and not self.slot:
            self.out.line(f"Waiting for a free slot of {slot}")
        self.slot = slot
        if here is not None and info is not None:
            if info.status.value == "running" and not ending:
                self.step(*here)
            self._items(info)
            if info.status.value == "pausing" and not self.pausing:
                self.out.line(f"Pausing at the next safe point of {visit_name(*here)}")
            self.pausing = info.status.value == "pausing"
            if ending and not self.ending:
                what = f"finishing the current operation of {visit_name(*here)}; a second signal aborts it"
                self.out.note(f"{ending}: {what}")
        self.ending = ending

    def _items(self, info: SessionInfo) -> None:
        if info.progress is None or info.progress == self.progress or info.step is None:
            return
        if time.monotonic() - self.progress_at >= SAY_PROGRESS:
            self.progress, self.progress_at = info.progress, time.monotonic()
            self.out.line(f"  {visit_name(info.step, info.visit)}: {info.progress[0]} of {info.progress[1]}")


def resume_lines(view: View, event: Event) -> list[str]:
    """Return the lines about a resume: where the session continues, and what does not run again."""
    if event.data.get("in_place"):
        return [f"Resumed in place: {event.data['step']} continues"]
    count = event.data.get("operations", 0)  # those before a rewind or a fork are not in the view
    kept = [f"{counted(count, 'operation')} of {event.data['step']}"] if count else []
    skipped = [visit.name for visit in view.done if not visit.skipped]
    from_where = "No checkpoints found, starting from scratch"
    if view.last is not None:
        from_where = f"Resuming from checkpoint: {view.last}"
    elif event.data.get("skipped"):  # a fork: the visits before it are in another session's log
        from_where = f"Starting at {event.data['step']}, as forked"
    elif kept:
        from_where = f"Resuming within {event.data['step']}: there is no checkpoint yet"
    elif view.stored_paused:
        return []
    before = "; ".join([few(skipped)] * bool(skipped) + kept)
    return [from_where] + [f"Skipped, done before: {before}"] * bool(before)


def few(names: list[str], most: int = 8) -> str:
    """Return the names as a list, shortened if there are many.

    >>> few(["a", "b", "c", "d"], 3)
    'a, b, … (4 in all)'
    """
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[: most - 1])}, … ({len(names)} in all)"


class Screen(Display):
    """A live display on a terminal."""

    streams = True

    def __init__(self, out: Output) -> None:
        self.out = out
        self.live: Live | None = None
        self.scroll: Scroll | None = None
        self.drawn_at = 0.0

    def begin(self, view: View) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=sys.stdout, no_color=not self.out.colour, highlight=False)
        self.live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False,
                         redirect_stderr=False)  # fmt: skip
        self.live.start()
        self.scroll = Scroll(self._scrolled, console.width, ("text", "log") if self.logs else ("text",))
        self.redirected = Redirected(self.scroll)
        before_debugger(self.end)  # it stays off: nobody knows when the debugger has let the terminal go

    def event(self, view: View, event: Event) -> None:
        if event.event_type == "session.resumed" and self.out.shows_steps:
            self._above(resume_lines(view, event))
        elif event.event_type in TOLD:
            self._above([one_line(event.summary)])

    def _above(self, lines: list[str]) -> None:
        if self.live is not None:
            for line in lines:
                self.live.console.print(line, markup=False)

    def _scrolled(self, line: str, style: str) -> None:
        from rich.ansi import AnsiDecoder
        from rich.text import Text

        if self.live is not None:
            decoded = style == "ansi"  # the program's own output may have colours; text of a model must not
            self.live.console.print(AnsiDecoder().decode_line(line) if decoded else Text(shown_line(line), style))

    def stream(self, view: View, item: StreamItem) -> None:
        if self.scroll is not None:
            self.scroll.item(item)
            if time.monotonic() - self.drawn_at >= REDRAW:
                self.tick(view, "")

    def tick(self, view: View, ending: str) -> None:
        live, scroll = self.live, self.scroll  # a debugger in a step's thread may end the display meanwhile
        if live is not None and scroll is not None and view.info is not None:
            self.drawn_at = time.monotonic()
            height = live.console.height if self.out.shows_steps else 0  # then only the steps around the current one
            shown = render(view, view.info, ending, height, list(scroll.partial.values())[-3:])
            live.update(shown, refresh=live.is_started)

    def end(self) -> None:
        live, scroll = self.live, self.scroll
        if live is not None and scroll is not None:
            self.redirected.end()
            scroll.flush()
            self.live = self.scroll = None
            live.stop()


def render(view: View, info: SessionInfo, ending: str, height: int, partial: Sequence[str] = ()) -> Table:
    """Return the live display: unfinished lines of output, a line about the session, then a row per step."""
    from rich.table import Table
    from rich.text import Text

    whole = Table.grid()
    for line in partial:
        whole.add_row(Text(shown_line(line.rpartition("\r")[2]), overflow="ellipsis", no_wrap=True))
    whole.add_row(Text.assemble(*_head(view, info), overflow="ellipsis", no_wrap=True))
    rows = Table.grid(padding=(0, 2))
    here, done = view.open, view.by_step()
    for step in _window(view, info.step, max(height - 5 - len(partial), 3)):
        visits = done.get(step, [])
        if here is not None and here[0] == step:
            turning = Text(FRAMES[int(time.monotonic() * 10) % len(FRAMES)], style=COLOURS[info.status.value])
            rows.add_row(turning, Text(visit_name(*here), style="bold"), *_running_cells(view, info))
        elif step == info.step and info.status.value in ("sleeping", "waiting"):
            rows.add_row(
                Text("◦", style=COLOURS[info.status.value]), visit_name(step, info.visit), "", "", info.status.value
            )
        elif visits:
            rows.add_row(*_finished_row(visits))
        else:
            rows.add_row(Text("·", style="dim"), Text(step, style="dim"), "", "", "")
    whole.add_row(rows)
    if ending:
        whole.add_row(Text("Finishing the current operation; Ctrl+C again aborts it", style="yellow"))
    elif info.status.value == "pausing":
        whole.add_row(Text("Pausing at the next safe point", style="yellow"))
    elif info.status.value == "paused" and info.kept_by is not None:
        whole.add_row(
            Text("Paused; a resume from any terminal continues the step in place, Ctrl+C exits", style="yellow")
        )
    return whole


def _head(view: View, info: SessionInfo) -> list[Any]:
    status = info.status.value
    shown: list[Any] = [(view.workflow, "bold"), f" {info.session_id} ", (status, COLOURS.get(status, ""))]
    steps = len({visit.step for visit in view.done})
    parts = [
        f"{steps} of {counted(len(view.outline), 'step')}",
        span(timedelta(seconds=int(view.elapsed.total_seconds()))),
    ]
    if info.spent_usd or info.budget_usd is not None:
        of = f" of {money(info.budget_usd)}" if info.budget_usd is not None else ""
        parts.append(money(info.spent_usd) + of)
    parts += limited(info)
    if status == "sleeping" and info.wakes_at:
        parts.append(f"until {clock(info.wakes_at)}")
    if status == "waiting":
        parts.append(wait_phrase(info))
    if info.waits_for_slot:
        parts.append(f"waits for a free slot of {info.waits_for_slot}")
    return [*shown, "  " + " · ".join(parts)]


def _finished_row(visits: list[Visit]) -> tuple[Any, ...]:
    from rich.text import Text

    last, took, usd = visits[-1], sum(visit.took for visit in visits), sum(visit.usd for visit in visits)
    if last.skipped:
        why = Text(f"skipped: {one_line(last.skipped)}", style="dim")
        return Text("–", style="dim"), Text(last.step, style="dim"), "", "", why
    what = "kept" if all(visit.kept for visit in visits) else ""
    count = counted(len(visits), "visit") if len(visits) > 1 else ""
    return (
        Text("✓", style="green"), last.step, span(timedelta(seconds=took)), money(usd) if usd else "",
        Text(", ".join(filter(None, (count, what))), style="dim"),
    )  # fmt: skip


def _running_cells(view: View, info: SessionInfo) -> tuple[Any, ...]:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    took = span(timedelta(seconds=max(int(time.time() - view.spans.since / 1e6), 0)))
    cost = money(view.spans.usd) if view.spans.usd else ""
    if info.progress is None:
        return took, cost, ""
    done, total = info.progress
    bar = Table.grid(padding=(0, 1))
    bar.add_row(ProgressBar(total=max(total, 1), completed=done, width=20), f"{done}/{total}")
    return took, cost, bar


def _window(view: View, here: str | None, room: int) -> list[str]:
    """Return as many steps as fit, around the current one."""
    steps = view.outline
    if len(steps) <= room:
        return steps
    middle = steps.index(here) if here in steps else len(steps) - 1
    first = min(max(middle - room // 2, 0), len(steps) - room)
    return steps[first : first + room]


def display_for(out: Output) -> Display:
    """Return the display for this output."""
    if out.as_lines:
        return Records(out)
    if out.as_json:
        return Display()
    return Screen(out) if out.terminal else Lines(out)


async def catch_up(engine: Engine, session_id: str, view: View) -> None:
    """Bring a view up to date without showing anything."""
    async for event in engine.session(session_id).events():
        view.apply(event)
    async for item in engine.session(session_id).stream(follow=False):
        view.streamed = item.n
    view.mark_kept()


class Following:
    """Shows one session while it runs."""

    def __init__(self, view: View, show: Display) -> None:
        self.view = view
        self.show = show
        self._looking = asyncio.Lock()  # a starting step and the timer may both read events

    async def step(self, engine: Engine, session_id: str, step: str, visit: int) -> None:
        """Show the events before a step, then the start of the step."""
        async with self._looking:
            await self._events(engine, session_id)
            self.show.step(step, visit)

    async def _events(self, engine: Engine, session_id: str) -> None:
        async for event in engine.session(session_id).events(self.view.cursor):
            self.view.apply(event)
            self.show.event(self.view, event)

    async def look(self, engine: Engine, session_id: str) -> None:
        """Show the new events and the current status."""
        async with self._looking:
            await self._events(engine, session_id)
            self.view.info = await engine.session(session_id).info()
            self.show.tick(self.view, engine.ending)

    async def until(
        self, engine: Engine, session_id: str, outcome: asyncio.Future[Outcome[Any]], is_parked: IsParked | None = None
    ) -> Outcome[Any]:
        """Show the session until its outcome is known, or until ``is_parked`` says not to wait for it."""
        self.show.begin(self.view)
        self.view.session_id = session_id
        try:
            async with streamed(engine, session_id, self.view, self.show):
                while True:
                    over = outcome.done()
                    await self.look(engine, session_id)
                    if over:
                        return outcome.result()
                    if is_parked is not None and await is_parked(engine, self.view):
                        return await engine.session(session_id).outcome(wait=False)
                    await asyncio.wait([outcome], timeout=EVERY)
        except asyncio.CancelledError:  # the program must exit, and steps may have ended since the last update
            await self.look(engine, session_id)
            raise
        finally:
            self.show.end()


def chart(out: Output, view: View) -> Iterable[str]:
    """Return a bar chart of the steps that ran in this run, one line each."""
    here = [visit for visit in view.done if not visit.kept and not visit.skipped]
    if not here:
        return
    begin = min(visit.ended_at - visit.took * 1e6 for visit in here)
    whole = max(max(visit.ended_at for visit in here) - begin, 1)
    done = view.by_step()
    steps = [step for step in view.outline if step in done]
    names = max(map(len, steps))
    room = min(max(out.width - names - 26, 10), 60)
    for step in steps:
        visits = done[step]
        yield f"  {step.ljust(names)}  {_bar(out, visits, begin, whole, room)}  {_cost(visits)}".rstrip()


def _bar(out: Output, visits: list[Visit], begin: float, whole: float, room: int) -> str:
    if visits[-1].skipped:
        return out.paint("skipped".ljust(room), dim=True)
    if all(visit.kept for visit in visits):
        return out.paint("kept".ljust(room), dim=True)
    cells = [" "] * room
    for visit in visits:
        if not visit.kept and not visit.skipped:
            first = int((visit.ended_at - visit.took * 1e6 - begin) / whole * room)
            last = max(int((visit.ended_at - begin) / whole * room), first + 1)
            for cell in range(min(first, room - 1), min(last, room)):
                cells[cell] = "█"
    return out.paint("".join(cells), "green")


def _cost(visits: list[Visit]) -> str:
    took, usd = sum(visit.took for visit in visits), sum(visit.usd for visit in visits)
    count = f"×{len(visits)}" if len(visits) > 1 else ""
    shown = "" if visits[-1].skipped else span(timedelta(seconds=took))
    return "  ".join(filter(None, (shown.rjust(9), money(usd) if usd else "", count)))
