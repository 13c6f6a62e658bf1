"""Find the topics of material: from the outline of a PDF, from headings, or else from frequent words.

A window of pages gives sections. Text before the first heading of a window continues the section before it. The
sections of all windows, in order, give the topics of a file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import BaseModel

from pausepoint.apps.planner.materials import MARKDOWN, Bookmark
from pausepoint.apps.planner.models import Basis
from pausepoint.apps.words import one_line

ENOUGH, TOO_MANY = 3, 30
"""The minimum and maximum number of topics per file, if its headings allow that."""

A_FEW_WORDS, A_TITLE_WORDS = 15, 100
KEPT_TERMS = 12

_NUMBER = r"(?:\d{1,3}(?:\.\d{1,3}){0,3}\.?|[IVXLC]{1,6}\.)"
_NAMED = re.compile(
    rf"(?i)^(?P<word>chapter|part|unit|lecture|section|week|lesson|module|topic|kapitel|chapitre|cap[ií]tulo)\s+"
    rf"(?P<number>{_NUMBER}|\d+)\s*[.:–—-]?\s*(?P<title>.*)$"
)
_NUMBERED = re.compile(rf"^(?P<number>{_NUMBER})\s+(?P<title>[^\W\d_].{{1,70}})$")
_HASHES = re.compile(r"^(?P<level>#{1,6})\s+(?P<title>.+?)\s*#*$")
_UNDERLINE = re.compile(r"^(=+|-{3,})$")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_SIGN = re.compile(r"[=+−∫∑∏√≤≥≠→⇒^∂∇∞×÷<>|{}\\πθλμσΔΣ]|\d+")
_TASK = re.compile(r"(?i)^\s*(?:[-*•]\s+\S|\(?\d{1,3}[.)]\s+\S|(?:exercise|example|problem|question)\s+\d)")
_ASIDE = re.compile(
    r"(?i)^(table of )?contents$|^(subject )?index$|^references?$|^bibliography$|^preface$|^foreword$|^glossary$"
    r"|^acknowledge?ments?$|^about (the|this) .*|^copyright.*|^(list of )?(figures|tables)$|^(title|cover)( page)?$"
)
_USUAL = """about above after again also although always among another because been before being below between both
    cannot chapter could does doing done down during each either else even ever every example exercise exercises figure
    find first following from further given gives have having hence here however into itself just know known large less
    like made make makes many might more most much must need never next none note number often once only other others
    over page part problem same second section several shall should show shown since small some such table take taken
    than that their them then there therefore these they thing this those three through thus time under until upon used
    using very well were what when where whether which while will with within without would write your"""
_COMMON = frozenset(_USUAL.split())


class Section(BaseModel):
    """A part of a window. Without a title it continues the previous section."""

    title: str = ""
    level: int = 0
    basis: Basis = "heading"
    pages: int = 0
    words: int = 0
    signs: int = 0
    tasks: int = 0
    terms: dict[str, int] = {}


class Findings(BaseModel):
    """The sections of one window."""

    sections: list[Section] = []


class Heading(NamedTuple):
    """A line that starts a section."""

    title: str
    level: int
    basis: Basis


@dataclass
class _Open:
    """A section that is being read."""

    heading: Heading | None
    pages: set[int] = field(default_factory=set)
    words: int = 0
    signs: int = 0
    tasks: int = 0
    terms: Counter[str] = field(default_factory=Counter)

    def take(self, page: int, line: str) -> None:
        self.pages.add(page)
        words = _WORD.findall(line)
        ideographs = len(_CJK.findall(line))  # they have no spaces between words: two count as a word
        self.words += sum(not _CJK.search(word) for word in words) + (ideographs + 1) // 2
        self.signs += len(_SIGN.findall(line))
        self.tasks += _TASK.match(line) is not None
        self.terms.update(word.lower() for word in words if len(word) > 3 and word.lower() not in _COMMON)

    def closed(self) -> Section:
        heading = self.heading or Heading("", 0, "heading")
        ranked = sorted(self.terms.items(), key=lambda term: (-term[1], term[0]))[:KEPT_TERMS]
        return Section(
            title=heading.title, level=heading.level, basis=heading.basis, pages=len(self.pages), words=self.words,
            signs=self.signs, tasks=self.tasks, terms=dict(ranked),
        )  # fmt: skip


def findings(pages: Sequence[str], content_type: str, first: int, bookmarks: Sequence[Bookmark]) -> Findings:
    """Return the sections of a window that starts at page ``first``. With an outline, headings do not count."""
    sections = [_Open(None)]
    for number, text in enumerate(pages, first):
        marks = [mark for mark in bookmarks if mark.page == number]
        lines = _marked(text, marks) if bookmarks else _headed(text, content_type)
        for line in lines:
            if isinstance(line, Heading):
                sections.append(_Open(line, {number}))
            else:
                sections[-1].take(number, line)
    found = [section.closed() for section in sections]
    return Findings(sections=[each for each in found if each.title or each.words])


def _marked(text: str, marks: Sequence[Bookmark]) -> Iterator[str | Heading]:
    """Yield the lines of a page, with outline entries at the lines of their titles or else at the top."""
    lines = text.split("\n")
    keys = [_key(line) for line in lines] if marks else []
    placed: dict[int, list[Heading]] = {}
    for mark in marks:
        title = _key(mark.title)
        at = next((number for number, key in enumerate(keys) if title and title in key), 0)
        placed.setdefault(at, []).append(Heading(cleaned(mark.title), mark.level, "outline"))
    for number, line in enumerate(lines):
        yield from placed.get(number, ())
        yield line


def _headed(text: str, content_type: str) -> Iterator[str | Heading]:
    lines = text.split("\n")
    fenced = False
    for number, line in enumerate(lines):
        fenced ^= content_type == MARKDOWN and line.lstrip().startswith(("```", "~~~"))
        after = lines[number + 1].strip() if number + 1 < len(lines) else ""
        heading = None if fenced else _heading(line.strip(), after, content_type)
        yield heading if heading is not None else line


def _heading(line: str, after: str, content_type: str) -> Heading | None:
    if content_type == MARKDOWN:
        found = _HASHES.match(line)
        if found:
            return Heading(cleaned(found["title"]), len(found["level"]) - 1, "heading")
    if line and _UNDERLINE.match(after) and len(line) <= 90 and not _UNDERLINE.match(line):
        return Heading(cleaned(line), 0 if after[0] == "=" else 1, "heading")
    if content_type == MARKDOWN or len(line) > 90 or line.endswith((".", "?", "!", ";", ",", ":")):
        return None
    if found := _NAMED.match(line):
        deep = found["word"].lower() in ("section", "lesson", "topic")
        return Heading(cleaned(line), int(deep), "heading")
    if (found := _NUMBERED.match(line)) and len(line.split()) <= 9 and "...." not in line:
        return Heading(cleaned(line), found["number"].rstrip(".").count("."), "heading")
    return None


def cleaned(title: str) -> str:
    """Return a heading without its number and its markup.

    >>> cleaned("3.2 Integration by Parts"), cleaned("Chapter 4: Series"), cleaned("**Limits**"), cleaned("Chapter 7")
    ('Integration by Parts', 'Series', 'Limits', 'Chapter 7')
    """
    text = one_line(re.sub(r"[*_`]+", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)))
    for pattern in (_NAMED, _NUMBERED):
        if (found := pattern.match(text)) and found["title"].strip(" .:-"):
            text = found["title"].strip()
    return re.sub(r"\s*(?:\.{2,}|…)\s*\d*$", "", text)[:200] or one_line(title)[:200] or "Untitled"


def _key(title: str) -> str:
    """Return a key that is equal for titles that differ only in number, markup, case or spacing.

    >>> _key("3.2  Integration by Parts ") == _key("integration by parts")
    True
    """
    return " ".join(_WORD.findall(cleaned(title).casefold())) if title.strip() else ""


# the topics of a file


@dataclass
class Topic:
    """A topic to learn, with the chunks in which it was found."""

    title: str
    basis: Basis
    pages: int = 0
    words: int = 0
    signs: int = 0
    tasks: int = 0
    chunks: list[str] = field(default_factory=list)
    terms: Counter[str] = field(default_factory=Counter)

    def add(self, found: Section | Topic, chunks: Iterable[str]) -> None:
        """Add a section of this topic, or the same topic from another place."""
        self.pages += found.pages
        self.words += found.words
        self.signs += found.signs
        self.tasks += found.tasks
        self.terms.update(found.terms)
        self.chunks += [chunk for chunk in chunks if chunk not in self.chunks]

    def best_terms(self, count: int) -> list[str]:
        """Return the most frequent terms."""
        ranked = sorted(self.terms.items(), key=lambda term: (-term[1], term[0]))
        return [term for term, _ in ranked[:count]]


def topics_of(found: dict[str, Findings]) -> list[Topic]:
    """Return the topics of one file, from the findings of its chunks in order."""
    sections = [(chunk, section) for chunk, each in found.items() for section in each.sections]
    titled = [section for _, section in sections if _counts(section)]
    deepest = _depth(titled)
    topics: list[Topic] = []
    current: Topic | None = None
    for chunk, section in sections:
        if section.title and section.level <= deepest:
            aside = _ASIDE.match(section.title) or _is_title(section, titled, deepest)
            current = None if aside else Topic(section.title, section.basis)
            topics += [current] if current else []
        elif current is None and not section.title:
            topics.append(Topic("", "terms"))
            current = topics[-1]
        if current is not None:
            current.add(section, [chunk])
            if current.basis == "terms":
                current = None  # the next window may be about something else
    return merged(_worth(topics))


def _counts(section: Section) -> bool:
    return bool(section.title) and not _ASIDE.match(section.title)


def _is_title(section: Section, titled: Sequence[Section], deepest: int) -> bool:
    """Return whether a section is the title of the file: first, alone on its level, above the others, and short."""
    alone = sum(each.level == section.level for each in titled) == 1
    return alone and section is titled[0] and section.level < deepest and section.words < A_TITLE_WORDS


def _depth(titled: Sequence[Section]) -> int:
    """Return the deepest level at which a heading is a topic. Deeper headings belong to the topic above them."""
    levels = sorted({section.level for section in titled})
    best = levels[0] if levels else 0
    for level in levels:
        count = sum(section.level <= level for section in titled)
        if count > TOO_MANY:
            break
        best = level
        if count >= ENOUGH:
            break
    return best


def _worth(topics: Iterable[Topic]) -> list[Topic]:
    """Drop headings without text, and name untitled topics by their most frequent terms."""
    listed = list(topics)
    titled = any(topic.title and topic.words >= A_FEW_WORDS for topic in listed)
    kept = [
        topic for topic in listed
        if topic.words >= A_FEW_WORDS or (topic.title and not titled)
    ]  # fmt: skip
    for topic in kept:
        if not topic.title:
            named = [term.capitalize() for term in topic.best_terms(3)]
            topic.title = ", ".join(named)
    return [topic for topic in kept if topic.title]


def merged(topics: Iterable[Topic]) -> list[Topic]:
    """Return each topic once, in order of appearance."""
    known: dict[str, Topic] = {}
    for topic in topics:
        key = _key(topic.title) or topic.title
        if key in known:
            known[key].add(topic, topic.chunks)
        else:
            known[key] = topic
    return list(known.values())
