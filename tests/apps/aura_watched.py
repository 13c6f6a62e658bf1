"""Aura's program with its agents watched, as a job of the fork server: a real process without the wait for imports.

Every call of an agent is a point at which a test can hold it (`tests.support.held`). Everything else is as it is.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

from holdfast.apps.aura import classroom_sync, daily_planner, parent_insight, run_aura_orchestrator, skill_mastery
from holdfast.apps.aura.__main__ import main
from holdfast.apps.aura.models import Course
from holdfast.apps.aura.sources.export import ExportFolder
from tests.support.held import passed


def watch(owner: Any, function: str, name: Callable[..., str | None]) -> None:
    real = getattr(owner, function)

    @functools.wraps(real)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if (label := name(*args)) is not None:
            passed(label)
        return real(*args, **kwargs)

    setattr(owner, function, watched)


syncing: list[bool] = []


def sync_begins(*args: Any) -> None:
    syncing.append(True)


def fetched(source: ExportFolder, course: Course) -> str | None:
    """The files are also read before the session is stored, to refuse broken ones: that is no call of an agent."""
    return f"sync {course.course_id}" if syncing else None


def watch_all() -> None:
    watch(classroom_sync, "gather", sync_begins)
    watch(ExportFolder, "assignments", fetched)
    watch(skill_mastery, "analyze", lambda *_: "analyze")
    watch(daily_planner, "plan", lambda *_: "plan")
    watch(parent_insight, "write", lambda *_: "report")


def warm_up() -> None:
    """Run the sample once: what is made on first use is then there in every fork."""
    with TemporaryDirectory() as folder:
        run_aura_orchestrator("student-1", store=":memory:", reports=folder)


def job(args: list[str], folder: str, said: str, environment: dict[str, str]) -> None:
    """``python -m holdfast.apps.aura ARGS`` in a folder; what it says goes to a file."""
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        del os.environ[name]
    os.environ.update(environment)
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    watch_all()
    try:
        main(args)
    finally:
        sys.stdout.flush()
