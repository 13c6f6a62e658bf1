"""Read course material (PDF, text, Markdown, reStructuredText) as windows of pages, and the outline of a PDF.

A page of text has about 3,000 bytes and ends at the end of a line. Each window is read separately, so a book of any
size needs only the memory of one window.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from pausepoint.apps.input import BadInput
from pausepoint.apps.pdf import Style, is_picture, opened, page_text, styled_lines

PDF, TEXT, MARKDOWN, RST = "application/pdf", "text/plain", "text/markdown", "text/x-rst"
ENDINGS = {
    ".pdf": PDF, ".txt": TEXT, ".text": TEXT, ".md": MARKDOWN, ".markdown": MARKDOWN, ".rst": RST, ".rest": RST
}  # fmt: skip
PAGE_BYTES = 3_000
LONGEST_LINE = 2**16

_FENCE = re.compile(r"^\s*(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<rest>.*)$")


class Bookmark(NamedTuple):
    """An entry of a PDF's outline. Pages and levels start at 0."""

    title: str
    level: int
    page: int


class Page(NamedTuple):
    """The text of a page. ``styles`` has one style per line if it was asked for.

    A page without text is a scan if ``picture`` is true. ``fence`` is the code fence of Markdown that is open where the
    page starts. ``before`` and ``after`` are the lines of a text that come before and after the page.
    """

    text: str
    styles: tuple[Style, ...] = ()
    picture: bool = False
    fence: str = ""
    before: str = ""
    after: str = ""


def kind_of(path: Path) -> str:
    """Return the content type for a file's extension. Raises `BadInput` for an unsupported type."""
    kind = ENDINGS.get(path.suffix.lower())
    if kind is None:
        known = ", ".join(ENDINGS)
        raise BadInput(
            f"{path}: Only PDF, text, Markdown and reStructuredText files can be read ({known})."
            " Save it as one of these."
        )
    return kind


def checked(path: Path) -> str:
    """Return the content type of a file. Raises `BadInput` if it cannot be read."""
    kind = kind_of(path)
    try:
        with path.open("rb") as stream:
            if not stream.read(1):
                raise BadInput(f"{path}: The file is empty. Name another file.")
        if kind == PDF:
            with opened(path, str(path)):
                pass
        else:
            _check_text(path)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}. Check the path.") from None
    return kind


def _check_text(path: Path) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as stream:
        at = 0
        while True:
            piece = stream.read(2**20)
            begun = len(decoder.getstate()[0])  # bytes of an incomplete character at the end of the previous piece
            try:
                text = decoder.decode(piece, final=not piece)
            except UnicodeDecodeError as error:
                raise BadInput(
                    f"{path}: Byte {at - begun + error.start} is not UTF-8. Save the text as UTF-8 and add it again."
                ) from None
            if "\0" in text:
                raise BadInput(f"{path}: This is not a text file: it contains NUL bytes. Save it as text.")
            if not piece:
                return
            at += len(piece)


def page_count(path: str, content_type: str) -> int:
    """Return the number of pages of a file, at least one."""
    if content_type != PDF:
        return max(-(-Path(path).stat().st_size // PAGE_BYTES), 1)
    with opened(path, Path(path).name) as document:
        return len(document)


def window(path: str, content_type: str, first: int, count: int, styled: bool = False) -> list[Page]:
    """Return some pages, in order. ``styled``: with the styles of the lines of a PDF, which takes longer."""
    if content_type != PDF:
        return _text_window(path, content_type, first, count)
    with opened(path, Path(path).name) as document:
        return [_page(document, number, styled) for number in range(first, min(first + count, len(document)))]


def _page(document: Any, number: int, styled: bool) -> Page:
    if styled:
        lines = styled_lines(document, number)
        text, styles = "\n".join(line for line, _ in lines), tuple(style for _, style in lines)
    else:
        text, styles = page_text(document, number), ()
    return Page(text, styles, not text.strip() and is_picture(document, number))


def _text_window(path: str, content_type: str, first: int, count: int) -> list[Page]:
    fence = ""
    if content_type == MARKDOWN:
        for text in _texts(path, 0, first):
            fence = _fence_after_page(fence, text)
    pages: list[Page] = []
    is_later = int(first > 0)
    texts = list(_texts(path, first - is_later, first + count + 1))
    around = texts if is_later else ["", *texts]
    for above, text, below in zip(around, texts[is_later:], texts[is_later + 1 :], strict=False):
        pages.append(Page(text, (), False, fence, _last_line(above), below.partition("\n")[0]))
        fence = _fence_after_page(fence, text) if content_type == MARKDOWN else ""
    return pages


def _last_line(text: str) -> str:
    return text[:-1].rpartition("\n")[2] if text.endswith("\n") else ""


def _texts(path: str, first: int, end: int) -> Iterator[str]:
    with open(path, "rb") as stream:
        for start, stop in pairwise(_edge(stream, number) for number in range(first, end + 1)):
            stream.seek(start)
            yield stream.read(stop - start).decode("utf-8-sig" if start == 0 else "utf-8")


def _fence_after_page(fence: str, text: str) -> str:
    for line in text.split("\n"):
        fence = fence_after(fence, line)
    return fence


def fence_after(fence: str, line: str) -> str:
    """Return the code fence that is open after a line of Markdown, or nothing. ``fence``: the one that was before it.

    >>> fence_after("", "```python"), fence_after("```", "~~~"), fence_after("```", "````"), fence_after("", "```a```")
    ('```', '```', '', '')
    """
    found = _FENCE.match(line)
    if not found:
        return fence
    closes = found["fence"].startswith(fence) and not found["rest"].strip()
    return found["fence"] if not fence else "" if closes else fence


def _edge(stream: BinaryIO, number: int) -> int:
    """Return the offset at which a text page starts: after the first line end at ``number * PAGE_BYTES`` or later.

    The offset depends on the bytes alone, so two adjacent windows agree. If no line ends within `LONGEST_LINE` bytes,
    the page starts at the next character.
    """
    at = number * PAGE_BYTES
    if at == 0:
        return 0
    stream.seek(at - 1)
    ahead = stream.read(LONGEST_LINE)
    newline = ahead.find(b"\n")
    if newline >= 0 or len(ahead) < LONGEST_LINE:
        return at + newline if newline >= 0 else at - 1 + len(ahead)
    inside = next(offset for offset in range(1, 5) if ahead[offset] & 0xC0 != 0x80)
    return at - 1 + inside


def outline(path: str, content_type: str) -> list[Bookmark]:
    """Return the outline of a PDF: the entries that link to a page, or nothing if they do not divide the file."""
    if content_type != PDF:
        return []
    found: list[Bookmark] = []
    with opened(path, Path(path).name) as document:
        for item in document.get_toc():
            target = item.get_dest()
            page = None if target is None else target.get_index()
            title = " ".join(item.get_title().split())
            if page is not None and title:
                found.append(Bookmark(title, item.level, page))
    return found if len({mark.page for mark in found}) > 1 or len(found) > 2 else []
