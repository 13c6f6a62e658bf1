"""What is read from PDF, text and Markdown: pages, windows, topics, and how long they take."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pausepoint import Engine, Retry
from pausepoint.apps.input import BadInput
from pausepoint.apps.model import ModelUnavailable
from pausepoint.apps.pdf import Style
from pausepoint.apps.planner import SessionDocument, excerpts, planner, reader, sessions, study
from pausepoint.apps.planner.chapters import book_of, merged
from pausepoint.apps.planner.estimation import confidence, estimate, minutes
from pausepoint.apps.planner.materials import (
    LONGEST_LINE,
    MARKDOWN,
    PAGE_BYTES,
    PDF,
    TEXT,
    Bookmark,
    Page,
    checked,
    outline,
    page_count,
)
from pausepoint.apps.planner.materials import window as window_of
from pausepoint.apps.planner.models import Basis, EstimationPayload, Evidence, Measure, Upload
from pausepoint.apps.planner.sample import SAMPLE, SAMPLE_INPUTS, sample_uploads
from pausepoint.apps.planner.topics import Findings, findings
from tests.apps.pdfs import make_pdf
from tests.apps.planner_books import read
from tests.support.modelserver import ModelServer, Refuses, Says, Status

WORDS = "some plain words that say a little about the matter at hand and then stop "


def topics(text: str, content_type: str = MARKDOWN) -> dict[str, int]:
    """The topics of a text of one window, with their words."""
    book = book_of({"f:0": findings([Page(text)], content_type, 0, [])}, "f", paged=False)
    return {topic.title: topic.words for topic in book.topics}


# what can be read


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("gone.pdf", None, "No such file"),
        ("broken.pdf", b"%PDF-1.4\nnothing of the kind", "The PDF cannot be read. It is damaged"),
        ("cut.pdf", "cut", "The PDF cannot be read. It is damaged"),
        ("locked.pdf", "locked", "The PDF is encrypted. Save a copy without a password."),
        ("none.pdf", "none", "or has no pages"),
        ("empty.md", b"", "The file is empty"),
        ("program.txt", b"\x7fELF\0\0", "This is not a text file"),
        ("essay.odt", b"PK", "Only PDF, text, Markdown, reStructuredText, DOCX, PPTX, EPUB and HTML files can be read"),
        ("folder.md", "folder", "Is a directory"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path, name: str, content: object, said: str) -> None:
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "cut":
        whole = make_pdf(tmp_path / "whole.pdf", [["text"]] * 5).read_bytes()
        path.write_bytes(whole[: len(whole) // 3])
    elif content == "locked":
        make_pdf(path, [["text"]], encrypted=True)
    elif content == "none":
        make_pdf(path, [])
    elif content == "folder":
        path.mkdir()
    with pytest.raises(BadInput) as refused:
        checked(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert said in str(refused.value)


def test_without_the_library_a_pdf_is_refused_and_the_sample_goes_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make_pdf(tmp_path / "whole.pdf", [["text"]])
    assert checked(whole) == PDF
    assert SAMPLE / "kelp.pdf" in [upload.path for upload in sample_uploads()]
    for module in ("pdf", "planner.sample"):
        monkeypatch.setattr(f"pausepoint.apps.{module}.reads_pdf", lambda: False)
    with pytest.raises(BadInput, match=r"Reading PDF files needs pypdfium2\. Install it: pip install"):
        checked(whole)
    assert SAMPLE / "kelp.pdf" not in [upload.path for upload in sample_uploads()]


# pages and windows


@pytest.mark.covers("S3.24")
@pytest.mark.parametrize("pages", [1, 19, 20, 21, 40, 41])
def test_there_are_as_many_chunks_as_twenty_pages_need(tmp_path: Path, pages: int) -> None:
    path = make_pdf(tmp_path / "book.pdf", [[f"Page {number} has some words on it"] for number in range(pages)])
    with Engine(tmp_path / "p.db", workflows=[planner]) as engine:
        state = sessions.starting(SAMPLE_INPUTS, [Upload(path=path, is_shared=True)])
        engine.start(planner, state, session_id="s1").outcome()
        (progress,) = sessions.document(engine, "s1").ingestion_state.files.values()
    assert progress.chunking.model_dump() == {
        "mode": "page_window", "max_pages_per_chunk": 20, "total_chunks": math.ceil(pages / 20),
    }  # fmt: skip
    assert (progress.processed_chunks, progress.status) == (math.ceil(pages / 20), "complete")


def test_a_pdf_is_read_page_by_page_with_its_outline(tmp_path: Path) -> None:
    path = make_pdf(
        tmp_path / "a.pdf", [["One", "line two"], [], ["Three (with) \\ signs"]], [("Start", 0), ("End", 2)]
    )
    assert page_count(str(path), PDF) == 3
    assert [page.text for page in window_of(str(path), PDF, 0, 20)] == ["One\nline two", "", "Three (with) \\ signs"]
    assert window_of(str(path), PDF, 2, 20) == [Page("Three (with) \\ signs")]
    assert [(mark.title, mark.level, mark.page) for mark in outline(str(path), PDF)] == [("Start", 0, 0), ("End", 0, 2)]


def test_ligatures_of_tex_are_letters(tmp_path: Path) -> None:
    """A font without names of its letters shows their codes: 12 for fi, 13 for fl, which is also the end of a line."""
    page = b"BT 14 TL /F2 20 Tf 50 800 Td (1 De\\014nitions re\\015ect) Tj T* /F1 11 Tf (A \\034eld) Tj T* ET"
    path = make_pdf(tmp_path / "a.pdf", [page])
    for styled in (False, True):
        (found,) = window_of(str(path), PDF, 0, 1, styled=styled)
        assert found.text.split("\n") == ["1 Definitions reflect", "A field"]


LINES = st.lists(
    st.text(st.characters(exclude_characters="\0\n\r", exclude_categories=["Cs"]), max_size=300), max_size=60
)


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=LINES, times=st.integers(1, 12), size=st.sampled_from([1, 3, 20]))
def test_the_windows_of_a_text_are_the_text(tmp_path: Path, lines: list[str], times: int, size: int) -> None:
    """Nothing is lost or doubled where two windows meet, whatever their size. Small pages have many such places."""
    text = "\n".join(lines * times)
    path = tmp_path / "a.txt"
    path.write_text(text, "utf-8", newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pausepoint.apps.planner.materials.PAGE_BYTES", 40)
        pages = page_count(str(path), TEXT)
        read = [page.text for first in range(0, pages, size) for page in window_of(str(path), TEXT, first, size)]
    assert "".join(read) == text.removeprefix("\ufeff")
    filled = [page for page in read if page]
    assert all(page.endswith("\n") for page in filled[:-1])


def test_lines_without_an_end_are_cut_between_two_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("日" * LONGEST_LINE, "utf-8")
    pages = page_count(str(path), TEXT)
    read = [page.text for number in range(pages) for page in window_of(str(path), TEXT, number, 1)]
    assert "".join(read) == "日" * LONGEST_LINE
    assert max(len(page.encode()) for page in read) <= PAGE_BYTES + LONGEST_LINE


# topics


def test_markdown_has_its_headings_as_topics_without_numbers_titles_and_asides() -> None:
    text = f"""# The whole course
{WORDS}
## 1. First *things*
{WORDS * 3}
### A detail
{WORDS}
## Second [things](http://example.com)
{WORDS}
```
# not a heading
```
## Third things
{WORDS}
## References
{WORDS}
## Empty
"""
    assert list(topics(text)) == ["First things", "Second things", "Third things"]
    assert topics(text)["First things"] == 4 * 15  # with its detail


def test_titles_keep_their_signs() -> None:
    names = ["The `read_file` call", "C*-algebras and *-rings", "Using `ls' in C#", "__init__ and _main_"]
    text = "".join(f"{name}\n=====\n{WORDS}\n\n" for name in names)
    assert list(topics(text, TEXT)) == names
    marked = "".join(f"## {name}\n{WORDS}\n" for name in [*names[:3], "**All** of `__init__` and \\_main\\_ {: #all }"])
    assert list(topics(marked)) == [
        "The read_file call", "C*-algebras and *-rings", "Using `ls' in C#", "All of __init__ and _main_",
    ]  # fmt: skip


def test_text_has_chapters_and_underlined_lines_as_topics() -> None:
    chapters = "".join(
        f"Chapter {number}: On {name}\n\n{WORDS}\n\n" for number, name in enumerate(("eels", "crabs", "kelp"), 1)
    )
    assert list(topics(chapters, TEXT)) == ["On eels", "On crabs", "On kelp"]
    lined = "".join(f"On {name}\n=====\n{WORDS}\n" for name in ("eels", "crabs", "kelp"))
    assert list(topics(lined, TEXT)) == ["On eels", "On crabs", "On kelp"]
    numbered = f"1 Eels\n{WORDS}\n1.1 Long eels\n{WORDS}\n2 Crabs\n{WORDS}\n3 Kelp\n{WORDS}\n1. Draw a crab.\n"
    assert list(topics(numbered, TEXT)) == ["Eels", "Crabs", "Kelp"]


@pytest.mark.parametrize("content_type", [TEXT, MARKDOWN])
def test_a_table_or_a_comment_does_not_hide_the_chapters(content_type: str) -> None:
    table = "Year   Catch\n------------\n1990   12\n1991   14\n"
    code = "    # a comment\n    x = 1\n\n" if content_type == MARKDOWN else ""
    chapters = "".join(f"Chapter {number}: On {name}\n\n{WORDS * 3}\n\n{table}\n{code}Rules\n-----\n{WORDS}\n\n"
                       for number, name in enumerate(("eels", "crabs", "kelp"), 1))  # fmt: skip
    book = book_of({"f:0": findings([Page(chapters)], content_type, 0, [])}, "f", paged=False)
    assert [(topic.title, [each.title for each in topic.sections]) for topic in book.topics] == [
        (f"On {name}", [f"On {name}", "Rules"]) for name in ("eels", "crabs", "kelp")
    ]  # fmt: skip


def test_a_list_of_the_chapters_does_not_hide_the_underlined_ones() -> None:
    listed = "".join(f"Chapter {number}: On {name}\n" for number, name in enumerate(("eels", "crabs"), 1))
    assert list(topics(listed + f"On eels\n=====\n{WORDS}\n\nOn crabs\n=====\n{WORDS}\n", TEXT)) == [
        "On eels", "On crabs",
    ]  # fmt: skip


def test_code_that_goes_on_over_pages_and_windows_has_no_headings(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    code = "# a comment that is longer than a few words\n" * (21 * PAGE_BYTES // 40)
    inner = "````\n```\n# no heading\n```\n````\n"
    path.write_text(f"# Eels\n{WORDS}\n~~~\n{code}~~~\n{inner}# Crabs\n{WORDS}\n", "utf-8")
    assert [topic.title for topic in read(path, []).topics] == ["Eels", "Crabs"]


def test_without_headings_the_words_that_stand_out_name_the_topic() -> None:
    text = "Whales sing. Whales dive, and whales sleep. Krill feeds whales; krill drifts in currents. " * 3
    (title,) = topics(text, TEXT)
    assert title == "Whales, Krill, Currents"


def test_an_outline_is_all_that_counts_and_divides_its_pages(tmp_path: Path) -> None:
    pages = [["1 Not this", WORDS], ["Beta ray", WORDS, "Gamma ray", WORDS * 2], [WORDS], ["Delta", WORDS]]
    path = make_pdf(tmp_path / "a.pdf", pages, [("Alpha", 0), ("Beta ray", 1), ("Gamma ray", 1), ("Delta", 3)])
    found = findings(window_of(str(path), PDF, 0, 20), PDF, 0, outline(str(path), PDF))
    listed = book_of({"f:0": found}, "a.pdf", paged=True).topics
    assert [(topic.title, topic.basis) for topic in listed] == [
        ("Alpha", "outline"), ("Beta ray", "outline"), ("Gamma ray", "outline"), ("Delta", "outline"),
    ]  # fmt: skip
    assert [topic.words for topic in listed] == [15 + 2, 15 + 2, 3 * 15 + 2, 15 + 1]


def test_a_section_goes_on_in_the_next_window_and_chapters_of_one_title_are_told_apart() -> None:
    first = findings([Page(f"## One\n{WORDS}\n## Two\n{WORDS}")], MARKDOWN, 0, [])
    second = findings([Page(f"{WORDS}\n## Three\n{WORDS}\n## one\n{WORDS}")], MARKDOWN, 20, [])
    found = {topic.title: topic for topic in book_of({"f:0": first, "f:1": second}, "f", paged=False).topics}
    assert list(found) == ["One", "Two", "Three", "one (2)"]
    assert found["Two"].chunks == ["f:0", "f:1"]
    assert (found["One"].chunks, found["one (2)"].chunks) == (["f:0"], ["f:1"])
    assert found["Two"].words == 30


def test_topics_of_two_books_are_one_by_their_title_and_those_of_one_book_are_not() -> None:
    text = f"## Limits\n{WORDS}\n## C\n{WORDS}\n## C++\n{WORDS}\n"
    books = [book_of({f"{file}:0": findings([Page(text)], MARKDOWN, 0, [])}, file, paged=False) for file in "fg"]
    assert [(topic.title, topic.chunks) for topic in merged(book.topics for book in books)] == [
        ("Limits", ["f:0", "g:0"]), ("C", ["f:0", "g:0"]), ("C++", ["f:0", "g:0"]),
    ]  # fmt: skip


def test_many_small_headings_are_folded_into_larger_ones() -> None:
    text = "".join(
        f"# Part {part}\n" + "".join(f"## Piece {part}.{n}\n{WORDS}\n" for n in range(15)) for part in "ABCD"
    )
    assert list(topics(text)) == ["Part A", "Part B", "Part C", "Part D"]


STYLES = st.builds(Style, st.sampled_from([7.0, 11.0, 20.0]), st.booleans())
STYLED = st.lists(st.tuples(st.text(st.characters(exclude_characters="\r\n"), max_size=40), STYLES), max_size=12).map(
    lambda lines: Page("\n".join(text for text, _ in lines), tuple(style for _, style in lines))
)


@pytest.mark.long
@given(
    st.one_of(
        st.tuples(st.lists(st.text(max_size=200).map(Page), max_size=20), st.sampled_from([TEXT, MARKDOWN, PDF])),
        st.tuples(st.lists(STYLED, max_size=8), st.just(PDF)),
    ),
    st.lists(st.builds(Bookmark, st.text(max_size=20), st.integers(0, 3), st.integers(0, 8)), max_size=4),
)
def test_any_text_gives_findings_and_topics_with_names(
    material: tuple[list[Page], str], marks: list[Bookmark]
) -> None:  # fmt: skip
    pages, content_type = material
    found = findings(pages, content_type, 0, marks if content_type == PDF else [])
    assert Findings.model_validate_json(found.model_dump_json()) == found
    listed = book_of({"f:0": found}, "f", paged=content_type == PDF).topics
    assert all(topic.title.strip() and topic.chunks == ["f:0"] for topic in listed)
    assert len({topic.title for topic in listed}) == len(listed)
    assert all(section.title for topic in listed for section in topic.sections)


# estimates


def evidence(basis: Basis = "heading", words: int = 1000, **more: object) -> Evidence:
    measure = Measure.model_validate({"basis": basis, "words": words, "pages": 3} | more)
    return Evidence(course_id="c", topic="t", evidence_summary="", measure=measure)


def test_more_text_more_formulas_and_more_exercises_take_longer() -> None:
    plain = minutes(evidence().measure)
    assert plain == 15
    assert minutes(evidence(words=10_000).measure) == 150
    assert minutes(evidence(words=10_000, signs=5_000).measure) == 225
    assert minutes(evidence(tasks=6).measure) == 45
    assert minutes(evidence("outline", 0, pages=10).measure) == 60  # scanned, say


def test_confidence_follows_the_evidence() -> None:
    assert confidence(evidence("outline")) > confidence(evidence("heading")) > confidence(evidence("terms"))
    assert confidence(evidence(words=100)) < confidence(evidence(words=1000))
    assert confidence(evidence(missing=0.5)) == round(confidence(evidence()) - 0.25, 2)
    assert confidence(evidence("nothing", 0)) == 0.05


@pytest.mark.covers("S3.32")
def test_what_is_uncertain_is_flagged_with_the_reason_and_nothing_else_is() -> None:
    sure = evidence()
    unsure = [evidence("terms"), evidence("outline", 0), evidence(missing=0.25), evidence("terms", 100)]
    found = estimate(EstimationPayload(session_id="s", course_topic_evidence=[sure]))
    assert found.uncertainty_flags == []
    found = estimate(EstimationPayload(session_id="s", course_topic_evidence=[sure, *unsure]))
    assert found.uncertainty_flags == [
        "c, t: confidence 0.55, the material has no headings",
        "c, t: confidence 0.72, 25% of its files could not be read",
        "c, t: confidence 0.45, the material has no headings, only 100 words cover it",
    ]


# with a language model


def planned(tmp_path: Path, *files: Path) -> SessionDocument:
    uploads = [Upload(path=path, is_shared=True) for path in files]
    inputs = SAMPLE_INPUTS | {"courses": SAMPLE_INPUTS["courses"][:1]}
    with Engine(tmp_path / "p.db", workflows=[planner]) as engine:
        engine.start(planner, sessions.starting(inputs, uploads), session_id="s1").outcome()
        return sessions.document(engine, "s1")


@pytest.mark.parametrize("ending", [".md", ".rst"])
def test_markup_files_of_a_course_are_chapters_and_fewer_are_books(tmp_path: Path, ending: str) -> None:
    paths = [tmp_path / f"{name}{ending}" for name in ("eels", "crabs", "kelp")]
    for path in paths:
        heads = [f"On {path.stem}", f"Young {path.stem}", f"Old {path.stem}"]
        marked = [f"# {heads[0]}", *(f"## {head}" for head in heads[1:])]
        lined = [f"{head}\n{rule * 12}\n" for head, rule in zip(heads, "=--", strict=True)]
        path.write_text("".join(f"{head}\n{WORDS}\n\n" for head in (marked if ending == ".md" else lined)))
    book = planned(tmp_path, *paths).ingestion_state.course_topic_evidence
    assert [(each.topic, len(each.measure.sections)) for each in book] == [
        ("On eels", 2), ("On crabs", 2), ("On kelp", 2),
    ]  # fmt: skip
    (tmp_path / "p.db").unlink()
    few = planned(tmp_path, *paths[:2]).ingestion_state.course_topic_evidence
    assert [each.topic for each in few] == ["Young eels", "Old eels", "Young crabs", "Old crabs"]


def unheaded(tmp_path: Path) -> Path:
    """A text without headings, of more characters than a model is shown at a time."""
    path = tmp_path / "whales.txt"
    lines = [f"Whales sing in the deep, and whale {number} sings of krill and of currents.\n" for number in range(700)]
    path.write_text("".join(lines))
    assert excerpts.LONGEST_EXCERPT < path.stat().st_size < 20 * PAGE_BYTES
    return path


def says(name: str) -> Says:
    return Says(json.dumps({"topic": name}))


def test_a_model_sees_the_whole_text_and_names_what_has_no_headings(tmp_path: Path, server: ModelServer) -> None:
    server.script.extend([says("Quantum Gravity"), says("The songs of whales"), says("Krill in currents")])
    document = planned(tmp_path, unheaded(tmp_path))
    (found,) = document.ingestion_state.course_topic_evidence
    assert (found.topic, found.measure.basis) == ("The songs of whales, Krill in currents", "model")
    assert [section.title for section in found.measure.sections] == [found.topic]
    assert "'Quantum Gravity' is not in the text" in json.dumps(server.requests[1])
    asked = json.dumps(server.requests)
    assert all(f"whale {number} sings" in asked for number in range(700))


def test_topics_of_one_name_stay_topics_of_their_own(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "MOST_TOPICS", 0)
    path = unheaded(tmp_path)
    path.write_text(path.read_text() + path.read_text().replace("krill", "squid").replace("deep", "dark"))
    server.script.extend([says("The songs of whales")] * 4)
    document = planned(tmp_path, path)
    found = [each.topic for each in document.ingestion_state.course_topic_evidence]
    assert found == ["The songs of whales", "The songs of whales (2)"]


@pytest.mark.long
def test_a_model_that_is_busy_is_waited_for(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "OUTAGE", Retry(attempts=8, first=0, on=(ModelUnavailable,)))
    server.script.extend([*[Status(429)] * 7, says("The songs of whales"), says("Krill in currents")])
    document = planned(tmp_path, unheaded(tmp_path))
    (found,) = document.ingestion_state.course_topic_evidence
    assert (document.status, found.measure.basis) == ("completed", "model")


@pytest.mark.long
@pytest.mark.parametrize("answer", [Refuses(), Status(401), Says("no JSON")])
def test_a_model_that_fails_changes_nothing_and_that_is_said(
    tmp_path: Path, server: ModelServer, answer: Status | Says | Refuses
) -> None:
    server.script.extend([answer] * 6)
    document = planned(tmp_path, unheaded(tmp_path))
    (found,) = document.ingestion_state.course_topic_evidence
    assert (document.status, found.topic, found.measure.basis) == ("completed", "Currents, Deep, Krill", "terms")
    (warning,) = (event.summary for event in document.events if event.event_type == "warning")
    assert warning.startswith("whales.txt: A language model gave no usable answer about 1 topic.")


def test_a_model_does_not_name_chapters_that_the_book_names(tmp_path: Path, server: ModelServer) -> None:
    document = planned(tmp_path, SAMPLE / "navigation.txt")
    assert {each.measure.basis for each in document.ingestion_state.course_topic_evidence} == {"heading"}
    assert "Name the topic" not in json.dumps(server.requests)
