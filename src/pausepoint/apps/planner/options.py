"""What the options of the planner's command line say: courses, files, exams and hours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pausepoint.apps.input import BadInput
from pausepoint.apps.planner.models import Role, Upload
from pausepoint.apps.planner.windows import read_hours

COURSE = "ID:NAME[:DAY]"
FILE = "[COURSE,COURSE:]PATH"
EXAM = "[COURSE=]CHAPTERS, such as 'chapters 1-6, 9'"


def inputs_of(
    courses: list[str], time_zone: str | None, start: str | None, max_minutes: int | None, rest_day: str | None,
    hours: list[str],
) -> dict[str, Any]:  # fmt: skip
    """Return the inputs that were given."""
    limits = {"max_minutes_per_day": max_minutes, "preferred_rest_day": rest_day and rest_day.capitalize(),
              "study_hours": read_hours(hours) or None}  # fmt: skip
    given: dict[str, Any] = {
        "courses": [course_of(each) for each in courses],
        "shared_constraints": {name: value for name, value in limits.items() if value is not None},
        "timezone": time_zone,
        "start_date": start,
    }
    return {name: value for name, value in given.items() if value}


def with_exams(courses: list[dict[str, Any]], exam: Sequence[str]) -> list[dict[str, Any]]:
    """Return the courses with what their exams cover."""
    covered = covered_by(exam, [course["course_id"] for course in courses])
    return [course | {"exam": covered.get(course["course_id"], "")} for course in courses]


def covered_by(given: Sequence[str], course_ids: Sequence[str]) -> dict[str, str]:
    """Read what the exams of courses cover. With one course, its id may be left out.

    >>> covered_by(["chapters 1-6"], ["calc2"]), covered_by(["bio=none"], ["calc2", "bio"])
    ({'calc2': 'chapters 1-6'}, {'bio': ''})
    """
    found: dict[str, str] = {}
    for text in given:
        course_id, equals, chapters = (part.strip() for part in text.partition("="))
        if not equals and len(course_ids) == 1:
            course_id, chapters = course_ids[0], course_id
        if course_id not in course_ids or not chapters:
            known = ", ".join(course_ids) or "none yet; add one with --course"
            raise BadInput(f"--exam: {text!r} is not valid. Write {EXAM}. The courses: {known}.")
        found[course_id] = "" if chapters.lower() in ("none", "all", "everything") else chapters
    return found


def over(sample: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the sample with the given inputs in place of its own."""
    limits = sample["shared_constraints"] | given.get("shared_constraints", {})
    return sample | given | {"shared_constraints": limits}


def course_of(text: str) -> dict[str, Any]:
    """Read a course from the command line.

    >>> course_of("calc2:Calculus II:2026-02-21")
    {'course_id': 'calc2', 'course_name': 'Calculus II', 'midterm_date': '2026-02-21'}
    """
    course_id, *rest = text.split(":", 1)
    if not rest:
        raise BadInput(f"--course: {text!r} is not a course. Write {COURSE}.")
    name, *day = rest[0].rsplit(":", 1)
    given = {"course_id": course_id.strip(), "course_name": name.strip()}
    return given | ({"midterm_date": day[0].strip()} if day else {})


def upload_of(text: str, known: set[str], role: Role = "book") -> Upload:
    """Read a file from the command line. The part before a colon is a list of courses, or part of the path.

    >>> upload_of("calc2,phys:notes.md", {"calc2", "phys"}).course_ids, upload_of("notes.md", {"calc2"}).is_shared
    (['calc2', 'phys'], True)
    """
    before, colon, path = text.partition(":")
    courses = [part.strip() for part in before.split(",")]
    if colon and (set(courses) <= known or not Path(text).exists()) and path:
        return Upload(path=Path(path), course_ids=courses, role=role)
    return Upload(path=Path(text), is_shared=True, role=role)
