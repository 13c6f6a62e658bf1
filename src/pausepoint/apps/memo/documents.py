"""Documents as sources: PDF, Markdown, text and HTML become passages that can be cited, with the links in them.

A passage is a paragraph, or a table as a whole. Where it stands is kept: the page of a PDF, the heading above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

from pausepoint.apps.input import BadInput
from pausepoint.apps.memo.models import Link, Passage, Source, SourceKind
from pausepoint.apps.memo.prose import quoted, slug, unlinked
from pausepoint.apps.pdf import opened, page_text
from pausepoint.apps.words import one_line

ENDINGS = (".pdf", ".md", ".markdown", ".txt", ".text", ".html", ".htm")
LARGEST, LARGEST_PDF = 16 * 2**20, 512 * 2**20
"""Bytes of a document. A larger one is no reading for a memo; most of a PDF are pictures."""

_MARKDOWN_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\((https?://[^\s()<>]+(?:\([^\s()<>]*\))?)\)")
_BARE_LINK = re.compile(r"(?<!\()\bhttps?://[^\s()<>\"'|]+|\b(?:www\.)?linkedin\.com/in/[\w-]+", re.IGNORECASE)
LONGEST_TITLE = 120


class Block(NamedTuple):
    """A paragraph with the heading above it, or the page that it is on."""

    text: str
    heading: str = ""
    page: int | None = None


class Reading(NamedTuple):
    """A document as it was read."""

    title: str
    blocks: list[Block]
    links: tuple[Link, ...] = ()
    address: str = ""


def listed(folder: Path) -> list[Path]:
    """The documents of a folder and of those in it, in order. Hidden ones are none."""
    found = [path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file()]
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def read(path: Path, kind: SourceKind = "document", where: str | None = None) -> Source:
    """A document as a source. `BadInput` names one that cannot be read, and says why."""
    try:
        size = path.stat().st_size
        if not size:
            raise BadInput(f"{path}: the file is empty")
        most = LARGEST_PDF if path.suffix.lower() == ".pdf" else LARGEST
        if size > most:
            raise BadInput(f"{path}: {size:,} bytes are too many; at most {most:,} are read")
        found = _reading(path)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: byte {error.start} is no UTF-8; save the text as UTF-8") from None
    except AssertionError as error:  # of the parser of HTML, about a declaration that is none
        raise BadInput(f"{path}: the HTML cannot be read: {error}") from None
    known = source(slug(path.stem), found, kind, found.address or where or path.name)
    if not known.passages:
        scan = "; a scan has to go through text recognition first" if path.suffix.lower() == ".pdf" else ""
        raise BadInput(f"{path}: there is no text in it{scan}")
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
    raise BadInput(f"{path}: only PDF, Markdown, text and HTML can be read ({', '.join(ENDINGS)})")


def source(key: str, found: Reading, kind: SourceKind, where: str) -> Source:
    """What was read, as passages with keys."""
    passages, links = list[Passage](), list(found.links)
    for block in found.blocks:
        is_table = block.text.lstrip().startswith("|")
        links += _links(block.text)
        text = quoted(block.text).strip()
        text = "\n".join(one_line(line) for line in text.splitlines()) if is_table else one_line(text)
        if len(text) > 1:
            name, heading = f"{key}-{len(passages) + 1}", _title(block.heading)
            passages.append(Passage(key=name, text=text, heading=heading, page=block.page, table=is_table))
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
    """A page that a search has found."""
    return source(key, _markdown(text, title)._replace(title=title), "web", address)


# formats


def _pdf(path: Path) -> Reading:
    blocks: list[Block] = []
    with opened(path, str(path)) as document:
        for number in range(len(document)):
            try:
                text = page_text(document, number)
            except RuntimeError as error:
                raise BadInput(f"{path}: page {number + 1} cannot be read: {error}") from None
            lines = [one_line(line) for line in text.split("\n")]
            heading = next((line for line in lines if line), "")
            blocks += [Block(text, heading, number + 1) for text in _joined(lines)]
    return Reading(blocks[0].text if blocks else path.stem, blocks)


def pages(path: Path) -> int:
    """How many pages a PDF has, with or without text."""
    with opened(path, str(path)) as document:
        return len(document)


def _joined(lines: list[str]) -> Iterator[str]:
    """Lines as paragraphs: one that goes on in the next line is put together again."""
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
    """A table as a whole, the items of a list one by one, all else as a paragraph."""
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
    return Reading(page.title or name, page.blocks, address=page.address)


def _address(given: str | None) -> str:
    """An address of the web as Markdown can hold it; empty if it is none."""
    if not (given or "").strip().startswith(("http://", "https://")):
        return ""
    return re.sub(r"[\s()<>\[\]\"]", lambda match: f"%{ord(match[0]):02X}", str(given).strip())


class _Page(HTMLParser):
    """HTML as blocks of Markdown: headings, paragraphs, items, tables, links."""

    BLOCKS = re.compile("p|div|section|article|li|blockquote|pre|table|ul|ol|dl|dd|dt|main|body|br")
    LEFT_OUT = re.compile("script|style|nav|footer|form|noscript|template|svg")

    def __init__(self) -> None:
        super().__init__()
        self.title = self.address = self.heading = ""
        self.blocks: list[Block] = []
        self.text: list[str] = []
        self.row: list[str] = []
        self.rows: list[list[str]] = []
        self.inside = ""
        self.silent = 0
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
        elif self.BLOCKS.fullmatch(tag):
            self.end_block()

    def handle_endtag(self, tag: str) -> None:
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
            self.row.append(one_line("".join(self.text)).replace("|", "/"))
            self.text = []
        elif tag == "tr":
            self.rows.append(self.row)
            self.row = []
        elif tag == "table":
            self._tabled()
        elif self.BLOCKS.fullmatch(tag) and not self.rows and not self.row:
            self.end_block()

    def _headed(self, text: str) -> None:
        self.title = self.title or text
        self.heading = text if self.inside != "title" else self.heading
        self.inside, self.text = "", []

    def _tabled(self) -> None:
        rows = [row for row in self.rows if any(row)]
        self.rows, self.row, self.text = [], [], []
        if len(rows) > 1:
            lines = [f"| {' | '.join(row)} |" for row in rows]
            self.blocks.append(Block("\n".join([lines[0], f"|{'---|' * len(rows[0])}", *lines[1:]]), self.heading))

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.text.append(data)

    def end_block(self) -> None:
        """A paragraph has ended."""
        if self.inside or self.rows or self.row:
            return
        text, self.text, self.link = one_line("".join(self.text)), [], None
        if text:
            self.blocks.append(Block(text, self.heading))
