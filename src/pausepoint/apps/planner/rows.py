"""The rows of a plan: what to read, from which page to which, and for how long."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import date
from itertools import groupby
from pathlib import PurePath

from pausepoint.apps.planner.dates import said
from pausepoint.apps.planner.hours import SITTING, Calendar, as_time
from pausepoint.apps.planner.models import (
    Course,
    PlanningState,
    PlanRow,
    Role,
    RowPart,
    SectionEstimate,
    UserInputs,
)
from pausepoint.apps.planner.progress import Marks
from pausepoint.apps.planner.schedule import Days, Sitting
from pausepoint.apps.planner.work import WHOLE, Part, Work

REVIEW, MIDTERM, REST, BUFFER = "Review before the midterm", "Midterm", "Rest", "Buffer"
BUFFERED, NO_TIME = "Free: for work that took longer than planned", "No time for study on this day"
SKIM = 0.7
"""A topic that has less than this share of its time is to be skimmed."""


def as_rows(days: Days, work: Sequence[Work], inputs: UserInputs, calendar: Calendar) -> list[PlanRow]:
    """Return the plan, day by day. A day without work has a row, too."""
    known = {(each.course.course_id, each.topic): each for each in work}
    last = _last_parts(days)
    reviews = _numbered(days)
    rows: list[PlanRow] = []
    for day in calendar.days:
        found: list[PlanRow] = []
        for sitting in days[day]:
            if sitting.parts:
                found += _work_rows(day, sitting, known, last)
            else:
                found.append(_review_row(day, sitting, *reviews[id(sitting)], known))
        exams = [_midterm(day, course) for course in inputs.courses if course.midterm_date == day]
        rows += [*found, *exams] or [_idle(day, calendar)]
    return _with_unique_ids(rows)


# rows of work


def _work_rows(
    day: date, sitting: Sitting, known: dict[tuple[str, str], Work], last: set[tuple[str, str, str, int]]
) -> list[PlanRow]:  # fmt: skip
    """Return a row for each topic of a sitting. A topic with too few minutes shares the row of its neighbour."""
    groups: list[list[Part]] = []
    for _, listed in groupby(sitting.parts, key=lambda part: part.topic):
        group = list(listed)
        if groups and min(_minutes(groups[-1]), _minutes(group)) < SITTING:
            groups[-1] += group
        else:
            groups.append(group)
    rows: list[PlanRow] = []
    at = sitting.start
    for number, group in enumerate(groups, 1):
        rounded = sitting.minutes - _minutes(sitting.parts) if number == len(groups) else 0
        rows.append(_work_row(day, sitting.course, group, _minutes(group) + rounded, at, known, last))
        at += rows[-1].estimated_minutes
    return rows


def _minutes(parts: Iterable[Part]) -> int:
    return sum(part.minutes for part in parts)


def _work_row(
    day: date, course: Course, parts: Sequence[Part], minutes: int, at: int, known: dict[tuple[str, str], Work],
    last: set[tuple[str, str, str, int]],
) -> PlanRow:  # fmt: skip
    topics = list(dict.fromkeys(part.topic for part in parts))
    works = [known[course.course_id, topic] for topic in topics]
    ends = any(_key(course, part) in last for part in parts)
    skims = all(work.planned < SKIM * work.minutes for work in works)
    first = parts[0]
    return PlanRow(
        date=day, course=course.course_name, topic=" + ".join(topics), starts_at=as_time(at), estimated_minutes=minutes,
        task_description=_task(parts, skims, ends), priority=works[0].priority,
        source_files=list(dict.fromkeys(name for work in works for name in work.sources)),
        row_id=_id(course, first.topic, first.section.section, str(first.first)),
        parts=[RowPart(topic=part.topic, section=part.section.section, first=part.first, last=part.last,
                       minutes=part.minutes) for part in parts],
    )  # fmt: skip


def _key(course: Course, part: Part) -> tuple[str, str, str, int]:
    return course.course_id, part.topic, part.section.section, part.last


def _last_parts(days: Days) -> set[tuple[str, str, str, int]]:
    """Return the last part of every topic in the plan."""
    found: dict[tuple[str, str], tuple[str, str, str, int]] = {}
    for sittings in days.values():
        for sitting in sittings:
            for part in sitting.parts:
                found[sitting.course.course_id, part.topic] = _key(sitting.course, part)
    return set(found.values())


def _task(parts: Sequence[Part], skims: bool, ends: bool) -> str:
    """Return what to do: the file, the sections and the pages, and how much of a long section.

    The practice comes at the end of a topic.
    """
    groups = [list(listed) for _, listed in groupby(parts, key=_source)]
    verbs = [_verb(group[0].section.role, skims) for group in groups]
    before = ["", *verbs]
    places = [
        _place(group) if verb == previous else f"{verb} {_place(group)}"
        for group, verb, previous in zip(groups, verbs, before, strict=False)
    ]
    only_exams = all(part.section.role == "old_exam" for part in parts)
    practice = "; then mark it" if only_exams else "; then practise and test yourself"
    told = "; ".join(places) + (practice if ends and not skims else "")
    return told[0].upper() + told[1:]


def _verb(role: Role, skims: bool) -> str:
    if role == "book":
        return "skim" if skims else "study"
    return "solve some of" if skims else "solve"


def _source(part: Part) -> tuple[str, str]:
    """Return the file of a part, and its topic if it has no section: sections of several topics share a range."""
    return part.section.filename, "" if part.section.section else part.topic


def _place(parts: Sequence[Part]) -> str:
    """Return where some sections of one file are.

    A part of a section that began on another day, or ends on another day, says so.
    """
    first = parts[0].section
    sections = _sections(parts)
    stem = PurePath(first.filename).stem if first.section and not first.book else ""
    book, stem = (name if sections != f"“{name}”" else "" for name in (first.book, stem))
    where = " ".join(filter(None, [stem, sections])) or parts[0].topic
    return ", ".join(filter(None, [book, where, _extent(parts), _pages(*_page_range(parts))]))


def _page_range(parts: Sequence[Part]) -> tuple[int | None, int | None]:
    """Return the pages of some parts. Within a section they follow from the share of it."""
    first, last = parts[0], parts[-1]
    begin, end = first.section.first_page, last.section.last_page
    if begin is not None and first.section.last_page is not None:
        begin += (first.section.last_page - begin + 1) * first.first // WHOLE
    if end is not None and last.section.first_page is not None:
        end -= (end - last.section.first_page + 1) * (WHOLE - last.last) // WHOLE
    return begin, end


def _sections(parts: Sequence[Part]) -> str:
    first, last = parts[0].section, parts[-1].section
    if not first.section:
        return parts[0].topic
    if first is last or first.section == last.section:
        return _named(first)
    if first.number and last.number and first.number != last.number:
        return f"§{first.number}–{last.number} (“{first.title}” to “{last.title}”)"
    return f"{_named(first)} to {_named(last) if last.number != first.number else f'“{last.title}”'}"


def _named(section: SectionEstimate) -> str:
    return f"§{section.number} {section.title}" if section.number else f"“{section.title}”"


def _extent(parts: Sequence[Part]) -> str:
    """Return which part of a section a row has, or whether its first section began in an earlier row."""
    if parts[0].section.section != parts[-1].section.section:
        return "continued" if parts[0].first else ""
    return " and ".join(filter(None, map(_part, parts)))


def _part(part: Part) -> str:
    if (part.first, part.last) == (0, WHOLE):
        return ""
    if not part.first:
        return f"the first {_percent(part.last)}"
    if part.last == WHOLE:
        return f"the last {_percent(WHOLE - part.first)}"
    return f"from {_percent(part.first)} to {_percent(part.last)}"


def _percent(thousandths: int) -> str:
    return f"{round(thousandths / 10)} %"


def _pages(first: int | None, last: int | None) -> str:
    if first is None:
        return ""
    return f"p. {first}" if last is None or last <= first else f"pp. {first}–{last}"


# other rows


def _numbered(days: Days) -> dict[int, tuple[int, int]]:
    """Return the number of each review, counted back from its midterm, and how many its course has."""
    listed: dict[str, list[Sitting]] = defaultdict(list)
    for sittings in days.values():
        for sitting in sittings:
            if not sitting.parts:
                listed[sitting.course.course_id].append(sitting)
    return {
        id(sitting): (len(found) - number, len(found))
        for found in listed.values()
        for number, sitting in enumerate(found)
    }


def _review_row(
    day: date, sitting: Sitting, number: int, count: int, known: dict[tuple[str, str], Work]
) -> PlanRow:  # fmt: skip
    course = sitting.course
    assert course.midterm_date is not None
    which = f" ({count - number + 1} of {count})" if count > 1 else ""
    sources = (name for work in known.values() if work.course is course for name in work.sources)
    return PlanRow(
        date=day, course=course.course_name, topic=REVIEW, starts_at=as_time(sitting.start),
        task_description=f"Review {course.course_name} for the midterm on {said(course.midterm_date)}{which}: explain"
                         " each topic without the book, then repeat what you could not explain",
        estimated_minutes=sitting.minutes, priority="high", source_files=list(dict.fromkeys(sources)),
        row_id=_id(course, "review", str(number)),
    )  # fmt: skip


def _midterm(day: date, course: Course) -> PlanRow:
    return PlanRow(
        date=day, course=course.course_name, topic=MIDTERM, task_description="Midterm exam", estimated_minutes=0,
        priority="high", row_id=_id(course, "midterm"),
    )  # fmt: skip


def _idle(day: date, calendar: Calendar) -> PlanRow:
    """Return the row of a day without work and without a midterm."""
    if calendar.rests(day):
        topic, task = REST, "Rest day: no work"
    else:
        topic, task = BUFFER, BUFFERED if calendar.capacity[day] else NO_TIME
    return PlanRow(date=day, course="", topic=topic, task_description=task, estimated_minutes=0, priority="low")


# identity


def _id(course: Course, *names: str) -> str:
    found = hashlib.sha256("\0".join([course.course_id, *names]).encode()).hexdigest()
    return f"{course.course_id}-{found[:6]}"


def _with_unique_ids(rows: Sequence[PlanRow]) -> list[PlanRow]:
    counted: Counter[str] = Counter()
    found: list[PlanRow] = []
    for row in rows:
        counted[row.row_id] += bool(row.row_id)
        number = counted[row.row_id]
        found.append(row.model_copy(update={"row_id": f"{row.row_id}-{number}"}) if number > 1 else row)
    return found


def continued(
    rows: Sequence[PlanRow], before: PlanningState, inputs: UserInputs
) -> tuple[list[PlanRow], list[PlanRow], list[str]]:  # fmt: skip
    """Return the rows with their sequence numbers, the rows of earlier plans that are withdrawn, and the new ids.

    A row that was done or skipped stays in a calendar as it is, so its number does not rise. A plan for the same inputs
    was a draft that the reviewer refused, so no calendar has its new rows.
    """
    marks = Marks.of(inputs)
    drafted = set(before.added) if before.planned_for == inputs else set()
    earlier = [row for row in before.plan_rows if row.row_id and row.row_id not in drafted]
    known = {row.row_id: row for row in [*before.withdrawn, *earlier]}
    gone = {row.row_id for row in before.withdrawn}
    found = [_continued(row, known.get(row.row_id), row.row_id in gone) for row in rows]
    there = {row.row_id for row in found}
    withdrawn = [
        row if row_id in gone or marks.status(row) != "planned" else _risen(row)
        for row_id, row in known.items()
        if row_id not in there
    ]
    return found, withdrawn, [row.row_id for row in found if row.row_id and row.row_id not in known]


def _continued(row: PlanRow, before: PlanRow | None, was_gone: bool) -> PlanRow:
    if before is None:
        return row
    same = row.model_copy(update={"sequence": before.sequence})
    return same if same == before and not was_gone else _risen(same)


def _risen(row: PlanRow) -> PlanRow:
    return row.model_copy(update={"sequence": row.sequence + 1})
