"""Stop the commands of an agent in the middle while its session is paused with ``freeze``, and continue them later.

A command that an agent has started is stopped with SIGSTOP. The agent itself and the hooks of the gate are not. A tool
call whose command is stopped no longer keeps a pause waiting.

If the server of the gate is killed, nobody is left to continue the commands. So their numbers are written to a file
before they are stopped, and the next server reads it: see `records`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from threading import Lock

from pausepoint.engine.engine import Engine
from pausepoint.errors import PausepointError
from pausepoint.gate.gates import BACKGROUND, Gate
from pausepoint.gate.offspring import offspring, processes_of
from pausepoint.gate.warden import Process, look
from pausepoint.model.sessions import Status
from pausepoint.model.views import SessionInfo
from pausepoint.threads import in_thread

SOON, LATE = 0.05, 5.0
"""Seconds between two searches for processes: first, and when the commands have been frozen for a while."""

SERVED = re.compile(r"mcp__|LSP$")
"""The names of tools that ask a process which the agent started long ago."""

_RECORD = ".frozen"


class Freezer:
    """Freezes the commands of the agent of one session. Run `follow` meanwhile.

    ``record`` is the file with the numbers of stopped processes. ``gate`` is None until the agent has reported.
    """

    def __init__(self, engine: Engine, session_id: str, record: Path) -> None:
        self.engine = engine
        self.session_id = session_id
        self.record = record
        self.gate: Gate | None = None
        self.is_over = False
        self._processes = processes_of(0)
        self._processes.adopt(_recorded(record))
        self._lock = Lock()
        self._is_wanted = False
        self._sweeping: asyncio.Task[None] | None = None
        self._swept = asyncio.Event()  # the first search is over
        self._is_noted = False

    async def follow(self) -> None:
        """Freeze and thaw as the pauses of the session say, until it has ended; without an agent, until it is thawed.

        However this ends, nothing stays frozen.
        """
        try:
            async with aclosing(self.engine.session(self.session_id).watch()) as news:
                async for info in news:
                    if await self.is_wanted(info):
                        self._begin()
                        await self._note(info)
                    elif self._is_wanted or self.gate is None:
                        await self._thaw()
                        if self.gate is None:
                            return
        except PausepointError:
            return  # the session was removed, or its guest gets the same error
        finally:
            self.is_over = True
            self._stop_sweeping()
            self._continue()

    async def is_wanted(self, info: SessionInfo) -> bool:
        """Return whether a pause of the session freezes its commands."""
        if info.status not in (Status.PAUSING, Status.PAUSED) or info.cancel_requested:
            return False
        return any(pause.freeze for pause in await self.engine.session(self.session_id).pauses())

    def _begin(self) -> None:
        if not self._is_wanted:
            self._is_wanted, self._is_noted = True, False
            self._swept.clear()
            self._sweeping = asyncio.create_task(self._sweep(), name=f"freeze {self.session_id}")

    async def _sweep(self) -> None:
        """Stop processes again and again, because a tool call may begin its command a moment later."""
        gap = SOON
        try:
            while True:
                if (pid := self._agent()) is not None:
                    self._processes.parent = pid
                    await in_thread(self._stop)
                    self._mark_calls(pid)
                self._swept.set()
                await asyncio.sleep(gap)
                gap = min(2 * gap, LATE)
        except OSError as error:  # of the record: what is not in there must not be stopped
            if self.gate is not None:
                self.gate.say(f"its commands are not frozen, because {self.record} cannot be written: {error.strerror}")
        finally:
            self._swept.set()

    def _agent(self) -> int | None:
        """Return the process of the agent, or None if it has none, or its commands cannot be told from others."""
        gate = self.gate
        if gate is None or gate.process is None or gate.is_script:
            return None
        pid = gate.process.pid
        now = look(pid)
        if now is None or now.start != gate.process.start:
            return None
        if pid in _ancestors(os.getpid()):
            if not self._swept.is_set():
                gate.say("its commands are not frozen, because the server of the gate is one of them")
            return None
        return pid

    def _stop(self) -> None:
        with self._lock:
            if self._is_wanted:
                self._processes.freeze(self._write)

    def _write(self, found: Sequence[Process]) -> None:
        with self.record.open("a", encoding="ascii") as file:
            file.writelines(f"{each.pid} {each.start}\n" for each in found)

    def _mark_calls(self, pid: int) -> None:
        """Let go of the calls in flight whose commands are frozen.

        Agents do not tell which process belongs to which call. So a call counts as frozen if there are at least as
        many frozen commands that started after it began as there are calls that began no earlier.
        """
        if self.gate is None or not self._is_wanted:
            return
        commands = [each.start for each in self._processes.frozen if each.parent == pid]
        served = [call for call in self.gate.in_flight if SERVED.match(call.name)]
        own = [call for call in self.gate.in_flight if call not in served]
        still = served if commands else []
        for call in own:
            since = sum(start >= call.began for start in commands)
            if since >= sum(other.began >= call.began for other in own):
                still.append(call)
        for call in still:
            call.let_go.set()

    async def _note(self, info: SessionInfo) -> None:
        """Record the frozen commands once, when the session is paused."""
        if info.status is Status.PAUSED and not self._is_noted and self.gate is not None:
            self._is_noted = True
            await self._swept.wait()
            await note_commands(self.engine, self.session_id, self.gate)

    async def _thaw(self) -> None:
        self._stop_sweeping()
        await in_thread(self._continue)

    def _stop_sweeping(self) -> None:
        self._is_wanted = False
        if self._sweeping is not None:
            self._sweeping.cancel()
        for call in () if self.gate is None else self.gate.in_flight:
            call.let_go.clear()

    def _continue(self) -> None:
        with self._lock:
            if not self._is_wanted:
                self._processes.thaw()
                self.record.unlink(missing_ok=True)


async def note_commands(engine: Engine, session_id: str, gate: Gate) -> None:
    """Record the commands that an agent has left running, or that are frozen, and which calls have begun."""
    left = await in_thread(offspring, gate.process.pid) if gate.process is not None else []
    begun = [call.id for call in gate.in_flight if not call.ended.done()]
    if left:
        gate.say(f"has left running: {'; '.join(left)}")
    if left or begun:
        with suppress(PausepointError):  # it was resumed meanwhile
            await engine.session(session_id).emit(BACKGROUND, "; ".join(left), {"commands": left, "begun": begun})


def record_of(socket: Path, session_id: str) -> Path:
    """Return the file with the numbers of the processes that were stopped for a session, next to the gate's socket."""
    return socket.with_name(f"{socket.name}.{session_id}{_RECORD}")


def records(socket: Path) -> Iterator[tuple[str, Path]]:
    """Yield the sessions with a record, which a killed server has left."""
    for path in socket.parent.glob(f"{socket.name}.*{_RECORD}"):
        yield path.name[len(socket.name) + 1 : -len(_RECORD)], path


def _recorded(record: Path) -> Iterator[tuple[int, int]]:
    with suppress(OSError):
        for line in record.read_text("ascii", "replace").splitlines():
            if re.fullmatch(r"[0-9]{1,10} [0-9]{1,20}", line):  # the last one may be cut off
                pid, start = line.split()
                yield int(pid), int(start)


def _ancestors(pid: int) -> Iterator[int]:
    while (process := look(pid)) is not None:
        yield pid
        pid = process.parent
