"""validate_citations, fact_check and validate: check the memo against its sources, and compute its score.

The score is ten times the weighted mean of three shares:

- **coverage** (0.4): the share of sections with sources. Two cited claims count fully, one counts half.
- **citations** (0.3): the share of claims that cite a passage which supports them.
- **support** (0.3): the share of numbers, dates and names that a source contains.

An empty share is 0: a memo without claims gets no points. A mean would hide one invented figure among a hundred correct
ones, so a single claim without support limits the score to `CAP`, and a person reviews the memo.
"""

from __future__ import annotations

from collections import Counter

from pausepoint.apps.memo.citations import Claim, about, claims, copied_rows, definitions, marked, references, rows_of
from pausepoint.apps.memo.claims import doubt
from pausepoint.apps.memo.facts import Fact, Known, begins_with_a_name, facts, plain, strange_in
from pausepoint.apps.memo.models import (
    CitationValidation,
    CompanyData,
    FactCheck,
    Passage,
    Scores,
    Section,
    Source,
    Unsupported,
    Validation,
)
from pausepoint.apps.memo.research import by_key, of_data
from pausepoint.apps.memo.sums import follows
from pausepoint.apps.memo.tables import spoken

ENOUGH = 8.0
"""A memo with at least this score is finalized. A person reviews a memo with a lower score first."""

CAP = 7.9
"""The highest score of a memo with a claim that no source supports."""

LONG = 20
"""A source with at least this many passages is expected to name the company. Short notes need not."""

_FORMS = {
    "the", "of", "and", "inc", "corp", "corporation", "company", "co", "group", "holdings", "ltd", "limited", "plc",
    "llc", "gmbh", "ag", "sa", "se", "nv",
}  # fmt: skip
"""Words in names of companies that do not tell one from another."""

WEIGHTS = {"coverage": 0.4, "citations": 0.3, "support": 0.3}


def check_citations(memo: str, sources: list[Source], company: str = "") -> CitationValidation:
    """Check every citation against its passage."""
    known, defined, cited = by_key(sources), definitions(memo), references(memo)
    cites = {number: known[key][1] for number, key in defined.items() if key in known}
    names = _names(sources)
    found = list(claims(memo, company, names, copied_rows(sources)))
    vocabulary = _vocabulary(sources, company)
    its = about(memo, company)
    others = _others(sources, its)
    origins = {number: known[key][0].key for number, key in defined.items() if key in known}
    strange = {number: others[key] for number, key in origins.items() if key in others}
    checked = [_unsupported(claim, cites, strange, _named(claim, names, vocabulary), its) for claim in found]
    unsupported = [problem for problem in checked if problem is not None]
    count = sum(1 for claim in found if claim.cited)
    return CitationValidation(
        citations=len(defined), claims=len(found), cited=count,
        supported=count - sum(1 for each in unsupported if each.citation is not None),
        dangling=[number for number in cited if number not in defined],
        unused=[number for number in defined if number not in cited],
        unknown=[number for number, key in defined.items() if key not in known], unsupported=unsupported,
    )  # fmt: skip


def _names(sources: list[Source]) -> set[str]:
    """Return the words that the sources use as names."""
    return Known("\n".join(passage.text for source in sources for passage in source.passages)).names()


def _vocabulary(sources: list[Source], company: str) -> set[str]:
    """Return all words of the sources, without upper case."""
    texts = (f"{source.title} {passage.heading} {passage.text}" for source in sources for passage in source.passages)
    return {word for text in [company, *texts] for word in plain(text).split()}


def _named(claim: Claim, names: set[str], vocabulary: set[str]) -> set[str]:
    """Return the names, and the first word of the claim if it can only be a name."""
    first = begins_with_a_name(claim.text, vocabulary)
    return names | {first} if first else names


def _others(sources: list[Source], names: list[str]) -> dict[str, str]:
    """Return the keys and titles of long sources that never name the company: they may be about another one."""
    words = {word for name in names for word in plain(name).split()} - _FORMS
    found: dict[str, str] = {}
    for source in sources:
        texts = [source.title, *(f"{passage.heading} {passage.text}" for passage in source.passages)]
        if words and len(source.passages) >= LONG and not any(words & {*plain(text).split()} for text in texts):
            found[source.key] = source.title
    return found


