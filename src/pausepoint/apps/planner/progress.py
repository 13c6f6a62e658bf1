"""What a student has done of a plan: marks by row, day or topic, and the planned time against the time done.

The marks are inputs of the user. PlanningReviewerAgent reads them, and the next plan has only what is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from difflib import get_close_matches
from typing import Literal

from pausepoint.apps.input import BadInput
from pausepoint.apps.planner.dates import read_date, said
from pausepoint.apps.planner.models import (
    Course,
    PlannerState,
    PlanningState,
    PlanRow,
    Progress,
    RowPart,
    TopicEstimate,
    UserInputs,
)
from pausepoint.apps.planner.places import Place, numbered, places_of, read_numbers
from pausepoint.apps.planner.work import WHOLE, Work, gaps, up, works
from pausepoint.apps.words import many
from pausepoint.errors import did_you_mean

Mark = Literal["done", "skipped"]


def marked(state: PlannerState, words: Sequence[str], status: Mark, today: date, see: str) -> list[Progress]:
    """Return the progress that some words name: ids of rows, days, or topics. What is marked already does not count.

    ``see`` is the sentence that names the command which lists the rows.
    """
    found: list[Progress] = []
    for word in words:
        inputs = state.user_inputs.model_copy(update={"progress": [*state.user_inputs.progress, *found]})
        marks = Marks.of(inputs)
        rows = _rows(state.planning_state, word, today, see)
        if rows is None:
            found += _of_topic(state.model_copy(update={"user_inputs": inputs}), word, status, today, see)
            continue
        fresh = [row for row in rows if marks.status(row) == "planned"]
        if not fresh:
            raise BadInput(f"{word}: The work is already marked as done or skipped. {see}")
        found += [each for row in fresh for each in _of_row(inputs, row, status, today, marks)]
    return found


def unmarking(state: PlannerState, words: Sequence[str], see: str) -> list[Progress]:
    """Return the marks that some words name: ids of rows, days, topics or sections, as for `marked`."""
    marks = state.user_inputs.progress
    found: list[Progress] = []
    for word in words:
        named = [mark for mark in marks if word.casefold() in (mark.row_id.casefold(), mark.topic.casefold())]
        if not named and (rows := _rows(state.planning_state, word, date.today(), see)) is not None:
            ids = {row.row_id for row in rows}
            named = [mark for mark in marks if mark.row_id in ids] or Marks.of(state.user_inputs).on(rows)
        elif not named:
            places = {(place.course_id, place.topic, place.section) for place in _named(state, word, see)}
            named = [mark for mark in marks if (mark.course_id, mark.topic, mark.section) in places]
        if not named:
            raise BadInput(f"{word}: Nothing of it is marked. {see}")
        found += named
    return found


def _rows(planning: PlanningState, word: str, today: date, see: str) -> list[PlanRow] | None:
    """Return the rows with this id, or the work of this day; None if the word is neither."""
    work = [row for row in planning.plan_rows if row.estimated_minutes and row.row_id]  # rows of older plans have no id
    named = [row for row in work if row.row_id.casefold() == word.casefold()]
    if named:
        return named
    try:
        day = read_date(word, today)
    except ValueError:
        return None
    of_day = [row for row in work if row.date == day]
    if not of_day:
        raise BadInput(f"{word}: The plan has no work on {said(day)}. {see}")
    return of_day


def _of_row(inputs: UserInputs, row: PlanRow, status: Mark, on: date, marks: Marks) -> list[Progress]:
    course_id = next(each.course_id for each in inputs.courses if each.course_name == row.course)
    if not row.parts:
        return [Progress(course_id=course_id, topic=row.topic, section=row.row_id, status=status, on=on,
                         minutes=row.estimated_minutes, row_id=row.row_id)]  # fmt: skip
    return [
        Progress(course_id=course_id, topic=part.topic, section=part.section, first=first, last=last, status=status,
                 on=on, minutes=_share(part, first, last), row_id=row.row_id)
        for part in row.parts
        for first, last in marks.gaps(row, part)
    ]  # fmt: skip


def _share(part: RowPart, first: int, last: int) -> int:
    return round(part.minutes * (last - first) / max(part.last - part.first, 1))


def _of_topic(state: PlannerState, word: str, status: Mark, on: date, see: str) -> list[Progress]:
    """Return progress for all that is left of the places that the word names: a topic, a chapter, or sections."""
    named = {(place.course_id, place.topic, place.section) for place in _named(state, word, see)}
    topics = {(course_id, topic) for course_id, topic, _ in named}
    left = [(each, part) for each in works(state.user_inputs, state.estimation_state.topic_estimates)
            if (each.course.course_id, each.topic) in topics
            for part in _as_planned(each, state.planning_state).queue]  # fmt: skip
    found = [
        Progress(course_id=each.course.course_id, topic=each.topic, section=part.section.section, first=part.first,
                 last=part.last, status=status, on=on, minutes=part.minutes)
        for each, part in left
        if (each.course.course_id, each.topic, part.section.section) in named
    ]  # fmt: skip
    if not found:
        raise BadInput(f"{word}: Nothing of it is left. {see}")
    return found


def _as_planned(work: Work, planning: PlanningState) -> Work:
    """Return work with the time that the plan has for it. A topic that was left out and is done counts in full."""
    for each in planning.cuts:
        if (each.course_id, each.topic) == (work.course.course_id, work.topic) and each.planned_minutes:
            return replace(work, planned=up(work.minutes * each.planned_minutes / each.needed_minutes))
    return work


def _named(state: PlannerState, word: str, see: str) -> list[Place]:
    """Return the places that a word names: by numbers, or by a name of a topic or a section. Part of it is enough.

    The course may stand in front, as in `calc2: Limits`.
    """
    places = places_of(state.estimation_state.topic_estimates)
    courses = {course.course_id: course.course_name for course in state.user_inputs.courses}
    same = _of_name(places, word)
    course, _, rest = (part.strip() for part in word.partition(":"))
    ids = {each for each, name in courses.items() if course.casefold() in (each.casefold(), name.casefold())}
    if not same and rest and ids:
        places = [place for place in places if place.course_id in ids]
        word, same = rest, _of_name(places, rest)
    numbers = read_numbers(word)
    if numbers is not None and not same:
        if found := numbered(places, numbers, courses):
            return _of_one_book(word, found)
        if word.strip().startswith("§"):
            raise BadInput(f"{word}: No section has this number. Write the name of a topic or a section. {see}")
    topics = [place for place in places if word.casefold() in place.topic.casefold()]
    sections = [place for place in places if word.casefold() in place.section.casefold()]
    found = [place for place in same if word.casefold() == place.topic.casefold()] or same or topics or sections
    by_topic = found and (found == topics or word.casefold() == found[0].topic.casefold())
    chosen = {(place.course_id, place.topic, "" if by_topic else place.section): place for place in found}
    if len(chosen) == 1:
        return found
    if not chosen:
        names = [each.topic for each in state.estimation_state.topic_estimates]
        names = names if len(names) <= 8 else get_close_matches(word, names, 1)  # a long list helps nobody
        raise BadInput(f"{word}: No row, day, topic or section has this name{did_you_mean(word, names)} {see}")
    listed = ", ".join(f"{course}: {section or topic}" for course, topic, section in list(chosen)[:4])
    raise BadInput(f"{word}: Several topics have this name ({listed}). Write more of the name, or the id of a row.")


def _of_name(places: Sequence[Place], word: str) -> list[Place]:
    return [place for place in places if word.casefold() in (place.topic.casefold(), place.section.casefold())]


def _of_one_book(word: str, places: list[Place]) -> list[Place]:
    """Return the places if they are in one book. Refuse a number that several books have."""
    books = list(dict.fromkeys((place.course_id, place.book) for place in places if place.role == "book"))
    if len(books) <= 1:
        return places
    number = word.rpartition(":")[2].strip()
    courses = list(dict.fromkeys(course_id for course_id, _ in books))
    ways = [f"{name}: {number}" for name in (courses if len(courses) > 1 else [book for _, book in books])]
    listed = " or ".join(f"{way!r}" for way in ways[:3])
    raise BadInput(f"{word}: Several books have this number. Write {listed}.")


def topic_of(state: PlannerState, word: str, see: str) -> TopicEstimate:
    """Return the topic that a word names."""
    named = {(place.course_id, place.topic) for place in _named(state, word, see)}
    found = [each for each in state.estimation_state.topic_estimates if (each.course_id, each.topic) in named]
    if len(found) > 1:
        listed = ", ".join(f"“{each.topic}”" for each in found[:4])
        raise BadInput(f"{word}: Several topics are meant ({listed}). Name one of them.")
    return found[0]


def statuses(inputs: UserInputs, planning: PlanningState) -> dict[str, str]:
    """Return the status of each row by its id: ``done``, ``skipped`` or ``planned``. Withdrawn rows have one, too."""
    marks = Marks.of(inputs)
    return {row.row_id: marks.status(row) for row in (*planning.withdrawn, *planning.plan_rows)}


def unmarked(planning: PlanningState, before: UserInputs, after: UserInputs) -> PlanningState:
    """Return the plan with a higher sequence number for each row whose mark was removed.

    A calendar takes an event with a lower number for an old one.
    """
    old, new = Marks.of(before), Marks.of(after)

    def risen(rows: Sequence[PlanRow]) -> list[PlanRow]:
        return [
            row if old.status(row) == new.status(row) else row.model_copy(update={"sequence": row.sequence + 1})
            for row in rows
        ]

    return planning.model_copy(
        update={"plan_rows": risen(planning.plan_rows), "withdrawn": risen(planning.withdrawn)}
    )  # fmt: skip


@dataclass(frozen=True)
class Marks:
    """The marks of rows by their ids, and those of sections by course, topic and section."""

    rows: Mapping[str, str]
    sections: Mapping[tuple[str, str, str], Sequence[Progress]]

    @classmethod
    def of(cls, inputs: UserInputs) -> Marks:
        """Return the marks that the user has set."""
        sections: dict[tuple[str, str, str], list[Progress]] = defaultdict(list)
        names = {course.course_id: course.course_name for course in inputs.courses}
        for each in inputs.progress:
            sections[names.get(each.course_id, ""), each.topic, each.section].append(each)
        return cls({each.row_id: each.status for each in inputs.progress if each.row_id}, sections)

    def status(self, row: PlanRow) -> str:
        """Return the status of a row. It is marked when all of its sections are: as done, unless all were skipped."""
        if row.row_id in self.rows or not row.parts:
            return self.rows.get(row.row_id, "planned")
        if any(self.gaps(row, part) for part in row.parts):
            return "planned"
        return "done" if any(mark.status == "done" for part in row.parts for mark in self._on(row, part)) else "skipped"

    def left(self, row: PlanRow) -> int:
        """Return the minutes of a row that are neither done nor skipped."""
        if self.status(row) != "planned":
            return 0
        left = sum(_share(part, *gap) for part in row.parts for gap in self.gaps(row, part))
        return row.estimated_minutes - sum(part.minutes for part in row.parts) + left

    def gaps(self, row: PlanRow, part: RowPart) -> list[tuple[int, int]]:
        """Return the extents of a part of a row that are neither done nor skipped."""
        marks = [(each.first, each.last) for each in self._on(row, part)]
        return gaps([(0, part.first), (part.last, WHOLE), *marks])

    def on(self, rows: Sequence[PlanRow]) -> list[Progress]:
        """Return the marks that touch some rows, such as those of their topics."""
        return [mark for row in rows for part in row.parts for mark in self._on(row, part)]

    def _on(self, row: PlanRow, part: RowPart) -> list[Progress]:
        marks = self.sections.get((row.course, part.topic, part.section), ())
        return [each for each in marks if each.first < part.last and part.first < each.last]


@dataclass(frozen=True)
class Standing:
    """How far a course is.

    ``total`` is the time of the plan together with what is marked, ``planned`` the time that the plan has for the days
    before today, and ``cut`` the time for which the plan has no room.
    """

    course: str
    midterm: date | None
    total: int
    done: int
    skipped: int
    planned: int
    cut: int
    late: list[PlanRow]

    @property
    def words(self) -> str:
        """The standing in one line."""
        skipped = f", {many(self.skipped, 'minute')} skipped" if self.skipped else ""
        cut = f"; {many(self.cut, 'minute')} cut for lack of time" if self.cut else ""
        behind = f"; {many(len(self.late), 'row')} of earlier days not done" if self.late else ""
        return f"{self.course}: {self.done} of {many(self.total, 'planned minute')} done{skipped}{cut}{behind}"


def standings(state: PlannerState, today: date) -> list[Standing]:
    """Return how far each course is."""
    inputs, planning = state.user_inputs, state.planning_state
    marks = Marks.of(inputs)
    found: list[Standing] = []
    for course in inputs.courses:
        mine = [each for each in inputs.progress if each.course_id == course.course_id]
        rows = [row for row in planning.plan_rows if row.course == course.course_name and row.estimated_minutes]
        past = [row for row in rows if row.date < today]
        found.append(
            Standing(
                course.course_name, course.midterm_date,
                sum(each.minutes for each in mine) + sum(map(marks.left, rows)),
                sum(each.minutes for each in mine if each.status == "done"),
                sum(each.minutes for each in mine if each.status == "skipped"),
                sum(row.estimated_minutes for row in past),
                _cut(course, planning, mine),
                [row for row in past if marks.status(row) == "planned"],
            )
        )  # fmt: skip
    return found


def _cut(course: Course, planning: PlanningState, marks: Sequence[Progress]) -> int:
    """Return the minutes that a plan cuts from a course, without the topics that are done or skipped nevertheless."""
    marked = {each.topic for each in marks}
    return sum(
        each.needed_minutes - each.planned_minutes
        for each in planning.cuts
        if each.course_id == course.course_id and (each.planned_minutes or each.topic not in marked)
    )


def today_of(inputs: UserInputs, planning: PlanningState) -> date:
    """Return the day on which a plan is read: its first day, or the day of the latest mark."""
    first = planning.planned_for.start_date if planning.planned_for else inputs.start_date
    days = [each.on for each in inputs.progress] + [day for day in (first, inputs.start_date) if day]
    return max(days, default=date.min)
