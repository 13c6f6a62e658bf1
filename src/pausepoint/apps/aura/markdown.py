"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from pausepoint.apps.aura.facts import Facts
from pausepoint.apps.aura.models import ParentReport, SubjectMastery
from pausepoint.apps.aura.times import day_of, said, time_of
from pausepoint.apps.words import many, plain

LONGEST_LIST = 20
LEGEND = (
    "Mastery is based on graded, late and missing work; recent work counts more. Confidence rises with the amount of"
    " that work. The plan names how much attention each subject needs: 50% if nothing is known yet."
)


def as_markdown(facts: Facts, report: ParentReport) -> str:
    """Return the whole report."""
    lines = [
        f"# Report for {plain(facts.student_id)}",
        "",
        f"As of {said(facts.now, facts.zone)} ({facts.zone.key}).",
        "",
        f"**Stress: {report.stress}.** {plain(report.stress_because)}.",
        "",
        *(f"{plain(each)}" for each in report.summary),
        *_section("Subjects", _subjects(facts)),
        *_section("Plan", _plan(facts)),
        *_section("Not planned", _unplanned(facts)),
        *_section("Advice", (f"- {plain(each)}" for each in facts.advice)),
    ]
    return "\n".join(lines) + "\n"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    found = list(lines)
    return ["", f"## {title}", "", *(found or ["Nothing."])]


def _subjects(facts: Facts) -> Iterator[str]:
    if not facts.profile.subjects:
        return
    yield "| subject | mastery | confidence | graded | late | missing | trend |"
    yield "|---|---|---|---|---|---|---|"
    for each in facts.profile.subjects:
        yield f"| {' | '.join(map(plain, cells(each)))} |"
    yield ""
    yield LEGEND


def cells(subject: SubjectMastery) -> list[str]:
    """Return the cells of a subject's row."""
    mastery = "unknown" if subject.mastery is None else f"{subject.mastery:.0%}"
    counts = [str(count) for count in (subject.graded, subject.late, subject.missing)]
    return [subject.subject, mastery, f"{subject.confidence:.0%}", *counts, subject.trend or "unknown"]


def _plan(facts: Facts) -> Iterator[str]:
    for number, (day, items) in enumerate(groupby(facts.plan, key=lambda item: day_of(item.start, facts.zone))):
        yield from [""] if number else []
        yield f"**{day}**"
        yield ""
        for item in items:
            hours = f"{time_of(item.start, facts.zone)}–{time_of(item.end, facts.zone)}"
            yield f"- {hours} {plain(item.title)} ({plain(item.course)}): {plain(item.why)}"


def _unplanned(facts: Facts) -> Iterator[str]:
    for each in facts.unplanned[:LONGEST_LIST]:
        yield f"- {plain(each.title)} ({plain(each.course)}), {each.minutes} minutes: {plain(each.why)}"
    if (more := rest(facts.unplanned)) is not None:
        yield f"- {more}"


def rest(found: Sequence[object]) -> str | None:
    """Return the line that replaces the end of a long list, or None for a short list."""
    return f"and {many(len(found) - LONGEST_LIST, 'more piece')} of work" if len(found) > LONGEST_LIST else None
