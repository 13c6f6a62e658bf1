"""validate_citations, fact_check and validate: check the memo against its sources, and compute its score.

The score is ten times the weighted mean of three shares:

- **coverage** (0.4): the share of sections with sources. Two cited claims count fully, one counts half.
- **citations** (0.3): the share of claims that cite a passage which supports them.
- **support** (0.3): the share of numbers, dates and names that a source contains.

An empty share is 0: a memo without claims gets no points.
"""

from __future__ import annotations

from collections import Counter

from pausepoint.apps.memo.citations import Claim, about, claims, definitions, references
from pausepoint.apps.memo.claims import doubt
from pausepoint.apps.memo.facts import Known, facts, plain
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

ENOUGH = 8.0
"""A memo with at least this score is finalized. A person reviews a memo with a lower score first."""

WEIGHTS = {"coverage": 0.4, "citations": 0.3, "support": 0.3}


def check_citations(memo: str, sources: list[Source], company: str = "") -> CitationValidation:
    """Check every citation against its passage."""
    known, defined, cited = by_key(sources), definitions(memo), references(memo)
    cites = {number: known[key][1] for number, key in defined.items() if key in known}
    names = _names(sources)
    found = list(claims(memo, company, names))
    it = " ".join(about(memo, company))
    unsupported = [problem for claim in found if (problem := _unsupported(claim, cites, names, it)) is not None]
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


def _unsupported(claim: Claim, cites: dict[int, Passage], names: set[str], company: str) -> Unsupported | None:
    """Return the problem with a claim and its citations, or None."""
    first = claim.cited[0] if claim.cited else None
    if first is None:
        lacking = [fact.text for fact in facts(claim.text, names)]
        return Unsupported(section=claim.section, claim=claim.text, facts=lacking, why="it has no citation")
    there = [cites[number] for number in claim.cited if number in cites]
    if not there:
        return Unsupported(section=claim.section, claim=claim.text, citation=first, why="its citation does not exist")
    text, headings = ("\n".join(each) for each in zip(*((each.text, each.heading) for each in there), strict=True))
    lacking = [fact.text for fact in Known(text).lacks(claim.text, names)]
    missing = f"the passage does not contain {', '.join(lacking)}"
    why = missing if lacking else doubt(claim.text, text, headings, company)
    if not why:
        return None
    return Unsupported(section=claim.section, claim=claim.text, citation=first, facts=lacking, why=why)


def check_facts(memo: str, sources: list[Source], data: CompanyData, company: str = "") -> FactCheck:
    """Check every number, date and name against all sources. The company's own name does not count."""
    texts = [passage.text for source in [*sources, of_data(data)] for passage in source.passages]
    titles = [f"{source.title}. {passage.heading}" for source in sources for passage in source.passages]
    its = {(plain(name),) for name in about(memo, company)}
    everything, names = Known("\n".join([*texts, *dict.fromkeys(titles)])), _names(sources)
    count, unsupported = 0, []
    for claim in claims(memo, company, names):
        lacking = [fact.text for fact in everything.lacks(claim.text, names) if fact.value not in its]
        count += sum(1 for fact in facts(claim.text, names) if fact.value not in its)
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
    cited = Counter(claim.section for claim in claims(memo) if claim.cited)
    good = {section.title: cited[section.title] - wrong[section.title] for section in outline}
    shares = Scores(
        coverage=_share(sum(min(count, 2) for count in good.values()), 2 * len(outline)),
        citations=_share(citations.supported, citations.claims),
        support=_share(checked.supported, checked.facts),
        thin=[section.name for section in outline if good[section.title] < 2],
    )
    return shares, round(10 * sum(weight * getattr(shares, name) for name, weight in WEIGHTS.items()), 1)


def _share(part: int, whole: int) -> float:
    return round(max(part, 0) / whole, 3) if whole else 0.0
