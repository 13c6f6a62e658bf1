"""Record a scenario, and open every sampled state of the disk that a power loss could have left."""

from __future__ import annotations

import copy
import itertools
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.faults.libc import states, trace
from tests.faults.libc.scenarios import Fact, Places, decode
from tests.faults.libc.states import CrashState, Disk, Tree
from tests.faults.libc.trace import Call
from tests.support.folders import scratch
from tests.support.forkserver import ForkServer
from tests.support.loop import PATIENCE


@dataclass(frozen=True)
class Recording:
    """A recorded run: its calls, the disk before it, the folder after it, and the sites that asked for syncs."""

    root: Path
    calls: list[Call]
    before: Disk
    after: Tree
    asked: Counter[str]

    @property
    def facts(self) -> list[Fact]:
        return [decode(call.data) for call in self.calls if call.kind == "note"]

    @property
    def is_complete(self) -> bool:
        """Return whether the recorded calls explain every byte and name that the program left."""
        return self.until(lambda call: False).crash("all", "all", random.Random(0)) == self.after

    def states(self, seed: int, count: int) -> Iterator[CrashState]:
        """Yield different states of the disk after a power loss."""
        return states.sample(self.calls, copy.deepcopy(self.before), random.Random(seed), count)

    def strict(self, what: str) -> Iterator[CrashState]:
        """Yield the states right after each fact ``what`` in which nothing survives that was not synced."""
        strict = states.sample(self.calls, copy.deepcopy(self.before), random.Random(0), len(self.facts))
        return (state for state in strict if decode(state.notes[-1]).what == what)

    def until(self, ends: Callable[[Call], bool]) -> Disk:
        """Return the disk just before the first call that ``ends`` accepts."""
        disk = copy.deepcopy(self.before)
        for call in itertools.takewhile(lambda call: not ends(call), self.calls):
            disk.follow(call)
        return disk


class Lab:
    """Two fork servers: one has the recorder loaded and runs the scenarios, the other judges what is left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        library = trace.library(folder)
        self._recorded = ForkServer("tests.faults.libc.scenarios", variables=trace.environment(library))
        self._judges = ForkServer("tests.faults.libc.scenarios", "tests.faults.libc.verdict")
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorded.__exit__(kind, error, trace)
        self._judges.__exit__(kind, error, trace)

    def record(self, scenario: str, skip: str = "") -> Recording:
        """Run a scenario under the recorder, in a new folder."""
        self._count += 1
        root, path = self._folder / f"{self._count}", self._folder / f"{self._count}.trace"
        Places(root).make()
        before = Disk(root)
        job = self._recorded.start(
            "tests.faults.libc.scenarios:record", scenario=scenario, root=str(root), path=str(path), skip=skip
        )
        asked = Counter(job.hear(PATIENCE)["asked"])
        assert job.wait(PATIENCE) == 0, f"the scenario {scenario!r} failed"
        calls = trace.read(path)
        path.unlink()
        return Recording(root, calls, before, states.found_in(root), asked)

    def forget(self, recording: Recording) -> None:
        """Delete the folder of a recording."""
        shutil.rmtree(recording.root)

    def judge(self, recording: Recording, state: CrashState) -> list[str]:
        """Return what is wrong with a state. Replaces the recorded folder, because the store knows its paths."""
        states.build(state.tree, recording.root)
        job = self._judges.start("tests.faults.libc.verdict:check", root=str(recording.root), notes=list(state.notes))
        wrong: list[str] = job.hear(PATIENCE)["wrong"]
        job.wait(PATIENCE)
        return wrong

    def judged(self, recording: Recording, seed: int, count: int) -> Iterator[tuple[CrashState, list[str]]]:
        """Yield different states with what is wrong with them."""
        for state in recording.states(seed, count):
            yield state, self.judge(recording, state)


@contextmanager
def opened_lab() -> Iterator[Lab]:
    """Open a lab in a folder of its own."""
    with scratch() as folder, Lab(folder) as lab:
        yield lab
