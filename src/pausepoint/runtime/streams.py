"""The live streams of an engine's sessions: what steps send and log, and who follows it in this process.

A stream is a ring (`pausepoint.stores.streams`), which followers in every process read. Followers in this process are
woken for each chunk; those in other processes look for news a few times per second.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256

from pausepoint.errors import ContextClosed, StepExited
from pausepoint.log.replay import Line
from pausepoint.model.sessions import SessionRow
from pausepoint.name import NAME
from pausepoint.runtime.inside import Inside, StepPlace, place
from pausepoint.runtime.visit import Frame, Visit
from pausepoint.stores.base import Store
from pausepoint.stores.places import MemoryPlace, Place
from pausepoint.stores.streams import (
    BYTES,
    LARGEST,
    RESTART,
    TEXT,
    Entry,
    Origin,
    Reader,
    Writer,
    mark,
    origin_of,
    unsettled,
)

TIDY_EVERY = 60.0
"""Seconds between two clean-ups of rings that nothing was written to for a long time."""

_IN_MEMORY = 256
"""How many rings are kept in the memory of this process, for stores without files."""

_NAME = 512
"""The most characters of an operation's id that a record contains."""

LOG = "log"
"""The kind of the chunks that are records of a log."""

LOGGED, LOGGED_AT_ONCE = 8_000, 32_000
"""How many characters of its log a session sends in a second, and at once: the ring is for what steps send, too."""

_RECORD = 4000
"""The most characters of a record of a log; of a longer one, the beginning and the end are sent."""

_LEFT_OUT = f"… Lines are left out here: more than {LOGGED:,} characters of a log in a second are not sent.\n"

_KIND = 100
"""The most characters of a kind."""

_NOTHING = Origin(-1, 0, 0, b"", (0, 0, 0))
_RESTART = Origin(RESTART, 0, 0, b"", (0, 0, 0))


