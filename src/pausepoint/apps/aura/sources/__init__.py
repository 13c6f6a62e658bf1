"""Where a student's courses and assignments come from: an export in a folder, a CSV file, or the live API.

Every source answers three questions, so that ClassroomSync need not know which one it reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol
from zoneinfo import ZoneInfo

from pausepoint.apps.aura.models import LIVE, Assignment, Course
from pausepoint.apps.aura.sources.export import ExportFolder
from pausepoint.apps.aura.sources.live import LiveClassroom
from pausepoint.apps.aura.sources.table import CsvTable
from pausepoint.apps.input import BadInput


class Source(Protocol):
    """One account, or several that lie in one place."""

    place: str
    is_file: bool

    def students(self) -> list[str]:
        """Whom it knows, by id or address; empty where it cannot tell."""
        ...

    def courses(self, student: str) -> list[Course]:
        """The courses of a student, by id or e-mail address; none if it does not know that student."""
        ...

    def assignments(self, course: Course) -> list[Assignment]:
        """All work of one course."""
        ...


def open_source(place: str, time_zone: str) -> Source:
    """The source that a place names. Nothing is read yet."""
    zone = ZoneInfo(time_zone)
    if place.startswith(LIVE):
        return LiveClassroom(place, zone)
    path = Path(place)
    if path.is_dir():
        return ExportFolder(path, zone)
    if path.suffix.lower() == ".csv":
        return CsvTable(path, zone)
    if not path.exists():
        raise BadInput(f"data: there is no folder and no file {place}")
    raise BadInput(
        f"data: {place} is neither a folder with an export nor a .csv file; the live API is {LIVE}TOKEN.json"
    )
