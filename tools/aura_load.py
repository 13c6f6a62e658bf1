"""Measure Aura on a large class: ``python -m tools.aura_load 60000``. The class is made up in a temporary folder.

Prints the time, the CPU time and the peak memory of one session, from reading the data to the written report. All
submissions are those of one student, which is the worst case. ``--students 300`` spreads them over so many students.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from pausepoint.apps.aura import run_aura_orchestrator
from tests.apps.classroom import NOW, STUDENT, big_class

COURSES = 60
MEGABYTE = 2**10 if sys.platform == "linux" else 2**20  # Linux counts in kilobytes, macOS in bytes


def measure(folder: Path, submissions: int, students: int = 1) -> str:
    """Run a session on a class with so many submissions, and return the figures."""
    data = big_class(folder / "class", 4, COURSES // 4, max(submissions // COURSES, 1))
    _spread(data, students)
    began, used = time.perf_counter(), time.process_time()
    done = run_aura_orchestrator(STUDENT, store=folder / "x.db", data=data, now=NOW, time_zone="UTC")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // MEGABYTE
    return (
        f"{done.status}: {submissions:,} submissions, {len(done.assignments):,} of the student;"
        f" {time.perf_counter() - began:.1f} s, {time.process_time() - used:.1f} s of CPU time, peak {peak} MB"
    )


def _spread(data: Path, students: int) -> None:
    """Give the submissions to several students in turn, and each work to the student of its submission."""
    for page in data.glob("*/studentSubmissions/*.json") if students > 1 else ():
        found = json.loads(page.read_text("utf-8"))["studentSubmissions"]
        for number, each in enumerate(found):
            each["userId"] = STUDENT if number % students == 0 else f"other-{number % students}"
        page.write_text(json.dumps({"studentSubmissions": found}), "utf-8")
        work = data / page.parent.parent.name / "courseWork" / page.name
        listed = json.loads(work.read_text("utf-8"))["courseWork"]
        work.write_text(
            json.dumps({"courseWork": [each | {"assigneeMode": "INDIVIDUAL_STUDENTS"} for each in listed]}), "utf-8"
        )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("submissions", type=int)
    parser.add_argument("--students", type=int, default=1)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        print(measure(Path(folder), given.submissions, given.students))


if __name__ == "__main__":
    main()
