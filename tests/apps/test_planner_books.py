"""The chapters of books: with an outline, by the looks of their headings, by numbers; what is set aside; scans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pausepoint import Engine
from pausepoint.apps.pdf import Style
from pausepoint.apps.planner import planner, sessions
from pausepoint.apps.planner.chapters import LARGEST, Book, book_of
from pausepoint.apps.planner.headings import aside
from pausepoint.apps.planner.materials import PDF, TEXT, Bookmark, Page, outline
from pausepoint.apps.planner.models import Upload
from pausepoint.apps.planner.topics import findings
from tests.apps.pdfs import PICTURE, Bold, make_pdf
from tests.apps.planner_books import read
from tests.apps.planner_kit import go_on, held_by, run

LINE = "some plain words that say a little about the matter at hand and then stop"
PAGE = [LINE] * 30


def titles(book: Book) -> list[str]:
    return [topic.title for topic in book.topics]


def asides(book: Book) -> list[tuple[str, int | None, int | None, str]]:
    return [(each.title, each.first_page, each.last_page, each.why) for each in book.set_aside]


def of_pages(*texts: str, marks: Sequence[Bookmark] = ()) -> Book:
    return book_of({"f:0": findings([Page(text) for text in texts], TEXT, 0, marks)}, "f.pdf", paged=True)


# with an outline


def test_chapters_have_numbered_sections_with_pages_and_the_rest_is_set_aside() -> None:
    text = "\n".join([LINE] * 10)
    marks = [
        Bookmark("Table of Contents", 0, 1), Bookmark("Preface", 0, 2), Bookmark("Part I", 0, 3),
        Bookmark("1 Eels", 1, 3), Bookmark("Long eels", 2, 3), Bookmark("1.2 Short eels", 2, 5),
        Bookmark("2 Crabs", 1, 6), Bookmark("A First Crab", 1, 7), Bookmark("Inhaltsverzeichnis der Welt", 1, 8),
        Bookmark("GNU Free Documentation License", 0, 9), Bookmark("Concept Index", 0, 9),
    ]  # fmt: skip
    book = of_pages(
        "A title", "Contents", text, f"1 Eels\n1.1 Long eels\n{text}", f"{text}\n1.2 Short eels\n{text}",
        f"{text}\n1.2 Short eels\n{text}", f"7\n2 Crabs\n{text * 4}", text * 4, text * 4,
        "The licence\nConcept Index\nx", marks=marks,
    )  # fmt: skip
    assert titles(book) == ["Eels", "Crabs", "A First Crab", "Inhaltsverzeichnis der Welt"]
    eels, crabs, *_ = book.topics
    assert [(each.number, each.title, each.first_page, each.last_page) for each in eels.sections] == [
        ("1.1", "Long eels", 4, 6), ("1.2", "Short eels", 6, 6),
    ]  # fmt: skip
    assert (crabs.sections[0].number, crabs.sections[0].first_page) == ("2", 7)
    assert asides(book) == [
        ("Pages before the first chapter", 1, 1, "title, contents and the like"),
        ("Table of Contents", 2, 2, "contents"),
        ("Preface", 3, 3, "about the book, not of its matter"),
        ("GNU Free Documentation License", 10, 10, "licence or copyright"),
        ("Concept Index", 10, 10, "index"),
    ]


def test_a_huge_chapter_becomes_topics_of_its_sections_and_a_huge_section_of_its_pages() -> None:
    page = "\n".join([LINE] * 100)  # 1,500 words
    starts = {"1 All": 0, "1.1 Piece A": 0, "1.2 Piece B": 4, "1.3 Piece C": 8, "1.4 Piece D": 12, "2 Rest": 30}
    book = of_pages(*[page] * 31, marks=[Bookmark(title, 0, at) for title, at in starts.items()])
    assert titles(book) == [
        "All: Piece A", "All: Piece B – Piece C", *(f"All: Piece D ({part} of 3)" for part in (1, 2, 3)), "Rest",
    ]  # fmt: skip
    assert sum(topic.words for topic in book.topics) == 31 * 1_500
    assert all(topic.words < LARGEST for topic in book.topics)
    pages = [section.first_page for topic in book.topics for section in topic.sections]
    assert pages == sorted(pages, key=lambda page: page or 0)


@pytest.mark.parametrize("is_numbered", [True, False])
def test_parts_as_latex_writes_them_are_parts_and_the_index_in_one_is_set_aside(is_numbered: bool) -> None:
    """With numbers, the outline has `I Foundations` and `1 Eels`. Without, only the pages have them."""
    text = "\n".join([LINE] * 40)
    names = ["I Foundations", "1 Eels", "2 Crabs", "Subject Index", "II Practice", "3 Kelp", "4 Fish"]
    marks = [
        Bookmark(name if is_numbered else name.partition(" ")[2] if name != "Subject Index" else name,
                 int(name[0] != "I"), page) for page, name in enumerate(names)
    ]  # fmt: skip
    book = of_pages(
        "Part I\nFoundations", *(f"{name}\n{text}" for name in names[1:4]), "Part II\n\nPractice",
        *(f"{name}\n{text}" for name in names[5:]), marks=marks,
    )  # fmt: skip
    assert titles(book) == ["Eels", "Crabs", "Kelp", "Fish"]
    assert asides(book) == [("Subject Index", 4, 4, "index")]


def test_chapters_with_numbered_sections_are_no_parts() -> None:
    text = "\n".join([LINE] * 40)
    marks = [Bookmark(name, int(name[0].isdigit()), page)
             for page, name in enumerate(["Eels", "1 Long", "2 Short", "Crabs", "1 Red", "2 Blue"])]  # fmt: skip
    assert titles(of_pages(*[text] * 6, marks=marks)) == ["Eels", "Crabs"]


def test_chapters_that_an_outline_has_below_the_contents_are_studied() -> None:
    """Their contents stand on the same page. The lines there are not where a chapter starts."""
    text = "\n".join([LINE] * 10)
    entries = "\n".join(f"{name} ........................ {page}" for name, page in (("1. Eels", 1), ("2. Crabs", 2)))
    marks = [Bookmark("Sommario", 0, 0), Bookmark("1. Eels", 1, 0), Bookmark("2. Crabs", 1, 1)]
    book = of_pages(f"On the sea\nSommario\n{entries}\n1. Eels\n{text}", f"2. Crabs\n{text}", marks=marks)
    assert [(topic.title, topic.words) for topic in book.topics] == [("Eels", 151), ("Crabs", 151)]


def test_a_chapter_that_is_most_of_the_book_is_divided_into_its_sections() -> None:
    page = "\n".join([LINE] * 100)
    starts = {"The Sea": (0, 0), "Eels": (1, 0), "Crabs": (1, 3), "Kelp": (1, 6), "Appendixes": (0, 18),
              "Nets": (1, 18), "Boats": (1, 19)}  # fmt: skip
    marks = [Bookmark(title, level, at) for title, (level, at) in starts.items()]
    assert titles(of_pages(*[page] * 20, marks=marks)) == [
        "Eels", "Crabs", "Kelp (1 of 2)", "Kelp (2 of 2)", "Nets", "Boats",
    ]  # fmt: skip


# without an outline


def chaptered(path: Path) -> Path:
    """A book whose headings are told by their looks alone."""
    contents: list[str | Bold] = [Bold("Contents", 16), *(f"{n} Chapter {n} . . . . . . . . {n}" for n in range(1, 8))]
    pages: list[list[str | Bold]] = [[Bold("The Sea", 30), Bold("Ann Author", 16)], contents]
    for number, name in enumerate(("Eels", "Crabs", "Kelp"), 1):
        pages.append([Bold(f"Kapitel {number}", 20), Bold(name, 20), *PAGE, Bold("Remember this.", 11)])
        pages.append(["Of the sea 7", Bold(f"{number}.1 More on {name}", 14), "1 take the fish", "2 clean it", *PAGE])
        pages.append(["Of the sea 8", *PAGE, "3 salt it"])
    pages.append([Bold("Literaturverzeichnis", 20), *PAGE])
    return make_pdf(path, pages)


def test_headings_are_found_by_size_and_weight(tmp_path: Path) -> None:
    path = chaptered(tmp_path / "a.pdf")
    assert outline(str(path), "application/pdf") == []
    book = read(path, [])
    assert titles(book) == ["Eels", "Crabs", "Kelp"]
    assert {topic.basis for topic in book.topics} == {"heading"}
    assert [(each.number, each.title, each.first_page, each.last_page) for each in book.topics[1].sections] == [
        ("2", "Crabs", 6, 6), ("2.1", "More on Crabs", 7, 8),
    ]  # fmt: skip
    assert asides(book) == [
        ("Contents", 2, 2, "contents"),
        ("Pages before the first chapter", 1, 1, "title, contents and the like"),
        ("Literaturverzeichnis", 12, 12, "list of references"),
    ]


def test_sentences_and_list_items_are_no_headings() -> None:
    steps = "".join(f"{n} Take the fish\nquickly\n" for n in range(1, 5))
    text = (
        f"1 Eels\n{LINE}\n{LINE}\n{steps}{LINE}\n2 Crabs\n{LINE}\nChapter 3 shows how to eat\n{LINE}\n3 Kelp\n{LINE}\n"
    )
    assert titles(of_pages(text)) == ["Eels", "Crabs", "Kelp"]
    assert [topic.basis for topic in of_pages("\n".join(PAGE)).topics] == ["terms"]


LARGE, HEAD, SECTION = Style(20, True), Style(17, True), Style(12, True)
SIGN, BODY = Style(14, False), Style(10, False)


def in_styles(*pages: Sequence[tuple[str, Style]]) -> Book:
    found = [Page("\n".join(line for line, _ in page), tuple(style for _, style in page)) for page in pages]
    return book_of({"f:0": findings(found, PDF, 0, [])}, "f.pdf", paged=True)


def test_a_book_that_numbers_its_sections_has_no_others() -> None:
    """Bold words at the start of a paragraph, symbols and drawings stand out, too."""
    text = [(LINE, BODY)] * 8
    book = in_styles(
        [("1. Eels", HEAD), *text, ("1.1. Long eels", SECTION), *text,
         ("Warning. The letter I is reserved for eels that are imaginary", SECTION), *text,
         ("Z)/Z at every real place", SECTION), *text, ("1.2. Short eels", SECTION), *text],
        [("2. Crabs", HEAD), *text, ("hhn Doppelter Strich", SIGN), *text, ("1 the first of the crabs", SECTION), *text,
         ("2.1. Red crabs", SECTION), *text, ("Danksagung", SECTION), *text],
        [("Index", HEAD), ("crab, 2", BODY)],
    )  # fmt: skip
    assert [(topic.title, [each.title for each in topic.sections]) for topic in book.topics] == [
        ("Eels", ["Eels", "Long eels", "Short eels"]), ("Crabs", ["Crabs", "Red crabs"]),
    ]  # fmt: skip
    assert [each[0] for each in asides(book)] == ["Danksagung", "Index"]


def test_sections_without_numbers_have_text_below_them() -> None:
    text = [(LINE, BODY)] * 8
    drawing = [each for number in range(6) for each in ((f"A name {number}", SIGN), ("a part", BODY))]
    book = in_styles(
        [("1. Eels", HEAD), *text, ("Long eels", SECTION), *text, ("tts", SECTION), *text, *drawing],
        [("2. Crabs", HEAD), *text, ("Red crabs", SECTION), *text],
        text,
    )
    assert [[each.title for each in topic.sections] for topic in book.topics] == [
        ["Eels", "Long eels"], ["Crabs", "Red crabs"],
    ]  # fmt: skip


def test_a_title_of_several_lines_follows_the_number_of_its_chapter() -> None:
    """The number may be set smaller than the title."""
    text = [(LINE, BODY)] * 8
    book = in_styles(
        *([(f"Chapter {number}", HEAD), ("On the long and the short", LARGE), (name, LARGE), *text]
          for number, name in enumerate(("eels", "crabs", "fish"), 1)),
    )  # fmt: skip
    assert titles(book) == [f"On the long and the short {name}" for name in ("eels", "crabs", "fish")]


def test_a_list_in_the_style_of_chapters_is_none_of_them() -> None:
    text = [(LINE, BODY)] * 8
    items = [(f"{number}. The {name} net", HEAD) for number, name in enumerate(("red", "blue", "green"), 1)]
    book = in_styles([("Eels", LARGE), *text], [*items, *text], [("Crabs", LARGE), *text], [("Fish", LARGE), *text])
    assert titles(book) == ["Eels", "Crabs", "Fish"]


def test_a_chapter_below_numbered_lines_of_code_is_no_item_of_a_list() -> None:
    text = [(LINE, BODY)] * 8
    code = [(f"{number} Let {name}", Style(9)) for number, name in ((194, "go"), (195, "stop"), (196, "wait"))]
    book = in_styles([("1 Eels", HEAD), *text, *code, ("2 Crabs", HEAD), *text], [("3 Fish", HEAD), *text])
    assert titles(book) == ["Eels", "Crabs", "Fish"]


def test_the_author_is_no_chapter_and_an_introduction_below_the_title_is_one() -> None:
    text = [(LINE, BODY)] * 8
    book = in_styles(
        [("On the Sea", LARGE), ("Ann Author", SECTION), *text], [], [("Eels", HEAD), *text], [("Crabs", HEAD), *text],
    )  # fmt: skip
    assert titles(book) == ["Eels", "Crabs"]
    book = in_styles(
        [("On the Sea", HEAD), ("Introduction", HEAD), *text], [("1 Eels", HEAD), *text], [("2 Crabs", HEAD), *text],
    )  # fmt: skip
    assert titles(book) == ["Introduction", "Eels", "Crabs"]


CONTENTS = ["About eels", "Nets", "1.1. Small nets", "1.2. Large nets", "Outlook"]


@pytest.mark.parametrize("listed", [CONTENTS, [*CONTENTS, "3 Boats"]])
def test_chapters_are_those_that_the_contents_list_if_all_of_them_are_there(listed: list[str]) -> None:
    """The first of them is on the page of the contents. What looks like chapters below them is none."""
    text = [(LINE, BODY)] * 8
    entries = [(f"{title} {'.' * 40} {number}", BODY) for number, title in enumerate(listed, 1)]
    items = [(f"{number}. The {name} net", HEAD) for number, name in enumerate(("red", "blue", "green"), 1)]
    first, *others = ([(title, HEAD), *text] for title in CONTENTS)
    others[2] += [line for item in items for line in (item, *text)]
    appendix = [("Appendix A. Knots", HEAD), *text]
    book = in_styles([("Contents", SECTION), *entries, ("Appendix A. Knots A-1", BODY), *first], *others, appendix)
    if listed == CONTENTS:
        assert titles(book) == ["About eels", "Nets", "Small nets", "Large nets", "Outlook", "Knots"]
        assert [section.title for section in book.topics[3].sections] == [
            "Large nets", "The red net", "The blue net", "The green net",
        ]  # fmt: skip
    else:
        assert "About eels" not in titles(book)


def test_a_tree_of_dots_is_no_contents() -> None:
    text = [(LINE, BODY)] * 8
    tree = [(f"........| the {name} menu", BODY) for name in ("first", "second", "third", "fourth")]
    book = in_styles([("1 Eels", HEAD), *text], tree, [("2 Crabs", HEAD), *text])
    assert titles(book) == ["Eels", "Crabs"]


@pytest.mark.parametrize(
    "title",
    ["Danksagung", "Acknowledgments and credits", "Version history", "Changelog", "Versionsgeschichte", "謝辞", "致 谢",
     "修订记录", "変更履歴", "Letzte Änderungen", "Changes since version 2", "Literature used"],
)  # fmt: skip
def test_thanks_and_the_history_of_a_book_are_set_aside(title: str) -> None:
    assert aside(title, 0.9)


@pytest.mark.parametrize(
    ("language", "listed"),
    [
        ("ko", "머리말|감사의 글|목차|그림 차례|찾아보기|색인|참고 문헌|참고문헌"
               "|저작권|라이선스|개정 이력|용어집|저자 소개"),
        ("pl", "Przedmowa|Podziękowania|Spis treści|Spis rysunków|Indeks|Skorowidz|Bibliografia|Licencja|Historia zmian"
               "|Słowniczek pojęć|O autorze|Literatura"),
        ("pt", "Prefácio|Agradecimentos|Sumário|Índice remissivo|Lista de figuras|Lista de tabelas|Glossário|Licença"
               "|Referências bibliográficas|Histórico de revisões|Sobre o autor|Direitos autorais|Dedicatória"),
        ("es", "Prólogo|Tabla de contenidos|Índice de figuras|Lista de tablas|Índice de materias|Derechos de autor"
               "|Referencias bibliográficas|Historial de revisiones|Sobre el autor|Acerca de este libro"),
        ("it", "Prefazione|Indice|Elenco delle figure|Indice delle tabelle|Indice dei nomi|Riferimenti bibliografici"
               "|Diritti d’autore|Cronologia delle revisioni|Informazioni sull'autore|Dedica"),
    ],
)  # fmt: skip
def test_front_and_back_matter_is_set_aside_in_several_languages(language: str, listed: str) -> None:
    assert [title for title in listed.split("|") if not aside(title, 0.95)] == []


def test_a_chapter_about_changes_is_studied() -> None:
    assert aside("Changes", 0.3) is None
    assert aside("History", 0.9) is None
    assert aside("ChangeLog entries", 0.1) is None


@pytest.mark.parametrize("title", ["Algorithms", "Tables", "Listings"])
def test_a_chapter_about_what_others_have_lists_of_is_studied(title: str) -> None:
    assert (aside(title, 0.02), aside(title, 0.5)) == ("contents", None)
    assert aside(f"List of {title.lower()}", 0.5) == "contents"


def test_a_chapter_about_making_indexes_is_studied() -> None:
    assert (aside("Creating indexes", 0.9), aside("Indexes", 0.9)) == (None, "index")


@pytest.mark.parametrize(
    ("heads", "found"),
    [
        (("第1章 鰻の話", "第2章 蟹の話"), ["鰻の話", "蟹の話"]),
        (("第一章 绪论与背景", "第二章 螃蟹", "第三章 索引"), ["绪论与背景", "螃蟹"]),
        (("Kapitel 1: Aale", "Kapitel 2: Krebse", "Kapitel 3: Literaturverzeichnis"), ["Aale", "Krebse"]),
        (("Chapitre 1. Anguilles", "Chapitre 2. Crabes"), ["Anguilles", "Crabes"]),
        (("Глава 1. Угри", "Глава 2. Крабы"), ["Угри", "Крабы"]),
    ],
)
def test_chapters_are_numbered_in_several_languages(heads: tuple[str, ...], found: list[str]) -> None:
    text = "".join(f"{head}\n{LINE}\n{LINE}\n" for head in heads)
    assert titles(of_pages(text)) == found


# scans


def test_a_scan_is_never_complete_and_says_what_to_do(tmp_path: Path) -> None:
    scan = make_pdf(tmp_path / "scan.pdf", [PICTURE] * 4)
    with Engine(tmp_path / "p.db", workflows=[planner]) as engine:
        document = run(engine, uploads=[Upload(path=scan, is_shared=True)])
        ((file_id, progress),) = document.ingestion_state.files.items()
        assert (document.status, progress.status) == ("ingesting", "failed")
        assert held_by(engine).endswith(
            "(scan.pdf) is failed, 1 of 1 chunks were read: no text on pages 1-4; run OCR first, for example with"
            f" ocrmypdf, and add the result; or accept the file with `partial {file_id} --warning TEXT`"
        )
        sessions.mark_partial(engine, "s1", "scan.pdf", "the OCR copy comes later")
        assert go_on(engine).status == "completed"


def test_a_book_with_scanned_pages_is_partial_and_lists_them(tmp_path: Path) -> None:
    chapters: list[list[str | Bold]] = [
        [Bold(f"Chapter {n}: On {name}", 20), *PAGE] for n, name in ((1, "eels"), (2, "crabs"), (3, "kelp"))
    ]
    path = make_pdf(tmp_path / "mixed.pdf", [*chapters, *[PICTURE] * 3, [], PICTURE])
    with Engine(tmp_path / "p.db", workflows=[planner]) as engine:
        state = run(engine, uploads=[Upload(path=path, course_ids=["hist"])]).ingestion_state
    (progress,) = state.files.values()
    assert progress.status == "partial"
    assert (progress.last_error or "").startswith("no text on pages 4-6, 8; run OCR first")
    history = [each for each in state.course_topic_evidence if each.course_id == "hist"]
    assert [each.topic for each in history] == ["On eels", "On crabs", "On kelp"]
    assert [each.measure.missing for each in history] == [0.5] * 3
    assert [(each.first_page, each.last_page) for each in state.set_aside] == [(4, 6), (8, 8)]


def test_a_cover_alone_is_no_scan(tmp_path: Path) -> None:
    book = read(make_pdf(tmp_path / "a.pdf", [PICTURE, [Bold("1 Eels", 20), *PAGE], [Bold("2 Crabs", 20), *PAGE]]), [])
    assert (titles(book), book.unread) == (["Eels", "Crabs"], None)
    assert asides(book) == [("Pages without text", 1, 1, "a picture without text")]
