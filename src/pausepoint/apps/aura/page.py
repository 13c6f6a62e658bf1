"""The report as one self-contained HTML page: no scripts, no fonts, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from pausepoint.apps.aura.facts import Facts
from pausepoint.apps.aura.markdown import LEGEND, LONGEST_LIST, cells, rest
from pausepoint.apps.aura.models import ParentReport, Result, SubjectMastery
from pausepoint.apps.aura.times import day_of, said, time_of

WIDTH, HEIGHT, MARGIN = 160, 40, 4

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #ddd; }
td:first-child { min-width: 7.5rem; }
.stress { padding: .6rem 1rem; border-left: .4rem solid #888; background: #f5f5f5; }
.low { border-color: #2e7d32; } .moderate { border-color: #b26a00; } .high { border-color: #b71c1c; }
svg { vertical-align: middle; }
svg line { stroke: #ddd; } svg polyline { fill: none; stroke: #1565c0; stroke-width: 2; }
svg circle { fill: #1565c0; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1b1b1b; } .stress { background: #2a2a2a; } th, td { border-color: #444; }
}
"""


def as_html(facts: Facts, report: ParentReport) -> str:
    """Return the whole page."""
    title = f"Report for {escape(facts.student_id)}"
    parts = [
        f"<h1>{title}</h1>",
        f"<p>As of {escape(said(facts.now, facts.zone))} ({escape(facts.zone.key)}).</p>",
        f'<p class="stress {report.stress}"><strong>Stress: {report.stress}.</strong>'
        f" {escape(report.stress_because)}.</p>",
        *(f"<p>{escape(each)}</p>" for each in report.summary),
        "<h2>Subjects</h2>",
        _subjects(facts.profile.subjects),
        "<h2>Plan</h2>",
        _plan(facts),
        "<h2>Not planned</h2>",
        _unplanned(facts),
        "<h2>Advice</h2>",
        _list(map(escape, facts.advice)),
    ]
    phone = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f'<meta charset="utf-8">\n{phone}\n<title>{title}</title>\n<style>{STYLE}</style>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def _subjects(subjects: Sequence[SubjectMastery]) -> str:
    heads = ("subject", "mastery", "confidence", "graded", "late", "missing", "trend", "results")
    rows = [[*map(escape, cells(each)), chart(each)] for each in subjects]
    return f"{_table(heads, rows)}\n<p>{escape(LEGEND)}</p>" if rows else "<p>Nothing.</p>"


def chart(subject: SubjectMastery) -> str:
    """Return an SVG chart of a subject's results over time, from 0 at the bottom to full marks at the top."""
    if not subject.history:
        return ""
    label = escape(f"{subject.subject}: {', '.join(f'{each.score:.0%}' for each in subject.history)}", quote=True)
    places = _places(subject.history)
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    x, y = places[-1]
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f"<title>{label}</title>"
        f'<line x1="{MARGIN}" y1="{HEIGHT - MARGIN}" x2="{WIDTH - MARGIN}" y2="{HEIGHT - MARGIN}"/>'
        f'<polyline points="{line}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="3"/></svg>'
    )


def _places(history: Sequence[Result]) -> list[tuple[float, float]]:
    """Return the coordinates of the results, left to right by time. A single result is in the middle."""
    times = [each.at.timestamp() for each in history]
    span = times[-1] - times[0]
    width, height = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN
    return [
        (MARGIN + width * ((at - times[0]) / span if span else 0.5), MARGIN + height * (1 - each.score))
        for at, each in zip(times, history, strict=True)
    ]


def _plan(facts: Facts) -> str:
    parts = []
    for day, items in groupby(facts.plan, key=lambda item: day_of(item.start, facts.zone)):
        rows = [
            (
                f"{time_of(item.start, facts.zone)}–{time_of(item.end, facts.zone)}",
                escape(item.title), escape(item.course), escape(item.why),
            )
            for item in items
        ]  # fmt: skip
        parts.append(f"<h3>{escape(day)}</h3>\n{_table(('time', 'work', 'course', 'why'), rows)}")
    return "\n".join(parts) or "<p>Nothing.</p>"


def _unplanned(facts: Facts) -> str:
    lines = [
        escape(f"{each.title} ({each.course}), {each.minutes} minutes: {each.why}")
        for each in facts.unplanned[:LONGEST_LIST]
    ]
    more = rest(facts.unplanned)
    return _list(lines if more is None else [*lines, more])


def _list(lines: Iterable[str]) -> str:
    found = "".join(f"<li>{line}</li>\n" for line in lines)
    return f"<ul>\n{found}</ul>" if found else "<p>Nothing.</p>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{each}</th>" for each in heads)
    body = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"
