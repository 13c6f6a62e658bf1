"""The memo as a page: citations that open their passage, marks, tables, charts, and nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pausepoint.apps.memo import checks as checking
from pausepoint.apps.memo import citations as citing
from pausepoint.apps.memo.markup import chart, rendered
from pausepoint.apps.memo.models import Review, Source, Validation
from pausepoint.apps.memo.page import as_html
from tests.apps.memo_kit import Desk
from tests.apps.memo_sources import DATA, MONEY, REPORT, source
from tests.support.loop import on_loop

ENTRIES = {"br", "hr", "meta", "img", "link", "input"}
"""Elements without an end tag."""


class Page(HTMLParser):
    """A page read strictly: every element is closed in order, and ids are unique."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.opens: list[str] = []
        self.loaded: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        self.ids += [str(given["id"])] if "id" in given else []
        self.opens += [str(given["popovertarget"])] if "popovertarget" in given else []
        self.loaded += [str(given[name]) for name in ("src", "srcset", "data", "onclick", "onerror") if name in given]
        if tag not in ENTRIES:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page_of(text: str, *sources: Source, review: Review | None = None) -> str:
    memo = citing.assembled("# Acme\n", {MONEY.name: f"## Money\n\n{text}\n"}, [MONEY], list(sources))
    memo = checking.mark(memo, list(sources), DATA, "Acme")
    found = Validation(
        citation_validation=checking.check_citations(memo, list(sources), "Acme"),
        fact_check_results=checking.check_facts(memo, list(sources), DATA, "Acme"),
    )
    shares, score = checking.score(memo, [MONEY], found)
    found = found.model_copy(update={"validation_results": shares, "overall_score": score})
    return as_html("Acme", memo, [MONEY], sources, found, review)


def test_a_citation_opens_its_whole_passage_and_highlights_the_sentence_of_the_claim() -> None:
    found = page_of("Revenue rose to $4.2 million in 2029 [@report-1].", REPORT)
    page = Page(found)
    assert page.open == []
    assert len(page.ids) == len({*page.ids})
    assert {*page.opens} <= {*page.ids}, "every button opens something"
    assert 'popovertarget="p1" title="Source 1: Report"' in found
    assert "<strong>[1] Report</strong> <code>report.md</code>" in found
    assert (
        "<blockquote><mark>Revenue rose to $4.2 million in 2029.</mark> It rained a lot that year in many places."
        in found
    )
    assert "[^" not in found, "no citation is left as Markdown"


def test_the_page_counts_and_marks_what_no_source_supports_and_says_the_verdict() -> None:
    text = "Revenue rose to $4.2 million in 2029 [@report-1]. Acme raised $50 million."
    draft = page_of(text, REPORT)
    assert '<p class="status bad"><strong>Draft.</strong> ' in draft
    assert "1 claim without support in the sources is marked in the text." in draft
    assert '<mark class="unsupported">⚠ unsupported: no source contains $50 million</mark>' in draft
    review = Review(verdict="rejected", score=7.0, reason="The <b>figure</b> is wrong.", agent="draft")
    rejected = page_of(text, REPORT, review=review)
    assert "<strong>Rejected by a reviewer.</strong>" in rejected
    assert "Reason: The &lt;b&gt;figure&lt;/b&gt; is wrong." in rejected
    good = page_of("Revenue rose to $4.2 million in 2029 [@report-1]. Acme raised $3 million [@report-2].", REPORT)
    assert '<p class="status good"><strong>Draft.</strong> ' in good
    assert "are supported by their sources. Score 10.0 of 10: how well the text is supported, not a rating" in good
    assert '<li><a href="#s1">Money</a> <span class="score">10.0</span></li>' in good


def test_nothing_in_a_memo_becomes_markup_loads_anything_or_runs() -> None:
    evil = source(
        "evil", "<script>alert(1)</script> Revenue was $4 million. <img src=x onerror=alert(2)>",
        '| <b>x</b> | "> |\n|---|---|\n| <svg onload=alert(3)> | 4 |',
    )  # fmt: skip
    evil = evil.model_copy(update={"title": '"><script>alert(4)</script>', "where": 'https://x.example/"onclick="y'})
    text = (
        "<script>alert(5)</script> Revenue was $4 million [@evil-1]. ![x](https://p.example/a.png)"
        " [y](javascript:alert(6)) [z](https://z.example/?a=1&b=2)\n\n**T** [@evil-2]\n\n"
        '```mermaid\nxychart-beta\n    x-axis ["<b>", "b"]\n    bar [1, 2]\n```\n\n```\n<i>code</i>\n```'
    )
    found = page_of(text, evil)
    page = Page(found)
    assert page.open == []
    assert not page.tags & {"script", "img", "svg", "iframe", "object", "link"}
    assert page.loaded == []
    assert not re.search(r"url\(|@import|href=\"javascript", found)
    assert '<a href="https://z.example/?a=1&amp;b=2" rel="noopener noreferrer">z</a>' in found
    assert '<a class="picture" href="https://p.example/a.png" rel="noopener noreferrer">Picture: x</a>' in found


def test_tables_are_tables_with_figures_on_the_right_and_charts_have_one_bar_per_row() -> None:
    text, _ = rendered("| Year | Revenue |\n|---|---|\n| 2028 | $(1.9) |\n| Total | 12 % [^1] |", {})
    assert text.count("<tr>") == 3
    assert '<td class="figure">$(1.9)</td>' in text
    assert "<td>Total</td>" in text
    assert '<sup class="lost" title="This citation does not exist">[1]</sup>' in text
    drawn = chart('xychart-beta\n x-axis ["2027", "2028"]\n y-axis "Profit"\n bar [-2, 4]')
    assert drawn.count("<span>") == 2
    assert '<b class="minus" style="width:50.0%"></b>' in drawn
    assert "<em>Profit</em>" in drawn
    for odd in ("pie title x", 'x-axis ["a"]\nbar [1, 2]', 'x-axis ["a"]\nbar [..]'):
        assert chart(odd) == ""


@pytest.mark.long
@on_loop
async def test_the_draft_has_a_page_for_the_reviewer_and_the_final_page_says_the_verdict(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "Quietwater")
    outcome = await desk.run()
    draft = desk.read("4-final-draft.html")
    assert Page(draft).open == []
    assert "<strong>Draft.</strong>" in draft
    assert not desk.file("memo.html").exists()
    async with desk.engine() as engine:
        await engine.answer(outcome.questions[0].id, "approve")
        await engine.session("s1").outcome()
    assert "<strong>Approved by a reviewer.</strong>" in desk.read("memo.html")
    assert desk.read("4-final-draft.html") == draft
