"""Running commands: each is the head of a process group of its own, which is ended as a whole.

A command that is cancelled, or takes too long, is asked to end and then made to. What it has left running in its group
ends with it. If this process itself is killed, a `warden` does that.
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
"""Characters of a command's output that are kept with its result; all of it is in a file."""

# Its standard input is the pipe to the warden, who therefore knows the group before the command begins.
_BEGIN = 'echo "+$$" >&0 || exit 70; exec "$@" </dev/null'


@dataclass(frozen=True)
class Ran:
    """A command that has ended. ``code``: as a shell would tell it; None if it took too long and was ended."""

    code: int | None
    seconds: float
    tail: str

    @property
    def said(self) -> str:
        """How it ended, in one line: the same for the same trouble."""
        last = next((line for line in reversed(self.tail.splitlines()) if line.strip()), "")
        how = "took too long and was ended" if self.code is None else f"exit code {self.code}"
        return f"{how}: {last.strip()[:300]}" if last else how


class Commands:
    """The commands of one process in one workspace. ``waited``: those of another had to end before."""

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
        """Until this workspace is ours: what a killed process has left is ended within the grace."""
        assert process.stdout is not None
        try:
            async with asyncio.timeout(self.grace + 5):
                while (said := await process.stdout.readline()) == b"busy\n":
                    self.waited = True
        except TimeoutError:
            process.kill()
            raise BadInput(f"another process works in {self.state.parent}; pause it, or wait for its end") from None
        if said != b"ready\n":
            raise BadInput(f"{self.state / LOCK} cannot be locked; look at the rights of {self.state}")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._pipe)
        if self._warden is not None:
            await self._warden.wait()

    async def run(
        self, command: str | Sequence[str], folder: Path, log: Path, timeout: float | None, env: Mapping[str, str]
    ) -> Ran:
        """Run a command to its end; its output is added to the log."""
        if self._warden is None or self._warden.returncode is not None:
            raise BadInput(f"nobody would end what {self.state.parent} leaves running: the warden was killed; resume")
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
        """End what is left of a group, in a thread: a second cancellation must not leave it half done."""
        ending = asyncio.ensure_future(asyncio.to_thread(warden.end, {process.pid}, self.grace))
        cancelled: asyncio.CancelledError | None = None
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError as again:
                cancelled = again
        await process.wait()
        with suppress(BrokenPipeError):  # somebody has killed the warden, which has nothing to do here any more
            os.write(self._pipe, f"-{process.pid}\n".encode())
        if cancelled is not None:
            raise cancelled


def _as_shell(code: int | None) -> int | None:
    """As a shell tells it: 128 and the signal, for a command that one has ended."""
    return code if code is None or code >= 0 else 128 - code


def _tail(log: Path, start: int) -> str:
    with log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(start, end - 4 * TAIL))
        return file.read().decode("utf-8", "replace")[-TAIL:]
