"""Read course material (PDF, text, Markdown, reStructuredText) as windows of pages, and the outline of a PDF.

A page of text has about 3,000 bytes and ends at the end of a line. Each window is read separately, so a book of any
size needs only the memory of one window. Documents of other types become Markdown when they are taken in.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from pausepoint.apps.input import BadInput
from pausepoint.apps.pdf import Style, is_picture, opened, page_text, styled_lines
from pausepoint.apps.planner.charsets import decoded
from pausepoint.apps.planner.conversion import DOCX, EPUB, FORMATS, HTML, LARGEST_FILE, PPTX, markdown_of

PDF, TEXT, MARKDOWN, RST = "application/pdf", "text/plain", "text/markdown", "text/x-rst"
ENDINGS = {
    ".pdf": PDF, ".txt": TEXT, ".text": TEXT, ".md": MARKDOWN, ".markdown": MARKDOWN, ".rst": RST, ".rest": RST,
    ".docx": DOCX, ".pptx": PPTX, ".epub": EPUB, ".html": HTML, ".htm": HTML,
}  # fmt: skip
PAGE_BYTES = 3_000
LONGEST_LINE = 2**16
LONGEST_FOREIGN = 64 * 2**20
"""The most bytes of a text that is not UTF-8. It is decoded in memory."""

_FENCE = re.compile(r"^\s*(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<rest>.*)$")
LONGEST_MATTER = 82
"""The most lines of the metadata of Markdown, with the marks around it."""

_MATTER = re.compile(
    rf"(?P<mark>---|\+\+\+) *\r?\n(?P<matter>(?:[^\n]*\n){{0,{LONGEST_MATTER - 2}}}?)(?:(?P=mark)|\.\.\.) *(?:\r?\n|$)"
)
_MATTER_TITLE = re.compile(r"""^title\s*[:=]\s*(?P<quote>["']?)(?P<title>[^\s"'].*?)(?P=quote)\s*$""", re.M | re.I)


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
            f"{path}: Only PDF, text, Markdown, reStructuredText, DOCX, PPTX, EPUB and HTML files can be read"
            f" ({known}). Save it as one of these."
        )
    return kind


def checked(path: Path) -> str:
    """Return the content type of a file. Raises `BadInput` if it cannot be read."""
    return content_of(path)[1]


def content_of(path: Path) -> tuple[Path | bytes, str]:
    """Return a file as it can be read in windows, and its content type. Raises `BadInput` if it cannot be read.

    This is the path of the file, or its text in UTF-8 if it is in another encoding, or converted to Markdown.
    """
    kind = kind_of(path)
    try:
        with path.open("rb") as stream:
            if not stream.read(1):
                raise BadInput(f"{path}: The file is empty. Name another file.")
        if kind == PDF:
            with opened(path, str(path)):
                return path, kind
        if kind in FORMATS:
            known = path.stat()
            return _converted(path, kind, known.st_mtime_ns, known.st_size), MARKDOWN
        return path if _is_utf_8(path) else _decoded(path).encode(), kind
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}. Check the path.") from None


@lru_cache(maxsize=100)
def _converted(path: Path, kind: str, changed: int, size: int) -> bytes:
    """Return a document as Markdown. It is asked for when a file is checked, and again when it is stored."""
    if size > LARGEST_FILE:
        raise BadInput(f"{path}: The file has more than {LARGEST_FILE // 2**20} MB. Divide it, or save it as PDF.")
    if kind == HTML and not _is_utf_8(path):
        return markdown_of(path, _decoded(path).encode(), kind)
    return markdown_of(path, path.read_bytes(), kind)


def _is_utf_8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as stream:
        if stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return False
        stream.seek(0)
        while piece := stream.read(2**20):
            if b"\0" in piece:
                raise BadInput(f"{path}: This is not a text file: it contains NUL bytes. Save it as text.")
            try:
                decoder.decode(piece)
            except UnicodeDecodeError:
                return False
    return not decoder.getstate()[0]


def _decoded(path: Path) -> str:
    """Return a text that is not in UTF-8. Its words say in which encoding it is, if there are enough of them."""
    if path.stat().st_size > LONGEST_FOREIGN:
        most = LONGEST_FOREIGN // 2**20
        raise BadInput(f"{path}: The text is not UTF-8 and longer than {most} MB. Save it as UTF-8.")
    content = path.read_bytes()
    text = decoded(content)
    if "\0" in text:
        raise BadInput(f"{path}: This is not a text file: it contains NUL bytes. Save it as text.")
    return text


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
        for text in _texts(path, content_type, 0, first):
            fence = _fence_after_page(fence, text)
    pages: list[Page] = []
    is_later = int(first > 0)
    texts = list(_texts(path, content_type, first - is_later, first + count + 1))
    around = texts if is_later else ["", *texts]
    for above, text, below in zip(around, texts[is_later:], texts[is_later + 1 :], strict=False):
        pages.append(Page(text, (), False, fence, _last_line(above), below.partition("\n")[0]))
        fence = _fence_after_page(fence, text) if content_type == MARKDOWN else ""
    return pages


def _last_line(text: str) -> str:
    return text[:-1].rpartition("\n")[2] if text.endswith("\n") else ""


def _texts(path: str, content_type: str, first: int, end: int) -> Iterator[str]:
    with open(path, "rb") as stream:
        for start, stop in pairwise(_edge(stream, number) for number in range(first, end + 1)):
            stream.seek(start)
            text = stream.read(stop - start).decode("utf-8-sig" if start == 0 else "utf-8")
            yield _titled(text) if start == 0 and content_type == MARKDOWN else text


def without_matter(text: str) -> tuple[str, str]:
    """Return the beginning of Markdown with empty lines in place of its metadata, and the title in the metadata.

    >>> without_matter("---\\ntitle: 'Eels'\\n---\\nThey swim.")
    ('\\n\\n\\nThey swim.', 'Eels')
    """
    matter = _MATTER.match(text)
    if not matter:
        return text, ""
    title = _MATTER_TITLE.search(matter["matter"])
    return "\n" * matter[0].count("\n") + text[matter.end() :], title["title"] if title else ""


def _titled(text: str) -> str:
    """Return the first page of Markdown without metadata. Their title becomes the heading if the page has none."""
    body, title = without_matter(text)
    return f"# {title}{body}" if title and not re.search(r"^# ", body, re.MULTILINE) else body


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
