"""research and section_research: what there is to read about a company, and which sentences belong to which section.

Documents of a folder, the deck and the company's data are read; with a search service the web, too. A sentence goes to
the section whose words it shares most; every one keeps the passage that it is from.
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
"""Sentences of a section that are chosen from the sources."""

ENOUGH = 2
"""With fewer a section is searched for by itself, where the web can be searched."""

SHORTEST, LONGEST = 25, 400
"""Characters of a sentence that is chosen."""

ROOM = 20_000_000
"""Bytes of passages that a memo is made of. More is no reading for it, and weighs down every agent."""

UNREAD = "source.unread"
"""An event: a document could not be read."""

_LEANS = re.compile(r"(It|He|She|They|This|That|These|Those|Her|His|Its|Their|Before|After|As|And|But|The company)\b")
"""How a sentence begins that needs the one before it."""

GENERAL = {
    "direct": ("{company}", "{company} funding investors", "{company} founders team", "{company} customers market"),
    "fund": ("{company}", "{company} fund size investors", "{company} partners team", "{company} portfolio returns"),
}


# research


async def gather(
    company: str, kind: InvestmentType, data: CompanyData, deck: Path | None, folder: Path | None, ctx: Context
) -> Research:  # fmt: skip
    """Read everything. A document that cannot be read is named, and does not stop the others."""
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
    return None, f"{path}: it is too much beside the others; give only what the memo needs of it"


def _size(source: Source) -> int:
    """About the bytes that a source takes, with those that keep its passages apart."""
    return sum(len(passage.text) + 400 for passage in source.passages)


def of_data(data: CompanyData) -> Source:
    """What the company's data says, a passage for each."""
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
    """Each page of the web once, and keys that no two share."""
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
    """A key, and others in its place."""
    yield key
    yield from (f"{key}-v{number}" for number in itertools.count(2))


def _renamed(source: Source, key: str) -> Source:
    passages = [each.model_copy(update={"key": f"{key}-{number}"}) for number, each in enumerate(source.passages, 1)]
    return source.model_copy(update={"key": key, "passages": passages})


def every(research: Research, sections: SectionResearch) -> list[Source]:
    """All sources, also those that were found for single sections."""
    return _distinct([*research.sources, *sections.sources])


def by_key(sources: Iterable[Source]) -> dict[str, tuple[Source, Passage]]:
    """Passages by their keys, each with its source."""
    return {passage.key: (source, passage) for source in sources for passage in source.passages}


# section research


async def assign(company: str, outline: list[Section], research: Research, ctx: Context) -> SectionResearch:
    """Choose the sentences of every section; what lacks any is searched for on the web, if that can be done."""
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
    """The best sentences of each section, in the order of the sources."""
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
    """How well a sentence fits a section: the words that they share, more if the heading says so, too."""
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
    """The best sentence of each section."""
    return [max(findings, key=lambda each: each.score) for findings in chosen.values() if findings]
