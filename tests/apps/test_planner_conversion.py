"""DOCX, PPTX, EPUB and HTML as course material."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pausepoint import Engine
from pausepoint.apps.input import BadInput
from pausepoint.apps.planner import conversion, materials, planner
from pausepoint.apps.planner.__main__ import main
from pausepoint.apps.planner.folders import expanded, read_folder
from pausepoint.apps.planner.materials import content_of
from pausepoint.apps.planner.models import SessionDocument, Upload
from pausepoint.engine import BlockingEngine
from tests.apps.calls import Call, calling
from tests.apps.planner_kit import run

WORDS = "some plain words that say a little about the matter at hand and then stop\n"
BOOK = "\n".join(f"# {title}\n\n{WORDS * 3}\n\n## More of {title}\n\n{WORDS}\n" for title in ("Eels", "Crabs", "Ships"))
SLIDES = f"% The sea\n\n## Eels\n\n- {WORDS}\n\n## Crabs\n\n- {WORDS}\n\n## Ships\n\n- {WORDS}\n"
READS = {name for program in conversion._programs() for name in conversion._formats(program)}

call = calling(main)
needs_pandoc = pytest.mark.skipif("docx" not in READS, reason="pandoc is not installed; see the extra documents")
needs_slides = pytest.mark.skipif(
    "pptx" not in READS, reason="no pandoc that reads PPTX is installed, which 3.8.3 does"
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[BlockingEngine]:
    with Engine(tmp_path / "planner.db", workflows=[planner]) as found:
        yield found


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is the PATH, on a machine without a pandoc."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(conversion, "find_spec", lambda name: None)
    conversion._formats.cache_clear()
    yield folder
    conversion._formats.cache_clear()


def pandoc(folder: Path, *, reads: str = "docx html", does: str) -> None:
    """A pandoc that fails in some way."""
    program = folder / "pandoc"
    program.write_text(f'#!/bin/sh\ncase "$*" in *--list-input*) echo {reads};; *) {does};; esac\n')
    program.chmod(0o755)


def made(path: Path, text: str, *options: str) -> Path:
    """A document of the type that its name says."""
    program = next(each for each in conversion._programs() if "docx" in conversion._formats(each))
    subprocess.run([program, "--from", "markdown", "--output", path, *options], input=text.encode(), check=True)
    return path


def archive(path: Path, **parts: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as found:
        for name, text in parts.items():
            found.writestr(name.replace("__", "/").replace("_", "."), text)
    return path


def topics(document: SessionDocument, course: str = "calc2") -> dict[str, list[str]]:
    """The topics of a course, with the titles of their sections."""
    return {
        each.topic: [section.title for section in each.measure.sections]
        for each in document.ingestion_state.course_topic_evidence
        if each.course_id == course
    }


def text_of(path: Path) -> str:
    content, kind = content_of(path)
    assert isinstance(content, bytes)
    assert kind == "text/markdown"
    return content.decode()


# what is read


@needs_pandoc
@pytest.mark.long
@pytest.mark.parametrize("name", ["book.docx", "book.epub", "book.html", "book.htm"])
def test_the_headings_of_a_document_are_topics_and_sections(engine: BlockingEngine, tmp_path: Path, name: str) -> None:
    path = made(tmp_path / name, BOOK, "--standalone", "--metadata", "title=The sea", *["--to=html"] * (".h" in name))
    document = run(engine, uploads=[Upload(path=path, course_ids=["calc2"])])
    assert topics(document) == {title: [title, f"More of {title}"] for title in ("Eels", "Crabs", "Ships")}
    (file,) = document.file_registry.values()
    assert (file.filename, file.content_type) == (name, "text/markdown")


@pytest.mark.long
@needs_slides
def test_slides_are_sections_of_one_topic(engine: BlockingEngine, tmp_path: Path) -> None:
    path = made(tmp_path / "week-1.pptx", SLIDES)
    document = run(engine, uploads=[Upload(path=path, course_ids=["calc2"])])
    assert topics(document) == {"The sea": ["Eels", "Crabs", "Ships"]}


@needs_slides
def test_slides_without_a_title_slide_are_named_by_their_file(tmp_path: Path) -> None:
    path = made(tmp_path / "the-sea.pptx", f"## Agenda\n\n{WORDS}\n## Eels\n\n{WORDS}")
    assert text_of(path).startswith("# the sea\n\n## Agenda\n")


@needs_pandoc
def test_the_chapters_of_an_epub_are_in_the_order_of_its_spine(tmp_path: Path) -> None:
    path = made(tmp_path / "whole.epub", BOOK, "--metadata", "title=The sea")
    with zipfile.ZipFile(path) as found, zipfile.ZipFile(tmp_path / "turned.epub", "w") as turned:
        for part in found.infolist():
            text = found.read(part)
            if part.filename.endswith(".opf"):
                first, last = (text.index(b'<itemref idref="ch00%d_xhtml"' % at) for at in (1, 3))
                text = text[:first] + text[first:].replace(b"ch001_", b"?").replace(b"ch003_", b"ch001_").replace(
                    b"?", b"ch003_"
                )
                assert last > first
            turned.writestr(part, text)
    headings = [line for line in text_of(tmp_path / "turned.epub").splitlines() if line.startswith("# ")]
    assert headings == ["# Ships", "# Crabs", "# Eels"]


@needs_pandoc
def test_of_a_web_page_the_words_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(
        '<head><title>Größen</title></head><div class="toc"><a href="#a">Länge</a></div><script>alert(1)</script>'
        "<style>p {}</style>"
        '<table><tr><td><h2 id="a" class="x">Länge</h2><p>Die <a href="http://example.org/a/b">Länge</a> ist eine'
        ' <span style="x">Größe</span>.<img src="data:image/png;base64,AAAA" alt="a.png"></p><td>Für Schüler.</table>',
        "latin-1",
    )
    assert text_of(path) == "# Größen\n\n## Länge\n\nDie Länge ist eine Größe.\n\nFür Schüler.\n"


@needs_pandoc
def test_a_document_in_a_folder_is_a_chapter(engine: BlockingEngine, tmp_path: Path) -> None:
    folder = tmp_path / "sea"
    folder.mkdir()
    (folder / "1-crabs.md").write_text(f"# Crabs\n\n{WORDS * 2}")
    made(folder / "2-eels.docx", f"# Eels\n\n{WORDS}\n\n# Summary\n\n{WORDS}")
    (folder / "2-eels.html").write_text("<h1>Eels</h1>")
    (folder / "3-cut.docx").write_bytes((folder / "2-eels.docx").read_bytes()[:999])
    found = read_folder(folder)
    assert found.chapters == ["1-crabs.md", "2-eels.docx"]
    assert [note.partition(" (")[0] for note in found.notes] == ["Skipped 1 file"] * 2
    uploads, _ = expanded([Upload(path=folder, course_ids=["calc2"])])
    assert list(topics(run(engine, uploads=uploads))) == ["Crabs", "Eels"]


@needs_pandoc
@pytest.mark.long
def test_a_session_needs_neither_the_document_nor_pandoc_later(here: Path, call: Call) -> None:
    path = made(here / "book.docx", BOOK)
    options = ["create", "--session-id", "s1", "--course", "a:A:2031-01-01", "--start", "2030-12-20"]
    assert call(*options).code == 3
    assert call("file", "s1", path, "--course", "a").code == 0
    path.unlink()
    materials._converted.cache_clear()
    assert call("resume", "s1").code == 0
    found = call("document", "s1").document["estimation_state"]["topic_estimates"]
    assert [each["topic"] for each in found] == ["Eels", "Crabs", "Ships"]


# what is refused


def test_without_pandoc_a_document_is_refused_and_nothing_is_stored(here: Path, call: Call, programs: Path) -> None:
    (here / "notes.html").write_text("<h1>Eels</h1>")
    done = call("create", "--course", "a:A:2031-01-01", "--file", "a:notes.html")
    assert (done.code, done.out) == (2, "")
    assert "notes.html: Reading HTML files needs pandoc, install it: pip install 'pausepoint[documents]'" in done.err
    assert not (here / ".pausepoint").exists()


@pytest.mark.parametrize(
    ("does", "reads", "told"),
    [
        ("exec sleep 60", "docx html", "pandoc did not finish within 0.2 seconds"),
        ("exit 251", "docx html", "pandoc needs too much memory for it"),
        ("echo couldn’t parse >&2; exit 63", "docx html", "It is damaged; save it again. (pandoc: couldn’t parse)"),
        ("echo '# '", "docx html", "The HTML file has no text"),
        ("exit 1", "docx odt", "pandoc is too old for HTML files, install a newer one: pip install"),
    ],
)
def test_a_pandoc_that_fails_is_a_refusal_with_the_name_of_the_file(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch, does: str, reads: str, told: str
) -> None:
    monkeypatch.setattr(conversion, "TIME_LIMIT", 0.2 if "sleep" in does else 60)
    monkeypatch.setenv("PATH", f"{programs}:/bin:/usr/bin")
    pandoc(programs, reads=reads, does=does)
    path = tmp_path / "notes.html"
    path.write_text("<h1>Eels</h1>")
    with pytest.raises(BadInput) as refused:
        content_of(path)
    assert told in str(refused.value)
    assert str(refused.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("damaged.docx", "The DOCX file cannot be read. It is damaged; save it again."),
        ("locked.docx", "The file is encrypted, or of an old version of Office. Save a copy as DOCX."),
        ("locked.epub", "The EPUB file is encrypted. Save a copy without a password."),
        ("bomb.docx", "The DOCX file unpacks to more than 1 GB."),
        ("large.docx", "The file has more than 0 MB. Divide it"),
        ("program.html", "This is not a text file: it contains NUL bytes"),
    ],
)
def test_a_document_that_cannot_be_read_is_refused_by_name(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    pandoc(programs, reads="docx epub html", does="exit 0")
    path = tmp_path / name
    match name:
        case "damaged.docx":
            path.write_bytes(b"PK\x03\x04 and nothing else")
        case "locked.docx":
            path.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
        case "locked.epub":
            rights = '<CipherData><CipherReference URI="OEBPS/ch1.xhtml"/></CipherData>'
            archive(path, mimetype="application/epub+zip", **{"META-INF__encryption_xml": rights})
        case "program.html":
            path.write_bytes(b"\x7fELF\0\0")
        case _:
            archive(path, word__document_xml="<x/>" * 1000)
    monkeypatch.setattr(materials, "LARGEST_FILE", 100 if name == "large.docx" else 2**20)
    monkeypatch.setattr(conversion, "LARGEST_UNPACKED", 3000)
    with pytest.raises(BadInput) as refused:
        content_of(path)
    assert str(refused.value).startswith(f"{path}: {told}")


@needs_pandoc
def test_limits_hold_for_the_real_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.html").write_text(f"<p>{WORDS}" * 3000)
    monkeypatch.setattr(conversion, "HEAP", "3m")
    with pytest.raises(BadInput, match="pandoc needs too much memory for it"):
        content_of(tmp_path / "page.html")
    monkeypatch.undo()
    archive(tmp_path / "other.docx", hello_txt="hello")
    with pytest.raises(BadInput, match=r"The DOCX file cannot be read\. It is damaged; save it again\. \(pandoc: "):
        content_of(tmp_path / "other.docx")
