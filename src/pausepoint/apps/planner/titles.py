"""The titles of books. A row of the plan names a book as people do, and not as its file is called."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pausepoint.apps.pdf import opened, page_text, styled_lines
from pausepoint.apps.planner.headings import aside, is_generic, key_of, label, reads_like_a_title, unmarked
from pausepoint.apps.planner.materials import MARKDOWN, PDF, RST, TEXT, fence_after
from pausepoint.apps.planner.models import FileEntry
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
_LINE = re.compile(r"([=\-~^*+#\"'`._:])\1{2,}\s*$")


def title_of(content: Path | bytes, content_type: str) -> str:
    """Return the title of a file, or of a text in UTF-8; nothing if it has none that can be trusted."""
    title = one_line(_READS[content_type](content)).rstrip(" *∗†‡")[:LONGEST]
    said = label(title)
    is_title = not said.number and said.kind == "plain" and not is_generic(title) and aside(title, 0.0) is None
    return title if is_title and re.search(r"[^\W\d_]{2}", title) else ""


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


def _of_pdf(path: Any) -> str:
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


def _of_markdown(content: Path | bytes) -> str:
    """Return the title of the front matter, or the only heading of the highest level if the text begins with it."""
    lines = _lines(content)
    first = next((line for line in lines if line.strip()), "")
    if first.rstrip() == "---":
        for line in lines:
            if line.rstrip() in ("---", "..."):
                break
            if found := re.match(r"(?i)title:\s*(['\"]?)(.+?)\1\s*$", line):
                return found[2]
        first = next((line for line in lines if line.strip()), "")
    second = next(lines, "")
    if re.fullmatch(r"=+\s*", second):
        return "" if any(re.fullmatch(r"={3,}\s*", line) for line in lines) else unmarked(first.strip())
    found = re.match(r"# +(.+?)(?: +#+)?\s*$", first)
    fence = ""
    for line in [second, *lines] if found else ():
        fence = fence_after(fence, line)
        if not fence and line.startswith("# "):
            return ""
    return unmarked(found[1]) if found else ""


def _of_underlined(content: Path | bytes) -> str:
    """Return the title of reStructuredText: the first one, if no other has its style."""
    lines = [line.rstrip() for line in _lines(content)]
    begin = next((at for at, line in enumerate(lines) if line and not line.startswith((".. ", " "))), len(lines))
    over = bool(_LINE.fullmatch(lines[begin])) if begin < len(lines) else False
    title, under = (*lines[begin + over : begin + over + 2], "", "")[:2]
    found = _LINE.fullmatch(under)
    if not title.strip() or found is None:
        return ""
    others = (
        at for at in range(begin + over + 2, len(lines) - 1)
        if lines[at].strip() and (match := _LINE.fullmatch(lines[at + 1])) and match[1] == found[1]
        and not _LINE.fullmatch(lines[at]) and bool(_LINE.fullmatch(lines[at - 1])) == over
    )  # fmt: skip
    return title.strip() if next(others, None) is None else ""


def _of_text(content: Path | bytes) -> str:
    """Return the first line of a text, if it stands alone with a subtitle at most."""
    lines = (line.strip() for line in _lines(content))
    head: list[str] = []
    for line in islice(lines, 20):
        if line:
            head.append(line)
        elif head:
            break
    first, *rest = [line for line in head if not _LINE.fullmatch(line)] or [""]
    stands_alone = len(rest) <= 2 and not any(_SENTENCE.search(line) or len(line) > 80 for line in (first, *rest))
    return first if stands_alone and first[:1].isupper() and reads_like_a_title(first) else ""


_READS: dict[str, Callable[[Path | bytes], str]] = {
    PDF: _of_pdf, MARKDOWN: _of_markdown, RST: _of_underlined, TEXT: _of_text
}  # fmt: skip
