"""The finished plan as a web page, Markdown, CSV and iCalendar. All have the same rows in the same order."""

from __future__ import annotations

import csv
import io
import os
from datetime import datetime
from pathlib import Path

from pausepoint.apps.planner.ical import as_calendar
from pausepoint.apps.planner.markdown import as_markdown
from pausepoint.apps.planner.models import Artifacts, PlanRow
from pausepoint.apps.planner.page import as_page
from pausepoint.apps.planner.shown import Shown

COLUMNS = (
    "date", "starts_at", "course", "topic", "task_description", "estimated_minutes", "priority", "source_files",
    "status", "row_id",
)  # fmt: skip


def write(folder: Path, shown: Shown, session_id: str, made: datetime) -> Artifacts:
    """Write all files into a folder, each atomically."""
    texts = {
        "study_plan.md": as_markdown(shown),
        "study_plan.csv": as_csv(shown),
        "study_plan.ics": as_calendar(shown.planning, shown.inputs, shown.statuses, session_id, made),
        "study_plan.html": as_page(shown),
    }
    for name, text in texts.items():
        _put(folder / name, text)
    markdown, table, calendar, page = (str(folder / name) for name in texts)
    return Artifacts(markdown_path=markdown, csv_path=table, calendar_path=calendar, page_path=page)


def _put(path: Path, text: str) -> None:
    """Replace a file atomically: a reader sees either the old content or the new content."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def as_csv(shown: Shown) -> str:
    """Return the plan as CSV, for a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    writer.writerows([_as_text(cell) for cell in cells(row, shown)] for row in shown.planning.plan_rows)
    return text.getvalue()


def cells(row: PlanRow, shown: Shown) -> list[str]:
    """Return a row as strings, in the order of the columns."""
    found = row.model_dump(mode="json") | {
        "status": shown.status(row),
        "starts_at": f"{row.starts_at:%H:%M}" if row.starts_at else "",
    }
    return ["; ".join(value) if isinstance(value := found[name], list) else str(value) for name in COLUMNS]


def _as_text(cell: str) -> str:
    """Escape text that a spreadsheet would run as a formula."""
    return f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t") else cell
