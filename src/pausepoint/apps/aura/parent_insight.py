"""ParentInsight: write the report for the parents as Markdown and HTML, using only facts from the data.

The stress level follows from the plan. It is *high* if work cannot be finished before it is due, if three or more
pieces are overdue, or if more than 90 % of the free time is needed. It is *moderate* if anything is overdue or
more than 60 % of the free time is needed. Otherwise it is *low*.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pausepoint.apps.aura.facts import Facts
from pausepoint.apps.aura.markdown import as_markdown
from pausepoint.apps.aura.models import ParentReport
from pausepoint.apps.aura.page import as_html
from pausepoint.apps.aura.times import said
from pausepoint.apps.input import BadInput
from pausepoint.apps.words import many

Stress = Literal["low", "moderate", "high"]

HIGH_SHARE, MODERATE_SHARE, MANY_OVERDUE = 0.9, 0.6, 3


def stress(facts: Facts) -> tuple[Stress, str]:
    """Return the stress level and the reason for it."""
    needed = f"{facts.needed} of {facts.free} free minutes in {many(len(facts.load), 'day')} are needed"
    share = facts.needed / facts.free if facts.free else float(bool(facts.needed))
    overdue = len(facts.overdue)
    if facts.in_danger:
        return "high", f"{many(len(facts.in_danger), 'piece')} of work cannot be finished in time; {needed}"
    if overdue >= MANY_OVERDUE:
        return "high", f"{many(overdue, 'piece')} of work are overdue; {needed}"
    if share > HIGH_SHARE:
        return "high", needed
    if overdue:
        return "moderate", f"{many(overdue, 'piece')} of work {'is' if overdue == 1 else 'are'} overdue; {needed}"
    return ("moderate" if share > MODERATE_SHARE else "low"), needed


def summary(facts: Facts) -> list[str]:
    """Return the report in a few sentences, all computed from the facts."""
    graded = [each for each in facts.profile.subjects if each.mastery is not None]
    lines = [_work(facts)]
    if graded:
        best = max(graded, key=lambda each: (each.mastery or 0.0, each.subject))
        worst = max(graded, key=lambda each: (each.need, each.subject))
        lines.append(f"The strongest subject is {best.subject} ({best.mastery:.0%}).")
        if worst.subject != best.subject:
            lines.append(f"{worst.subject} needs the most attention ({worst.mastery:.0%}).")
    falling = [each.subject for each in graded if each.trend == "falling"]
    if falling:
        lines.append(f"Results are falling in {', '.join(falling)}.")
    upcoming = [each for each in facts.assignments if each.is_open and each.due is not None and each.due >= facts.now]
    if upcoming:
        first = min(upcoming, key=lambda each: (each.due, each.id))
        assert first.due is not None
        lines.append(f"Next due: {first.title} ({first.course}), {said(first.due, facts.zone)}.")
    return lines


def _work(facts: Facts) -> str:
    still_open = sum(each.is_open for each in facts.assignments)
    courses = len({(each.account, each.course) for each in facts.assignments})
    graded = sum(each.points is not None for each in facts.assignments)
    return (
        f"{many(len(facts.assignments), 'assignment')} in {many(courses, 'course')}: {graded} graded,"
        f" {still_open} open, {len(facts.overdue)} of them overdue."
    )


def write(facts: Facts, sentences: Sequence[str], folder: Path, name: str) -> ParentReport:
    """Write both files. The same facts give the same bytes, so a second write after a crash changes nothing."""
    level, because = stress(facts)
    report = ParentReport(
        stress=level, stress_because=because, summary=list(sentences),
        markdown=folder / f"{name}.md", html=folder / f"{name}.html",
    )  # fmt: skip
    try:
        folder.mkdir(parents=True, exist_ok=True)
        put(report.markdown, as_markdown(facts, report))
        put(report.html, as_html(facts, report))
    except OSError as error:
        raise BadInput(
            f"reports: Cannot write to {folder}: {error.strerror}. Fix that, or set another folder"
            " (edit ID --set reports=FOLDER). Then resume."
        ) from error
    return report


def put(path: Path, text: str) -> None:
    """Replace a file atomically: a reader sees either the old content or the new content."""
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
