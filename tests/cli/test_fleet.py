"""Several workers on one store: only a resume withdraws a pause."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import BaseModel

from pausepoint import Engine, Workflow, step
from pausepoint.cli.commands.worker import LOOK_EVERY
from tests.cli.kit import Process, run
from tests.cli.samples import STORE, within
from tests.support.loop import PATIENCE

CODE = """
import asyncio
from typing import Literal

from pydantic import BaseModel

from pausepoint import Workflow, route, step


class Doc(BaseModel):
    done: int = 0


@step(writes="done")
async def work(done: int) -> int:
    with open("steps.txt", "a") as file:
        file.write("begun\\n")
    await asyncio.sleep(0.02)
    return done + 1


@route(after=work)
def again(done: int) -> Literal["work"] | None:
    return "work" if done < 1_000_000 else None  # no session ends before the pause


job = Workflow("job", state=Doc, steps=[work], routes=[again])
"""
SESSIONS, WORKERS = 120, 4


class Doc(BaseModel):
    done: int = 0


@step(writes="done")
async def work(done: int) -> int:
    return done


job = Workflow("job", state=Doc, steps=[work])
"""Stores sessions of the workflow above without running them."""


def begun(folder: Path) -> int:
    file = folder / "steps.txt"
    return len(file.read_text().splitlines()) if file.exists() else 0


def until_begun(folder: Path, count: int) -> None:
    end = time.monotonic() + PATIENCE
    while begun(folder) < count:
        assert time.monotonic() < end, "the workers do not work"
        time.sleep(0.01)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose store has sessions that are ready."""
    (tmp_path / "job.py").write_text(CODE)
    (tmp_path / "pyproject.toml").write_text('[tool.pausepoint.workflows]\njob = "job.py:job"\n')

    async def start(engine: Engine) -> None:
        for number in range(SESSIONS):
            await engine.start(job, session_id=f"s{number}", paused=True)
            await engine.store.unpause(f"s{number}", None, 1)

    within(tmp_path / STORE, start, job)
    return tmp_path


@pytest.mark.long
def test_after_a_pause_of_everything_a_fleet_begins_nothing(folder: Path) -> None:
    with ExitStack() as stack:
        workers = [
            stack.enter_context(Process("worker", "--concurrency", "100", "--jsonl", cwd=folder))
            for _ in range(WORKERS)
        ]
        until_begun(folder, 5)  # the workers are still picking up sessions
        paused = run("pause", "--all", "--wait", "--by", "ann", cwd=folder)
        at_rest = begun(folder)
        time.sleep(3 * LOOK_EVERY)  # every worker looks for work again
        for worker in workers:
            worker.signal(signal.SIGTERM)
        assert [worker.wait().code for worker in workers] == [143] * WORKERS
    assert (paused.code, begun(folder)) == (0, at_rest)
    found = Counter(each["status"] for each in json.loads(run("ls", "--all", "--json", cwd=folder).stdout)["sessions"])
    assert found == {"paused": SESSIONS}
