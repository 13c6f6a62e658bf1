"""ParentInsight: the stress level, the facts of a report, and the two files that it leaves."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import time, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pausepoint.apps.aura import daily_planner, parent_insight, skill_mastery
from pausepoint.apps.aura.facts import Facts
from pausepoint.apps.aura.free_time import free_days
from pausepoint.apps.aura.models import Assignment, ParentReport
from pausepoint.apps.aura.page import as_html
from pausepoint.apps.input import BadInput
from tests.apps.classroom import NOW

UTC = ZoneInfo("UTC")


def work(number: int, days: float | None = 1, **more: Any) -> Assignment:
    due = None if days is None else NOW + timedelta(days=days)
    return Assignment(
        **{"id": f"{number}", "account": "a", "course": "Botany", "title": f"Work {number}", "due": due} | more
    )


def facts(*found: Assignment, student: str = "student-1", limit: int = 120) -> Facts:
    profile = skill_mastery.analyze(found, NOW)
    free = free_days(NOW, 5, (time(15), time(20)), "UTC", None)
    plan = daily_planner.plan(found, profile, NOW, free, limit, UTC)
    said = daily_planner.advice(plan, NOW, UTC)
    return Facts(student, NOW, UTC, found, profile, plan.items, plan.unplanned, plan.load, said)


def written(folder: Path, what: Facts) -> tuple[ParentReport, str, str]:
    report = parent_insight.write(what, parent_insight.summary(what), folder, "aura-x")
    return report, report.markdown.read_text("utf-8"), report.html.read_text("utf-8")


@pytest.mark.parametrize(
    ("found", "level", "because"),
    [
        ([], "low", "0 of 600 free minutes in 5 days are needed"),
        ([work(1, minutes=100)], "low", "100 of 600"),
        ([work(number, 5, minutes=100) for number in range(4)], "moderate", "400 of 600"),
        ([work(1, -1, minutes=10)], "moderate", "1 piece of work is overdue; 10 of 600"),
        ([work(number, -1, minutes=10) for number in range(3)], "high", "3 pieces of work are overdue"),
        ([work(number, 5, minutes=60) for number in range(10)], "high", "600 of 600"),
        ([work(1, 0.5, minutes=200)], "high", "1 piece of work cannot be finished in time; 200 of 600"),
        ([work(1, 30, minutes=900)], "high", "600 of 600"),  # due after these days, and it still fills them
    ],
)
def test_the_stress_level_follows_from_the_plan(found: list[Assignment], level: str, because: str) -> None:
    stress, why = parent_insight.stress(facts(*found))
    assert (stress, because in why) == (level, True), why


def test_the_summary_counts_what_is_there() -> None:
    found = facts(
        work(1, -9, points=9, max_points=10, handed_in=True),
        work(2, -9, course="Zoology", points=2, max_points=10, handed_in=True),
        work(3, 2),
        work(4, -1),
    )
    assert parent_insight.summary(found) == [
        "4 assignments in 2 courses: 2 graded, 2 open, 1 of them overdue.",
        "The strongest subject is Botany (56%).",
        "Zoology needs the most attention (20%).",
        "Next due: Work 3 (Botany), Wed 6 Mar 2030, 08:00.",
    ]


def test_without_any_work_nothing_is_claimed(tmp_path: Path) -> None:
    _, markdown, html = written(tmp_path, facts())
    assert parent_insight.summary(facts()) == ["0 assignments in 0 courses: 0 graded, 0 open, 0 of them overdue."]
    assert markdown.count("Nothing.") == 3
    assert html.count("<p>Nothing.</p>") == 3


class Page(HTMLParser):
    """Counts tags and refuses what is not closed."""

    VOID = ("meta", "line", "circle", "polyline")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_self_contained_and_has_a_chart_for_each_subject_with_results(tmp_path: Path) -> None:
    graded = {"handed_in": True, "max_points": 10}
    found = facts(
        *(work(number, -number - 1, points=number, **graded) for number in range(5)),
        work(9, -1, course="Zoology", points=3, **graded),
        work(10, 1, course="Chess"),
    )
    _, _, html = written(tmp_path, found)
    page = Page(html)
    assert page.tags.count("svg") == 2
    assert {"script", "link", "img", "iframe", "object"}.isdisjoint(page.tags)
    assert re.findall(r"https?://|url\(|@import|src=|href=", html) == []
    charts = re.findall(r'<svg .*?<polyline points="(.*?)"/>', html)
    assert len(charts[0].split()) == 5
    assert len(charts[1].split()) == 1
    heights = [float(point.split(",")[1]) for point in charts[0].split()]
    assert heights == [pytest.approx(36 - 32 * share, abs=0.06) for share in (0.4, 0.3, 0.2, 0.1, 0.0)]


NASTY = "</title><script>alert('x')</script> & \"quoted\" | `code` *bold* [link](javascript:x) <img src=x>"


def test_whatever_the_data_holds_is_shown_as_text(tmp_path: Path) -> None:
    bad = [
        work(1, -30, title=NASTY, course=NASTY),
        work(2, 1, title=NASTY + "\n# heading", course=NASTY),
        work(3, -2, title=NASTY, course=NASTY, points=1, max_points=2),
    ]
    _, markdown, html = written(tmp_path, facts(*bad, student=NASTY))
    page = Page(html)
    assert {"script", "img", "a"}.isdisjoint(page.tags)
    assert NASTY in page.text
    assert not re.search(r"(?<!\\)<(script|img|/title)", markdown)
    assert "\n# heading" not in markdown
    assert all(line.count("|") - line.count(r"\|") in (0, 8) for line in markdown.splitlines())


texts = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=40)


@given(texts, texts, texts)
def test_any_name_leaves_the_page_whole(title: str, course: str, student: str) -> None:
    graded = work(2, -2, title=title, course=course, points=1, max_points=2)
    what = facts(work(1, 1, title=title, course=course), graded, student=student)
    report = ParentReport(stress="low", stress_because="x", summary=[title], markdown=Path("a"), html=Path("b"))
    assert set(Page(as_html(what, report)).tags) <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "strong", "table", "tr", "th", "td",
        "ul", "li", "svg", "line", "polyline", "circle",
    }  # fmt: skip


def test_writing_again_gives_the_same_bytes_and_leaves_nothing_else(tmp_path: Path) -> None:
    what = facts(work(1), work(2, -3, points=4, max_points=5))
    report, *first = written(tmp_path / "new" / "folder", what)
    report.markdown.write_text("half a rep")
    again, *second = written(tmp_path / "new" / "folder", what)
    assert (first, report) == (second, again)
    assert sorted(os.listdir(report.markdown.parent)) == ["aura-x.html", "aura-x.md"]


def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadInput, match=rf"^reports: Cannot write to {tmp_path}/file/x: Not a d.*--set reports="):
        written(tmp_path / "file" / "x", facts())


def test_a_name_at_the_beginning_of_a_line_makes_no_list(tmp_path: Path) -> None:
    graded = {"handed_in": True, "max_points": 10}
    found = facts(work(1, -1, course="- Botany", points=1, **graded), work(2, -1, course="1. Art", points=9, **graded))
    _, markdown, _ = written(tmp_path, found)
    assert "\n\\- Botany needs the most attention" in markdown
    assert "| 1\\. Art |" in markdown


def test_a_long_list_of_what_did_not_fit_is_cut_and_counted(tmp_path: Path) -> None:
    what = facts(*(work(number, -30) for number in range(25)))
    assert len(what.unplanned) == 25
    _, markdown, html = written(tmp_path, what)
    assert markdown.count("ask the teacher\n") == html.count("ask the teacher</li>") == 20
    assert "- and 5 more pieces of work" in markdown
    assert "<li>and 5 more pieces of work</li>" in html
