"""Which lines of plain text, Markdown and reStructuredText are chapters."""

from __future__ import annotations

from pathlib import Path

import pytest

from pausepoint.apps.planner.chapters import Book
from tests.apps.planner_books import read

WORDS = "some plain words that say a little about the matter at hand and then stop\n"
LONG = WORDS * 3


def book_in(folder: Path, text: str, ending: str) -> Book:
    """Return what the planner makes of a file with a text."""
    path = folder / f"book{ending}"
    path.write_text(text, "utf-8")
    return read(path, [])


def topics(folder: Path, text: str, ending: str) -> list[str]:
    return [topic.title for topic in book_in(folder, text, ending).topics]


# reStructuredText

MARKUP = f""".. _eels:

============
 All of Eels
============

.. toctree::
   :maxdepth: 2

   long
   short

Long ``eels``
-------------
{LONG}
In rivers
~~~~~~~~~
{LONG}
::

    No title
    --------
    {WORDS}
:ref:`Short eels <short>` and `moray`_
--------------------------------------
{LONG}
.. code-block:: text

    Neither a title
    ===============
    {WORDS}
    In the *sea*
    ~~~~~~~~~~~~

=====  =====
Year   Catch
=====  =====
1990   12
=====  =====

A paragraph of two lines, which is
no title in markup
------------------

鰻の本
------
{LONG}
"""


def test_restructuredtext_has_its_titles_as_topics(tmp_path: Path) -> None:
    book = book_in(tmp_path, MARKUP, ".rst")
    assert [(topic.title, [section.title for section in topic.sections]) for topic in book.topics] == [
        ("Long eels", ["Long eels", "In rivers"]), ("Short eels and moray", ["Short eels and moray"]),
        ("鰻の本", ["鰻の本"]),
    ]  # fmt: skip


@pytest.mark.parametrize("styles", ["-=", "=-", "~+", "#^"])
def test_the_first_style_of_titles_is_above_the_second(tmp_path: Path, styles: str) -> None:
    upper, lower = (6 * style for style in styles)
    text = "".join(f"{name}\n{upper}\n{WORDS}\n{name} I\n{lower}\n{LONG}\n" for name in ("Eels", "Crabs"))
    assert topics(tmp_path, text, ".rst") == ["Eels", "Crabs"]


def test_a_line_above_a_title_makes_another_style(tmp_path: Path) -> None:
    text = f"====\nFish\n====\n\nEels\n====\n{LONG}\nCrabs\n=====\nKelp\n----\n{LONG}\n"
    book = book_in(tmp_path, text, ".rst")
    assert [(topic.title, [section.title for section in topic.sections]) for topic in book.topics] == [
        ("Eels", ["Eels"]), ("Crabs", ["Kelp"]),
    ]  # fmt: skip


