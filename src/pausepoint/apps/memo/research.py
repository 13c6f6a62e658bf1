"""research and section_research: read everything about a company, and assign sentences to sections.

The sources are the documents of a folder, the deck, the company's data and, with a search service, the web. A sentence
goes to the section that shares the most words with it, and keeps its passage.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pausepoint import Context
from pausepoint.apps.input import BadInput
from pausepoint.apps.memo import deck as decks
from pausepoint.apps.memo import documents, search
from pausepoint.apps.memo.facts import facts
from pausepoint.apps.memo.models import (
    CompanyData,
    Finding,
    InvestmentType,
    Passage,
    Research,
    Section,
    SectionResearch,
    Source,
)
from pausepoint.apps.memo.prose import sentences, slug, stem, stems

MOST = 6
"""The maximum number of sentences that are chosen for a section."""

ENOUGH = 2
"""A section with fewer sentences gets its own web search, if a search service is configured."""

SHORTEST, LONGEST = 25, 400
"""The minimum and maximum length of a chosen sentence, in characters."""

ROOM = 20_000_000
"""The maximum size of all passages in bytes. More would slow down every agent."""

UNREAD = "source.unread"
"""The event for a document that could not be read."""

_LEANS = re.compile(r"(It|He|She|They|This|That|These|Those|Her|His|Its|Their|Before|After|As|And|But|The company)\b")
"""The start of a sentence that depends on the sentence before it."""

GENERAL = {
    "direct": ("{company}", "{company} funding investors", "{company} founders team", "{company} customers market"),
    "fund": ("{company}", "{company} fund size investors", "{company} partners team", "{company} portfolio returns"),
}


# research


async def gather(
    company: str, kind: InvestmentType, data: CompanyData, deck: Path | None, folder: Path | None, ctx: Context
) -> Research:  # fmt: skip
    """Read all sources. An unreadable document is reported and does not stop the others."""
    paths = await asyncio.to_thread(documents.listed, folder) if folder else []
    sources, unread, room = [of_data(data)], list[str](), ROOM
    for number, path in enumerate(paths, 1):
        found, why = await asyncio.to_thread(_read, path, str(path.relative_to(folder or path)), room)
        if found is None:
            unread.append(why)
            ctx.emit(UNREAD, f"not read: {why}")
        else:
            sources.append(found)
            room -= _size(found)
        ctx.progress(number, len(paths))
    if deck is not None:
        sources.append(await asyncio.to_thread(decks.read, deck))
    queries = [query.format(company=company) for query in GENERAL[kind]]
    results = [await search.found(ctx, query) for query in queries]
    asked = [query for query, result in zip(queries, results, strict=True) if result is not None]
    sources += [source for result in results for source in result or ()]
    return Research(company=company, queries=asked, sources=_distinct(sources), unread=unread)


def _read(path: Path, name: str, room: int) -> tuple[Source | None, str]:
    try:
        found = documents.read(path, where=name)
    except BadInput as error:
        return None, str(error)
    if _size(found) <= room:
        return found, ""
    return None, f"{path}: The documents together are too large. Provide only the part that the memo needs."


def _size(source: Source) -> int:
    """Return the approximate size of a source in bytes, including the overhead of its passages."""
    return sum(len(passage.text) + 400 for passage in source.passages)


def of_data(data: CompanyData) -> Source:
    """Return the company's data as a source, with one passage per statement."""
    said = {
        "Description": data.description, "Founded": data.founded, "Headquarters": data.headquarters,
        "Stage": data.stage, "Website": data.website,
    }  # fmt: skip
    lines = [f"{data.name}"]
    lines += [f"{name}: {value}" for name, value in said.items() if value]
    lines += [f"{person.name}, {person.role}" if person.role else person.name for person in data.people]
    key = slug(f"{data.name} data")
    passages = [Passage(key=f"{key}-{number}", text=line) for number, line in enumerate(lines, 1)]
    return Source(key=key, title=f"Company data of {data.name}", kind="data", where=f"{data.name}.json",
                  passages=passages)  # fmt: skip


def _distinct(sources: Iterable[Source]) -> list[Source]:
    """Return the sources with unique keys, and each web page once."""
    places: dict[str, Source] = {}
    for number, source in enumerate(sources):
        places.setdefault(source.where if source.kind == "web" else f"{number} {source.key}", source)
    taken: set[str] = set()
    found = []
    for source in places.values():
        key = next(key for key in _keys(source.key) if key not in taken)
        taken.add(key)
        found.append(source if key == source.key else _renamed(source, key))
    return found


