"""Citations of the memo, and the checks of its claims against the sources."""

from __future__ import annotations

import pytest

from pausepoint.apps.memo import checks as checking
from pausepoint.apps.memo import citations as citing
from pausepoint.apps.memo import draft as writing
from pausepoint.apps.memo.claims import doubt
from pausepoint.apps.memo.models import CompanyData, Source, Validation
from tests.apps.memo_sources import DATA, MONEY, OUTLINE, REPORT, SUMMARY, source


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


def test_a_long_document_that_never_names_the_company_supports_nothing() -> None:
    def told(name: str, count: int) -> list[str]:
        texts = [f"Revenue of the northern plants rose to ${number} million." for number in range(1, count)]
        other = source("other", *texts, f"{name} builds ships.")
        memo = cited("Revenue of the northern plants rose to $7 million [@other-7].", sources=[other])
        return [each.why for each in checking.check_citations(memo, [other], "Acme Inc").unsupported]

    why = "Other never names the company, so it may be about another one"
    assert told("Bellmont Inc", 20) == [why]
    assert told("Acme", 20) == told("Bellmont Inc", 19) == [], "it names the company, or it is a short note"


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
    ("Gross margin fell to 44 percent.", "something rises in the claim and falls in the passage, or the reverse"),
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


def test_a_table_of_a_source_is_no_claim_and_a_row_that_was_changed_is_one() -> None:
    table = "| Year | Revenue |\n|---|---|\n| 2029 | $4.2 million |\n| 2030 | $7 million |"
    sources = [source("sales", table)]
    shown = ["<!-- viz: Sales -->", "**Sales** [@sales-1]", "", *table.splitlines()]
    memo = cited(*shown, sources=sources)
    assert checking.check_citations(memo, sources).claims == checking.check_facts(memo, sources, DATA).facts == 0
    memo = cited(*shown[:-1], "| 2030 | $9 million |", sources=sources)
    found = checking.check_citations(memo, sources)
    assert [(each.claim, each.facts) for each in found.unsupported] == [("2030 ; $9 million", ["$9 million"])]
    assert "| 2030 | $9 million **[⚠ unsupported: no source contains $9 million]** |" in checking.mark(
        memo, sources, DATA, "Acme"
    )


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


def test_one_invented_figure_caps_the_score_however_much_is_true() -> None:
    true = [f"Acme raised ${number} million." for number in range(11, 60)]
    sources = [source("report", *true)]
    said = [f"{each[:-1]} [@report-{number}]." for number, each in enumerate(true, 1)]
    for lies, capped in (([], False), (["Acme raised $99 million [@report-1]."], True)):
        memo = citing.assembled("# Acme\n", {"02-money": "## Money\n\n" + " ".join([*said, *lies])}, [MONEY], sources)
        found = Validation(
            citation_validation=checking.check_citations(memo, sources),
            fact_check_results=checking.check_facts(memo, sources, DATA),
        )
        scores, total = checking.score(memo, [MONEY], found)
        assert (total, scores.unsupported) == ((7.9, 1) if capped else (10.0, 0))
        assert scores.sections == {"02-money": 9.8 if capped else 10.0}


def test_a_mark_is_not_read_as_a_claim_and_the_same_memo_is_not_marked_twice() -> None:
    memo = cited("- **Acme** raised [$99 million](https://x.example). It is good. Acme raised $3 million [@report-2].")
    marked = checking.mark(memo, [REPORT], DATA, "Acme")
    assert "$99 million](https://x.example). **[⚠ unsupported: no source contains $99 million]** It is good." in marked
    assert checking.mark(marked, [REPORT], DATA, "Acme") == marked
    assert list(citing.claims(marked)) == list(citing.claims(memo))


