"""A project with a gate, and fake agents in it."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pausepoint.integrations.gate as hook
from pausepoint import Engine
from pausepoint.gate.guests import GuestAgents
from pausepoint.gate.hooks import native_hook
from pausepoint.gate.settings import socket_path
from tests.gate import fake_agent
from tests.support.waits import async_until

EVENTS = list(hook.EVENTS)
HOOKS = {"python": [sys.executable, "-I", "-S", hook.__file__, "claude"]}
if native_hook():
    HOOKS["c"] = [native_hook(), sys.executable, hook.__file__, "claude"]
HOOK = [*HOOKS.values()][-1]
"""The hook that `gate install` would name here."""

COMMAND = shlex.join(HOOK)


class Project:
    """A folder with a store, a gate and the hooks of agents. Its path is short, because a socket's path must be."""

    def __init__(self, folder: Path, on_loss: str = "open", command: str = COMMAND) -> None:
        self.folder = folder
        self.store = folder / ".pausepoint" / "pausepoint.db"
        self.effects = folder / "effects.txt"
        self.socket = Path(mkdtemp(prefix="gate-")) / socket_path(folder).name
        self.agents: list[asyncio.subprocess.Process] = []
        self.store.parent.mkdir(parents=True)
        given = {"v": 1, "socket": str(self.socket), "flag": f"{self.store}-paused", "on_loss": on_loss}
        given["store"] = str(self.store)
        (folder / ".pausepoint" / "gate.json").write_text(json.dumps(given))
        write_hooks(folder, on_loss, command)

    @asynccontextmanager
    async def served(self, *restricted: str, words: bool = True) -> AsyncIterator[tuple[Engine, GuestAgents]]:
        """Serve the gate in this process."""
        async with Engine(self.store) as engine, GuestAgents(engine, self.socket, restricted, words=words) as agents:
            yield engine, agents

    async def agent(self, name: str, *options: str) -> asyncio.subprocess.Process:
        """Start a fake agent. Its own session has its name."""
        words = [sys.executable, fake_agent.__file__, "--name", name, "--effects", str(self.effects), *options]
        session = [] if "--resume" in options else ["--session", name]
        started = await asyncio.create_subprocess_exec(
            *words, *session, cwd=self.folder, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        self.agents.append(started)
        return started

    async def paused_in_flight(self, pause: Callable[..., Awaitable[Any]], agents: int = 1, **options: Any) -> None:
        """Pause agents that are in their first calls and were started with ``--hold go``.

        So the pause is in time, however busy the machine is.
        """
        await async_until(lambda: len(self.done) >= agents)
        await pause(**options)
        (self.folder / "go").touch()
        await pause(**options, wait=True)

    def close(self) -> None:
        """Kill agents that a failed test has left, and remove the folder of the socket."""
        for agent in self.agents:
            if agent.returncode is None:
                with suppress(ProcessLookupError):
                    os.kill(agent.pid, signal.SIGKILL)
        shutil.rmtree(self.socket.parent, ignore_errors=True)

    @property
    def done(self) -> Counter[str]:
        """How often each effect happened."""
        return Counter(self.effects.read_text().split() if self.effects.exists() else ())

    async def call_hook(self, event: str, session: str = "s", **more: Any) -> tuple[int, Any]:
        """Call the hook once. Return its exit code and the JSON that it printed, if any."""
        return await called({"hook_event_name": event, "session_id": session, "cwd": str(self.folder), **more})


def write_hooks(folder: Path, on_loss: str = "open", command: str = COMMAND) -> None:
    """Write the hooks of the gate for the agents of a folder."""
    closed = " || exit 2" if on_loss == "closed" else ""
    hooks: dict[str, Any] = {each: [{"hooks": [{"type": "command", "command": command}]}] for each in EVENTS}
    hooks["PreToolUse"] = [
        {"matcher": "*", "hooks": [{"type": "command", "command": command + closed, "timeout": 86_400}]}
    ]
    (folder / ".claude").mkdir(exist_ok=True)
    (folder / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}))


async def called(
    given: dict[str, Any] | bytes, env: dict[str, str] | None = None, words: Sequence[str] = HOOK
) -> tuple[int, Any]:
    """Call the hook with this input."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(env or {})},
    )  # fmt: skip
    out, _ = await process.communicate(given if isinstance(given, bytes) else json.dumps(given).encode())
    assert process.returncode is not None
    return process.returncode, json.loads(out) if out else None


async def ended(processes: Sequence[asyncio.subprocess.Process]) -> list[str]:
    """Wait for agents, and return what they printed."""
    found = await asyncio.gather(*(each.communicate() for each in processes))
    assert {each.returncode for each in processes} == {0}, [out.decode() for out, _ in found]
    return [out.decode() for out, _ in found]


async def said_to(socket: Path, message: dict[str, Any] | bytes) -> dict[str, Any]:
    """Say one line to a gate, without the hook, and return the last word of the answer."""
    reader, writer = await asyncio.open_unix_connection(str(socket))
    writer.write(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")
    lines = (await reader.read()).splitlines()
    writer.close()
    return dict(json.loads(lines[-1]))
