"""Live updates: nothing that a person types or looks at is lost, and the stream is shared and comes back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Route, expect

from pausepoint import Status
from tests.page.asking import interview
from tests.page.exhibit import brief, crawl, digest, trip, until
from tests.page.kit import (
    INBOX,
    NETWORK,
    NOW,
    SESSIONS,
    Person,
    Screen,
    asked,
    eventually,
    session,
    state,
    visit,
    window,
)
from tests.page.workflows import ALL
from tests.server.kit import Served, served


@pytest.fixture
def moving(server: Served) -> Iterator[Served]:
    """A server with a session that runs, so that something changes several times in a second."""
    server.run(server.engine.start(crawl, site="reef.example", session_id="crawl"))
    yield server
    server.run(server.engine.session("crawl").cancel())


@pytest.mark.long
def test_updates_keep_the_focus_and_what_is_typed(chrome: Browser, moving: Served) -> None:
    asked(moving, trip, "trip", place="Oslo")
    with visit(chrome, moving) as person:
        person.sign_in()
        person.open(INBOX)
        form = person.question("Which room in Oslo?")
        form.get_by_label("Email").fill("ada@")
        form.get_by_role("radio", name="suite").check()
        form.get_by_label("Country").select_option("Sweden")
        form.get_by_label("Breakfast").uncheck()
        name = form.get_by_label("Name", exact=True)
        name.press_sequentially("Ada Lovelace")
        person.press("ArrowLeft", "ArrowLeft")
        before = person.focused()
        asked(moving, interview, "talk", kind="text")
        asked(moving, brief, "brief", topic="eel")  # it expires, so it stands before the others
        expect(person.question("What text?")).to_be_visible()
        expect(person.question("Which tone")).to_be_visible()
        assert person.focused() == before
        person.type("!")
        expect(name).to_have_value("Ada Lovela!ce")
        expect(form.get_by_label("Email")).to_have_value("ada@")
        expect(form.get_by_role("radio", name="suite")).to_be_checked()
        expect(form.get_by_label("Country")).to_have_value('"Sweden"')
        expect(form.get_by_label("Breakfast")).not_to_be_checked()


@pytest.mark.browser
def test_updates_of_a_session_keep_the_dialog_and_what_is_typed(chrome: Browser, moving: Served) -> None:
    with visit(chrome, moving) as person:
        person.sign_in()
        person.open(session("crawl"))
        person.button("Pause").click()
        why = person.dialog.get_by_label("Why")
        why.press_sequentially("because")
        at = person.main.inner_text()
        eventually(lambda: person.main.inner_text() != at, "nothing changed below the dialog")
        expect(why).to_be_focused()
        expect(why).to_have_value("because")
        expect(person.dialog).to_be_visible()


@pytest.mark.browser
def test_a_session_is_drawn_as_it_goes(chrome: Browser, moving: Served) -> None:
    with visit(chrome, moving) as person:
        person.sign_in()
        person.open(session("crawl", "Output"))
        expect(person.page.get_by_role("log")).to_contain_text(re.compile(r"page \d+ of reef.example"))
        person.open(session("crawl", "History"))
        history = person.page.get_by_role("tabpanel")
        first = history.inner_text()
        eventually(lambda: history.inner_text() != first, "the history did not grow")
        moving.run(moving.engine.session("crawl").pause(reason="enough", by="ben"))
        expect(person.region("Why it is not running")).to_contain_text("enough")
        expect(person.button("Resume")).to_be_visible()


@pytest.mark.browser
def test_back_and_forward(person: Person) -> None:
    asked(person.server, brief, "octopus", topic="octopus")
    waiting = Screen("/sessions?status=waiting", "Sessions")
    way = [NOW, INBOX, waiting, session("octopus"), session("octopus", "History")]
    for screen in way:
        person.open(screen)
    for screen in reversed(way[:-1]):
        person.page.go_back()
        person.wait(screen)
        assert person.page.url.endswith(f"#{screen.path}")
    person.page.go_forward()
    person.wait(INBOX)
    person.page.go_forward()
    person.wait(waiting)
    expect(person.button("waiting")).to_have_attribute("aria-pressed", "true")
    person.page.reload()
    person.wait(waiting)
    expect(person.region("List of sessions").get_by_role("row")).to_have_count(2)


# tabs


@pytest.mark.browser
def test_two_tabs_show_the_same(chrome: Browser, server: Served) -> None:
    asked(server, brief, "octopus", topic="octopus")
    with window(chrome) as context:
        one, other = (Person(context.new_page(), server) for _ in range(2))
        one.sign_in()
        other.open(INBOX)
        one.open(INBOX)
        one.question("Which tone").get_by_role("radio", name="formal").check()
        one.question("Which tone").get_by_role("button", name="Answer").click()
        for tab in (one, other):
            expect(tab.question("Which tone")).to_have_count(0)
            expect(tab.region("Recently closed")).to_contain_text("root")
            tab.check()


def has_changed(person: Person, shown: str) -> bool:
    return person.main.inner_text() != shown


@pytest.mark.long
def test_a_session_that_does_not_exist_is_not_asked_for_again(chrome: Browser, moving: Served) -> None:
    with window(chrome) as context:
        one, other = (Person(context.new_page(), moving) for _ in range(2))
        one.sign_in()
        one.open(session("crawl"))
        one.page.goto(f"{moving.base}/#/sessions/none")
        expect(one.main.get_by_role("alert")).to_be_visible()
        asked_for = list[str]()
        one.page.on("request", lambda request: asked_for.append(request.url))
        other.open(session("crawl", "History"))
        for _ in range(3):
            shown = other.main.inner_text()
            eventually(partial(has_changed, other, shown), "the other tab shows no news")
        assert not [url for url in asked_for if "none" in url]
        one.open(session("crawl"))


@pytest.mark.long
def test_a_person_who_answers_second_learns_who_was_faster(person: Person) -> None:
    question = asked(person.server, brief, "octopus", topic="octopus")
    engine = person.server.engine

    def other_first(route: Route) -> None:
        person.server.run(engine.answer(question, "formal", by="ben"))
        route.continue_()

    person.allowed.append(NETWORK)
    person.open(Screen(f"/inbox/{question}", "Inbox"))
    person.page.route("**/answer", other_first)
    person.question("Which tone").get_by_role("radio", name="playful").check()
    person.button("Answer").click()
    expect(person.main).to_contain_text(re.compile("ben"))
    assert state(person.server, "octopus").tone == "formal"


@pytest.mark.browser
def test_eight_tabs_hold_one_stream(chrome: Browser, server: Served) -> None:
    with window(chrome) as context, server.admin() as client:
        people = [Person(context.new_page(), server) for _ in range(8)]
        people[0].sign_in()
        for person in people:
            person.open(SESSIONS)

        def streams() -> float:
            lines = client.get("/metrics").text.splitlines()
            return next(float(line.split()[-1]) for line in lines if line.startswith("pausepoint_stream_clients"))

        eventually(lambda: streams() == 1, "there must be one stream")
        server.run(server.engine.start(digest, reader="x", session_id="digest-new"))
        for person in people:
            expect(person.page.get_by_role("link", name="digest-new")).to_be_visible()
        assert streams() == 1
        people[0].page.close()  # the tab that has the stream
        server.run(server.engine.start(digest, reader="y", session_id="digest-next"))
        for person in people[1:]:
            expect(person.page.get_by_role("link", name="digest-next")).to_be_visible()
            person.check()
        eventually(lambda: streams() == 1, "there must be one stream again")


# the server is gone


@pytest.mark.long
def test_the_server_goes_and_comes_back(chrome: Browser, tmp_path: Path) -> None:
    with ExitStack() as stack, window(chrome) as context:
        with served(tmp_path, workflows=ALL) as server:
            asked(server, interview, "talk", kind="text")
            person = Person(context.new_page(), server)
            person.allowed += [NETWORK, "net::ERR"]
            person.sign_in()
            person.open(INBOX)
            field = person.question("What text?").get_by_role("textbox")
            field.press_sequentially("half a sent")
        expect(person.main.get_by_role("status")).to_contain_text("does not answer")
        expect(field).to_have_value("half a sent")
        again = stack.enter_context(served(tmp_path, workflows=ALL, port=server.port))
        expect(person.main.get_by_role("status")).to_have_count(0)
        expect(field).to_be_focused()
        person.type("ence")
        asked(again, brief, "brief", topic="eel")
        expect(person.question("Which tone")).to_be_visible()
        person.question("What text?").get_by_role("button", name="Answer").click()
        expect(person.question("What text?")).to_have_count(0)
        assert state(again, "talk").answer == "half a sentence"
        person.check()


@pytest.mark.long
def test_an_action_without_an_answer_is_sent_once_more_and_counts_once(person: Person) -> None:
    server = person.server
    server.run(server.engine.start(digest, reader="x", session_id="digest"))
    server.run(until(server.engine, "digest", Status.SLEEPING))
    person.allowed += [NETWORK, "net::ERR"]
    person.open(session("digest"))
    sent: list[str] = []

    def cut(route: Route) -> None:
        sent.append(route.request.headers["idempotency-key"])
        if len(sent) > 1:
            return route.continue_()
        route.fetch()  # the server does it, but its answer is lost
        return route.abort()

    person.page.route("**/pause", cut)
    person.button("Pause").click()
    person.dialog.get_by_role("button", name="Pause", exact=True).click()
    expect(person.dialog).to_have_count(0)
    assert len(sent) == 2
    assert sent[0] == sent[1]
    assert len(server.run(server.engine.session("digest").pauses())) == 1


# times


@pytest.mark.browser
@pytest.mark.parametrize("zone", ["Pacific/Auckland", "America/St_Johns"])
def test_times_are_those_of_the_readers_zone(chrome: Browser, server: Served, zone: str) -> None:
    asked(server, brief, "octopus", topic="octopus")
    created = server.run(server.engine.session("octopus").info()).created_at.astimezone(ZoneInfo(zone))
    with visit(chrome, server, timezone_id=zone, locale="en-GB") as person:
        person.sign_in()
        person.open(session("octopus", "History"))
        rows = person.page.get_by_role("tabpanel").locator("time")
        last = rows.last
        expect(last).to_have_text(f"{created:%H:%M:%S}")
        expect(last).to_have_attribute("title", re.compile(re.escape(f"{created:%d/%m/%Y, %H:%M:%S}")))
        moment = last.get_attribute("datetime")
        assert moment is not None
        assert abs((datetime.fromisoformat(moment) - created).total_seconds()) < 1


@pytest.mark.long
def test_counts_that_the_server_reads_later_reach_the_page(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that needs long to count answers with its last counts, and says when it has newer ones."""
    monkeypatch.setattr("pausepoint.server.board.FAST", -1.0)
    server = person.server
    person.open(SESSIONS)
    expect(person.button("sleeping")).to_have_count(0)
    server.run(server.engine.start(digest, reader="ann", session_id="digest-late"))
    server.run(until(server.engine, "digest-late", Status.SLEEPING))
    expect(person.button("sleeping 1")).to_be_visible()
