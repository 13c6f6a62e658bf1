"""What a report says, before it becomes Markdown, HTML or an e-mail: sections with groups of items.

Overdue work comes first, then the week, then what has changed, then the grades.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeVar

from pausepoint.apps.aura.facts import Facts
from pausepoint.apps.aura.language import Speech
from pausepoint.apps.aura.models import Assignment, ParentReport, SubjectMastery, subject_key
from pausepoint.apps.aura.overview import LONGEST_LIST

T = TypeVar("T")

DOUBTFUL = 0.4
"""A level with less confidence is called uncertain."""

MOVED = 0.02
"""A smaller change of a level is not worth mentioning."""


@dataclass(frozen=True)
class Item:
    """One entry: a heading and what there is to say about it. A subject also gets a chart of its results."""

    head: str
    lines: Sequence[str] = ()
    subject: SubjectMastery | None = None


@dataclass(frozen=True)
class Group:
    """Items below a small heading, which may be empty."""

    title: str
    items: Sequence[Item]


@dataclass(frozen=True)
class Section:
    """One part of the report. ``tone`` lets a page mark it."""

    title: str
    intro: Sequence[str] = ()
    groups: Sequence[Group] = ()
    tone: str = ""


@dataclass(frozen=True)
class Contents:
    """The whole report."""

    language: str
    title: str
    day: str
    level: str
    stress: str
    stress_because: str
    summary: Sequence[str]
    sections: Sequence[Section]
    small_print: Section = field(default_factory=lambda: Section(""))


def contents(facts: Facts, report: ParentReport) -> Contents:
    """Return what the report says."""
    say = facts.speech.say
    return Contents(
        language=facts.speech.code,
        title=say("title", name=facts.name),
        day=facts.speech.date(facts.speech.now),
        level=report.stress,
        stress=say("stress", level=say(report.stress)),
        stress_because=report.stress_because,
        summary=report.summary,
        sections=[_overdue(facts), _week(facts), _changes(facts), _grades(facts), _advice(facts)],
        small_print=Section(say("small_print"), list(_small_print(facts))),
    )


def _overdue(facts: Facts) -> Section:
    speech = facts.speech
    starts = {item.assignment_id: item.start for item in reversed(facts.plan)}  # the first sitting of each
    why_not = {each.assignment_id: each.why for each in facts.unplanned}

    def item(work: Assignment) -> Item:
        assert work.due is not None
        lines = [work.course, speech.say("was_due", day=speech.day(work.due), ago=speech.ago(work.due))]
        if work.id in starts:
            lines.append(speech.say("planned_for", when=speech.when(starts[work.id])))
        elif work.id in why_not:
            lines.append(why_not[work.id])
        return Item(work.title, [" · ".join(lines)])

    found = facts.overview.overdue
    if not found:
        return Section(speech.say("overdue"), [speech.say("no_overdue")])
    return Section(
        speech.say("overdue"), groups=[Group("", _cut(facts, found, item, facts.overview.overdue_count))], tone="bad"
    )


def _week(facts: Facts) -> Section:
    speech = facts.speech
    groups = [
        Group(
            day,
            [
                Item(
                    f"{speech.clock(each.start)}–{speech.clock(each.end)} {each.title}", [f"{each.course} · {each.why}"]
                )
                for each in items
            ],
        )
        for day, items in groupby(facts.plan, key=lambda each: speech.day(each.start))
    ]
    left = [each for each in facts.unplanned if each.due is None or each.due >= speech.now]
    if left:
        items = _cut(
            facts, left, lambda each: Item(each.title, [f"{each.course} · {speech.length(each.minutes)}: {each.why}"])
        )
        groups.append(Group(speech.say("does_not_fit"), items))
    return Section(speech.say("week", len(facts.load)), [] if groups else [speech.say("no_plan")], groups)


def _changes(facts: Facts) -> Section:
    speech, say = facts.speech, facts.speech.say
    if facts.previous is None:
        return Section(say("changes"), [say("first_report")])
    intro = [say("compared", day=speech.day(facts.previous.as_of))]
    ways = {"new_grades": _with_grade(facts), "new_work": _with_due(facts)}
    groups = [
        Group(say(each.kind), _cut(facts, each.work, ways.get(each.kind, _named), each.count))
        for each in facts.overview.changes
    ]
    moved = list(_moved(facts))
    groups += [Group(say("moved"), moved)] if moved else []
    return Section(say("changes"), intro if groups else [*intro, say("no_change")], groups)


def _named(work: Assignment) -> Item:
    return Item(work.title, [work.course])


def _with_grade(facts: Facts) -> Callable[[Assignment], Item]:
    return lambda work: Item(work.title, [f"{work.course} · {_grade(facts, work)}"])


def _with_due(facts: Facts) -> Callable[[Assignment], Item]:
    speech = facts.speech

    def item(work: Assignment) -> Item:
        due = speech.say("no_due") if work.due is None else speech.say("due", when=speech.when(work.due))
        return Item(work.title, [f"{work.course} · {due}"])

    return item


def _moved(facts: Facts) -> Iterator[Item]:
    assert facts.previous is not None
    share = facts.speech.share
    for each in facts.profile.subjects:
        before = facts.previous.profile.level(each.subject)
        if before is not None and each.mastery is not None and each.graded and abs(each.mastery - before) >= MOVED:
            text = facts.speech.say("from_to", before=share(before), after=share(each.mastery))
            yield Item(each.subject, [text])


def _grade(facts: Facts, work: Assignment) -> str:
    speech = facts.speech
    if work.points is None:
        return speech.say("mark", mark=work.grade)
    if work.grade:
        return speech.percent(work.points)
    if work.max_points is None:
        return speech.say("points", 1 if work.points == 1 else 2, points=speech.number(work.points))
    return speech.say("of_points", points=speech.number(work.points), most=speech.number(work.max_points))


def _grades(facts: Facts) -> Section:
    if not facts.profile.subjects:
        return Section(facts.speech.say("grades"), [facts.speech.say("no_grades")])
    latest = facts.overview.latest
    items = [_subject(facts, each, latest.get(subject_key(each.subject), [])) for each in facts.profile.subjects]
    return Section(facts.speech.say("grades"), groups=[Group("", items)])


def _subject(facts: Facts, subject: SubjectMastery, graded: Sequence[Assignment]) -> Item:
    speech, say = facts.speech, facts.speech.say
    before = None if facts.previous is None else facts.previous.profile.level(subject.subject)
    known = subject.mastery is not None and subject.graded > 0  # missing work alone says little about a subject
    if subject.mastery is None or not known:
        level = say("level_none") if graded else say("level_unknown")
    elif before is None or abs(before - subject.mastery) < MOVED:
        level = say("level", share=speech.share(subject.mastery))
    else:
        level = say("level_was", share=speech.share(subject.mastery), before=speech.share(before))
    doubt = [say("uncertain")] if known and subject.confidence < DOUBTFUL else []
    rests_on = [say("from_grades", subject.graded)] if known else []
    counts = [
        *([] if subject.trend is None else [say(subject.trend)]),
        *([say("late_count", subject.late)] if subject.late else []),
        *([say("missing_count", subject.missing)] if subject.missing else []),
    ]
    latest = ", ".join(f"{each.title} ({_grade(facts, each)})" for each in graded)
    lines = [" · ".join([level, *rests_on, *doubt, *counts]), *([say("latest", grades=latest)] if latest else [])]
    return Item(subject.subject, lines, subject)


def basis(speech: Speech, subject: SubjectMastery) -> str:
    """Return on how much work a level rests."""
    missing = [speech.say("missing_count", subject.missing)] if subject.missing else []
    return ", ".join([speech.say("from_grades", subject.graded), *missing])


def _advice(facts: Facts) -> Section:
    return Section(facts.speech.say("advice"), groups=[Group("", [Item("", [each]) for each in facts.advice])])


def _small_print(facts: Facts) -> Iterator[str]:
    speech = facts.speech
    found = facts.overview
    when = f"{speech.date(speech.now)}, {speech.clock(speech.now)}"
    courses = speech.say("courses", found.courses)
    yield speech.say("made_from", found.total, courses=courses, when=when, zone=speech.zone.key)
    yield speech.say("legend")
    yield from facts.notes


def _cut(facts: Facts, found: Sequence[T], item: Callable[[T], Item], count: int | None = None) -> list[Item]:
    """Return the items of a list. The end of a long list is counted instead. ``count`` is its full length."""
    more = (len(found) if count is None else count) - LONGEST_LIST
    rest = [Item("", [facts.speech.say("more", more)])] if more > 0 else []
    return [*map(item, found[:LONGEST_LIST]), *rest]
