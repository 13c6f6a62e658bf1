"""The text of the memo: which sentences a section gets, what enriches it, and a model that writes it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Status
from pausepoint.apps.memo import draft as writing
from pausepoint.apps.memo import enrichment as enriching
from pausepoint.apps.memo import outline as outlines
from pausepoint.apps.memo import research
from pausepoint.apps.memo.models import CompanyData, Finding, Passage, Person, Section, Trademark
from tests.apps import memo_kit
from tests.apps.memo_kit import Calls, Desk
from tests.apps.memo_sources import DATA, MONEY, OUTLINE, REPORT, SUMMARY, says, short, source
from tests.support.loop import on_loop
from tests.support.modelserver import Refuses, Says, model_in_use

calls = memo_kit.calls


# choosing


def test_sentences_go_to_the_section_whose_words_they_share_with_their_passage() -> None:
    found = research.select("Acme", OUTLINE, [REPORT])
    assert [(each.sentence, each.source) for each in found["02-money"]] == [
        ("Revenue rose to $4.2 million in 2029.", "report-1"),
        ("Acme raised $3 million from Harbour Capital.", "report-2"),
    ]
    assert [each.source for each in found["01-team"]] == ["report-3"]
    assert found["00-summary"] == [], "a section keeps its sentences if it has only two"
    assert not any("rained" in each.sentence for findings in found.values() for each in findings)


def test_a_section_about_products_prefers_sentences_that_name_them() -> None:
    report = source(
        "r", "Every product of Acme is sold to business customers in Europe.", "Acme makes the Tern panel system.",
        "The Heron product line is new.", "Its products are sold by the company in the United States.",
    )  # fmt: skip
    about = Section(name="01-business", title="Business", about=["product", "company", "sells", "customers", "makes"])
    ranked = sorted(research.select("Acme", [about], [report])["01-business"], key=lambda each: -each.score)
    assert {each.source for each in ranked[:2]} == {"r-2", "r-3"}


def test_the_summary_is_written_last_and_no_section_repeats_another() -> None:
    later = Section(name="03-recommendation", title="Recommendation", gathers=True)
    order = writing.rounds([*OUTLINE, later])
    assert [[section.name for section in each] for each in order] == [
        ["01-team", "02-money"], ["03-recommendation"], ["00-summary"]
    ]  # fmt: skip
    told = ["Revenue rose.", "Acme raised **$3 million** [@report-2]."]
    writing._check_unlike(["Revenue rose", "It sells panels.", "It hires."], told)
    with pytest.raises(ValueError, match="'Revenue rose' is in another section; do not repeat that section"):
        writing._check_unlike(["Revenue rose", "It sells panels."], told)


BUSINESS = [
    "Acme sells panels to 40 customers in Europe.", "Acme makes panels in a plant in Porto.",
    "Every product of the company is a panel.", "The mission of the company is to replace cement.",
    "The company was founded in 2026.",
]  # fmt: skip
RESULTS = [
    "Revenue grew by 12 % to $40 million in 2029.", "Orders of $9 million were delivered in 2029.",
    "Growth in revenue was 7 % in 2028.", "Sold contracts are worth $3 million.",
    "The backlog of orders is $5 million.",
    "Revenue in Spain decreased by 4 % in 2029.", "Costs of revenue increased by 9 % in 2029.",
]  # fmt: skip
FIGURES = (
    "| In millions | 2029 | 2028 |\n|---|---|---|\n| Sales and marketing | 7 | 9 |\n| Revenue | $40 | $36 |\n"
    "| Gross profit | 20 | 18 |\n| Operating income | 3 | 5 |\n| Net income | 2 | 4 |"
)


@pytest.mark.long
@on_loop
async def test_no_sentence_is_in_two_sections_and_the_recommendation_has_both_sides_and_what_is_missing(
    tmp_path: Path,
) -> None:
    (tmp_path / "papers").mkdir()
    text = "\n\n".join(["# Report", *BUSINESS, *RESULTS, "## Key figures", FIGURES])
    (tmp_path / "papers" / "report.md").write_text(text)
    (tmp_path / "acme.json").write_text('{"name": "Acme", "documents": "papers"}')
    desk = Desk(tmp_path, "Acme", data=tmp_path / "acme.json")
    outcome = await desk.run(until="validate")
    said = [each.sentence for those in outcome.state.section_research.findings.values() for each in those]
    assert len(said) == len({*said}) >= len(BUSINESS) + len(RESULTS)
    good, bad = re.split("What speaks (?:for|against) it:", desk.read("2-sections/10-recommendation.md"))[1:]
    bad, _, rest = bad.partition("The sources say little or nothing about: ")
    assert "Revenue (in millions): $40 in 2029, $36 in 2028" in good
    assert "Operating income (in millions): 3 in 2029, 5 in 2028" in bad
    assert "- Sales and marketing" not in bad
    assert "Revenue in Spain decreased by 4 %" in bad
    assert "Costs of revenue increased by 9 %" in bad
    assert "team" in rest
    assert "the price or the valuation" in rest
    assert "Neither a model nor a person has weighed this" in rest
    assert "⚠" not in desk.read("4-final-draft.md")


def test_a_recommendation_says_no_fact_in_two_sentences() -> None:
    outline = [SUMMARY, Section(name="03-recommendation", title="Recommendation", gathers=True), MONEY]
    same = [
        "Revenue grew by $2 million in the week that 2029 had more.",
        "Revenue in that week of 2029 grew $2 million.",
    ]
    rest = [f"Revenue in {place} is invoiced by the plant." for place in ("Spain", "Peru", "Chad", "Cuba")]
    found = research.select("Acme", outline, [source("r", *same, *RESULTS, *rest)])
    said = [each.sentence for each in found["03-recommendation"] if "week" in each.sentence]
    assert said in ([same[0]], [same[1]])


@pytest.mark.parametrize(
    ("sentence", "against"),
    [
        ("The payments for content assets increased $3,862 million, or 29%.", True),
        ("The media landscape has seen growing regulatory action.", True),
        ("The media landscape and the internet delivery of content have seen growing regulatory action.", True),
        ("First, we intend to reinvest to grow faster than the market.", None),
        ("Our core strategy is to grow our business within our margin.", None),
        ("Cash used in investing activities decreased.", None),
        ("Competition has increased in all markets.", True), ("Claims and litigation have grown since 2028.", True),
        ("Despite growing competition, we kept our prices.", None), ("Revenue grew by 5%.", False),
        ("Payments volume grew by 12% to $40 billion.", False), ("Other income (expense) increased.", False),
        ("We expect growing sales, cost savings and more.", False),
        ("We have a commitment to reduce what we use up.", None),
        ("We explore opportunities to reduce our impact.", None), ("Purchased services decreased 4%.", False),
        ("Income before income taxes increased.", False), ("Two states enacted laws to reduce their tax rates.", False),
        ("We consider variables such as growth and employment.", None),
        ("The extension cannot exceed five years after growth.", None),
        ("Our debt would increase in value after a decrease of one percent that is hypothetical.", None),
    ],
)  # fmt: skip
def test_a_burden_that_grows_speaks_against_an_investment(sentence: str, against: bool | None) -> None:
    assert research.speaks_against(sentence) is against


def test_the_summary_has_results_cash_customers_and_a_risk_before_anything_else() -> None:
    lawful = "Under Delaware law, a corporation may not raise capital from a holder of 15% or more of its shares."
    others = ["The capital of Acme was raised in 3 rounds of funding.", "Investors raised terms for 4 shares.", lawful]
    staff = ["The team of Acme leads 9 people.", "The chief officer hired 4 engineers.", "Its people equip 3 teams."]
    risks = [
        "We recognize 3 risks of 4 and assess each threat.",
        "The risk of a shortage is a threat.",
        "A fire is a risk of loss.",
        "The loss of a large customer is a risk.",
    ]
    facts = [
        "Its margin is 44 %.", "Acme plans to expand its capacity at a lower cost.", "The scale is an advantage.",
        "Acme had cash of $12 million at the end of 2029.", "Net income was $3 million in 2029.",
        "The company had 412 paying customers in Europe.",
    ]  # fmt: skip
    facts += ["Therefore, rail reduces the scope 3 emissions of customers."]
    bulk = "Bulk – Bulk is grain. Volumes of customers fell by 91 %."
    facts += ["We operate as one operating segment for all customers of the business and the company."]
    outline = outlines.read(outlines.default("direct"))
    found = research.select("Acme", outline, [source("r", *others, *staff, *risks, *BUSINESS, *RESULTS, *facts, bulk)])
    summary = [each.sentence for each in found["01-executive-summary"]]
    for words in ("Acme sells panels to 40 customers", "Revenue grew by 12 %", "Net income", "cash of $12 million"):
        assert any(words in each for each in summary), words
    assert "The loss of a large customer is a risk." in summary, "a risk of the business, not any"
    assert not any("91 %" in each.sentence for those in found.values() for each in those), "it is about bulk alone"
    assert len(summary) == 5, "what it has to say is there, so it takes nothing else"


def test_the_summary_begins_with_what_the_company_is_and_takes_no_product_for_it() -> None:
    others = [
        "The capital of Acme was raised in 3 rounds.",
        "Investors raised terms for 4 shares.",
        "Rounds raise 5 shares.",
    ]
    business = [
        "Acme has the rights to sell its product only in Europe.",
        "The business of Acme serves customers with panels.",
        'Acme Inc. ("Acme" or "we") is a maker of solar panels for the business of farmers.',
        "Its business is local.",
    ]
    sales = ["Net revenues for Sunpanel were $4 million in 2029.", *RESULTS]
    found = research.select(
        "Acme", outlines.read(outlines.default("direct")), [source("r", *others, *business, *sales)]
    )
    summary = [each.sentence for each in found["01-executive-summary"]]
    assert summary[0].startswith("Acme Inc.")
    assert not any("Sunpanel" in each for each in summary)


@pytest.mark.long
@on_loop
async def test_the_summary_takes_revenue_and_profit_from_a_table_if_no_sentence_has_them(tmp_path: Path) -> None:
    (tmp_path / "papers").mkdir()
    text = "\n\n".join(["# Report", *BUSINESS, "## Key figures", FIGURES])
    (tmp_path / "papers" / "report.md").write_text(text)
    (tmp_path / "acme.json").write_text('{"name": "Acme", "documents": "papers"}')
    desk = Desk(tmp_path, "Acme", data=tmp_path / "acme.json")
    await desk.run(until="validate")
    summary = desk.read("2-sections/01-executive-summary.md")
    assert "- Revenue (in millions) in 2029: $40; in 2028: $36 [@report-" in summary
    assert "- Operating income (in millions) in 2029: 3; in 2028: 5 [@report-" in summary
    assert "- Net income (in millions) in 2029: 2; in 2028: 4 [@report-" in summary
    assert "⚠" not in desk.read("4-final-draft.md")


@pytest.mark.parametrize(
    "piece",
    [
        "Monitoring and Mitigation of Risks.", "How We Addressed the Matter in Our Audit We obtained an understanding.",
        "Investing in People and Culture Our company was founded in 2026.",
        "More about the company and its risks is in Results of the Company, Item 7.",
        "Our company has risks that are not presently known to us.", "The company is subject to numerous risks.",
        "The risk factors generally have been put into groups.",
        "We capitalize the costs of people of the company.", "Costs of the company primarily consist of people.",
        "Gains of the company are recognized over time.", "The company has adopted a policy for its people.",
        "We strive to help the people of our company.", "The company uses a mix of patents, copyrights and people.",
        "Under Delaware law, a corporation may not merge with a company.",
        "The increase is primarily due to more people.", "In that case, the company loses people.",
        "Before joining the company in 2021, he was a head of people.", "Provides software to people of a company.",
    ],
)  # fmt: skip
def test_a_heading_a_policy_and_what_a_document_says_about_itself_are_no_findings(piece: str) -> None:
    about = Section(name="01-a", title="A", about=["risk", "monitoring", "audit", "company", "people", "ada"])
    whole = "Ada Moss of The Home Company leads people in Porto."
    said = [each.sentence for each in research.select("Acme", [about], [source("r", piece, whole)])["01-a"]]
    assert said == [whole]


def test_a_section_of_a_model_loses_the_sentences_that_another_section_has() -> None:
    others = ["## A\n\nRevenue rose [@r-1]. Acme grew [@r-2].\n"]
    text = "## B\n\nRevenue **rose** [@r-1]. It sells panels [@r-3].\n\n- Acme grew [@r-2].\n"
    assert writing.without_repeats(text, others) == "## B\n\nIt sells panels [@r-3].\n\n"
    assert writing.without_repeats("## B\n\nRevenue rose [@r-1].\n", others) == "## B\n\nRevenue rose [@r-1].\n"


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
    quoted = "It was written without a language model: every statement is quoted from a source."
    assert writing.extracted(job) == f"## Summary\n\n{said}\n\n{quoted}\n\n- Revenue rose [@report-1].\n"


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


# with a model


@pytest.mark.long
@pytest.mark.covers("S4.107")
@on_loop
async def test_a_model_writes_the_sections_and_the_same_validators_check_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Calls
) -> None:
    desk = Desk(tmp_path, outline=short(tmp_path))
    await desk.run(until="section_research")
    with model_in_use(monkeypatch, price="1000/1000") as server:
        server.will(
            says("Revenue was $4.2 million.", "made-up-1"),
            Says(json.dumps({"sentences": [
                {"text": "Revenue was $4.2 million in 2029.", "sources": ["annual-report-2"]},
                {"text": "It will be $50 million in 2035", "sources": ["annual-report-2"]},
            ]})),
        )  # fmt: skip
        outcome = await desk.resume(pause_after="validate")
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


@pytest.mark.long
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
    await desk.run(until="section_research")
    with model_in_use(monkeypatch, price="1000/1000") as server:
        server.will(says(said, "annual-report-2"), says("Revenue rose.", "annual-report-2"))
        await desk.resume(pause_after="draft")
        refused = written is None
        assert len(server.requests) == 1 + refused
        if refused:
            assert "https://evil.example is not in the findings" in server.requests[1]["messages"][-1]["content"]
    assert desk.read("2-sections/1-money.md") == f"## Money\n\n{written or 'Revenue rose [@annual-report-2].'}\n"


@pytest.mark.long
@pytest.mark.covers("S4.2", "S4.7")
@on_loop
async def test_what_a_model_has_written_before_it_failed_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Calls
) -> None:
    outline = short(tmp_path)
    outline.write_text(outline.read_text() + '[[section]]\nname = "2-risk"\ntitle = "Risk"\nabout = ["risk", "fire"]\n')
    desk = Desk(tmp_path, outline=outline)
    await desk.run(until="section_research")
    with model_in_use(monkeypatch, price="1000/1000") as server:
        monkeypatch.setattr("pausepoint.apps.memo.workflow.AT_ONCE", 1)
        server.will(says("Revenue was $4.2 million.", "annual-report-2"), Refuses(), says("Risky.", "risks-1"))
        outcome = await desk.resume()
        assert (outcome.status, outcome.failure and outcome.failure.step) == (Status.FAILED, "draft")
        assert (calls.sections(), not desk.file("2-sections").exists()) == (["1-money", "2-risk"], True)
        with monkeypatch.context() as without:
            without.delenv("PAUSEPOINT_MODEL")
            outcome = await desk.resume()
        assert outcome.failure is not None
        assert outcome.failure.message.startswith("This step began with the model ")
        assert calls.sections() == [], "what a model has begun is not ended silently without one"
        outcome = await desk.resume()
    assert calls.sections() == ["2-risk"]
    assert len(server.requests) == 3
    assert desk.read("2-sections/2-risk.md") == "## Risk\n\nRisky [@risks-1].\n"


def test_a_statement_below_a_segment_names_it_and_an_old_figure_gives_way_to_a_newer_one() -> None:
    about = Section(name="01-money", title="Money", about=["revenue", "earnings", "cash"])
    table = "| In millions | 2029 |\n|---|---|\n| Revenue | |\n| Acme Walls | 7 |\n| Margin | |\n| Acme Walls | 2% |"
    texts = ["Revenue and earnings increased by 4% in 2029.", "Revenue of Acme Walls increased by 5% in 2029."]
    cash = "Free cash flow of 2028 increased by 9%. Free cash flow of 2029 decreased by 3%."
    report = source("r", table, *texts, cash)
    headed = [each.model_copy(update={"heading": "Acme Walls"}) for each in report.passages[1:3]]
    other = report.passages[1].model_copy(update={"key": "r-9", "text": "Earnings of 2029 were $4 million in revenue."})
    passages = [report.passages[0], *headed, report.passages[3], other]
    found = research.select("Acme", [about], [report.model_copy(update={"passages": passages})])["01-money"]
    assert {each.sentence for each in found} == {texts[1], cash.split(". ")[1], other.text}
