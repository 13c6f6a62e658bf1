"""Divide a window of pages at its headings: the entries of an outline, or the lines that look like headings.

A window gives pieces. Text before the first heading of a window continues the last piece of the window before. Which of
the lines are headings, and of which level, is decided when the whole book has been read (`chapters`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from pydantic import BaseModel

from pausepoint.apps.pdf import Style
from pausepoint.apps.planner.headings import (
    aside,
    cleaned,
    is_bare,
    is_generic,
    key_of,
    label,
    names_a_chapter,
    reads_like_a_title,
    unaccented,
    unmarked,
)
from pausepoint.apps.planner.materials import MARKDOWN, RST, Bookmark, Page, fence_after
from pausepoint.apps.planner.models import Basis
from pausepoint.apps.planner.underlines import is_as_long, style_in_markup, without_markup

KEPT_TERMS = 12
LONGEST_HEADING = 100
A_RUNNING_HEADER, A_LINE = 10, 20
"""The most words above a heading that starts a page, and the fewest letters of a line that a title goes on from."""

A_FEW_PAGES = 3
"""A large line that more pages of a window have at their edge is a running header."""

A_GAP = 3
"""On a page that is mostly text, lines of contents are no further apart."""

LONG_TEXT = 1_500
"""Text of more words is divided at the end of the page, so that a long chapter can be read in parts."""

LARGER, A_GOOD_SHARE = 1.08, 0.08
"""A heading is at least this much larger than the text, or bold. Text is what has this share of all characters."""

_HASHES = re.compile(r"^(?P<level>#{1,6})\s+(?P<title>.+?)(?:\s+#+)?$")
_UNDERLINE = re.compile(r"^(=+|-{3,})$")
_OTHER_UNDERLINE = re.compile(r"^([*~^.+])\1{3,}$")
"""Lines that plain text has below titles, and Markdown does not. They are about as long as the title."""

_COLUMNS = re.compile(r"[^\W\d_]\w*[)%]?(?:\s{2,}|\s*\|\s*)\S")
"""The head of a table, whose columns have space or a bar between them."""

_CODE = re.compile(r"^(?: {4}| {0,3}\t)")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_SIGN = re.compile(r"[=+−∫∑∏√≤≥≠→⇒^∂∇∞×÷<>|{}\\πθλμσΔΣ]|\d+")
_TASK = re.compile(
    r"(?i)^\s*(?:(?:exercise|example|problem|question|übung|aufgabe|beispiel|frage|exercice|exemple|ejercicio|ejemplo)"
    r"\s+[\dA-Z]|(?:練習|問題?|例題?|练习|习题|问题)\s*\d)"
)
_TASKS = re.compile(
    r"(?i)\b(?:exercises|problems|questions|examples|übungen|übungsaufgaben|aufgaben|fragen|beispiele|exercices|exemples"
    r"|ejercicios|ejemplos)\b|練習|問題|例題|练习|习题|例题"
)
_LISTED = re.compile(r"^\s*(?:[-*•]\s+\S|\(?\d{1,3}[.)]\s+\S)")
_ENTRY = re.compile(r"(?:(?:\. ?){3,}|…|·{3,}|\s)\s*(?:\d{1,4}|[ivxlc]{1,7})$")
_DOTS = r"(?:(?:\. ?){4,}|…{2,}|·{4,})"
_DOTTED = re.compile(_DOTS)
_LEADS_TO_A_PAGE = re.compile(rf"(?:(?<=[^\s.…·])\s*{_DOTS}\s*[\divxlc]*|^{_DOTS}\s*[\divxlc]+)$")
_SENTENCE_END = (".", ",", ";", "?", "。", "、", "，", "；", "-")
_USUAL = """about above after again also although always among another because been before being below between both
    cannot chapter could does doing done down during each either else even ever every example exercise exercises figure
    find first following from further given gives have having hence here however into itself just know known large less
    like made make makes many might more most much must need never next none note number often once only other others
    over page part problem same second section several shall should show shown since small some such table take taken
    than that their them then there therefore these they thing this those three through thus time under until upon used
    using very well were what when where whether which while will with within without would write your"""
COMMON = frozenset(_USUAL.split())


class Piece(BaseModel):
    """The text from one heading to the next. Without a title it continues the previous piece. Pages start at 0.

    ``sure`` is false for a line that only looks like a heading; ``size`` and ``bold`` say how it looks. ``rule`` is the
    style of the lines of punctuation at a title whose level they say. ``at`` is the number of the piece in its window.
    """

    title: str = ""
    number: str = ""
    level: int = 0
    basis: Basis = "heading"
    sure: bool = True
    size: float = 0.0
    bold: bool = False
    rule: str = ""
    page: int = 0
    last: int = 0
    words: int = 0
    signs: int = 0
    tasks: int = 0
    terms: dict[str, int] = {}
    at: int = 0


class Entry(NamedTuple):
    """A line of the contents: the page it is on, counted from 0, its title, and the page number it says."""

    on: int
    title: str
    page: int


class Findings(BaseModel):
    """The pieces of one window. ``pictures`` are pages without text that show a picture; ``contents``: lists of contents.

    ``styles`` says how many characters have which size, and how many of them are bold.
    """  # noqa: E501

    pieces: list[Piece] = []
    pages: int = 0
    pictures: list[int] = []
    contents: list[int] = []
    entries: list[Entry] = []
    styles: dict[str, int] = {}


class Heading(NamedTuple):
    """A line that starts a piece."""

    title: str
    level: int
    basis: Basis = "heading"
    sure: bool = True
    style: Style = Style()
    number: str = ""
    rule: str = ""


def is_task(line: str, heading: str) -> bool:
    """Return whether a line begins an exercise or an example. A list is one only under such a heading.

    >>> is_task("Aufgabe 3", ""), is_task("1. Integrate x.", "Worked examples"), is_task("• A point", "Limits")
    (True, True, False)
    """
    return bool(_TASK.match(line) or (_LISTED.match(line) and _TASKS.search(heading)))


@dataclass
class _Open:
    """A piece that is being read."""

    heading: Heading | None
    page: int
    last: int
    words: int = 0
    signs: int = 0
    tasks: int = 0
    terms: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)

    @property
    def counts(self) -> bool:
        return bool(self.words or (self.heading and self.heading.title))

    @property
    def text(self) -> str:
        return "\n".join([self.heading.title, *self.lines] if self.heading else self.lines)

    def take(self, page: int, line: str) -> None:
        self.lines.append(line)
        if not line.strip():
            return
        self.last = page
        words = _WORD.findall(line)
        ideographs = len(CJK.findall(line))  # they have no spaces between words: two count as a word
        self.words += sum(not CJK.search(word) for word in words) + (ideographs + 1) // 2
        self.signs += len(_SIGN.findall(line))
        self.tasks += is_task(line, self.heading.title if self.heading else "")
        self.terms.update(word.lower() for word in words if len(word) > 3 and word.lower() not in COMMON)

    def closed(self) -> Piece:
        heading = self.heading or Heading("", 0)
        ranked = sorted(self.terms.items(), key=lambda term: (-term[1], term[0]))[:KEPT_TERMS]
        return Piece(
            title=heading.title, number=heading.number, level=heading.level, basis=heading.basis, sure=heading.sure,
            size=heading.style.size, bold=heading.style.bold, rule=heading.rule, page=self.page, last=self.last,
            words=self.words, signs=self.signs, tasks=self.tasks, terms=dict(ranked),
        )  # fmt: skip


def findings(pages: Sequence[Page], content_type: str, first: int, bookmarks: Sequence[Bookmark]) -> Findings:
    """Return the pieces of a window that starts at page ``first``. With an outline, other headings do not count."""
    found = Findings(pages=len(pages), styles=dict(_characters(pages).most_common(8)))
    found.pieces = [piece.closed() for piece in _divided(pages, content_type, first, bookmarks, found)]
    return found


def texts(pages: Sequence[Page], content_type: str, first: int, bookmarks: Sequence[Bookmark]) -> list[str]:
    """Return the text of each piece of a window, in the order of `findings`."""
    return [piece.text for piece in _divided(pages, content_type, first, bookmarks, Findings())]


def _divided(
    pages: Sequence[Page], content_type: str, first: int, bookmarks: Sequence[Bookmark], found: Findings
) -> list[_Open]:  # fmt: skip
    """Divide a window into pieces. Note its pictures and its lists of contents in ``found``."""
    pieces = [_Open(None, first, first)]
    usual = usual_style(_characters(pages))
    running = _running(pages) if usual.size else Counter[str]()
    for number, page in enumerate(pages, first):
        found.pictures += [number] if page.picture else []
        if pieces[-1].words > LONG_TEXT:
            pieces.append(_Open(None, number, number))
        if page.styles and _lists_contents(page.text, goes_on=found.contents[-1:] == [number - 1]):
            found.contents.append(number)
            found.entries += _entries(page.text, number)
            page = _after_contents(page, usual, found.entries)
        for line in _lines(page, number, content_type, bookmarks, usual, running):
            if isinstance(line, Heading):
                pieces.append(_Open(line, number, number))
            else:
                pieces[-1].take(number, line)
        pieces[-1].last = number if page.picture else pieces[-1].last
    return [piece for piece in pieces if piece.counts]


def _lines(
    page: Page, number: int, content_type: str, bookmarks: Sequence[Bookmark], usual: Style, running: Counter[str]
) -> Iterator[str | Heading]:  # fmt: skip
    if bookmarks:
        return _marked(page.text, [mark for mark in bookmarks if mark.page == number])
    return _styled(page, usual, running) if usual.size else _headed(page, content_type)


# with an outline


def _marked(text: str, marks: Sequence[Bookmark]) -> Iterator[str | Heading]:
    """Yield the lines of a page, with outline entries at the lines of their titles or else at the top."""
    lines = text.split("\n")
    keys = ["" if _LEADS_TO_A_PAGE.search(line.strip()) else key_of(line) for line in lines] if marks else []
    placed: dict[int, list[Heading]] = {}
    after = 0
    for mark in marks:
        title = key_of(mark.title)
        begun = next((at for at in range(after, len(keys)) if _begins(title, keys[at])), None)
        within = next((at for at in range(after, len(keys)) if title and title in keys[at]), after)
        after = within if begun is None else begun
        number = label(mark.title).number or (label(lines[after]).number if begun is not None else "")
        top = after if placed or len(" ".join(lines[:after]).split()) > A_RUNNING_HEADER else 0
        shown = _accented(mark.title, lines[after]) if begun is not None else mark.title
        part = _part_above(lines[:after]) if begun is not None else ""
        shown = f"{part}: {shown}" if part else shown
        placed.setdefault(top, []).append(Heading(shown, mark.level, "outline", number=number))
    for at, line in enumerate(lines):
        yield from placed.get(at, ())
        yield line


def _accented(title: str, line: str) -> str:
    """Return the line of a title if it differs only in its accents."""
    shown = cleaned(line)
    same = unaccented(label(shown).title) == unaccented(label(title).title)
    return shown if same and not shown.isascii() and title.isascii() else title


def _part_above(lines: Sequence[str]) -> str:
    """Return the number of a part that stands in a line of its own above the title, as LaTeX sets it, or nothing."""
    above = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return above if label(above).kind == "part" and is_bare(above) else ""


def _begins(title: str, line: str) -> bool:
    """Return whether a line is a title, or the first line of a long one."""
    return title == line or (len(line) > A_LINE and title.startswith(line))


# text, Markdown and reStructuredText


def _headed(page: Page, content_type: str) -> Iterator[str | Heading]:
    lines = page.text.split("\n")
    following = [*lines[1:-1], page.after, ""] if len(lines) > 1 and not lines[-1] else [*lines[1:], ""]
    return headed(zip([page.before, *lines], lines, following, strict=False), content_type, page.fence)


def headed(
    lines: Iterable[tuple[str, str, str]], content_type: str, fence: str = ""
) -> Iterator[str | Heading]:  # fmt: skip
    """Yield the lines of a text, and a heading for each that is one. Each line comes with the lines around it.

    ``fence``: the code fence of Markdown that is open before the first line.
    """
    titled = -3
    for at, (before, line, after) in enumerate(lines):
        was_open, fence = fence, fence_after(fence, line) if content_type == MARKDOWN else ""
        above = "" if titled == at - 2 else before  # the rule below a title is not that above the next one
        heading = None if was_open or fence else _heading(above, line.rstrip(), after, content_type)
        titled = at if heading is not None and heading.sure else titled
        yield heading if heading is not None else line


def _heading(before: str, line: str, after: str, content_type: str) -> Heading | None:
    if content_type == RST:
        rule = style_in_markup(before, line, after)
        return Heading(without_markup(line), 0, rule=rule) if rule else None
    if content_type == MARKDOWN and _CODE.match(line):
        return None
    before, line, after = before.strip(), line.strip(), after.strip()
    if content_type == MARKDOWN and (found := _HASHES.match(line)):
        return Heading(unmarked(found["title"]), len(found["level"]) - 1)
    if content_type == MARKDOWN and _is_underlined(before, line, after):
        return Heading(unmarked(line), 0 if after[0] == "=" else 1)
    if content_type != MARKDOWN and _is_ruled(before, line, after):
        return Heading(line, 0, rule=after[0] * (2 if before == after else 1))
    if content_type == MARKDOWN and (before or not names_a_chapter(line)):
        return None
    return Heading(line, label(line).depth, sure=False) if _is_numbered(line) else None


def _is_underlined(before: str, line: str, after: str) -> bool:
    """Return whether a line is a heading because of the rule below it, and not the head of a table or a last line.

    >>> _is_underlined("", "Eels", "-----"), _is_underlined("", "Year   Eels", "-----------")
    (True, False)
    >>> _is_underlined("and crabs", "are for later.", "-----"), _is_underlined("-----", "Eels", "-----")
    (False, True)
    """
    if not line or len(line) > 90 or _UNDERLINE.match(line) or not _UNDERLINE.match(after) or _COLUMNS.search(line):
        return False
    return after[0] == "=" or not before or (before == after and len(after) >= len(line))


def _is_ruled(before: str, line: str, after: str) -> bool:
    """Return whether a line of plain text is a heading because of the line of punctuation below it. A command is none.

    >>> _is_ruled("", "Eels", "****"), _is_ruled("", "Eels", "-" * 60), _is_ruled("", "Here is the end.", "-" * 60)
    (True, True, False)
    """
    if line.startswith("$ "):
        return False
    if _OTHER_UNDERLINE.match(after):
        heads = line and not _OTHER_UNDERLINE.match(line) and not _COLUMNS.search(line) and before in ("", after)
        return bool(heads) and is_as_long(after, line)
    return _is_underlined(before, line, after) and (not line.endswith(_SENTENCE_END) or is_as_long(after, line))


def _is_numbered(line: str) -> bool:
    """Return whether a line in the style of the text may be a heading because of its number."""
    if not 1 < len(line) <= 90 or line.endswith((*_SENTENCE_END, ":", "!")) or _DOTTED.search(line):
        return False
    if names_a_chapter(line):
        return len(line.split()) <= 14 and reads_like_a_title(line)
    found = label(line)
    numbered = found.kind == "numbered" and len(line.split()) <= 9 and not found.title[0].islower()
    return numbered and reads_like_a_title(line)


# a PDF without an outline


def _characters(pages: Sequence[Page]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for page in pages:
        for line, style in zip(page.text.split("\n"), page.styles, strict=False):
            counted[f"{style.size}{'b' if style.bold else ''}"] += len(line)
    return counted


def style_of(name: str) -> Style:
    """Return a style from its name in `Findings.styles`.

    >>> style_of("10.5b")
    Style(size=10.5, bold=True)
    """
    return Style(float(name.rstrip("b")), name.endswith("b"))


def usual_style(characters: Counter[str]) -> Style:
    """Return the style of the text: the largest in which a good share of it is set."""
    enough = A_GOOD_SHARE * characters.total()
    return max((style_of(name) for name, count in characters.items() if count >= enough), default=Style())


def stands_out(style: Style, usual: Style) -> bool:
    """Return whether a line is larger than the text, or bold where the text is not."""
    larger = style.size >= LARGER * usual.size
    return larger or (style.bold and not usual.bold and style.size >= 0.95 * usual.size)


def _running(pages: Sequence[Page]) -> Counter[str]:
    """Return how many pages have a line at their top or bottom, without its numbers."""
    counted: Counter[str] = Counter()
    for page in pages:
        lines = [line for line in page.text.split("\n") if line.strip()]
        counted.update({_undated(line) for line in (*lines[:2], *lines[-2:])})
    return counted


def _runs(line: str, style: Style, usual: Style, running: Counter[str]) -> bool:
    """Return whether a line at the edge of a page is a running header or a page number, and no heading."""
    shown = _undated(line)
    if style.size < LARGER * usual.size:
        return not shown or running[shown] > 1
    return running[shown] > A_FEW_PAGES and label(line).kind == "plain"


def _undated(line: str) -> str:
    return " ".join(re.sub(r"\d+|^[ivxlc]+\b|\b[ivxlc]+$", "", line).casefold().split())


def _lists_contents(text: str, goes_on: bool) -> bool:
    """Return whether a page is a table of contents: most of its lines end in a page number, after dots or a title.

    Below the title, some lines with dots are enough: the first chapter may start on the page.
    ``goes_on``: the page before is one.
    """
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    dotted = sum(_LEADS_TO_A_PAGE.search(line) is not None for line in lines)
    entries = sum(_ENTRY.search(line) is not None for line in lines)
    titled = goes_on or any(aside(line, 0) == "contents" for line in lines[:3])
    if dotted >= max(4, len(lines) * 0.35):
        return True
    return titled and (dotted >= 4 or entries >= max(2, len(lines) * 0.4))


def _entries(text: str, number: int) -> list[Entry]:
    """Return the entries of a page of contents whose page numbers are not Roman."""
    matches = (re.search(r"\d{1,4}$", line.strip()) for line in text.split("\n") if _ENTRY.search(line.strip()))
    return [Entry(number, cleaned(match.string[: match.start()]), int(match[0])) for match in matches if match]


def _after_contents(page: Page, usual: Style, entries: Sequence[Entry]) -> Page:
    """Return the rest of a page on which contents end and the first chapter starts, or most of which is text."""
    lines = list(zip(page.text.split("\n"), page.styles, strict=True))
    ends = [at for at, (line, _) in enumerate(lines) if _ENTRY.search(line)]
    breaks = [at for at, after in pairwise(ends) if after - at > A_GAP and 2 * len(ends) < len(lines)]
    last = breaks[0] if breaks else max(ends, default=-1)  # in a text, a line may end with a number
    listed = {key_of(entry.title) for entry in entries}
    begun = (
        at for at in range(last + 1, len(lines))
        if stands_out(lines[at][1], usual) and (label(lines[at][0]).number or key_of(lines[at][0]) in listed)
    )  # fmt: skip
    rest = lines[next(begun, len(lines) if len(lines) < 2 * (last + 1) else last + 1) :]
    return Page("\n".join(line for line, _ in rest), tuple(style for _, style in rest))


def _styled(page: Page, usual: Style, running: Counter[str]) -> Iterator[str | Heading]:
    """Yield the lines of a page. A line that stands out may be a heading, together with the lines that continue it."""
    lines = page.text.split("\n")
    waiting: Heading | None = None
    ends_in = Style()
    for at, (line, style) in enumerate(zip(lines, page.styles, strict=False)):
        if (at < 2 or at >= len(lines) - 2) and _runs(line, style, usual, running):
            continue
        heading = _possible(line, style, usual)
        if waiting is not None and heading is not None and _goes_on(waiting, ends_in, heading):
            waiting, ends_in = waiting._replace(title=f"{waiting.title} {heading.title}"), heading.style
            continue
        if waiting is not None:
            yield waiting
        waiting, ends_in = heading, style
        if heading is None:
            yield line
    if waiting is not None:
        yield waiting


def _possible(line: str, style: Style, usual: Style) -> Heading | None:
    if len(line) > LONGEST_HEADING or _DOTTED.search(line):
        return None
    found = label(line)
    if stands_out(style, usual) and (found.number or not line.endswith((*_SENTENCE_END, ":"))):
        shown = re.split(r"(?<=[^\W\d_)]{2})\. (?=\S)", line)[0] if found.number else line  # a sentence may follow
        return Heading(shown, found.depth, sure=False, style=style) if reads_like_a_title(shown) else None
    return Heading(line, found.depth, sure=False, style=Style(style.size)) if _is_numbered(line) else None


def _goes_on(heading: Heading, ends_in: Style, line: Heading) -> bool:
    """Return whether a line continues a heading: in the style of its last line, or as the title of a bare number.

    Below the title of the book, `Introduction` is the first chapter.
    """
    if label(line.title).number:
        return False
    same = line.style == ends_in and len(heading.title) + len(line.title) < 2 * LONGEST_HEADING
    starts = is_generic(line.title) and not label(heading.title).number
    return is_bare(heading.title) or (same and ends_in.size > 0 and not starts)
