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
    separated = f"This page ends here.\n{'-' * 70}\n{LONG}\nand so on\n....\n\nA star\n{'*' * 60}\n{LONG}\n"
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
