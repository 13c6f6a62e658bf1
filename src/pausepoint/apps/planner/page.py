"""The plan as one web page: readable on a phone and on paper, without scripts and without other files."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from datetime import date
from html import escape

from pausepoint.apps.planner.dates import said
from pausepoint.apps.planner.models import PlanRow
from pausepoint.apps.planner.rows import MIDTERM, REVIEW
from pausepoint.apps.planner.shown import Shown, days, minutes_of, week
from pausepoint.apps.words import many

STYLE = """
:root { color-scheme: light dark; }
:root { --line: #d5d9e0; --soft: #5b6472; --card: #f6f7f9; --accent: #1f5fbf; --alert: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --line: #3a404a; --soft: #a8b0bd; --card: #1d2127; --accent: #8ab4f8; --alert: #ff8a80; }
}
* { box-sizing: border-box; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 62rem; overflow-wrap: anywhere; }
h1 { margin: 0; font-size: 1.6rem; }
h2 { margin: 2rem 0 .5rem; font-size: 1.25rem; border-bottom: 1px solid var(--line); }
h3 { margin: 0 0 .25rem; font-size: 1rem; }
p, ul { margin: .4rem 0; }
.soft { color: var(--soft); font-size: .9rem; }
.alert { color: var(--alert); font-weight: 600; }
.days { display: grid; gap: .75rem; }
.day { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem; }
.day ol { list-style: none; margin: 0; padding: 0; }
.day li { display: grid; grid-template-columns: 3.4rem 1fr; gap: .5rem; padding: .35rem 0; }
.day li + li { border-top: 1px solid var(--line); }
time { font-variant-numeric: tabular-nums; }
.course { color: var(--accent); font-weight: 600; }
summary { color: var(--accent); font-size: .9rem; cursor: pointer; }
.tests h3 { margin-top: 1rem; }
.done, .skipped { opacity: .6; }
.done .what, .skipped .what { text-decoration: line-through; }
@media (min-width: 48rem) { .days { grid-template-columns: 1fr 1fr; } }
@media print {
  :root { color-scheme: light; --line: #999; --soft: #333; --card: #fff; --accent: #000; --alert: #000; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .days { display: block; columns: 2; }
  .day { break-inside: avoid; margin-bottom: .5rem; }
}
"""


def as_page(shown: Shown, marking: str) -> str:
    """Return the plan as HTML. Its content security policy allows the page's own style and nothing else.

    ``marking`` is the command that marks the next row as done, if there is one.
    """
    word, sentence = shown.verdict
    hashed = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{hashed}'"
    later = shown.weeks[1:]
    body = [
        f"<h1>Study plan</h1><p><strong>{escape(word)}.</strong> {escape(sentence)}</p>",
        _items("", shown.refusals, "alert"),
        *(_week(f"This week: {week(monday)}", [row for row in rows if row.date >= shown.today], shown)
          for monday, rows in shown.weeks[:1]),
        _items("Midterms", [f"{said(day)}: {name}" for day, name in shown.midterms]),
        _items("Progress", shown.standings),
        *(_week(week(monday), rows, shown) for monday, rows in later),
        *(_week(f"Earlier: {week(monday)}", rows, shown) for monday, rows in _before(shown)),
        _self_tests(shown),
        _items("Cuts", shown.cuts),
        _items("Not in the exam", shown.not_in_exam),
        _items("Not studied", shown.set_aside),
        _items("Warnings", shown.warnings),
        f'<p class="soft">{escape(shown.title)}.</p>',
        marking and f'<p class="soft">Mark work as done with the id below it: <code>{escape(marking)}</code></p>',
    ]  # fmt: skip
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Study plan</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<style>{STYLE}</style></head><body>",
            *(part for part in body if part),
            "</body></html>",
            "",
        ]
    )


def _before(shown: Shown) -> list[tuple[date, list[PlanRow]]]:
    """Return the earlier days: whole weeks, and those of this week before today."""
    this = [(monday, [row for row in rows if row.date < shown.today]) for monday, rows in shown.weeks[:1]]
    return [(monday, rows) for monday, rows in [*shown.past, *this] if rows]


def _week(title: str, rows: Sequence[PlanRow], shown: Shown) -> str:
    sections = "".join(_day(name, of_day, shown) for name, of_day in days(rows, shown.today))
    total = minutes_of(rows)
    told = f' <span class="soft">{many(total, "minute")}</span>' if total else ""
    return f'<h2>{escape(title)}{told}</h2><div class="days">{sections}</div>'


def _day(name: str, rows: Sequence[PlanRow], shown: Shown) -> str:
    total = minutes_of(rows)
    told = f' <span class="soft">{many(total, "minute")}</span>' if total else ""
    items = "".join(_item(row, shown) for row in rows)
    return f'<section class="day"><h3>{escape(name)}{told}</h3><ol>{items}</ol></section>'


def _item(row: PlanRow, shown: Shown) -> str:
    status = shown.status(row)
    time = f"<time>{row.starts_at:%H:%M}</time>" if row.starts_at else "<span></span>"
    course = f'<span class="course">{escape(row.course)}</span><br>' if row.course else ""
    if row.topic == MIDTERM and not row.estimated_minutes:
        return f'<li>{time}<div>{course}<span class="alert">Midterm exam</span></div></li>'
    topic = f"<strong>{escape(row.topic)}</strong><br>" if row.parts or row.topic == REVIEW else ""
    mark = {"done": "✓ done", "skipped": "skipped"}.get(status, "")
    notes = [f"{row.estimated_minutes} min", mark, row.row_id] if row.estimated_minutes else []
    told = f'<br><span class="soft">{escape(" · ".join(filter(None, notes)))}</span>' if notes else ""
    what = f'<span class="what">{topic}{escape(row.task_description)}</span>'
    return f'<li class="{status}">{time}<div>{course}{what}{told}{_help(row, shown)}</div></li>'


def _help(row: PlanRow, shown: Shown) -> str:
    """Return what to know before a row, and the questions after it."""
    notes = "".join(_soft(each) for each in shown.self_tests.notes(row))
    asked = shown.self_tests.questions(row)
    head = f"<summary>Test yourself: {many(len(asked), 'question')}</summary>"
    return notes + (f"<details>{head}{_items('', asked)}</details>" if asked else "")


def _self_tests(shown: Shown) -> str:
    tests = "".join(
        f"<h3>{escape(f'{course}: {topic}')}</h3>{_soft(note) if note else ''}{_items('', questions)}"
        for course, topic, note, questions in shown.self_tests.all()
    )
    return f'<h2>Test yourself</h2><div class="tests">{tests}</div>' if tests else ""


def _soft(text: str) -> str:
    return f'<p class="soft">{escape(text)}</p>'


def _items(title: str, items: Iterable[str], kind: str = "") -> str:
    listed = "".join(f"<li>{escape(each)}</li>" for each in items)
    head = f"<h2>{escape(title)}</h2>" if title else ""
    return f'{head}<ul class="{kind}">{listed}</ul>' if listed else ""
