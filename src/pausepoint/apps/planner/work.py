"""The work that is left: topics in the order of the book, with their sections, the user's pace and progress."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date

from pausepoint.apps.planner import exams
from pausepoint.apps.planner.estimation import divided
from pausepoint.apps.planner.models import STEP, Course, Priority, SectionEstimate, TopicEstimate, UserInputs

WHOLE = 1000
"""The extent of a section. Progress is counted in thousandths of it."""


@dataclass(frozen=True)
class Part:
    """A section of a topic, or the rest of one. ``first`` and ``last`` are its extent in thousandths."""

    topic: str
    section: SectionEstimate
    minutes: int
    first: int = 0
    last: int = WHOLE

    def split(self, minutes: int) -> tuple[Part, Part]:
        """Divide the part after some of its minutes."""
        at = self.first + round((self.last - self.first) * minutes / self.minutes)
        return replace(self, minutes=minutes, last=at), replace(self, minutes=self.minutes - minutes, first=at)


@dataclass(frozen=True)
class Work:
    """What is left of a topic. It must be finished before the midterm of its course.

    ``full`` is the time of the whole topic, ``minutes`` the time of what is left, ``planned`` the time after cuts.
    """

    course: Course
    topic: str
    full: int
    minutes: int
    planned: int
    priority: Priority
    confidence: float
    sources: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def due(self) -> date:
        """The day of the midterm."""
        assert self.course.midterm_date is not None
        return self.course.midterm_date

    @property
    def queue(self) -> list[Part]:
        """The parts with the minutes that the cuts leave them."""
        if self.planned == self.minutes:
            return list(self.parts)
        shares = divided(self.planned, [part.minutes for part in self.parts])
        return [replace(part, minutes=share) for part, share in zip(self.parts, shares, strict=True)]


def works(inputs: UserInputs, estimates: Iterable[TopicEstimate]) -> list[Work]:
    """Return the work of every course whose midterm is to come, in the order of the book: what its exam covers."""
    first = inputs.start_date or date.min
    courses = {course.course_id: course for course in inputs.courses if (course.midterm_date or date.min) >= first}
    listed = list(estimates)
    not_asked = exams.outside(inputs, listed)
    found = [
        work for each in listed if each.course_id in courses
        if (work := _work(inputs, courses[each.course_id], each, not_asked.get(each.course_id, set()))).full
    ]  # fmt: skip
    return sorted(found, key=lambda work: (work.due, inputs.courses.index(work.course)))


def _work(inputs: UserInputs, course: Course, estimate: TopicEstimate, not_asked: Collection[exams.Key]) -> Work:
    listed = estimate.sections or [_only_section(estimate)]
    whole = zip(listed, divided(needed(inputs, course, estimate), [each.minutes for each in listed]), strict=True)
    kept = [(each, minutes) for each, minutes in whole if (estimate.topic, each.section) not in not_asked]
    sections, shares = [each for each, _ in kept], [minutes for _, minutes in kept]
    full = sum(shares)
    done = _done(inputs, course.course_id, estimate.topic)
    parts = [
        Part(estimate.topic, section, _share(minutes, last - first), first, last)
        for section, minutes in zip(sections, shares, strict=True)
        for first, last in gaps(done[section.section])
    ]
    minutes = sum(part.minutes for part in parts)
    return Work(
        course, estimate.topic, full, minutes, minutes, estimate.priority, estimate.confidence,
        tuple(estimate.source_files), tuple(parts) if minutes else (),
    )  # fmt: skip


def needed(inputs: UserInputs, course: Course, estimate: TopicEstimate) -> int:
    """Return the minutes of a whole topic: the user's own estimate, or the agent's at the user's pace."""
    own = [e.minutes for e in inputs.own_estimates if (e.course_id, e.topic) == (course.course_id, estimate.topic)]
    pace = inputs.shared_constraints.pace * course.pace
    return up(own[-1] if own else round(estimate.estimated_minutes * pace, 6))


def _only_section(estimate: TopicEstimate) -> SectionEstimate:
    return SectionEstimate(section="", filename="; ".join(estimate.source_files), minutes=estimate.estimated_minutes)


def _done(inputs: UserInputs, course_id: str, topic: str) -> dict[str, list[tuple[int, int]]]:
    """Return the extents of each section that are done or skipped, in thousandths."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for each in inputs.progress:
        if (each.course_id, each.topic) == (course_id, topic):
            found[each.section].append((each.first, each.last))
    return found


def gaps(done: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the extents of a section that are left. A student may do a later part first.

    >>> gaps([]), gaps([(400, 600)]), gaps([(500, 1000), (0, 500)])
    ([(0, 1000)], [(0, 400), (600, 1000)], [])
    """
    found: list[tuple[int, int]] = []
    reached = 0
    for first, last in sorted(done):
        if first > reached:
            found.append((reached, first))
        reached = max(reached, last)
    return [*found, (reached, WHOLE)] if reached < WHOLE else found


def _share(minutes: int, extent: int) -> int:
    return minutes if extent == WHOLE else round(minutes * extent / WHOLE / STEP) * STEP


def up(minutes: float) -> int:
    """Round up to a step of 5 minutes."""
    return math.ceil(minutes / STEP) * STEP


class Queue:
    """The parts of a course that are still to be planned, in the order of the book."""

    def __init__(self, course: Course, works: Sequence[Work]) -> None:
        self.course = course
        self.parts = deque(part for work in works if work.planned for part in work.queue)
        self.left = sum(part.minutes for part in self.parts)

    @property
    def due(self) -> date:
        """The day of the midterm."""
        assert self.course.midterm_date is not None
        return self.course.midterm_date

    def borders(self, most: int) -> list[int]:
        """Return the minutes after which a section ends, up to ``most``."""
        found: list[int] = []
        reached = 0
        for part in self.parts:
            reached += part.minutes
            if reached > most:
                break
            found.append(reached)
        return found

    def take(self, minutes: int) -> list[Part]:
        """Remove and return the next parts. A section without time of its own comes with the one before it."""
        taken: list[Part] = []
        self.left -= min(minutes, self.left)
        while self.parts and (minutes > 0 or _belongs(self.parts[0], taken)):
            part = self.parts.popleft()
            if part.minutes > minutes:
                part, rest = part.split(minutes)
                self.parts.appendleft(rest)
            minutes -= part.minutes
            taken.append(part)
        return taken


def _belongs(part: Part, taken: Sequence[Part]) -> bool:
    return not part.minutes and bool(taken) and part.topic == taken[-1].topic