@pytest.mark.parametrize("indent", [0, 13, 31, 58])
def test_titles_are_found_where_two_pages_or_windows_meet(
    tmp_path: Path, indent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pausepoint.apps.planner.materials.PAGE_BYTES", 200)
    names = [f"Eels of the {letter}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWX"]
    text = "x" * indent + "\n\n" + "".join(f"=============\n{name}\n=============\n\n{LONG}\n" for name in names)
    assert [title for title in topics(tmp_path, text, ".rst") if title.startswith("Eels")] == names


# plain text


def sections(folder: Path, text: str) -> dict[str, list[str]]:
    return {topic.title: [each.title for each in topic.sections] for topic in book_in(folder, text, ".txt").topics}


@pytest.mark.parametrize("styles", ["*=-", "=~.", "*-^", "=-~", "-=+", "~^*"])
def test_text_has_levels_in_the_order_of_its_underlines(tmp_path: Path, styles: str) -> None:
    def ruled(title: str, style: str) -> str:
        return f"\n{title}\n{style * len(title)}\n\n{LONG}"

    parts = [
        ruled(f"{number}. On {name}", styles[0])
        + ruled(f"{number}.1. Young {name}", styles[1]) + ruled(f"{number}.1.1. Newborn {name}", styles[2])
        + ruled(f"{number}.2. Old {name}", styles[1])
        for number, name in enumerate(("eels", "crabs", "kelp"), 1)
    ]  # fmt: skip
    assert sections(tmp_path, "".join(parts)) == {
        f"On {name}": [f"On {name}", f"Young {name}", f"Old {name}"] for name in ("eels", "crabs", "kelp")
    }


def test_a_title_with_lines_above_and_below_is_that_of_the_text(tmp_path: Path) -> None:
    chapters = "".join(f"\n{name}\n{'*' * (len(name) + 1)}\n\n{LONG}\n" for name in ("On eels", "鰻とかに", "On kelp"))
    assert list(sections(tmp_path, f"**********\nAll of sea\n**********\n\n{WORDS}{chapters}")) == [
        "On eels", "鰻とかに", "On kelp",
    ]  # fmt: skip


def test_a_line_of_another_length_below_a_line_of_text_is_no_title(tmp_path: Path) -> None:
    command = f"{'-' * 40}\n$ fish --eels\n{'-' * 40}\n{LONG}\n"
    separated = f"{command}This page ends here.\n{'-' * 70}\n{LONG}\nand so on\n....\n\nA star\n{'*' * 60}\n{LONG}\n"
    chapters = "".join(f"On {name}\n{'=' * 10}\n\n{LONG}\n{separated}\n" for name in ("eels", "crabs"))
    assert sections(tmp_path, chapters) == {"On eels": ["On eels"], "On crabs": ["On crabs"]}


def test_a_title_of_nothing_but_a_numbered_title_is_that_of_the_chapter(tmp_path: Path) -> None:
    chapters = "".join(
        f"{name.upper()}\n*****\n\n{number}. ON {name.upper()}\n-----------\n\n{LONG}\n{number}.1 YOUNG ONES\n"
        f"..............\n\n{LONG}\n"
        for number, name in enumerate(("eels", "crabs", "kelp"), 1)
    )
    assert sections(tmp_path, f"FISH\n====\n\nTHE SEA\n*******\n\n{chapters}") == {
        f"ON {name}": [f"ON {name}", "YOUNG ONES"] for name in ("EELS", "CRABS", "KELP")
    }


CHAPTERS = ["Chapter", "Kapitel", "Chapitre", "Глава", "Chương", "Bài", "Розділ", "Capítol", "Kapitola", "Bölüm", "Bab"]


@pytest.mark.parametrize("word", CHAPTERS)
def test_the_word_for_chapter_with_a_number_and_a_full_stop_names_a_chapter(tmp_path: Path, word: str) -> None:
    text = "".join(
        f"{word} {number}. On {name}\n\n{number}.1. Young {name}\n\n{LONG}\n{number}.2. Old {name}\n\n{LONG}\n"
        f"{word} 2, On crabs, says more.\n{LONG}\n"
        for number, name in enumerate(("eels", "crabs", "kelp"), 1)
    )
    assert sections(tmp_path, text) == {
        f"On {name}": [f"Young {name}", f"Old {name}"] for name in ("eels", "crabs", "kelp")
    }


CONTENTS = {
    "numbers": ("{number}. On {name}\n    {number}.1. Young {name}\n    {number}.2. Old {name}\n", ""),
    "names": ("{word} {number}. On {name}\n", ""),
    "page numbers": ("{word} {number}. On {name}    {number}7\n", ""),
    "in each chapter": ("", "{number}.1. Young {name}\n{number}.2. Old {name}\n{number}.3. Dead {name}\n\n"),
    "both": ("{number} On {name}\n", "{number}.1. Young {name}\n{number}.2. Old {name}\n{number}.3. Dead {name}\n\n"),
}


@pytest.mark.parametrize("word", ["Chapter", "Chương", ""])
@pytest.mark.parametrize("where", CONTENTS)
def test_the_chapters_of_a_text_are_not_the_lines_of_its_contents(tmp_path: Path, where: str, word: str) -> None:
    names = list(enumerate(("eels", "crabs", "kelp", "whales"), 1))
    at_the_beginning, in_a_chapter = CONTENTS[where]
    listed = "".join(at_the_beginning.format(word=word, number=number, name=name) for number, name in names)
    chapters = "".join(
        f"{word} {number}. On {name}\n\n{in_a_chapter.format(number=number, name=name)}{LONG * 20}\n"
        + "".join(f"{number}.{at} {age} {name}\n\n{LONG * 20}\n" for at, age in enumerate(("Young", "Old", "Dead"), 1))
        for number, name in names
    )
    book = book_in(
        tmp_path, f"The sea\n\nContents\n\n{listed}\nList of Tables\n\n3.1. Catch\n\n{LONG * 2}\n{chapters}", ".txt"
    )
    found = [topic for topic in book.topics if topic.basis == "heading"]
    assert [topic.title for topic in found] == [f"On {name}" for _, name in names]
    assert [[each.title.split()[0] for each in topic.sections] for topic in found] == [
        ["On", "Young", "Old", "Dead"]
    ] * 4
    assert all(topic.words < 4_000 for topic in found)


def test_a_chapter_of_several_topics_starts_at_its_title(tmp_path: Path) -> None:
    """Its own text may be too short for a section."""
    long = "".join(f"1.{number} Eels {number}\n\n{LONG * 150}\n" for number in range(1, 4))
    text = f"Chapter 1. On eels\n\nAn opening.\n\n{long}Chapter 2. On crabs\n\n{LONG}\n"
    book = book_in(tmp_path, text, ".txt")
    assert [topic.title for topic in book.topics] == [
        "On eels: Eels 1",
        "On eels: Eels 2",
        "On eels: Eels 3",
        "On crabs",
    ]
    assert book.topics[0].places[0] == ("file:0", 0)
    assert sum(topic.words for topic in book.topics) == 3 * 150 * 45 + 2 + 45


@pytest.mark.parametrize("rule", ["====", "****", "~~~~"])
def test_an_underlined_title_alone_does_not_hide_the_numbered_chapters(tmp_path: Path, rule: str) -> None:
    chapters = "".join(f"{number}. On {name}\n\n{LONG}\n" for number, name in enumerate(("eels", "crabs"), 1))
    assert sections(tmp_path, f"Fish\n{rule}\n\n{chapters}") == {"On eels": ["On eels"], "On crabs": ["On crabs"]}
    assert list(sections(tmp_path, f"Fish\n{rule}\n\n{LONG}\n1. On eels\n\n{LONG}")) == ["Fish"]


# Markdown


def headed(*heads: str) -> str:
    return "".join(f"{head}\n\n{WORDS}\n" for head in heads)


@pytest.mark.parametrize(
    ("heads", "chapters"),
    [
        (["# Fish", "## Eels", "### Young eels", "## Crabs", "# Outlook"], ["Eels", "Crabs", "Outlook"]),
        (["# Fish", "## Eels", "## Crabs", "## Kelp", "# Outlook", "# Where to go"],
         ["Eels", "Crabs", "Kelp", "Outlook", "Where to go"]),
        (["Fish\n====", "Eels\n----", "Crabs\n-----", "Outlook\n======="], ["Eels", "Crabs", "Outlook"]),
        (["# Eels", "## Young eels", "## Old eels", "# Crabs", "## Old crabs"], ["Eels", "Crabs"]),
        (["# 1. Eels", "## Young eels", "## Old eels", "# 2. Crabs"], ["Eels", "Crabs"]),
        (["# Introduction", "## Why eels", "## Why crabs", "# Eels"], ["Introduction", "Eels"]),
        (["# Eels", "## Young eels", "# Crabs", "# Kelp"], ["Eels", "Crabs", "Kelp"]),
    ],
)  # fmt: skip
def test_a_second_main_heading_does_not_make_a_chapter_of_the_title(
    tmp_path: Path, heads: list[str], chapters: list[str]
) -> None:
    assert topics(tmp_path, headed(*heads), ".md") == chapters


def test_a_long_second_chapter_without_sections_is_a_chapter_beside_the_first(tmp_path: Path) -> None:
    text = headed("# Eels", "## Young eels", "## Old eels", "# Crabs")
    assert topics(tmp_path, text + LONG * 3, ".md") == ["Eels", "Crabs"]
