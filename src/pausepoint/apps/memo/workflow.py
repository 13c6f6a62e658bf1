"""The memo's pipeline: thirteen agents, one after the other. Run, detection, resume and display all use this list.

Each agent publishes its artifact in the session's folder. A kill costs only the agent that was running. An edited
artifact makes exactly its readers run again.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pausepoint import Artifact, Context, Retry, Workflow, guard, step
from pausepoint.apps import model
from pausepoint.apps.memo import citations as citing
from pausepoint.apps.memo import deck as decks
from pausepoint.apps.memo import enrichment as enriching
from pausepoint.apps.memo import research as reading
from pausepoint.apps.memo.checks import ENOUGH, check_citations, check_facts, mark, problems, score
from pausepoint.apps.memo.draft import Job, rounds, told, without_repeats, write_section
from pausepoint.apps.memo.merges import with_edits
from pausepoint.apps.memo.models import (
    CompanyData,
    DeckAnalysis,
    Drafted,
    HandEdit,
    InvestmentType,
    MemoDocument,
    MemoMode,
    MemoState,
    Remark,
    Research,
    Review,
    Section,
    SectionResearch,
    Validation,
    WindowReading,
    document,
)
from pausepoint.apps.memo.page import as_html

PATIENCE = Retry(attempts=5, on=(ConnectionError, TimeoutError))
DECK = "0-deck-analysis.json"
RESEARCH = "1-research.json"
SECTION_RESEARCH = "1-section-research.json"
SECTIONS = "2-sections/*.md"
DRAFT = "4-final-draft.md"
DRAFT_PAGE = "4-final-draft.html"
VALIDATION = "3-validation.json"
FINAL = "state.json"
PAGE = "memo.html"
AT_ONCE = 4
"""The number of sections that a model writes at the same time."""

SHOWN = 3
"""The number of unsupported claims that the question for a review quotes."""

BACK = ("deck_analyst", "research", "section_research", "draft", "enrich_links", "enrich_visualizations", "cite")
"""The agents that a reviewer can send a memo back to."""

NOBODY = "none"
"""The answer of a reviewer who ends a memo as rejected."""

KEPT = "section.kept"
"""The event for a paragraph that a person and the agents have changed."""

SMALLEST = 40
"""The minimum size of a section in bytes: a heading and a short sentence."""


def _has_socials(sections: dict[str, str]) -> bool:
    marks = (enriching.LINKEDIN, enriching.NO_SOCIALS)
    named = [text for name, text in sections.items() if "team" in name] or list(sections.values())
    return any(mark in text for text in named for mark in marks)


def _has_links(sections: dict[str, str]) -> bool:
    return enriching.has_links(sections) or any(enriching.NO_LINKS in text for text in sections.values())


def _has_citations(memo: str) -> bool:
    return "[^1]" in memo or citing.HEADING in memo


def _unix(texts: dict[str, str]) -> dict[str, str]:
    """Return texts without the line endings of Windows, which an editor may have written."""
    return {name: text.replace("\r\n", "\n") for name, text in texts.items()}


def _whole(sections: dict[str, str]) -> str:
    """Return why a section is incomplete: it was cut off if it does not end with a newline."""
    cut = [name for name, text in sections.items() if not text.endswith("\n")]
    return f"{cut[0]}.md is cut off" if cut else ""


@step(writes="deck_analysis", publishes=Artifact(DECK))
async def deck_analyst(deck: Path | None) -> DeckAnalysis | None:
    """Read the pitch deck, if there is one."""
    return None if deck is None else await asyncio.to_thread(decks.analyze, deck)


@step(writes="research", publishes=Artifact(RESEARCH), retry=PATIENCE)
async def research(
    company_name: str, investment_type: InvestmentType, company_data: CompanyData, deck: Path | None,
    documents: Path | None, remarks: list[Remark], ctx: Context,
) -> Research:  # fmt: skip
    """Read the documents, and search the web if a search service is configured."""
    said = [remark.reason for remark in remarks if remark.agent == "research"]
    return await reading.gather(company_name, investment_type, company_data, deck, documents, ctx, said)


@step(
    writes=("section_research", "readings"),
    publishes=Artifact(SECTION_RESEARCH, carries="section_research"),
    retry=PATIENCE,
)
async def section_research(
    company_name: str, outline: list[Section], research: Research, readings: list[WindowReading], remarks: list[Remark],
    ctx: Context,
) -> dict[str, Any]:  # fmt: skip
    """Choose the sentences for each section."""
    said = [remark.reason for remark in remarks if remark.agent == "section_research"]
    chosen, read = await reading.assign(company_name, outline, research, ctx, readings, said)
    return {"section_research": chosen, "readings": read}


@step(
    writes=("sections", "drafted"),
    publishes=Artifact(SECTIONS, carries="sections", count="outline", min_bytes=SMALLEST, holds=_whole),
    retry=PATIENCE,
)
async def draft(
    company_name: str, investment_type: InvestmentType, memo_mode: MemoMode, outline: list[Section],
    section_research: SectionResearch, drafted: dict[str, Drafted], remarks: list[Remark], ctx: Context,
) -> dict[str, Any]:  # fmt: skip
    """Write the sections that are missing or whose inputs have changed. Those that gather from others come last."""
    there: dict[str, str] = await ctx.artifact(SECTIONS).spared()
    known = {} if there else drafted  # a section that was deleted is written again, even from the same inputs
    said = [remark.reason for remark in remarks if remark.agent == "draft"]
    made: dict[str, Drafted] = {}
    gathered: list[str] = []
    used = await model.in_use(ctx)
    for sections in rounds(outline):
        by_model = used is not None and any(section.gathers for section in sections)
        before = [each.text for each in made.values()] if by_model else []
        unlike = [each.sentence for each in told(gathered)] if by_model else []
        jobs = [
            Job(company=company_name, investment_type=investment_type, memo_mode=memo_mode, section=section,
                findings=[*told(before), *section_research.findings.get(section.name, [])], remarks=said,
                missing=section_research.missing if section.gathers else [], unlike=unlike)
            for section in sections
        ]  # fmt: skip
        new = await _written(jobs, there, known, used, ctx)
        for name, each in new.items():
            others = [other.text for other in made.values()]
            text = each.text if name in there else without_repeats(each.text, others)
            made[name] = each.model_copy(update={"text": text})
        gathered += [each.text for each in new.values()] if by_model else []
    return {"sections": {section.name: made[section.name].text for section in outline}, "drafted": made}


async def _written(
    jobs: list[Job], there: dict[str, str], known: dict[str, Drafted], used: str | None, ctx: Context
) -> dict[str, Drafted]:  # fmt: skip
    """Return the sections of some jobs: those that are there, those written from the same inputs, and new ones.

    ``used`` is the model that writes them, if there is one.
    """
    inputs = {job.section.name: job.inputs(used) for job in jobs}
    found = {name: Drafted(inputs=each, text=there.get(name, "")) for name, each in inputs.items()}
    found |= {name: known[name] for name, each in found.items() if name in known and known[name].inputs == each.inputs}
    missing = [job for job in jobs if not found[job.section.name].text]
    at_once = 1 if used is None else AT_ONCE
    texts = await ctx.map(write_section, missing, key=lambda job: job.section.name, concurrency=at_once)
    names = [job.section.name for job in missing]
    return found | {name: Drafted(inputs=inputs[name], text=text) for name, text in zip(names, texts, strict=True)}


@step(writes="header", publishes=Artifact("header.md", min_bytes=20))
async def enrich_trademark(
    company_name: str, company_data: CompanyData, investment_type: InvestmentType, memo_mode: MemoMode
) -> str:  # fmt: skip
    """Write the header of the memo with the company's trademark."""
    return enriching.header(company_name, company_data, investment_type, memo_mode)


