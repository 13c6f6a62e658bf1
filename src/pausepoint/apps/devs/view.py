"""The status of a run and its tasks for the display, in any process. This module prints nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pausepoint import Engine, Question
from pausepoint.gate import CALL
from pausepoint.model import Event, SessionInfo
from pausepoint.orchestrator import AgentStatus, RunReader, RunReport, Task, TaskStatus


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
    began: float = 0.0  # in seconds since 1970
    took: float = 0.0
    note: str = ""
    place: int = 0  # its number among the finished tasks, starting at 1
    said: str = ""  # the last line of its output, while it runs
    call: str = ""  # the tool call that its coding agent makes, or waits to make
    spent_usd: float = 0.0
    spent_tokens: int = 0

    @property
    def seconds(self) -> float:
        """The time that the task took, or has taken so far."""
        return max(time.time() - self.began, 0.0) if self.status in ("begun", "asks") else self.took


class View:
    """The status of a run. `look` updates it. ``last_line`` returns the last line of a task's output."""

    def __init__(self, name: str, last_line: Callable[[str], str] = lambda task: "") -> None:
        self.name = name
        self.status = ""
        self.rows: dict[str, Row] = {}
        self.questions: list[Question] = []
        self.agents: list[AgentStatus] = []
        self.reason = ""
        self.last_line = last_line
        self._reader: RunReader | None = None
        self._report: RunReport | None = None
        self._levels: tuple[list[Task], dict[str, int]] = [], {}

    async def look(self, engine: Engine) -> list[Event]:
        """Update the view, and return the events since the last call."""
        if self._reader is None:
            self._reader = RunReader(engine, self.name)
        self._reader.engine = engine  # the program may have opened the store again
        report = self._report = await self._reader.read()
        self.status = report.status.value
        self.questions = list(report.questions)
        self.agents = list(report.agents)
        self.reason = "; ".join(
            f"{pause.reason or 'no reason given'}{f' (by {pause.by})' if pause.by else ''}" for pause in report.pauses
        )
        self.rows = self._rows(report)
        return self._reader.news

    def _rows(self, report: RunReport) -> dict[str, Row]:
        tasks = [each.task for each in report.tasks]
        if tasks != self._levels[0]:
            self._levels = tasks, levels_of(tasks)
        levels = self._levels[1]
        found = {each.task.id: _row(each, levels[each.task.id], report.info) for each in report.tasks}
        for row in found.values():
            row.said = self.last_line(row.task.id) if row.status == "begun" else ""
        stuck: set[str] = set()
        for row in sorted(found.values(), key=lambda row: row.level):
            if row.status == "pending" and stuck.intersection(row.task.needs):
                row.status = "blocked"
            if row.status in ("failed", "blocked"):
                stuck.add(row.task.id)
        settled = sum(row.status == "skipped" for row in found.values())
        done = sorted((row for row in found.values() if row.status == "done"), key=lambda row: row.began + row.took)
        for place, row in enumerate(done, settled + 1):
            row.place = place
        return found

    def task_of(self, question: Question) -> str:
        """Return the task of a question."""
        tasks = self._report.tasks if self._report is not None else ()
        return next((each.task.id for each in tasks if each.question == question.id), "")

    @property
    def info(self) -> SessionInfo:
        """The facts of the run's session."""
        assert self._report is not None
        return self._report.info

    @property
    def counts(self) -> dict[str, int]:
        """The number of tasks by status."""
        return dict(Counter(row.status for row in self.rows.values()))

    @property
    def failed(self) -> list[Row]:
        """The tasks that failed."""
        return [row for row in self.rows.values() if row.status == "failed"]


def _row(found: TaskStatus, level: int, info: SessionInfo) -> Row:
    """Return a task for the display. A task that has begun is stopped if no process works on the run."""
    status = found.status
    if found.begun:
        status = "asks" if found.question is not None else "stopped" if info.holder is None else "begun"
    began = found.began_at.timestamp() if found.began_at is not None else 0.0
    took = found.ended_at.timestamp() - began if found.ended_at is not None else 0.0
    return Row(
        found.task, level, status, found.agent, began, took, found.note, call=_call(found),
        spent_usd=found.spent_usd, spent_tokens=found.spent_tokens,
    )  # fmt: skip


def _call(found: TaskStatus) -> str:
    """Return the call of a coding agent that has not ended."""
    return found.last.summary if found.begun and found.last and found.last.event_type == CALL else ""


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
