"""The memo's pipeline: thirteen agents, one after the other. Run, detection, resume and display all use this list.

Each agent publishes its artifact in the session's folder. A kill costs only the agent that was running. An edited
artifact makes exactly its readers run again.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from pausepoint import Artifact, Context, Retry, Workflow, step
from pausepoint.apps import model
from pausepoint.apps.memo import checks as checking
from pausepoint.apps.memo import citations as citing
from pausepoint.apps.memo import deck as decks
from pausepoint.apps.memo import enrichment as enriching
from pausepoint.apps.memo import research as reading
from pausepoint.apps.memo.draft import Job, write_section
from pausepoint.apps.memo.models import (
    CompanyData,
    DeckAnalysis,
    InvestmentType,
    MemoDocument,
    MemoMode,
    MemoState,
    Research,
    Review,
    Section,
    SectionResearch,
    Validation,
    document,
)

PATIENCE = Retry(attempts=5, on=(ConnectionError, TimeoutError))
DECK = "0-deck-analysis.json"
SECTIONS = "2-sections/*.md"
DRAFT = "4-final-draft.md"
VALIDATION = "3-validation.json"
FINAL = "state.json"
AT_ONCE = 4
"""The number of sections that a model writes at the same time."""

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


def _whole(sections: dict[str, str]) -> str:
    """Return why a section is incomplete: it was cut off if it does not end with a newline."""
    cut = [name for name, text in sections.items() if not text.endswith("\n")]
    return f"{cut[0]}.md is cut off" if cut else ""


@step(writes="deck_analysis", publishes=Artifact(DECK))
async def deck_analyst(deck: Path | None) -> DeckAnalysis | None:
    """Read the pitch deck, if there is one."""
    return None if deck is None else await asyncio.to_thread(decks.analyze, deck)


@step(writes="research", publishes=Artifact("1-research.json"), retry=PATIENCE)
async def research(
    company_name: str, investment_type: InvestmentType, company_data: CompanyData, deck: Path | None,
    documents: Path | None, ctx: Context,
) -> Research:  # fmt: skip
    """Read the documents, and search the web if a search service is configured."""
    return await reading.gather(company_name, investment_type, company_data, deck, documents, ctx)


@step(writes="section_research", publishes=Artifact("1-section-research.json"), retry=PATIENCE)
async def section_research(
    company_name: str, outline: list[Section], research: Research, ctx: Context
) -> SectionResearch:  # fmt: skip
    """Choose the sentences for each section."""
    return await reading.assign(company_name, outline, research, ctx)


@step(
    writes="sections", publishes=Artifact(SECTIONS, count="outline", min_bytes=SMALLEST, holds=_whole), retry=PATIENCE
)
async def draft(
    company_name: str, investment_type: InvestmentType, memo_mode: MemoMode, outline: list[Section],
    section_research: SectionResearch, ctx: Context,
) -> dict[str, str]:  # fmt: skip
    """Write the sections that are missing."""
    there = await ctx.artifact(SECTIONS).spared()
    jobs = [
        Job(company=company_name, investment_type=investment_type, memo_mode=memo_mode, section=section,
            findings=section_research.findings.get(section.name, []))
        for section in outline
        if section.name not in there
    ]  # fmt: skip
    texts = await ctx.map(
        write_section, jobs, key=lambda job: job.section.name, concurrency=1 if model.settings() is None else AT_ONCE
    )
    written = there | {job.section.name: text for job, text in zip(jobs, texts, strict=True)}
    return {section.name: written[section.name] for section in outline}


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
    return enriching.socials(sections, outline, company_data, reading.every(research, section_research))


@step(writes="sections", publishes=Artifact(SECTIONS, count="outline", min_bytes=SMALLEST, holds=_has_links))
async def enrich_links(
    sections: dict[str, str], company_data: CompanyData, research: Research, section_research: SectionResearch
) -> dict[str, str]:  # fmt: skip
    """Link everything that has an address."""
    return enriching.links(sections, company_data, reading.every(research, section_research))


@step(
    writes="sections",
    publishes=Artifact(SECTIONS, count="outline", min_bytes=SMALLEST, holds=enriching.has_visualizations),
)
async def enrich_visualizations(
    sections: dict[str, str], outline: list[Section], research: Research, section_research: SectionResearch
) -> dict[str, str]:  # fmt: skip
    """Add the tables of the sources, with charts."""
    return enriching.visualizations(sections, outline, reading.every(research, section_research))


@step(writes="memo", publishes=Artifact(DRAFT, holds=_has_citations))
async def cite(
    header: str, sections: dict[str, str], outline: list[Section], research: Research,
    section_research: SectionResearch,
) -> str:  # fmt: skip
    """Assemble the memo with numbered citations."""
    return citing.assembled(header, sections, outline, reading.every(research, section_research))


@step(writes="validation", publishes=Artifact(VALIDATION, holds=lambda found: found.citation_validation is not None))
async def validate_citations(
    company_name: str, memo: str, research: Research, section_research: SectionResearch
) -> Validation:  # fmt: skip
    """Compare every claim with the passage that it cites."""
    sources = reading.every(research, section_research)
    found = await asyncio.to_thread(checking.check_citations, memo, sources, company_name)
    return Validation(citation_validation=found)


@step(writes="validation", publishes=Artifact(VALIDATION, holds=lambda found: found.fact_check_results is not None))
async def fact_check(
    company_name: str, memo: str, research: Research, section_research: SectionResearch, company_data: CompanyData,
    validation: Validation,
) -> Validation:  # fmt: skip
    """Look for every number, date and name in the sources."""
    sources = reading.every(research, section_research)
    found = await asyncio.to_thread(checking.check_facts, memo, sources, company_data, company_name)
    return Validation(citation_validation=validation.citation_validation, fact_check_results=found)


@step(writes="validation", publishes=Artifact(VALIDATION, holds=lambda found: found.overall_score is not None))
async def validate(memo: str, outline: list[Section], validation: Validation) -> Validation:
    """Compute the score."""
    shares, overall = checking.score(memo, outline, validation)
    return validation.model_copy(update={"validation_results": shares, "overall_score": overall})


@step(writes="final", publishes=Artifact(FINAL, holds=lambda found: bool(found.final_memo)))
async def finalize(state: MemoState, ctx: Context) -> MemoDocument:
    """Finalize the memo. A person reviews it first if the score is too low."""
    score = state.validation.overall_score
    assert score is not None
    return document(state, await reviewed(state.company_name, score, state.validation, ctx))


async def reviewed(company: str, score: float, found: Validation, ctx: Context) -> Review:
    """Ask a person to review a memo with a low score. The question never expires."""
    if score >= checking.ENOUGH:
        return Review(verdict="not needed", score=score)
    shares = found.validation_results
    thin = f" Sections with too few sources: {', '.join(shares.thin)}." if shares is not None and shares.thin else ""
    answer = await ctx.ask(
        f"Human review: the memo about {company} has a score of {score}, which is below {checking.ENOUGH}.{thin}"
        f" Read {DRAFT} and {VALIDATION}. Do you approve or reject the memo?",
        choices=["approve", "reject"], key="review", expires=None,
    )  # fmt: skip
    return Review(verdict="approved" if answer == "approve" else "rejected", score=score)


memo = Workflow(
    "memo",
    state=MemoState,
    events=[reading.UNREAD],
    pause="step",
    steps=[
        deck_analyst, research, section_research, draft, enrich_trademark, enrich_socials, enrich_links,
        enrich_visualizations, cite, validate_citations, fact_check, validate, finalize,
    ],
)  # fmt: skip

AGENTS = tuple(each.name for each in memo.steps)