@step(writes="sections", publishes=Artifact(SECTIONS, count="outline", min_bytes=SMALLEST, holds=_has_socials))
async def enrich_socials(
    sections: dict[str, str], outline: list[Section], company_data: CompanyData, research: Research,
    section_research: SectionResearch,
) -> dict[str, str]:  # fmt: skip
    """Link the people of the team section to their LinkedIn pages."""
    return enriching.socials(_unix(sections), outline, company_data, reading.every(research, section_research))


@step(writes="sections", publishes=Artifact(SECTIONS, count="outline", min_bytes=SMALLEST, holds=_has_links))
async def enrich_links(
    sections: dict[str, str], company_data: CompanyData, research: Research, section_research: SectionResearch
) -> dict[str, str]:  # fmt: skip
    """Link everything that has an address."""
    return enriching.links(_unix(sections), company_data, reading.every(research, section_research))


@step(
    writes="sections",
    publishes=Artifact(SECTIONS, count="outline", min_bytes=SMALLEST, holds=enriching.has_visualizations),
)
async def enrich_visualizations(
    sections: dict[str, str], outline: list[Section], research: Research, section_research: SectionResearch,
    hand_edits: list[HandEdit], ctx: Context,
) -> dict[str, str]:  # fmt: skip
    """Add the tables of the sources, with charts, and what people have changed in the sections."""
    found = enriching.visualizations(_unix(sections), outline, reading.every(research, section_research))
    found, both = with_edits(found, hand_edits)
    for name in both:
        ctx.emit(KEPT, f"2-sections/{name}.md: a paragraph that you have edited was kept as it is")
    return found


@step(writes="memo", publishes=Artifact(DRAFT, holds=_has_citations))
async def cite(
    company_name: str, company_data: CompanyData, header: str, sections: dict[str, str], outline: list[Section],
    research: Research, section_research: SectionResearch,
) -> str:  # fmt: skip
    """Assemble the memo with numbered citations, and mark the claims that no source supports."""
    sources = reading.every(research, section_research)
    text = citing.assembled(header.replace("\r\n", "\n"), _unix(sections), outline, sources)
    return await asyncio.to_thread(mark, text, sources, company_data, company_name)


