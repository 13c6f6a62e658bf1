"""The socket at which the hooks of agents report."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from pausepoint.errors import GateRefused
from pausepoint.gate.gates import Answer, Gate
from pausepoint.gate.reports import Report, decode_report

LIMIT = 1 << 20
"""The most bytes of one line."""


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

        def answer(said: Answer) -> None:
            if not writer.is_closing():
                writer.write(msgspec.json.encode(said) + b"\n")
                if said["do"] != "wait":
                    writer.close()

        try:
            await self._heard(reader, answer, writer)
        except (ValueError, RecursionError, GateRefused) as error:
            answer({"do": "refuse", "reason": f"The gate refuses this report: {error}"})
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the hook has gone, or the server ends
        finally:
            self._talks.discard(task)
            writer.close()

    async def _heard(
        self, reader: asyncio.StreamReader, answer: Callable[[Answer], None], writer: asyncio.StreamWriter
    ) -> None:
        if _uid(writer) not in (None, os.getuid()):
            raise GateRefused("it comes from another user.")
        report = decode_report(await reader.readline())
        gate = self._find(report)
        call = gate.heard(report, answer)
        if call is not None:
            try:
                await reader.read(1)  # ends when the hook has read the answer, or has gone
            finally:
                gate.left(call, answer)


def _uid(writer: asyncio.StreamWriter) -> int | None:
    """Return the user at the other end, or None where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    found = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", found)[1])
