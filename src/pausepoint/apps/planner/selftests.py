"""Questions to test oneself, where a student needs them: at the end of each topic, and in the reviews of a course.

A review asks about the topics that the plan has finished by then, and the next review asks other questions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pausepoint.apps.planner.models import QUESTIONS, Evidence, PlanRow, Progress, Study, UserInputs
from pausepoint.apps.planner.rows import REVIEW

MINUTES_PER_QUESTION = 4
"""A review has time for one question in so many minutes."""

Name = tuple[str, str]
"""A course and a topic of it."""


class SelfTest(NamedTuple):
    """The questions about a topic. ``note`` says how hard it is and what to know first, if anything."""

    course: str
    topic: str
    note: str
    questions: list[str]


def studies(inputs: UserInputs, evidence: Sequence[Evidence]) -> dict[Name, Study]:
    """Return what a language model says about the topics of each course, in the order of the book."""
    return {name: each.study for each in evidence if each.study and (name := _name(inputs, each))}


class SelfTests:
    """The questions of a plan. A topic that the student neither has done nor has in the plan has none."""

    def __init__(self, inputs: UserInputs, evidence: Sequence[Evidence], rows: Sequence[PlanRow]) -> None:
        self._first = {name: row.row_id for row in reversed(rows) for name in _names(row)}
        self._last = {name: row.row_id for row in rows for name in _names(row)}
        done = {_name(inputs, each) for each in inputs.progress if each.status == "done"}
        self._studies = {
            name: study for name, study in studies(inputs, evidence).items() if name in self._last or name in done
        }
        self._reviewed = dict(self._reviews(rows))

    def all(self) -> list[SelfTest]:
        """Return the questions of all topics, in the order of the book."""
        return [SelfTest(*name, note(study), study.questions) for name, study in self._studies.items()]

    def notes(self, row: PlanRow) -> list[str]:
        """Return what to know when a topic begins in a row: how hard it is, and what comes first."""
        names = _names(row)
        begun = [name for name in names if self._first[name] == row.row_id and name in self._studies]
        told = [(name[1], note(self._studies[name])) for name in begun]
        return [f"{topic}: {words}" if len(names) > 1 else words for topic, words in told if words]

    def questions(self, row: PlanRow) -> list[str]:
        """Return the questions of a review, or a few about the topics that end in a row."""
        if row.row_id in self._reviewed:
            return self._reviewed[row.row_id]
        ended = [name for name in _names(row) if self._last[name] == row.row_id and name in self._studies]
        few = max(QUESTIONS // max(len(ended), 1), 1)
        return [each for name in ended for each in self._studies[name].questions[:few]]

    def _reviews(self, rows: Sequence[PlanRow]) -> Iterator[tuple[str, list[str]]]:
        known = {name for name in self._studies if name not in self._last}
        counted: Counter[str] = Counter()
        for row in rows:
            known |= {name for name in _names(row) if self._last[name] == row.row_id}
            if row.topic == REVIEW and not row.parts:
                asked = [study.questions for name, study in self._studies.items()
                         if name in known and name[0] == row.course and study.questions]  # fmt: skip
                yield row.row_id, _chosen(asked, counted[row.course], row.estimated_minutes)
                counted[row.course] += 1


def _chosen(asked: Sequence[Sequence[str]], number: int, minutes: int) -> list[str]:
    """Return one question of each topic, or of every second or third one if the review is too short for all.

    >>> topics = [["a1", "a2"], ["b1", "b2", "b3"], ["c1", "c2"]]
    >>> _chosen(topics, 0, 20), _chosen(topics, 1, 20), _chosen(topics, 1, 8)
    (['a1', 'b1', 'c1'], ['a2', 'b2', 'c2'], ['b2'])
    """
    step = math.ceil(len(asked) / max(minutes // MINUTES_PER_QUESTION, 1)) or 1
    return [questions[number % len(questions)] for questions in asked[number % step :: step]]


def _names(row: PlanRow) -> list[Name]:
    return list(dict.fromkeys((row.course, part.topic) for part in row.parts))


def _name(inputs: UserInputs, each: Evidence | Progress) -> Name | None:
    names = [course.course_name for course in inputs.courses if course.course_id == each.course_id]
    return (names[0], each.topic) if names else None


def note(study: Study) -> str:
    """Return how hard a topic is and what to know first, in words, or nothing.

    >>> note(Study(difficulty="hard", prerequisites=["Limits"])), note(Study())
    ('Hard, according to a language model. Know this first: Limits.', '')
    """
    difficulty = f"{study.difficulty.capitalize()}, according to a language model."
    first = f"Know this first: {', '.join(study.prerequisites)}."
    return " ".join([difficulty] * (study.difficulty != "normal") + [first] * bool(study.prerequisites))
