"""A student's phone: the plan behind a signed link, with marks."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.apps.planner_web import link, plan, web
from tests.page.browser import Tab
from tests.page.checks import barriers, garbage, overflow
from tests.page.kit import NETWORK, window
from tests.page.test_strangers import AUDIT

HOSTILE = "<img src=x onerror=pwned(1)><script>pwned(2)</script>"
COURSES = [
    {"course_id": "calc2", "course_name": f"Calculus {HOSTILE}", "midterm_date": "2030-02-21"},
    {"course_id": "hist", "course_name": "History" + "y" * 200, "midterm_date": "2030-02-26"},
]


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_student_marks_work_on_a_phone_and_finds_it_marked_again(
    chrome: Browser, tmp_path: Path, scheme: str
) -> None:
    with web(tmp_path) as server, window(chrome, 390, 780, color_scheme=scheme) as context:
        rows = [row for row in plan(server, courses=COURSES).planning_state.plan_rows if row.parts]
        tab = Tab(context.new_page())
        page = tab.page
        page.goto(f"{server.base}/plan/#link={link(tmp_path)}")
        first = page.get_by_label(rows[0].task_description).first
        expect(first).not_to_be_checked()
        assert "link=" not in page.url
        expect(page.get_by_text(f"Calculus {HOSTILE}: 0 of")).to_be_visible()
        first.click()
        expect(first).to_be_checked()
        expect(page.get_by_text(f"Calculus {HOSTILE}: {rows[0].estimated_minutes} of")).to_be_visible()
        page.reload()
        expect(first).to_be_checked()
        page.get_by_text("Topics", exact=True).click()
        done = {part.topic for part in rows[0].parts}
        other = next(part.topic for row in rows for part in row.parts if part.topic not in done)
        topic = page.get_by_label(other, exact=False).last
        topic.click()
        expect(topic).to_be_checked()
        expect(topic).to_be_focused()  # the plan was drawn again, and the topics are still unfolded
        topic.click()
        expect(topic).not_to_be_checked()
        first.click()
        expect(first).not_to_be_checked()
        assert overflow(page) == []
        assert garbage(page) == []
        assert not (faults := barriers(page)), faults
        assert page.evaluate(AUDIT) == []
        tab.check()


@pytest.mark.browser
def test_a_mark_without_a_connection_is_not_shown_as_saved(chrome: Browser, tmp_path: Path) -> None:
    with web(tmp_path) as server, window(chrome, 390, 780) as context:
        row = next(row for row in plan(server).planning_state.plan_rows if row.parts)
        tab = Tab(context.new_page())
        tab.allowed += [NETWORK, "ERR_"]
        tab.page.goto(f"{server.base}/plan/#link={link(tmp_path)}")
        first = tab.page.get_by_label(row.task_description).first
        expect(first).to_be_visible()
        context.set_offline(True)
        first.click()
        expect(tab.page.get_by_role("alert")).to_contain_text("Nothing was saved.")
        expect(first).not_to_be_checked()
        context.set_offline(False)
        first.click()
        expect(first).to_be_checked()
        expect(tab.page.get_by_role("alert")).to_be_hidden()
        tab.check()


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["expired", "changed", "none"])
def test_a_wrong_link_shows_a_sentence_and_no_plan(chrome: Browser, tmp_path: Path, kind: str) -> None:
    with web(tmp_path) as server, window(chrome, 390, 780) as context:
        plan(server)
        good = link(tmp_path)
        tab = Tab(context.new_page())
        tab.allowed.append(NETWORK)
        address = {"expired": f"#link={link(tmp_path, seconds=-1)}", "changed": f"#link=A{good[1:]}", "none": ""}[kind]
        tab.page.goto(f"{server.base}/plan/{address}")
        sentence = "Open your link again" if kind == "none" else "The link is wrong, has expired or was revoked."
        expect(tab.page.get_by_role("alert")).to_contain_text(sentence)
        expect(tab.page.get_by_role("checkbox")).to_have_count(0)
        assert not (faults := barriers(tab.page)), faults
        tab.check()
