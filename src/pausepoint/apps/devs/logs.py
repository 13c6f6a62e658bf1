"""Print the output of tasks: of one task as it is, of several with the name of the task before each line."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

import click

from pausepoint.apps.devs.models import Plan, log_of
from pausepoint.apps.devs.output import Reader


class TaskLog:
    """The output of one task. ``prefix`` comes before each line; without one, the output stays as it is."""

    def __init__(self, plan: Plan, task: str, prefix: str, lines: int | None) -> None:
        self.task = task
        self.path = log_of(plan, task)
        self.prefix = prefix
        self._reader = Reader(self.path, plan.head.output_limit)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._part = ""  # of a line that is not complete
        if lines is not None:
            self._reader.skip_to_last(lines)

    def news(self, last: bool = False) -> str:
        """Return the next piece of output. ``last``: also a line that is not complete. Empty if there is none."""
        data = self._reader.read()
        text = self._part + self._decoder.decode(data, final=last and not data)
        if not self.prefix:
            self._part = ""
            return text
        whole, end, self._part = text.rpartition("\n")
        if last and not data and self._part:
            whole, end, self._part = text, "\n", ""
        return "".join(f"{self.prefix}{line}\n" for line in whole.split("\n")) if end else ""

    def everything(self) -> str:
        """Return all the output that there is."""
        found, before = [], -1
        while self._reader.position != before:
            before = self._reader.position
            found.append(self.news(last=True))
        return "".join(found)


class Logs:
    """The output of several tasks."""

    def __init__(self, plan: Plan, tasks: Sequence[str], lines: int | None, named: bool) -> None:
        width = max(map(len, tasks), default=0)
        self.tasks = [TaskLog(plan, task, f"{task:<{width}} | " if named else "", lines) for task in tasks]

    def show(self, last: bool = False) -> None:
        """Print what is new, line by line. ``last``: no more will come."""
        for each in self.tasks:
            text = each.everything() if last else each.news()
            if text:
                click.echo(text, nl=False)
