"""DailyPlanner: put open work into free time by due date, need and load, and report the work that does not fit.

Work is planned in the order of its due day. Within a day, the subject with the greater need comes first. Work that has
been overdue for up to two days can often still be saved. It counts as due in two days, unless that makes other work
late. Older overdue work comes after all work that is due in the planned days, the newest first. Then comes work that is
due later, and work without a due date comes last. Work that is more than two weeks overdue is not planned; instead, the
advice is to ask the teacher. Each piece goes into the earliest free time before it is due, in sittings of
15 to 50 minutes with breaks of 10, and no day gets more work than its limit.

The effort is the number of minutes in the data. Without one it is 45 minutes for an assignment, 20 for a short answer
and 10 for a multiple-choice question, times 0.75 to 1.25 for a need of 0 to 1, rounded up to a multiple of 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from pausepoint.apps.aura.free_time import Day, Slot
from pausepoint.apps.aura.language import Speech
from pausepoint.apps.aura.models import (
    A_DAY,
    Assignment,
    DailyPlanItem,
    DayLoad,
    SkillProfile,
    Unplanned,
    in_danger,
    subject_key,
)

SHORTEST, LONGEST, BREAK = 15, 50, 10
GRACE = timedelta(days=2)
GIVEN_UP = timedelta(days=14)
DUE_SOON, OVERDUE, DUE_LATER, NO_DUE_DATE = range(4)
MINUTES = {"SHORT_ANSWER_QUESTION": 20, "MULTIPLE_CHOICE_QUESTION": 10}
USUAL = 45


class Plan(NamedTuple):
    """The result of the planner."""

    items: list[DailyPlanItem]
    unplanned: list[Unplanned]
    load: list[DayLoad]


@dataclass
class Task:
    """A piece of open work, and the minutes that are still to be planned."""

    work: Assignment
    need: float
    left: int


@dataclass
class Room:
    """The free time that remains on one day."""

    day: Day
    limit: int
    free: list[Slot] = field(default_factory=list)
    planned: int = 0

    def __post_init__(self) -> None:
        self.free = list(self.day.free)

    @property
    def capacity(self) -> int:
        """The minutes of work that fit into the empty day."""
        return min(sum(slot.minutes for slot in self.day.free), self.limit)

    def take(self, wanted: int, before: datetime | None) -> Slot | None:
        """Reserve the earliest time for a sitting of up to ``wanted`` minutes, or return None if nothing fits."""
        for number, slot in enumerate(self.free):
            end = slot.end if before is None else min(slot.end, before)
            minutes = sitting(wanted, min(Slot(slot.start, end).minutes, self.limit - self.planned))
            if minutes:
                taken = Slot(slot.start, slot.start + timedelta(minutes=minutes))
                rest = Slot(taken.end + timedelta(minutes=BREAK), slot.end)
                self.free[number : number + 1] = [rest] if rest.minutes > 0 else []
                self.planned += minutes
                return taken
        return None


def sitting(wanted: int, room: int) -> int:
    """Return the length of a sitting, or 0 if there is not enough room. The rest of the work never gets too short.

    >>> sitting(40, 60), sitting(55, 60), sitting(90, 20), sitting(90, 10), sitting(10, 10)
    (40, 40, 20, 0, 10)
    """
    minutes = min(wanted, room, LONGEST)
    if 0 < wanted - minutes < SHORTEST:
        minutes = min(minutes, wanted - SHORTEST)
    return minutes if minutes >= min(SHORTEST, wanted) else 0


def plan(
    assignments: Sequence[Assignment], profile: SkillProfile, days: Sequence[Day], limit: int, speech: Speech
) -> Plan:
    """Plan the open work of a student from ``speech.now`` on."""
    plans = [_filled(tasks(assignments, profile, days, speech), days, limit, speech)]
    if in_danger(plans[0].unplanned, plans[0].load, speech.now):
        waiting = tasks(assignments, profile, days, speech, overdue_waits=True)
        plans.append(_filled(waiting, days, limit, speech))

    def late_minutes(plan: Plan) -> int:
        return sum(each.minutes for each in in_danger(plan.unplanned, plan.load, speech.now))

    return min(plans, key=late_minutes)


def _filled(tasks: Sequence[Task], days: Sequence[Day], limit: int, speech: Speech) -> Plan:
    """Give each task the earliest time that is still free, in this order."""
    now = speech.now
    rooms = [Room(day, limit) for day in days]
    items: list[DailyPlanItem] = []
    unplanned: list[Unplanned] = []
    for task in tasks:
        if task.work.due is not None and task.work.due < now - GIVEN_UP:
            unplanned.append(_left_over(task, speech.say("too_old")))
            continue
        items += _placed(task, rooms, speech)
        if task.left:
            unplanned.append(_left_over(task, why_not(task, rooms, speech)))
    load = [DayLoad(start=room.day.start, free=room.capacity, planned=room.planned) for room in rooms]
    return Plan(sorted(items, key=lambda item: item.start), unplanned, load)


def tasks(
    assignments: Sequence[Assignment], profile: SkillProfile, days: Sequence[Day], speech: Speech,
    overdue_waits: bool = False,
) -> list[Task]:  # fmt: skip
    """Return the open work, most urgent first. ``overdue_waits``: all overdue work comes after what is due soon."""
    now = speech.now
    end = days[-1].start + A_DAY if days else now
    needs = {subject_key(each.subject): each.need for each in profile.subjects}
    found = [
        Task(each, need, effort(each, need))
        for each in assignments
        if each.is_open
        for need in (needs.get(subject_key(each.course), 0.5),)
    ]

    def urgency(task: Task) -> tuple[int, int, float, float, str]:
        due = task.work.due
        if due is None:
            return NO_DUE_DATE, 0, -task.need, 0.0, task.work.id
        day, rank = due.astimezone(speech.zone).toordinal(), DUE_SOON if due <= end else DUE_LATER
        if due < now:
            if overdue_waits or due < now - GRACE:
                day, rank = -day, OVERDUE
            else:
                day = (now + GRACE).astimezone(speech.zone).toordinal()
        return rank, day, -task.need, due.timestamp(), task.work.id

    return sorted(found, key=urgency)


def effort(work: Assignment, need: float) -> int:
    """Return how many minutes a piece of work takes."""
    if work.minutes is not None:
        return work.minutes
    return math.ceil(MINUTES.get(work.kind, USUAL) * (0.75 + need / 2) / 5) * 5


def _placed(task: Task, rooms: Sequence[Room], speech: Speech) -> list[DailyPlanItem]:
    """Plan a task as early as possible, until it is complete or its due time is reached."""
    due = task.work.due
    before = due if due is not None and due >= speech.now else None
    placed: list[DailyPlanItem] = []
    for room in rooms:
        if room.planned >= room.limit or not room.free:
            continue
        while task.left and (slot := room.take(task.left, before)) is not None:
            task.left -= slot.minutes
            placed.append(_item(task, slot, speech))
    return placed


def _item(task: Task, slot: Slot, speech: Speech) -> DailyPlanItem:
    work = task.work
    if work.due is None:
        why = speech.say("no_due")
    elif work.due < speech.now:
        why = speech.say("overdue_since", day=speech.day(work.due))
    else:
        why = speech.say("due", when=speech.when(work.due))
    return DailyPlanItem(
        assignment_id=work.id, course=work.course, title=work.title, start=slot.start, end=slot.end, due=work.due,
        why=why,
    )  # fmt: skip


def why_not(task: Task, rooms: Sequence[Room], speech: Speech) -> str:
    """Return why the rest of a task does not fit into the plan."""
    due = task.work.due
    limit = due if due is not None and speech.now <= due <= rooms[-1].day.start + A_DAY else None
    ahead = [room for room in rooms if limit is None or room.day.start < limit]
    free = sum(Slot(slot.start, min(slot.end, limit or slot.end)).minutes for room in ahead for slot in room.day.free)
    until = speech.say("before_due", when=speech.when(limit)) if limit else speech.say("in_days", len(rooms))
    whole = effort(task.work, task.need)
    if max(free, 0) < whole:
        return speech.say("too_long", whole=speech.length(whole), free=speech.length(max(free, 0)), until=until)
    if all(room.planned >= room.capacity for room in ahead):
        return speech.say("used_up", limit=speech.length(rooms[0].limit), until=until)
    return speech.say("no_slot", until=until)


def _left_over(task: Task, why: str) -> Unplanned:
    work = task.work
    return Unplanned(
        assignment_id=work.id, course=work.course, title=work.title, due=work.due, minutes=task.left, why=why
    )


def advice(found: Plan, speech: Speech) -> list[str]:
    """Return the findings about a plan, the most important first. They follow from the plan alone."""
    lines: list[str] = []
    if found.items:
        first = found.items[0]
        when = speech.when(first.start)
        lines.append(speech.say("start_with", title=first.title, course=first.course, when=when, why=first.why))
    tight = len(in_danger(found.unplanned, found.load, speech.now))
    if tight:
        lines.append(speech.say("tight", tight))
    old = [each for each in found.unplanned if each.due is not None and each.due < speech.now]
    if old:
        lines.append(speech.say("ask_teachers", len(old)))
    full = [day for day in found.load if day.free and day.planned >= day.free]
    if full:
        lines.append(speech.say("full_days", days=", ".join(speech.day(day.start) for day in full)))
    return lines or [speech.say("nothing_to_do")]