GREW = "Revenue grew from $1.9 million in 2028 to $4.2 million in 2029."
STAFF = "Acme had 63 employees, of whom 14 are engineers and 31 work in the plant."
SALES = "| In millions | 2029 | 2028 |\n|---|---|---|\n| Revenue | $46,309 | $40,111 |\n| Costs | $7,001 | $8,002 |"
LISTED = "Sales of panels were $2.6 billion and $3.0 billion in 2024 and 2023, respectively."
EXCHANGED = [
    (GREW, "Revenue grew from $4.2 million in 2028 to $1.9 million in 2029.", "$4.2 million and $1.9 million"),
    (GREW, "Revenue was $4.2 million in 2028.", "$4.2 million and the figure of 2028"),
    (GREW, "In 2029 revenue increased to $4.2 million, up from $1.9 million in 2028.", ""),
    (GREW, "Revenue reached $4.2 million in 2029.", ""),
    (STAFF, "Of 63 employees, 31 are engineers and 14 work in the plant.", "31 and 14"),
    (STAFF, "Of 63 employees, 31 work in the plant and 14 are engineers.", ""),
    ("Gypsora has 3 plants, Hempwall has 4.", "Gypsora has 4 plants, Hempwall has 3.", "4 and 3"),
    ("Gypsora has 3 plants, Hempwall has 4.", "Hempwall has 4 plants, and Gypsora has 3.", ""),
    (SALES, "Revenue was $40,111 million in 2029 and $46,309 million in 2028.", "$40,111 million and $46,309 million"),
    (SALES, "Revenue rose from $40,111 million in 2028 to $46,309 million.", ""),
    (LISTED, "Sales of panels were $3.0 billion in 2024 and $2.6 billion in 2023.", "$3.0 billion and $2.6 billion"),
    (LISTED, "Sales of panels were $2.6 billion in 2024 and $3.0 billion in 2023.", ""),
]


@pytest.mark.covers("S4.21")
@pytest.mark.parametrize(("passage", "claim", "figures"), EXCHANGED)
def test_figures_that_a_claim_exchanges_are_found_and_other_words_for_the_same_are_not(
    passage: str, claim: str, figures: str
) -> None:
    assert doubt(claim, passage, company="Acme") == (f"the claim exchanges {figures}" if figures else "")


FREIGHT = (
    "Freight revenue increased 1% to $22.8 billion, driven by a 3% increase in volumes, offset by lower surcharges."
)
PAID = "Payments for content increased $3,862 million, from $13,140 million to $17,003 million, or 29%."
MARGIN = "The margin was 31% in 2029 and 36% in 2028, because costs were higher."
TURNED = [
    (
        SALES,
        "Revenue rose from $40,111 million to $46,309 million.",
        "Revenue fell from $46,309 million to $40,111 million.",
    ),
    (SALES, "Costs fell from $8,002 million to $7,001 million.", "Costs rose from $7,001 million to $8,002 million."),
    (SALES, "Costs were $7.0 billion, down from $8.0 billion.", "Costs were $8.0 billion, up from $7.0 billion."),
    (MARGIN, "The margin fell from 36% to 31%.", "The margin rose from 36% to 31%."),
    (MARGIN, "The margin of 31% is down from 36%.", "The margin of 31% is up from 36%."),
    (
        "The margin was 31% in 2029 and 36% in 2028.",
        "The margin fell by 5 points to 31%.",
        "The margin fell by 6 points to 31%.",
    ),
    (MARGIN, "As costs rose, the margin went from 36% to 31%.", "The margin rose by 5 points, from 36% to 31%."),
    (FREIGHT, "Freight revenue rose 1% to $22.8 billion.", "Freight revenue fell 1% to $22.8 billion."),
    (FREIGHT, "Volumes grew by about 3%.", "Volumes declined by 3%."),
    (PAID, "Payments for content rose 29% to $17.0 billion.", "Payments for content rose 29% to $13.1 billion."),
    (PAID, "Payments for content rose by $3.9 billion.", "Payments for content fell by $3.9 billion."),
]


@pytest.mark.covers("S4.21")
@pytest.mark.parametrize(("passage", "honest", "lie"), TURNED)
def test_a_direction_that_a_claim_turns_round_is_found(passage: str, honest: str, lie: str) -> None:
    sources = [source("report", passage)]
    for claim, count in ((honest, 0), (lie, 1)):
        memo = cited(f"{claim[:-1]} [@report-1].", sources=sources)
        assert len(checking.check_citations(memo, sources, "Acme").unsupported) == count, claim


OFFICERS = (
    "| Name | Position | Age |\n|---|---|---|\n| V. Bo Reed | Chief Executive Officer | 66 |\n"
    "| Ann P. Lee | Executive Vice President and Chief Financial Officer | 55 |\n| Eva Orr | President | 58 |"
)
OFFICES = [
    ("V. Bo Reed is Chief Executive Officer.", ""), ("V. Bo Reed is President.", "Ann P. Lee"),
    ("Ann P. Lee is Chief Executive Officer.", "V. Bo Reed"), ("Ann P. Lee is an Executive Vice President.", ""),
    ("Ann P. Lee is Chief Financial Officer, and Eva Orr is President.", ""),
    ("Eva Orr is Chief Financial Officer.", "Ann P. Lee"),
]  # fmt: skip


@pytest.mark.covers("S4.21")
@pytest.mark.parametrize(("claim", "whose"), OFFICES)
def test_an_office_that_a_claim_gives_to_another_officer_is_found(claim: str, whose: str) -> None:
    assert doubt(claim, OFFICERS) == (f"the passage says this of {whose}" if whose else "")
    assert not doubt("V. Bo Reed is President.", f"V. Bo Reed is also President.\n{OFFICERS}"), "a sentence says so"


SHARES = (
    "Of 14,000 employees, 9,600 (69%) are in the United States and Canada, 2,700 (19%) in Europe, Middle East, and"
    " Africa, 700 (5%) in Latin America, and 1,000 (7%) in Asia."
)
SOLD = "In 2029 Acme bought Boltworks for $40 million and sold Tinworks for $15 million."
PLACES = "The plant in Porto makes panels. It employs 31 people. The office in Lisbon opened in 2028. It has 12 desks."
KINDS = "Hardware revenue was $9 million and software revenue was $12 million."
GREW_BY = "UCAN revenue grew 15% to $17.4 billion. EMEA revenue grew 17% to $12.4 billion."
LISTS = "Sales in Europe and Asia were $9 million and $12 million, respectively."
TWICE = "The Falcon sold 120 units in Europe and 340 in Asia. The Heron sold 200 units in Europe."
BY_REGION = "| In millions | Europe | Asia |\n|---|---|---|\n| Revenue | $9 | $12 |\n| Costs | 4 | 5 |"
BY_YEAR = "| In millions | 2029 | 2028 |\n|---|---|---|\n| Europe | $9 | $8 |\n| Asia | 12 | 11 |"
OWNED = [
    (SHARES, "Some 2,700 employees (19%) are in Europe, Middle East, and Africa.", ""),
    (SHARES, "About 700 of the employees are in Latin America, and 1,000 in Asia.", ""),
    (SHARES, "Some 9,600 employees (69%) are in Latin America.", "69% for United States and Canada"),
    (SHARES, "Latin America has 1,000 employees, or 7%.", "1,000 for Asia"),
    (SOLD, "Acme paid $40 million for Boltworks in 2029.", ""),
    (SOLD, "Tinworks was bought for $40 million in 2029.", "$40 million for Boltworks"),
    (PLACES, "The plant in Porto employs 31 people.", ""),
    (PLACES, "The plant in Lisbon employs 31 people.", "31 for Porto"),
    (KINDS, "Software revenue was about $12 million.", ""),
    (KINDS, "Software revenue was $9 million.", "$9 million for something else"),
    (GREW_BY, "Revenue in EMEA increased 17%, to about $12 billion.", ""),
    (GREW_BY, "Revenue in EMEA increased to $17.4 billion.", "$17.4 billion for UCAN"),
    (LISTS, "Asian sales were $12 million.", ""),
    (LISTS, "Sales in Europe were $12 million.", "$12 million for Asia"),
    (TWICE, "The Falcon sold 340 units in Asia.", ""),
    (TWICE, "The Falcon sold 200 units in Europe.", "200 for Heron and Europe"),
    (
        "Revenue in Asia was $12 million. Europe is a market.",
        "Revenue in Europe was $12 million.",
        "$12 million for Asia",
    ),
    (BY_REGION, "Costs were $4 million in Europe and $5 million in Asia.", ""),
    (BY_REGION, "European costs were $5 million.", "$5 million for Costs, Asia"),
    (BY_YEAR, "Asia had $12 million in 2029, up from $11 million.", ""),
    (BY_YEAR, "Europe had $12 million in 2029, up from $11 million.", "$12 million for something else"),
]


@pytest.mark.covers("S4.21")
@pytest.mark.parametrize(("passage", "claim", "owner"), OWNED)
def test_a_figure_that_a_claim_gives_to_another_name_is_found(passage: str, claim: str, owner: str) -> None:
    why = doubt(claim, passage, company="Acme", names={"UCAN", "EMEA"})
    assert why == (f"the passage gives {owner}" if owner else "")


LOSSES = (
    "| In millions | 2029 | 2028 | % change |\n|---|---|---|---|\n| Revenue | $40 | $43.5 | (8) |\n"
    "| Marketing costs | 7 | 5 | 40 |\n| Net income (loss) | (41) | (46) | 12 |\n| Interest expense | (9) | (8) | 4 |"
)
BRACKETS = [
    ("Revenue of $40 million fell 8% in 2029.", ""), ("Revenue of $40 million rose 8% in 2029.", "8% below zero"),
    ("Acme made a net loss of $41 million in 2029.", ""), ("Net income was -$41 million in 2029.", ""),
    ("Net income was $41 million in 2029.", "$41 million below zero"),
    ("Interest expense rose 4% to $9 million in 2029.", ""),
    ("Interest expense and marketing costs add up to $16 million in 2029.", ""),
    ("Marketing costs rose by $2 million to $7 million in 2029.", ""),
]  # fmt: skip


@pytest.mark.covers("S4.21", "S4.22")
@pytest.mark.parametrize(("claim", "why"), BRACKETS)
def test_a_figure_in_brackets_is_a_cost_a_loss_or_a_fall_and_no_gain(claim: str, why: str) -> None:
    sources = [source("report", LOSSES)]
    found = checking.check_citations(cited(f"{claim[:-1]} [@report-1].", sources=sources), sources, "Acme")
    assert [each.why for each in found.unsupported] == ([f"the passage has {why}"] if why else [])


SALES = (
    "| in millions | 2029 | 2028 | 2027 |\n|---|---|---|---|\n| Walls | $330 | $300 | $240 |\n"
    "| Doors | 103 | 150 | 60 |\n| Total sales | $433 | $450 | $300 |"
)
ORDERS = (
    "Orders of Acme were $6.0 million, $8.0 million and $2.5 million for 2029, 2028 and 2027, respectively. Of its"
    " purchase commitments of $40 million, $12.5 million fall due within one year. The dividend is $0.44 per share."
)
SHARED = (
    "| in millions | 2029 | % of total revenue | 2028 | % of total revenue |\n|---|---|---|---|---|\n"
    "| Rent | $310 | 35% | $300 | 37% |\n| Fuel | 80 | 9 | 90 | 11 |"
)
MIXED = (
    "| | 2029 (in millions, except percentages) | 2028 (in millions, except percentages) | Increase |\n"
    "|---|---|---|---|\n| Net revenue | $28,167 | $25,098 | 12% |\n| Operating expenses | $12,585 | $11,090 | 13% |"
)
LED = (
    "Bo Reed led Tern from September 2024 to May 2028. Acme lost money in the years 2029, 2028 and 2027. Acme runs"
    " about 90 projects. Of these, some 50 are in trials. Debt as of January 31, 2029 and 2028 was $3.1 billion and"
    " $0.9 billion, respectively."
)
COMPUTED = [
    (SALES, "Sales of walls grew 10% in 2029.", "Sales of walls grew 25% in 2029."),
    (SALES, "Sales of walls grew by almost $30 million in 2029.", "Sales of walls fell by almost $30 million in 2029."),
    (SALES, "Sales of doors fell by about a third in 2029.", "Sales of doors rose by about a third in 2029."),
    (SALES, "Sales of doors more than doubled in 2028.", "Sales of walls more than doubled in 2028."),
    (SALES, "Walls made up about three quarters of total sales in 2029.",
     "Doors made up about three quarters of total sales in 2029."),
    (SALES, "Walls brought in about three times the sales of doors in 2029.",
     "Walls brought in about five times the sales of doors in 2029."),
    (SALES, "One in four dollars of total sales in 2029 came from doors.",
     "One in two dollars of total sales in 2029 came from doors."),
    (ORDERS, "Orders of Acme fell by a quarter in 2029.", "Orders of Acme fell by half in 2029."),
    (ORDERS, "Orders of Acme fell by $2 million in 2029.", "Orders of Acme fell by $5.5 million in 2029."),
    (ORDERS, "Orders of Acme more than tripled in 2028.", "Orders of Acme more than tripled in 2029."),
    (ORDERS, "Almost a third of the purchase commitments of $40 million fall due within a year.",
     "Almost half of the purchase commitments of $40 million fall due within a year."),
    (ORDERS, "Its dividend is 44 cents per share.", "Its dividend is 4.4 cents per share."),
    (SALES, "Sales of walls have grown by $90 million in two years.",
     "Sales of walls have grown by $80 million in two years."),
    (SHARED, "Rent absorbed 35% of revenue in 2029, two points less than the year before.",
     "Rent absorbed 35% of revenue in 2029, three points less than the year before."),
    (SHARED, "Rent was nearly four times the cost of fuel in 2029.", "Rent was nearly five times fuel in 2029."),
    (MIXED, "Net revenue rose 12% to $28.2 billion in 2029.", "Net revenue rose 12% to $28.2 million in 2029."),
    (LED, "Bo Reed led Tern for more than three and a half years.", "Bo Reed led Tern for more than five years."),
    (LED, "Acme has lost money in each of the last three years.",
     "Acme has lost money in each of the last four years."),
    (LED, "More than half of the projects are in trials.", "More than two thirds of the projects are in trials."),
    (LED, "Debt more than tripled between January 2028 and January 2029, to $3.1 billion.",
     "Debt more than doubled between January 2027 and January 2029, to $3.1 billion."),
]  # fmt: skip


@pytest.mark.parametrize(("passage", "honest", "lie"), COMPUTED)
def test_a_figure_that_follows_from_two_of_a_row_a_column_or_a_sentence_is_supported(
    passage: str, honest: str, lie: str
) -> None:
    papers = [source("p", passage)]
    for claim, is_right in ((honest, True), (lie, False)):
        memo = citing.assembled("# Acme\n", {"02-money": f"## Money\n\n{claim[:-1]} [@p-1].\n"}, OUTLINE, papers)
        wrong = checking.check_citations(memo, papers, "Acme").unsupported
        assert (not wrong) == is_right, wrong


PRICES = (
    "| in millions | 2029 | 2028 |\n|---|---|---|\n| Average price | $529 | $493 |\n| Long-term debt | 60 | 66 |\n"
    "| Pension liabilities | 19 | 21 |\n| Total | 900 | 800 |"
)
LOANS = (
    "The loan of $8 million is unsecured. The court denied the motion of the merchants. The quarterly dividend of $0.51"
    " is an annual dividend of $2.04. A loss of $327 million was recognized in 2028. Rates as of 2029 and 2028 were"
    " 5.3% and 7.7%, respectively."
)
OFFSET = "Cash of Acme rose by 9% in 2029, partially offset by a decrease in security deposits from customers."
REVERSED = [
    (PRICES, "The average price was higher in 2029 than in 2028.", "The average price was lower in 2029 than in 2028."),
    (PRICES, "Pension liabilities are smaller than long-term debt.",
     "Pension liabilities are larger than long-term debt."),
    (PRICES, "Pension liabilities were $19 million in 2029.", "Pension liabilities were $60 million in 2029."),
    (PRICES, "Long-term debt was $66 million in 2028.", "Long-term debt was $66 million in 2029."),
    (LOANS, "The unsecured loan is one of $8 million.", "The loan of $8 million is secured."),
    (LOANS, "The court rejected the motion of the merchants.", "The court granted the motion of the merchants."),
    (LOANS, "The quarterly dividend is $0.51.", "The quarterly dividend is $2.04."),
    (LOANS, "Acme had a loss of $327 million in 2028.", "Acme had a loss of $327 million in 2029."),
    (LOANS, "The rate was 5.3% in 2029.", "The rate was 7.7% in 2029."),
    (OFFSET, "Security deposits from customers held back the cash of Acme.",
     "Security deposits from customers added to the cash of Acme."),
    ("The number of people grew by seven percent in 2029.", "The number of people grew by 7% in 2029.",
     "Acme cut its people by seven percent in 2029."),
]  # fmt: skip


@pytest.mark.covers("S4.21")
@pytest.mark.parametrize(("passage", "honest", "lie"), REVERSED)
def test_a_claim_that_says_the_reverse_of_its_passage_is_found(passage: str, honest: str, lie: str) -> None:
    assert not doubt(honest, passage, company="Acme")
    assert doubt(lie, passage, company="Acme")


@pytest.mark.parametrize(
    ("passage", "claim"),
    [("In 2029, we employed 35,300 persons.", "About 35,300 people worked for Acme in 2029."),
     ("The Company has a program. In 2029, the Company sold $5 million of receivables.",
      "Acme sold receivables of $5 million under a program in 2029."),
     ("| In millions | 2029 | 2028 |\n|---|---|---|\n| Corporate | 33 | 20 |\n| Total | 42 | 30 |",
      "Other charges were $42 million in 2029."),
     ("Acme filled 1.6 million and 1.5 million orders in 2029 and 2028, respectively.",
      "Acme filled 5% more orders in 2029 than in 2028, 1.6 million in all."),
     ("None of its customers brought in 10% of revenue.", "No customer brought in 10% of revenue.")],
)  # fmt: skip
def test_a_claim_in_other_words_is_not_doubted(passage: str, claim: str) -> None:
    assert not doubt(claim, passage, "Other charges", "Acme")


@pytest.mark.parametrize(
    ("claim", "lacking"),
    [("Acme's Tern was sold in the U.S.", []), ("Acme's Heron was sold in the U.S.", ["Acme's Heron"]),
     ("Just five factories make Tern in the United States.", []), ("Factories in the U.S. make Tern.", []),
     ("Zorblax makes Tern in the U.S.", ["Zorblax"])],
)  # fmt: skip
def test_a_possessive_and_a_first_word_are_no_parts_of_a_name(claim: str, lacking: list[str]) -> None:
    papers = [source("p", "We sold the Tern in the U.S. in 2029. Five of our factories make it, each factory alone.")]
    text = f"## Money\n\n{claim[:-1]} [@p-1].\n"
    memo = citing.assembled("# Acme\n", {"02-money": text}, OUTLINE, papers)
    found = checking.check_citations(memo, papers, "Acme").unsupported
    assert [fact for each in found for fact in each.facts] == lacking
