"""What the memo reads, and what it can check: documents as passages, facts of a sentence, outlines."""

from __future__ import annotations

from pathlib import Path

import pytest

from pausepoint.apps.input import BadInput
from pausepoint.apps.memo import citations as citing
from pausepoint.apps.memo import deck, documents, research
from pausepoint.apps.memo import outline as outlines
from pausepoint.apps.memo.facts import Known, facts
from pausepoint.apps.memo.models import InvestmentType, Research, Section, SectionResearch, Source
from pausepoint.apps.memo.prose import bare, sentences
from pausepoint.apps.memo.settings import SAMPLE
from tests.apps.pdfs import make_pdf


def read(path: Path, text: str) -> Source:
    path.write_text(text, "utf-8")
    return documents.read(path)


def texts(source: Source) -> list[tuple[str, str]]:
    return [(passage.heading, passage.text) for passage in source.passages]


# documents


def test_markdown_becomes_passages_with_headings_links_and_whole_tables(tmp_path: Path) -> None:
    source = read(tmp_path / "Annual Report.md", """# Report

First paragraph
with two lines and [a Name](https://a.example/x_(y)).

## Numbers
- one item
- another https://b.example.

| a | b |
|---|---|
| 1 | 2 |
""")  # fmt: skip
    assert (source.key, source.title, source.where) == ("annual-report", "Report", "Annual Report.md")
    assert texts(source) == [
        ("Report", "First paragraph with two lines and a Name."), ("Numbers", "one item"),
        ("Numbers", "another https://b.example."), ("Numbers", "| a | b |\n|---|---|\n| 1 | 2 |"),
    ]  # fmt: skip
    assert [passage.key for passage in source.passages] == [f"annual-report-{number}" for number in (1, 2, 3, 4)]
    assert [passage.table for passage in source.passages] == [False, False, False, True]
    assert [(link.text, link.url) for link in source.links] == [
        ("a Name", "https://a.example/x_(y)"), ("", "https://b.example")
    ]  # fmt: skip


def test_html_is_read_without_scripts_and_menus_and_says_where_it_is_from(tmp_path: Path) -> None:
    source = read(tmp_path / "page.html", """<html><head><title>The page</title>
<link rel="canonical" href="https://news.example/1"><style>p {}</style></head><body>
<nav>Menu</nav><h2>News</h2><p>Some <b>bold</b> news of <a href="https://acme.example">Acme</a>.</p>
<script>alert("x")</script><ul><li>First</li><li>Second &amp; last</li></ul>
<table><tr><th>Year</th><th>Sales</th></tr><tr><td>2029</td><td>4</td></tr></table>
<p>Unclosed</body></html>""")  # fmt: skip
    assert (source.title, source.where) == ("The page", "https://news.example/1")
    assert texts(source) == [
        ("News", "Some bold news of Acme."), ("News", "First"), ("News", "Second & last"),
        ("News", "| Year | Sales |\n|---|---|\n| 2029 | 4 |"), ("News", "Unclosed"),
    ]  # fmt: skip
    assert [(link.text, link.url) for link in source.links] == [("Acme", "https://acme.example")]


def test_a_text_has_its_first_line_as_title_and_a_pdf_its_pages(tmp_path: Path) -> None:
    source = read(tmp_path / "a.txt", "A title\n\nSome text\nthat goes on.\n\nMore.\n")
    assert (source.title, texts(source)) == ("A title", [("A title", "Some text that goes on."), ("A title", "More.")])
    make_pdf(tmp_path / "b.pdf", [["Head", "A sentence that", "goes on."], ["Second", "More on page two."]])
    source = documents.read(tmp_path / "b.pdf")
    assert [(passage.page, passage.text) for passage in source.passages] == [
        (1, "Head"), (1, "A sentence that goes on."), (2, "Second"), (2, "More on page two.")
    ]  # fmt: skip


def test_what_a_document_is_called_cannot_break_the_list_of_citations(tmp_path: Path) -> None:
    """A definition is one line that ends with its key, whatever the file, its title and its address are."""
    odd = read(tmp_path / "a\nb “(x)”.txt", f"{'Title ' * 15}[^9]\n\nAcme raised $3 million in revenue.")
    page = read(
        tmp_path / "c.html",
        "<title>[@x-1] [^1]: t</title><link rel=canonical href='javascript:x'><p>Acme raised $4 million in revenue.",
    )
    money = Section(name="money", title="Money", about=["revenue"])
    text = "## Money\n\n" + " ".join(f"Acme raised it [@{each.passages[0].key}]." for each in (odd, page)) + "\n"
    memo = citing.assembled("# Acme\n", {"money": text}, [money], [odd, page])
    assert citing.definitions(memo) == {1: odd.passages[0].key, 2: page.passages[0].key}
    assert page.where == "c.html"
    assert len(odd.title) <= documents.LONGEST_TITLE + 1


