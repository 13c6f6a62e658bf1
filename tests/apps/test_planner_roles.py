"""Roles of files: exercises are planned beside their chapter, old exams come last and say what matters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine
from pausepoint.apps.planner import SessionDocument, planner, sessions
from pausepoint.apps.planner.models import FileEntry, PlanRow, Upload
from pausepoint.apps.planner.roles import OLD_EXAMS, Sheet
from pausepoint.engine import BlockingEngine
from tests.apps.pdfs import make_pdf
from tests.apps.planner_kit import CALC, go_on, run

COURSE: dict[str, Any] = {"courses": [CALC], "shared_constraints": {"max_minutes_per_day": 240}}
CHAPTERS = {
    "Limits": "a sequence converges to its limit if the epsilon neighbourhood has almost all members",
    "Derivatives": "the derivative is the slope of the tangent and the chain rule differentiates compositions",
    "Integrals": "the integral is the area below a curve and substitution finds an antiderivative",
    "Series": "a power series has a radius of convergence and the ratio test decides about absolute convergence",
}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[BlockingEngine]:
    with Engine(tmp_path / "planner.db", workflows=[planner]) as found:
        yield found


@pytest.fixture
def book(tmp_path: Path) -> Upload:
    """A book of four numbered chapters."""
    path = tmp_path / "book.md"
    chapters = (
        f"## {number}. {title}\n\n{f'{text}. ' * 30}\n\n" for number, (title, text) in enumerate(CHAPTERS.items(), 1)
    )
    path.write_text(f"# A First Calculus\n\n{''.join(chapters)}")
    return Upload(path=path, course_ids=["calc2"])


def sheet(folder: Path, name: str, text: str, role: str = "exercises", chapter: str = "") -> Upload:
    path = folder / name
    path.write_text(text)
    return Upload.model_validate({"path": path, "course_ids": ["calc2"], "role": role, "chapter": chapter})


def work(document: SessionDocument) -> list[PlanRow]:
    return [row for row in document.planning_state.plan_rows if row.parts]


def sections(document: SessionDocument, topic: str) -> list[str]:
    found = [each for each in document.estimation_state.topic_estimates if each.topic == topic]
    return [section.title for each in found for section in each.sections]


def asked(document: SessionDocument) -> dict[str, str]:
    return {each.topic: each.priority for each in document.estimation_state.topic_estimates}


TANGENTS = (
    "Problem sheet\n\n1. Find the slope of the tangent of x^2 with the chain rule.\n2. Differentiate the composition.\n"
)


@pytest.mark.parametrize(
    ("name", "text", "chapter", "topic"),
    [
        ("sheet.md", TANGENTS, "", "Derivatives"),
        ("sheet.md", TANGENTS, "4", "Series"),
        ("sheet.md", TANGENTS, "limits", "Limits"),
        ("sheet.md", f"Exercises for Chapter 3\n\n{TANGENTS}", "", "Integrals"),
        ("chapter-1.md", TANGENTS, "", "Limits"),
    ],
)
def test_exercises_are_planned_at_the_end_of_their_chapter(
    engine: BlockingEngine, tmp_path: Path, book: Upload, name: str, text: str, chapter: str, topic: str
) -> None:
    exercises = sheet(tmp_path, name, text, chapter=chapter)
    document = run(engine, uploads=[exercises, book], **COURSE)
    assert list(asked(document)) == list(CHAPTERS)
    stem = Path(name).stem
    assert [each for each in CHAPTERS if stem in sections(document, each)] == [topic]
    assert sections(document, topic)[-1] == stem
    row = next(row for row in work(document) if any(part.section == stem for part in row.parts))
    assert f"; solve “{stem}”" in row.task_description
    assert document.ingestion_state.warnings == []


def test_a_problem_takes_ten_minutes_and_the_text_of_exercises_is_not_read_as_a_book(
    engine: BlockingEngine, tmp_path: Path, book: Upload
) -> None:
    plain = {
        each.topic: each.estimated_minutes
        for each in run(engine, uploads=[book], **COURSE).estimation_state.topic_estimates
    }
    exercises = sheet(tmp_path, "sheet.md", "Derivatives: the tangent and its slope\n\n" + "1. Find it.\n" * 6)
    sessions.add_file(engine, "s1", exercises)
    document = go_on(engine)
    found = {each.topic: each.estimated_minutes for each in document.estimation_state.topic_estimates}
    assert found == plain | {"Derivatives": plain["Derivatives"] + 60}
    assert document.planning_state.plan_version == 2


@pytest.mark.long
def test_exercises_that_fit_nothing_come_last_with_a_warning_and_the_chapter_can_be_named_later(
    engine: BlockingEngine, tmp_path: Path, book: Upload
) -> None:
    strange = sheet(tmp_path, "strange.md", "# Botany\n\n1. Draw a fern and a moss beside one another.\n")
    document = run(engine, uploads=[strange, book], **COURSE)
    assert list(asked(document)) == [*CHAPTERS, "Exercises: Botany"]
    (warning,) = document.ingestion_state.warnings
    assert warning.startswith("strange.md: These exercises fit no chapter, so they come last.")
    sessions.add_file(engine, "s1", strange.model_copy(update={"chapter": "chapter 9"}))
    assert go_on(engine).ingestion_state.warnings[0].startswith("strange.md: There is no chapter “chapter 9”.")
    sessions.add_file(engine, "s1", strange.model_copy(update={"chapter": "chapter 2"}))
    document = go_on(engine)
    assert (document.ingestion_state.warnings, list(asked(document))) == ([], list(CHAPTERS))
    assert sections(document, "Derivatives")[-1] == "Botany"
    sessions.add_file(engine, "s1", strange.model_copy(update={"role": "book"}))
    assert next(iter(asked(go_on(engine)))) not in CHAPTERS  # it is a book now


EXAM = """Midterm 2029. Time: 60 minutes.

