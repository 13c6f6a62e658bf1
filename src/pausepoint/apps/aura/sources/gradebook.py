"""Gradebooks as Canvas, Moodle and Google Classroom export them: one column for each piece of work.

Canvas has the points possible in a line below the headings, and its id of the work in the heading: ``Lab 1 (12345)``.
Moodle has headings such as ``Assignment: Essay (Real)``, perhaps with a percentage of the same work. Google Classroom
has lines for the due dates and the points. Totals, averages, feedback and test students are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from pausepoint.apps.aura.models import Doubt
from pausepoint.apps.aura.sources import cells
from pausepoint.apps.aura.sources.cells import Order, column_of, squeezed
from pausepoint.apps.aura.sources.rows import DateStyle, Row
from pausepoint.apps.words import one_line

Line = tuple[int, list[str]]
"""The number of a line, and its cells."""

Role = Literal["first", "last", "name", "other_name", "section", "ignored"]

ROLES: dict[Role, str] = {
    "first": "firstname givenname vorname",
    "last": "lastname surname familyname nachname familienname",
    "name": "student",
    "other_name": "id idnumber sisuserid sisloginid username studentid email emailaddress emailadresse"
    " anmeldename idnummer matrikelnummer",
    "section": "section",
    "ignored": "rootaccount integrationid institution department group groups abteilung gruppe overallgrade gesamtnote",
}
"""What the columns about the student are called, without blanks and signs."""

DUE = ["date", "duedate", "due", "datum", "fälligam", "fälligkeit", "abgabedatum", "abgabetermin"]
POINTS = [
    "points",
    "pointspossible",
    "maxpoints",
    "maximumpoints",
    "outof",
    "punkte",
    "maxpunkte",
    "maximalpunkte",
    "gesamtpunktzahl",
]
NO_STUDENT = [
    "classaverage",
    "average",
    "overallaverage",
    "mean",
    "median",
    "klassendurchschnitt",
    "durchschnitt",
    "studenttest",
]
UNDATED = ("", "-", "no due date", "none", "kein abgabetermin", "keine")

OF_CANVAS = re.compile(r"^(.*\S)\s*\((\d+)\)$")
OF_MOODLE = re.compile(
    r"^(.*\S)\s*\((real|percentage|letter|feedback|punkte|prozentsatz|prozent|note|buchstabe|rückmeldung)\)$",
    re.IGNORECASE,
)
SHARES, LETTERS = ("percentage", "prozentsatz", "prozent"), ("letter", "note", "buchstabe")
TOTAL = re.compile(
    r"(?:\btotal|\bgesamt|(?:current|final) (?:score|points|grade)|\(read only\))$|^(?:feedback|rückmeldung):"
    r"|^(?:last downloaded|zuletzt )|(?:feedback|rückmeldung)\)$|\b(?:course|category|kurs) ?(?:total|gesamt)",
    re.IGNORECASE,
)
"""Headings that are no piece of work."""

HEAD_WITHIN = 5
"""The headings are in one of the first lines. A copied sheet may have its dates and points above them."""


class Item(NamedTuple):
    """A piece of work: the place and the heading of its column. ``share`` and ``letter`` are other columns about it."""

    column: int
    heading: str
    title: str
    key: str = ""
    share: int | None = None
    letter: int | None = None


def gradebook(lines: Sequence[Line], place: str, course: str, style: DateStyle) -> list[Row] | None:
    """Return the work of all students, or None if the lines are not a gradebook. ``course`` is the name of the file."""
    for index, (_, headings) in enumerate(lines[:HEAD_WITHIN]):
        roles = [_role(heading) for heading in headings]
        items = _items(headings, roles)
        if _is_head(headings, roles) and items:
            others = [*lines[:index], *lines[index + 1 :]]
            return list(Gradebook(others, roles, items, place, course, style).rows())
    return None


def course_of(stem: str) -> str:
    """Return the name of a course in the name of a file, without the date of the export.

    >>> course_of("2030-03-04T0801_Grades-BIO_7b"), course_of("BIO7 Grades-20300304_0801-comma_separated (2)")
    ('BIO_7b', 'BIO7')
    >>> course_of("Biology 7b - grades"), course_of("grades (1)")
    ('Biology 7b', 'grades')
    """
    text = re.sub(r"\s*\(\d+\)$", "", stem)
    if of_canvas := re.match(r"^\d{4}-\d\d-\d\dT\d+_(?:Grades|Bewertungen|Noten)-(.+)$", text):
        return of_canvas[1]
    return (
        re.sub(r"[\s_-]+(?:grades?|gradebook|bewertungen|noten)(?:[\s_-].*)?$", "", text, flags=re.IGNORECASE) or text
    )


class Gradebook:
    """The lines of a gradebook without its headings."""

    def __init__(
        self, lines: Sequence[Line], roles: Sequence[Role | None], items: Sequence[Item], place: str, course: str,
        style: DateStyle,
    ) -> None:  # fmt: skip
        self.roles = roles
        self.items = items
        self.place = place
        self.course = course
        self.style = style
        self.most: dict[int, str] = {}
        self.due: dict[int, tuple[int, str]] = {}
        self.students = [line for line in lines if self._is_student(line)]
        self.namesakes = Counter(self._name(line).casefold() for line in self.students)

    def rows(self) -> Iterator[Row]:
        """Yield each piece of work of each student."""
        for line in self.students:
            for item in self.items:
                yield self._row(line, item)

    def _is_student(self, line: Line) -> bool:
        """Return whether a line is about a student. Keep the dates and the points of the others."""
        number, texts = line
        labels = [squeezed(text) for text, role in zip(texts, self.roles, strict=False) if role and text.strip()]
        values = {item.column: text for item in self.items if (text := _at(texts, item.column))}
        numbers = {column: text for column, text in values.items() if _is_number(text)}
        if any(label in POINTS for label in labels) or (not labels and values and numbers == values):
            self.most |= numbers
        elif any(label in DUE for label in labels) or (not labels and all(map(cells.is_moment, values.values()))):
            self.due |= {column: (number, text) for column, text in values.items()}
        else:
            return bool(labels) and not any(label in NO_STUDENT for label in labels)
        return False

    def _texts(self, line: Line, role: Role) -> list[str]:
        return [text for at, each in enumerate(self.roles) if each == role and (text := _at(line[1], at))]

    def _name(self, line: Line) -> str:
        """Return the student's name as people say it: the first name first."""
        names = [*self._texts(line, "first"), *self._texts(line, "last")]
        last, comma, first = " ".join(self._texts(line, "name")).partition(",")
        return one_line(" ".join([*names, *([first.strip()] if comma else []), last]))

    def _row(self, line: Line, item: Item) -> Row:
        number, texts = line
        name, others = self._name(line), self._texts(line, "other_name")
        names = {other.casefold() for other in others}
        if name and self.namesakes[name.casefold()] == 1:
            names |= {name.casefold(), *(text.casefold() for text in self._texts(line, "name"))}
            names |= {f"{last}, {first}".casefold() for first, last in self._pairs(line)}
        elif others:
            name = next((other for other in others if "@" in other), others[0])
        section = " ".join(self._texts(line, "section"))
        known = {"student": name, "course": self.course or section, "title": item.title, **self._values(texts, item)}
        due, doubts = self._due(item)
        return Row(
            f"{self.place}, line {number}, {item.heading!r}", known | due, self.style, frozenset(names), item.key,
            is_of_gradebook=True, odd=doubts,
        )  # fmt: skip

    def _pairs(self, line: Line) -> Iterator[tuple[str, str]]:
        yield from zip(self._texts(line, "first"), self._texts(line, "last"), strict=False)

    def _values(self, texts: Sequence[str], item: Item) -> dict[str, str]:
        """Return the grade or the status in the cells of a piece of work."""
        share = _at(texts, item.share)
        if cells.is_grade(share):
            return {"points": f"{share.removesuffix('%').strip()} %"}
        value, letter = _at(texts, item.column), _at(texts, item.letter)
        if cells.is_grade(value):
            return {"points": value, "max_points": self.most.get(item.column, "")}
        return {"handed_in": value, "mark": "" if letter == "-" else letter}

    def _due(self, item: Item) -> tuple[dict[str, str], list[Doubt]]:
        """Return the due date, or a doubt if there is another text in its place."""
        number, text = self.due.get(item.column, (0, ""))
        if text.casefold() in UNDATED:
            return {}, []
        if _is_date(text, self.style):
            return {"due": text}, []
        where = f"{self.place}, line {number}, {item.heading!r}"
        return {}, [Doubt(key="unknown_word", values={"where": where, "word": one_line(text)}, taken="taken_undated")]


