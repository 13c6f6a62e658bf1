"""Compute the status of a run and its tasks from the history, in any process. This module prints nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pausepoint import Engine, Question
from pausepoint.model import Event
from pausepoint.orchestrator import Task

CHANGED = ("session.edited", "session.rewound", "session.reopened")
"""Events after which the status of a task may differ from its own events."""


@dataclass
class Row:
    """One task.

    ``status`` is pending, blocked (a needed task failed), begun, asks, done, failed, skipped, or stopped (begun, but no
    process works on it; a resume continues it).
    """

    task: Task
    level: int
    status: str = "pending"
    agent: str = ""
    began: int = 0
    took: float = 0.0
    note: str = ""
    place: int = 0  # its number among the finished tasks, starting at 1

    @property
    def seconds(self) -> float:
        """The time that the task took, or has taken so far."""
        return max(time.time() - self.began / 1e6, 0.0) if self.status in ("begun", "asks") else self.took


class View:
    """The status of a run. `look` updates it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: dict[str, Row] = {}
        self.info: Any = None
        self.questions: list[Question] = []
        self.reason = ""
        self._cursor = ""
        self._again: dict[str, int] = {}
        self._skipped: dict[str, str] = {}
        self._settled = 0

    async def look(self, engine: Engine) -> list[Event]:
        """Update the view, and return the events since the last call."""
        self.info = await engine.info(self.name)
        news = [event async for event in engine.events(self.name, self._cursor)]
        if not self.rows or any(event.event_type in CHANGED for event in news):
            await self._reload(engine)
        else:
            self._fold(news)
        self.questions = await engine.questions(self.name)
        pauses = await engine.pauses(self.name)
        self.reason = "; ".join(
            f"{pause.reason or 'no reason given'}{f' (by {pause.by})' if pause.by else ''}" for pause in pauses
        )
        self._mark()
        return news

    async def _reload(self, engine: Engine) -> None:
        plan: Any = await engine.state(self.name)
        levels = levels_of(plan.tasks)
        self.rows = {task.id: Row(task, levels[task.id]) for task in plan.tasks}
        self._again, self._skipped = plan.again, plan.skipped
        self._settled = len(self._skipped)
        self._fold([event async for event in engine.events(self.name)])

    def _fold(self, events: Sequence[Event]) -> None:
        for event in events:
            self._cursor = event.cursor or self._cursor
            if event.event_type.startswith("task.") and event.data["task"] in self.rows:
                self._take(event, self.rows[event.data["task"]])

    def _take(self, event: Event, row: Row) -> None:
        if event.data["attempt"] != self._again.get(row.task.id, 0) + 1:
            return  # an earlier attempt: the task has been reset since then
        row.agent = event.data["agent"]
        if event.event_type == "task.started":
            row.status, row.began = "begun", event.created_at
            return
        row.status = "done" if event.event_type == "task.completed" else "failed"
        row.took, row.note = (event.created_at - row.began) / 1e6, event.data.get("error", "")
        self._settled += row.status == "done"
        row.place = self._settled

    def _mark(self) -> None:
        """Set the statuses that do not follow from a task's own events."""
        asking = {self.task_of(question) for question in self.questions}
        stuck: set[str] = set()
        for row in sorted(self.rows.values(), key=lambda row: row.level):
            id = row.task.id
            if id in self._skipped:
                row.status, row.note = "skipped", self._skipped[id]
            elif row.status in ("begun", "asks", "stopped"):
                row.status = "asks" if id in asking else "stopped" if self.info.holder is None else "begun"
            elif row.status in ("pending", "blocked"):
                row.status = "blocked" if stuck.intersection(row.task.needs) else "pending"
            if row.status in ("failed", "blocked"):
                stuck.add(id)

    @staticmethod
    def task_of(question: Question) -> str:
        """Return the task of a question."""
        return (question.key or "").partition(":")[0]

    @property
    def status(self) -> str:
        """The status of the run."""
        return str(self.info.status.value)

    @property
    def counts(self) -> dict[str, int]:
        """The number of tasks by status."""
        return dict(Counter(row.status for row in self.rows.values()))

    @property
    def failed(self) -> list[Row]:
        """The tasks that failed."""
        return [row for row in self.rows.values() if row.status == "failed"]


def levels_of(tasks: Sequence[Task]) -> dict[str, int]:
    """Return the depth of each task in the graph: the length of its longest chain of needs.

    >>> levels_of([Task(id="c", needs=["a", "b"]), Task(id="b", needs=["a"]), Task(id="a")])
    {'a': 0, 'b': 1, 'c': 2}
    """
    from graphlib import TopologicalSorter

    needs = {task.id: task.needs for task in tasks}
    found: dict[str, int] = {}
    for id in TopologicalSorter(needs).static_order():
        found[id] = max((found[need] + 1 for need in needs[id]), default=0)
    return found
