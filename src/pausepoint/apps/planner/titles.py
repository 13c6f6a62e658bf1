"""The titles of books. A row of the plan names a book as people do, and not as its file is called."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

from pausepoint.apps.pdf import opened, page_text, styled_lines
from pausepoint.apps.planner.folders import INDEXES
from pausepoint.apps.planner.headings import aside, is_generic, key_of, label, reads_like_a_title
from pausepoint.apps.planner.materials import ENDINGS, LONGEST_MATTER, MARKDOWN, PDF, RST, TEXT, without_matter
from pausepoint.apps.planner.models import FileEntry
from pausepoint.apps.planner.topics import Heading, headed
from pausepoint.apps.planner.underlines import is_rule
from pausepoint.apps.words import one_line

LONGEST, SHOWN = 200, 60
"""The most characters of a title, and of a title in a row of the plan."""

FIRST_PAGES = 3
LARGER = 1.15
"""A title is at least so many times as large as the usual text of its page."""

_MADE_BY_A_PROGRAM = re.compile(
    r"(?i)^(untitled|microsoft (word|powerpoint)|powerpoint|slide \d|document ?\d*$|title$|no title|unknown|print)"
    r"|\.(docx?|pptx?|odt|tex|dvi|ps|pdf|indd|qxd|html?|txt|md|rst)$|[\\/_]|^\S+\d\S*$|^[a-z0-9.-]+$"
)
"""A title that no person wrote: a name of a file, or what a program writes if it is not told a title."""

_SENTENCE = re.compile(r"[.,;:!]$|\. [A-Z]")


def title_of(content: Path | bytes, content_type: str) -> str:
    """Return the title of a file, or of a text in UTF-8; nothing if it has none that can be trusted."""
    title = one_line(_READS[content_type](content, content_type)).rstrip(" *∗†‡")[:LONGEST]
    said = label(title)
    is_title = not said.number and said.kind == "plain" and not is_generic(title) and aside(title, 0.0) is None
    return title if is_title and re.search(r"[^\W\d_]{2}", title) else ""


def title_of_name(name: str, book: str) -> str:
    """Return the title of a chapter whose text has none: what the name of its file says.

    >>> title_of_name("notes/02-limits_and_series.md", "Calculus"), title_of_name("README.md", "Calculus")
    ('Limits and series', 'Calculus')
    """
    path = Path(name)
    if path.stem.casefold() in INDEXES:
        return title_of_name(path.parent.as_posix(), book) if path.parent.name else book
    stem = path.stem if path.suffix.lower() in ENDINGS else path.name
    shown = re.sub(r"^\d+(?:[.\-_]\d+)*[.)\-_\s]+(?=\w)", "", stem)
    words = one_line(re.sub(r"[-_]+", " ", shown))
    return words[:1].upper() + words[1:] or path.name


def names_of(files: Iterable[FileEntry], topics: Sequence[str]) -> dict[str, str]:
    """Return the names of some files in a plan: their titles, or nothing if a title would not tell them apart.

    ``topics`` are the topics of the course: the first heading of some texts is a chapter and not their title.
    """
    listed = list(files)
    counted = Counter(key_of(file.title) for file in listed)
    chapters = {key_of(topic) for topic in topics} if len(topics) > 1 else set()
    return {
        file.filename: short(file.title)
        for file in listed
        if file.title and counted[key_of(file.title)] == 1 and key_of(file.title) not in chapters
    }


def short(title: str) -> str:
    """Return a title for a row of the plan: a long one without its subtitle, or cut.

    >>> short("Kelp"), short("Calculus: " + "a long subtitle " * 9), short("words " * 20)
    ('Kelp', 'Calculus', 'words words words words words words words words words…')
    """
    if len(title) <= SHOWN:
        return title
    head = re.split(r": | [–—-] |\. ", title)[0]
    return head if len(head) <= SHOWN else head[: SHOWN - 1].rpartition(" ")[0] + "…"


# PDF


def _of_pdf(path: Any, _: str) -> str:
    """Return the title in the properties of a PDF if a person wrote it, or else the title on its cover."""
    with opened(path, path.name) as document:
        stored = one_line(document.get_metadata_value("Title") or "")
        stored = "" if _MADE_BY_A_PROGRAM.search(stored) else stored
        pages = range(min(FIRST_PAGES, len(document)))
        text = " ".join(key_of(page_text(document, number).replace("\n", " ")) for number in pages)
        if stored and (" " in stored or key_of(stored) in text):
            return stored
        return next(filter(None, (_largest(document, number) for number in pages[:2])), "") or stored


def _largest(document: Any, number: int) -> str:
    """Return the largest lines of a page, if they are larger than its text and read like a title."""
    lines = styled_lines(document, number)
    sizes = Counter[float]()
    for line, style in lines:
        sizes[round(style.size, 1)] += len(line)
    if len(sizes) < 2:
        return ""
    largest = max(sizes)
    begin = next(at for at, (_, style) in enumerate(lines) if round(style.size, 1) == largest)
    title = " ".join(_while(lines[begin:], largest))
    usual = sizes.most_common(1)[0][0]
    is_larger = largest >= LARGER * (usual if usual < largest else sorted(sizes)[-2])
    return title if is_larger and len(title) <= LONGEST and reads_like_a_title(title) else ""


def _while(lines: Sequence[tuple[str, Any]], size: float) -> Iterator[str]:
    for line, style in lines:
        if round(style.size, 1) != size:
            return
        yield line


# text


def _lines(content: Path | bytes) -> Iterator[str]:
    stream = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
    with io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace") as text:
        for line in text:
            yield line.rstrip("\n")


def _of_markup(content: Path | bytes, content_type: str) -> str:
    """Return the title in the metadata of Markdown, or the heading that begins a text if no other has its level."""
    lines = _lines(content)
    if content_type == MARKDOWN:
        head, title = without_matter("\n".join(islice(lines, LONGEST_MATTER)) + "\n")
        if title:
            return title
        lines = chain(head[:-1].split("\n"), lines)
    first: Heading | None = None
    for line in headed(_with_neighbours(lines), content_type):
        if isinstance(line, Heading) and line.sure:
            if first is None and line.level == 0:
                first = line
            elif first is None or (line.level, line.rule) == (first.level, first.rule):
                return ""
        elif first is None and not _comes_before_the_title(line):
            return ""
    return first.title if first else ""


def _with_neighbours(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    before = ""
    for line, after in pairwise(chain(lines, [""])):
        yield before, line, after
        before = line


def _comes_before_the_title(line: str | Heading) -> bool:
    """Return whether a line is empty, a comment of reStructuredText, or the line of punctuation above a title."""
    return isinstance(line, str) and (not line.strip() or line.startswith((".. ", " ")) or is_rule(line.strip()))


def _of_text(content: Path | bytes, _: str) -> str:
    """Return the first line of a text, if it stands alone with a subtitle at most."""
    lines = (line.strip() for line in _lines(content))
    head: list[str] = []
    for line in islice(lines, 20):
        if line:
            head.append(line)
        elif head:
            break
    first, *rest = [line for line in head if not is_rule(line)] or [""]
    stands_alone = len(rest) <= 2 and not any(_SENTENCE.search(line) or len(line) > 80 for line in (first, *rest))
    return first if stands_alone and first[:1].isupper() and reads_like_a_title(first) else ""


_READS: dict[str, Callable[[Path | bytes, str], str]] = {
    PDF: _of_pdf, MARKDOWN: _of_markup, RST: _of_markup, TEXT: _of_text
}  # fmt: skip
