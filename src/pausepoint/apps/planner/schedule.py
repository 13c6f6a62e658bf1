"""Place work on days and at times of day.

Every course advances a little on most days: a day has the share of each course that an even distribution gives it, at
least an hour in all. A course whose midterm leaves no slack goes first. Within a course, the order of the book is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import accumulate

from pausepoint.apps.planner.hours import SITTING, Block, Calendar
from pausepoint.apps.planner.models import Course
from pausepoint.apps.planner.spacing import Reviews, of_course
from pausepoint.apps.planner.work import Part, Queue, Work, up

COMFORT = 60
"""The minutes per day that are always acceptable."""

LONGEST, STRETCHED = 60, 75
"""A sitting takes 60 minutes at most, or 75 to finish a course or to fill a free time."""

BREAK = 10


@dataclass
class Sitting:
    """Work of one course in one go. A sitting without parts is a review."""

    course: Course
    minutes: int
    parts: list[Part] = field(default_factory=list)
    start: int = 0


@dataclass
class Room:
    """What is left of a block of a day, with the sittings in it."""

    block: Block
    free: int
    sittings: list[Sitting] = field(default_factory=list)

    def add(self, sitting: Sitting) -> None:
        """Add a sitting after the others."""
        self.free -= sitting.minutes
        self.sittings.append(sitting)

    def timed(self) -> list[Sitting]:
        """Return the sittings with their times, with breaks between them if there is time."""
        spare = self.block.end - self.block.start - sum(each.minutes for each in self.sittings)
        pause = min(BREAK, spare // max(len(self.sittings) - 1, 1) // 5 * 5)
        at = self.block.start
        for each in self.sittings:
            each.start = at
            at += each.minutes + pause
        return self.sittings


Days = dict[date, list[Sitting]]


class Schedule:
    """Work that is being placed. Days before ``full_until`` are filled as far as possible."""

    def __init__(
        self, work: Sequence[Work], reviews: Reviews, calendar: Calendar,
        full_until: date | None = None,
    ) -> None:  # fmt: skip
        courses = list({each.course.course_id: each.course for each in work}.values())
        self.queues = [Queue(course, [each for each in work if each.course is course]) for course in courses]
        self.calendar = calendar
        self.full_until = full_until
        self.rooms = {day: _with_reviews(calendar.blocks[day], reviews[day], courses) for day in calendar.days}
        self.credit = dict.fromkeys((course.course_id for course in courses), 0.0)
        self.before = dict(zip(calendar.days, accumulate(map(self._free, calendar.days), initial=0), strict=False))
        self.reviews = {course.course_id: of_course(reviews, course.course_id) for course in courses}

    def filled(self) -> Days:
        """Place the work, day by day. What does not fit stays in the queues."""
        for day in self.calendar.days:
            self._fill(day)
        return {day: [each for room in rooms for each in room.timed()] for day, rooms in self.rooms.items()}

    @property
    def late(self) -> dict[date, int]:
        """The minutes that did not fit, by midterm."""
        found: dict[date, int] = {}
        for queue in self.queues:
            if queue.left:
                found[queue.due] = found.get(queue.due, 0) + queue.left
        return found

    def _fill(self, day: date) -> None:
        wanted = self._target(day)
        previous = ""
        while wanted > 0:
            room = next((each for each in self.rooms[day] if each.free >= SITTING), None)
            open_now = [queue for queue in self.queues if queue.left and day < queue.due]
            if room is None or not open_now:
                return
            queue = self._chosen(day, wanted, open_now, previous)
            minutes = _size(queue, room.free, wanted, self._is_full(day))
            self.credit[queue.course.course_id] -= minutes
            room.add(Sitting(queue.course, minutes, queue.take(minutes)))
            wanted -= minutes
            previous = queue.course.course_id

    def _is_full(self, day: date) -> bool:
        return self.full_until is not None and day < self.full_until

    def _free(self, day: date) -> int:
        return sum(room.free for room in self.rooms[day] if room.free >= SITTING)

    def _free_after(self, day: date, due: date) -> int:
        """Return the free minutes after a day and before a midterm. Later days have only their reviews yet."""
        return self.before[due] - self.before[day + timedelta(days=1)]

    def _target(self, day: date) -> int:
        """Return the minutes of topics that a day should have, and give each course its share of credit.

        A day with a review has less time for topics, so that days are even with their reviews.
        """
        free = self._free(day)
        reviewed: Counter[str] = Counter()
        for room in self.rooms[day]:
            for sitting in room.sittings:
                reviewed[sitting.course.course_id] += sitting.minutes
        shares = 0.0
        for queue in self.queues:
            if day < queue.due and free + self._free_after(day, queue.due):
                part = free / (free + self._free_after(day, queue.due))
                self.credit[queue.course.course_id] += queue.left * part
                shares += (queue.left + self.reviews[queue.course.course_id]) * part
        self.reviews = {course_id: left - reviewed[course_id] for course_id, left in self.reviews.items()}
        least = max(shares, COMFORT) - reviewed.total()
        return free if self._is_full(day) else min(max(up(least), 0), free)

    def _chosen(self, day: date, wanted: int, queues: Sequence[Queue], previous: str) -> Queue:
        """Return the course that is next: the one that is most behind, unless a midterm leaves no slack."""
        needed = 0
        dues = sorted({queue.due for queue in queues})
        for due in dues:
            needed += sum(queue.left for queue in queues if queue.due == due)
            if wanted + self._free_after(day, due) - needed < LONGEST:
                queues = [queue for queue in queues if queue.due <= due]
                break
        others = [queue for queue in queues if queue.course.course_id != previous and self._credit(queue) > 0]
        return max(others or queues, key=self._credit)

    def _credit(self, queue: Queue) -> float:
        return self.credit[queue.course.course_id]


def _with_reviews(blocks: Sequence[Block], reviews: Mapping[str, int], courses: Sequence[Course]) -> list[Room]:
    rooms = [Room(block, block.minutes) for block in blocks]
    known = {course.course_id: course for course in courses}
    for course_id, minutes in reviews.items():
        max(rooms, key=lambda room: room.block.minutes).add(Sitting(known[course_id], minutes))
    return rooms


def _size(queue: Queue, free: int, wanted: int, full: bool) -> int:
    """Return the minutes of the next sitting: up to the end of a section if possible, and no crumb after it."""
    left = queue.left
    if left <= min(free, STRETCHED if left - wanted < SITTING else LONGEST, max(wanted + SITTING, SITTING)):
        return max(left, SITTING)
    most = min(free, LONGEST, max(wanted, SITTING), left)
    borders = [each for each in queue.borders(most) if each >= max(SITTING, most / 2)]
    size = borders[-1] if borders else most
    if full and 0 < free - size < SITTING:
        size = free if free <= STRETCHED and free <= left else size
    if 0 < left - size < SITTING:
        size = left - SITTING if left - SITTING >= SITTING else size
    return size
