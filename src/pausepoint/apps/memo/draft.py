"""draft: write the sections of the memo from sentences of the sources, or with a model under the same validators.

A sentence names its passage: ``[@annual-report-4]``. If no source says anything, the section says so.
"""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pausepoint import Context
from pausepoint.apps import model
from pausepoint.apps.memo.models import Finding, InvestmentType, MemoMode, Section, Text
from pausepoint.apps.memo.prose import quoted
from pausepoint.apps.words import one_line

OPENINGS = {
    ("direct", "consider"): "This memo weighs a direct investment in {company}. Nothing is decided yet.",
    ("direct", "justify"): "This memo gives the reasons for a direct investment in {company}.",
    ("fund", "consider"): "This memo weighs a commitment to the fund {company}. Nothing is decided yet.",
    ("fund", "justify"): "This memo gives the reasons for a commitment to the fund {company}.",
}
CLOSINGS = {
    "consider": "The points for and against it, according to the sources:",
    "justify": "The basis of the decision, according to the sources:",
}
NOTHING = (
    "The available sources contain nothing for this section, and nothing was invented. Add documents about {company}"
    " and write the memo again."
)
INSTRUCTIONS = (
    "You write one section of an investment memo from the given findings and from nothing else. Each sentence names the"
    " sources (keys) that it is based on. Keep every number, date and name exactly as in its source. Do not add facts,"
    " links or judgements that no finding supports. In mode 'consider', weigh the arguments. In mode 'justify', argue"
    " for the investment."
)


class Job(BaseModel):
    """The input for writing one section."""

    model_config = ConfigDict(extra="forbid")

    company: str
    investment_type: InvestmentType
    memo_mode: MemoMode
    section: Section
    findings: list[Finding]


class Written(BaseModel):
    """A sentence from a model, and the passages that it is based on."""

    text: Text
    sources: list[str] = Field(min_length=1)


async def write_section(job: Job, ctx: Context) -> str:
    """Return one section as Markdown."""
    if not job.findings:
        return nothing(job)
    return await _by_model(job, ctx) or extracted(job)


def nothing(job: Job) -> str:
    """Return a section without any findings."""
    text = NOTHING.format(company=job.company)
    return f"## {job.section.title}\n\n{_opening(job)}{text}\n"


def extracted(job: Job) -> str:
    """Return a section of sentences from the sources, one paragraph per source."""
    lines = [_attributed(finding.sentence, [finding.source]) for finding in job.findings]
    if job.section.gathers:
        closing = "" if "summary" in job.section.name else f"{CLOSINGS[job.memo_mode]}\n\n"
        body = closing + "\n".join(f"- {line}" for line in lines)
    else:
        body = "\n\n".join(_paragraphs(job.findings, lines))
    return f"## {job.section.title}\n\n{_opening(job)}{body}\n"


def _opening(job: Job) -> str:
    if not job.section.gathers:
        return ""
    return OPENINGS[job.investment_type, job.memo_mode].format(company=job.company) + "\n\n"


def _paragraphs(findings: list[Finding], lines: list[str]) -> list[str]:
    """Group the sentences into one paragraph per source."""
    found: dict[str, list[str]] = {}
    for finding, line in zip(findings, lines, strict=True):
        found.setdefault(finding.source.rpartition("-")[0], []).append(line)
    return [" ".join(each) for each in found.values()]


def _attributed(sentence: str, keys: list[str]) -> str:
    """Add source keys to a sentence, before its full stop."""
    marks = "".join(f" [@{key}]" for key in dict.fromkeys(keys))
    return f"{sentence[:-1]}{marks}{sentence[-1]}" if sentence[-1] in ".!?" else f"{sentence}{marks}."


def as_prose(text: str) -> str:
    """Return a model's text as a plain sentence: no heading, list, table, citation or link."""
    return re.sub(r"\s+(?=[.,;:!?])", "", one_line(quoted(text)).lstrip("#>|*+- "))


async def _by_model(job: Job, ctx: Context) -> str | None:
    known = {finding.source for finding in job.findings}
    said = " ".join(finding.sentence for finding in job.findings)

    class SectionText(BaseModel):
        sentences: list[Written] = Field(min_length=1, max_length=40)

        @model_validator(mode="after")
        def sources_are_those_given(self) -> SectionText:
            for each in self.sentences:
                for key in each.sources:
                    if key not in known:
                        raise ValueError(f"{key!r} is not one of the given sources")
                for address in re.findall(r"\w+://[^\s)\]>]+", each.text):
                    if address not in said:
                        raise ValueError(f"{address} is not in the findings; add no links")
            return self

    answer = await model.ask(ctx, INSTRUCTIONS, job, SectionText)
    if answer is None:
        return None
    texts = [(as_prose(each.text), each.sources) for each in answer.sentences]
    lines = [_attributed(text, keys) for text, keys in texts if text]
    return f"## {job.section.title}\n\n{_opening(job)}{' '.join(lines)}\n"