def test_html_shows_tags_that_it_writes_about_and_holds_any_address(tmp_path: Path) -> None:
    source = read(
        tmp_path / "a.html",
        "<p>Use &lt;script&gt;x&lt;/script&gt;.</p><p>See <a href='https://a.example/b (c)'>Acme</a>,"
        " <a href=' javascript:x'>Bad</a>.</p>",
    )
    assert [text for _, text in texts(source)] == ["Use &lt;script>x&lt;/script>.", "See Acme, Bad."]
    assert [(link.text, link.url) for link in source.links] == [("Acme", "https://a.example/b%20%28c%29")]


def test_no_two_passages_share_a_key_and_no_document_is_dropped(tmp_path: Path) -> None:
    canonical = "<link rel='canonical' href='https://a.example'><p>Page {}.</p>"
    names = {"a.md": "One.", "x/a.md": "Two.", "a-v2.md": "Three.", "报告.md": "Four.", "年.md": "Five.",
             "p.html": canonical.format(1), "q.html": canonical.format(2)}  # fmt: skip
    (tmp_path / "x").mkdir()
    sources = [read(tmp_path / name, text) for name, text in names.items()]
    found = research.by_key(research.every(Research(sources=sources), SectionResearch()))
    assert sorted(passage.text for _, passage in found.values()) == sorted(
        ["One.", "Two.", "Three.", "Four.", "Five.", "Page 1.", "Page 2."]
    )


def test_what_is_too_much_beside_the_others_is_not_read_and_named(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("Acme grew.\n\n" * 100)
    assert research._read(tmp_path / "a.md", "a.md", 50_000)[1] == ""
    found, why = research._read(tmp_path / "a.md", "a.md", 40_000)
    assert found is None
    assert why.endswith("a.md: The documents together are too large. Provide only the part that the memo needs.")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.md", b"", "a.md: The file is empty"),
        ("a.md", b"caf\xe9", "a.md: Byte 3 is not UTF-8"),
        ("a.docx", b"x", "a.docx: Only PDF, Markdown, text and HTML files can be read"),
        ("a.pdf", b"x", "a.pdf: The PDF cannot be read"),
        ("a.html", b"<p>x<![odd bar", "a.html: The HTML cannot be read: "),
        ("a.html", b"<script>x</script>", "a.html: The file contains no text.$"),
    ],
)
def test_a_document_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=said):
        documents.read(tmp_path / name)
    with pytest.raises(BadInput, match=r"nowhere\.md: No such file"):
        documents.read(tmp_path / "nowhere.md")


def test_a_folder_is_read_with_what_is_below_it_but_not_what_is_hidden(tmp_path: Path) -> None:
    for name in ("b.md", "a.txt", "sub/c.html", ".hidden.md", ".git/d.md", "e.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert [str(path.relative_to(tmp_path)) for path in documents.listed(tmp_path)] == ["a.txt", "b.md", "sub/c.html"]


def test_pages_of_a_deck_count_with_or_without_text(tmp_path: Path) -> None:
    make_pdf(tmp_path / "deck.pdf", [["Acme", "Acme grew in 2029."], []])
    found = deck.analyze(tmp_path / "deck.pdf")
    assert (found.pages, [slide.page for slide in found.slides]) == (2, [1])


@pytest.mark.covers("S4.12")
def test_a_deck_is_read_slide_by_slide() -> None:
    found = deck.analyze(SAMPLE / "Fernstone" / "deck.pdf")
    assert (found.file, found.pages, len(found.slides)) == ("deck.pdf", 6, 6)
    assert (found.slides[3].title, found.slides[3].page) == ("Traction", 4)
    assert {"$4.2 million", "$7.5 million", "38,000"} <= {*found.figures}
    assert {"Ada Moss", "Bruno Slate"} <= {*found.names}
    assert found.dates == ["January 2030", "2029"]


# facts


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Sales were 4,200 in 2029.", {"number": ["4,200"], "date": ["2029"]}),
        ("On 14 January 2030 it raised EUR 3m.", {"date": ["14 January 2030"], "number": ["EUR 3m"]}),
        ("March 3, 2029; 2029-03-03; Q3 2029", {"date": ["March 3, 2029", "Q3 2029"]}),
        ("It has 12 % of 7.5 million.", {"number": ["12 %", "7.5 million"]}),
        ("The price is $2029 for 2,000 units.", {"number": ["$2029", "2,000"]}),
        ("In Porto the Bank of Spain met Ada Moss.", {"name": ["Porto", "Bank of Spain", "Ada Moss"]}),
        ("Growth is good. Nothing else matters.", {}),
        ("Version v2 of x3 and A4.", {}),
    ],
)
def test_numbers_dates_and_names_are_found(text: str, found: dict[str, list[str]]) -> None:
    kinds: dict[str, list[str]] = {}
    for fact in facts(text):
        kinds.setdefault(fact.kind, []).append(fact.text)
    assert kinds == found


