"""The memo's records: its input, the results of each agent, and the state."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_serializer

InvestmentType = Literal["direct", "fund"]
MemoMode = Literal["consider", "justify"]
SourceKind = Literal["deck", "document", "web", "data"]
FactKind = Literal["number", "date", "name"]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,80}$")]


def _address(given: str) -> str:
    """Refuse text that is not a web address, because it becomes a link in the memo."""
    if given and not re.fullmatch(r"https?://[^\s()<>\[\]\"]+", given):
        raise ValueError(f"{given!r} is not a web address. Start it with https:// and use no spaces or brackets.")
    return given


def _profile(given: str) -> str:
    if given and not re.match(r"https?://([\w-]+\.)?linkedin\.com/in/\S", _address(given)):
        raise ValueError(f"{given!r} is not a LinkedIn page. Start it with https://www.linkedin.com/in/.")
    return given


Address = Annotated[str, AfterValidator(_address)]
Title = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, pattern=r"^[^#\r\n][^\r\n]*$")]


class Part(BaseModel):
    """A record that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid")


# input


class Trademark(Part):
    """The company's spelling of its name, and the address of its logo."""

    mark: str = ""
    logo: Address = ""


class Person(Part):
    """A person of the company."""

    name: Text
    role: str = ""
    linkedin: Annotated[str, AfterValidator(_profile)] = ""


class CompanyData(Part):
    """The company's data: ``data/<Company>.json``."""

    name: Text
    description: str = ""
    website: Address = ""
    founded: int | None = None
    headquarters: str = ""
    stage: str = ""
    trademark: Trademark = Trademark()
    people: list[Person] = []
    links: dict[Text, Address] = {}
    deck: str | None = None
    documents: str | None = None
    outline: str | None = None


class Section(Part):
    """A section of the memo. ``about`` lists its typical words.

    A section with ``gathers`` takes the best sentence of each other section.
    """

    name: FileName
    title: Title
    about: list[str] = []
    gathers: bool = False
    team: bool = False


# research


class Slide(Part):
    """A page of the deck."""

    page: int
    title: str
    text: str


class DeckAnalysis(Part):
    """The analysis of the deck: its slides, and the figures, dates and names on them."""

    file: str
    pages: int
    slides: list[Slide]
    figures: list[str]
    dates: list[str]
    names: list[str]


class Link(Part):
    """A link in a source."""

    text: str
    url: str


class Passage(Part):
    """A part of a source that can be cited by its ``key``. ``part`` is the item of an annual report that it is in."""

    key: str
    text: str
    heading: str = ""
    part: str = ""
    page: int | None = None
    table: bool = False


class Source(Part):
    """A source. ``where`` is its file or its address."""

    key: str
    title: str
    kind: SourceKind
    where: str
    passages: list[Passage]
    links: list[Link] = []


class Remark(Part):
    """Why a person has rejected a memo, and the agent that has to act on it."""

    agent: str
    reason: Text


class HandEdit(Part):
    """A person's edit of a section: the text as it was, and as the person left it."""

    section: str
    base: str
    text: str


class Drafted(Part):
    """A section as the draft wrote it, and the hash of everything that it was written from."""

    inputs: str
    text: str


class Quotation(BaseModel):
    """A sentence that a model quotes for a section, and the key of its passage."""

    section: str
    key: str
    sentence: str
    importance: float = 3


class WindowReading(Part):
    """What a model has quoted from a window of the sources.

    ``inputs`` is the hash of what the model was asked for, and ``hashes`` are those of the passages with these keys.
    """

    inputs: str
    keys: list[str]
    hashes: list[str]
    quotations: list[Quotation]


class Research(Part):
    """All sources of the memo, and the documents that could not be read."""

    company: str = ""
    queries: list[str] = []
    sources: list[Source] = []
    unread: list[str] = []


class Finding(Part):
    """A sentence for a section, and its passage. ``against``: it speaks against the investment."""

    sentence: str
    source: str
    score: float
    against: bool = False


class SectionResearch(Part):
    """The findings of every section, and the sources that were searched for single sections.

    ``missing`` is what the sources say too little about.
    """

    findings: dict[str, list[Finding]] = {}
    queries: list[str] = []
    sources: list[Source] = []
    missing: list[str] = []


# validation


