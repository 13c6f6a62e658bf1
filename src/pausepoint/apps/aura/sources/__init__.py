"""Sources of a student's courses and assignments: a Takeout, an export in a folder, a CSV file, or the live API.

All sources have the same methods, so ClassroomSync does not need to know which one it reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol
from zoneinfo import ZoneInfo

from pausepoint.apps.aura.models import LIVE, Assignment, Course, Doubt
from pausepoint.apps.aura.sources.cells import Order
from pausepoint.apps.aura.sources.export import ExportFolder
from pausepoint.apps.aura.sources.live import LiveClassroom
from pausepoint.apps.aura.sources.table import CsvTable
from pausepoint.apps.aura.sources.takeout import Takeout, holds_takeout
from pausepoint.apps.input import BadInput


class Source(Protocol):
    """One account, or several accounts in one place."""

    place: str
    is_file: bool

    def students(self) -> list[str]:
        """Return each known student once: an e-mail address, a name or an id. Empty if the source cannot list them."""
        ...

    def name(self, student: str) -> str:
        """Return the student's name for the report, or an empty string if the source does not know it."""
        ...

    def courses(self, student: str) -> list[Course]:
        """Return the courses of a student, given by id, e-mail address or name. Empty for an unknown student."""
        ...

    def doubts(self, student: str) -> list[Doubt]:
        """Return what the report should mention about the data of a student, such as unknown words."""
        ...

    def assignments(self, course: Course) -> list[Assignment]:
        """Return all assignments of one course."""
        ...


def open_source(place: str, time_zone: str, dates: Order | None = None) -> Source:
    """Return the source for a place, without reading it yet. ``dates`` is the order of day and month in tables."""
    zone = ZoneInfo(time_zone)
    if place.startswith(LIVE):
        return LiveClassroom(place, zone)
    path = Path(place)
    if path.is_dir():
        return Takeout(path, zone) if holds_takeout(path) else ExportFolder(path, zone)
    if path.suffix.lower() in (".csv", ".tsv"):
        return CsvTable(path, zone, dates)
    if not path.exists():
        raise BadInput(f"data: There is no folder or file {place}. Check the path.")
    if path.suffix.lower() == ".zip":
        return Takeout(path, zone)
    raise BadInput(
        f"data: {place} is neither a Takeout (.zip), nor a folder with an export, nor a .csv file. Save a spreadsheet"
        f" as .csv. For the live API, write {LIVE}TOKEN.json."
    )