@pytest.mark.parametrize(
    ("claim", "passage", "lacking"),
    [
        ("Sales of $4.2 million.", "Sales were $4,200,000.", []),
        ("Sales of $4.2 million.", "Sales were 4.2m.", []),
        ("Sales of $4.2 million.", "Sales were €4.2 million.", ["$4.2 million"]),
        ("Sales of $4.2 million.", "Sales were $4.3 million.", ["$4.2 million"]),
        ("A share of 12 %.", "A share of 12 percent.", []),
        ("A share of 12 %.", "There are 12 of them.", ["12 %"]),
        ("It has 12 people.", "A share of 12 percent.", ["12"]),
        ("Founded in 2029.", "Founded on 3 March 2029.", []),
        ("Founded in March 2029.", "Founded on 2029-03-03.", []),
        ("Founded in March 2029.", "Founded in 2029.", ["March 2029"]),
        ("Founded in March 2029.", "Founded in May 2029.", ["March 2029"]),
        ("It is led by Ada Moss.", "ADA MOSS leads it.", []),
        ("It is led by Ada Moss.", "Ada Mossberg leads it.", ["Ada Moss"]),
        ("It is led by Ada Moss's friend.", "A friend of Ada Moss.", []),
        ("Nothing to check here.", "", []),
    ],
)
def test_a_claim_is_compared_with_a_passage_fact_by_fact(claim: str, passage: str, lacking: list[str]) -> None:
    assert [fact.text for fact in Known(passage).lacks(claim)] == lacking


def test_sentences_end_where_they_end() -> None:
    text = 'He said "Yes." Then Acme Inc. rose 4.5 percent, e.g. in Porto. Was it so? (It was.) And on.'
    assert sentences(text) == [
        'He said "Yes."', "Then Acme Inc. rose 4.5 percent, e.g. in Porto.", "Was it so?", "(It was.)", "And on."
    ]  # fmt: skip
    assert bare("1. **Bold** and [link](https://x.example) [@a-1] [^2]. <!-- no -->") == "Bold and link."


# outlines


@pytest.mark.covers("S4.15")
@pytest.mark.parametrize("kind", ["direct", "fund"])
def test_an_outline_has_ten_sections_and_the_fourth_is_the_team(kind: InvestmentType) -> None:
    found = outlines.read(outlines.default(kind))
    assert len(found) == 10
    assert (found[3].name, outlines.team(found)) == ("04-team", "04-team")
    assert [section.name[:2] for section in found] == [f"{number:02}" for number in range(1, 11)]


def test_the_team_is_the_section_that_says_so_else_the_one_that_is_named_so() -> None:
    plain = [Section(name="a", title="A"), Section(name="our-team", title="B")]
    assert outlines.team(plain) == "our-team"
    assert outlines.team([*plain, Section(name="c", title="C", team=True)]) == "c"
    assert outlines.team(plain[:1]) is None


def test_items_and_notes_of_an_annual_report_are_headings_in_any_type(tmp_path: Path) -> None:
    """Filings put them into tables or plain lines. A line of the contents, with its page, is not a heading."""
    path = tmp_path / "filing.htm"
    path.write_text(
        "<p>ITEM 1. Business 4</p><p><b>(503) 671-6453</b></p><p>The cover of the filing.</p>"
        "<table><tr><td>ITEM 1.</td><td>BUSINESS</td></tr></table><p><b>Products</b></p><p>We sell panels.</p>"
        "<p>Item 8. Financial Statements</p><p>NOTE 2 — LEASES</p><p>We lease a plant.</p>"
        "<p>Item 1A of this report describes the risks.</p>"
        "<p><b>Item 9. Controls.</b></p><p>A person looks twice.</p>"
    )
    found = {each.text: (each.part, each.heading) for each in documents.read(path).passages}
    assert found["The cover of the filing."] == ("", "")
    assert found["We sell panels."] == ("ITEM 1. BUSINESS", "Products")
    assert found["We lease a plant."] == ("Item 8. Financial Statements", "NOTE 2 — LEASES")
    assert found["Item 1A of this report describes the risks."][1] == "NOTE 2 — LEASES"
    assert found["A person looks twice."] == ("Item 9. Controls", "Item 9. Controls")
