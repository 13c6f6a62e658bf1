"""The finished plan as a web page, Markdown, CSV and iCalendar. All have the same rows in the same order."""

from __future__ import annotations

import csv
import io
import shlex
import sys
from datetime import datetime
from pathlib import Path

from pausepoint.apps.files import put
from pausepoint.apps.planner.ical import as_calendar
from pausepoint.apps.planner.markdown import as_markdown
from pausepoint.apps.planner.models import Artifacts, PlanRow
from pausepoint.apps.planner.page import as_page
from pausepoint.apps.planner.shown import Shown

COLUMNS = (
    "date", "starts_at", "course", "topic", "task_description", "estimated_minutes", "priority", "source_files",
    "status", "row_id",
)  # fmt: skip


def write(folder: Path, shown: Shown, session_id: str, made: datetime, outputs: Path) -> Artifacts:
    """Write all files into a folder, each atomically. ``outputs`` is the session's own folder for outputs."""

    def marking(row_id: str) -> str:
        return command_for(outputs, "done", session_id, row_id)

    example = marking(shown.next_row_id) if shown.next_row_id else ""
    texts = {
        "study_plan.md": as_markdown(shown, example),
        "study_plan.csv": as_csv(shown),
        "study_plan.ics": as_calendar(shown.planning, shown.inputs, shown.statuses, session_id, made, marking),
        "study_plan.html": as_page(shown, example),
    }
    for name, text in texts.items():
        put(folder / name, text.encode(), private=False)
    markdown, table, calendar, page = (str(folder / name) for name in texts)
    return Artifacts(markdown_path=markdown, csv_path=table, calendar_path=calendar, page_path=page)


def command_for(outputs: Path, *words: str) -> str:
    """Return a command of the planner that works in every folder, for a text that is read outside of a terminal.

    >>> command_for(Path("/store/p.db.sessions/spring/outputs"), "done", "spring").partition(" -m ")[2]
    'pausepoint.apps.planner done spring --store /store/p.db'
    """
    store = str(outputs.absolute().parents[1]).removesuffix(".sessions")
    return shlex.join([sys.executable, "-m", "pausepoint.apps.planner", *words, "--store", store])


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
