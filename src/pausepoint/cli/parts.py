"""Processes that a command starts beside itself: their output, their end, and that they never outlive the command."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from pausepoint.cli.exits import CONFLICT, FAILED, Refused

GRACE = 5.0
"""Seconds that the parts get to end if the command itself is killed."""

KEPT = 12
"""How many lines of a part's output are shown if it dies."""

LONGEST_LINE = 10_000


class Part:
    """A process.

    - ``stop``: the signal that ends it at a safe point; ``end``: the one that ends it at once.
    - ``over``: the task that ends with the process, with its exit code.
    """

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, show: Callable[[str], None], stop: signal.Signals,
        end: signal.Signals,
    ) -> None:  # fmt: skip
        self.name = name
        self.process = process
        self.stop = stop
        self.end = end
        self.lines: deque[str] = deque(maxlen=KEPT)
        self.over: asyncio.Task[int] = asyncio.create_task(self._over(asyncio.create_task(_read(self, show))))

    @property
    def runs(self) -> bool:
        return self.process.returncode is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def _over(self, reading: asyncio.Task[None]) -> int:
        """Wait for the end of the process and of its output, and return its exit code as a shell does."""
        code = await self.process.wait()
        await asyncio.wait([reading], timeout=1)  # a process that it left behind may keep the pipe open
        reading.cancel()
        return code if code >= 0 else 128 - code

    def death(self, code: int) -> str:
        """Return the message about a part that ended by itself."""
        how = f"was killed by signal {code - 128}" if code > 128 else f"ended with exit code {code}"
        said = "".join(f"\n  {line}" for line in self.lines)
        return f"{self.name} {how}, so everything was stopped. " + (
            f"Its last lines:{said}" if said else "It was silent."
        )


class Parts:
    """Starts the parts of a command. If the command is killed, a warden ends them, and the next call waits for that."""

    def __init__(self, lock: Path) -> None:
        self.lock = lock
        self._pipe = -1
        self._warden: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        from pausepoint.gate import warden_command

        theirs, self._pipe = os.pipe()
        try:
            self._warden = await asyncio.create_subprocess_exec(
                *warden_command(str(self.lock), GRACE), stdin=theirs, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            await self._locked(self._warden)
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(theirs)
        return self

    async def _locked(self, warden: asyncio.subprocess.Process) -> None:
        """Wait until the parts of an earlier call that was killed have ended."""
        assert warden.stdout is not None
        said = b""
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * GRACE):
                while (said := await warden.stdout.readline()) == b"busy\n":
                    pass
        if said != b"ready\n":
            raise Refused(f"Processes of an earlier call still use {self.lock.parent}. End them first.", CONFLICT)

    async def __aexit__(self, *exc: object) -> None:
        os.close(self._pipe)
        if self._warden is not None:
            await self._warden.wait()

    async def start(
        self, name: str, words: Sequence[str], show: Callable[[str], None], *,
        stop: signal.Signals = signal.SIGTERM, end: signal.Signals = signal.SIGKILL, account: str | None = None,
    ) -> Part:  # fmt: skip
        """Start a process of its own session, so that Ctrl+C does not reach it. ``show`` gets each line it prints."""
        from pausepoint.gate import Processes, under_warden

        process = await asyncio.create_subprocess_exec(
            *under_warden(words), stdin=self._pipe, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", Processes.TOKEN: secrets.token_urlsafe(32)},
            start_new_session=True, user=account, group=account, extra_groups=None if account is None else [],
        )  # fmt: skip
        return Part(name, process, show, stop, end)


async def _read(part: Part, show: Callable[[str], None]) -> None:
    stream = part.process.stdout
    assert stream is not None
    rest = b""
    while got := await stream.read(65_536):  # not by lines: asyncio refuses a line that is too long
        *lines, rest = (rest + got).split(b"\n")
        if len(rest) > LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        for line in lines:
            text = line.decode(errors="replace").rstrip()
            part.lines.append(text)
            show(text)


def died(part: Part, code: int) -> Refused:
    """Return the refusal of a command whose part has died."""
    return Refused(part.death(code), FAILED)
