"""The sample: made-up material for three small courses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pausepoint.apps.pdf import reads_pdf
from pausepoint.apps.planner.models import Upload

SAMPLE = Path(__file__).parent / "sample_data"
SAMPLE_INPUTS: dict[str, Any] = {
    "timezone": "Europe/Lisbon",
    "start_date": "2030-02-04",
    "courses": [
        {"course_id": "calc2", "course_name": "Calculus II", "midterm_date": "2030-02-15"},
        {"course_id": "bio", "course_name": "Marine Biology", "midterm_date": "2030-02-20"},
        {"course_id": "hist", "course_name": "History of Navigation", "midterm_date": "2030-02-22"},
    ],
    "shared_constraints": {"max_minutes_per_day": 150, "preferred_rest_day": "Sunday"},
}
WITHOUT_PDF = "The sample runs without its PDF. Install the library for it: pip install 'pausepoint[apps]'"


def sample_uploads() -> list[Upload]:
    """Return the files of the sample, with the PDF if PDF files can be read."""
    files = [
        Upload(path=SAMPLE / "calculus.md", course_ids=["calc2"]),
        Upload(path=SAMPLE / "navigation.txt", course_ids=["hist"]),
        Upload(path=SAMPLE / "how-to-study.md", is_shared=True),
    ]
    return [*files, Upload(path=SAMPLE / "kelp.pdf", course_ids=["bio"])] if reads_pdf() else files
