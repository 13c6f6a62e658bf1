"""The finished plan as a web page, Markdown, CSV and iCalendar. All have the same rows in the same order."""

from __future__ import annotations

import csv
import io
import shlex
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from pausepoint.apps.files import put
from pausepoint.apps.planner.ical import as_calendar
from pausepoint.apps.planner.markdown import as_markdown
from pausepoint.apps.planner.models import Artifacts, PlanRow
from pausepoint.apps.planner.page import as_page
from pausepoint.apps.planner.shown import Shown
from pausepoint.name import FOLDER

NAMES = ("study_plan.md", "study_plan.csv", "study_plan.ics", "study_plan.html")

COLUMNS = (
    "date", "starts_at", "course", "topic", "task_description", "estimated_minutes", "priority", "source_files",
    "status", "row_id",
)  # fmt: skip


def place_of(outputs: Path) -> Path:
    """Return the folder for the files of a session: ``planner/ID`` beside the store, where a person looks for it.

    A store in the hidden folder of a project counts as one in the project. ``outputs`` is the session's own folder.

    >>> place_of(Path("/term/.pausepoint/pausepoint.db.sessions/spring/outputs")).as_posix()
    '/term/planner/spring'
    """
    own = outputs.absolute().parent
    beside = own.parents[1]
    return (beside.parent if beside.name == FOLDER else beside) / "planner" / own.name


def remove(outputs: Path) -> None:
    """Delete the files of a session, and nothing that a person has added."""
    folder = place_of(outputs)
    for name in NAMES:
        (folder / name).unlink(missing_ok=True)
    for each in (folder, folder.parent):
        with suppress(OSError):  # it does not exist, or has other files
            each.rmdir()


def write(folder: Path, shown: Shown, session_id: str, made: datetime, outputs: Path) -> Artifacts:
    """Write all files into a folder, each atomically. ``outputs`` is the session's own folder for outputs."""

    def marking(row_id: str) -> str:
        return command_for(outputs, "done", session_id, row_id)

    example = marking(shown.next_row_id) if shown.next_row_id else ""
    texts = (
        as_markdown(shown, example),
        as_csv(shown),
        as_calendar(shown.planning, shown.inputs, shown.statuses, session_id, made, marking),
        as_page(shown, example),
    )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(NAMES, texts, strict=True):
        put(folder / name, text.encode(), private=False)
    markdown, table, calendar, page = (str(folder / name) for name in NAMES)
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