def _unsupported(
    claim: Claim, cites: dict[int, Passage], strange: dict[int, str], names: set[str], names_of_it: list[str]
) -> Unsupported | None:  # fmt: skip
    """Return the problem with a claim and its citations, or None. ``strange`` citations are of other companies.

    A passage need not name the company that the memo is about: it may say “we”.
    """
    first = claim.cited[0] if claim.cited else None
    if first is None:
        lacking = [fact.text for fact in facts(claim.text, names)]
        return Unsupported(section=claim.section, claim=claim.text, facts=lacking, why="it has no citation")
    there = [cites[number] for number in claim.cited if number in cites]
    if not there:
        return Unsupported(section=claim.section, claim=claim.text, citation=first, why="its citation does not exist")
    if title := strange.get(first):
        why = f"{title} never names the company, so it may be about another one"
        return Unsupported(section=claim.section, claim=claim.text, citation=first, why=why)
    text, headings = ("\n".join(each) for each in zip(*((each.text, each.heading) for each in there), strict=True))
    unknown = Known(spoken(text)).lacks(claim.text, names)
    own = {word for name in names_of_it for word in plain(name).split()}
    there_too = f" {plain(text)} "
    unknown = [fact for fact in unknown if fact.kind != "name" or not _is_own(fact, own, there_too)]
    lacking = [fact.text for fact in unknown if not follows(fact, claim.text, text)]
    missing = f"the passage does not contain {', '.join(lacking)}"
    why = missing if lacking else doubt(claim.text, text, headings, " ".join(names_of_it), names)
    if not why:
        return None
    return Unsupported(section=claim.section, claim=claim.text, citation=first, facts=lacking, why=why)


def _is_own(name: Fact, own: set[str], text: str) -> bool:
    """Return whether a name is the company's, or has its name in the possessive before a name of the passage."""
    return {*plain(name.text).split()} <= own or all({*part.split()} <= own for part in strange_in(name, text))


def check_facts(memo: str, sources: list[Source], data: CompanyData, company: str = "") -> FactCheck:
    """Check every number, date and name against all sources. The company's own name does not count.

    A number may also follow from the figures of the passages that the claim cites.
    """
    known, defined = by_key(sources), definitions(memo)
    texts = [spoken(passage.text) for source in [*sources, of_data(data)] for passage in source.passages]
    titles = [f"{source.title}. {passage.heading}" for source in sources for passage in source.passages]
    its = {(plain(name),) for name in about(memo, company)}
    everything, names = Known("\n".join([*texts, *dict.fromkeys(titles)])), _names(sources)
    count, unsupported = 0, []
    vocabulary = _vocabulary([*sources, of_data(data)], company)
    for claim in claims(memo, company, names, copied_rows(sources)):
        own = _named(claim, names, vocabulary)
        unknown = [fact for fact in everything.lacks(claim.text, own) if fact.value not in its]
        keys = [defined[number] for number in claim.cited if defined.get(number) in known] if unknown else []
        cited = "\n".join(known[key][1].text for key in keys)
        lacking = [fact.text for fact in unknown if not follows(fact, claim.text, cited)]
        count += sum(1 for fact in facts(claim.text, own) if fact.value not in its)
        if lacking:
            why = f"no source contains {', '.join(lacking)}"
            unsupported.append(Unsupported(section=claim.section, claim=claim.text, facts=lacking, why=why))
    return FactCheck(facts=count, supported=count - sum(len(each.facts) for each in unsupported),
                     unsupported=unsupported)  # fmt: skip


def score(memo: str, outline: list[Section], found: Validation) -> tuple[Scores, float]:
    """Return the score of the memo, from 0.0 to 10.0, with its parts."""
    citations, checked = found.citation_validation, found.fact_check_results
    assert citations is not None
    assert checked is not None
    wrong = Counter(each.section for each in citations.unsupported if each.citation is not None)
    cited = Counter(claim.section for claim in claims(memo, copied=rows_of(memo)) if claim.cited)
    bad = Counter(each.section for each in citations.unsupported)
    good = {section.title: cited[section.title] - wrong[section.title] for section in outline}
    shares = Scores(
        coverage=_share(sum(min(count, 2) for count in good.values()), 2 * len(outline)),
        citations=_share(citations.supported, citations.claims),
        support=_share(checked.supported, checked.facts),
        thin=[section.name for section in outline if good[section.title] < 2],
        unsupported=len(problems(found)),
        sections={section.name: _section_score(cited[section.title], bad[section.title]) for section in outline},
    )
    mean = round(10 * sum(weight * getattr(shares, name) for name, weight in WEIGHTS.items()), 1)
    return shares, min(mean, CAP) if shares.unsupported else mean


def problems(found: Validation) -> dict[str, str]:
    """Return the claims that no source supports, with the reasons. What no source contains at all comes first."""
    citations, checked = found.citation_validation, found.fact_check_results
    listed = [*(checked.unsupported if checked else ()), *(citations.unsupported if citations else ())]
    reasons: dict[str, str] = {}
    for each in listed:
        reasons.setdefault(each.claim, each.why)
    return reasons


def mark(memo: str, sources: list[Source], data: CompanyData, company: str) -> str:
    """Return the memo with its unsupported claims marked."""
    found = Validation(
        citation_validation=check_citations(memo, sources, company),
        fact_check_results=check_facts(memo, sources, data, company),
    )
    return marked(memo, problems(found))


def _section_score(cited: int, bad: int) -> float:
    """Return the score of one section: the share of its claims that their passages support, from 0.0 to 10.0."""
    return round(10 * _share(cited - bad, cited), 1) if cited else 0.0


def _share(part: int, whole: int) -> float:
    return round(max(part, 0) / whole, 3) if whole else 0.0
