"""research and section_research: read everything about a company, and assign sentences to sections.

The sources are the documents of a folder, the deck, the company's data and, with a search service, the web. A sentence
goes to the section that shares the most words with it, and keeps its passage.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pausepoint import Context
from pausepoint.apps.input import BadInput
from pausepoint.apps.memo import deck as decks
from pausepoint.apps.memo import documents, evidence, search
from pausepoint.apps.memo.asides import (
    BACKWARD,
    DOWN,
    LEADING,
    METHOD,
    UP,
    is_aside,
    is_of_a_group,
    is_of_a_segment,
    is_outdated,
    segments_of,
)
from pausepoint.apps.memo.enrichment import MAIN, PROFIT, developments
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
    WindowReading,
)
from pausepoint.apps.memo.products import named
from pausepoint.apps.memo.prose import sentences, slug, stem, stems

MOST = 6
"""The maximum number of sentences that are chosen for a section."""

ENOUGH = 2
"""A section with fewer sentences gets its own web search, if a search service is configured."""

WEAK = 0.75
"""A sentence that fits its section less is left out if the section has `ENOUGH` better ones."""

SHORTEST, LONGEST = 25, 400
"""The minimum and maximum length of a chosen sentence, in characters."""

ROOM = 20_000_000
"""The maximum size of all passages in bytes. More would slow down every agent."""

UNREAD = "source.unread"
"""The event for a document that could not be read."""

PARTS = {"1": 1.5, "7": 1.5, "2": 0.7, "5": 0.7, "1A": 0.35}
"""The weights of the items of an annual report: business, results, properties, shares, risks."""

RISKS = {"1A": 1.5, "1C": 0.3}
"""The weights of its items in a section about risks: what the business is exposed to, and how computers are guarded."""

COVER = "cover"
"""The part of an annual report before its first item: the cover page and the contents."""

_ITEM = re.compile(r"item\s+(\d+[A-C]?)\b", re.IGNORECASE)
_NOTE = re.compile(r"(?:note \d+\b|notes to (?:the )?consolidated|report of independent)", re.IGNORECASE)
_BEGINS = re.compile(r"[\"“‘]?[A-Z0-9À-ÖØ-Þ$€£]")
_VAGUE = re.compile(
    r"\b(?:may|might|could|would|can)\b(?! \d)|\bif (?:we|our|the)\b|\b(?:has defined|pursuant to|in accordance with)\b"
    r"|\b(?:ASC|ASU|GAAP|SEC|Form \d+-[KQ]|Note \d+)\b"
    r"|\b(?:exhibit|incorporated by reference|forward-looking|hypothetical|see|refer to)\b",
    re.IGNORECASE,
)
_BURDEN = re.compile(
    r"\b(?:expenses?|costs?(?! (?:savings?|reductions?|advantages?))|debt|loss(?:es)?"
    r"|attrition|churn|purchased services|tariffs?|inflation|charges|liabilit(?:y|ies)"
    r"|(?<!before )(?<!before income )(?<!after )tax(?:es)?(?! (?:benefits?|credits?))"
    r"|payments?(?! (?:volumes?|processed|business|revenues?))|obligations?|litigation|claims|investigations?|fines"
    r"|penalties|competition|regulations?|enforcement|scrutiny|accidents|injuries|theft|delinquenc(?:y|ies)"
    r"|regulatory (?:actions?|requirements|pressure|burdens?))\b",
    re.IGNORECASE,
)
_NO_SIDE = re.compile(
    r"\b(?:despite|although|notwithstanding|cash used"
    r"|(?:strategy is|intends?|steps|goal is|opportunities|efforts|commit(?:ted|ments?)) to)\b",
    re.IGNORECASE,
)
"""The words of a sentence in which something moves that speaks neither for nor against an investment."""

_BURDENS = re.compile(rf"[^\d;]{{0,45}}?(?:{_BURDEN.pattern})", re.IGNORECASE)
_GOOD = re.compile(r"\b(?:advantage|cheaper|profitable)\b", re.IGNORECASE)
_BAD = re.compile(r"\b(?:depends? on|net loss|lawsuit|shortage|single supplier|impairment)\b", re.IGNORECASE)
SIDE = 5
"""The maximum number of sentences for an investment, and against it."""

CONSIDERED = 12
"""The number of sentences of each section that may speak for or against an investment."""

SUMMED = 7
"""The maximum number of sentences of a summary without a model."""

FEWEST = 4
"""A summary with fewer sentences also takes the best ones with an amount from other sections."""

_MONEY = r"(?!.*\bexpected to\b)(?=.*(?:[$€£]\s?\d|\d (?:million|billion)))"
_AMOUNT = r"(?!.*\bexpected to\b)(?=.*(?:[$€£]\s?\d|\d\s?%|\d percent|\d (?:million|billion)))"
_OPENING = r"(?:(?:in|during|for)\b[^,]{0,40}, )?(?:[\w’'-]+ ){0,3}?"
SUMMARY = {
    "revenue": rf"{_MONEY}{_OPENING}(?<!cost of )(?:revenues?|net sales|sales)\b"
    r"(?! and marketing| (?:for|from|of) (?!fiscal|20))",
    "growth": rf"{_AMOUNT}(?=.{{0,90}}\b(?:grew|growth|increased|decreased|rose|fell|declined)\b)"
    rf"{_OPENING}(?<!cost of )(?:revenues?|sales|customers|members(?:hips)?|volumes?|orders)\b(?! and marketing)",
    "profit": rf"{_AMOUNT}{_OPENING}(?:(?:operating|net) (?:income|loss|profit|margin|ratio|earnings)|ebitda)\b",
    "cash": rf"{_MONEY}.{{0,60}}?\b(?:cash|debt)\b",
    "customers": r".{0,200}?\b(?!(?:19|20)\d\d )[\d,.]*\d (?:(?:thousand|million|billion) )?(?:[\w’'-]+ ){0,3}"
    r"(?:customers?|members|memberships|subscribers|users|clients)\b",
}
"""What a summary has to say, if a source says it: what, and the words of a sentence that says it."""

_COMPANY = r"(?!.*\b(?:also|segments?)\b)(?:the )?(?:{company}|we|our company|the company)\b"
_IS = _COMPANY + r"(?:,? \w+\.?)?(?: \([^)]*\))? (?:is|are) (?:an?|the|one of)\b"
_OFFERS = _COMPANY + r".{{0,80}}?\b(?:provides?|sells?|makes?|operates?|offers?|manufactures?|designs?)\b"
"""Sentences that say what a company is, and what it does."""

_HARMS = (
    r"(?!.*\b(?:mitigat|assess|manag|monitor|program|law\b|insurance|hypothetical|opportunities))"
    r".*\b(?:risks?|advers|harm|declin|depend|los[es]|fail|disrupt|compet|shortage|lawsuit|threat|delay|uncertain)"
)
"""A sentence that says what can go wrong, and not what is done against it."""

_HARMS_BUSINESS = (
    rf"(?!.*\b(?:also|even if)\b)(?=.*\b(?:customers?|members|demand|competit\w+|suppliers?|sales|prices)\b){_HARMS}"
)
"""A sentence that says what can go wrong with the business itself."""

ALIKE = 0.6
"""The share of its words that a sentence of a summary may have in common with another one."""

_SAYS = {
    "revenue": rf"(?=.*\b(?:was|were|of|to|reached|totall?ed) [$€£]){SUMMARY['revenue']}",
    "operating profit": rf"{_AMOUNT}{_OPENING}operating {PROFIT}\b",
    "net profit": rf"{_AMOUNT}{_OPENING}net {PROFIT}\b(?!.{{0,20}} per )",
    "per share": rf"{_AMOUNT}.*\bper (?:diluted |common )?share\b",
}
"""The words of a sentence that says one of the main figures, so that a summary needs no row of a table for it."""

TOPICS = {
    "revenue": r"\brevenues?\b|\bsales\b", "profit or loss": r"\bprofit|\bnet (?:income|loss)|\bebitda\b",
    "cash and debt": r"\bcash\b|\bdebt\b|\bloans?\b", "customers": r"\bcustomers?\b",
    "competitors": r"\bcompet(?:e|itors?|ition)\b",
    "the price or the valuation": r"\bvaluation|\bpre-money\b|\bprice per share\b|\bmarket value\b",
}  # fmt: skip
"""What an investor needs to know, and the words that show that a source says something about it."""

_PRODUCT = stem("product")
PRODUCTS = 2.0
"""What the name of a product counts in a section about products."""

VAGUE = 0.35
"""The weight of a sentence that says what may happen, or how the books are kept, outside the section about risks."""

GENERAL = {
    "direct": ("{company}", "{company} funding investors", "{company} founders team", "{company} customers market"),
    "fund": ("{company}", "{company} fund size investors", "{company} partners team", "{company} portfolio returns"),
}


# research


async def gather(
    company: str, kind: InvestmentType, data: CompanyData, deck: Path | None, folder: Path | None, ctx: Context,
    remarks: Sequence[str] = (),
) -> Research:  # fmt: skip
    """Read all sources. An unreadable document is reported and does not stop the others.

    A model plans further web searches, and acts on the ``remarks`` of reviewers.
    """
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
    if await search.available(ctx):
        queries += [each for each in await evidence.planned(ctx, company, kind, remarks) if each not in queries]
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


async def assign(
    company: str, outline: list[Section], research: Research, ctx: Context, readings: Sequence[WindowReading] = (),
    remarks: Sequence[str] = (),
) -> tuple[SectionResearch, list[WindowReading]]:  # fmt: skip
    """Choose the sentences of every section. Search the web for sections with too few, if possible.

    Also return what a model has read. It does not read again what is in ``readings``, and acts on the ``remarks``.
    """
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
    sources = [*research.sources, *extra]
    read, new = await evidence.found(ctx, company, outline, sources, readings, remarks)
    taken = {each.sentence for those in read.values() for each in those}
    chosen = {name: [each for each in those if each.sentence not in taken] for name, those in chosen.items()} | read
    missing = await asyncio.to_thread(_missing, outline, chosen, sources)
    later = [section.name for section in outline if section.gathers][1:]
    figures = developments(sources) if later else []
    chosen |= {name: [*figures, *chosen[name]] for name in later[:1]}
    first = next((section.name for section in outline if section.gathers), None)
    if first is not None:
        chosen[first] = [*chosen[first][:1], *_results(chosen[first], sources), *chosen[first][1:]]
    return SectionResearch(findings=chosen, queries=asked, sources=extra, missing=missing), new


def select(company: str, outline: list[Section], sources: Iterable[Source]) -> dict[str, list[Finding]]:
    """Return the best sentences of each section, in the order of the sources. Each sentence is in one section."""
    plain = [section for section in outline if not section.gathers]
    words = {section.name: {stem(word.casefold()) for word in section.about} for section in plain}
    vague = {section.name: 1.0 if "risk" in section.name else VAGUE for section in plain}
    scored: dict[str, list[tuple[float, int, Finding]]] = {section.name: [] for section in plain}
    seen: set[str] = set()
    for number, (passage, sentence, part) in enumerate(_candidates(sources)):
        plain_words = " ".join(stems(sentence))
        if plain_words in seen:
            continue
        seen.add(plain_words)
        scores = {
            name: _score(sentence, passage, words[name], company, vague[name]) * _weight(part, "risk" in name)
            for name in words
        }
        best = max(scores, key=lambda name: scores[name], default=None)
        if best is not None and scores[best] > 0:
            found = Finding(sentence=sentence, source=passage.key, score=round(scores[best], 3))
            scored[best].append((scores[best], number, found))
    return _shared_out(outline, scored, company)


def _candidates(sources: Iterable[Source]) -> Iterable[tuple[Passage, str, str]]:
    """Yield the sentences of all sources with their passages, and the part of a filing that they are in, or ""."""
    for source in sources:
        segments = segments_of(source)
        part = COVER if any(passage.part for passage in source.passages) else ""
        for passage in source.passages if source.kind != "data" else ():
            part = _part(passage.heading) or _part(passage.part) or part
            for sentence in sentences(passage.text) if not passage.table else ():
                fits = SHORTEST <= len(sentence) <= LONGEST and sentence[-1] in ".!" and _BEGINS.match(sentence)
                is_of_part = is_of_a_group(sentence, passage.text) or is_of_a_segment(sentence, passage, segments)
                if fits and not is_aside(sentence) and not is_of_part and not is_outdated(sentence, passage.text):
                    yield passage, sentence, part


def speaks_against(sentence: str) -> bool | None:
    """Return whether a sentence speaks against an investment (True), for it (False), or neither (None).

    >>> speaks_against("Revenue rose by 5 %."), speaks_against("Costs rose by 5 %."), speaks_against("We sell panels.")
    (False, True, None)
    >>> speaks_against("Exchange rates decreased our expenses."), speaks_against("Net income fell.")
    (False, True)
    >>> speaks_against("Other income (expense) increased."), speaks_against("We expect growing sales and cost savings.")
    (False, False)
    """
    said = sentence[:LEADING].replace("income (expense)", "income")
    if (
        _VAGUE.search(sentence)
        or METHOD.search(sentence)
        or _NO_SIDE.search(said)
        or (UP.search(said) and DOWN.search(said))
    ):
        return None
    if _GOOD.search(said) or _BAD.search(said):
        return not _GOOD.search(said)
    moved = UP.search(said) or DOWN.search(said)
    if moved is None:
        return None
    is_burden = _BURDEN.search(said[: moved.start()]) or _BURDENS.match(sentence, moved.end())
    return bool(DOWN.search(said)) != bool(is_burden)


def _results(findings: list[Finding], sources: Iterable[Source]) -> list[Finding]:
    """Return the main measures of a table of results that the sentences of a summary do not have."""
    rows = developments(sources, "{label} in {new}: {one}; in {old}: {other}.")
    lacking = [
        name
        for name, form in _SAYS.items()
        if not any(re.match(form, each.sentence, re.IGNORECASE) for each in findings)
    ]
    found = [next((row for row in rows if re.match(MAIN[name], row.sentence, re.IGNORECASE)), None) for name in lacking]
    return [row for row in found if row is not None]


def _missing(outline: list[Section], findings: dict[str, list[Finding]], sources: Iterable[Source]) -> list[str]:
    """Return what the sources say too little about: sections with too few sentences, and topics that no passage has."""
    thin = [each.title.lower() for each in outline if not each.gathers and len(findings.get(each.name, [])) < ENOUGH]
    text = "\n".join(passage.text for source in sources if source.kind != "data" for passage in source.passages)
    return [*thin, *(name for name, words in TOPICS.items() if not re.search(words, text, re.IGNORECASE))]


def _part(heading: str) -> str:
    """Return the part of an annual report that a heading opens, or "".

    >>> _part("Item 1A. Risk Factors"), _part("ITEM 7. Discussion"), _part("Note 3 - Leases"), _part("Team")
    ('1A', '7', '8', '')
    """
    found = _ITEM.match(heading)
    return "8" if _NOTE.match(heading) else found[1].upper() if found else ""


def _weight(part: str, is_risk: bool) -> float:
    """Return how much the part of a filing counts: risks in their section, business and results in the others."""
    if not part:
        return 1.0
    if is_risk:
        return RISKS.get(part, 0.6)
    return PARTS.get(part, 0.3)


def _score(sentence: str, passage: Passage, about: set[str], company: str, vague: float) -> float:
    """Return how well a sentence fits a section, by shared words. Words in the heading count more.

    In a section about products, a sentence that names one counts more. ``vague`` is the weight of a sentence that says
    what may happen, or how the books are kept.
    """
    own = stems(sentence)
    shared = len(set(own) & about)
    headed = len(set(stems(passage.heading)) & about)
    if not shared and not headed:
        return 0.0
    known = facts(sentence)
    figures = sum(1 for fact in known if fact.kind == "number")
    substance = min(len(known), 3) * 0.25 + min(figures, 2) * 0.5
    substance += 0.25 if company.casefold() in sentence.casefold() else 0.0
    substance += PRODUCTS if _PRODUCT in about and named(sentence, company) else 0.0
    alone = 0.5 if BACKWARD.match(sentence) else 1.0
    return (
        (vague if _VAGUE.search(sentence) else 1.0)
        * alone
        * (shared + 1.5 * headed + substance)
        / math.sqrt(1 + len(own) / 12)
    )


Scored = tuple[float, int, Finding]


def _shared_out(
    outline: list[Section], scored: dict[str, list[Scored]], company: str
) -> dict[str, list[Finding]]:  # fmt: skip
    """Return the sentences of each section. No sentence is in two sections.

    The summary, which is the first section that gathers, takes what it has to say (`SUMMARY`). Every other one takes
    what speaks for and against the investment. Both leave a section at least `ENOUGH` sentences.
    """
    best = {name: sorted(those, key=lambda each: (-each[0], each[1])) for name, those in scored.items()}
    left = {
        name: [each for at, each in enumerate(those) if at < ENOUGH or each[0] > WEAK] for name, those in best.items()
    }
    gathered: dict[str, list[Finding]] = {}
    for section in (each for each in outline if each.gathers):
        found = gathered.setdefault(section.name, [])
        for name, scored_one, finding in _sides(left) if len(gathered) > 1 else _summed(left, company):
            if len(left[name]) > ENOUGH:
                left[name].remove(scored_one)
                found.append(finding)
    shown = {name: sorted(those[:MOST], key=lambda each: each[1]) for name, those in left.items()}
    chosen = {name: [finding for _, _, finding in those] for name, those in shown.items()}
    return {section.name: (gathered | chosen)[section.name] for section in outline}


def _summed(left: dict[str, list[Scored]], company: str) -> list[tuple[str, Scored, Finding]]:
    """Return the sentences of a summary: the business, one of each kind in `SUMMARY`, a risk, then those of others."""
    room = {name: those for name, those in left.items() if len(those) > ENOUGH}
    first, risks = next(iter(left), ""), [name for name in room if "risk" in name]
    others = [name for name in room if name not in risks]
    found: list[tuple[str, Scored]] = []

    def take(names: Sequence[str], form: str = "", among: int | None = None) -> None:
        counts = Counter(name for name, _ in found)
        fitting = [
            (name, each) for name in names for each in room.get(name, [])[:among]
            if len(room[name]) - counts[name] > ENOUGH and re.match(form, each[2].sentence, re.IGNORECASE)
            and (name in risks or not (form and (_VAGUE.search(each[2].sentence) or BACKWARD.match(each[2].sentence))))
            and not any(_is_alike(each, other) for _, other in found)
        ]  # fmt: skip
        if fitting and len(found) < SUMMED:
            has_figures = form in SUMMARY.values() or not form
            found.append(max(fitting, key=lambda those: _with_figures(those[1]) if has_figures else those[1][0]))

    for form in (_IS, _OFFERS):
        if not found:
            take(others, form.format(company=re.escape(company)))
    if not found:
        take([first], among=CONSIDERED)
    for form in SUMMARY.values():
        if not any(re.match(form, each[2].sentence, re.IGNORECASE) for _, each in found):
            take(others, form)
    take(risks, _HARMS_BUSINESS)
    if not any(name in risks for name, _ in found):
        take(risks, _HARMS)
    for name in others:
        if len(found) < FEWEST and name not in {other for other, _ in found}:
            take([name], _AMOUNT, among=CONSIDERED)
    return [(name, each, each[2]) for name, each in found]


def _is_alike(one: Scored, other: Scored) -> bool:
    words = {*stems(one[2].sentence)}
    return len(words & {*stems(other[2].sentence)}) > ALIKE * len(words)


def _with_figures(each: Scored) -> float:
    """Return how well a sentence fits a section that gathers from others: a figure counts double there."""
    return each[0] * (2.0 if any(fact.kind == "number" for fact in facts(each[2].sentence)) else 1.0)


def _sides(left: dict[str, list[Scored]]) -> list[tuple[str, Scored, Finding]]:
    """Return the best sentences for an investment and against it, each with its section and marked with its side."""
    sides: dict[bool, list[tuple[float, str, Scored]]] = {False: [], True: []}
    for name, those in left.items():
        for each in those[:CONSIDERED]:
            is_risk = "risk" in name and re.match(_HARMS, each[2].sentence, re.IGNORECASE)
            against = True if is_risk else speaks_against(each[2].sentence)
            if against is not None:
                sides[against].append((_with_figures(each), name, each))
    found: list[tuple[str, Scored, Finding]] = []
    for against, moving in sides.items():
        room = len(found) + SIDE
        for _, name, new in sorted(moving, key=lambda one: -one[0]):
            if len(found) < room and not any(_is_alike(new, old) or _is_alike(old, new) for _, old, _ in found):
                found.append((name, new, new[2].model_copy(update={"against": against})))
    return found
