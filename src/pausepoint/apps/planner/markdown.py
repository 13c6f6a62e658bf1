"""The plan as Markdown, for reading and for notes. This week comes first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pausepoint.apps.planner.dates import said
from pausepoint.apps.planner.models import PlanRow
from pausepoint.apps.planner.shown import Shown, days, minutes_of, week
from pausepoint.apps.words import many, plain

HEADS = ("Date", "Time", "Course", "Topic", "Task", "Minutes", "Priority", "From", "Status", "Row")


def as_markdown(shown: Shown, marking: str) -> str:
    """Return the plan as Markdown. ``marking`` is the command that marks the next row as done, if there is one."""
    word, sentence = shown.verdict
    lines = ["# Study plan", "", f"**{plain(word)}**: {plain(sentence)}", *_list(shown.refusals)]
    if shown.weeks:
        monday, rows = shown.weeks[0]
        lines += ["", f"## This week: {week(monday)}", *_days([row for row in rows if row.date >= shown.today], shown)]
    lines += _section("Midterms", [f"{said(day)}: {name}" for day, name in shown.midterms])
    lines += _section("Progress", shown.standings)
    lines += ["", "## All days", "", f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
    lines += [f"| {' | '.join(_cells(row, shown))} |" for row in shown.planning.plan_rows]
    lines += _section("Load", [f"{week(monday)}: {many(minutes_of(rows), 'minute')}" for monday, rows in
                               [*shown.past, *shown.weeks]])  # fmt: skip
    lines += _self_tests(shown)
    lines += _section("Cuts", shown.cuts)
    lines += _section("Not in the exam", shown.not_in_exam)
    lines += _section("Not studied", shown.set_aside)
    lines += _section("Warnings", shown.warnings)
    how = ["", "Mark work as done with its row:", "", f"    {marking}"] if marking else []
    return "\n".join([*lines, "", plain(shown.title) + ".", *how]) + "\n"


def _self_tests(shown: Shown) -> list[str]:
    lines: list[str] = []
    for course, topic, note, questions in shown.self_tests.all():
        lines += ["", f"### {plain(f'{course}: {topic}')}", *(["", plain(note)] if note else []), *_list(questions)]
    return ["", "## Test yourself", *lines] if lines else []


def _section(title: str, items: Sequence[str]) -> list[str]:
    return ["", f"## {title}", *_list(items)] if items else []


def _list(items: Sequence[str]) -> list[str]:
    return ["", *(f"- {plain(each)}" for each in items)] if items else []


def _days(rows: Sequence[PlanRow], shown: Shown) -> Iterator[str]:
    for name, of_day in days(rows, shown.today):
        total = minutes_of(of_day)
        yield from ("", f"### {name}" + (f", {many(total, 'minute')}" if total else ""), "")
        for row in of_day:
            yield f"- {_line(row)}"
            yield from (f"  - {plain(each)}" for each in shown.self_tests.notes(row))
            yield from (f"  - Test yourself: {plain(each)}" for each in shown.self_tests.questions(row))


def _line(row: PlanRow) -> str:
    if row.starts_at is None:
        return f"**{plain(row.course)}**: {plain(row.task_description)}" if row.course else plain(row.task_description)
    return (
        f"{row.starts_at:%H:%M} **{plain(row.course)}**: {plain(row.task_description)},"
        f" {row.estimated_minutes} min (`{row.row_id}`)"
    )


def _cells(row: PlanRow, shown: Shown) -> list[str]:
    time = f"{row.starts_at:%H:%M}" if row.starts_at else ""
    words = [row.course, row.topic, row.task_description]
    return [
        said(row.date), time, *map(plain, words), str(row.estimated_minutes), row.priority,
        plain("; ".join(row.source_files)), shown.status(row), f"`{row.row_id}`" if row.row_id else "",
    ]  # fmt: skip
