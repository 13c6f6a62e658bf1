"""How the memo is written and checked: sentences, enrichments, citations, validators, the score, a model, a search."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pausepoint import Retry, Status
from pausepoint.apps.memo import checks as checking
from pausepoint.apps.memo import citations as citing
from pausepoint.apps.memo import documents, research, search
from pausepoint.apps.memo import draft as writing
from pausepoint.apps.memo import enrichment as enriching
from pausepoint.apps.memo.models import (
    CompanyData,
    Finding,
    Link,
    Passage,
    Person,
    Section,
    Source,
    Trademark,
    Validation,
)
from pausepoint.apps.memo.settings import starting
from pausepoint.apps.memo.workflow import PATIENCE, memo
from tests.apps.memo_kit import PAGE, Calls, Desk, searched
from tests.support.loop import on_loop
from tests.support.modelserver import Refuses, Says, model_in_use

SOON = Retry(attempts=2, first=0, on=PATIENCE.on)
DATA = CompanyData(name="Acme")
PEOPLE = Section(name="01-team", title="Team", about=["chief", "founder"], team=True)
MONEY = Section(name="02-money", title="Money", about=["revenue", "raised"])
SUMMARY = Section(name="00-summary", title="Summary", gathers=True)
OUTLINE = [SUMMARY, PEOPLE, MONEY]


def source(key: str, *texts: str, links: dict[str, str] | None = None) -> Source:
    passages = [
        Passage(
            key=f"{key}-{number}",
            text=text,
            table=text.startswith("|"),
            heading="Revenue by year" * text.startswith("|"),
        )
        for number, text in enumerate(texts, 1)
    ]
    found = [Link(text=text, url=url) for text, url in (links or {}).items()]
    return Source(key=key, title=key.title(), kind="document", where=f"{key}.md", passages=passages, links=found)


REPORT = source(
    "report", "Revenue rose to $4.2 million in 2029. It rained a lot that year in many places.",
    "Acme raised $3 million from Harbour Capital.", "Ada Moss is the founder of Acme.",
)  # fmt: skip


# choosing


def test_sentences_go_to_the_section_whose_words_they_share_with_their_passage() -> None:
    found = research.select("Acme", OUTLINE, [REPORT])
    assert [(each.sentence, each.source) for each in found["02-money"]] == [
        ("Revenue rose to $4.2 million in 2029.", "report-1"),
        ("Acme raised $3 million from Harbour Capital.", "report-2"),
    ]
    assert [each.source for each in found["01-team"]] == ["report-3"]
    assert [each.source for each in found["00-summary"]] == ["report-3", "report-2"]
    assert not any("rained" in each.sentence for findings in found.values() for each in findings)


def test_what_two_sources_say_alike_is_said_once() -> None:
    found = research.select("Acme", OUTLINE, [REPORT, source("copy", "Revenue rose to $4.2 million in 2029.")])
    assert [each.source for each in found["02-money"]] == ["report-1", "report-2"]


def test_a_section_that_no_source_has_anything_for_says_so() -> None:
    job = writing.Job(company="Acme", investment_type="direct", memo_mode="consider", section=MONEY, findings=[])
    text = writing.nothing(job)
    assert text.startswith("## Money\n\nThe available sources contain nothing for this section")
    assert len(text) > 100


@pytest.mark.parametrize(
    ("kind", "mode", "said"),
    [
        ("direct", "consider", "This memo weighs a direct investment in Acme. Nothing is decided yet."),
        ("fund", "justify", "This memo gives the reasons for a commitment to the fund Acme."),
    ],
)
def test_a_summary_says_what_the_memo_is_for(kind: Any, mode: Any, said: str) -> None:
    finding = Finding(sentence="Revenue rose.", source="report-1", score=1.0)
    job = writing.Job(company="Acme", investment_type=kind, memo_mode=mode, section=SUMMARY, findings=[finding])
    assert writing.extracted(job) == f"## Summary\n\n{said}\n\n- Revenue rose [@report-1].\n"


# enriching


@pytest.mark.covers("S4.16", "S4.43")
def test_the_header_has_the_trademark_of_the_data_and_none_without_one() -> None:
    marked = CompanyData(name="Acme", trademark=Trademark(mark="ACME™", logo="https://acme.example/l.svg"))
    assert enriching.header("Acme", marked, "direct", "consider").startswith(
        "![Acme](https://acme.example/l.svg)\n\n# ACME™\n\n*Investment memo: direct investment, for consideration.*\n"
    )
    assert enriching.header("Acme", DATA, "fund", "justify").startswith("# Acme\n\n*Investment memo: fund commitment")


@pytest.mark.covers("S4.17", "S4.43")
def test_people_get_the_linkedin_page_that_the_data_or_a_source_has_and_nobody_else_does() -> None:
    data = CompanyData(name="Acme", people=[Person(name="Ada Moss", linkedin="https://www.linkedin.com/in/ada")])
    papers = source(
        "team", "Bo Reed joined Ada Moss. Cy Fox is new.",
        links={"Bo Reed": "https://linkedin.com/in/bo-r", "": "https://linkedin.com/in/cy-fox-1", "Acme": "https://a.example"},
    )  # fmt: skip
    text = "## Team\n\nAda Moss met Bo Reed, Cy Fox and Di Orr. Ada Moss left.\n"
    found = enriching.socials({"01-team": text, "02-money": "Ada Moss pays.\n"}, OUTLINE, data, [papers])
    assert found["01-team"] == (
        "## Team\n\n[Ada Moss](https://www.linkedin.com/in/ada) met [Bo Reed](https://linkedin.com/in/bo-r),"
        " [Cy Fox](https://linkedin.com/in/cy-fox-1) and Di Orr. Ada Moss left.\n"
    )
    assert found["02-money"] == "Ada Moss pays.\n"
    assert enriching.socials(found, OUTLINE, data, [papers]) == found, "twice changes nothing"
    none = enriching.socials({"01-team": text}, OUTLINE, DATA, [])
    assert none["01-team"].endswith(f"{enriching.NO_SOCIALS}\n")
    assert enriching.socials(none, OUTLINE, DATA, []) == none


@pytest.mark.parametrize(
    ("text", "url", "whose"),
    [
        ("View Profile", "https://linkedin.com/in/bo-reed-7", "Bo Reed"),
        ("", "https://linkedin.com/in/boreed", "Bo Reed"),
        ("", "https://linkedin.com/in/alice-lind", ""),
        ("", "https://linkedin.com/in/somebody", ""),
    ],
)
def test_nobody_gets_the_page_of_another(text: str, url: str, whose: str) -> None:
    papers = source("team", "Here Bo Reed met Al Li in Porto.", links={text: url})
    assert enriching.profiles(DATA, [papers]) == ({whose: url} if whose else {})


def test_numbers_of_different_kinds_make_no_chart() -> None:
    table = "| What | Value |\n|---|---|\n| Margin | 44 % |\n| Revenue | $4.2 million |"
    assert "mermaid" not in enriching.drawn(Passage(key="p-1", text=table, table=True))


@pytest.mark.covers("S4.18")
def test_links_are_those_of_the_sources_once_in_a_section_and_not_within_names_headings_tables_or_links() -> None:
    papers = source("p", "x.", links={"Porto": "https://porto.example", "lower": "https://l.example"})
    text = (
        "## Porto\n\nThe University of Porto and [Porto Bank](https://b.example) are in Porto [@p-1]. Porto, lower.\n\n"
        "| Porto | 1 |\n"
    )
    found = enriching.links({"a": text, "b": "Nothing.\n"}, DATA, [papers])
    assert found["a"] == text.replace("are in Porto ", "are in [Porto](https://porto.example) ")
    assert found["b"] == "Nothing.\n"
    assert enriching.links(found, DATA, [papers]) == found
    none = enriching.links({"a": "Nothing.\n"}, DATA, [])
    assert none == {"a": f"Nothing.\n\n{enriching.NO_LINKS}\n"}
    assert enriching.links(none, DATA, []) == none


@pytest.mark.covers("S4.19")
def test_tables_of_the_sources_are_shown_with_their_chart_where_they_fit() -> None:
    table = "| Year | Revenue |\n|---|---|\n| 2028 | $1.9 million |\n| 2029 | $4.2 million |"
    papers = source("p", table, "| Kind | Remark |\n|---|---|\n| Cats | none |\n| Dogs | some |")
    sections = {"01-team": "## Team\n", "02-money": "## Money\n"}
    found = enriching.visualizations(sections, OUTLINE, [papers])
    assert found["01-team"] == "## Team\n"
    assert f"<!-- viz: Revenue by year -->\n**Revenue by year** [@p-1]\n\n{table}\n" in found["02-money"]
    assert 'x-axis ["2028", "2029"]\n    y-axis "Revenue"\n    bar [1900000, 4200000]' in found["02-money"]
    assert found["02-money"].count("mermaid") == 1, "a table without numbers has no chart"
    assert enriching.visualizations(found, OUTLINE, [papers]) == found
    none = enriching.visualizations(sections, OUTLINE, [REPORT])
    assert none["01-team"].endswith(f"{enriching.NO_VIZ}\n")


# citing and checking


def cited(*lines: str, sources: list[Source] | None = None) -> str:
    sections = {"01-team": "## Team\n", "02-money": "## Money\n\n" + "\n".join(lines) + "\n"}
    return citing.assembled("# Acme\n", sections, OUTLINE, sources or [REPORT])


@pytest.mark.covers("S4.20")
def test_citations_are_numbered_as_they_come_and_lead_to_the_passages() -> None:
    memo = cited(
        "Acme raised $3 million [@report-2]. Revenue rose [@report-1][@report-2].", "Led by Ada Moss [@report-3]."
    )
    assert "Acme raised $3 million[^1]. Revenue rose[^2][^1].\nLed by Ada Moss[^3]." in memo
    assert citing.definitions(memo) == {1: "report-2", 2: "report-1", 3: "report-3"}
    assert citing.references(memo) == [1, 2, 3]
    assert "[^1]: Report, report.md: “Acme raised $3 million from Harbour Capital.” (report-2)" in memo


def test_a_sentence_that_somebody_put_in_gets_the_passage_that_has_its_facts_or_none() -> None:
    memo = cited("Revenue was $4.2 million in 2029. Profit was $9 million. Ada Moss likes cats. It is good.")
    assert "Revenue was $4.2 million in 2029[^1]. Profit was $9 million. Ada Moss likes cats. It is good." in memo
    assert citing.definitions(memo) == {1: "report-1"}


def test_a_key_that_leads_nowhere_is_left_out_and_its_claim_is_reported() -> None:
    memo = cited("Profit was $9 million [@gone-7].")
    assert "Profit was $9 million." in memo
    found = checking.check_citations(memo, [REPORT])
    assert [(each.claim, each.why) for each in found.unsupported] == [("Profit was $9 million.", "it has no citation")]


@pytest.mark.covers("S4.21")
def test_every_claim_is_compared_with_the_passage_that_it_cites() -> None:
    memo = cited(
        "Acme raised $3 million from Harbour Capital [@report-2].",
        "Acme raised $5 million from Harbour Capital [@report-2].",
        "Revenue rose in 2028 [@report-1].", "Bo Reed is the founder of Acme [@report-3].",
    )  # fmt: skip
    found = checking.check_citations(memo, [REPORT])
    assert (found.citations, found.claims, found.cited, found.supported) == (3, 4, 4, 1)
    assert [(each.section, each.citation, each.facts) for each in found.unsupported] == [
        ("Money", 1, ["$5 million"]), ("Money", 2, ["2028"]), ("Money", 3, ["Bo Reed"])
    ]  # fmt: skip


PASSAGE = (
    "Acme raised $12 million from Harbour Capital on 14 January 2030. Revenue did not fall in 2029. Ada Moss leads a"
    " team of fourteen engineers. Gross margin rose to 44 percent. The plant is in Porto, next to that of Gypsora."
)
NOTE = "The growth of Hempwall was -5 percent."
MUTATED = [
    ("Acme raised $12 million from Harbour Capital on 14 January 2030.", ""),
    ("Acme raised twelve million dollars on Jan 14, 2030.", ""),
    ("Ada Moss leads a team of 14 engineers.", ""),
    ("Revenue did not fall in 2029.", ""),
    ("Acme raised $13 million from Harbour Capital.", "the passage does not contain $13 million"),
    ("Acme raised €12 million from Harbour Capital.", "the passage does not contain €12 million"),
    ("Acme raised $12 billion from Harbour Capital.", "the passage does not contain $12 billion"),
    ("Acme raised thirteen million dollars.", "the passage does not contain 13 million dollars"),
    ("Ada Moss leads a team of forty-one engineers.", "the passage does not contain 41"),
    ("Acme raised $12 million from Harbor Capital.", "the passage does not contain Harbor Capital"),
    ("Eve Moss leads a team of engineers.", "the passage does not contain Eve Moss"),
    ("Hempwall leads a team of engineers.", "the passage does not contain Hempwall"),
    ("Acme raised $12 million on 15 January 2030.", "the passage does not contain 15 January 2030"),
    ("Acme raised $12 million on 14 February 2030.", "the passage does not contain 14 February 2030"),
    ("Acme raised $12 million on 14.01.2031.", "the passage does not contain 14.01.2031"),
    ("Acme raised $12 million on Jan 15, 2030.", "the passage does not contain Jan 15, 2030"),
    (
        "Acme did not raise $12 million from Harbour Capital.",
        "the claim denies something that the passage does not deny",
    ),
    ("Acme never raised $12 million.", "the claim denies something that the passage does not deny"),
    ("Acme failed to raise $12 million.", "the claim denies something that the passage does not deny"),
    ("Acme has no plant in Porto.", "the claim denies something that the passage does not deny"),
    ("Revenue fell in 2029.", "the passage denies the claim"),
    ("Gross margin fell to 44 percent.", "the passage says the opposite: one rises, the other falls"),
    ("Acme is insolvent and a fraud.", "the passage is about something else"),
]


@pytest.mark.covers("S4.21")
@pytest.mark.parametrize(("claim", "why"), MUTATED)
def test_a_claim_with_another_digit_name_or_date_or_the_opposite_is_found_out(claim: str, why: str) -> None:
    sources = [source("report", PASSAGE), source("note", NOTE)]
    memo = cited(f"{claim[:-1]} [@report-1].", sources=sources)
    found = checking.check_citations(memo, sources, "Acme")
    assert (found.claims, found.cited, found.supported) == (1, 1, 0 if why else 1)
    assert [each.why for each in found.unsupported] == ([why] if why else [])


def test_a_sign_is_a_part_of_a_number() -> None:
    memo = cited("The growth of Hempwall was 5 percent [@note-1].", sources=[source("note", NOTE)])
    assert [each.facts for each in checking.check_citations(memo, [source("note", NOTE)]).unsupported] == [
        ["5 percent"]
    ]


HIDDEN = [
    "**Acme raised $99 million.**", "### Acme raised $99 million", "- [Acme raised $99 million](https://x.example)",
    "```", "> Acme raised $99 million.", "*Acme raised $99 million.*", "| Acme raised | $99 million |",
]  # fmt: skip


@pytest.mark.parametrize("line", HIDDEN)
def test_no_form_hides_a_claim(line: str) -> None:
    lines = ["```", "Acme raised $99 million.", "```"] if line == "```" else [line]
    memo = cited(*lines)
    for found in (
        checking.check_citations(memo, [REPORT]).unsupported,
        checking.check_facts(memo, [REPORT], DATA).unsupported,
    ):
        assert ["$99 million"] in [[fact for fact in each.facts if "99" in fact] for each in found]


def test_a_claim_in_the_header_is_one_and_a_section_goes_on_behind_a_heading_within() -> None:
    sections = {"02-money": "## Money\n\n### Details\n\nAcme raised $3 million [@report-2].\n"}
    memo = citing.assembled("# Acme\n\nWorth $5 billion.\n", sections, [MONEY], [REPORT])
    assert [(claim.section, claim.text) for claim in citing.claims(memo)] == [
        ("", "Worth $5 billion."), ("Money", "Acme raised $3 million.")
    ]  # fmt: skip


def test_the_name_of_the_company_is_no_claim_and_proves_nothing_however_it_writes_it() -> None:
    job = writing.Job(
        company="Acme Works", investment_type="direct", memo_mode="consider", section=SUMMARY, findings=[]
    )
    memo = citing.assembled("# ACME®\n", {"00-summary": writing.nothing(job)}, [SUMMARY], [REPORT])
    assert checking.check_citations(memo, [REPORT], "Acme Works").claims == 0
    assert checking.check_facts(memo, [REPORT], DATA, "Acme Works").facts == 0


@pytest.mark.parametrize(
    ("sentence", "key"),
    [
        ("Revenue was $4.2 million in 2029.", "report-1"),
        ("The founder was arrested for theft in 2029.", None),
        ("Acme never raised $3 million.", None),
    ],
)
def test_a_sentence_that_somebody_put_in_is_cited_only_by_what_bears_it_out(sentence: str, key: str | None) -> None:
    assert citing.definitions(cited(sentence)) == ({1: key} if key else {})


def test_citations_that_do_not_resolve_are_listed() -> None:
    memo = cited("Acme raised $3 million [@report-2].") + "[^7]: Other, other.md: “…” (other-1)\n"
    memo = memo.replace("million[^1].", "million[^1]. Nobody knows[^9].")
    found = checking.check_citations(memo, [REPORT])
    assert (found.dangling, found.unused, found.unknown) == ([9], [7], [7])
    assert [(each.claim, each.why) for each in found.unsupported] == [("Nobody knows.", "its citation does not exist")]


@pytest.mark.covers("S4.22")
def test_every_fact_is_looked_for_in_all_sources_and_the_data() -> None:
    memo = cited("Revenue of $4.2 million and Bo Reed [@report-1]. Founded in 2026. In 2031 all is well.")
    data = CompanyData(name="Acme", founded=2026)
    found = checking.check_facts(memo, [REPORT], data)
    assert (found.facts, found.supported) == (4, 2)
    assert [(each.facts, each.why) for each in found.unsupported] == [
        (["Bo Reed"], "no source contains Bo Reed"), (["2031"], "no source contains 2031")
    ]  # fmt: skip


def test_the_rows_of_a_table_are_claims_too() -> None:
    memo = cited(
        "**Sales** [@report-1]",
        "",
        "| Year | Revenue |",
        "|---|---|",
        "| 2029 | $4.2 million |",
        "| 2030 | $9 million |",
    )
    found = checking.check_citations(memo, [REPORT])
    assert [(each.claim, each.facts) for each in found.unsupported] == [("2030 ; $9 million", ["2030", "$9 million"])]


@pytest.mark.covers("S4.23", "S4.42")
@pytest.mark.parametrize(
    ("lines", "shares", "overall"),
    [
        ([], (0.0, 0.0, 0.0), 0.0),
        (["Acme raised $3 million [@report-2].", "Revenue rose in 2029 [@report-1]."], (0.333, 1.0, 1.0), 7.3),
        (["Acme raised $3 million [@report-2].", "Revenue rose in 2031 [@report-1]."], (0.167, 0.5, 0.5), 3.7),
    ],
)
def test_the_score_comes_from_coverage_citations_and_support(
    lines: list[str], shares: tuple[float, ...], overall: float
) -> None:
    memo = cited(*lines)
    found = Validation(
        citation_validation=checking.check_citations(memo, [REPORT]),
        fact_check_results=checking.check_facts(memo, [REPORT], DATA),
    )
    scores, total = checking.score(memo, OUTLINE, found)
    assert ((scores.coverage, scores.citations, scores.support), total) == (shares, overall)


# with a model


def short(tmp_path: Path) -> Path:
    path = tmp_path / "short.toml"
    path.write_text('[[section]]\nname = "1-money"\ntitle = "Money"\nabout = ["revenue", "raised"]\n')
    return path


def says(text: str, *keys: str) -> Says:
    return Says(json.dumps({"sentences": [{"text": text, "sources": list(keys)}]}))


@pytest.mark.covers("S4.107")
@on_loop
async def test_a_model_writes_the_sections_and_the_same_validators_check_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Calls
) -> None:
    desk = Desk(tmp_path, outline=short(tmp_path))
    with model_in_use(monkeypatch, price="1000/1000") as server:
        server.will(
            says("Revenue was $4.2 million.", "made-up-1"),
            Says(json.dumps({"sentences": [
                {"text": "Revenue was $4.2 million in 2029.", "sources": ["annual-report-2"]},
                {"text": "It will be $50 million in 2035", "sources": ["annual-report-2"]},
            ]})),
        )  # fmt: skip
        outcome = await desk.run(until="validate")
        assert "'made-up-1' is not one of the given sources" in server.requests[1]["messages"][-1]["content"]
        assert len(server.requests) == 2
        assert outcome.spent_usd == pytest.approx(0.24)
        outcome = await desk.resume()
    assert desk.read("2-sections/1-money.md").startswith(
        "## Money\n\nRevenue was $4.2 million in 2029 [@annual-report-2]."
        " It will be $50 million in 2035 [@annual-report-2]."
    )
    found = outcome.state.validation.fact_check_results
    assert found is not None
    assert [each.facts for each in found.unsupported] == [["2035", "$50 million"]]
    assert outcome.saved_usd == pytest.approx(0.24), "the draft is what cost money, and it was not written again"
    assert outcome.spent_usd == pytest.approx(0.24)


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("# Revenue [rose](https://evil.example)[^7] [@risks-1]. <!-- viz: x -->", None),
        ("- Revenue rose[^7] [@risks-1]. <!-- viz: x --> ```", "Revenue rose [@annual-report-2]."),
        (
            "| Revenue <script>alert(1)</script>\nrose.",
            "Revenue &lt;script>alert(1)&lt;/script> rose [@annual-report-2].",
        ),
    ],
)
@on_loop
async def test_a_model_can_write_sentences_and_nothing_that_means_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, written: str | None
) -> None:
    desk = Desk(tmp_path, outline=short(tmp_path))
    with model_in_use(monkeypatch, price="1000/1000") as server:
        server.will(says(said, "annual-report-2"), says("Revenue rose.", "annual-report-2"))
        await desk.run(until="draft")
        refused = written is None
        assert len(server.requests) == 1 + refused
        if refused:
            assert "https://evil.example is not in the findings" in server.requests[1]["messages"][-1]["content"]
    assert desk.read("2-sections/1-money.md") == f"## Money\n\n{written or 'Revenue rose [@annual-report-2].'}\n"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls().watch(monkeypatch)


@pytest.mark.covers("S4.2", "S4.7")
@on_loop
async def test_what_a_model_has_written_before_it_failed_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Calls
) -> None:
    outline = short(tmp_path)
    outline.write_text(outline.read_text() + '[[section]]\nname = "2-risk"\ntitle = "Risk"\nabout = ["risk", "fire"]\n')
    desk = Desk(tmp_path, outline=outline)
    with model_in_use(monkeypatch, price="1000/1000") as server:
        monkeypatch.setattr("pausepoint.apps.memo.workflow.AT_ONCE", 1)
        server.will(says("Revenue was $4.2 million.", "annual-report-2"), Refuses(), says("Risky.", "risks-1"))
        outcome = await desk.run()
        assert (outcome.status, outcome.failure and outcome.failure.step) == (Status.FAILED, "draft")
        assert (calls.sections(), not desk.file("2-sections").exists()) == (["1-money", "2-risk"], True)
        outcome = await desk.resume()
    assert calls.sections() == ["2-risk"]
    assert len(server.requests) == 3
    assert desk.read("2-sections/2-risk.md") == "## Risk\n\nRisky [@risks-1].\n"


# with a search service


@pytest.fixture
def _impatient() -> Iterator[None]:
    """Retries without waiting."""
    step = memo.step("research")
    msgspec.structs.force_setattr(step, "retry", SOON)
    yield
    msgspec.structs.force_setattr(step, "retry", PATIENCE)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.covers("S4.13", "S4.14", "S4.84", "S4.106")
@on_loop
async def test_with_a_key_the_web_is_searched_cited_paid_for_and_not_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path, "Quietwater")
    with searched(monkeypatch, [PAGE, {"title": "no page", "url": "ftp://x", "content": "y"}]) as server:
        server.script = [503]
        outcome = await desk.run(until="section_research")
        general = ["Quietwater", "Quietwater", "Quietwater funding investors", "Quietwater founders team"]
        assert server.queries[:4] == general, "the first was tried again"
        assert {*server.keys} == {"Bearer secret"}
        count = len(server.queries)
        assert outcome.spent_usd == pytest.approx(0.01 * (count - 1))
        outcome = await desk.resume()
        assert len(server.queries) == count
    assert outcome.saved_usd == pytest.approx(0.01 * (count - 1))
    memo = desk.read("4-final-draft.md")
    assert "Quietwater raised $5 million in a seed round in May 2029[^" in memo
    assert "Quietwater raises money, https://news.example/quietwater: “" in memo
    assert "[Mosswood Partners](https://mosswood.example)" in memo
    asked_for = json.loads(desk.read("1-section-research.json"))["queries"]
    assert any(query.startswith("Quietwater Team ") for query in asked_for)


@pytest.mark.parametrize("status", [401, 404])
@on_loop
async def test_a_key_that_is_refused_fails_the_agent_at_once_and_says_what_to_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    desk = Desk(tmp_path, "Quietwater")
    with searched(monkeypatch, []) as server:
        server.script = [status]
        outcome = await desk.run()
    assert outcome.failure is not None
    assert (outcome.status, outcome.failure.step, outcome.failure.attempts) == (Status.FAILED, "research", 1)
    assert f"status {status}" in outcome.failure.message
    assert "PAUSEPOINT_SEARCH_KEY" in outcome.failure.message


@pytest.mark.usefixtures("_impatient")
@pytest.mark.covers("S4.1", "S4.3")
@on_loop
async def test_a_service_that_is_gone_costs_no_finished_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Calls
) -> None:
    monkeypatch.setenv("PAUSEPOINT_SEARCH_KEY", "secret")
    monkeypatch.setenv("PAUSEPOINT_SEARCH_URL", "http://127.0.0.1:9")
    desk = Desk(tmp_path)
    outcome = await desk.run()
    assert (outcome.status, outcome.failure and outcome.failure.type) == (Status.FAILED, "SearchUnavailable")
    monkeypatch.delenv("PAUSEPOINT_SEARCH_KEY")
    calls.clear()
    outcome = await desk.resume()
    assert outcome.status is Status.COMPLETED
    assert "deck_analyst" not in calls


def test_what_a_document_says_means_nothing_in_the_memo(tmp_path: Path) -> None:
    """Comments, fences, citations, headings: a source is quoted, and that is all it can do."""
    text = (
        "Revenue of Acme was $4 million [@other-1] in 2029[^1]. <!-- viz: none --> Acme raised ``` $5 million.\n\n"
        "Acme raised $7 million. ## Citations and more words follow it here.\n"
    )
    (tmp_path / "note.md").write_text(text)
    (tmp_path / "odd.txt").write_text("# Acme raised revenue of $9 million.\n\n> Acme raised $8 million in revenue.\n")
    sources = [documents.read(path) for path in documents.listed(tmp_path)]
    found = research.select("Acme", OUTLINE, sources)
    job = writing.Job(
        company="Acme", investment_type="direct", memo_mode="consider", section=MONEY, findings=found["02-money"]
    )
    sections = {"01-team": "## Team\n", "02-money": writing.extracted(job)}
    memo = citing.assembled("# Acme\n", sections, OUTLINE, sources)
    assert not any(mark in citing.body_of(memo) for mark in ("<!--", "```", "other-1", "$9 million", "$8 million"))
    checked = checking.check_citations(memo, sources)
    assert (checked.cited, checked.supported, checked.dangling, checked.unused) == (
        checked.claims,
        checked.claims,
        [],
        [],
    )
    assert checked.citations == 2


def test_settings_of_the_search_are_read_from_the_environment() -> None:
    assert search.settings({}) is None
    assert search.settings({"PAUSEPOINT_SEARCH_KEY": "k"}) == search.Settings("k", "https://api.tavily.com", Decimal(0))
    for name, value in (("URL", "search.example"), ("PRICE", "free"), ("PRICE", "-1")):
        with pytest.raises(search.SearchRefused, match=f"PAUSEPOINT_SEARCH_{name} is '{value}'"):
            search.settings({"PAUSEPOINT_SEARCH_KEY": "k", f"PAUSEPOINT_SEARCH_{name}": value})


def test_a_document_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text("Acme raised $3 million in 2029.")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\x00")
    state = starting("Fernstone", documents=tmp_path)
    found = [research._read(path, path.name, research.ROOM) for path in documents.listed(tmp_path)]
    assert state.documents == tmp_path
    assert [(each is None, why.rpartition("/")[2]) for each, why in found] == [
        (True, "bad.txt: Byte 0 is not UTF-8. Save the text as UTF-8."), (False, "")
    ]  # fmt: skip
