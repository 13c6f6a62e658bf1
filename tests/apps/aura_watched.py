"""Aura's program with its agents watched, for a child process: ``python -m tests.apps.aura_watched ARGS``.

Every call of an agent is a line in the file ``AURA_CALLS``. The call that ``AURA_HOLD`` names says so through the pipe
``AURA_REACHED`` and waits at the pipe ``AURA_GATE``. Everything else is as it is.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from holdfast.apps.aura import classroom_sync, daily_planner, parent_insight, skill_mastery
from holdfast.apps.aura.__main__ import main
from holdfast.apps.aura.models import Course
from holdfast.apps.aura.sources.export import ExportFolder


def called(name: str) -> None:
    with open(os.environ["AURA_CALLS"], "a") as file:
        file.write(f"{name}\n")
    if name == os.environ.get("AURA_HOLD"):
        with open(os.environ["AURA_REACHED"], "w") as pipe:
            pipe.write("here")
        with open(os.environ["AURA_GATE"], "rb", buffering=0) as pipe:
            pipe.read(1)


def watch(owner: Any, function: str, name: Callable[..., str | None]) -> None:
    real = getattr(owner, function)

    @functools.wraps(real)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if (label := name(*args)) is not None:
            called(label)
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


if __name__ == "__main__":
    watch_all()
    main()
