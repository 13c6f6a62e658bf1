"""Measure what the gate costs an agent: the wait for its answer, and the processor time of the hook."""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import AF_UNIX
from socket import socket as Socket
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.results import Figure
from benchmarks.steps import Scale
from pausepoint.gate import HookCommand, Installation, hook_command, socket_path

CALLS = 10
"""The number of calls of each agent."""

ANSWER, CPU, CPU_C = 200.0, 60.0, 4.0
"""Milliseconds until a hook must have its answer, and of processor time for a call of the hook in Python and in C."""

SPREAD = 5.0
"""The agents begin at different times within so many times their pace."""

ROUNDS = 3


def gate(folder: Path, scale: Scale) -> list[Figure]:
    """Measure agents that work at their own pace, agents that all ask at once, and the hook as a program."""
    paced: list[list[float]] = []
    burst: list[list[float]] = []
    used: dict[str, list[float]] = {"python": [], "c": []}
    for n in range(min(scale.rounds, ROUNDS)):
        with served(folder / f"gate-{n}") as socket:
            paced.append(asyncio.run(_answers(socket, scale.gated, scale.gated_pace)))
            burst.append(asyncio.run(_answers(socket, scale.gated, 0.0)))
            for name, command in _commands().items():
                used[name] += [_hook(folder / f"gate-{n}", command) for _ in range(scale.hooks)]
    what = f"{scale.gated} agents × {CALLS} calls: a hook has its answer"
    return [
        Figure("gate-answer", f"{what}, p50", "ms", ANSWER, tuple(median(each) for each in paced)),
        Figure("gate-answer-p99", f"{what}, p99", "ms", ANSWER, tuple(_p99(each) for each in paced)),
        Figure("gate-burst-p99", f"{what}, all of them ask at the same time, p99", "ms", None,
               tuple(_p99(each) for each in burst), {"p50 ms": median(map(median, burst))}),
        Figure("gate-hook-cpu", "one call of the hook in Python, processor time", "ms", CPU, tuple(used["python"])),
        *([Figure("gate-hook-c-cpu", "one call of the hook in C, its shell included, processor time", "ms", CPU_C,
                  tuple(used["c"]))] if used["c"] else []),
    ]  # fmt: skip


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100, method="inclusive")[98]


@contextmanager
def served(project: Path) -> Iterator[Path]:
    """Serve the gate of a new project with ``pausepoint gate serve``. Yield its socket, whose path must be short."""
    (project / ".pausepoint").mkdir(parents=True)
    with TemporaryDirectory(prefix="pp", dir="/tmp") as runtime:
        socket = Path(runtime) / "pausepoint" / socket_path(project).name
        installation = Installation(project, project / ".pausepoint" / "pausepoint.db")
        given = json.loads(installation.settings().to_bytes()) | {"socket": str(socket)}
        installation.gate_file.write_text(json.dumps(given))
        env = {key: value for key, value in os.environ.items() if not key.startswith("PAUSEPOINT_")}
        server = subprocess.Popen(
            [sys.executable, "-m", "pausepoint", "gate", "serve"], cwd=project, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=env | {"XDG_RUNTIME_DIR": runtime},
        )  # fmt: skip
        try:
            while not _listens(socket):
                assert server.poll() is None, "the server has not begun"
                time.sleep(0.01)
            yield socket
        finally:
            server.terminate()
            server.wait()


def _listens(socket: Path) -> bool:
    with Socket(AF_UNIX) as client:
        return client.connect_ex(str(socket)) == 0


async def _answers(socket: Path, agents: int, pace: float) -> list[float]:
    """Let agents make their calls, and return the milliseconds from each connection to its answer."""
    found = await asyncio.gather(*(_agent(socket, f"{os.urandom(4).hex()}-{n}", pace) for n in range(agents)))
    return [each for agent in found for each in agent]


async def _agent(socket: Path, session: str, pace: float) -> list[float]:
    agent = {"kind": "claude", "session": session, "pid": os.getpid()}
    draw, found = random.Random(session), list[float]()
    await asyncio.sleep(pace * draw.uniform(0, SPREAD))
    await _said(socket, {"v": 1, "event": "start", "agent": agent})
    for n in range(CALLS):
        await asyncio.sleep(pace * draw.uniform(0.5, 1.5))
        call = {"id": f"{session}-{n}", "name": "Bash", "arguments": {"command": "make test"}}
        began = time.perf_counter()
        assert await _said(socket, {"v": 1, "event": "before", "agent": agent, "call": call}) == {"do": "run"}
        found.append((time.perf_counter() - began) * 1000)
        await _said(socket, {"v": 1, "event": "after", "agent": agent, "call": call})
    await _said(socket, {"v": 1, "event": "end", "agent": agent})
    return found


async def _said(socket: Path, report: dict[str, Any]) -> Any:
    reader, writer = await asyncio.open_unix_connection(str(socket))
    try:
        writer.write(json.dumps(report).encode() + b"\n")
        return json.loads(await reader.readline())
    finally:
        writer.close()


def _commands() -> dict[str, HookCommand]:
    """Return the command of the hook in Python, and the one in C if it was compiled."""
    command = hook_command("claude")
    return {"python": command._replace(native="")} | ({"c": command} if command.native else {})


def _hook(project: Path, command: HookCommand) -> float:
    """Run the hook before a tool call, as an agent does, and return its milliseconds of processor time."""
    call = {"hook_event_name": "PreToolUse", "session_id": "hook", "cwd": str(project), "tool_name": "Bash"}
    given = json.dumps(call | {"tool_use_id": os.urandom(4).hex(), "tool_input": {"command": "make test"}})
    before = _used()
    subprocess.run(["/bin/sh", "-c", command.line("PreToolUse", "open")], input=given.encode(), check=True)
    return (_used() - before) * 1000


def _used() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime
