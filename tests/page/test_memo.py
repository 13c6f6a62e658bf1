"""The page of a memo in a browser: on a phone and at a desk, its citations open their passages."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.apps.memo_sources import source
from tests.apps.test_memo_page import page_of
from tests.page.browser import Tab
from tests.page.checks import barriers, overflow
from tests.page.kit import window

YEARS = range(2010, 2030)
WIDE = "\n".join([
    f"| in thousands | {' | '.join(f'Year Ended December 31, {year}' for year in YEARS)} |",
    f"|{'---|' * (len(YEARS) + 1)}",
    *(f"| {label} | {' | '.join('1,234,567' for _ in YEARS)} |" for label in ("Revenue", "Costs of revenue")),
])  # fmt: skip
LONG = f"Acme sells {'Panelwithaverylongname' * 12} in 2029."
SAID = "Revenue rose to $4.2 million in 2029."
SOURCES = source("report", f"It rained. {SAID}", WIDE, f"{LONG} {'Panels are good. ' * 300}")
CHART = '```mermaid\nxychart-beta\n    x-axis ["Europe", "Asia"]\n    y-axis "2029"\n    bar [3, 4]\n```'
TEXT = (
    f"{SAID[:-1]} [@report-1]. Acme raised $50 million. {LONG[:-1]} [@report-3].\n\n"
    f"**Revenue** [@report-2]\n\n{WIDE}\n\n{CHART}"
)
SMALLEST = 24
"""The minimum size of something to tap, in pixels."""


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_memo_is_readable_and_its_citations_open_their_passages(
    chrome: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    path = tmp_path / "memo.html"
    path.write_text(page_of(TEXT, SOURCES), "utf-8")
    with window(chrome, width, 844, color_scheme=scheme, has_touch=True) as context:
        tab = Tab(context.new_page())
        page = tab.page
        page.goto(path.as_uri())
        expect(page.get_by_text("unsupported: no source contains $50 million")).to_be_visible()
        assert overflow(page) == []
        assert not (found := barriers(page)), found
        for number, text in ((1, "It rained."), (2, "Panels are good."), (3, "Costs of revenue")):
            button = page.locator("sup").get_by_role("button", name=f"Source {number}: Report")
            box = button.bounding_box()
            assert box is not None
            assert min(box["width"], box["height"]) >= SMALLEST
            button.tap()
            passage = page.get_by_role("dialog", name=f"Source {number}")
            expect(passage).to_contain_text(text)
            around = passage.bounding_box()
            assert around is not None
            assert around["x"] >= 0
            assert around["x"] + around["width"] <= width
            assert around["height"] < 844
            assert overflow(page) == []
            passage.get_by_role("button", name="Close").tap()
            expect(passage).to_be_hidden()
        page.locator("sup").get_by_role("button", name="Source 1").tap()
        expect(page.get_by_role("dialog").locator("mark")).to_have_text(SAID)
        tab.check()
