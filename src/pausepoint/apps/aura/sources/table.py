"""Assignments in a CSV file: one line for each student and piece of work.

The columns ``course`` and ``title`` are required. Without a column ``student``, all lines are about the one student.
Names of columns, separators, dates and numbers may be written as people write them; see `cells`.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo

from pausepoint.apps.aura.models import Assignment, Course, key_of
from pausepoint.apps.aura.sources import cells
from pausepoint.apps.aura.sources.cells import COLUMNS, NEEDED, AmbiguousDates, Grade, Order
from pausepoint.apps.input import BadInput, decoded
from pausepoint.apps.words import one_line

T = TypeVar("T")

SEPARATORS = ";\t|,"
DATES = ("due", "handed_in", "graded_at")


class Row:
    """One line of the file, with its position for messages."""

    def __init__(self, where: str, texts: dict[str, str], table: CsvTable) -> None:
        self.where = where
        self.texts = texts
        self.table = table

    def is_of(self, student: str) -> bool:
        """Return whether the line is about a student, ignoring case."""
        return self.texts.get("student", student).casefold() == student.casefold()

    def get(self, column: str, read: Callable[[str], T], expected: str) -> T | None:
        """Return a cell's value, or None if it is empty or missing. A refusal names the line and the column."""
        text = self.texts.get(column, "")
        if not text:
            return None
        try:
            return read(text)
        except AmbiguousDates:
            raise AmbiguousDates(
                f"{self.where}, column {column!r}: {text!r} has two readings. Say which number is the day:"
                " --dates day-first or --dates month-first."
            ) from None
        except (ValueError, OverflowError):
            raise BadInput(f"{self.where}, column {column!r}: {text!r} is not {expected}.") from None

    def moment(self, column: str) -> datetime | None:
        """Return a time. A date alone means the end of that day."""
        return self.get(column, self._moment, "a date or time. Write 2030-03-05 or 2030-03-05T18:00")

    def _moment(self, text: str) -> datetime:
        return cells.moment(text, self.table.zone, self.table.order)

    def grade(self) -> Grade:
        """Return the grade. The cell may also say the maximum: 17/20. The maximum of a percentage is 100."""
        found = self.get("points", cells.grade, "a number of at least 0") or Grade()
        most = self.get("max_points", cells.grade, "a number of at least 0")
        if found == Grade():
            read = cells.mark if most is None else cells.grade
            found = self.get("mark", read, "a number of at least 0") or found
        return found if most is None or found.text else found._replace(most=most.points)

    def minutes(self) -> int | None:
        """Return how many minutes the work takes."""
        return self.get("minutes", cells.whole, "a whole number of minutes above 0")

    def late(self) -> bool:
        """Return whether the work was late."""
        return bool(self.get("late", cells.is_yes, "yes or no"))

    def handed_in(self) -> tuple[bool, datetime | None]:
        """Return whether the work was handed in, and when. The cell says yes, no, or a time."""
        try:
            return cells.is_yes(self.texts.get("handed_in", "")), None
        except ValueError:
            return True, self.get("handed_in", self._moment, "yes, no, or a time")


