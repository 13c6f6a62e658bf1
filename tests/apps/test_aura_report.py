"""ParentInsight: the stress level, the facts of a report, and the two files that it leaves."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from datetime import time, timedelta
from email import message_from_bytes
from email.policy import default
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pausepoint.apps.aura import daily_planner, parent_insight, skill_mastery
from pausepoint.apps.aura.contents import contents
from pausepoint.apps.aura.facts import Facts
from pausepoint.apps.aura.free_time import free_week
from pausepoint.apps.aura.language import Code, Speech
from pausepoint.apps.aura.models import Assignment, LastReport, ParentReport, standing
from pausepoint.apps.aura.overview import overview
from pausepoint.apps.aura.page import as_html
from pausepoint.apps.aura.texts import TEXTS
from pausepoint.apps.input import BadInput
from tests.apps.classroom import NOW

UTC = ZoneInfo("UTC")


def work(number: int, days: float | None = 1, **more: Any) -> Assignment:
    due = None if days is None else NOW + timedelta(days=days)
    return Assignment(
        **{"id": f"{number}", "account": "a", "course": "Botany", "title": f"Work {number}", "due": due} | more
    )


def facts(
    *found: Assignment, student: str = "Robin", limit: int = 120, language: Code = "en",
    previous: LastReport | None = None, notes: Sequence[str] = (),
) -> Facts:  # fmt: skip
    speech = Speech(language, UTC, NOW)
    profile = skill_mastery.analyze(found, NOW)
    free = free_week(NOW, 5, (time(15), time(20)), "UTC", None).days
    plan = daily_planner.plan(found, profile, free, limit, speech)
    said = daily_planner.advice(plan, speech)
    seen = overview(found, previous, NOW)
    return Facts(student, speech, seen, profile, plan.items, plan.unplanned, plan.load, said, notes, previous)


def written(folder: Path, what: Facts, **more: Any) -> tuple[ParentReport, str, str]:
    report = parent_insight.write(what, parent_insight.summary(what), folder, "aura-x", **more)
    return report, report.markdown.read_text("utf-8"), report.html.read_text("utf-8")


@pytest.mark.parametrize(
    ("found", "level", "because"),
    [
        ([], "low", "The next 5 days: 0 min of work, 10 h of free time."),
        ([work(1, minutes=100)], "low", "1 h 40 min of work"),
        ([work(number, 5, minutes=100) for number in range(4)], "moderate", "6 h 40 min of work, 10 h"),
        ([work(1, -1, minutes=10)], "moderate", "1 assignment is overdue. The next 5 days: 10 min of work"),
        ([work(number, -1, minutes=10) for number in range(3)], "high", "3 assignments are overdue."),
        ([work(number, 5, minutes=60) for number in range(10)], "high", "10 h of work, 10 h of free time"),
        ([work(1, 0.5, minutes=200)], "high", "1 assignment cannot be finished in time. The next 5 days: 3 h 20 min"),
        ([work(1, 30, minutes=900)], "high", "10 h of work, 10 h"),  # due after these days, and it still fills them
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
        "Robin has 2 open assignments.",
        "The strongest subject is Botany (56%, from 1 grade, 1 missing).",
        "The lowest level so far is in Zoology (20%, from 1 grade), which is too little to judge.",
        "Next due: Work 3 (Botany), Wed 6 Mar, 08:00.",
    ]


def test_one_missing_lab_is_not_what_needs_the_most_attention(tmp_path: Path) -> None:
    done = {"handed_in": True, "max_points": 10}
    lab = [work(9, -60, course="Chemistry", points=9, **done), work(10, -1, course="Chemistry", title="Lab")]
    weak = [work(number, -number, course="Latin", points=5, **done) for number in range(1, 4)]
    good = [work(number, -number, course="Art", points=9, **done) for number in range(4, 7)]
    said = parent_insight.summary(facts(*lab, *weak, *good))
    assert "The strongest subject is Art (90%, from 3 grades)." in said
    assert "Latin needs the most attention (50%, from 3 grades)." in said
    _, markdown, _ = written(tmp_path, facts(*lab))
    assert re.search(r"\*\*Chemistry\*\*: level \d+% · from 1 grade · few grades so far · 1 missing; latest", markdown)


def test_without_any_work_nothing_is_claimed(tmp_path: Path) -> None:
    _, markdown, _ = written(tmp_path, facts())
    assert parent_insight.summary(facts()) == ["Robin has no open assignments."]
    for said in ("Nothing is overdue.", "There is nothing to plan.", "There is no work yet.", "the first report"):
        assert said in markdown


def test_a_parent_reads_overdue_work_first_then_the_week_the_changes_and_the_grades(tmp_path: Path) -> None:
    found = facts(
        work(1, -3, title="Leaves"),
        work(2, -30, title="Roots"),
        work(3, 2, title="Stems"),
        work(4, 0.5, title="Seeds", minutes=400),
        work(5, -9, title="Buds", points=8.5, max_points=10, handed_in=True, late=True),
        notes=["Calendar: one is odd."],
    )
    _, markdown, html = written(tmp_path, found)
    assert markdown.splitlines()[0] == "# School report for Robin"
    heads = ["Overdue", "The next 5 days", "Since the last report", "Grades", "What helps now", "Small print"]
    assert re.findall(r"^## (.*)$", markdown, re.MULTILINE) == re.findall("<h2>(.*?)</h2>", html) == heads
    for line in (
        "- **Leaves**: Botany · was due Fri 1 Mar (3 days ago) · planned for Tue 5 Mar, 16:00",
        "- **Roots**: Botany · was due Sat 2 Feb (30 days ago) · not planned any more: ask the teacher",
        "**Does not fit into the week**",
        "- **Seeds**: Botany · 4 h 40 min: it takes 6 h 40 min, and only 5 h are free before it is due (Mon 4 Mar,",
        "1 late · 2 missing; latest: Buds (8.5 of 10)",
        "Calendar: one is odd.",
    ):
        assert line in markdown
    assert "need" not in markdown.partition("Small print")[0].replace("needs the most", "")


def last_week(*found: Assignment) -> LastReport:
    then = NOW - timedelta(days=7)
    stood = {each.id: standing(each, then) for each in found}
    return LastReport(session_id="s0", as_of=then, work=stood, profile=skill_mastery.analyze(found, then))


def test_a_report_says_what_has_changed_since_the_last_one(tmp_path: Path) -> None:
    done = {"handed_in": True}
    before = [work(1, -10, points=9, max_points=10, **done), work(2, -3), work(3, -8), work(4, 3), work(5, 4)]
    after = [
        before[0],
        work(2, -3, points=2, max_points=10, **done),
        work(3, -8, **done),
        work(4, 3, **done),
        work(5, 4),
        work(6, 5),
        work(7, -1),
    ]
    _, markdown, _ = written(tmp_path, facts(*after, previous=last_week(*before)))
    changes = markdown.partition("## Since the last report")[2].partition("## Grades")[0].split("\n\n")
    assert [line for line in changes if line.strip()] == [
        "Compared with the report of Mon 25 Feb.",
        "**New grades**", "- **Work 2**: Botany · 2 of 10",
        "**Newly overdue**", "- **Work 7**: Botany",
        "**Caught up**", "- **Work 3**: Botany",
        "**Handed in**", "- **Work 4**: Botany",
        "**New assignments**", "- **Work 6**: Botany · due Sat 9 Mar, 08:00",
        "**Levels**", "- **Botany**: 59% → 41%",
    ]  # fmt: skip
    assert "level 41% (was 59%)" in markdown
    _, same, _ = written(tmp_path, facts(*before[:1], previous=last_week(*before[:1])))
    assert "Nothing has changed." in same


def test_the_report_is_written_in_german(tmp_path: Path) -> None:
    _, markdown, html = written(tmp_path, facts(work(1, -3, points=8.5, max_points=10), work(2, -1), language="de"))
    for said in ("# Schulbericht für Robin", "Belastung: mittel", "gestern", "8,5 von 10", "Die nächsten 5 Tage"):
        assert said in markdown
    assert '<html lang="de">' in html


def test_missing_work_alone_gives_a_subject_no_level(tmp_path: Path) -> None:
    given = [work(1, -3), work(2, -3, course="Deutsch", grade="2-"), work(3, -2, course="Deutsch")]
    _, markdown, _ = written(tmp_path, facts(*given, language="de"))
    assert "- **Botany**: noch keine Note · 1 fehlt\n" in markdown
    assert "**Deutsch**: kein Stand: die Noten haben kein Maximum · 1 fehlt; zuletzt: Work 2 (Note 2-)" in markdown
    assert " 0 %" not in markdown.partition("Kleingedrucktes")[0]
    assert "in 2 Kursen, Stand Mo., 4. März 2030, 08:00" in markdown
    _, markdown, _ = written(tmp_path, facts(work(1, -3)))
    assert "Made from 1 assignment in 1 course, as of" in markdown


def test_grades_are_shown_as_the_source_writes_them(tmp_path: Path) -> None:
    given = [
        work(1, -3, course="Deutsch", title="Diktat", grade="2-"),
        work(2, -2, course="Kunst", title="Collage", points=80, max_points=100, grade="80%"),
        work(3, -1, course="Musik", title="Lied", points=1),
    ]
    _, markdown, _ = written(tmp_path, facts(*given, language="de"))
    for said in (
        "**Deutsch**: kein Stand: die Noten haben kein Maximum; zuletzt: Diktat (Note 2-)",
        "**Kunst**: Stand 80 % · aus 1 Note · noch wenige Noten; zuletzt: Collage (80 %)",
        "zuletzt: Lied (1 Punkt)\n",
    ):
        assert said in markdown
    _, markdown, _ = written(tmp_path, facts(*given))
    assert "latest: Collage (80%)\n" in markdown
    assert "latest: Diktat (grade 2-)\n" in markdown


def test_every_text_is_there_in_both_languages_with_the_same_values() -> None:
    for key, texts in TEXTS.items():
        assert set(texts) == {"en", "de"}, key
        values = [set(re.findall(r"{(\w+)}", text)) for text in texts.values()]
        assert values[0] == values[1], key
        assert len({text.count(" | ") for text in texts.values()}) == 1, key


def test_the_mail_has_text_and_page_and_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    what = facts(work(1, -1, title="Über Blätter"))
    report, _, html = written(tmp_path, what, mail_to="parent@example.com")
    assert report.mail is not None
    first = report.mail.read_bytes()
    message = message_from_bytes(first, policy=default)
    assert (message["To"], message["Subject"]) == ("parent@example.com", "School report for Robin, Mon 4 Mar 2030")
    text, page = message.iter_parts()
    assert (text.get_content_type(), page.get_content_type()) == ("text/plain", "text/html")
    assert "- Über Blätter: Botany · was due Sun 3 Mar (yesterday)" in text.get_content()
    assert page.get_content().replace("\r\n", "\n") == html
    written(tmp_path, what, mail_to="parent@example.com")
    assert report.mail.read_bytes() == first


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
    report, markdown, html = written(tmp_path, facts(*bad, student=NASTY))
    page = Page(html)
    assert {"script", "img", "a"}.isdisjoint(page.tags)
    assert NASTY in page.text
    assert report.mail is not None
    assert message_from_bytes(report.mail.read_bytes(), policy=default).get_content_type() == "multipart/alternative"
    assert not re.search(r"(?<!\\)<(script|img|/title)", markdown)
    assert "\n# heading" not in markdown


texts = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=40)


@pytest.mark.long
@given(texts, texts, texts)
def test_any_name_leaves_the_page_whole(title: str, course: str, student: str) -> None:
    graded = work(2, -2, title=title, course=course, points=1, max_points=2)
    what = facts(work(1, 1, title=title, course=course), graded, student=student)
    report = ParentReport(stress="low", stress_because="x", summary=[title], markdown=Path("a"), html=Path("b"))
    assert set(Page(as_html(contents(what, report))).tags) <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "strong", "section", "footer", "div",
        "span", "ul", "li", "svg", "line", "polyline", "circle",
    }  # fmt: skip


def test_writing_again_gives_the_same_bytes_and_leaves_nothing_else(tmp_path: Path) -> None:
    what = facts(work(1), work(2, -3, points=4, max_points=5))
    report, *first = written(tmp_path / "new" / "folder", what)
    report.markdown.write_text("half a rep")
    again, *second = written(tmp_path / "new" / "folder", what)
    assert (first, report) == (second, again)
    assert sorted(os.listdir(report.markdown.parent)) == ["aura-x.eml", "aura-x.html", "aura-x.md"]


def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadInput, match=rf"^reports: Cannot write to {tmp_path}/file/x: Not a d.*--set reports="):
        written(tmp_path / "file" / "x", facts())


def test_a_name_at_the_beginning_of_a_line_makes_no_list(tmp_path: Path) -> None:
    graded = {"handed_in": True, "max_points": 10}
    found = facts(work(1, -1, course="- Botany", points=1, **graded), work(2, -1, course="1. Art", points=9, **graded))
    _, markdown, _ = written(tmp_path, found)
    assert "**\\- Botany**" in markdown
    assert "**1\\. Art**" in markdown


def test_a_long_list_is_cut_and_counted(tmp_path: Path) -> None:
    what = facts(*(work(number, -30) for number in range(25)))
    assert len(what.unplanned) == 25
    _, markdown, html = written(tmp_path, what)
    assert markdown.count("ask the teacher whether") == html.count("ask the teacher whether") == 20
    assert "- and 5 more" in markdown
    assert "<li>and 5 more</li>" in html
