"""A run whose processes are killed and paused at random until it is done, and the checks of its result."""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.cli.kit import run as run_command
from tests.orchestrator.graphs import generated
from tests.support.forkserver import Child, ForkServer


class Ordeal:
    """One generated graph, and the kills and pauses of the processes that worked on it."""

    def __init__(
        self, server: ForkServer, folder: Path, *, tasks: int, needs: int, agents: int, seed: int, keyed: bool = True
    ) -> None:
        folder.mkdir(parents=True)
        self.server = server
        self.folder = folder
        self.database = folder / "hold.db"
        self.job: dict[str, Any] = {
            "path": str(self.database), "world": str(folder / "world.db"), "tasks": tasks, "needs": needs,
            "agents": agents, "seed": seed, "keyed": keyed,
        }  # fmt: skip
        self.graph = generated(tasks, needs, seed)
        self.draw = random.Random(seed)
        self.kills = self.pauses = self.lives = 0
        self.last: dict[str, Any] = {}

    def live(self, *, die_after: int = 0) -> None:
        """Run one process to the end, or until it has had this many effects."""
        self._ended(self._begun(die_after=die_after))

    def killed_after(self, seconds: float) -> None:
        """Run one process and kill it after a time."""
        child = self._begun()
        time.sleep(seconds)
        child.signal(signal.SIGKILL)
        self._ended(child)

    def paused(self, after: int) -> None:
        """Run one process and pause everything from the command line after this many effects.

        The running steps end only after the pause was requested, so the pause is in time on a slow machine, too.
        """
        gate = self.folder / f"gate-{self.lives}"
        child = self._begun(gate=str(gate), gate_after=after)
        done = run_command("pause", "--all", "--store", self.database, cwd=self.folder)
        assert done.code == 0, done
        gate.touch()
        self.pauses += 1
        self._ended(child)

    def _begun(self, **how: Any) -> Child:
        self.lives += 1
        child = self.server.start("tests.orchestrator.jobs:work", **self.job, **how)
        child.hear()
        return child

    def _ended(self, child: Child) -> None:
        code = child.wait()
        assert code in (0, -signal.SIGKILL), f"a process ended with {code}"
        self.kills += code != 0
        self.last = child.said[-1] if child.said else {}

    @property
    def done(self) -> bool:
        """True once all tasks are done."""
        return bool(self.last.get("counts") == {"done": len(self.graph)})

    def effects(self) -> list[tuple[str, int]]:
        """Return the effects in order, with the number of tries of each."""
        with closing(sqlite3.connect(f"file:{self.folder / 'world.db'}?mode=ro", uri=True)) as world:
            return list(world.execute("select task, tries from effect order by rowid"))

    def wrong(self) -> list[str]:
        """Return everything that is wrong after the run."""
        effects = self.effects()
        place = {task: n for n, (task, _) in enumerate(effects)}
        found = [f"{task} took effect {n} times" for task, n in Counter(place for place, _ in effects).items() if n > 1]
        found += [f"{task.id} was lost" for task in self.graph if task.id not in place]
        found += [
            f"{task.id} came before {need}"
            for task in self.graph
            for need in task.needs
            if place.get(task.id, 0) < place.get(need, 0)
        ]
        found += [
            f"{task} was tried {tries} times in {self.lives} lives" for task, tries in effects if tries > self.lives
        ]
        return found if self.done else [*found, f"it ended as {self.last}"]