1. What is the radius of convergence of this power series?
2. Find the limit of the sequence; prove that it converges.
"""
OTHER = "Midterm 2028\n\n1. Decide with the ratio test about absolute convergence of the series.\n"


def test_old_exams_come_last_and_decide_what_is_cut(engine: BlockingEngine, tmp_path: Path, book: Upload) -> None:
    uploads = [sheet(tmp_path, "2029.txt", EXAM, "old_exam"), book, sheet(tmp_path, "2028.txt", OTHER, "old_exam")]
    document = run(engine, uploads=uploads, **COURSE)
    assert asked(document) == {
        "Limits": "high", "Derivatives": "low", "Integrals": "low", "Series": "high", OLD_EXAMS: "high",
    }  # fmt: skip
    assert [each.measure.asked for each in document.ingestion_state.course_topic_evidence] == [1, 0, 0, 2, 2]
    minutes = [each.minutes for each in document.estimation_state.topic_estimates[-1].sections]
    assert minutes == [90, 135]
    last = work(document)[-1]
    assert last.task_description.endswith("; then mark it")
    assert last.task_description.startswith("Solve “")
    assert document.ingestion_state.warnings == []


def test_an_old_exam_about_something_else_changes_no_priority_and_says_so(
    engine: BlockingEngine, tmp_path: Path, book: Upload
) -> None:
    document = run(engine, uploads=[book, sheet(tmp_path, "x.txt", "Draw a fern.", "old_exam")], **COURSE)
    assert asked(document) == dict.fromkeys(CHAPTERS, "medium") | {OLD_EXAMS: "high"}
    assert document.ingestion_state.warnings == [
        "x.txt: No topic of the course was found in this old exam, so it does not say what matters."
    ]


def test_a_limited_exam_keeps_the_exercises_of_its_chapters_and_the_old_exams(
    engine: BlockingEngine, tmp_path: Path, book: Upload
) -> None:
    uploads = [
        book, sheet(tmp_path, "a.md", TANGENTS), sheet(tmp_path, "b.md", f"{TANGENTS}3.", chapter="4"),
        sheet(tmp_path, "2029.txt", EXAM, "old_exam"),
    ]  # fmt: skip
    limited = CALC | {"exam": "chapters 1-2"}
    document = run(engine, uploads=uploads, **(COURSE | {"courses": [limited]}))
    planned = dict.fromkeys(part.section for row in work(document) for part in row.parts)
    assert list(planned) == ["1 Limits", "2 Derivatives", "a", "2029"]
    sessions.mark(engine, "s1", ["§2"], "done", work(document)[0].date, "See.")
    assert {each.section for each in go_on(engine).user_inputs.progress} == {"2 Derivatives", "a"}


def test_a_course_with_exercises_alone_has_them_as_its_topics(engine: BlockingEngine, tmp_path: Path) -> None:
    document = run(engine, uploads=[sheet(tmp_path, "a.md", TANGENTS)], **COURSE)
    assert list(asked(document)) == ["Exercises: a"]


def test_the_pages_of_a_sheet_are_named(tmp_path: Path) -> None:
    make_pdf(tmp_path / "a.pdf", [["Problem 1"], ["Problem 2"]])
    entry = FileEntry(
        filename="a.pdf", content_type="application/pdf", size_bytes=1, storage_uri="", sha256="", role="exercises",
        upload_status="uploaded",
    )  # fmt: skip
    found = Sheet(entry, [], "Problem 1\nProblem 2", 2).section
    assert (found.title, found.first_page, found.last_page, found.tasks) == ("a", 1, 2, 2)
