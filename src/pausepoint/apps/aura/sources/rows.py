"""One piece of work of one student, as the texts of a table's cells, and their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from typing import Protocol, TypeVar
from zoneinfo import ZoneInfo

from pausepoint.apps.aura.models import Doubt
from pausepoint.apps.aura.sources import cells
from pausepoint.apps.aura.sources.cells import AmbiguousDates, Grade, Order
from pausepoint.apps.aura.sources.work_status import WorkStatus, work_status
from pausepoint.apps.input import BadInput
from pausepoint.apps.words import one_line

T = TypeVar("T")


class DateStyle(Protocol):
    """How the dates of a table are to be read."""

    zone: ZoneInfo
    order: Order | None


class Row:
    """One piece of work of one student, with its position for messages.

    ``names`` are other names of the student in small letters, such as an e-mail address. ``key`` is the id of the work
    if the table has ids of its own. ``is_of_gradebook``: the file does not name the course. ``odd`` are doubts that the
    table has already found.
    """

    def __init__(
        self, where: str, texts: dict[str, str], style: DateStyle, names: frozenset[str] = frozenset(), key: str = "",
        is_of_gradebook: bool = False, odd: Sequence[Doubt] = (),
    ) -> None:  # fmt: skip
        self.where = where
        self.texts = texts
        self.style = style
        self.names = names
        self.key = key
        self.is_of_gradebook = is_of_gradebook
        self.odd = odd

    def is_of(self, student: str) -> bool:
        """Return whether the row is about a student, ignoring case."""
        return self.texts.get("student", student).casefold() == student.casefold() or student.casefold() in self.names

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
        return cells.moment(text, self.style.zone, self.style.order)

    def grade(self) -> Grade:
        """Return the grade. The cell may also say the maximum: 17/20. The maximum of a percentage is 100.

        A status in the cell for the points, such as "excused", is no grade.
        """
        found = Grade() if self._points_word else self.get("points", cells.grade, "a number of at least 0") or Grade()
        most = self.get("max_points", cells.grade, "a number of at least 0")
        if found == Grade():
            read = cells.mark if most is None else cells.grade
            found = self.get("mark", read, "a number of at least 0") or found
        return found if most is None or found.text else found._replace(most=most.points)

    def minutes(self) -> int | None:
        """Return how many minutes the work takes."""
        return self.get("minutes", cells.whole, "a whole number of minutes above 0")

    @cached_property
    def status(self) -> WorkStatus:
        """Whether the work was handed in, late or excused, and the words that are unknown."""
        said = [work_status(self._hand_in_word), work_status(self._points_word)]
        late = work_status(self.texts.get("late", ""))
        return WorkStatus(
            handed_in=any(each.handed_in for each in said) or self.handed_in_at is not None,
            late=any(each.late for each in said) or late.handed_in,
            excused=any(each.excused for each in (*said, late)),
            unknown=tuple(dict.fromkeys(word for each in (*said, late) for word in each.unknown)),
        )

    @cached_property
    def handed_in_at(self) -> datetime | None:
        """When the work was handed in, if the cell says a time instead of a status."""
        if self._hand_in_word:
            return None
        return self.get("handed_in", self._moment, "a status or a time")

    @cached_property
    def _hand_in_word(self) -> str:
        """The status in the cell, or nothing if it is a time. A text that starts with a digit is meant as a time."""
        text = self.texts.get("handed_in", "")
        return "" if work_status(text).unknown and cells.is_moment(text) else text

    @cached_property
    def _points_word(self) -> str:
        """The status in the cell for the points, or nothing if it is a grade."""
        text = self.texts.get("points", "")
        return "" if cells.is_grade(text) or work_status(text).unknown else text

    @property
    def is_silent(self) -> bool:
        """Whether the row says nothing about the work."""
        return not self.texts.get("handed_in", "").strip("-–—") and self.grade() == Grade()

    @property
    def doubts(self) -> list[Doubt]:
        """The status words that are unknown, and as what the work counts."""
        if self.grade() != Grade():
            taken = "taken_graded"
        elif self.status.excused:
            taken = "taken_excused"
        else:
            taken = "taken_done" if self.status.handed_in else "taken_open"
        return [*self.odd] + [
            Doubt(key="unknown_word", values={"where": self.where, "word": one_line(word)}, taken=taken)
            for word in self.status.unknown
        ]
