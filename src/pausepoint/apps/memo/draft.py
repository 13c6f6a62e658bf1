"""draft: write the sections of the memo from sentences of the sources, or with a model under the same validators.

A sentence names its passage: ``[@annual-report-4]``. If no source says anything, the section says so. The sections that
gather from others are written last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pausepoint import Context
from pausepoint.apps import model
from pausepoint.apps.memo.facts import facts
from pausepoint.apps.memo.models import Finding, InvestmentType, MemoMode, Section, Text
from pausepoint.apps.memo.prose import KEY, bare, quoted, sentences
from pausepoint.apps.words import one_line

OPENINGS = {
    ("direct", "consider"): "This memo weighs a direct investment in {company}. Nothing is decided yet.",
    ("direct", "justify"): "This memo gives the reasons for a direct investment in {company}.",
    ("fund", "consider"): "This memo weighs a commitment to the fund {company}. Nothing is decided yet.",
    ("fund", "justify"): "This memo gives the reasons for a commitment to the fund {company}.",
}
QUOTES = "It was written without a language model: every statement is quoted from a source."
CLOSINGS = {
    "consider": "Neither a model nor a person has weighed this: it is quoted, and sorted by what rises or falls."
    " The decision needs a person.",
    "justify": "These are the reasons that the sources give, sorted by what rises or falls."
    " Neither a model nor a person has weighed them.",
}
FOR, AGAINST = "What speaks for it:", "What speaks against it:"
LITTLE = "The sources say little or nothing about: {missing}."
TOO_LITTLE = "The available sources contain too little to sum up, and nothing was invented."
NOTHING = (
    "The available sources contain nothing for this section, and nothing was invented. Add documents about {company}"
    " and write the memo again."
)
JUDGEMENT = "Judgement:"
"""How a sentence begins that a model adds as its own opinion. It has no source, and may contain no facts."""

_OWN_TEXTS = (*OPENINGS.values(), QUOTES, *CLOSINGS.values(), FOR, AGAINST, LITTLE, TOO_LITTLE, NOTHING)
OWN_SENTENCES = [each for text in _OWN_TEXTS for each in sentences(text)]
"""The sentences that the program adds by itself. They are not claims about the company."""

INSTRUCTIONS = (
    "You write one section of an investment memo from the given findings and from nothing else. Each sentence names the"
    " sources (keys) that it is based on. Keep every number, date and name exactly as in its source, and stay close to"
    " its words: a program compares them. Name the products that the findings name. Do not add facts, links or"
    " judgements that no finding supports. In mode 'consider', weigh the arguments. In mode 'justify', argue for the"
    " investment. The remarks are a reviewer's reasons for rejecting an earlier version: act on those that concern this"
    " section."
)
GATHERING = (
    " The findings are the sentences of the other sections. Sum up the most important ones, and do not repeat the"
    " sentences in 'unlike'. Only here, a sentence without sources is your own judgement; it contains no numbers and no"
    " names."
)
RECOMMENDING = " Say whether to invest, to wait or to decline, and why, and what is missing; do not repeat the summary."


class Job(BaseModel):
    """The input for writing one section."""

    model_config = ConfigDict(extra="forbid")

    company: str
    investment_type: InvestmentType
    memo_mode: MemoMode
    section: Section
    findings: list[Finding]
    missing: list[str] = []
    remarks: list[str] = []
    unlike: list[str] = []

    def inputs(self, used: str | None) -> str:
        """Return the hash of everything that the section is written from: this job, and the model if one is used."""
        return sha256(f"{self.model_dump_json()}\n{used}".encode()).hexdigest()


class Written(BaseModel):
    """A sentence from a model, and the passages that it is based on."""

    text: Text
    sources: list[str]


def rounds(outline: Sequence[Section]) -> list[list[Section]]:
    """Return the sections in the order of writing: first those with findings, then those that gather, summary last.

    The summary is the first section that gathers from others.
    """
    gathering = [section for section in outline if section.gathers]
    return [[section for section in outline if not section.gathers], gathering[1:], gathering[:1]]


async def write_section(job: Job, ctx: Context) -> str:
    """Return one section as Markdown."""
    if not job.findings:
        return nothing(job)
    return await _by_model(job, ctx) or extracted(job)


def nothing(job: Job) -> str:
    """Return a section without any findings."""
    text = TOO_LITTLE if job.section.gathers else NOTHING.format(company=job.company)
    return f"## {job.section.title}\n\n{_opening(job)}{text}\n"


def extracted(job: Job) -> str:
    """Return a section of sentences from the sources, one paragraph per source."""
    lines = [_attributed(finding.sentence, [finding.source]) for finding in job.findings]
    if not job.section.gathers:
        body = "\n\n".join(_paragraphs(job.findings, lines))
    elif job.section.name.endswith("recommendation"):
        body = _weighed(job, lines)
    else:
        body = f"{QUOTES}\n\n{_listed(lines)}"
    return f"## {job.section.title}\n\n{_opening(job)}{body}\n"


def _weighed(job: Job, lines: list[str]) -> str:
    """Return what speaks for the investment, what speaks against it, and what the sources do not say."""
    against = [line for line, finding in zip(lines, job.findings, strict=True) if finding.against]
    parts = [(FOR, [line for line in lines if line not in against]), (AGAINST, against)]
    shown = [f"{title}\n\n{_listed(those)}" for title, those in parts if those]
    missing = [LITTLE.format(missing=", ".join(job.missing))] if job.missing else []
    return "\n\n".join([*shown, *missing, CLOSINGS[job.memo_mode]])


def without_repeats(text: str, others: Iterable[str]) -> str:
    """Return a section without the cited sentences that other sections have, unless nothing would be left of it."""
    taken = {bare(each.sentence) for each in told(others)}
    lines = [_new_sentences(line, taken) for line in text.split("\n")]
    kept = "\n".join(line for line in lines if line is not None)
    return kept if KEY.search(kept) else text


def _new_sentences(line: str, taken: set[str]) -> str | None:
    """Return a line without the sentences that are taken; None if nothing is left of it."""
    said = sentences(line)
    new = [each for each in said if not (KEY.search(each) and bare(each) in taken)]
    return line if len(new) == len(said) else " ".join(new) or None


def _listed(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _opening(job: Job) -> str:
    if not job.section.gathers or job.section.name.endswith("recommendation"):
        return ""
    return OPENINGS[job.investment_type, job.memo_mode].format(company=job.company) + "\n\n"


def told(texts: Iterable[str]) -> list[Finding]:
    """Return the sentences of sections that are written, each with its first passage: for the summary."""
    lines = [line for text in texts for line in text.splitlines() if not line.startswith(("#", "|", "<!--"))]
    known = [(bare(each), KEY.search(each)) for line in lines for each in sentences(line)]
    return [Finding(sentence=text, source=key[1], score=0.0) for text, key in known if key is not None and text]


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
                _check(each, known, said, job.section.gathers)
            _check_unlike([each.text for each in self.sentences], job.unlike)
            return self

    answer = await model.ask(ctx, _instructions(job.section), job, SectionText)
    if answer is None:
        return None
    texts = [(as_prose(each.text), each.sources) for each in answer.sentences]
    lines = [_attributed(text, keys) if keys else f"{JUDGEMENT} {text}" for text, keys in texts if text]
    return f"## {job.section.title}\n\n{_opening(job)}{' '.join(lines)}\n"


def _instructions(section: Section) -> str:
    if not section.gathers:
        return INSTRUCTIONS
    return INSTRUCTIONS + GATHERING + (RECOMMENDING if section.name.endswith("recommendation") else "")


def _check_unlike(texts: list[str], others: list[str]) -> None:
    """Refuse a section that repeats another one that gathers from the same sections."""
    taken = {bare(each).rstrip(".") for each in others}
    same = [text for text in texts if bare(text).rstrip(".") in taken]
    if same and 2 * len(same) >= len(texts):
        raise ValueError(f"{same[0][:80]!r} is in another section; do not repeat that section, sum up all of them")


def _check(written: Written, known: set[str], said: str, gathers: bool) -> None:
    """Refuse a sentence with a source or a link that was not given, and a judgement with facts or in a wrong place."""
    if not written.sources and (not gathers or any(fact.kind != "name" for fact in facts(written.text))):
        raise ValueError(f"{written.text[:80]!r} names no sources; name those that it is based on")
    for key in written.sources:
        if key not in known:
            raise ValueError(f"{key!r} is not one of the given sources")
    for address in re.findall(r"\w+://[^\s)\]>]+", written.text):
        if address not in said:
            raise ValueError(f"{address} is not in the findings; add no links")
