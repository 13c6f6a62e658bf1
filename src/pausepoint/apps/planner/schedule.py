"""Place work on days and at times of day.

Every course advances a little on most days: a day has the share of each course that an even distribution gives it, at
least an hour in all. A course whose midterm leaves no slack goes first. Within a course, the order of the book is kept.

Reviews come last on their days. New matter of a course ends before the day of its last review, the day before the
midterm, unless there is no other time; then it comes before the review.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from itertools import accumulate

from pausepoint.apps.planner.hours import SITTING, Block, Calendar
from pausepoint.apps.planner.intervals import Reviews, last_of, of_course
from pausepoint.apps.planner.models import STEP, Course
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
    """What is left of a block of a day, with the sittings in it. Its reviews come last."""

    block: Block
    free: int
    sittings: list[Sitting] = field(default_factory=list)
    reviews: list[Sitting] = field(default_factory=list)

    def add(self, sitting: Sitting) -> None:
        """Add new matter after the sittings that are there, or a review before the reviews that are there."""
        self.free -= sitting.minutes
        if sitting.parts:
            self.sittings.append(sitting)
        else:
            self.reviews.insert(0, sitting)

    def reviews_course(self, course: Course) -> bool:
        """Return whether the room has a review of a course."""
        return any(each.course is course for each in self.reviews)

    def timed(self) -> list[Sitting]:
        """Return the sittings with their times, with breaks between them if there is time."""
        found = [*self.sittings, *self.reviews]
        spare = self.block.end - self.block.start - sum(each.minutes for each in found)
        pause = min(BREAK, spare // max(len(found) - 1, 1) // STEP * STEP)
        at = self.block.start
        for each in found:
            each.start = at
            at += each.minutes + pause
        return found


Days = dict[date, list[Sitting]]


@dataclass(frozen=True)
class Effort:
    """How far a schedule goes to fit everything in: which days are full, and which last days have new matter.

    Days before ``full_until`` are filled as far as possible. Before a midterm up to ``open_until``, the day of the last
    review may have new matter.
    """

    full_until: date = date.min
    open_until: date = date.min

    def more(self, due: date) -> Effort | None:
        """Return the next effort for work that comes too late for a midterm, or None if there is no more."""
        if self.full_until < due:
            return replace(self, full_until=due)
        return replace(self, open_until=due) if self.open_until < due else None


class Schedule:
    """Work that is being placed."""

    def __init__(self, work: Sequence[Work], reviews: Reviews, calendar: Calendar, effort: Effort) -> None:
        courses = list({each.course.course_id: each.course for each in work}.values())
        self.queues = [Queue(course, [each for each in work if each.course is course]) for course in courses]
        self.calendar = calendar
        self.effort = effort
        self.rooms = {day: _with_reviews(calendar.blocks[day], reviews[day], courses) for day in calendar.days}
        self.credit = dict.fromkeys((course.course_id for course in courses), 0.0)
        self.before = dict(zip(calendar.days, accumulate(map(self._free, calendar.days), initial=0), strict=False))
        self.last_review = {queue.course.course_id: last_of(reviews, queue.course) for queue in self.queues}
        self.ends = {queue.course.course_id: self._end(queue) for queue in self.queues}
        self.reviews = {course_id: of_course(reviews, course_id, before=end) for course_id, end in self.ends.items()}

    def _end(self, queue: Queue) -> date:
        """Return the first day on which a course has no new matter."""
        last = self.last_review[queue.course.course_id]
        return queue.due if last is None or queue.due <= self.effort.open_until else last

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
        for at, room in enumerate(self.rooms[day]):
            while wanted > 0 and room.free >= SITTING:
                open_now = [queue for queue in self.queues if queue.left and self._is_open(queue, day, at)]
                if not open_now or (previous and wanted < SITTING and self._pressing(day) <= 0):
                    break
                queue = self._chosen(day, wanted, open_now, previous)
                minutes = _size(queue, room.free, wanted, self._is_full(day))
                self.credit[queue.course.course_id] -= minutes
                room.add(Sitting(queue.course, minutes, queue.take(minutes)))
                wanted -= minutes
                previous = queue.course.course_id

    def _is_open(self, queue: Queue, day: date, at: int) -> bool:
        """Return whether a course may have new matter in a room. None comes after the last review on the same day."""
        last = self.last_review[queue.course.course_id]
        after = day == last and any(room.reviews_course(queue.course) for room in self.rooms[day][:at])
        return day < self.ends[queue.course.course_id] and not after

    def _is_full(self, day: date) -> bool:
        return day < self.effort.full_until

    def _free(self, day: date) -> int:
        return sum(room.free for room in self.rooms[day] if room.free >= SITTING)

    def _free_after(self, day: date, end: date) -> int:
        """Return the free minutes after a day and before another. Later days have only their reviews yet."""
        return self.before[end] - self.before[day + timedelta(days=1)]

    def _target(self, day: date) -> int:
        """Return the minutes of topics that a day should have, and give each course its share of credit.

        A day with a review has less time for topics, so that days are even with their reviews. A full day has all that
        is left of the courses that it is full for.
        """
        free = self._free(day)
        reviewed: Counter[str] = Counter()
        for room in self.rooms[day]:
            for sitting in room.reviews:
                reviewed[sitting.course.course_id] += sitting.minutes
        shares, urgent = 0.0, 0
        for queue in self.queues:
            end = self.ends[queue.course.course_id]
            if day < end and free + self._free_after(day, end):
                part = free / (free + self._free_after(day, end))
                self.credit[queue.course.course_id] += queue.left * part
                shares += (queue.left + self.reviews[queue.course.course_id]) * part
                urgent += queue.left if queue.due <= self.effort.full_until else 0
        self.reviews = {course_id: left - reviewed[course_id] for course_id, left in self.reviews.items()}
        least = max(shares, COMFORT) - reviewed.total()
        return min(max(up(least), self._pressing(day), 0) + urgent, free)

    def _pressing(self, day: date) -> int:
        """Return the minutes for which no later day has room."""
        needed = found = 0
        for end in sorted(end for end in set(self.ends.values()) if day < end):
            needed += sum(queue.left for queue in self.queues if self.ends[queue.course.course_id] == end)
            found = max(found, needed - self._free_after(day, end))
        return found

    def _chosen(self, day: date, wanted: int, queues: Sequence[Queue], previous: str) -> Queue:
        """Return the course that is next: the one that is most behind, unless a midterm leaves no slack."""
        needed = 0
        ends = {queue.course.course_id: self.ends[queue.course.course_id] for queue in queues}
        for end in sorted(set(ends.values())):
            needed += sum(queue.left for queue in queues if ends[queue.course.course_id] == end)
            if wanted + self._free_after(day, end) - needed < STRETCHED:
                queues = [queue for queue in queues if ends[queue.course.course_id] <= end]
                break
        others = [queue for queue in queues if queue.course.course_id != previous and self._credit(queue) > 0]
        return max(others or queues, key=self._credit)

    def _credit(self, queue: Queue) -> float:
        return self.credit[queue.course.course_id]


def arranged(
    work: Sequence[Work], reviews: Reviews, calendar: Calendar
) -> tuple[Days, dict[date, int]]:  # fmt: skip
    """Return the days, and the minutes that do not fit by midterm. The effort rises only before a midterm that is tight.

    An even distribution wastes a few minutes where a section ends, so full days can succeed where even ones fail.
    """  # noqa: E501
    effort = Effort()
    while True:
        schedule = Schedule(work, reviews, calendar, effort)
        days, late = schedule.filled(), schedule.late
        more = effort.more(max(late)) if late else None
        if more is None:
            return days, late
        effort = more


def _with_reviews(blocks: Sequence[Block], reviews: Mapping[str, int], courses: Sequence[Course]) -> list[Room]:
    """Return the rooms of a day with its reviews at the end, the one for the next midterm last."""
    rooms = [Room(block, block.minutes) for block in blocks]
    for course in sorted((each for each in courses if each.course_id in reviews), key=_due):
        left = reviews[course.course_id]
        for room in reversed(rooms):
            piece = min(left, room.free)
            piece = left - SITTING if 0 < left - piece < SITTING else piece
            if piece >= SITTING:
                room.add(Sitting(course, piece))
                left -= piece
    return rooms


def _due(course: Course) -> date:
    assert course.midterm_date is not None
    return course.midterm_date


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
