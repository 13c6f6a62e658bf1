"""Tasks and their dependencies: checked before anything runs, and given to agents in the right order. No I/O."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import Any

from pydantic import BaseModel, ConfigDict

from pausepoint.errors import DefinitionError, did_you_mean


class Task(BaseModel):
    """One piece of work. It begins when all tasks in ``needs`` are done; the highest priority begins first.

    ``data`` is passed to the work function: plain values.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    needs: list[str] = []
    priority: int = 0
    data: Any = None


def check(tasks: Sequence[Task]) -> None:
    """Raise `DefinitionError` for a graph that cannot be completed, and name the fault.

    >>> check([Task(id="a", needs=["b"]), Task(id="b", needs=["a"])])
    Traceback (most recent call last):
    ...
    pausepoint.errors.DefinitionError: These tasks need each other: a → b → a. Remove one of the dependencies.
    """
    known = Counter(task.id for task in tasks)
    if twice := sorted(id for id, count in known.items() if count > 1):
        raise DefinitionError(f"Several tasks have the same id: {', '.join(twice)}. Give each task its own id.")
    for task in tasks:
        for need in task.needs:
            if need not in known:
                raise DefinitionError(
                    f"Task {task.id!r} needs {need!r}, which is not a task{did_you_mean(need, known)}"
                )
    try:
        TopologicalSorter({task.id: task.needs for task in tasks}).prepare()
    except CycleError as error:
        cycle = " → ".join(reversed(error.args[1]))  # graphlib lists it in the other direction
        raise DefinitionError(f"These tasks need each other: {cycle}. Remove one of the dependencies.") from None


def dependants(tasks: Iterable[Task], *ids: str) -> list[str]:
    """Return these tasks and all tasks that need them, directly or indirectly."""
    needed_by: dict[str, list[str]] = {}
    for task in tasks:
        for need in task.needs:
            needed_by.setdefault(need, []).append(task.id)
    found, todo = dict.fromkeys(ids), deque(ids)
    while todo:
        for each in needed_by.get(todo.popleft(), ()):
            if each not in found:
                found[each] = None
                todo.append(each)
    return list(found)


class Board:
    """The tasks that can begin and the agents that are free, while a step runs them."""

    def __init__(self, tasks: Sequence[Task], agents: int, skipped: Mapping[str, str] | None = None) -> None:
        self.tasks = {task.id: task for task in tasks}
        self.results: dict[str, Any] = {}
        self.failed: dict[str, str] = {}
        self.open = 0  # tasks that have begun and not ended
        self._order = {task.id: number for number, task in enumerate(tasks)}
        self._missing = {task.id: len(set(task.needs)) for task in tasks}
        self._needed_by: dict[str, list[str]] = {}
        for task in tasks:
            for need in set(task.needs):
                self._needed_by.setdefault(need, []).append(task.id)
        self._ready: list[tuple[int, int, str]] = []
        self._free = [f"agent-{number}" for number in range(agents, 0, -1)]
        self._news = asyncio.Event()
        self._returning: deque[asyncio.Future[str]] = deque()
        self.results.update(dict.fromkeys(skipped or ()))
        for id in self.tasks:
            if id not in self.results and not self._missing[id]:
                self._push(id)
        for id in skipped or ():
            self._settled(id)

    @property
    def blocked(self) -> list[str]:
        """Return the tasks that wait for a failed task."""
        return [id for id, missing in self._missing.items() if missing and id not in self.results]

    def _push(self, id: str) -> None:
        heappush(self._ready, (-self.tasks[id].priority, self._order[id], id))

    async def take(self) -> tuple[Task, str] | None:
        """Return the next task and an agent for it when both are available; None if no more tasks can begin."""
        while not (self._ready and self._free):
            if not (self._ready or self.open):
                return None
            self._news.clear()
            await self._news.wait()
        self.open += 1
        return self.tasks[heappop(self._ready)[2]], self._free.pop()

    def done(self, id: str, result: Any) -> None:
        """Record that a task is done, so that tasks that waited only for it can begin."""
        self.results[id] = result
        self.open -= 1
        self._settled(id)

    def fails(self, id: str, error: str) -> None:
        """Record that a task has failed. Tasks that need it keep waiting."""
        self.failed[id] = error
        self.open -= 1
        self._news.set()

    def _settled(self, id: str) -> None:
        for each in self._needed_by.get(id, ()):
            self._missing[each] -= 1
            if not self._missing[each] and each not in self.results:
                self._push(each)
        self._news.set()

    def free(self, agent: str) -> None:
        """Make an agent available. Tasks that wait for an agent to continue come first."""
        while self._returning:
            returning = self._returning.popleft()
            if not returning.done():
                returning.set_result(agent)
                return
        self._free.append(agent)
        self._news.set()

    async def back(self) -> str:
        """Return an agent for a task that continues after a wait, when one is free."""
        if self._free:
            return self._free.pop()
        returning: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._returning.append(returning)
        return await returning
