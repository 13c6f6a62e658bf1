"""The finished plan as Markdown, CSV and iCalendar. All three have the same rows in the same order."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from pathlib import Path

from pausepoint.apps.planner.models import Artifacts, FileProgress, PlanningState, PlanRow, Review, UserInputs
from pausepoint.apps.words import many, plain

COLUMNS = tuple(PlanRow.model_fields)
PRIORITY = {"high": 1, "medium": 5, "low": 9}
VERDICTS = {
    "approved_plan": "approved",
    "capacity_limited_plan": "shortened for lack of time",
    "needs_revision": "refused by the reviewer",
}
"""The result types of a review, in words for people."""

SAID = {
    "approved_plan": "All topics fit before their midterms.",
    "capacity_limited_plan": "There is not enough time for everything. The cuts are listed below.",
    "needs_revision": "The reviewer refused this plan.",
}


def write(
    folder: Path, planning: PlanningState, inputs: UserInputs, files: Mapping[str, FileProgress], session_id: str,
    made: datetime,
) -> Artifacts:  # fmt: skip
    """Write all three files into a folder, each atomically."""
    texts = {
        "study_plan.md": as_markdown(planning, inputs, files),
        "study_plan.csv": as_csv(planning.plan_rows),
        "study_plan.ics": as_calendar(planning.plan_rows, session_id, planning.plan_version, made),
    }
    for name, text in texts.items():
        _put(folder / name, text)
    markdown, table, calendar = (str(folder / name) for name in texts)
    return Artifacts(markdown_path=markdown, csv_path=table, calendar_path=calendar)


def _put(path: Path, text: str) -> None:
    """Replace a file atomically: a reader sees either the old content or the new content."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


# Markdown


def as_markdown(planning: PlanningState, inputs: UserInputs, files: Mapping[str, FileProgress]) -> str:
    """Return the plan as Markdown, for reading."""
    lines = [
        "# Study plan",
        "",
        f"Version {planning.plan_version}, {_span(planning.plan_rows)}, in the time zone {plain(inputs.timezone)}.",
        *_verdict(planning.review),
        *_warnings(files),
        "",
        "## Midterms",
        "",
        *(f"- {course.midterm_date}: {plain(course.course_name)}" for course in inputs.courses),
        "",
        "## Days",
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"|{'---|' * len(COLUMNS)}",
        *(f"| {' | '.join(map(_cell, cells(row)))} |" for row in planning.plan_rows),
        "",
        "## Load",
        "",
        *_load(planning.plan_rows),
    ]
    return "\n".join(lines) + "\n"


def cells(row: PlanRow) -> list[str]:
    """Return a row as strings, in the order of the columns."""
    found = row.model_dump(mode="json")
    return ["; ".join(value) if isinstance(value := found[name], list) else str(value) for name in COLUMNS]


def _cell(text: str) -> str:
    """Escape a cell. Dates and numbers need no escaping, because a cell cannot start a list."""
    return text if text[:1].isdigit() and text.replace("-", "").isdigit() else plain(text)


def _span(rows: Sequence[PlanRow]) -> str:
    return f"{rows[0].date} to {rows[-1].date}" if rows else "without days"


def _verdict(review: Review | None) -> Iterator[str]:
    if review is None:
        return
    yield ""
    yield f"**{VERDICTS[review.result_type].capitalize()}**: {SAID[review.result_type]}"
    if review.revision_reasons:
        yield ""
        yield from (f"- {plain(reason)}" for reason in review.revision_reasons)


def _warnings(files: Mapping[str, FileProgress]) -> Iterator[str]:
    marked = {file_id: each for file_id, each in files.items() if each.warning}
    if marked:
        yield ""
        yield "## Warnings"
        yield ""
        for file_id, each in marked.items():
            read = f"{each.processed_chunks} of {many(each.chunking.total_chunks, 'chunk')} were read"
            yield f"- {plain(file_id)} is partial ({read}): {plain(each.warning or '')}"


def _load(rows: Sequence[PlanRow]) -> Iterator[str]:
    """Yield the minutes of each week."""
    for (year, week), found in groupby(rows, key=lambda row: row.date.isocalendar()[:2]):
        minutes = sum(row.estimated_minutes for row in found)
        yield f"- {date.fromisocalendar(year, week, 1)}: {many(minutes, 'minute')}"


# CSV


def as_csv(rows: Sequence[PlanRow]) -> str:
    """Return the plan as CSV, for a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    writer.writerows([_as_text(cell) for cell in cells(row)] for row in rows)
    return text.getvalue()


def _as_text(cell: str) -> str:
    """Escape text that a spreadsheet would run as a formula."""
    return f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t") else cell


# iCalendar


def as_calendar(rows: Sequence[PlanRow], session_id: str, version: int, made: datetime) -> str:
    """Return the plan as iCalendar: all-day entries that do not mark the days as busy."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Pausepoint//Study planner//EN", "CALSCALE:GREGORIAN"]
    for number, row in enumerate(rows):
        lines += _entry(row, f"{session_id}-{version}-{number}@pausepoint", version, made)
    lines.append("END:VCALENDAR")
    return "".join(f"{_folded(line)}\r\n" for line in lines)


def _entry(row: PlanRow, uid: str, version: int, made: datetime) -> list[str]:
    minutes = f" ({row.estimated_minutes} min)" if row.estimated_minutes else ""
    name = f"{row.course}: {row.topic}" if row.course else row.topic
    sources = f"\nFrom {'; '.join(row.source_files)}" if row.source_files else ""
    return [
        "BEGIN:VEVENT",
        f"UID:{_escaped(uid)}",
        f"SEQUENCE:{version}",
        f"DTSTAMP:{made.astimezone(UTC):%Y%m%dT%H%M%SZ}",
        f"DTSTART;VALUE=DATE:{row.date:%Y%m%d}",
        f"DTEND;VALUE=DATE:{row.date + timedelta(days=1):%Y%m%d}",
        f"SUMMARY:{_escaped(name + minutes)}",
        f"DESCRIPTION:{_escaped(row.task_description + sources)}",
        *([f"CATEGORIES:{_escaped(row.course)}"] if row.course else []),
        f"PRIORITY:{PRIORITY[row.priority]}",
        "TRANSP:TRANSPARENT",
        f"X-PAUSEPOINT-TOPIC:{_escaped(row.topic)}",
        f"X-PAUSEPOINT-MINUTES:{row.estimated_minutes}",
        "END:VEVENT",
    ]


def _escaped(text: str) -> str:
    for sign in "\\;,":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", "\\n")


def _folded(line: str) -> str:
    """Fold a line to at most 75 bytes, never in the middle of a character.

    >>> _folded("x" * 80).split("\\r\\n ")[1]
    'xxxxx'
    """
    pieces: list[str] = []
    piece = ""
    for sign in line:
        if len((piece + sign).encode()) > (75 if not pieces else 74):
            pieces.append(piece)
            piece = ""
        piece += sign
    return "\r\n ".join([*pieces, piece])
