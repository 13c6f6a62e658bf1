"""A plan as people see it: its weeks, its progress, its cuts in a few sentences, and what was set aside.

The web page and the Markdown say the same in the same words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from itertools import groupby

from pausepoint.apps.planner import exams
from pausepoint.apps.planner.dates import said
from pausepoint.apps.planner.models import (
    Cut,
    FileEntry,
    IngestionState,
    PlannerState,
    PlanningState,
    PlanRow,
    SetAside,
    UserInputs,
)
from pausepoint.apps.planner.progress import standings, statuses, today_of
from pausepoint.apps.planner.rows import REVIEW
from pausepoint.apps.planner.selftests import SelfTests, studies
from pausepoint.apps.words import many

VERDICTS = {
    "approved_plan": "approved",
    "capacity_limited_plan": "shortened for lack of time",
    "needs_revision": "refused by the reviewer",
}
"""The result types of a review, in words for people."""

SAID = {
    "approved_plan": "All topics fit before their midterms.",
    "capacity_limited_plan": "There is not enough time for everything. The cuts are listed at the end.",
    "needs_revision": "The reviewer refused this plan.",
}


@dataclass(frozen=True)
class Shown:
    """A version of a plan, with what a reader wants to know about it."""

    state: PlannerState
    planning: PlanningState
    inputs: UserInputs

    @classmethod
    def of(cls, state: PlannerState, planning: PlanningState | None = None) -> Shown:
        """Return the current plan of a session, or another version of it."""
        if planning is None or planning.plan_version == state.planning_state.plan_version:
            return cls(state, state.planning_state, state.user_inputs)
        return cls(state, planning, planning.planned_for or state.user_inputs)

    @cached_property
    def statuses(self) -> Mapping[str, str]:
        """The status of each row, by its id."""
        return statuses(self.inputs, self.planning)

    def status(self, row: PlanRow) -> str:
        """Return the status of a row: ``planned``, ``done`` or ``skipped``."""
        return self.statuses.get(row.row_id, "planned") if row.row_id else "planned"

    @property
    def next_row_id(self) -> str:
        """The id of the first work that is neither done nor skipped, or nothing."""
        rows = (row for row in self.planning.plan_rows if row.estimated_minutes and row.row_id)
        return next((row.row_id for row in rows if self.status(row) == "planned"), "")

    @cached_property
    def today(self) -> date:
        """The day that the plan is shown for."""
        return today_of(self.inputs, self.planning)

    @property
    def title(self) -> str:
        """The version of the plan and its days."""
        rows = self.planning.plan_rows
        span = f"{said(rows[0].date)} to {said(rows[-1].date)}" if rows else "without days"
        return f"Version {self.planning.plan_version}, {span}, times in {self.inputs.timezone}"

    @property
    def verdict(self) -> tuple[str, str]:
        """The verdict of the reviewer in a word and a sentence."""
        review = self.planning.review
        kind = review.result_type if review else ""
        sentence = SAID.get(kind, "The plan has no review yet.")
        return VERDICTS.get(kind, "not reviewed yet").capitalize(), f"{sentence} {self.enough}".strip()

    @property
    def enough(self) -> str:
        """How many minutes a day would be enough, if something was cut."""
        if not self.planning.cuts:
            return ""
        minutes, limit = self.planning.enough_minutes, self.inputs.shared_constraints.limit
        if minutes is None:
            return "No daily limit is enough: the days before a midterm have too little free time for everything."
        return f"With {minutes} minutes a day instead of {limit}, everything fits."

    @property
    def not_in_exam(self) -> list[str]:
        """The topics of each course that its exam does not cover."""
        estimates = self.state.estimation_state.topic_estimates
        not_asked = exams.outside(self.inputs, estimates)
        found: list[str] = []
        for course in self.inputs.courses:
            names = exams.left_out(course, not_asked.get(course.course_id, set()), estimates)
            if names:
                found.append(f"{course.course_name}: {many(len(names), 'topic')}: {'; '.join(names)}.")
        return found

    @property
    def refusals(self) -> list[str]:
        """Why the reviewer refused the plan."""
        review = self.planning.review
        return list(review.revision_reasons) if review and review.result_type == "needs_revision" else []

    @property
    def weeks(self) -> list[tuple[date, list[PlanRow]]]:
        """The rows of each week from today's on, each with its Monday."""
        return [(monday, rows) for monday, rows in self._all_weeks if monday + timedelta(days=6) >= self.today]

    @property
    def past(self) -> list[tuple[date, list[PlanRow]]]:
        """The rows of each week before today's."""
        return [(monday, rows) for monday, rows in self._all_weeks if monday + timedelta(days=6) < self.today]

    @cached_property
    def _all_weeks(self) -> list[tuple[date, list[PlanRow]]]:
        found = groupby(self.planning.plan_rows, key=lambda row: row.date - timedelta(days=row.date.weekday()))
        return [(monday, list(rows)) for monday, rows in found]

    @property
    def midterms(self) -> list[tuple[date, str]]:
        """The midterms in their order."""
        return sorted(
            (course.midterm_date, f"{course.course_name} ({course.exam})" if course.exam else course.course_name)
            for course in self.inputs.courses
            if course.midterm_date
        )

    @property
    def standings(self) -> list[str]:
        """How far each course is, in one line each."""
        state = self.state.model_copy(update={"planning_state": self.planning, "user_inputs": self.inputs})
        return [each.words for each in standings(state, self.today)]

    @property
    def cuts(self) -> list[str]:
        """The cuts of each course in a few sentences, with every topic."""
        found: list[str] = []
        for course in self.inputs.courses:
            mine = [each for each in self.planning.cuts if each.course_id == course.course_id]
            gone = [each for each in mine if not each.planned_minutes and each.topic != REVIEW]
            less = [each for each in mine if each.planned_minutes]
            if gone:
                found.append(f"{course.course_name}: {many(len(gone), 'topic')} left out: {_names(gone)}.")
            if less:
                share = sum(each.planned_minutes for each in less) / sum(each.needed_minutes for each in less)
                verb = "has" if len(less) == 1 else "have"
                found.append(f"{course.course_name}: {many(len(less), 'topic')} {verb} {share:.0%} of the time needed:"
                             f" {_names(less)}.")  # fmt: skip
            if any(each.topic == REVIEW for each in mine):
                found.append(f"{course.course_name}: There is no time for a review before the midterm.")
            found += self._missed(course.course_name, {each.topic for each in gone})
        return found

    def _missed(self, course: str, gone: set[str]) -> list[str]:
        """Say which topics of the plan need one that is left out."""
        known = studies(self.inputs, self._ingestion.course_topic_evidence)
        needed = [(topic, first) for (name, topic), study in known.items() if name == course and topic not in gone
                  for first in study.prerequisites if first in gone]  # fmt: skip
        return [f"{course}: {topic} needs {first}, which is left out." for topic, first in needed]

    @cached_property
    def self_tests(self) -> SelfTests:
        """The questions of a language model, by row and by topic."""
        return SelfTests(self.inputs, self._ingestion.course_topic_evidence, self.planning.plan_rows)

    @property
    def set_aside(self) -> list[str]:
        """The parts of the files that are not studied."""
        return [_aside(each) for each in self._ingestion.set_aside]

    @property
    def warnings(self) -> list[str]:
        """What was not read of files and calendars, what a language model has not done, and uncertain estimates."""
        found = []
        if self.inputs.busy_skipped:
            found.append(f"{many(self.inputs.busy_skipped, 'event')} of your calendar could not be read. The plan does"
                         " not keep that time free.")  # fmt: skip
        for file_id, each in self._ingestion.files.items():
            if each.warning:
                read = f"{each.processed_chunks} of {many(each.chunking.total_chunks, 'chunk')} were read"
                found.append(f"{self._files[file_id].filename} is partial ({read}): {each.warning}")
        return [*found, *self._ingestion.warnings, *self.state.estimation_state.uncertainty_flags]

    @property
    def _ingestion(self) -> IngestionState:
        return self.state.ingestion_state

    @property
    def _files(self) -> Mapping[str, FileEntry]:
        return self.state.file_registry


