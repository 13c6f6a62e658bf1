"""What the forked processes of this folder do. Each function is a job of the fork server."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from pausepoint import Engine
from pausepoint.orchestrator import FileStateStore, Orchestrator, OrchestratorState, Safety, Task, TaskAgent
from pausepoint.orchestrator.snapshot import to_json
from tests.orchestrator.graphs import generated
from tests.orchestrator.samples import NEW
from tests.support.forkserver import say
from tests.support.loop import PATIENCE

WATCHED = ("mkdir", "open", "write", "fchmod", "fsync", "rename", "unlink")
"""What of the system's calls changes a folder, or makes it durable."""


def warm_up() -> None:
    """Import what every job needs, and make what is made on first use."""

    async def run() -> None:
        async with Engine(":memory:", signals=False) as engine:
            await Orchestrator(engine, "warm", nothing).run([Task(id="a")])

    asyncio.run(run())


async def nothing(agent: TaskAgent) -> None:
    """Has nothing to do."""


# the file store


class Calls:
    """The calls that a writer makes. At number ``at`` the process dies: before it, or (a write) in the middle of it."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.made: list[str] = []
        self.real = {name: getattr(os, name) for name in WATCHED}

    def __enter__(self) -> Calls:
        for name in WATCHED:
            setattr(os, name, self._watching(name))
        return self

    def __exit__(self, *error: object) -> None:
        for name, real in self.real.items():
            setattr(os, name, real)

    def _watching(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.made.append(name)
            if len(self.made) == self.at:
                if name == "write":
                    self.real["write"](args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return self.real[name](*args, **kwargs)

        return call


class InPlace(FileStateStore):
    """Broken on purpose: writes over the snapshot that is there."""

    def _save(self, data: bytes) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(file, data)
        os.fsync(file)
        os.close(file)


STORES: dict[str, type[FileStateStore]] = {"sound": FileStateStore, "in place": InPlace}


def save(folder: str, kind: str, at: int) -> None:
    """Save a snapshot over another one, and die at a call of the system; at 0 not at all."""
    store = STORES[kind](folder)
    with Calls(at) as calls:
        store._save(to_json(NEW))
    say({"calls": calls.made})


# a run


def work(
    path: str, world: str, tasks: int, needs: int, agents: int, seed: int, die_after: int = 0, keyed: bool = True,
    gate: str = "", gate_after: int = 0,
) -> None:  # fmt: skip
    """Work on a generated graph until it is done, or until somebody ends the process. Goes on where it was left."""
    outside = World(world, die_after, keyed, Path(gate) if gate else None, gate_after)
    asyncio.run(_work(Path(path), outside, agents, generated(tasks, needs, seed)))


async def _work(path: Path, world: World, agents: int, graph: list[Task]) -> None:
    async with Engine(path) as engine:
        run = Orchestrator(
            engine, "run", world.perform, agents=agents, snapshot_store=FileStateStore(path.parent),
            safety=Safety(None, None, None),
        )  # fmt: skip
        await run.start(graph)
        if run.get_state() is OrchestratorState.PAUSED:
            await run.resume()
        say({"at": "work"})
        report = await run.outcome()
        say({"status": report.status.value, "counts": report.counts, "reason": report.reason[:500]})


class World:
    """What is outside: it takes each effect once, by its idempotency key. ``die_after`` so many this process is killed.

    That is the worst moment: the world has the effect, and nobody has remembered that. Not ``keyed``, each attempt
    is an effect of its own. After ``gate_after`` effects all wait for a file to be there, the ``gate``.
    """

    def __init__(self, path: str, die_after: int, keyed: bool, gate: Path | None, gate_after: int) -> None:
        self.database = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)
        self.database.execute("pragma synchronous = off")
        self.database.execute("create table if not exists effect (key text unique, task text, tries integer)")
        self.left = die_after
        self.keyed = keyed
        self.gate = gate
        self.gate_after = gate_after

    async def perform(self, agent: TaskAgent) -> str:
        missing = [need for need in agent.task.needs if agent.results[need] != f"did {need}"]
        if missing:
            raise AssertionError(f"{agent.task.id} came before {missing}")
        await agent.call(self.act, agent.task.id, agent.ctx.idempotency_key)
        return f"did {agent.task.id}"

    async def act(self, task: str, key: str) -> None:
        self.gate_after -= 1
        while self.gate is not None and self.gate_after < 0 and not self.gate.exists():
            await asyncio.sleep(0.01)
        key = key if self.keyed else uuid4().hex
        self.database.execute(
            "insert into effect values (?, ?, 1) on conflict (key) do update set tries = tries + 1", (key, task)
        )
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