@step(writes="validation", publishes=Artifact(VALIDATION, holds=lambda found: found.citation_validation is not None))
async def validate_citations(
    company_name: str, memo: str, research: Research, section_research: SectionResearch
) -> Validation:  # fmt: skip
    """Compare every claim with the passage that it cites."""
    sources = reading.every(research, section_research)
    found = await asyncio.to_thread(check_citations, memo, sources, company_name)
    return Validation(citation_validation=found)


@step(writes="validation", publishes=Artifact(VALIDATION, holds=lambda found: found.fact_check_results is not None))
async def fact_check(
    company_name: str, memo: str, research: Research, section_research: SectionResearch, company_data: CompanyData,
    validation: Validation,
) -> Validation:  # fmt: skip
    """Look for every number, date and name in the sources."""
    sources = reading.every(research, section_research)
    found = await asyncio.to_thread(check_facts, memo, sources, company_data, company_name)
    return Validation(citation_validation=validation.citation_validation, fact_check_results=found)


@step(
    writes=("validation", "draft_page"),
    publishes=[
        Artifact(VALIDATION, carries="validation", holds=lambda found: found.overall_score is not None),
        Artifact(DRAFT_PAGE, carries="draft_page"),
    ],
)
async def validate(
    company_name: str, memo: str, outline: list[Section], research: Research, section_research: SectionResearch,
    validation: Validation,
) -> dict[str, Any]:  # fmt: skip
    """Compute the score, and make the page for the review."""
    shares, overall = score(memo, outline, validation)
    found = validation.model_copy(update={"validation_results": shares, "overall_score": overall})
    sources = reading.every(research, section_research)
    page = await asyncio.to_thread(as_html, company_name, memo, outline, sources, found)
    return {"validation": found, "draft_page": page}


@step(
    writes=("final", "page"),
    publishes=[
        Artifact(FINAL, carries="final", holds=lambda found: bool(found.final_memo)),
        Artifact(PAGE, carries="page"),
    ],
)
async def finalize(state: MemoState, ctx: Context) -> dict[str, Any]:
    """Finalize the memo. A person reviews it first if the score is too low."""
    overall = state.validation.overall_score
    assert overall is not None
    review = await reviewed(state.company_name, overall, state.validation, ctx)
    sources = reading.every(state.research, state.section_research)
    page = await asyncio.to_thread(
        as_html, state.company_name, state.memo, state.outline, sources, state.validation, review
    )
    return {"final": document(state, review), "page": page}


async def reviewed(company: str, overall: float, found: Validation, ctx: Context) -> Review:
    """Ask a person to review a memo with a low score, and why it is rejected. The questions never expire."""
    if overall >= ENOUGH:
        return Review(verdict="not needed", score=overall)
    answer = await ctx.ask(
        _question(company, overall, found), choices=["approve", "reject"], key="review", expires=None
    )
    if answer == "approve":
        return Review(verdict="approved", score=overall)
    reason = await ctx.ask(f"Why do you reject the memo about {company}?", key="reason", expires=None)
    agent = await ctx.ask(
        f"Which agent has to act on it? It runs again with all agents after it. A model gets your reason."
        f" {NOBODY} ends the memo as rejected.",
        choices=[*BACK, NOBODY], key="agent", expires=None,
    )  # fmt: skip
    return Review(verdict="rejected", score=overall, reason=reason.strip(), agent="" if agent == NOBODY else agent)


def _question(company: str, overall: float, found: Validation) -> str:
    claims = problems(found)
    named = "; ".join(f"“{claim}” ({why})" for claim, why in list(claims.items())[:SHOWN])
    more = f" and {len(claims) - SHOWN} more" if len(claims) > SHOWN else ""
    wrong = f" Claims that no source supports: {named}{more}." if claims else ""
    shares = found.validation_results
    thin = f" Sections with too few sources: {', '.join(shares.thin)}." if shares is not None and shares.thin else ""
    return (
        f"Human review: the memo about {company} has a score of {overall}, which is below {ENOUGH}.{wrong}{thin}"
        f" Read {DRAFT_PAGE} and {VALIDATION}. Do you approve or reject the memo?"
    )


@guard(after=finalize)
def not_rejected(final: MemoDocument) -> str | None:
    """Hold a rejected memo: it is not complete."""
    found = final.review
    if found is None or found.verdict != "rejected":
        return None
    then = f"A resume by the memo's program runs {found.agent} again." if found.agent else "Nobody has to act on it."
    return f"The memo was rejected: {found.reason} {then}"


memo = Workflow(
    "memo",
    state=MemoState,
    events=[reading.UNREAD, KEPT],
    pause="step",
    steps=[
        deck_analyst, research, section_research, draft, enrich_trademark, enrich_socials, enrich_links,
        enrich_visualizations, cite, validate_citations, fact_check, validate, finalize,
    ],
    guards=[not_rejected],
)  # fmt: skip

AGENTS = tuple(each.name for each in memo.steps)