class Unsupported(Part):
    """A claim that its source does not support, and the facts that are missing there."""

    section: str
    claim: str
    citation: int | None = None
    facts: list[str] = []
    why: str


class CitationValidation(Part):
    """The check of citations: whether they exist, and whether their passages support the claims."""

    citations: int
    claims: int
    cited: int
    supported: int
    dangling: list[int] = []
    unused: list[int] = []
    unknown: list[int] = []
    unsupported: list[Unsupported] = []


class FactCheck(Part):
    """The check of every number, date and name of the memo against all sources."""

    facts: int
    supported: int
    unsupported: list[Unsupported] = []


class Scores(Part):
    """The parts of the overall score, each from 0 to 1, and the sections that lack sources.

    ``unsupported`` is the number of claims that no source supports; one of them caps the overall score. ``sections``
    has a score for each section.
    """

    coverage: float
    citations: float
    support: float
    thin: list[str] = []
    unsupported: int = 0
    sections: dict[str, float] = {}


class Validation(Part):
    """``3-validation.json``. Each of the three validators adds its keys."""

    citation_validation: CitationValidation | None = None
    fact_check_results: FactCheck | None = None
    validation_results: Scores | None = None
    overall_score: float | None = None

    @model_serializer(mode="wrap")
    def without_missing(self, serialize: Any) -> dict[str, Any]:
        """Omit the keys of validators that have not run yet."""
        return {name: value for name, value in serialize(self).items() if value is not None}


class Review(Part):
    """The verdict on a memo. A person gives it if the score is too low.

    A person who rejects a memo gives a ``reason`` and names the ``agent`` that has to act on it; "" ends the memo.
    """

    verdict: Literal["not needed", "approved", "rejected"]
    score: float
    reason: str = ""
    agent: str = ""


class DraftSection(Part):
    """A section in `MemoDocument`."""

    section_name: str
    content: str
    word_count: int
    citations: list[str] = []


class MemoDocument(Part):
    """The whole memo as one document: ``state.json``."""

    company_name: str = ""
    investment_type: InvestmentType = "direct"
    memo_mode: MemoMode = "consider"
    company_data: CompanyData | None = None
    deck_analysis: DeckAnalysis | None = None
    research: Research = Research()
    section_research: SectionResearch = SectionResearch()
    draft_sections: dict[str, DraftSection] = {}
    validation_results: dict[str, Any] = {}
    citation_validation: dict[str, Any] = {}
    fact_check_results: dict[str, Any] = {}
    overall_score: float = 0.0
    final_memo: str = ""
    review: Review | None = None


class MemoState(BaseModel):
    """The state of a session."""

    model_config = ConfigDict(extra="forbid")

    company_name: Text = Field(description="The company.")
    company_data: CompanyData
    outline: list[Section]
    investment_type: InvestmentType = "direct"
    memo_mode: MemoMode = "consider"
    deck: Path | None = None
    documents: Path | None = None
    deck_analysis: DeckAnalysis | None = None
    research: Research = Research()
    section_research: SectionResearch = SectionResearch()
    readings: list[WindowReading] = []
    sections: dict[str, str] = {}
    drafted: dict[str, Drafted] = {}
    hand_edits: list[HandEdit] = []
    remarks: list[Remark] = []
    header: str = ""
    memo: str = ""
    validation: Validation = Validation()
    draft_page: str | None = None
    final: MemoDocument = MemoDocument()
    page: str | None = None


def document(state: MemoState, review: Review | None = None) -> MemoDocument:
    """Return the state as one document, with defaults for missing parts."""
    found = state.validation
    return MemoDocument(
        company_name=state.company_name, investment_type=state.investment_type, memo_mode=state.memo_mode,
        company_data=state.company_data, deck_analysis=state.deck_analysis, research=state.research,
        section_research=state.section_research,
        draft_sections={name: _section(name, text) for name, text in state.sections.items()},
        validation_results=_dumped(found.validation_results), citation_validation=_dumped(found.citation_validation),
        fact_check_results=_dumped(found.fact_check_results), overall_score=found.overall_score or 0.0,
        final_memo=state.memo, review=review,
    )  # fmt: skip


def _section(name: str, content: str) -> DraftSection:
    title = name.replace("-", " ").title()
    return DraftSection(section_name=title, content=content, word_count=len(content.split()))


def _dumped(part: Part | None) -> dict[str, Any]:
    return part.model_dump(mode="json") if part is not None else {}
