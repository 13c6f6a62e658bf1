"""Evidence that a model finds: it reads all documents whole, in windows, and quotes the sentences for each section.

A quotation counts only if its passage has the sentence, or the row of a table. A window whose passages have not changed
is not read again. Without a model there is no such evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

from pydantic import BaseModel

from pausepoint import Context
from pausepoint.apps import model
from pausepoint.apps.memo.facts import plain
from pausepoint.apps.memo.models import Finding, Passage, Quotation, Section, Source, WindowReading
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
    " whole rows. Rate its importance from 1 to 5. Leave out boilerplate. Act on the remarks of a reviewer, if any."
)
PLANNING = (
    "You plan the research for an investment memo. Give up to six web searches for what a company's own documents"
    " rarely say: competitors, market size, customers, funding, lawsuits. Act on the remarks of a reviewer, if any."
)


class Window(BaseModel):
    """A part of the sources, and the sections of the memo."""

    company: str
    sections: dict[str, str]
    passages: dict[str, str] = {}
    remarks: list[str] = []


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
    ctx: Context, company: str, outline: Sequence[Section], sources: Sequence[Source],
    readings: Sequence[WindowReading], remarks: Sequence[str],
) -> tuple[dict[str, list[Finding]], list[WindowReading]]:  # fmt: skip
    """Return the sentences that a model chooses for each section, best first; none without a model.

    Also return what it has read. The model reads only the windows that are not among earlier ``readings``.
    """
    used = await model.in_use(ctx)
    if used is None:
        return {}, list(readings)
    about = {section.name: f"{section.title}: {', '.join(section.about)}" for section in outline if not section.gathers}
    window = Window(company=company, sections=about, remarks=list(remarks))
    inputs = _digest(f"{window.model_dump_json()}\n{used}")
    passages = [passage for source in sources if source.kind != "data" for passage in source.passages]
    parts = list(windows(passages, [reading for reading in readings if reading.inputs == inputs]))
    jobs = [window.model_copy(update={"passages": part}) for part, reading in parts if reading is None]
    answers = iter(await ctx.map(_read, jobs, key=lambda job: next(iter(job.passages)), concurrency=AT_ONCE))
    new = [
        WindowReading(inputs=inputs, keys=list(part), hashes=[_digest(text) for text in part.values()],
                quotations=next(answers).quotations if reading is None else _moved(reading, part))
        for part, reading in parts
    ]  # fmt: skip
    known = {passage.key: passage for passage in passages}
    return chosen([quotation for reading in new for quotation in reading.quotations], list(about), known), new


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]


def _moved(reading: WindowReading, part: dict[str, str]) -> list[Quotation]:
    """Return the quotations of a reading with the keys that its passages have now."""
    keys = dict(zip(reading.keys, part, strict=True))
    return [each.model_copy(update={"key": keys[each.key]}) for each in reading.quotations if each.key in keys]


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


def windows(
    passages: Sequence[Passage], readings: Sequence[WindowReading] = ()
) -> Iterator[tuple[dict[str, str], WindowReading | None]]:
    """Yield all passages, by key, in parts of about `WINDOW` characters, each with its earlier reading or None."""
    digests = [_digest(passage.text) for passage in passages]
    part, at = dict[str, str](), 0
    while at < len(passages):
        reading = next((each for each in readings if digests[at : at + len(each.hashes)] == each.hashes), None)
        if part and (reading or sum(map(len, part.values())) + len(passages[at].text) > WINDOW):
            yield part, None
            part = {}
        count = len(reading.keys) if reading else 1
        part |= {passage.key: passage.text for passage in passages[at : at + count]}
        at += count
        if reading:
            yield part, reading
            part = {}
    if part:
        yield part, None


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