def _role(heading: str) -> Role | None:
    bare = squeezed(heading)
    return next((role for role, names in ROLES.items() if bare in names.split()), None)


def _is_head(headings: Sequence[str], roles: Sequence[Role | None]) -> bool:
    """Return whether these are the headings of a gradebook, and not those of a table with a line for each work."""
    columns = {column_of(heading) for heading in headings}
    of_canvas = "name" in roles and ("section" in roles or roles.count("other_name") > 1)
    return (of_canvas or {"first", "last"} <= {*roles}) and not {"course", "title"} <= columns


def _items(headings: Sequence[str], roles: Sequence[Role | None]) -> list[Item]:
    """Return the pieces of work in the headings."""
    free = [(at, text.strip()) for at, text in enumerate(headings) if roles[at] is None and text.strip()]
    if numbered := [(at, text, found) for at, text in free if (found := OF_CANVAS.match(text))]:
        return [Item(at, text, one_line(found[1]), f"canvas/{found[2]}") for at, text, found in numbered]
    if any(OF_MOODLE.match(text) for _, text in free):
        return _moodle_items(free)
    return [Item(at, text, _title(text)) for at, text in free if not TOTAL.search(text)]


def _moodle_items(free: Sequence[tuple[int, str]]) -> list[Item]:
    """Return one item for the points, the percentage and the letter of a piece of work."""
    found: dict[str, Item] = {}
    for at, text in free:
        match = OF_MOODLE.match(text)
        if match is None or TOTAL.search(match[1]) or TOTAL.search(text):
            continue
        item, kind = found.get(match[1], Item(at, text, _title(match[1]))), match[2].casefold()
        if kind in SHARES:
            item = item._replace(share=at)
        elif kind in LETTERS:
            item = item._replace(letter=at)
        else:
            item = item._replace(column=at, heading=text)
        found[match[1]] = item
    return list(found.values())


def _title(heading: str) -> str:
    return one_line(re.sub(r"^(?:assignment|aufgabe):\s*", "", heading, flags=re.IGNORECASE))


def _at(texts: Sequence[str], column: int | None) -> str:
    return texts[column].strip() if column is not None and column < len(texts) else ""


def _is_number(text: str) -> bool:
    return cells.is_grade(text) and text[:1].isdigit()


def _is_date(text: str, style: DateStyle) -> bool:
    orders: tuple[Order, Order] = ("day-first", "month-first")
    for order in orders:
        try:
            cells.moment(text, style.zone, order)
        except (ValueError, OverflowError):
            continue
        return True
    return False
