"""The status words of Google Classroom, Canvas, Moodle and people, in a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from pausepoint.apps.aura.sources import open_source
from pausepoint.apps.aura.sources.work_status import WorkStatus
from tests.apps.classroom import gathered, put

OPEN, DONE, LATE, EXCUSED = WorkStatus(), WorkStatus(True), WorkStatus(True, True), WorkStatus(excused=True)
STATUSES = {
    # Google Classroom, on its pages and in its API
    "Assigned": OPEN, "Missing": OPEN, "Turned in": DONE, "Turned in late": LATE, "Done late": LATE, "Handed in": DONE,
    "Graded": DONE, "Returned": DONE, "Draft": OPEN, "Unsubmitted": OPEN, "NEW": OPEN, "CREATED": OPEN,
    "TURNED_IN": DONE, "RETURNED": DONE, "RECLAIMED_BY_STUDENT": OPEN, "Not turned in": OPEN, "Excused": EXCUSED,
    # Canvas
    "Late": LATE, "Submitted": DONE, "Not Submitted": OPEN, "Resubmitted": DONE, "Pending Review": DONE,
    "Dropped": EXCUSED, "EX": EXCUSED, "Extended": OPEN, "None": OPEN, "unsubmitted": OPEN, "graded": DONE,
    "Needs grading": DONE, "Incomplete": OPEN, "Complete": DONE,
    # Moodle
    "Draft (not submitted)": OPEN, "Submitted for grading": DONE, "No submission": OPEN, "No attempt": OPEN,
    "Submitted for grading - Graded": DONE, "No submission - Not graded": OPEN, "Reopened": OPEN, "In marking": DONE,
    "Nothing has been submitted for this assignment": OPEN, "Submitted for grading, Graded, 3 days 2 hours late": LATE,
    "No submission - 1 day late": WorkStatus(late=True), "Finished": DONE, "In progress": OPEN, "Overdue": OPEN,
    "Never submitted": OPEN,
    # in German
    "Zugewiesen": OPEN, "Fehlt": OPEN, "Abgegeben": DONE, "Verspätet abgegeben": LATE, "Zurückgegeben": DONE,
    "Entwurf (nicht abgegeben)": OPEN, "Zur Bewertung abgegeben": DONE, "Bewertet": DONE, "Entschuldigt": EXCUSED,
    # by hand
    "✓": DONE, "-": OPEN, "x": DONE, "no": OPEN, "1": DONE, "0": OPEN,
}  # fmt: skip


@pytest.mark.parametrize(("word", "expected"), STATUSES.items(), ids=STATUSES)
def test_the_status_words_of_google_canvas_and_moodle_are_known(
    tmp_path: Path, word: str, expected: WorkStatus
) -> None:
    (found,) = gathered(put(tmp_path / "x.csv", f'course,title,status\nLatin,Test,"{word}"\n')).values()
    assert (found.handed_in, found.late, found.excused) == expected[:3]
    assert expected.unknown == ()
    assert open_source(str(tmp_path / "x.csv"), "UTC").doubts("Anna") == []


def test_a_status_in_the_cell_for_the_points_is_no_grade(tmp_path: Path) -> None:
    lines = ["Latin,Test,Excused", "Latin,Essay,EX", "Latin,Verbs,Missing", "Latin,Speech,-", "Latin,Role,Pass"]
    found = gathered(put(tmp_path / "x.csv", "\n".join(["course,title,grade", *lines]))).values()
    assert [(each.excused, each.is_open, each.is_graded) for each in found] == [
        (True, False, False), (True, False, False), (False, True, False), (False, True, False), (False, False, True)
    ]  # fmt: skip
