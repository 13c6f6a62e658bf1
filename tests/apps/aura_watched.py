"""Aura's program with its agents watched, as a job of the fork server: a real process without the wait for imports.

Every call of an agent is a point at which a test can hold it (`tests.support.held`). Everything else is as it is.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

from pausepoint.apps.aura import classroom_sync, daily_planner, parent_insight, run_aura_orchestrator, skill_mastery
from pausepoint.apps.aura.__main__ import main
from pausepoint.apps.aura.models import Course
from pausepoint.apps.aura.sources.export import ExportFolder
from tests.support.held import as_program, watch

syncing: list[bool] = []


def sync_begins(*args: Any) -> None:
    syncing.append(True)


def fetched(source: ExportFolder, course: Course) -> str | None:
    """The files are also read before the session is stored, to refuse broken ones: that is no call of an agent."""
    return f"sync {course.course_id}" if syncing else None


def watch_all() -> None:
    watch(classroom_sync, "gather", sync_begins)
    watch(ExportFolder, "assignments", fetched)
    watch(skill_mastery, "analyze", "analyze")
    watch(daily_planner, "plan", "plan")
    watch(parent_insight, "write", "report")


def warm_up() -> None:
    """Run the sample once: what is made on first use is then there in every fork."""
    with TemporaryDirectory() as folder:
        run_aura_orchestrator("student-1", store=":memory:", reports=folder)


def job(args: list[str], **place: Any) -> None:
    """``python -m pausepoint.apps.aura ARGS``."""
    with as_program("pausepoint.apps.aura", args, **place):
        watch_all()
        main(args)


def block(args: list[str], **place: Any) -> None:
    """A program that is typed in: the text of ARGS."""
    with as_program("typed in", args, **place):
        watch_all()
        exec("\n".join(args), {"__name__": "__main__"})