class CsvTable:
    """A CSV file, treated as one account."""

    def __init__(self, path: Path, zone: ZoneInfo, order: Order | None = None) -> None:
        self.place = str(path)
        self.is_file = True
        self.path = path
        self.zone = zone
        self.order = order
        self._known: list[Row] | None = None

    @property
    def rows(self) -> list[Row]:
        """All lines. The file is read once."""
        if self._known is None:
            self._known = self._read()
            if self.order is None:
                self.order = cells.order_of(
                    (f"{row.where}, column {name!r}", row.texts.get(name, "")) for row in self._known for name in DATES
                )
        return self._known

    def students(self) -> list[str]:
        """Return the students that the lines name."""
        return sorted({row.texts["student"] for row in self.rows if "student" in row.texts})

    def name(self, student: str) -> str:
        """Return the student's name as the file writes it. An e-mail address is not a name."""
        found = next((row.texts.get("student", "") for row in self.rows if row.is_of(student)), "")
        return "" if "@" in found else found

    def courses(self, student: str) -> list[Course]:
        """Return the courses of a student."""
        names = dict.fromkeys(row.texts["course"] for row in self.rows if row.is_of(student))
        return [Course(account=self.path.stem, course_id=name, name=name, user_id=student) for name in names]

    def assignments(self, course: Course) -> list[Assignment]:
        """Return all assignments of one course."""
        rows = [row for row in self.rows if row.is_of(course.user_id) and row.texts["course"] == course.course_id]
        found = [(row, self._assignment(row, course)) for row in rows]
        _number_alike(found)
        return [assignment for _, assignment in found]

    def _assignment(self, row: Row, course: Course) -> Assignment:
        handed_in, at = row.handed_in()
        due, title = row.moment("due"), one_line(row.texts["title"])
        points, most, grade = row.grade()
        return Assignment(
            id=f"{course.course_id}/{row.texts.get('id') or key_of(title, due and due.astimezone(self.zone).date())}",
            account=course.account, course=course.name, title=title,
            kind=row.texts.get("kind") or "ASSIGNMENT", due=due, handed_in=handed_in, handed_in_at=at,
            graded_at=row.moment("graded_at"), points=points, max_points=most,
            late=row.late() or (at is not None and due is not None and at > due), minutes=row.minutes(),
            grade=grade,
        )  # fmt: skip

    def _read(self) -> list[Row]:
        try:
            text = decoded(self.path.read_bytes())
            if not text.strip():
                raise BadInput(f"{self.place} is empty. Save the table again, or name another file.")
            head = text.partition("\n")[0]
            separator = max(SEPARATORS, key=head.count)
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
            columns = self._columns([each.strip() for each in next(reader, [])])
            rows = [self._row(reader.line_num, line, columns) for line in reader if any(map(str.strip, line))]
        except OSError as error:
            raise BadInput(f"{self.place} cannot be read: {error.strerror}. Check the path.") from None
        except csv.Error as error:
            raise BadInput(f"{self.place} is not a CSV file. Save it as one. The error: {error}") from None
        if not rows:
            raise BadInput(f"{self.place} has no lines below its headings. Add the work, or name another file.")
        return rows

    def _columns(self, headings: list[str]) -> list[str | None]:
        """Return the known column of each heading. Other columns are ignored, unless they look like a slip."""
        names = [cells.column_of(each) for each in headings]
        for twice in {each for each in names if each and names.count(each) > 1}:
            both = " and ".join(repr(text) for text, each in zip(headings, names, strict=True) if each == twice)
            raise BadInput(f"{self.place}, line 1: Column {twice!r} occurs twice ({both}). Remove one.")
        free = [name for name in COLUMNS if name not in names]
        for heading in (text for text, name in zip(headings, names, strict=True) if name is None):
            if near := get_close_matches(heading.casefold(), free, 1, 0.8):
                raise BadInput(
                    f"{self.place}, line 1: Column {heading!r} is unknown. Did you mean {near[0]!r}? Rename it."
                )
        missing = [name for name in NEEDED if name not in names]
        if missing:
            raise BadInput(
                f"{self.place}, line 1: Column {missing[0]!r} is missing. Add it, or rename one of these columns:"
                f" {', '.join(filter(None, headings))}."
            )
        return names

    def _row(self, number: int, line: list[str], columns: list[str | None]) -> Row:
        where = f"{self.place}, line {number}"
        if any(each.strip() for each in line[len(columns) :]):
            raise BadInput(
                f"{where}: The line has more cells than there are columns. Remove the extra cells, or quote a cell that"
                " contains the separator."
            )
        texts = {name: cell.strip() for name, cell in zip(columns, line, strict=False) if name is not None}
        for name in ("student", *NEEDED):
            if name in columns and not texts.get(name):
                raise BadInput(f"{where}, column {name!r}: The cell is empty. Fill it in.")
        return Row(where, texts, self)


def _number_alike(found: Sequence[tuple[Row, Assignment]]) -> None:
    """Number work with the same id by its due time: two tests with the same title may be due on one day.

    Raises `BadInput` if the due times are also the same, because then one of the two lines is probably a mistake.
    """
    alike: dict[str, list[tuple[Row, Assignment]]] = defaultdict(list)
    for row, work in found:
        alike[work.id].append((row, work))
    for several in alike.values():
        several.sort(key=lambda each: (each[1].due is None, each[1].due and each[1].due.timestamp()))
        for number, ((_, before), (row, work)) in enumerate(pairwise(several), 2):
            if work.due == before.due:
                raise BadInput(
                    f"{row.where}: {work.title!r} occurs twice in {work.course}. Remove one line, or give each a due"
                    " date or an id of its own."
                )
            work.id = f"{work.id} ({number})"
