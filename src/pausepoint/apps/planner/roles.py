"""What files are for: a book is studied, exercises are solved beside their chapter, old exams say what is asked.

Exercises and old exams are matched with the chapters by their words, or by the number of the chapter that they name.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from pausepoint import Context
from pausepoint.apps.planner import exams, materials
from pausepoint.apps.planner.chapters import Topic
from pausepoint.apps.planner.headings import key_of, unaccented
from pausepoint.apps.planner.models import FileEntry, Section, SectionEstimate, TopicEstimate
from pausepoint.apps.planner.places import Place, places_of
from pausepoint.apps.planner.topics import COMMON, is_task
from pausepoint.apps.words import one_line

OLD_EXAMS = "Old exams"
"""The topic with the old exams of a course, behind all others."""

MOST_PAGES, PAGES_AT_ONCE = 200, 20
DISTINCT, ASKED = 8, 2
"""An exam asks about a topic if it has two of the eight words that tell the topic from others, or all of its title."""

STEM = 6
LIKE = 0.1
"""The least likeness of exercises and their chapter, from 0 to 1."""

_WORD = re.compile(r"[^\W\d_]{4,}|[\u3400-\u9fff\uac00-\ud7af]{2}")
_KEY = re.compile(r"[^\W_]+")
_CHAPTER = re.compile(
    r"(?i)\b(?:chapter|chap\.|kapitel|kap\.|chapitre|cap[ií]tulo|capitolo|lecture|vorlesung|unit)\s+(\d{1,2})\b"
)
_MINUTES = re.compile(r"(?i)\b(\d{2,3})\s*(?:min\b|minutes?|minuten|minuti|minutos|分)")
_HOURS = re.compile(r"(?i)\b(\d(?:[.,]5)?)\s*(?:h\b|hours?|stunden?|heures?|horas?|ore\b|小时|時間)")
LONGEST_EXAM = 300


class Sheet(NamedTuple):
    """A file that is not a book, with its text. ``pages``: how many pages it has, if they have numbers."""

    file: FileEntry
    chunks: list[str]
    text: str
    pages: int | None

    @property
    def title(self) -> str:
        """How the plan names it."""
        return self.file.title or PurePath(self.file.filename).stem

    @property
    def section(self) -> Section:
        """What the plan has of it."""
        lines = self.text.split("\n")
        return Section(
            title=one_line(self.title)[:300], filename=self.file.filename, role=self.file.role,
            first_page=1 if self.pages else None, last_page=self.pages, words=len(_WORD.findall(self.text)),
            tasks=sum(is_task(line, "problems") for line in lines),
            duration=duration(self.text) if self.file.role == "old_exam" else 0,
        )  # fmt: skip


async def sheet_of(file_id: str, file: FileEntry, chunks: Iterable[str], ctx: Context) -> Sheet:
    """Return the exercises or the old exam that a file has."""
    with await ctx.files.open(file_id) as stream:
        pages, text = await asyncio.to_thread(_read, stream.name, file.content_type)
    return Sheet(file, list(chunks), text, pages if file.content_type == materials.PDF else None)


def _read(path: str, content_type: str) -> tuple[int, str]:
    count = materials.page_count(path, content_type)
    windows = (
        materials.window(path, content_type, first, PAGES_AT_ONCE)
        for first in range(0, min(count, MOST_PAGES), PAGES_AT_ONCE)
    )
    return count, "\n".join(page.text for window in windows for page in window)


def duration(text: str) -> int:
    """Return the minutes that an exam says it takes, or 0.

    >>> duration("Final exam. Time: 90 minutes"), duration("Dauer: 2 Stunden"), duration("Question 1")
    (90, 120, 0)
    """
    found = [int(each) for each in _MINUTES.findall(text[:3000])]
    found += [round(float(each.replace(",", ".")) * 60) for each in _HOURS.findall(text[:3000])]
    return next((minutes for minutes in found if 20 <= minutes <= LONGEST_EXAM), 0)


def with_sheets(topics: Sequence[Topic], sheets: Sequence[Sheet]) -> tuple[list[Topic], list[str]]:
    """Return the topics of a course with its exercises beside their chapters and its old exams at the end.

    Also return what has to be said about files that fit nothing.
    """
    found, notes = list(topics), list[str]()
    words = _Words(topics)
    loose: list[Topic] = []
    for sheet in sheets:
        if sheet.file.role != "exercises":
            continue
        topic = _chapter(sheet, topics, words, notes)
        if topic is None:
            topic = Topic(f"Exercises: {sheet.title}"[:200], "heading")
            loose.append(topic)
        _attach(topic, sheet)
    found += loose
    old = [sheet for sheet in sheets if sheet.file.role == "old_exam"]
    asked = [(sheet, words.asked(sheet.text)) for sheet in old]
    notes += [
        f"{sheet.file.filename}: No topic of the course was found in this old exam, so it does not say what matters."
        for sheet, titles in asked if topics and not titles
    ]  # fmt: skip
    known = [titles for _, titles in asked if titles]
    for topic in topics:
        topic.exams, topic.asked = len(known), sum(topic.title in titles for titles in known)
    if old:
        last = Topic(OLD_EXAMS, "heading", exams=len(old), asked=len(old))
        for sheet in old:
            _attach(last, sheet)
        found.append(last)
    return found, notes


def _attach(topic: Topic, sheet: Sheet) -> None:
    topic.sections.append(sheet.section)
    topic.chunks += [chunk for chunk in sheet.chunks if chunk not in topic.chunks]


def _chapter(sheet: Sheet, topics: Sequence[Topic], words: _Words, notes: list[str]) -> Topic | None:
    """Return the topic that exercises belong to: the one that the user or the sheet names, or the most similar one."""
    name = sheet.file.filename
    if not topics:
        return None
    places = _places(topics)
    if sheet.file.chapter:
        named = exams.covered(sheet.file.chapter, places)
        if named:
            return _titled(topics, named[-1].topic)
        notes.append(f"{name}: There is no chapter “{sheet.file.chapter}”. Its place was found by its words.")
    heads = "\n".join([sheet.title, PurePath(name).stem.replace("_", " ").replace("-", " "), sheet.text[:300]])
    if numbers := _CHAPTER.findall(heads):
        named = exams.covered(f"chapter {max(numbers, key=int)}", places)
        if named:
            return _titled(topics, named[-1].topic)
    title, likeness = words.nearest(sheet.text)
    if likeness >= LIKE:
        return _titled(topics, title)
    notes.append(
        f"{name}: These exercises fit no chapter, so they come last. To name one, add the file again with --chapter."
    )
    return None


def _titled(topics: Sequence[Topic], title: str) -> Topic:
    return next(topic for topic in topics if topic.title == title)


def _places(topics: Sequence[Topic]) -> list[Place]:
    """Return the places in topics that have not been estimated yet."""
    return places_of(
        TopicEstimate(
            course_id="", topic=topic.title, estimated_minutes=1, priority="medium", confidence=1,
            sections=[SectionEstimate(section=f"{each.number} {each.title}".strip(), number=each.number,
                                      filename=each.filename, minutes=0) for each in topic.sections],
        )
        for topic in topics
    )  # fmt: skip


class _Words:
    """The words that tell the topics of a course from one another, by their stems."""

    def __init__(self, topics: Sequence[Topic]) -> None:
        counted = {topic.title: _stems(topic.terms) for topic in topics}
        self._titles = {topic.title for topic in topics if topic.basis in ("outline", "heading")}
        """The titles that books have. A title that a language model gave does not say what an exam asks."""
        for topic in topics:
            shown = topic.title.lower() if topic.title in self._titles else ""
            title = [word for word in _WORD.findall(shown) if word not in COMMON]
            most = max(counted[topic.title].values(), default=1)
            counted[topic.title].update({word[:STEM]: most for word in title})
        within = Counter(stem for stems in counted.values() for stem in stems)
        self._rarity = {stem: math.log((1 + len(counted)) / number) for stem, number in within.items()}
        self._weights = {
            title: {stem: (1 + math.log(number)) * self._rarity[stem] for stem, number in stems.items()}
            for title, stems in counted.items()
        }

    def nearest(self, text: str) -> tuple[str, float]:
        """Return the topic that is most like a text, and the likeness from 0 to 1."""
        stems = _stems(Counter(_WORD.findall(text.lower())))
        mine = {
            stem: (1 + math.log(number)) * self._rarity[stem] for stem, number in stems.items() if stem in self._rarity
        }
        likeness = {title: _cosine(mine, weights) for title, weights in self._weights.items()}
        best = max(likeness, key=lambda title: likeness[title])
        return best, likeness[best]

    def asked(self, text: str) -> set[str]:
        """Return the topics that an exam asks about."""
        stems = set(_stems(Counter(_WORD.findall(text.lower()))))
        keys = f" {' '.join(_KEY.findall(unaccented(text)))} "
        found = set()
        for title, weights in self._weights.items():
            distinct = sorted(weights, key=lambda stem: (-weights[stem], stem))[:DISTINCT]
            is_named = title in self._titles and f" {key_of(title)} " in keys
            if is_named or sum(stem in stems for stem in distinct) >= min(ASKED, len(distinct)) > 0:
                found.add(title)
        return found


def _stems(words: Mapping[str, int]) -> Counter[str]:
    found = Counter[str]()
    for word, count in words.items():
        if word not in COMMON:
            found[word[:STEM]] += count
    return found


def _cosine(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    both = sum(weight * other.get(stem, 0) for stem, weight in one.items())
    size = math.hypot(*one.values()) * math.hypot(*other.values())
    return both / size if size else 0.0
