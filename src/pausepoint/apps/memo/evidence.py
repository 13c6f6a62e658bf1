"""Evidence that a model finds: it reads all documents whole, in windows, and quotes the sentences for each section.

A quotation counts only if its passage has the sentence, or the row of a table. Without a model there is no such
evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from pausepoint import Context
from pausepoint.apps import model
from pausepoint.apps.memo.facts import plain
from pausepoint.apps.memo.models import Finding, Passage, Section, Source
from pausepoint.apps.memo.prose import sentences

WINDOW = 30_000
"""The number of characters that a model reads at a time."""

AT_ONCE = 4
"""The number of windows that are read at the same time."""

MOST = 12
"""The maximum number of sentences of a section that a model chooses."""

READING = (
    "You read a part of the sources for an investment memo. For each section of the memo, quote the sentences that an"
    " investor needs: what the company sells and to whom, product names, figures, growth, margins, customers,"
    " competitors, people, terms, risks. Quote each sentence exactly, with the key of its passage; of a table, quote"
    " whole rows. Rate its importance from 1 to 5. Leave out boilerplate."
)
PLANNING = (
    "You plan the research for an investment memo. Give up to six web searches for what a company's own documents"
    " rarely say: competitors, market size, customers, funding, lawsuits. Act on the remarks of a reviewer, if any."
)


class Window(BaseModel):
    """A part of the sources, and the sections of the memo."""

    company: str
    sections: dict[str, str]
    passages: dict[str, str]


class Quotation(BaseModel):
    """A sentence for a section."""

    section: str
    key: str
    sentence: str
    importance: float = 3


class Evidence(BaseModel):
    """What a model finds in a window."""

    quotations: list[Quotation] = []


class Queries(BaseModel):
    """The web searches that a model plans."""

    queries: list[str] = []


async def planned(ctx: Context, company: str, kind: str, remarks: Sequence[str]) -> list[str]:
    """Return the searches that a model plans; none without a model."""
    data = {"company": company, "investment_type": kind, "remarks": list(remarks)}
    found = await model.ask(ctx, PLANNING, data, Queries)
    return [query.strip()[:200] for query in found.queries if query.strip()][:6] if found is not None else []


async def found(
    ctx: Context, company: str, outline: Sequence[Section], sources: Sequence[Source]
) -> dict[str, list[Finding]]:  # fmt: skip
    """Return the sentences that a model chooses for each section, best first; none without a model."""
    if await model.in_use(ctx) is None:
        return {}
    about = {section.name: f"{section.title}: {', '.join(section.about)}" for section in outline if not section.gathers}
    jobs = [Window(company=company, sections=about, passages=each) for each in windows(sources)]
    read = await ctx.map(_read, jobs, key=lambda job: next(iter(job.passages)), concurrency=AT_ONCE)
    known = {passage.key: passage for source in sources for passage in source.passages}
    return chosen([each for evidence in read for each in evidence.quotations], list(about), known)


def chosen(
    quotations: Sequence[Quotation], sections: Sequence[str], known: dict[str, Passage]
) -> dict[str, list[Finding]]:  # fmt: skip
    """Return the best sentences of each section. Each sentence is in one section, so that no two sections are alike."""
    found: dict[str, list[Finding]] = {}
    taken: set[str] = set()
    for quotation in sorted(quotations, key=lambda each: -each.importance):
        sentence = _quoted(quotation, known)
        if sentence and quotation.section in sections and plain(sentence) not in taken:
            taken.add(plain(sentence))
            score = round(min(max(quotation.importance, 0.0), 5.0), 3)
            found.setdefault(quotation.section, []).append(
                Finding(sentence=sentence, source=quotation.key, score=score)
            )
    return {name: each[:MOST] for name, each in found.items()}


async def _read(job: Window, ctx: Context) -> Evidence:
    return await model.ask(ctx, READING, job, Evidence) or Evidence()


def windows(sources: Sequence[Source]) -> Iterator[dict[str, str]]:
    """Yield all passages of the sources, by key, in parts of about `WINDOW` characters."""
    part, size = dict[str, str](), 0
    for passage in (each for source in sources if source.kind != "data" for each in source.passages):
        if part and size + len(passage.text) > WINDOW:
            yield part
            part, size = {}, 0
        part[passage.key] = passage.text
        size += len(passage.text)
    if part:
        yield part


def _quoted(quotation: Quotation, known: dict[str, Passage]) -> str:
    """Return the sentence as its passage has it, or an empty string if it does not."""
    passage = known.get(quotation.key)
    wanted = plain(quotation.sentence)
    if passage is None or not wanted:
        return ""
    if passage.table:
        return _row(passage, wanted)
    return next((each for each in sentences(passage.text) if plain(each) == wanted), "")


def _row(passage: Passage, wanted: str) -> str:
    """Return a row of a table with the headings of its columns, or an empty string if the table has no such row."""
    head, *rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in passage.text.splitlines()]
    row = next((row for row in rows if plain(" ".join(row)) == wanted), None)
    if row is None:
        return ""
    values = [f"{name}: {value}" for name, value in zip(head[1:], row[1:], strict=False) if value]
    units = f" ({head[0]})" if head[0] else ""
    return f"{passage.heading}{units}, {row[0]}: {'; '.join(values)}."