def _names(cuts: Sequence[Cut]) -> str:
    return "; ".join(each.topic for each in cuts)


def _aside(part: SetAside) -> str:
    pages = ""
    if part.first_page is not None:
        last = part.last_page if part.last_page is not None else part.first_page
        pages = f", p. {part.first_page}" if last <= part.first_page else f", pp. {part.first_page}–{last}"
    return f"{part.filename}: {part.title}{pages} ({part.why})"


def span(first: date, last: date) -> str:
    """Return some days in words.

    >>> span(date(2030, 2, 25), date(2030, 3, 3)), span(date(2030, 2, 25), date(2030, 2, 25))
    ('Mon 25 Feb to Sun 3 Mar', 'Mon 25 Feb')
    """
    return " to ".join(said(day, year=False) for day in dict.fromkeys((first, last)))


def week(monday: date) -> str:
    """Return a week in words."""
    return span(monday, monday + timedelta(days=6))


def days(rows: Sequence[PlanRow], today: date) -> Iterator[tuple[str, list[PlanRow]]]:
    """Yield each day in words, with its rows. Idle days in a row come as one with one row, but today stays alone."""
    whole = [list(listed) for _, listed in groupby(rows, key=lambda row: row.date)]

    def kind(of_day: list[PlanRow]) -> object:
        row = of_day[0]
        return row.date if row.row_id or row.date == today else (row.task_description, row.date > today)

    for _, alike in groupby(whole, key=kind):
        first, *others = alike
        yield span(first[0].date, (others or [first])[-1][0].date), first


def minutes_of(rows: Sequence[PlanRow]) -> int:
    """Return the minutes of some rows."""
    return sum(row.estimated_minutes for row in rows)
