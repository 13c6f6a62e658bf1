"""Live output at a terminal: text that arrives in pieces, above a live display, without a new line per piece.

Complete lines are printed above the display and stay. The rest of each text is the top row of the display, until its
line is complete. This applies to what steps send with ``ctx.stream`` and to what they print.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

from pausepoint.cli.console import cut
from pausepoint.cli.text import counted
from pausepoint.errors import PausepointError
from pausepoint.model.marks import marked_line
from pausepoint.model.streams import Gap, Restarted, StreamChunk, StreamItem

if TYPE_CHECKING:
    from pausepoint.cli.live import Display, View
    from pausepoint.engine.engine import Engine

_OPERATION = re.compile(r"/([^/~\[\]]+)(?:~[^/]*|(\[.*\]).*)$")


@asynccontextmanager
async def streamed(engine: Engine, session_id: str, view: View, show: Display) -> AsyncIterator[None]:
    """Show what a session sends inside this block, and at its end what is left."""
    if not show.streams:
        yield
        return

    async def follow() -> None:
        async for item in engine.session(session_id).stream(view.streamed, until="ended"):
            _take(item)

    def _take(item: StreamItem) -> None:
        view.streamed = item.n
        show.stream(view, item)

    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait([following])
        if not following.cancelled():
            following.exception()  # the caller finds out itself
        with suppress(PausepointError):
            async for item in engine.session(session_id).stream(view.streamed, follow=False):
                _take(item)


class Scroll:
    """Text that scrolls by above a live display. ``partial`` has the unfinished line of each source."""

    def __init__(self, print_line: Callable[[str, str], None], width: int, kinds: Collection[str] = ("text",)) -> None:
        self._kinds = kinds
        self.partial: dict[str, str] = {}
        self._print = print_line
        self._width = width
        self._titles: dict[str, str] = {}
        self._last = ""
        self._lock = threading.RLock()  # blocking steps print in their threads

    def item(self, item: StreamItem) -> None:
        """Show an item of the session's stream. Only text is shown, of some kinds."""
        with self._lock:
            if isinstance(item, StreamChunk):
                if isinstance(item.data, str) and item.kind in self._kinds:
                    is_text = item.kind == "text"  # what is logged in the midst of a line does not end it
                    source = item.source if is_text else f"{item.source} {item.kind}"
                    self._titles.setdefault(source, title(item) if is_text else f"{title(item)}, {item.kind}")
                    self.write(source, item.data, break_lines=True)
            elif isinstance(item, Restarted):
                for source in item.sources:
                    self._restart(source)
            elif isinstance(item, Gap):
                self.flush()
                self._print(
                    f"… {counted(item.lost, 'piece')} of the output {'was' if item.lost == 1 else 'were'} lost", "dim"
                )

    def write(self, source: str, text: str, break_lines: bool = False) -> None:
        """Add text to the line of a source, and print the lines that are complete."""
        with self._lock:
            *lines, rest = (self.partial.pop(source, "") + text).split("\n")
            for line in lines:
                self._line(source, line)
            while break_lines and len(fits := cut(rest, self._width)) < len(rest):
                head, rest = _broken(rest, max(len(fits), 1))
                self._line(source, head)
            if rest:
                self.partial[source] = rest

    def flush(self) -> None:
        """Print the unfinished lines."""
        with self._lock:
            for source in list(self.partial):
                self._line(source, self.partial.pop(source))

    def _restart(self, source: str) -> None:
        self.partial.pop(source, None)
        if source in self._titles:
            self._print(f"↻ {self._titles[source]} starts again", "dim")
            self._last = source

    def _line(self, source: str, line: str) -> None:
        if source in self._titles and source != self._last and len(self._titles) > 1:
            self._print(f"{self._titles[source]}:", "dim")
        if source in self._titles:
            self._last = source
        self._print(line, "" if source in self._titles else "ansi")


def shown_line(line: str) -> str:
    """Return a line of streamed text as a terminal may show it.

    >>> shown_line("a\\tb\\x1b[2J")
    'a       b␛[2J'
    """
    return marked_line(line.expandtabs())


def title(chunk: StreamChunk) -> str:
    """Return what sent a chunk, for people.

    >>> title(StreamChunk(1, "", "text", "write", 1, "/map:draft/draft[\\"x\\"]", 1, 1))
    'write, draft["x"]'
    """
    found = _OPERATION.search(chunk.operation)
    step = chunk.step if chunk.visit == 1 else f"{chunk.step}#{chunk.visit}"
    return step if found is None else f"{step}, {marked_line(found[1] + (found[2] or ''))}"


def _broken(text: str, fits: int) -> tuple[str, str]:
    """Break a line at the last space of the characters that fit, or after them.

    >>> _broken("to be or not", 8), _broken("abcdefgh", 3)
    (('to be or', 'not'), ('abc', 'defgh'))
    """
    space = fits if text[fits : fits + 1] == " " else text.rfind(" ", 0, fits)
    return (text[:space], text[space + 1 :]) if space > 0 else (text[:fits], text[fits:])


class Printed(io.TextIOBase):
    """Stands in for stdout or stderr while a live display is open."""

    def __init__(self, name: str, file: IO[str], scroll: Scroll) -> None:
        self._name = name
        self._file = file
        self._scroll = scroll
        self.ended = False  # whoever has kept this object, such as a debugger, writes to the terminal from now on

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        if self.ended:
            return self._file.write(text)
        self._scroll.write(self._name, text)
        return len(text)

    def flush(self) -> None:
        """Do nothing while the display shows the unfinished line."""
        if self.ended:
            self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()

    def isatty(self) -> bool:
        return self._file.isatty()


_before_debugger: list[Callable[[], None]] = []
_hooked = False


def before_debugger(act: Callable[[], None]) -> None:
    """Call ``act`` before a debugger takes the terminal: at ``breakpoint()``, and when `pdb` starts.

    This is an audit hook, because a function in ``sys.breakpointhook`` would be the frame that the debugger stops in.
    """
    global _hooked
    if not _hooked:
        sys.addaudithook(_audit)
        _hooked = True
    _before_debugger[:] = [act]


def _audit(event: str, args: object) -> None:
    if event in ("builtins.breakpoint", "pdb.Pdb") and os.environ.get("PYTHONBREAKPOINT") != "0":
        for act in _before_debugger:
            act()


class Redirected:
    """Sends what the program prints to a scroll until `end`."""

    def __init__(self, scroll: Scroll) -> None:
        self._before = sys.stdout, sys.stderr
        self._now = Printed("stdout", sys.stdout, scroll), Printed("stderr", sys.stderr, scroll)
        sys.stdout, sys.stderr = self._now

    def end(self) -> None:
        """Print directly again."""
        for printed in self._now:
            printed.ended = True
        if sys.stdout is self._now[0]:
            sys.stdout = self._before[0]
        if sys.stderr is self._now[1]:
            sys.stderr = self._before[1]
