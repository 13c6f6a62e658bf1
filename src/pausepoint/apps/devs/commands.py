"""Run commands. Each command leads its own process group, which is ended as a whole.

A command that is cancelled or takes too long gets SIGTERM, and later SIGKILL. Other processes in its group end with it.
If this process itself is killed, a `warden` ends the groups.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from pausepoint.apps.devs import warden
from pausepoint.apps.input import BadInput

LOCK = "lock"
TAIL = 2_000
"""The number of characters of a command's output that are kept with its result. The full output is in a file."""

# The standard input is the pipe to the warden, so the warden knows the group before the command starts.
_BEGIN = 'echo "+$$" >&0 || exit 70; exec "$@" </dev/null'


@dataclass(frozen=True)
class Ran:
    """The result of a command. ``code`` is the exit code as in a shell, or None if the command timed out."""

    code: int | None
    seconds: float
    tail: str

    @property
    def said(self) -> str:
        """The result in one line. The same problem gives the same line."""
        last = next((line for line in reversed(self.tail.splitlines()) if line.strip()), "")
        how = "timed out and was ended" if self.code is None else f"exit code {self.code}"
        return f"{how}: {last.strip()[:300]}" if last else how


class Commands:
    """The commands of one process in one workspace. ``waited`` tells whether another process had to end first."""

    def __init__(self, state: Path, grace: float, env: Mapping[str, str]) -> None:
        self.state = state
        self.grace = grace
        self.env = dict(env)
        self.waited = False
        self._warden: asyncio.subprocess.Process | None = None
        self._pipe = -1

    async def __aenter__(self) -> Self:
        self.state.mkdir(parents=True, exist_ok=True)
        mine, self._pipe = os.pipe()
        os.set_inheritable(self._pipe, False)
        words = [sys.executable, "-I", "-S", warden.__file__, str(self.state / LOCK), str(self.grace)]
        try:
            self._warden = await asyncio.create_subprocess_exec(
                *words, stdin=mine, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(mine)
        try:
            await self._locked(self._warden)
        except BaseException:
            os.close(self._pipe)
            raise
        return self

    async def _locked(self, process: asyncio.subprocess.Process) -> None:
        """Wait for the lock of the workspace. The commands of a killed process end within the grace period."""
        assert process.stdout is not None
        try:
            async with asyncio.timeout(self.grace + 5):
                while (said := await process.stdout.readline()) == b"busy\n":
                    self.waited = True
        except TimeoutError:
            process.kill()
            raise BadInput(
                f"Another process is working in {self.state.parent}. Pause it, or wait until it ends."
            ) from None
        if said != b"ready\n":
            raise BadInput(f"{self.state / LOCK} cannot be locked. Check the permissions of {self.state}.")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._pipe)
        if self._warden is not None:
            await self._warden.wait()

    async def run(
        self, command: str | Sequence[str], folder: Path, log: Path, timeout: float | None, env: Mapping[str, str]
    ) -> Ran:
        """Run a command until it ends, and append its output to the log."""
        if self._warden is None or self._warden.returncode is not None:
            raise BadInput(
                f"The process that ends stray commands in {self.state.parent} (warden.py) was killed. Resume the run to"
                " start another one."
            )
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        log.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with log.open("ab") as output:
            output.write(f"--- {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC: {command}\n".encode())
            output.flush()
            start = output.tell()
            process = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c", _BEGIN, "sh", *words, stdin=self._pipe, stdout=output, stderr=output, cwd=folder,
                env={**os.environ, **self.env, **env}, start_new_session=True,
            )  # fmt: skip
        try:
            async with asyncio.timeout(timeout):
                code: int | None = await process.wait()
        except TimeoutError:
            code = None
        finally:
            await self._ended(process)
        return Ran(_as_shell(code), round(time.monotonic() - began, 3), _tail(log, start))

    async def _ended(self, process: asyncio.subprocess.Process) -> None:
        """End the rest of a group in a thread, so that a second cancellation cannot interrupt it."""
        ending = asyncio.ensure_future(asyncio.to_thread(warden.end, {process.pid}, self.grace))
        cancelled: asyncio.CancelledError | None = None
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError as again:
                cancelled = again
        await process.wait()
        with suppress(BrokenPipeError):  # the warden was killed and needs no message
            os.write(self._pipe, f"-{process.pid}\n".encode())
        if cancelled is not None:
            raise cancelled


def _as_shell(code: int | None) -> int | None:
    """Return the exit code as a shell reports it: 128 plus the signal if a signal ended the command."""
    return code if code is None or code >= 0 else 128 - code


def _tail(log: Path, start: int) -> str:
    with log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(start, end - 4 * TAIL))
        return file.read().decode("utf-8", "replace")[-TAIL:]
