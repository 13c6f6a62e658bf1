"""Assignments in a CSV file: one line for each student and piece of work.

The columns ``student``, ``course`` and ``title`` are required. The others may be missing or empty.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from datetime import date, datetime, time
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo

from pausepoint.apps.aura.models import Assignment, Course, in_utc
from pausepoint.apps.input import BadInput

T = TypeVar("T")

NEEDED = ("student", "course", "title")
OPTIONAL = ("id", "kind", "due", "handed_in", "late", "points", "max_points", "minutes", "graded_at")
YES, NO = ("yes", "true", "1", "x"), ("no", "false", "0", "")


class Row:
    """One line of the file, with its position for messages."""

    def __init__(self, where: str, cells: dict[str, str], zone: ZoneInfo) -> None:
        self.where = where
        self.cells = cells
        self.zone = zone

    def is_of(self, student: str) -> bool:
        """Return whether the line is about a student, ignoring case."""
        return self.cells["student"].casefold() == student.casefold()

    def get(self, column: str, read: Callable[[str], T], expected: str) -> T | None:
        """Return a cell's value, or None if it is empty or missing. A refusal names the line and the column."""
        text = self.cells.get(column, "").strip()
        if not text:
            return None
        try:
            return read(text)
        except (ValueError, OverflowError):
            raise BadInput(f"{self.where}, column {column!r}: {text!r} is not {expected}.") from None

    def moment(self, column: str) -> datetime | None:
        """Return a time. A date alone means the end of that day."""
        return self.get(column, self._moment, "a date or time. Write 2030-03-05 or 2030-03-05T18:00")

    def _moment(self, text: str) -> datetime:
        if len(text) <= len("2030-03-05"):
            found = datetime.combine(date.fromisoformat(text), time(23, 59), self.zone)
        else:
            found = datetime.fromisoformat(text)
        return in_utc(found if found.tzinfo else found.replace(tzinfo=self.zone))

    def number(self, column: str) -> float | None:
        """Return a number of points."""
        return self.get(column, _points, "a number of at least 0")

    def minutes(self) -> int | None:
        """Return how many minutes the work takes."""
        return self.get("minutes", _whole, "a whole number of minutes above 0")

    def switch(self, column: str) -> bool:
        """Return whether a cell says yes."""
        return bool(self.get(column, _yes, "yes or no"))

    def handed_in(self) -> tuple[bool, datetime | None]:
        """Return whether the work was handed in, and when. The cell says yes, no, or a time."""
        if self.cells.get("handed_in", "").strip().lower() in (*YES, *NO):
            return self.switch("handed_in"), None
        return True, self.get("handed_in", self._moment, "yes, no, or a time")


def _yes(text: str) -> bool:
    if text.lower() not in (*YES, *NO):
        raise ValueError
    return text.lower() in YES


def _whole(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def _points(text: str) -> float:
    found = float(text)
    if not 0 <= found < math.inf:  # and not nan
        raise ValueError
    return found


class CsvTable:
    """A CSV file, treated as one account."""

    def __init__(self, path: Path, zone: ZoneInfo) -> None:
        self.place = str(path)
        self.is_file = True
        self.path = path
        self.zone = zone
        self._known: list[Row] | None = None

    @property
    def rows(self) -> list[Row]:
        """All lines. The file is read once."""
        if self._known is None:
            self._known = self._read()
        return self._known

    def students(self) -> list[str]:
        """Return the students that the lines name."""
        return sorted({row.cells["student"] for row in self.rows})

    def courses(self, student: str) -> list[Course]:
        """Return the courses of a student."""
        names = dict.fromkeys(row.cells["course"] for row in self.rows if row.is_of(student))
        return [Course(account=self.path.stem, course_id=name, name=name, user_id=student) for name in names]

    def assignments(self, course: Course) -> list[Assignment]:
        """Return all assignments of one course."""
        found: dict[str, Assignment] = {}
        for row in self.rows:
            if row.is_of(course.user_id) and row.cells["course"] == course.course_id:
                assignment = self._assignment(row, course)
                if assignment.id in found:
                    raise BadInput(
                        f"{row.where}: {assignment.title!r} occurs twice in {course.name}. Give each its own id."
                    )
                found[assignment.id] = assignment
        return list(found.values())

    def _assignment(self, row: Row, course: Course) -> Assignment:
        handed_in, at = row.handed_in()
        due = row.moment("due")
        return Assignment(
            id=f"{course.account}/{course.course_id}/{row.cells.get('id') or row.cells['title']}",
            account=course.account, course=course.name, title=row.cells["title"],
            kind=row.cells.get("kind") or "ASSIGNMENT", due=due, handed_in=handed_in, handed_in_at=at,
            graded_at=row.moment("graded_at"), points=row.number("points"), max_points=row.number("max_points"),
            late=row.switch("late") or (at is not None and due is not None and at > due), minutes=row.minutes(),
        )  # fmt: skip

    def _read(self) -> list[Row]:
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                head = file.readline()
                file.seek(0)
                reader = csv.DictReader(file, delimiter=";" if head.count(";") > head.count(",") else ",", strict=True)
                self._check_columns([name.strip() for name in reader.fieldnames or ()])
                return [self._row(reader.line_num, cells) for cells in reader]
        except OSError as error:
            raise BadInput(f"{self.place} cannot be read: {error.strerror}. Check the path.") from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise BadInput(f"{self.place} is not a CSV file in UTF-8. Save it as one. The error: {error}") from None

    def _check_columns(self, names: list[str]) -> None:
        for name in names:
            if name not in NEEDED + OPTIONAL:
                near = get_close_matches(name.lower(), NEEDED + OPTIONAL, 1)
                meant = f"Did you mean {near[0]!r}?" if near else f"Known columns: {', '.join(NEEDED + OPTIONAL)}."
                raise BadInput(f"{self.place}, line 1: Column {name!r} is unknown. {meant}")
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise BadInput(f"{self.place}, line 1: Column {twice[0]!r} occurs twice. Remove one.")
        missing = [name for name in NEEDED if name not in names]
        if missing:
            raise BadInput(f"{self.place}, line 1: Column {missing[0]!r} is missing. Add it.")

    def _row(self, line: int, cells: dict[str | None, str | list[str] | None]) -> Row:
        where = f"{self.place}, line {line}"
        if None in cells:
            raise BadInput(
                f"{where}: The line has more cells than there are columns. Remove the extra cells, or quote a cell that"
                " contains the separator."
            )
        texts = {str(name).strip(): str(cell or "").strip() for name, cell in cells.items()}
        for name in NEEDED:
            if not texts.get(name):
                raise BadInput(f"{where}, column {name!r}: The cell is empty. Fill it in.")
        return Row(where, texts, self.zone)
