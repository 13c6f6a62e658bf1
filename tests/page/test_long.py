"""A session of 5,000 visits, and the time axis: the page tells the whole session, and leads to any visit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect
from pydantic import BaseModel

from pausepoint import Status, Workflow, route, step
from tests.page import checks
from tests.page.exhibit import until
from tests.page.extremes import summarise, sync
from tests.page.kit import NETWORK, Person, Screen, session, visit
from tests.server.kit import served


class Count(BaseModel):
    n: int = 0


VISITS = 5_000


@step(writes="n")
def turn(n: int) -> int:
    return n + 1


@route(after=turn)
def again(n: int) -> Literal["turn"] | None:
    return "turn" if n < VISITS else None


many = Workflow("many", state=Count, steps=[turn], routes=[again])


def completed(person: Person, session_id: str = "many") -> None:
    async def run() -> None:
        await person.server.engine.start(many, session_id=session_id)
        await person.server.engine.session(session_id).outcome()

    person.server.run(run())


@pytest.fixture
def person(chrome: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    with (
        served(tmp_path_factory.mktemp("long"), workflows=(many, summarise, sync)) as server,
        visit(chrome, server) as one,
    ):
        one.sign_in()
        yield one


@pytest.mark.long
def test_of_5_000_visits_the_page_tells_all_and_draws_a_page(person: Person) -> None:
    completed(person)
    person.open(session("many"))
    course, overview = person.region("Course"), person.region("Overview")
    expect(course).to_contain_text("5,000 visits")
    expect(course).to_contain_text("Visits 4,801 to 5,000 of 5,000")
    expect(overview.get_by_role("row", name="turn")).to_contain_text("5,000")
    assert course.locator("rect").count() < 500
    assert checks.long_lists(person.page) == {}

    course.get_by_role("link", name="Earlier visits").click()
    expect(course).to_contain_text("Visits 4,601 to 4,800 of 5,000")
    course.get_by_role("link", name="Later visits").click()
    expect(course).to_contain_text("Visits 4,801 to 5,000 of 5,000")
    course.get_by_role("link", name="Oldest visits").click()
    expect(course).to_contain_text("Visits 1 to 200 of 5,000")
    expect(course).to_contain_text("5,000 visits")
    expect(course.get_by_role("link", name="Oldest visits")).to_have_count(0)
    course.get_by_role("link", name="Latest visits").click()
    expect(course).to_contain_text("Visits 4,801 to 5,000 of 5,000")
    overview.get_by_role("link", name="Longest visit of turn").click()
    expect(course).to_contain_text(re.compile(r"Visits [\d,]+ to [\d,]+ of 5,000"))


@pytest.mark.long
def test_a_jump_goes_to_a_visit_by_keyboard_and_an_unknown_one_is_told(person: Person) -> None:
    completed(person)
    person.open(session("many"))
    course = person.region("Course")
    field = course.get_by_label("Number of the visit")
    person.tab_to(field)
    person.type("2500")
    person.press("Enter")
    expect(course).to_contain_text("Visits 2,500 to 2,699 of 5,000")
    panel = person.page.get_by_role("tabpanel", name="State")
    expect(panel).to_contain_text("turn#2699")
    person.allowed.append(NETWORK)
    field.fill("9999")
    field.press("Enter")
    expect(course.get_by_role("alert")).to_contain_text("turn#9999")
    expect(course).to_contain_text("Visits 4,801 to 5,000 of 5,000")
    for width in (1440, 390):
        person.page.set_viewport_size({"width": width, "height": 900})
        assert checks.overflow(person.page) == []
        assert checks.barriers(person.page) == []


@pytest.mark.long
def test_the_history_goes_back_to_the_first_event(person: Person) -> None:
    completed(person)
    person.open(session("many", "History"))
    panel = person.page.get_by_role("tabpanel", name="History")
    expect(panel).to_contain_text("turn#5000 done")
    assert checks.long_lists(person.page) == {}
    panel.get_by_role("link", name="Earlier events").click()
    expect(panel).to_contain_text("earlier ones")
    expect(panel).not_to_contain_text("turn#5000 done")
    panel.get_by_role("link", name="Oldest events").click()
    expect(panel).to_contain_text("created")
    expect(panel).to_contain_text("turn#1 done")
    expect(panel.get_by_role("link", name="Earlier events")).to_have_count(0)
    panel.get_by_label("Number of the record").fill("3000")
    panel.get_by_label("Number of the record").press("Enter")
    expect(panel).to_contain_text(re.compile(r"turn#29\d\d done"))
    panel.get_by_role("link", name="Latest events").click()
    expect(panel).to_contain_text("turn#5000 done")


@pytest.mark.browser
def test_failed_attempts_and_times_of_waiting_have_bars_of_their_own_and_do_not_count_as_work(person: Person) -> None:
    engine = person.server.engine

    async def begin() -> None:
        await engine.start(sync, source="x", session_id="sync")
        await until(engine, "sync", Status.FAILED)
        await engine.start(summarise, topic="kelp", session_id="kelp")
        await until(engine, "kelp", Status.WAITING)

    person.server.run(begin())
    person.open(session("sync"))
    course = person.region("Course")
    expect(course.locator("rect.fail")).to_have_count(3)
    expect(course.locator("rect.rest")).to_have_count(2)
    expect(course.locator("rect.fail title").first).to_contain_text("failed attempt 1 of load_all#1")
    expect(course.locator("rect.fail title").first).to_contain_text("refused the connection")

    person.page.clock.install()
    person.open(session("kelp"))
    person.page.clock.fast_forward("02:00:00")
    expect(course).to_contain_text(re.compile(r"\d ms of work · 2 h"))
    expect(course).to_contain_text(re.compile("waited 2 h"))

    async def answer() -> None:
        (question,) = await engine.session("kelp").questions()
        await engine.answer(question.id, True)
        await engine.session("kelp").outcome()

    person.server.run(answer())
    person.open(Screen("/sessions/kelp", "kelp"))
    expect(course).to_contain_text("to the end")
    expect(course.locator(".axis")).to_contain_text(re.compile(r"\d\d:\d\d:\d\d"))
