"""Read documents (PDF, Markdown, text and HTML) as sources: passages that can be cited, with their links.

A passage is a paragraph or a whole table. It keeps its position: the page of a PDF and the heading above it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from pausepoint.apps.input import BadInput
from pausepoint.apps.memo.models import Link, Passage, Source, SourceKind
from pausepoint.apps.memo.prose import quoted, slug, unlinked
from pausepoint.apps.memo.tables import UNITS, UNITS_OF_SENTENCE, Cell, table
from pausepoint.apps.pdf import opened, page_text
from pausepoint.apps.words import one_line

ENDINGS = (".pdf", ".md", ".markdown", ".txt", ".text", ".html", ".htm")
LARGEST, LARGEST_PDF = 16 * 2**20, 512 * 2**20
"""The maximum size of a document in bytes. A PDF may be larger, because most of it is pictures."""

_MARKDOWN_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\((https?://[^\s()<>]+(?:\([^\s()<>]*\))?)\)")
_BARE_LINK = re.compile(r"(?<!\()\bhttps?://[^\s()<>\"'|]+|\b(?:www\.)?linkedin\.com/in/[\w-]+", re.IGNORECASE)
LONGEST_TITLE = 120
RUNNING = 4
"""A line in bold type that comes back so many times is the head of a page, not a heading."""

_PAGE_NUMBER = re.compile(r"\d{1,3}|(?:table of contents)", re.IGNORECASE)
_NAMES = re.compile(r"[^\W\d_]{3}")
_ITEM = re.compile(r"(item|note)\s+\d{1,2}[A-C]?\b(?!.*[;,\d]$).{3,160}", re.IGNORECASE)
"""A line that opens an item or a note of an annual report, in any type. A line of the contents ends with a page."""


class Block(NamedTuple):
    """A paragraph with the heading above it and its page."""

    text: str
    heading: str = ""
    page: int | None = None
    part: str = ""


class Reading(NamedTuple):
    """The content of a document."""

    title: str
    blocks: list[Block]
    links: tuple[Link, ...] = ()
    address: str = ""


def listed(folder: Path) -> list[Path]:
    """Return the documents of a folder and its subfolders, in order, without hidden ones."""
    found = [path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file()]
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def read(path: Path, kind: SourceKind = "document", where: str | None = None) -> Source:
    """Return a document as a source. Raises `BadInput` with the reason if it cannot be read."""
    try:
        size = path.stat().st_size
        if not size:
            raise BadInput(f"{path}: The file is empty. Remove or replace it.")
        most = LARGEST_PDF if path.suffix.lower() == ".pdf" else LARGEST
        if size > most:
            raise BadInput(f"{path}: The file has {size:,} bytes; the maximum is {most:,}. Provide a shorter file.")
        found = _reading(path)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: Byte {error.start} is not UTF-8. Save the text as UTF-8.") from None
    except AssertionError as error:  # raised by the HTML parser for a malformed declaration
        raise BadInput(f"{path}: The HTML cannot be read: {error}") from None
    known = source(slug(path.stem), found, kind, found.address or where or path.name)
    if not known.passages:
        scan = " If it is a scan, run text recognition first." if path.suffix.lower() == ".pdf" else ""
        raise BadInput(f"{path}: The file contains no text.{scan}")
    return known


def _reading(path: Path) -> Reading:
    match path.suffix.lower():
        case ".pdf":
            return _pdf(path)
        case ".html" | ".htm":
            return _html(path.read_text("utf-8-sig"), path.stem)
        case ".md" | ".markdown":
            return _markdown(path.read_text("utf-8-sig"), path.stem)
        case ".txt" | ".text":
            return _text(path.read_text("utf-8-sig"), path.stem)
    raise BadInput(f"{path}: Only PDF, Markdown, text and HTML files can be read ({', '.join(ENDINGS)}).")


def source(key: str, found: Reading, kind: SourceKind, where: str) -> Source:
    """Return the content of a document as passages with keys."""
    passages, links = list[Passage](), list(found.links)
    for block in found.blocks:
        is_table = block.text.lstrip().startswith("|")
        links += _links(block.text)
        text = quoted(block.text).strip()
        text = "\n".join(one_line(line) for line in text.splitlines()) if is_table else one_line(text)
        if len(text) > 1:
            name, heading = f"{key}-{len(passages) + 1}", _title(block.heading)
            passages.append(Passage(key=name, text=text, heading=heading, part=_title(block.part), page=block.page,
                                    table=is_table))  # fmt: skip
    unique = {(link.text, link.url): link for link in links}
    return Source(key=key, title=_title(found.title), kind=kind, where=one_line(where), passages=passages,
                  links=list(unique.values()))  # fmt: skip


def _title(text: str) -> str:
    text = one_line(quoted(text))
    return text if len(text) <= LONGEST_TITLE else f"{text[:LONGEST_TITLE]}…"


def _links(text: str) -> list[Link]:
    named = [Link(text=one_line(match[1]), url=match[2]) for match in _MARKDOWN_LINK.finditer(text)]
    bare = [match[0].rstrip(".,;:") for match in _BARE_LINK.finditer(_MARKDOWN_LINK.sub("", text))]
    return named + [Link(text="", url=url if url.startswith("http") else f"https://{url}") for url in bare]


def of_text(key: str, title: str, address: str, text: str) -> Source:
    """Return a page found by a search as a source."""
    return source(key, _markdown(text, title)._replace(title=title), "web", address)


# formats


def _pdf(path: Path) -> Reading:
    blocks: list[Block] = []
    with opened(path, str(path)) as document:
        for number in range(len(document)):
            try:
                text = page_text(document, number)
            except RuntimeError as error:
                raise BadInput(f"{path}: Page {number + 1} cannot be read: {error}") from None
            lines = [one_line(line) for line in text.split("\n")]
            heading = next((line for line in lines if line), "")
            blocks += [Block(text, heading, number + 1) for text in _joined(lines)]
    return Reading(blocks[0].text if blocks else path.stem, blocks)


def pages(path: Path) -> int:
    """Return the number of pages of a PDF, with or without text."""
    with opened(path, str(path)) as document:
        return len(document)


def _joined(lines: list[str]) -> Iterator[str]:
    """Yield lines as paragraphs: a sentence that continues on the next line is joined."""
    text = ""
    for line in [*lines, ""]:
        goes_on = bool(text) and bool(line) and text[-1] not in ".!?:" and not line[:1].isupper()
        if goes_on:
            text += f" {line}"
            continue
        if text:
            yield text
        text = line


def _text(text: str, name: str) -> Reading:
    blocks = [Block(part) for part in re.split(r"\n\s*\n", text) if part.strip()]
    first = blocks[0].text.strip() if blocks else ""
    if "\n" not in first and len(first) < 100 and len(blocks) > 1 and first[-1] not in ".!?":
        return Reading(first, [Block(block.text, first) for block in blocks[1:]])
    return Reading(name, blocks)


def _markdown(text: str, name: str) -> Reading:
    title, heading, blocks = "", "", list[Block]()
    for part in re.split(r"\n\s*\n|\n(?=#{1,6}\s)", text.replace("\r\n", "\n")):
        lines = part.strip().splitlines()
        while lines and (found := re.match(r"#{1,6}\s+(.*?)\s*#*$", lines[0])):
            heading, lines = one_line(unlinked(found[1])), lines[1:]
            title = title or heading
        blocks += [Block(each, heading) for each in _parts(lines)]
    return Reading(title or name, blocks)


def _parts(lines: list[str]) -> Iterator[str]:
    """Yield a table as one part, each list item as a part, and other lines as a paragraph."""
    held: list[str] = []
    for line in lines:
        begins = re.match(r"\s*(?:[-*+]|\d+\.)\s+", line)
        changes = bool(held) and line.lstrip().startswith("|") != held[-1].lstrip().startswith("|")
        if (begins or changes) and held:
            yield "\n".join(held)
            held = []
        held.append(line[begins.end() :] if begins else line)
    if held:
        yield "\n".join(held)


def _html(text: str, name: str) -> Reading:
    page = _Page()
    page.feed(text)
    page.close()
    page.end_block()
    return Reading(page.title or name, _headed(page.blocks), address=page.address)


def _headed(blocks: list[Block]) -> list[Block]:
    """Return blocks without the headings that stand on every page: each gets the heading before."""
    turns = [heading for heading, _ in groupby(block.heading for block in blocks)]
    running = {heading for heading, count in Counter(turns).items() if count >= RUNNING}
    found, last = list[Block](), ""
    for block in blocks:
        last = last if block.heading in running else block.heading
        found.append(block._replace(heading=last))
    return found


def _address(given: str | None) -> str:
    """Return a web address escaped for Markdown, or an empty string if it is not one."""
    if not (given or "").strip().startswith(("http://", "https://")):
        return ""
    return re.sub(r"[\s()<>\[\]\"]", lambda match: f"%{ord(match[0]):02X}", str(given).strip())


_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class _Page(HTMLParser):
    """A parser that turns HTML into blocks of Markdown: headings, paragraphs, list items, tables, links.

    Filings have no ``<h1>``: there, a short line in bold type is a heading.
    """

    BLOCKS = re.compile("p|div|section|article|li|blockquote|pre|table|ul|ol|dl|dd|dt|main|body|br|hr")
    LEFT_OUT = re.compile("script|style|nav|footer|form|noscript|template|svg|ix:header")
    BOLD = re.compile(r"font-weight:\s*(?:bold|[6-9]00)", re.IGNORECASE)
    RAISED = re.compile(r"vertical-align:\s*super|top:\s*-\d", re.IGNORECASE)
    INLINE = re.compile("b|strong|span|font|sup")

    def __init__(self) -> None:
        super().__init__()
        self.title = self.address = self.heading = self.units = self.part = ""
        self.blocks: list[Block] = []
        self.text: list[str] = []
        self.cell = Cell("")
        self.row: list[Cell] = []
        self.rows: list[list[Cell]] = []
        self.inside = ""
        self.silent = self.tables = 0
        self.bold: list[bool] = []
        self.raised: list[bool] = []
        self.light = ""
        self.link: tuple[str, int] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if self.LEFT_OUT.fullmatch(tag):
            self.silent += 1
        elif tag == "link" and given.get("rel") == "canonical":
            self.address = _address(given.get("href"))
        elif tag == "title" or re.fullmatch(r"h[1-6]", tag):
            self.end_block()
            self.inside = tag
        elif tag == "a" and (address := _address(given.get("href"))):
            self.link = address, len(self.text)
        elif tag in ("td", "th"):
            self.cell = Cell("", _span(given.get("colspan")), _span(given.get("rowspan")), tag == "th")
        elif self.BLOCKS.fullmatch(tag):
            self.end_block()
            self.tables += tag == "table"
        if self.INLINE.fullmatch(tag):
            style = given.get("style") or ""
            self.bold.append(tag in ("b", "strong") or bool(self.BOLD.search(style)))
            self.raised.append(tag == "sup" or bool(self.RAISED.search(style)))

    def handle_endtag(self, tag: str) -> None:
        if self.INLINE.fullmatch(tag) and self.bold:
            self.bold.pop()
            self.raised.pop()
        if self.LEFT_OUT.fullmatch(tag):
            self.silent = max(self.silent - 1, 0)
        elif tag == self.inside:
            self._headed(one_line("".join(self.text)))
        elif tag == "a" and self.link is not None:
            href, at = self.link
            words = one_line("".join(self.text[at:]))
            self.text[at:] = [f"[{words}]({href})" if words and not {"[", "]"} & {*words} else words]
            self.link = None
        elif tag in ("td", "th"):
            self.row.append(self.cell._replace(text=one_line("".join(self.text)).replace("|", "/")))
            self.text, self.light = [], ""
        elif tag == "tr":
            self.rows.append(self.row)
            self.row = []
        elif tag == "table":
            self.tables = max(self.tables - 1, 0)
            self._tabled()
        elif self.BLOCKS.fullmatch(tag):
            self.end_block()

    def _headed(self, text: str) -> None:
        self.title = self.title or text
        self.heading = text if self.inside != "title" else self.heading
        self.inside, self.text, self.light = "", [], ""

    def _tabled(self) -> None:
        found = table(self.rows, self.units)
        self.rows, self.row, self.text, self.light, self.units = [], [], [], "", ""
        if found.markdown:
            self._add(found.markdown)
        for text in found.texts:
            if not self._opens(text):
                self._add(text)

    def _add(self, text: str) -> None:
        self.blocks.append(Block(text, self.heading, part=self.part))

    def _opens(self, text: str, is_bold: bool = False) -> bool:
        """Return whether a line opens an item or a note of an annual report, and take it as the heading.

        A line with a full stop is a sentence, unless it is in bold type.
        """
        found = _ITEM.fullmatch(text)
        if found is None or (text.endswith(".") and not is_bold):
            return False
        self.heading = text.rstrip(".")
        self.part = self.heading if found[1].lower() == "item" else self.part
        return True

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.text.append(self._note(data) if any(self.raised) else data)
            self.light += "" if any(self.bold) else data.strip()

    def _note(self, data: str) -> str:
        """Return a raised number, which names a footnote, so that it is not read as a part of the year before it."""
        before = self.text[-1][-1:] if self.text else ""
        return f"{' ' if before.isdigit() else ''}{data.translate(_SUPERSCRIPT)}"

    def end_block(self) -> None:
        """End the current paragraph. Inside a table, a paragraph is a part of its cell."""
        if self.inside:
            return
        if self.tables:
            self.text.append(" ")
            return
        text, light = one_line("".join(self.text)).lstrip("•●▪ "), self.light
        self.text, self.light, self.link = [], "", None
        if UNITS.fullmatch(text):
            self.units = text
        elif len(text) < 2 or _PAGE_NUMBER.fullmatch(text) or self._opens(text, not light):
            return
        elif not light and len(text) <= LONGEST_TITLE and text[-1] not in ".;:," and _NAMES.search(text):
            self.heading = text
        else:
            self._add(text)
            leading = UNITS_OF_SENTENCE.fullmatch(text)
            self.units = leading[1] if leading else ""


def _span(given: str | None) -> int:
    """Return how many columns or rows a cell spans. Browsers limit it to 1,000 as well.

    >>> _span("3"), _span(None), _span("0"), _span("x"), _span("99999")
    (3, 1, 1, 1, 1000)
    """
    return min(max(int(given), 1), 1000) if given and given.strip().isdecimal() else 1