class Streams:
    """The live streams of one engine."""

    def __init__(self, store: Store) -> None:
        self._folder = store.streams()
        self._memory: dict[int, MemoryPlace] = {}
        self._listeners: dict[int, set[asyncio.Event]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._tidied = 0.0
        tee_logs()

    def sender(self, row: SessionRow) -> Sender:
        """Return what a drive of this session sends chunks with. Nothing is opened before the first chunk."""
        return Sender(self, row)

    def place(self, row: SessionRow) -> Place:
        """Return the place of a session's ring."""
        key = row.key
        if self._folder is not None:
            return self._folder.place(key, mark(row.session_id, row.created_at))
        found = self._memory.setdefault(key, MemoryPlace())
        if len(self._memory) > _IN_MEMORY:
            del self._memory[next(each for each in self._memory if each != key)]
        return found

    def unsettled(self, row: SessionRow) -> dict[str, Entry]:
        """Return what an earlier run of a session sent without saying whether it is final. Costs little if nothing."""
        return {} if self._folder is None and row.key not in self._memory else unsettled(self.place(row))

    @contextmanager
    def following(self, row: SessionRow, after: int | None) -> Iterator[tuple[Reader, asyncio.Event]]:
        """Yield a reader of a session's stream, and an event that is set when this process sent something."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        key, reader, news = row.key, Reader(self.place(row), after), asyncio.Event()
        self._listeners.setdefault(key, set()).add(news)
        try:
            yield reader, news
        finally:
            reader.close()
            self._listeners[key].discard(news)
            if not self._listeners[key]:
                del self._listeners[key]

    def notify(self, key: int) -> None:
        """Wake the followers in this process. May be called in any thread."""
        if key not in self._listeners or self._loop is None:
            return
        if threading.get_ident() == self._thread:
            self._wake(key)
        else:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake, key)

    def _wake(self, key: int) -> None:
        for news in self._listeners.get(key, ()):
            news.set()

    def forget(self, key: int) -> None:
        """Delete the ring of a session. Raises `OSError`."""
        if self._folder is not None:
            self._folder.place(key).remove()
        elif (found := self._memory.pop(key, None)) is not None:
            found.remove()
        self._wake(key)

    def present(self) -> list[int]:
        """Return the keys of the sessions that have a ring."""
        return list(self._memory) if self._folder is None else self._folder.keys()

    def tidy(self) -> None:
        """Delete old rings in the background, at most once per `TIDY_EVERY`. There may be thousands of them."""
        now = time.monotonic()
        if self._folder is None or (self._tidied and now - self._tidied < TIDY_EVERY):
            return
        self._tidied = now
        with suppress(RuntimeError):  # the system has no more threads
            threading.Thread(target=self._folder.tidy, name=f"{NAME} streams", daemon=True).start()


class Sender:
    """Sends the chunks of one run of a session. It may be used from the threads of blocking steps."""

    def __init__(self, streams: Streams, row: SessionRow) -> None:
        self._streams = streams
        self._row = row
        self._key = row.key
        self._lock = _Lock()
        self._writer: Writer | None = None
        self._open: dict[str, tuple[Entry, Frame]] = {}  # by source: what it sent, and in which frame
        self._within: dict[str, dict[str, None]] = {}  # by operation: the sources in it, in order
        self._looked = False
        self._closed = False
        self._frame: Frame | None = None  # what sent last, how, and from where
        self._kind = ""
        self._origin = _NOTHING
        self._room, self._logged = float(LOGGED_AT_ONCE), time.monotonic()  # for a log, and when that was true
        self._is_full = False  # whether its records are left out

    def send(self, visit: Visit, frame: Frame, chunk: str | bytes, kind: str) -> None:
        """Send a chunk to the followers. If it cannot be written, it is dropped."""
        data = chunk.encode("utf-8", "surrogatepass") if isinstance(chunk, str) else _as_bytes(chunk)
        type_ = TEXT if isinstance(chunk, str) else BYTES
        with self._lock:
            if self._closed or frame.is_closed:
                return
            if frame is not self._frame or kind != self._kind or type_ != self._origin.type:
                self._turn_to(visit, frame, type_, kind)
            writer = self._writer or self._opened()
            if len(data) <= LARGEST:
                writer.write(self._origin, data)
            else:
                for piece in _pieces(type_, data):
                    writer.write(self._origin, piece)
        self._streams.notify(self._key)

    def log(self, visit: Visit, frame: Frame, text: str) -> None:
        """Send a record of a log. Those for which there is no room are left out."""
        if len(text) > _RECORD:
            text = f"{text[: _RECORD // 4]}… ‹{len(text) - _RECORD:,} characters› …{text[-_RECORD * 3 // 4 :]}"
        with self._lock:
            if self._lock.depth > 1:
                return
            now = time.monotonic()
            self._room, self._logged = min(self._room + (now - self._logged) * LOGGED, LOGGED_AT_ONCE), now
            was_full, self._is_full = self._is_full, self._room < (LOGGED if self._is_full else len(text))
            if self._is_full and was_full:
                return
            text = _LEFT_OUT if self._is_full else text
            self._room -= len(text)
            self.send(visit, frame, text, LOG)

    def _turn_to(self, visit: Visit, frame: Frame, type_: int, kind: str) -> None:
        """Prepare to send from another frame, or another kind of chunk."""
        _check_kind(kind)
        names = visit.step.name[:_NAME], _shortened(frame.scope), kind
        entry = Entry(type_, 0, 0, visit.attempt, visit.number, *names, b"")
        known = self._open.get(entry.source)
        if known is None:
            self._note_source(entry.source, frame)
        elif known[1] is not frame:  # the same operation runs again
            self._restart(self._opened(), [entry.source])
        self._open[entry.source] = entry, frame
        self._frame, self._kind, self._origin = frame, kind, origin_of(entry)

    def _note_source(self, source: str, frame: Frame) -> None:
        """Note which operations a source is in, so that `void` need not search all sources."""
        around: Frame | None = frame
        while around is not None:
            self._within.setdefault(around.scope, {})[source] = None
            around = around.parent

    def begin(self, line: Line) -> None:
        """Declare void what was sent by operations that were not remembered: the step begins at its top."""
        with self._lock:
            sent = {source: entry for source, (entry, _) in self._open.items()}
            self._open, self._within, self._frame = {}, {}, None
            if not self._looked:
                self._looked = True
                sent |= self._streams.unsettled(self._row)
            if not sent:
                return
            remembered = {_shortened(id) for id in line.operations}
            void = [source for source, entry in sent.items() if not _is_final(line, entry, remembered)]
            if void:
                self._restart(self._opened(), void)
            if self._writer is not None:
                self._writer.settle()
        if void:
            self._streams.notify(self._key)

    def void(self, scope: str, line: Line) -> None:
        """Declare void what an operation has sent, and those inside it that are not remembered: its attempt failed."""
        with self._lock:
            sent = [source for source in self._within.pop(scope, ()) if source in self._open]
            void = [source for source in sent if self._open[source][1].scope not in line.operations]
            for source in void:
                del self._open[source]
            self._frame = None
            if void:
                self._restart(self._opened(), void)
        if void:
            self._streams.notify(self._key)

    def close(self) -> None:
        """End the run. Nothing is sent after it."""
        with self._lock:
            self._closed = True
            if self._writer is not None:
                self._writer.close()

    def _opened(self) -> Writer:
        if self._writer is None:
            self._streams.tidy()
            self._writer = Writer(self._streams.place(self._row), self._row.fence)
        return self._writer

    def _restart(self, writer: Writer, sources: Iterable[str]) -> None:
        batch: list[str] = []
        for source in sources:
            batch.append(source)
            if len(batch) == 32:
                self._void(writer, batch)
                batch = []
        if batch:
            self._void(writer, batch)

    def _void(self, writer: Writer, sources: list[str]) -> None:
        writer.write(_RESTART, "\0".join(sources).encode("utf-8", "surrogatepass"))


class _Lock:
    """A lock that counts how often its thread holds it: a finalizer may log while this thread sends a chunk."""

    __slots__ = ("_lock", "depth")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.depth = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self.depth += 1

    def __exit__(self, *error: object) -> None:
        self.depth -= 1
        self._lock.release()


def _is_final(line: Line, entry: Entry, remembered: set[str]) -> bool:
    """Return whether the log has the result that these chunks belong to, so that they are not sent again."""
    if entry.visit <= line.visits.get(entry.step, 0):
        return True
    here = (entry.step, entry.visit) == (line.step, line.visit)
    return here and entry.operation in remembered


def _check_kind(kind: object) -> None:
    if not isinstance(kind, str) or not 0 < len(kind) <= _KIND:
        raise ValueError(f"kind must be a string of 1 to {_KIND} characters, such as 'text', not {kind!r:.60}.")


def _as_bytes(chunk: object) -> bytes:
    if isinstance(chunk, bytes | bytearray | memoryview):
        return bytes(chunk)
    raise TypeError(
        f"ctx.stream() takes a string or bytes, not {type(chunk).__name__}. Encode other values first, for example with"
        ' json.dumps(), and pass a kind such as "json".'
    )


def _pieces(type_: int, data: bytes) -> Iterator[bytes]:
    """Yield data in pieces that fit into a record. Text is not cut within a character."""
    if len(data) <= LARGEST:
        yield data
        return
    start = 0
    while start < len(data):
        end = min(start + LARGEST, len(data))
        while type_ == TEXT and end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        yield data[start:end]
        start = end


def _shortened(id: str) -> str:
    """Return an operation's id, shortened if its key is long. Different ids stay different.

    >>> _shortened("/draft~1f#1"), len(_shortened("/draft[" + "x" * 9000 + "]"))
    ('/draft~1f#1', 512)
    """
    if len(id) <= _NAME:
        return id
    return f"{id[: _NAME - 25]}~{sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


# what steps log

_line = logging.Formatter("%(levelname)s %(name)s: %(message)s").format


class _Tee:
    """A factory of log records that sends each one to the live output of the session whose code has made it."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self.make = make

    def __call__(self, *args: object, **kwargs: object) -> logging.LogRecord:
        record = self.make(*args, **kwargs)
        where = place()
        if where is not None and record.name and record.name.partition(".")[0] != NAME:
            try:
                _send_line(where, f"{_line(record)}\n")
            except (ContextClosed, StepExited):
                pass  # the step has ended
            except Exception:  # as handlers do: a wrong call must not break the program
                if logging.raiseExceptions and sys.stderr:
                    traceback.print_exc()
        return record


def tee_logs() -> None:
    """Send what steps log to the live output of their sessions, too, whatever the handlers of the program do with it.

    Handlers and levels stay as they are. A record that no level admits is never made.
    """
    make = logging.getLogRecordFactory()
    if not isinstance(make, _Tee):
        logging.setLogRecordFactory(_Tee(make))


def _send_line(where: Inside, line: str) -> None:
    if isinstance(where, StepPlace) and where.place is None and not where.is_here:
        where.task.get_loop().call_soon_threadsafe(_send_line, where, line)  # logging must not wait for the loop
        return
    visit, frame = where.opened()
    if visit.host.sender is not None:
        visit.host.sender.log(visit, frame, line)
