"""Make topics from the pieces of a whole book: its chapters, in its order.

Parts are containers of chapters. A chapter that is too large for one topic becomes several, by its sections. What is
not studied, such as the index, is set aside with the reason.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from pausepoint.apps.planner.headings import Kind, aside, is_generic, label, unaccented
from pausepoint.apps.planner.levels import AN_ENTRY, contents_of, levels
from pausepoint.apps.planner.models import Basis, Section, SetAside, Study
from pausepoint.apps.planner.topics import Findings, Piece

LARGEST, SPLIT_INTO = 15_000, 9_000
"""A chapter of more words than the first number becomes several topics of about as many words as the second."""

LONG_SECTION = 3_000
SHORT_TEXT, A_FEW_WORDS, A_TITLE_WORDS, A_LONG_PREFACE = 40, 15, 100, 1_500
MANY, SMALL, GROUPED = 60, 400, 2_000
"""A file with so many chapters of fewer words each has topics of several chapters. So has a part of small chapters."""

FRONT, A_SHORT_FRONT, EARLY = 0.2, 6, 0.3
"""The largest share of a PDF that is set aside because it comes before the first chapter, how many pages it may be in a
short one, and the share in which lists of page numbers are its contents rather than its index."""

MOST = 2 / 3
"""A heading without a number that has this share of the words is not a chapter of the book, but what they stand in."""

_ROMANS = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X")

SCAN = 3
"""From so many pages without text on, a file counts as read in part. Fewer are covers and figures."""

NO_TEXT = "next to no text"
OCR = "run OCR first, for example with ocrmypdf, and add the result"


@dataclass
class Topic:
    """A topic to learn, with its sections in the order of the book, and the chunks in which it was found.

    ``places`` has the pieces of its text: their chunks, and their numbers in them. ``exams`` is the number of old exams
    of its course, ``asked`` how many of them ask about it.
    """

    title: str
    basis: Basis
    pages: int = 0
    words: int = 0
    signs: int = 0
    tasks: int = 0
    chunks: list[str] = field(default_factory=list)
    terms: Counter[str] = field(default_factory=Counter)
    sections: list[Section] = field(default_factory=list)
    places: list[tuple[str, int]] = field(default_factory=list)
    study: Study | None = None
    exams: int = 0
    asked: int = 0

    def add(self, found: Topic) -> None:
        """Add the same topic from another place."""
        self.pages += found.pages
        self.words += found.words
        self.signs += found.signs
        self.tasks += found.tasks
        self.terms.update(found.terms)
        self.chunks += [chunk for chunk in found.chunks if chunk not in self.chunks]
        self.sections += found.sections
        self.places += found.places
        studies = [each for each in (self.study, found.study) if each]
        self.study = Study.joined(studies) if studies else None

    def best_terms(self, count: int) -> list[str]:
        """Return the most frequent terms."""
        ranked = sorted(self.terms.items(), key=lambda term: (-term[1], term[0]))
        return [term for term, _ in ranked[:count]]


@dataclass
class Book:
    """What a file contains: its topics, what is set aside, and the pages that have no text."""

    topics: list[Topic] = field(default_factory=list)
    set_aside: list[SetAside] = field(default_factory=list)
    pages: int = 0
    scanned: list[int] = field(default_factory=list)

    @property
    def unread(self) -> str | None:
        """What could not be read because it is a picture, with the remedy. Covers and single figures do not count."""
        return f"no text on {spans(self.scanned)}; {OCR}" if self._is_scan() else None

    @property
    def is_all_scan(self) -> bool:
        """Whether no page with text is left to study."""
        return bool(self.scanned) and not any(topic.words for topic in self.topics)

    def _is_scan(self) -> bool:
        return len(self.scanned) >= SCAN or self.is_all_scan


@dataclass
class _Node:
    """A heading with the text up to the next one, and the headings below it."""

    title: str
    number: str
    kind: Kind
    level: int
    basis: Basis
    own: list[tuple[str, Piece]] = field(default_factory=list)
    below: list[_Node] = field(default_factory=list)

    def every(self) -> list[tuple[str, Piece]]:
        return [*self.own, *(each for node in self.below for each in node.every())]

    @property
    def words(self) -> int:
        return sum(piece.words for _, piece in self.every())

    @property
    def page(self) -> int:
        return self.every()[0][1].page

    @property
    def own_words(self) -> int:
        return sum(piece.words for _, piece in self.own)


def book_of(
    found: dict[str, Findings], filename: str, paged: bool, is_chapter: bool = False, chapter: str = "",
    is_last: bool = False,
) -> Book:  # fmt: skip
    """Return the book that the findings of a file's chunks make, in order. ``paged``: its pages have numbers.

    ``is_chapter``: the file is one of several that make a book, so its only heading of the highest level is a chapter.
    ``chapter``: all of the file is one chapter, up to the size of a topic. It has this title unless the text has one.
    ``is_last``: it is the last one.
    """
    pieces = [
        (chunk, piece.model_copy(update={"at": at}))
        for chunk, each in found.items()
        for at, piece in enumerate(each.pieces)
    ]
    book = Book(pages=sum(each.pages for each in found.values()))
    book.scanned = [page for each in found.values() for page in each.pictures]
    styles = Counter({name: 0 for each in found.values() for name in each.styles})
    for each in found.values():
        styles.update(each.styles)
    contents = [page for each in found.values() for page in each.contents]
    early = [page for page in contents if page <= max(book.pages * EARLY, 10)]
    listed = contents_of([piece for _, piece in pieces])
    numbered = [entry for each in found.values() for entry in each.entries if entry.on in early]
    front = max(early, default=-1) + 1
    heads = levels([piece for _, piece in pieces], styles, max(book.pages, 1), front, listed, numbered)
    before, nodes = _nodes(pieces, heads)
    entries = [pieces[at] for at in sorted(listed) if at < len(before) and pieces[at][1].words < AN_ENTRY]
    before = [each for each in before if each not in entries]
    maker = _Maker(filename, paged, book, is_chapter)
    maker.put_aside("Contents", [*early, *_pages(entries)], "contents")
    maker.put_aside("Lists of page numbers", set(contents) - set(early), "index")
    if chapter and sum(piece.words for _, piece in pieces) <= LARGEST:
        maker.whole(chapter, before, _tree(nodes), is_last)
    else:
        maker.front(before, bool(nodes))
        maker.chapters(_tree(nodes))
    book.topics = _told_apart(_worth(book.topics))
    maker.put_aside("Pages without text", book.scanned, f"no text; {OCR}" if book.unread else "a picture without text")
    return book


def put_stubs_aside(files: Mapping[str, Book]) -> None:
    """Set the chapters with next to no text aside, unless no chapter of the book has more. The keys are file names."""
    longest = max((topic.words for book in files.values() for topic in book.topics), default=0)
    for filename, book in files.items():
        if longest >= A_FEW_WORDS > sum(topic.words for topic in book.topics):
            book.set_aside += [SetAside(filename=filename, title=each.title, why=NO_TEXT) for each in book.topics]
            book.topics = []


def spans(pages: Iterable[int]) -> str:
    """Return page numbers, counted from 0, as a person reads them.

    >>> spans([0, 1, 2, 6]), spans([4])
    ('pages 1-3, 7', 'page 5')
    """
    runs = _runs(sorted(set(pages)))
    told = ", ".join(f"{first + 1}-{last + 1}" if last > first else str(first + 1) for first, last in runs)
    return f"page{'s' if len(runs) > 1 or any(last > first for first, last in runs) else ''} {told}"


def _runs(pages: Sequence[int]) -> list[tuple[int, int]]:
    starts = [page for before, page in pairwise([-2, *pages]) if page != before + 1]
    ends = [page for page, after in pairwise([*pages, -2]) if after != page + 1]
    return list(zip(starts, ends, strict=True))


# headings


def _nodes(
    pieces: Sequence[tuple[str, Piece]], heads: Sequence[int | None]
) -> tuple[list[tuple[str, Piece]], list[_Node]]:
    """Return the text before the first heading, and the headings with their own text."""
    before: list[tuple[str, Piece]] = []
    nodes: list[_Node] = []
    for (chunk, piece), level in zip(pieces, heads, strict=True):
        if level is not None:
            said = label(piece.title)
            nodes.append(_Node(said.title or "Untitled", piece.number or said.number, said.kind, level, piece.basis))
        (nodes[-1].own if nodes else before).append((chunk, piece))
    return before, nodes


def _tree(nodes: Iterable[_Node]) -> list[_Node]:
    """Put each heading below the one it belongs to. A number such as 3.1 says more than the level of an outline."""
    roots: list[_Node] = []
    stack: list[_Node] = []
    for node in nodes:
        owner = next((at for at, each in enumerate(stack) if _contains(each, node)), None)
        keep = next((at for at, each in enumerate(stack) if each.level >= node.level), len(stack))
        stack = stack[: keep if owner is None else max(owner + 1, min(keep, len(stack)))]
        if owner is not None and not _contains(stack[-1], node) and stack[-1].level >= node.level:
            stack = stack[: owner + 1]
        (stack[-1].below if stack else roots).append(node)
        stack.append(node)
    _unwrap(roots)
    _take_parts(roots)
    _letter(roots)
    return roots


def _unwrap(siblings: list[_Node]) -> None:
    """Replace titles that have nothing below them but the numbered title of the same chapter, if most are like this."""
    wraps = [
        not node.number and len(node.below) == 1 and node.below[0].number.isdecimal() and node.own_words < A_FEW_WORDS
        for node in siblings
    ]
    if sum(wraps) > 1 and sum(wraps) * 2 > len(siblings):
        siblings[:] = [node.below[0] if is_wrap else node for node, is_wrap in zip(siblings, wraps, strict=True)]
    for node in siblings:
        _unwrap(node.below)


def _contains(above: _Node, node: _Node) -> bool:
    return bool(above.number) and node.number.startswith(f"{above.number}.")


def _take_parts(siblings: Sequence[_Node]) -> None:
    """Take titles above numbered chapters for parts: `I Foundations`, `II Practice`, or all whose chapters count on."""
    above = [(node, [int(each.number) for each in node.below if each.number.isdecimal()]) for node in siblings]
    parts = [(node, numbers) for node, numbers in above if numbers and not node.number.isdecimal()]
    counts_on = all(after[0] == before[-1] + 1 for (_, before), (_, after) in pairwise(parts))
    matches = [re.match(r"([IVXL]+)[.:]?\s+(\S.*)", node.title) for node, _ in parts]
    romans = [match[1] for match in matches if match]
    if len(parts) > 1 and (counts_on or romans == list(_ROMANS[: len(parts)])):
        for (node, _), match in zip(parts, matches, strict=True):
            node.kind = "part"
            if match and not node.number:
                node.number, node.title = match[1], match[2]


def _letter(siblings: Sequence[_Node]) -> None:
    """Take the letters of appendices (`A A sample session`, `B Invoking R`) for numbers."""
    lettered = [(node, re.match(r"([A-Z])\s+([^\W_].*)", node.title)) for node in siblings if not node.number]
    found = [(node, match[1], match[2]) for node, match in lettered if match]
    in_order = "".join(letter for _, letter, _ in found) == "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(found)]
    if in_order and (len(found) > 1 or any(node.number.isdecimal() for node in siblings)):
        for node, letter, title in found:
            node.number, node.title = letter, title


# topics


class _Maker:
    """Makes the topics of one file."""

    def __init__(self, filename: str, paged: bool, book: Book, is_chapter: bool) -> None:
        self.filename, self.paged, self.book, self.is_chapter = filename, paged, book, is_chapter
        self.words = 0

    def put_aside(self, title: str, pages: Iterable[int], why: str) -> None:
        """Note pages that are not studied."""
        for first, last in _runs(sorted(set(pages))):
            span = {"first_page": first + 1, "last_page": last + 1} if self.paged else {}
            self.book.set_aside.append(SetAside(filename=self.filename, title=title, why=why, **span))

    def front(self, pieces: Sequence[tuple[str, Piece]], headed: bool) -> None:
        """Set the pages before the first chapter aside. A text that has no chapters is named by its words."""
        few = max(FRONT * self.book.pages, min(A_SHORT_FRONT, self.book.pages / 3))
        if headed and self.paged and len(_pages(pieces)) <= few:
            if pieces:
                self.put_aside("Pages before the first chapter", _pages(pieces), "title, contents and the like")
            return
        for chunk in dict.fromkeys(chunk for chunk, _ in pieces):
            mine = [each for each in pieces if each[0] == chunk]
            self._add(Topic("", "terms"), mine, [self._section("", "", mine)])

    def chapters(self, roots: list[_Node]) -> None:
        """Make the topics of all chapters."""
        self.words = sum(node.words for node in roots)
        _divide_most_of_the_book(roots)
        titled = not (self.paged or self.is_chapter) and _begins_with_title(roots)
        nodes = self._studied([*self._opened(roots[0]), *roots[1:]] if titled else roots)
        while len(nodes) == 1 and _is_title(nodes[0]) and not (self.is_chapter and nodes[0].words <= LARGEST):
            nodes = self._studied(self._opened(nodes[0]))
        if len(nodes) > MANY and _usual_size(nodes) < SMALL:
            for group in _groups(nodes, GROUPED):
                self._topic(_span(group), group)
            return
        for node in nodes:
            self._chapter(node, "")

    def whole(self, title: str, before: list[tuple[str, Piece]], roots: list[_Node], is_last: bool) -> None:
        """Make one topic of the file, which is a chapter of a book."""
        node = _named_by_first(roots) or _Node(title, "", "plain", -1, "heading", [], list(roots))
        node.own[:0] = before
        why = aside(node.title, float(is_last)) or ("" if node.words else NO_TEXT)
        if why:
            self.put_aside(node.title, _pages(node.every()) or [0], why)
            return
        for section in list(node.below):
            if reason := aside(section.title, 0.0):
                self.put_aside(section.title, _pages(section.every()) or [0], reason)
                node.below.remove(section)
        self._cut_tail(node)
        self._chapter(node, "")

    def _studied(self, nodes: Sequence[_Node]) -> list[_Node]:
        """Return the chapters. Parts are replaced by their chapters; the rest is set aside.

        Some outlines have the chapters below the contents or the title page.
        """
        found: list[_Node] = []
        for node, why in zip(nodes, self._asides(nodes), strict=True):
            if why and sum(each.words for each in node.below) * 2 > self.words:
                found += self._studied(node.below)
            elif why:
                self.put_aside(node.title, _pages(node.every()) or [node.page], why)
            elif node.kind == "part" and node.below and _usual_size(node.below) >= SMALL:
                found += self._studied(self._opened(node))
            else:
                self._cut_tail(node)
                found.append(node)
        return found

    def _cut_tail(self, node: _Node) -> None:
        """Set aside what has no number, ends a chapter and belongs to the book: its references, thanks."""
        while node.below and not node.below[-1].number:
            last = node.below[-1]
            why = aside(last.title, last.page / max(self.book.pages, 1))
            if why is None:
                break
            self.put_aside(last.title, _pages(last.every()) or [last.page], why)
            node.below.pop()
        if node.below:
            self._cut_tail(node.below[-1])

    def _asides(self, nodes: Sequence[_Node]) -> list[str | None]:
        """Return why each chapter is set aside, or None. The end of a book begins where nothing but asides follows."""
        found: list[str | None] = []
        at_the_end = True
        for node in reversed(nodes):
            position = 1.0 if at_the_end or not self.paged else node.page / max(self.book.pages, 1)
            found.append(aside(node.title, position))
            at_the_end = at_the_end and found[-1] is not None
        return found[::-1]

    def _opened(self, node: _Node) -> list[_Node]:
        """Return what is below a heading. Its own text stays a topic if it is more than a title."""
        if node.own_words < A_TITLE_WORDS:
            return node.below
        own = _Node(node.title, node.number, "plain", node.level, node.basis, node.own)
        return [own, *node.below]

    def _chapter(self, node: _Node, within: str) -> None:
        """Make a topic of a chapter, or several if it is too large for one."""
        title = _within(within, node.title)
        if node.words <= LARGEST:
            self._topic(title, [node])
            return
        own = _own(node)
        if node.below and not own:  # the topic starts at the title of the chapter, not at that of its first section
            node.below[0].own[:0] = node.own
            node.own = []
        parts = [*own, *node.below] if len(node.below) > 1 else _halves(node)
        for group in _groups(parts, SPLIT_INTO):
            if group == own or not node.below:
                self._topic(_within(within, group[0].title), group)
            elif len(group) == 1:
                self._chapter(group[0], node.title)
            else:
                self._topic(_within(node.title, _span([each for each in group if each not in own])), group)

    def _topic(self, title: str, nodes: Sequence[_Node]) -> None:
        pieces = [each for node in nodes for each in node.every()]
        sections = [section for node in nodes for section in self._sections(node, whole=len(nodes) > 1)]
        self._add(Topic(title[:200], nodes[0].basis), pieces, sections)

    def _add(self, topic: Topic, pieces: Sequence[tuple[str, Piece]], sections: list[Section]) -> None:
        for chunk, piece in pieces:
            topic.words += piece.words
            topic.signs += piece.signs
            topic.tasks += piece.tasks
            topic.terms.update(piece.terms)
            topic.chunks += [chunk] if chunk not in topic.chunks else []
            topic.places.append((chunk, piece.at))
        topic.pages = len(_pages(pieces))
        topic.sections = sections
        self.book.topics.append(topic)

    def _sections(self, node: _Node, whole: bool) -> list[Section]:
        """Return what can be read at a time: the sections of a chapter, and those of a long section."""
        if not node.below and node.words > 2 * LONG_SECTION:
            return [self._section(each.title, each.number, each.own) for each in _halves(node, LONG_SECTION)]
        if not node.below or (whole and node.words <= LONG_SECTION):
            return [self._section(node.title, node.number, node.every())]
        return [section for each in (*_own(node), *node.below) for section in self._sections(each, whole=True)]

    def _section(self, title: str, number: str, pieces: Sequence[tuple[str, Piece]]) -> Section:
        pages = _pages(pieces)
        span: dict[str, Any] = (
            {"first_page": min(pages) + 1, "last_page": max(pages) + 1} if self.paged and pages else {}
        )
        return Section(
            title=title[:300] or "Text", number=number, filename=self.filename, **span,
            words=sum(piece.words for _, piece in pieces), signs=sum(piece.signs for _, piece in pieces),
            tasks=sum(piece.tasks for _, piece in pieces),
        )  # fmt: skip


def _named_by_first(roots: Sequence[_Node]) -> _Node | None:
    """Return the first heading of a chapter, with all others below it, if it is the title of the chapter."""
    if not roots:
        return None
    first, others = roots[0], roots[1:]
    bare = not first.below and first.words < A_FEW_WORDS
    ends = all(is_generic(node.title) for node in others)  # such as a summary
    if others and not (bare or ends or _begins_with_title(roots)):
        return None
    first.below += others
    return first


def _is_title(node: _Node) -> bool:
    """Return whether the only heading of the highest level is the title of the book."""
    return bool(node.below) and node.own_words < (A_LONG_PREFACE if len(node.below) > 1 else SHORT_TEXT)


def _begins_with_title(roots: Sequence[_Node]) -> bool:
    """Return whether the first heading of a text is its title, although other headings of its level follow.

    The others are like the sections of the first: fewer, not much longer, and without sections of their own.
    """
    if len(roots) < 2 or roots[0].number or roots[0].kind != "plain" or is_generic(roots[0].title):
        return False
    first, others = roots[0], roots[1:]
    longest = max((node.words for node in first.below), default=0)
    alike = all(not node.below and not node.number and node.words <= 2 * longest for node in others)
    return alike and len(others) < len(first.below) and first.own_words < A_LONG_PREFACE


def _divide_most_of_the_book(roots: Sequence[_Node]) -> None:
    """Take all chapters for parts if one without a number is most of the book and has sections as long as chapters."""
    largest = max(roots, key=lambda node: node.words, default=None)
    if (
        largest is None
        or largest.number
        or len(roots) == 1
        or largest.words < max(MOST * sum(node.words for node in roots), LARGEST)
    ):
        return
    if len(largest.below) > 1 and _usual_size(largest.below) >= LONG_SECTION:
        for node in roots:
            node.kind = "part" if node.below else node.kind


def _usual_size(nodes: Sequence[_Node]) -> int:
    return sorted(node.words for node in nodes)[len(nodes) // 2]


def _own(node: _Node) -> list[_Node]:
    """Return the text of a chapter before its first section, if it is more than a few words."""
    own = _Node(node.title, node.number, "plain", node.level, node.basis, node.own)
    return [own] if node.own_words >= SHORT_TEXT else []


def _halves(node: _Node, size: int = SPLIT_INTO) -> list[_Node]:
    """Divide a long text without sections at the ends of pages."""
    pieces = node.every()
    whole = [_Node(node.title, node.number, "plain", node.level, node.basis, [piece]) for piece in pieces]
    groups = _groups(whole, size)
    return [
        _Node(f"{node.title}{_portion(node.title, at, len(groups))}", node.number, "plain", node.level, node.basis,
              [piece for each in group for piece in each.own])
        for at, group in enumerate(groups, 1)
    ]  # fmt: skip


def _portion(title: str, at: int, count: int) -> str:
    """Return how a portion of a text is named. The text may itself be a portion of a chapter."""
    return f", part {at}" if re.search(r"\(\d+ of \d+\)$", title) else f" ({at} of {count})"


def _within(chapter: str, title: str) -> str:
    """Return the name of a topic that is part of a chapter. A long name of the chapter is left out if it can be."""
    if not chapter or title.startswith(chapter):
        return title
    return f"{chapter}: {title}" if len(chapter) <= 40 or is_generic(title) else title


def _pages(pieces: Iterable[tuple[str, Piece]]) -> set[int]:
    return {page for _, piece in pieces for page in range(piece.page, piece.last + 1)}


def _groups(nodes: Sequence[_Node], size: int) -> list[list[_Node]]:
    """Divide neighbours into groups of about the same number of words, none much above ``size``."""
    total = sum(node.words for node in nodes)
    aim = total / max(math.ceil(total / size), 1) or 1
    groups: dict[int, list[_Node]] = {}
    before = 0
    for node in nodes:
        middle = before + node.words / 2
        groups.setdefault(int(middle / aim), []).append(node)
        before += node.words
    return list(groups.values())


def _span(group: Sequence[_Node]) -> str:
    return group[0].title if len(group) == 1 else f"{group[0].title} – {group[-1].title}"


def _worth(topics: Iterable[Topic]) -> list[Topic]:
    """Drop headings without text, and name untitled topics by their most frequent terms."""
    listed = list(topics)
    titled = any(topic.title and topic.words >= A_FEW_WORDS for topic in listed)
    kept = [topic for topic in listed if topic.words >= A_FEW_WORDS or (topic.title and not titled)]
    for topic in kept:
        if not topic.title:
            topic.title = ", ".join(term.capitalize() for term in topic.best_terms(3))
            for section in topic.sections:
                section.title = topic.title or section.title
    return [topic for topic in kept if topic.title]


def _told_apart(topics: Iterable[Topic]) -> list[Topic]:
    """Number the later chapters of one title. Pages without headings that are named by the same words are one topic."""
    names: dict[str, Topic] = {}
    for topic in topics:
        same = names.get(topic.title.casefold())
        if same is not None and same.basis == topic.basis == "terms":
            same.add(topic)
            continue
        title, number = topic.title, 1
        while topic.title.casefold() in names:
            number += 1
            topic.title = f"{title} ({number})"
        names[topic.title.casefold()] = topic
    return list(names.values())


def merged(books: Iterable[Sequence[Topic]]) -> list[Topic]:
    """Return the topics of several books. A topic of the same title in a later book belongs to that of the first.

    A name that a language model gave does not make one topic of two.
    """
    topics: list[Topic] = []
    for book in books:
        earlier = {unaccented(topic.title): topic for topic in topics if topic.basis != "model"}
        for topic in book:
            same = earlier.pop(unaccented(topic.title), None) if topic.basis != "model" else None
            if same is None:
                topics.append(topic)
            else:
                same.add(topic)
    return _told_apart(topics)
