"""Warns when the code of a step blocks the event loop, and with it all sessions of the process.

A thread asks the loop for a sign of life as long as sessions run, and looks at what the loop is doing if there is none.
It ends soon after the last session has parked, so an idle engine has no such thread.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.events import Handle
from collections.abc import Mapping
from contextlib import suppress
from threading import Event, Lock, Thread, get_ident
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from pausepoint.log import telemetry
from pausepoint.name import NAME
from pausepoint.runtime.drive import OURS
from pausepoint.runtime.inside import operation_in

if TYPE_CHECKING:
    from pausepoint.runtime.driver import Run

LOOK = 0.25
"""Seconds between two looks at the loop."""

TOO_LONG = 1.0
"""After how many seconds one piece of code counts as blocking the loop."""

TELL = 3.0
"""After how many seconds a warning does not wait for the end of the block."""

CALLERS = ("_call", "within", "attempts", "invoke")
"""The functions of this package that call the code of steps and operations on the loop."""

DEBUGGERS = ("bdb", "pdb", "pydevd", "_pydevd_bundle", "debugpy", "ipdb")

_LIBRARY = os.path.dirname(os.__file__)


class Culprit(NamedTuple):
    """The code of a step that runs on the loop now. ``handle`` stands for one call by the loop."""

    handle: Handle
    place: telemetry.Place
    operation: str
    line: str


class LoopWatch:
    """Watches the event loop while any of ``runs`` is at work."""

    def __init__(self, runs: Mapping[str, Run]) -> None:
        self._runs = runs
        self._lock = Lock()
        self._ending = Event()
        self._thread: Thread | None = None
        self._has_thread = False
        self._is_answered = False
        self._looked_at = 0.0  # when the loop was last asked or looked at
        self._culprit: Culprit | None = None  # what the loop was in at every look since `_since`
        self._since = 0.0
        self._told: set[str] = set()  # the steps

    def start(self) -> None:
        """Begin to watch the running loop, because a session begins to run."""
        with self._lock:
            if self._has_thread:
                return
            self._has_thread = True
        thread = Thread(target=self._watch, args=(asyncio.get_running_loop(), get_ident()), daemon=True)
        thread.name = f"{NAME}-loop-watch"
        try:
            thread.start()
            self._thread = thread
        except RuntimeError:  # the system has no more threads
            self._has_thread = False

    def stop(self) -> None:
        """End the watch, because its engine closes: the program may fork after that."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(LOOK)  # it may be in a slow handler of log lines

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        with suppress(RuntimeError):  # the loop is closed
            while not self._may_end():
                self._is_answered, self._looked_at = False, time.monotonic()
                loop.call_soon_threadsafe(self._answer)
                while self._rested() and not self._is_answered:
                    self._look(sys._current_frames().get(thread))
            return
        self._has_thread = False

    def _may_end(self) -> bool:
        self._culprit = None  # it has references to the session
        with self._lock:  # a session that begins now starts another thread
            at_work = any(not run.is_kept for run in tuple(self._runs.values()))
            self._has_thread = at_work and not self._ending.is_set()
            return not self._has_thread

    def _rested(self) -> bool:
        """Wait until the next look. Return False if the process did not run meanwhile, so that nothing is known."""
        began = time.monotonic()
        return not self._ending.wait(LOOK) and time.monotonic() - began < 2 * LOOK

    def _answer(self) -> None:
        """Called on the loop: what has blocked it has ended."""
        self._is_answered = True
        if self._culprit is not None:
            self._tell(self._culprit, "blocked", "")

    def _look(self, frame: FrameType | None) -> None:
        culprit, before = None if frame is None else _culprit(frame), self._culprit
        if before is not None and culprit is not None and before[:2] == culprit[:2]:
            if culprit.operation != before.operation:  # several in one turn of the loop
                culprit = culprit._replace(operation="")
        else:
            if before is not None:  # the next step began in the same turn
                self._tell(before, "blocked", "")
            self._since = self._looked_at
        self._culprit, self._looked_at = culprit, time.monotonic()
        if culprit is not None and self._looked_at - self._since >= TELL:
            self._tell(culprit, "has blocked", " so far")

    def _tell(self, culprit: Culprit, what: str, so_far: str) -> None:
        # Not the time in which the whole process was suspended since the last look.
        seconds = min(time.monotonic(), self._looked_at + 2 * LOOK) - self._since
        session_id, step, visit, _ = culprit.place
        with self._lock:
            if seconds < TOO_LONG or step in self._told:
                return
            self._told.add(step)
        code = f"Operation {culprit.operation!r} of step {step!r}" if culprit.operation else f"Step {step!r}"
        telemetry.log_advice(
            f"{code} {what} the event loop for {seconds:.1f} s{so_far}, at {culprit.line}. Meanwhile no session of this"
            f" process continues. Make the {'operation' if culprit.operation else 'step'} a plain def: it then runs in"
            " a thread. Or use await asyncio.sleep() or await asyncio.to_thread() there.",
            session_id, step, visit,
        )  # fmt: skip


def _culprit(inner: FrameType) -> Culprit | None:
    """Return the code of a step that a thread is in; None if it is in other code, or a debugger holds it."""
    frame: FrameType | None = inner
    code: list[FrameType] = []
    is_called = False  # by a function of this package
    while frame is not None and frame.f_code is not Handle._run.__code__:
        file = frame.f_code.co_filename
        if str(frame.f_globals.get("__name__")).partition(".")[0] in DEBUGGERS:
            return None
        if file.startswith(OURS) and not is_called:
            if not code or frame.f_code.co_name not in CALLERS:
                return None
            is_called = True
        elif not is_called and not _is_library(file):
            code.append(frame)
        frame = frame.f_back
    if frame is None or not code:
        return None
    handle: Handle = frame.f_locals["self"]
    context = handle._context  # type: ignore[attr-defined]  # the only way to it in Python 3.11
    place = telemetry.place_in(context)
    if place is None or not place.step:
        return None
    own = next((each for each in code if "site-packages" not in each.f_code.co_filename), code[-1])
    line = f"{os.path.basename(own.f_code.co_filename)}:{own.f_lineno}"
    return Culprit(handle, place, operation_in(context), line)


def _is_library(file: str) -> bool:
    return file.startswith("<frozen") or (file.startswith(_LIBRARY) and "site-packages" not in file)
