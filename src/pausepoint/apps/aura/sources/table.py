"""Assignments in a CSV file: one line for each student and piece of work, or a gradebook (see `gradebook`).

The columns ``course`` and ``title`` are required, except in a gradebook. Without a column ``student``, all lines are
about the one student. Names of columns, separators, dates and numbers may be written as people write them; see `cells`.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

from pausepoint.apps.aura.models import Assignment, Course, Doubt, key_of
from pausepoint.apps.aura.sources import cells
from pausepoint.apps.aura.sources.cells import COLUMNS, NEEDED, Order
from pausepoint.apps.aura.sources.gradebook import course_of, gradebook
from pausepoint.apps.aura.sources.rows import Row
from pausepoint.apps.input import BadInput, decoded
from pausepoint.apps.words import one_line

SEPARATORS = ";\t|,"
GRADEBOOK = "gradebook"
"""Stands for the course in the ids of a gradebook: the name of a file would change them every week."""

DATES = ("due", "handed_in", "graded_at")


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

    def doubts(self, student: str) -> list[Doubt]:
        """Return the unknown words about a student's work, and whether the file leaves open what was handed in."""
        rows = [row for row in self.rows if row.is_of(student)]
        silent = any(row.is_of_gradebook and row.is_silent for row in rows)
        found = [Doubt(key="silent_gradebook", values={"place": self.place})] if silent else []
        return [self._with_file_name(doubt) for doubt in (*found, *(doubt for row in rows for doubt in row.doubts))]

    def _with_file_name(self, doubt: Doubt) -> Doubt:
        """Return a doubt with the name of the file instead of its path, which is nothing for a report to send."""
        values = {name: value.replace(self.place, self.path.name) for name, value in doubt.values.items()}
        return doubt.model_copy(update={"values": values})

    def _assignment(self, row: Row, course: Course) -> Assignment:
        status, at = row.status, row.handed_in_at
        due, title = row.moment("due"), one_line(row.texts["title"])
        day = None if due is None else due.astimezone(self.zone).date()
        points, most, grade = row.grade()
        scope = GRADEBOOK if row.is_of_gradebook else course.course_id
        return Assignment(
            id=row.key or f"{scope}/{row.texts.get('id') or key_of(title, day)}",
            account=course.account, course=course.name, title=title,
            kind=row.texts.get("kind") or "ASSIGNMENT", due=due, handed_in=status.handed_in, handed_in_at=at,
            graded_at=row.moment("graded_at"), points=points, max_points=most,
            late=status.late or (at is not None and due is not None and at > due), excused=status.excused,
            minutes=row.minutes(), grade=grade,
        )  # fmt: skip

    def _read(self) -> list[Row]:
        try:
            text = decoded(self.path.read_bytes())
            if not text.strip():
                raise BadInput(f"{self.place} is empty. Save the table again, or name another file.")
            head = text.partition("\n")[0]
            separator = max(SEPARATORS, key=head.count)
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
            lines = [(reader.line_num, line) for line in reader]
            rows = gradebook(lines, self.place, course_of(self.path.stem), self)
            if rows is None:
                columns = self._columns([each.strip() for each in lines[0][1]])
                rows = [self._row(number, line, columns) for number, line in lines[1:] if any(map(str.strip, line))]
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
            if work.due == before.due and not row.is_of_gradebook:
                raise BadInput(
                    f"{row.where}: {work.title!r} occurs twice in {work.course}. Remove one line, or give each a due"
                    " date or an id of its own."
                )
            work.id = f"{work.id} ({number})"
