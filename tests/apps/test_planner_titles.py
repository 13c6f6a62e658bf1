"""The titles of books: where they come from, and what is no title."""

from __future__ import annotations

from pathlib import Path

import pytest

from pausepoint.apps.planner.materials import kind_of
from pausepoint.apps.planner.models import FileEntry
from pausepoint.apps.planner.sample import SAMPLE
from pausepoint.apps.planner.titles import names_of, title_of
from tests.apps.pdfs import make_pdf

TEXT = "Some words of a text that go on for a while, with a full stop at the end.\n"

TEXTS = {
    "one.md": (f"# On *Eels*\n\n{TEXT}\n## Food\n\n{TEXT}", "On Eels"),
    "front.md": (f'---\ntitle: "On Eels"\nlang: en\n---\n\n# Food\n\n{TEXT}', "On Eels"),
    "chapters.md": (f"# Eels\n\n{TEXT}\n# Herrings\n\n{TEXT}", ""),
    "code.md": (f"# On Eels\n\n```\n# a comment\n```\n\n{TEXT}", "On Eels"),
    "numbered.md": (f"# 3 Eels\n\n{TEXT}", ""),
    "underlined.md": (f"On Eels\n=======\n\n{TEXT}", "On Eels"),
    "none.md": (TEXT, ""),
    "empty.md": ("\n", ""),
    "one.rst": (f"=======\nOn Eels\n=======\n\nFood\n====\n\n{TEXT}", "On Eels"),
    "chapters.rst": (f"Eels\n====\n\n{TEXT}\n\nHerrings\n========\n\n{TEXT}", ""),
    "one.txt": (f"On Eels\nA reader for the first midterm\n\n{TEXT}", "On Eels"),
    "chapter.txt": (f"Chapter 1: Eels\n\n{TEXT}", ""),
    "generic.txt": (f"Introduction\n\n{TEXT}", ""),
    "none.txt": (TEXT * 3, ""),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_title_of_a_text_is_its_first_heading_unless_that_is_a_chapter(tmp_path: Path, name: str) -> None:
    text, title = TEXTS[name]
    path = tmp_path / name
    path.write_text(text)
    assert title_of(path, kind_of(path)) == title


def test_the_samples_have_their_titles() -> None:
    found = {path.name: title_of(path, kind_of(path)) for path in SAMPLE.iterdir()}
    assert found["calculus.md"] == "Calculus II: lecture notes"
    assert found["how-to-study.md"] == "How to prepare for a midterm"


def test_a_pdf_without_a_title_has_none(tmp_path: Path) -> None:
    make_pdf(tmp_path / "book.pdf", [["Some words on a page of a book"] * 30] * 3)
    assert title_of(tmp_path / "book.pdf", "application/pdf") == ""


def entry(filename: str, title: str) -> FileEntry:
    return FileEntry(
        filename=filename, content_type="text/plain", size_bytes=1, storage_uri="", sha256="", title=title,
        upload_status="uploaded",
    )  # fmt: skip


def test_a_title_that_does_not_tell_a_book_from_others_is_not_used() -> None:
    one, other = entry("one.pdf", "Lecture notes"), entry("other.pdf", "Lecture Notes")
    assert names_of([one, entry("other.pdf", "Eels")], ["Food"]) == {"one.pdf": "Lecture notes", "other.pdf": "Eels"}
    assert names_of([one, other], ["Food"]) == {}
    assert names_of([entry("one.md", "Food")], ["Food", "Age"]) == {}  # the first of its chapters
