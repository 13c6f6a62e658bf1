"""Four steps in a row that count their calls. A test can hold a step or make it fail."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pausepoint import Workflow, step

STEPS = ("outline", "draft", "verdict", "report")


class Doc(BaseModel):
    topic: str = "otters"
    outline: str = ""
    draft: str = ""
    verdict: str = ""
    report: str = ""


FINISHED = Doc(
    topic="otters",
    outline="outline of otters",
    draft="draft of outline of otters",
    verdict="otters: good",
    report="outline of otters, otters: good",
)
"""The state at the end of an uninterrupted run."""


def until(name: str) -> Doc:
    """Return the state before the step ``name``."""
    done = STEPS[: STEPS.index(name)]
    return Doc(topic="otters", **{field: getattr(FINISHED, field) for field in done})


class Gate:
    """A place at which a step waits until a test opens it."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def hold(self) -> None:
        self.reached.set()
        await self.opened.wait()


class Pipeline:
    """A workflow with the steps in `STEPS`. Each step writes the field with its name."""

    def __init__(self, log: Path | str | None = None, **options: Any) -> None:
        self.calls: list[str] = []
        self.gates: dict[str, Gate] = {}
        self.errors: dict[str, list[Exception]] = {}
        self.acts: dict[str, Callable[[], Any]] = {}
        self.log = log
        self.workflow = Workflow("pipeline", state=Doc, steps=self._steps(options))

    def hold(self, name: str) -> Gate:
        """Make a step wait halfway, every time it runs, until a test opens its gate."""
        return self.gates.setdefault(name, Gate())

    async def enter(self, name: str) -> None:
        self.calls.append(name)
        if self.log is not None:
            with open(self.log, "a") as log:
                log.write(f"{name} {os.getpid()}\n")
        if name in self.acts:
            result = self.acts[name]()
            if asyncio.iscoroutine(result):
                await result
        if name in self.gates:
            await self.gates[name].hold()
        if self.errors.get(name):
            raise self.errors[name].pop(0)

    def _steps(self, options: dict[str, Any]) -> list[Any]:
        @step(writes="outline", **options)
        async def outline(topic: str) -> str:
            await self.enter("outline")
            return f"outline of {topic}"

        @step(writes="draft", **options)
        async def draft(outline: str) -> str:
            await self.enter("draft")
            return f"draft of {outline}"

        @step(writes="verdict", **options)
        async def verdict(topic: str, draft: str) -> str:
            await self.enter("verdict")
            return f"{topic}: {'good' if draft else 'empty'}"

        @step(writes="report", **options)
        async def report(outline: str, verdict: str) -> str:
            await self.enter("report")
            return f"{outline}, {verdict}"

        return [outline, draft, verdict, report]


def executions(log: Path) -> list[str]:
    """Return the steps that ran in any process, in order."""
    return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []
