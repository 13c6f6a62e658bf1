"""Tables of filings: cells that span columns, signs in cells of their own, units, and what is no table at all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pausepoint.apps.memo import enrichment as enriching
from pausepoint.apps.memo.documents import read
from pausepoint.apps.memo.facts import Known
from pausepoint.apps.memo.models import Passage, Source
from pausepoint.apps.memo.tables import spoken
from tests.apps.memo_sources import MONEY, OUTLINE, source


def page(tmp_path: Path, body: str) -> Source:
    """Read a page with this body."""
    path = tmp_path / "filing.html"
    path.write_text(f"<html><body>{body}</body></html>", "utf-8")
    return read(path)


def row(*cells: str | tuple[str, int]) -> str:
    """Make a row of cells; a pair is a text and the number of columns that it spans."""
    pairs = [(cell, 1) if isinstance(cell, str) else cell for cell in cells]
    return "<tr>" + "".join(f'<td colspan="{columns}">{text}</td>' for text, columns in pairs) + "</tr>"


BOLD = '<div><span style="font-weight:700">{}</span></div>'
STATEMENT = (
    BOLD.format("Results of Operations") + "<table>"
    + row(("", 3), ("Year Ended December 31,", 9), ("Change", 3))
    + row(("", 3), ("2029", 3), ("", 3), ("2028", 3), ("2029 vs. 2028", 3))
    + row(("", 3), ("(in thousands, except percentages)", 12))
    + row(("Revenues", 3), "$", "4,213", "", ("", 3), "$", "1,904", "", ("121", 2), "%")
    + row(("Operating loss", 3), ("(1,020", 2), ")", ("", 3), ("(2,044", 2), ")", ("(50", 2), ")%")
    + row(("Operating margin", 3), ("(24", 2), ")%", ("", 3), ("—", 2), "%", ("", 3))
    + "</table>"
)  # fmt: skip


def test_every_figure_of_a_filing_is_in_one_cell_below_its_heading(tmp_path: Path) -> None:
    (passage,) = page(tmp_path, STATEMENT).passages
    assert (passage.table, passage.heading) == (True, "Results of Operations")
    assert passage.text.splitlines() == [
        "| in thousands, except percentages | Year Ended December 31, 2029 | Year Ended December 31, 2028"
        " | Change 2029 vs. 2028 |",
        "|---|---|---|---|",
        "| Revenues | $4,213 | $1,904 | 121% |",
        "| Operating loss | (1,020) | (2,044) | (50)% |",
        "| Operating margin | (24)% | —% | |",
    ]


def test_units_above_a_table_belong_to_it_and_are_no_heading(tmp_path: Path) -> None:
    body = (
        BOLD.format("Balance Sheets") + BOLD.format("(in millions)")
        + f"<table>{row('', '2029', '2028')}{row('Cash', '12', '9')}{row('Debt', '4', '5')}</table>"
    )  # fmt: skip
    (passage,) = page(tmp_path, body).passages
    assert (passage.heading, passage.text.splitlines()[0]) == ("Balance Sheets", "| in millions | 2029 | 2028 |")


def test_signs_in_a_heading_are_units_of_columns(tmp_path: Path) -> None:
    head = row("dollars in millions", "$", "% of Sales") + row("Sales", "$", "159", "", "")
    body = (
        f"<table>{row(('', 1), ('2029', 2))}{head}{row('Profit', '53', '33.4%')}{row('Costs', '31', '19.9%')}</table>"
    )
    (passage,) = page(tmp_path, body).passages
    assert passage.text.splitlines()[0] == "| dollars in millions | 2029 $ | 2029 % of Sales |"


LAYOUT = {
    "check boxes": row("Large accelerated filer", "☒", "Accelerated filer", "☐") + row("Smaller company", "☐", "", ""),
    "a list": row("•", "We sell panels to schools.") + row("•", "We own 3 plants."),
    "contents": row("", "", "Page") + row("Item 1.", "Business", "3") + row("Item 2.", "Properties", "17"),
    "contents without items": row("Summary", "28") + row("Results", "29") + row("Cash", "31") + row("Debt", "31"),
    "exhibits": row("Exhibit", "Text", "Date") + row("3.1", "Bylaws", "June 8, 2022") + row("Exhibit 4", "x", "y"),
    "a cover page": row("Delaware", "77-0467272") + row("(State)", "(Identification No.)"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LAYOUT)
def test_what_is_only_laid_out_as_a_table_is_text(tmp_path: Path, kind: str) -> None:
    found = page(tmp_path, f"<p>Acme makes panels.</p><table>{LAYOUT[kind]}</table>")
    assert not [passage for passage in found.passages if passage.table]
    if kind == "a list":
        assert [passage.text for passage in found.passages[1:]] == ["We sell panels to schools.", "We own 3 plants."]


def test_a_cell_that_spans_rows_and_a_table_of_words_keep_their_columns(tmp_path: Path) -> None:
    body = (
        "<table><tr><th>Plant</th><th>Year</th><th>Panels</th></tr>"
        '<tr><td rowspan="2">Porto</td><td>2028</td><td>17,500</td></tr><tr><td>2029</td><td>38,000</td></tr></table>'
        "<table><tr><th>Kind</th><th>Use</th></tr><tr><td>Thin</td><td>Offices</td></tr></table>"
    )
    plants, kinds = page(tmp_path, body).passages
    assert plants.text.splitlines()[2:] == ["| Porto | 2028 | 17,500 |", "| | 2029 | 38,000 |"]
    assert kinds.text == "| Kind | Use |\n|---|---|\n| Thin | Offices |"


def test_a_section_gets_two_tables_those_that_fit_best_with_all_their_rows() -> None:
    def table(title: str, count: int) -> str:
        return f"| {title} | 2029 |\n|---|---|\n" + "\n".join(f"| Row {each} | {each} |" for each in range(count))

    papers = source("p", *(table(title, 3) for title in ("Weather", "Revenue raised", "Other")), table("Revenue", 40))
    found = enriching.visualizations({"02-money": "## Money\n"}, [MONEY], [papers])["02-money"]
    assert re.findall(r"\[@(p-\d)\]", found) == ["p-2", "p-1"]
    assert "| Row 2 | 2 |" in found
    assert enriching.visualizations({"02-money": found}, OUTLINE, [papers])["02-money"] == found


BOOKS = [
    ("Provision for Income Taxes", "Revenue"), ("Growth", "Pension revenue"), ("Revenue", "Repurchases of shares"),
    ("Other Comprehensive Income", "Revenue"), ("Growth", "Revenue | Percentage of Plan Assets"),
]  # fmt: skip


@pytest.mark.parametrize(("heading", "label"), BOOKS)
def test_a_table_about_taxes_pensions_or_shares_is_in_no_section(heading: str, label: str) -> None:
    label, _, column = label.partition(" | ")
    rows = f"| Revenue raised | {column or 2029} |\n|---|---|\n| {label} | 1 |\n| {label} more | 2 |"
    (books,) = source("b", rows).passages
    books = books.model_copy(update={"heading": heading})
    papers = source("p", *(f"| Year | Sales {number} |\n|---|---|\n| Revenue | 7 |" for number in range(2)))
    papers = papers.model_copy(update={"passages": [books, *papers.passages]})
    found = enriching.visualizations({"02-money": "## Money\n"}, [MONEY], [papers])["02-money"]
    assert re.findall(r"\[@(\w-\d)\]", found) == ["p-1", "p-2"]


def test_a_loss_in_brackets_is_below_zero_in_a_chart() -> None:
    text = "| Year | Profit |\n|---|---|\n| A | $(1,020) |\n| B | $300 |"
    assert "bar [-1020, 300]" in enriching.drawn(Passage(key="p-1", text=text, table=True))


@pytest.mark.parametrize(
    "units", ["In millions, except per share data", "Millions, Except Per Share Amounts", "$ million"]
)
def test_a_claim_may_say_the_units_of_a_table_and_no_others(units: str) -> None:
    text = f"| {units} | 2029 |\n|---|---|\n| Revenue | $46,309 |\n| Diluted | $2.16 |"
    known = Known(spoken(text))
    for claim, lacking in (
        ("Revenue was $46.3 billion.", []), ("Revenue was $46,309 million.", []), ("It earned $2.16 per share.", []),
        ("Revenue was $46,309 billion.", ["$46,309 billion"]), ("It earned $2.16 million.", ["$2.16 million"]),
    ):  # fmt: skip
        assert [fact.text for fact in known.lacks(claim)] == lacking, claim


def test_the_units_of_a_table_are_not_those_of_the_next_one() -> None:
    table = "| {} | 2029 |\n|---|---|\n| {} | {} |"
    money, people = table.format("In millions", "Costs", 12), table.format("", "Millions of people", 40)
    known = Known(spoken(f"{money}\n{people}"))
    assert [fact.text for fact in known.lacks("Costs were 12 million. There are 40 million plants.")] == ["40 million"]


def test_tables_of_the_cover_and_titles_of_items_do_not_reach_the_sections() -> None:
    table = "| Year | Class A |\n|---|---|\n| 2028 | 7 |\n| 2029 | 8 |"
    found = source("r", table, table, "x")
    cover, item, text = found.passages
    title = "Item 5. Revenue of Shareholders"
    passages = [cover, *(each.model_copy(update={"part": title, "heading": title}) for each in (item, text))]
    sections = {MONEY.name: "## Money\n"}
    shown = enriching.visualizations(sections, OUTLINE, [found.model_copy(update={"passages": passages})])
    assert "2029" not in shown[MONEY.name]
    assert "2029" in enriching.visualizations(sections, OUTLINE, [found])[MONEY.name]


def test_the_number_of_a_footnote_is_no_part_of_the_year_or_the_word_before_it(tmp_path: Path) -> None:
    raised = '<span style="position:relative;top:-3pt">1</span>'
    body = f"<table>{row('In millions', '2024<sup>2</sup>', '2023')}{row(f'Sales per share{raised}', '1,234', '987')}"
    found = page(tmp_path, f"{body}</table><p>Sales rose in 2024<sup>2</sup> by 3 percent.</p>")
    assert [passage.text for passage in found.passages] == [
        "| In millions | 2024 ² | 2023 |\n|---|---|---|\n| Sales per share¹ | 1,234 | 987 |",
        "Sales rose in 2024 ² by 3 percent.",
    ]
    assert not Known(found.passages[1].text).lacks("In 2024, sales rose by 3 percent.")


@pytest.mark.parametrize("units", ["in thousands", "Thousands"])
def test_only_amounts_of_a_table_of_results_have_its_unit(units: str) -> None:
    text = (
        f"| {units}, except per share data | 2029 | 2028 |\n|---|---|---|\n| Revenue | $40 | $36 |\n"
        "| Operating margin | 27% | 21% |\n| Net loss | (4) | (5) |\n| Diluted earnings per share | $19.83 | $12.03 |"
    )
    assert [each.sentence for each in enriching.developments([source("p", text)])] == [
        "Revenue (in thousands): $40 in 2029, $36 in 2028.",
        "Operating margin: 27% in 2029, 21% in 2028.",
        "Net loss (in thousands): (4) in 2029, (5) in 2028.",
        "Diluted earnings per share: $19.83 in 2029, $12.03 in 2028.",
    ]


def test_the_results_are_those_of_the_table_with_most_main_figures_also_if_its_years_or_units_stand_lower() -> None:
    shares = "| of sales | 2029 | 2028 |\n|---|---|---|\n| Gross margin | 51% | 52% |\n| Net sales | 9% | 8% |\n"
    shares += "| Operating margin | 24% | 22% |"
    years = "| (in millions) | Year ended June 30, | Year ended June 30, |\n|---|---|---|\n| | 2029 | 2028 |\n"
    rows = "| Net revenues | $40 | $36 |\n| Operating earnings | 7 | 9 |\n| Consolidated net earnings | 4 | 5 |"
    head = "| | 2029 (in millions) | 2028 (in millions) |\n|---|---|---|\n"
    for table in (years + rows, head + rows):
        assert [each.sentence for each in enriching.developments([source("p", shares, table)])] == [
            "Net revenues (in millions): $40 in 2029, $36 in 2028.",
            "Operating earnings (in millions): 7 in 2029, 9 in 2028.",
            "Consolidated net earnings (in millions): 4 in 2029, 5 in 2028.",
        ]


def test_a_change_in_money_and_one_in_percent_below_the_same_heading_have_different_headings(tmp_path: Path) -> None:
    head = '<tr><td></td><td>2029</td><td>2028</td><td colspan="2">Change</td></tr>'
    body = f"<table>{head}{row('Costs', '$12', '$10', '$2', '20%')}{row('Rent', '3', '4', '(1)', '(25)%')}</table>"
    (passage,) = page(tmp_path, body).passages
    assert passage.text.splitlines()[0] == "| | 2029 | 2028 | Change | Change (%) |"


def test_percentages_make_a_chart_only_as_parts_of_a_whole_or_as_a_series() -> None:
    def has_chart(*rows: str) -> bool:
        text = "\n".join(["| What | Share |", "|---|---|", *(f"| {each} |" for each in rows)])
        return "mermaid" in enriching.drawn(Passage(key="p-1", text=text, table=True))

    assert not has_chart("Operating margin | 27%", "Tax rate | 13%", "Growth | 16%")
    assert has_chart("Europe | 60%", "Asia | 40%")
    assert has_chart("Europe | 60.4%", "Asia | 39.5%", "Total | 100%")
    assert has_chart("2028 | 12%", "2029 | 14%")


HEADERS = {
    "behind the label": (row("years ended (in millions)", "2029", "2028"), "years ended (in millions) | 2029 | 2028"),
    "of several things": (
        row("(Dollar amounts and floor space in millions)", "2029", "2028"),
        "Dollar amounts and floor space in millions | 2029 | 2028",
    ),
    "above the label": (
        row("(Amounts in millions)", "", "") + row("Sales by kind", "2029", "2028"),
        "Sales by kind (Amounts in millions) | 2029 | 2028",
    ),
    "beside a figure in the header": (
        row("", ("50 basis point", 2)) + row("(in millions)", "2029", "2028"),
        "in millions | 50 basis point 2029 | 50 basis point 2028",
    ),
    "of one column": (row("Paid on", "Per share", "Paid (in millions)"), "Paid on | Per share | Paid (in millions)"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HEADERS)
def test_no_header_loses_its_units(tmp_path: Path, kind: str) -> None:
    head, shown = HEADERS[kind]
    (passage,) = page(tmp_path, f"<table>{head}{row('Panels', '12', '1,729')}{row('Doors', '4', '5')}</table>").passages
    assert passage.text.splitlines()[0] == f"| {shown} |"


def test_units_in_the_sentence_above_a_table_belong_to_it_and_not_to_a_later_one(tmp_path: Path) -> None:
    table = f"<table>{row('', '2029', '2028')}{row('Cash', '12', '9')}{row('Debt', '4', '5')}</table>"
    leading = "<p>The table below shows our cash (in millions, except percentages):</p>"
    found = page(tmp_path, f"{leading}{table}{leading}<p>This excludes the plant.</p>{table}").passages
    heads = [passage.text.splitlines()[0] for passage in found if passage.table]
    assert heads == ["| in millions, except percentages | 2029 | 2028 |", "| | 2029 | 2028 |"]


def test_a_column_has_its_own_units_and_a_ratio_below_percentages_has_none() -> None:
    paid = Known(spoken("| Paid on | Shares | Paid (in millions) |\n|---|---|---|\n| March 19 | 88 | $1,729 |"))
    assert [fact.text for fact in paid.lacks("It paid $1.729 billion for 88 million.")] == ["88 million"]
    text = (
        "| in millions | 2029 | 2028 |\n|---|---|---|\n| Revenue | $40 | $36 |\n| Net loss | (4) | (5) |\n"
        "| Cost ratio | 13.2% | 14.7% |\n| Operating margin | 8.1 | 8.7 |"
    )
    told = enriching.developments([source("p", text.replace("Cost ratio", "Net margin"))])
    assert [each.sentence for each in told if "margin" in each.sentence][-1:] == [
        "Operating margin: 8.1% in 2029, 8.7% in 2028."
    ]
    known = Known(spoken(text))
    lies = ["The margin was 8.1 million.", "It sold 36 million."]
    assert [[fact.text for fact in known.lacks(claim)] for claim in ("Its margin was 8.1%.", *lies)] == [
        [], ["8.1 million"], []
    ]  # fmt: skip


def test_the_label_of_the_first_group_of_rows_is_no_part_of_the_header(tmp_path: Path) -> None:
    head = row(("years ended (in millions)", 4), "2029", "2028") + row(("Walls", 4), ("", 2))
    rows = row(("Tern", 2), ("Europe", 2), "12", "9") + row(("", 2), ("Asia", 2), "4", "5")
    (passage,) = page(tmp_path, f"<table>{head}{rows}</table>").passages
    assert "Walls" not in passage.text.splitlines()[0]
    assert "Walls" in passage.text.splitlines()[2]
