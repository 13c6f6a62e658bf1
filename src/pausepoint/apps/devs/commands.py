"""Run commands. All processes of a command are found, frozen and ended together; see `Processes`.

A command that is cancelled or takes too long gets SIGTERM, and later SIGKILL. Its other processes end with it. If this
process itself is killed, a warden ends them. A command that is frozen, or waits at its gate, can be kept while its run
is paused.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pausepoint.apps.devs.output import LIMIT, Output
from pausepoint.apps.input import BadInput
from pausepoint.gate import Processes, adopt_orphans, under_warden, warden_command

LOCK = "lock"
TAIL = 2_000
"""The number of characters of a command's output that are kept with its result. The full output is in a file."""

KEY, TASK = "DEVS_KEY", "DEVS_TASK"
TICK = 0.02
LOOK_EVERY = 1.0
"""The seconds between two looks at a command that may wait at its gate: this time does not count."""

LATE = 2.0
"""The seconds to wait for the rest of the output, if a process that cannot be ended still holds the pipe."""

T = TypeVar("T")


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


class Running:
    """A command that was started, with its processes and its output. ``used`` is its time without stopped time."""

    def __init__(self, process: asyncio.subprocess.Process, token: str, task: str) -> None:
        self.process = process
        self.token = token
        self.task = task
        self.processes = Processes()
        self.processes.add(process.pid, token)
        self.is_frozen = False
        self.tail = b""
        self.copying: asyncio.Task[None] | None = None
        self._used = 0.0
        self._since: float | None = time.monotonic()

    @property
    def used(self) -> float:
        """The seconds that the command has run."""
        return self._used + (0.0 if self._since is None else time.monotonic() - self._since)

    def count(self, goes: bool) -> None:
        """Count the time until now, and from now on only if the command ``goes``."""
        self._used = self.used
        self._since = time.monotonic() if goes else None

    async def freeze(self) -> None:
        """Stop all processes. One that is in the kernel stops before it continues, so there is no need to wait."""
        self.count(goes=False)
        self.is_frozen = True
        await whole(asyncio.to_thread(self.processes.freeze))

    async def thaw(self) -> None:
        """Continue all processes."""
        if self.is_frozen:
            await whole(asyncio.to_thread(self.processes.thaw))
            self.is_frozen = False

    async def copy(self, pipe: int, output: Output) -> None:
        """Copy what the processes print into the file, until all have closed the pipe."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", buffering=0)
        )
        try:
            while data := await reader.read(1 << 16):
                self.tail = (self.tail + data)[-4 * TAIL :]
                output.write(data)
                if output.is_full:
                    await asyncio.to_thread(output.shorten)  # meanwhile the pipe fills, and the command waits
        finally:
            transport.close()
            output.close()

    async def end(self, grace: float) -> None:
        """End all processes, and wait for the rest of the output."""
        await asyncio.to_thread(self.processes.end, grace)
        await self.process.wait()
        if self.copying is not None:
            await asyncio.wait([self.copying], timeout=LATE)
            self.copying.cancel()


class Commands:
    """The commands of one process in one workspace.

    ``waited`` tells whether another process had to end first. ``freezing`` is set while the commands must be frozen.
    ``keeps(is_frozen)`` decides whether a command that is frozen, or waits at its gate, is kept when its operation is
    cancelled.
    """

    def __init__(self, state: Path, grace: float, env: Mapping[str, str], output_limit: int = LIMIT) -> None:
        self.state = state
        self.grace = grace
        self.env = dict(env)
        self.output_limit = output_limit
        self.waited = False
        self.freezing = asyncio.Event()
        self.keeps: Callable[[bool], Awaitable[bool]] | None = None
        self._kept: dict[str, Running] = {}
        self._warden: asyncio.subprocess.Process | None = None
        self._pipe = -1

    @property
    def kept(self) -> tuple[str, ...]:
        """The tasks whose commands are kept until their operation runs again. Stay while there are any."""
        return tuple(running.task for running in self._kept.values())

    def has(self, key: str) -> bool:
        """Return whether the command of an operation is kept."""
        return key in self._kept

    async def ended(self, key: str) -> None:
        """Wait until the kept command of an operation has ended by itself."""
        if (running := self._kept.get(key)) is not None:
            await running.process.wait()

    async def __aenter__(self) -> Self:
        self.state.mkdir(parents=True, exist_ok=True)
        adopt_orphans()
        mine, self._pipe = os.pipe()
        os.set_inheritable(self._pipe, False)
        words = warden_command(str(self.state / LOCK), self.grace)
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
        try:
            await self.end_kept()
        finally:
            os.close(self._pipe)
            if self._warden is not None:
                await self._warden.wait()

    async def run(
        self, command: str | Sequence[str], folder: Path, log: Path, timeout: float | None, env: Mapping[str, str],
        *, token: str = "", safe_point: Callable[[], Awaitable[None]] | None = None,
        is_held: Callable[[], bool] | None = None,
    ) -> Ran:  # fmt: skip
        """Run a command until it ends, and append its output to the log.

        The command can be frozen if ``safe_point`` is given: it is called while the command is frozen. If it is
        cancelled there, the command may be kept under its key (``DEVS_KEY``). The next call with the key continues it.
        A command with a gate may be kept, too: ``is_held`` tells whether it waits there, and this time does not count.
        """
        key = env.get(KEY, "")
        running = self._kept.pop(key, None)
        if running is None:
            await self._end_other(env.get(TASK, ""))
            running = await self._begun(self._begin(command, folder, log, env, token or secrets.token_urlsafe(32)))
        try:
            code = await self._waited_for(running, timeout, safe_point, is_held)
            seconds = round(running.used, 3)
        except BaseException:
            await whole(self._keep_or_end(key, running, has_gate=is_held is not None))
            raise
        await self._end(running)
        return Ran(_as_shell(code), seconds, running.tail.decode("utf-8", "replace")[-TAIL:])

    async def _begun(self, begin: Coroutine[Any, Any, Running]) -> Running:
        """Start a command. If this is cancelled meanwhile, the command is ended."""
        beginning = asyncio.ensure_future(begin)
        try:
            return await whole(beginning)
        except asyncio.CancelledError:
            if beginning.exception() is None:
                await self._end(beginning.result())
            raise

    async def _keep_or_end(self, key: str, running: Running, has_gate: bool) -> None:
        may_be_kept = (running.is_frozen or has_gate) and bool(key) and self.keeps is not None
        if may_be_kept and self.keeps is not None and await self.keeps(running.is_frozen):
            running.count(goes=False)
            self._kept[key] = running
        else:
            await self._end(running)

    async def _begin(
        self, command: str | Sequence[str], folder: Path, log: Path, env: Mapping[str, str], token: str
    ) -> Running:
        if self._warden is None or self._warden.returncode is not None:
            raise BadInput(
                f"The process that ends stray commands in {self.state.parent} (warden.py) was killed. Resume the run to"
                " start another one."
            )
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        output = Output(log, self.output_limit)
        output.write(f"--- {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC: {command}\n".encode())
        mine, theirs = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *under_warden(words), stdin=self._pipe, stdout=theirs, stderr=theirs, cwd=folder,
                env={**_inherited(), **self.env, **env, Processes.TOKEN: token}, start_new_session=True,
            )  # fmt: skip
        except BaseException:
            os.close(mine)
            output.close()
            raise
        finally:
            os.close(theirs)
        running = Running(process, token, env.get(TASK, ""))
        running.copying = asyncio.get_running_loop().create_task(running.copy(mine, output))
        return running

    async def _waited_for(
        self, running: Running, timeout: float | None, safe_point: Callable[[], Awaitable[None]] | None,
        is_held: Callable[[], bool] | None,
    ) -> int | None:  # fmt: skip
        """Return the exit code, or None after the time limit. Time that it is frozen or held does not count."""
        ending = asyncio.ensure_future(running.process.wait())
        freezing = asyncio.ensure_future(self.freezing.wait())
        try:
            while True:
                if safe_point is not None and self.freezing.is_set() and running.process.returncode is None:
                    await self._freeze(running, safe_point)
                await running.thaw()  # it may have been kept
                running.count(goes=is_held is None or not is_held())
                left = None if timeout is None else max(timeout - running.used, 0)
                due = left if left is None or is_held is None else min(left, LOOK_EVERY)
                if freezing.done():
                    freezing = asyncio.ensure_future(self.freezing.wait())
                waits = [ending] if safe_point is None else [ending, freezing]
                done, _ = await asyncio.wait(waits, timeout=due, return_when=asyncio.FIRST_COMPLETED)
                if ending in done:
                    return ending.result()
                if not done and due == left:
                    return None
        finally:
            ending.cancel()
            freezing.cancel()

    async def _freeze(self, running: Running, safe_point: Callable[[], Awaitable[None]]) -> None:
        """Freeze a command until that is no longer wanted. Meanwhile a pause can take effect."""
        await running.freeze()
        while self.freezing.is_set():
            await safe_point()
            await asyncio.sleep(TICK)  # the pause was seen here first, or is being withdrawn

    async def end_kept(self) -> None:
        """End all commands that are kept."""
        while self._kept:
            await self._end(self._kept.pop(next(iter(self._kept))))

    async def _end_other(self, task: str) -> None:
        """End the kept command of a task that starts another one, for example after a rewind."""
        for key in [key for key, running in self._kept.items() if running.task == task]:
            await self._end(self._kept.pop(key))

    async def _end(self, running: Running) -> None:
        """End the rest of a command. A second cancellation does not interrupt this."""
        try:
            await whole(running.end(self.grace))
        finally:
            with suppress(BrokenPipeError):  # the warden was killed and needs no message
                os.write(self._pipe, f"-{running.process.pid} {running.token}\n".encode())


async def whole(work: Awaitable[T]) -> T:
    """Wait until the work is done. A cancellation meanwhile takes effect afterwards."""
    doing = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.shield(doing)
        except asyncio.CancelledError as again:
            cancelled = again
        except Exception:
            break  # raised below
    if cancelled is not None:
        raise cancelled
    return doing.result()


def _inherited() -> dict[str, str]:
    """Return the environment without the gate of an agent that has started this process: it knows another token."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PAUSEPOINT_GATE")}


def _as_shell(code: int | None) -> int | None:
    """Return the exit code as a shell reports it: 128 plus the signal if a signal ended the command."""
    return code if code is None or code >= 0 else 128 - code