def _keys(key: str) -> Iterator[str]:
    """Yield a key and its alternatives."""
    yield key
    yield from (f"{key}-v{number}" for number in itertools.count(2))


def _renamed(source: Source, key: str) -> Source:
    passages = [each.model_copy(update={"key": f"{key}-{number}"}) for number, each in enumerate(source.passages, 1)]
    return source.model_copy(update={"key": key, "passages": passages})


def every(research: Research, sections: SectionResearch) -> list[Source]:
    """Return all sources, including those found for single sections."""
    return _distinct([*research.sources, *sections.sources])


def by_key(sources: Iterable[Source]) -> dict[str, tuple[Source, Passage]]:
    """Return passages by key, each with its source."""
    return {passage.key: (source, passage) for source in sources for passage in source.passages}


# section research


async def assign(company: str, outline: list[Section], research: Research, ctx: Context) -> SectionResearch:
    """Choose the sentences of every section. Search the web for sections with too few, if possible."""
    chosen = await asyncio.to_thread(select, company, outline, research.sources)
    thin = [section for section in outline if not section.gathers and len(chosen[section.name]) < ENOUGH]
    queries = {f"{company} {section.title} {' '.join(section.about[:3])}": section for section in thin}
    results = {query: await search.found(ctx, query) for query in queries}
    extra = [source for result in results.values() for source in result or ()]
    asked = [query for query, result in results.items() if result is not None]
    if extra:
        known = {source.where for source in research.sources}
        extra = [source for source in _distinct([*research.sources, *extra]) if source.where not in known]
        chosen = await asyncio.to_thread(select, company, outline, [*research.sources, *extra])
    return SectionResearch(findings=chosen, queries=asked, sources=extra)


def select(company: str, outline: list[Section], sources: Iterable[Source]) -> dict[str, list[Finding]]:
    """Return the best sentences of each section, in the order of the sources."""
    plain = [section for section in outline if not section.gathers]
    words = {section.name: {stem(word.casefold()) for word in section.about} for section in plain}
    scored: dict[str, list[tuple[float, int, Finding]]] = {section.name: [] for section in plain}
    seen: set[str] = set()
    for number, (passage, sentence) in enumerate(_candidates(sources)):
        plain_words = " ".join(stems(sentence))
        if plain_words in seen:
            continue
        seen.add(plain_words)
        scores = {name: _score(sentence, passage, words[name], company) for name in words}
        best = max(scores, key=lambda name: scores[name], default=None)
        if best is not None and scores[best] > 0:
            found = Finding(sentence=sentence, source=passage.key, score=round(scores[best], 3))
            scored[best].append((scores[best], number, found))
    chosen = {name: _best(each) for name, each in scored.items()}
    gathered = _gathered(chosen)
    return {section.name: gathered if section.gathers else chosen[section.name] for section in outline}


def _candidates(sources: Iterable[Source]) -> Iterable[tuple[Passage, str]]:
    for source in sources:
        for passage in source.passages if source.kind != "data" else ():
            if not passage.table:
                for sentence in sentences(passage.text):
                    if SHORTEST <= len(sentence) <= LONGEST and sentence[-1] in ".!" and sentence[0] not in "#|>":
                        yield passage, sentence


def _score(sentence: str, passage: Passage, about: set[str], company: str) -> float:
    """Return how well a sentence fits a section, by shared words. Words in the heading count more."""
    own = stems(sentence)
    shared = len(set(own) & about)
    headed = len(set(stems(passage.heading)) & about)
    if not shared and not headed:
        return 0.0
    substance = min(len(facts(sentence)), 3) * 0.25 + (0.25 if company.casefold() in sentence.casefold() else 0.0)
    alone = 0.5 if _LEANS.match(sentence) else 1.0
    return alone * (shared + 1.5 * headed + substance) / math.sqrt(1 + len(own) / 12)


def _best(scored: list[tuple[float, int, Finding]]) -> list[Finding]:
    best = sorted(scored, key=lambda each: (-each[0], each[1]))[:MOST]
    return [finding for _, _, finding in sorted(best, key=lambda each: each[1])]


def _gathered(chosen: dict[str, list[Finding]]) -> list[Finding]:
    """Return the best sentence of each section."""
    return [max(findings, key=lambda each: each.score) for findings in chosen.values() if findings]
