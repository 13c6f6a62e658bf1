"""The socket at which the hooks of agents report."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from pausepoint.errors import GateRefused
from pausepoint.gate.gates import OK, Answer, Gate
from pausepoint.gate.reports import RAW, Report, decode_head, decode_report
from pausepoint.integrations.gate import Wait, announced, find, printed, report
from pausepoint.threads import in_thread

LIMIT = 1 << 20
"""The most bytes of one line."""

_WAIT, _PRINT = b"wait\n", b"="
"""What the hook in C is told: to wait on, or to print the rest of the line. After any other line, such as an error, it
leaves the call to the hook in Python."""


class GateSocket:
    """The socket at which hooks report. ``find(report)`` returns the gate of an agent; it may raise `GateRefused`."""

    def __init__(self, path: Path, find: Callable[[Report], Gate]) -> None:
        self.path = path
        self._find = find
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[Any]] = set()
        self._inode = 0

    async def __aenter__(self) -> Self:
        await self._check_free()
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.bind(str(self.path))
            self.path.chmod(0o600)  # nobody can connect before it listens
            self._server = await asyncio.start_unix_server(self._talk, sock=line, limit=LIMIT, backlog=1024)
        except OSError as error:
            line.close()
            raise GateRefused(f"The gate cannot be opened at {self.path}: {error.strerror or error}.") from error
        self._inode = self.path.stat().st_ino
        return self

    async def _check_free(self) -> None:
        """Remove the socket that a killed server left. Refuse if a server listens there."""
        try:
            if not stat.S_ISSOCK(self.path.lstat().st_mode):
                raise GateRefused(f"{self.path} exists and is not a socket. Remove it, or choose another path.")
            _, writer = await asyncio.open_unix_connection(str(self.path))
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            with suppress(FileNotFoundError):
                self.path.unlink()
            return
        writer.close()
        raise GateRefused(f"Another process serves the gate at {self.path}. End it first, or use it.")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for talk in tuple(self._talks):
            talk.cancel()
        with suppress(OSError):
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        hook = _Hook()

        def answer(said: Answer) -> None:
            if not writer.is_closing():
                writer.write(hook.line(said))
                if said["do"] != "wait":
                    writer.close()

        try:
            if _uid(writer) not in (None, os.getuid()):
                raise GateRefused("it comes from another user.")
            heard = await hook.heard(reader)
            if heard is None:
                answer(OK)
            else:
                await self._attend(heard, answer, reader)
        except (ValueError, RecursionError, GateRefused) as error:
            answer({"do": "refuse", "reason": f"The gate refuses this report: {error}"})
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the hook has gone, or the server ends
        finally:
            self._talks.discard(task)
            writer.close()

    async def _attend(self, heard: Report, answer: Callable[[Answer], None], reader: asyncio.StreamReader) -> None:
        gate = self._find(heard)
        call = gate.heard(heard, answer)
        if call is not None:
            try:
                await reader.read(1)  # ends when the hook has read the answer, or has gone
            finally:
                gate.left(call, answer)


class _Hook:
    """The hook at the other end. The one in C sends the JSON of the agent as it is, and prints what it is told."""

    def __init__(self) -> None:
        self.kind = ""  # of the agent, once the hook in C has been understood
        self.wait = Wait(time.monotonic())
        self._message: dict[str, Any] = {}
        self._flag = ""

    async def heard(self, reader: asyncio.StreamReader) -> Report | None:
        """Read what it reports. None if the gate does not need it."""
        line = await reader.readline()
        if not line.startswith(RAW):
            return decode_report(line)
        head = decode_head(line)
        data = await reader.readexactly(head.raw)
        try:
            message = report(json.loads(data), head.kind, head.token, head.pid)
        except Exception as error:  # whatever it is, the hook in Python fails in the same way, and says so
            raise ValueError(f"it cannot be read: {error}") from error
        self.kind = head.kind
        if message is None:
            return None
        self._message = message
        if message["event"] == "prompt":
            self._flag = await in_thread(_flag_of, message["agent"]["folder"])
        return decode_report(json.dumps(message))  # as the hook in Python sends it

    def line(self, said: Answer) -> bytes:
        """Return an answer as this hook reads it."""
        if not self.kind:
            return msgspec.json.encode(said) + b"\n"
        if said["do"] == "wait":
            self.wait.why = str(said.get("why", ""))
            return _WAIT
        if self._message.get("event") == "before":
            text = printed(self.wait.told(said), self.kind)
        else:
            text = announced(said, self._message, self._flag) if self._message else ""
        return _PRINT + text.encode() + b"\n"


def _flag_of(folder: str) -> str:
    """Return the file that exists while everything is paused, for an agent in a folder; empty if it has none."""
    try:
        place = find({}, folder)
    except ValueError:
        return ""
    return "" if place is None else place.flag


def _uid(writer: asyncio.StreamWriter) -> int | None:
    """Return the user at the other end, or None where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    found = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", found)[1])
