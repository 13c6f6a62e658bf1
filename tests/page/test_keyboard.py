"""Everything can be done by keyboard alone: no test here touches a mouse."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from pausepoint import Status
from tests.page.asking import game, interview
from tests.page.exhibit import Booking, brief, crawl, digest, memo, refund, trip, until
from tests.page.kit import INBOX, NETWORK, NOW, SESSIONS, Person, asked, session, state, visit
from tests.page.workflows import ALL
from tests.server.kit import Served, served


@pytest.fixture(scope="module")
def ann(chrome: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """A person at a server that several tests share. Each starts a session of its own."""
    with served(tmp_path_factory.mktemp("ann"), workflows=ALL) as server, visit(chrome, server) as person:
        person.sign_in()
        person.allowed.append(NETWORK)
        yield person


@pytest.mark.long
def test_sign_in(chrome: Browser, server: Served) -> None:
    with visit(chrome, server) as person:
        person.allowed.append(NETWORK)  # before the sign-in, the server refuses
        person.page.goto(server.base)
        token = person.page.get_by_label("Token")
        person.tab_to(token)
        person.type("wrong")
        person.press("Enter")
        expect(person.main.get_by_role("alert")).to_contain_text("token")
        person.tab_to(token)
        person.press("ControlOrMeta+a")
        person.type(server.tokens.own)
        person.press("Enter")
        person.wait(NOW)
        assert server.tokens.own not in person.page.url
        person.tab_to(person.button("Sign out"))
        person.press("Enter")
        expect(person.heading).to_have_text("Sign in")


@pytest.mark.browser
def test_the_token_leaves_the_address_and_the_history(chrome: Browser, server: Served) -> None:
    with visit(chrome, server) as person:
        person.sign_in()
        assert server.tokens.own not in person.page.url
        person.open(INBOX)
        person.page.go_back()
        person.wait(NOW)
        assert server.tokens.own not in person.page.url
        assert server.tokens.own not in person.page.content()


# every kind of question


def answer(person: Person, question: str, *keys: str) -> None:
    """Go to the first field of a question, press keys, and send the answer. A longer text is typed."""
    article = person.question(question)
    person.tab_to(article.locator("form").locator("input, textarea, select, button").first)
    for key in keys:
        person.press(key) if key in ("Tab", "Shift+Tab", "Space", "ArrowDown", "ArrowRight") else person.type(key)
    person.tab_to(article.get_by_role("button", name="Answer", exact=True))
    person.press("Enter")
    expect(article).to_have_count(0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "keys", "value"),
    [
        ("text", ["with <b>care</b>"], "with <b>care</b>"),
        pytest.param("whole", ["42"], 42, marks=pytest.mark.browser),
        pytest.param("number", ["2.5"], 2.5, marks=pytest.mark.browser),
        ("yes", ["Space"], True),
        pytest.param("day", ["05052027"], "2027-05-05", marks=pytest.mark.browser),
        ("few", ["Space", "ArrowRight"], "green"),
        pytest.param("many", ["Den"], "Denmark", marks=pytest.mark.browser),
        pytest.param("list", ["Space", "Shift+Tab", "one"], ["one"], marks=pytest.mark.browser),
        pytest.param("either", ["Tab", "7"], 7, marks=pytest.mark.browser),
        pytest.param("maybe", [], None, marks=pytest.mark.browser),
        pytest.param("any", ['{"a": 1}'], {"a": 1}, marks=pytest.mark.browser),
    ],
)
def test_answer_a_question(ann: Person, kind: str, keys: Sequence[str], value: Any) -> None:
    asked(ann.server, interview, f"talk-{kind}", kind=kind)
    ann.open(INBOX)
    answer(ann, f"What {kind}?", *keys)
    found = state(ann.server, f"talk-{kind}").answer
    assert (found if kind != "day" else str(found)[:10]) == value


@pytest.mark.long
def test_answer_a_form_with_fields_of_every_kind(ann: Person) -> None:
    asked(ann.server, trip, "trip", place="Tromsø")
    ann.open(INBOX)
    form = ann.question("Which room in Tromsø?")
    for label, text in [("Name", "Ada Lovelace"), ("Email", "ada@example.org"), ("Nights", "3")]:
        ann.tab_to(form.get_by_label(label, exact=False).first)
        ann.type(text)
    ann.tab_to(form.get_by_role("radio", name="double"))
    ann.press("ArrowRight")
    ann.tab_to(form.get_by_label("Country"))
    ann.type("Fin")
    ann.tab_to(form.get_by_label("Breakfast"))
    ann.press("Space")
    ann.tab_to(form.get_by_label("Arrival"))
    ann.type("05052027")
    for label, text in [("Street", "Storgata 1"), ("City", "Tromsø")]:
        ann.tab_to(form.get_by_label(label))
        ann.type(text)
    guests = form.get_by_role("group", name="Guests")
    for number, name in [("1.", "Charles"), ("2.", "Annabella")]:
        ann.tab_to(guests.get_by_role("button", name="Add one"))
        ann.press("Enter")
        ann.press("Shift+Tab")
        expect(guests.get_by_label(number)).to_be_focused()
        ann.type(name)
    ann.tab_to(form.get_by_label("Remark"))
    ann.type("A late arrival")
    ann.tab_to(form.get_by_label("Extras"))
    ann.press("ControlOrMeta+a")
    ann.type('{"towels": 2}')
    ann.tab_to(form.get_by_role("button", name="Answer", exact=True))
    ann.press("Enter")
    expect(form).to_have_count(0)
    booking: Booking = state(ann.server, "trip").booking
    assert booking.model_dump(exclude={"contact"}) == {
        "name": "Ada Lovelace", "email": "ada@example.org", "nights": 3, "room": "suite", "country": "Finland",
        "breakfast": False, "arrival": "2027-05-05", "address": {"street": "Storgata 1", "city": "Tromsø"},
        "guests": ["Charles", "Annabella"], "remark": "A late arrival", "extras": {"towels": 2},
    }  # fmt: skip


@pytest.mark.long
def test_an_answer_that_is_refused_keeps_what_was_typed(ann: Person) -> None:
    form = refused(ann, "game-1")
    expect(form.get_by_label("Low")).to_have_value("2")
    ann.tab_to(form.get_by_label("High"))
    ann.press("ControlOrMeta+a")
    ann.type("4")
    ann.press("Enter")
    expect(form).to_have_count(0)
    assert state(ann.server, "game-1").guess.high == 4


@pytest.mark.long
def test_a_complaint_stands_beside_its_field(ann: Person) -> None:
    form = refused(ann, "game-2")
    expect(form.get_by_label("High")).to_have_accessible_name(re.compile("multiple of 2"))
    expect(form.get_by_label("Low")).to_have_accessible_name("Low")


def refused(person: Person, name: str) -> Locator:
    """Answer a question with a number that is odd, and return the question with its complaint."""
    asked(person.server, game, name, name=name)
    person.open(INBOX)
    form = person.question(f"Which numbers, {name}?")
    form.get_by_label("High").evaluate("(field) => field.removeAttribute('step')")  # the browser would refuse it itself
    person.tab_to(form.get_by_label("Low"))
    person.type("2")
    person.press("Tab")
    person.type("3")
    person.press("Enter")
    expect(form.get_by_role("alert")).to_contain_text("multiple of 2")
    return form


@pytest.mark.browser
@pytest.mark.parametrize("is_yes", [True, False], ids=["yes", "no"])
def test_answer_a_confirmation(ann: Person, is_yes: bool) -> None:
    name = "refund-yes" if is_yes else "refund-no"
    asked(ann.server, refund, name, order=name, amount=5)
    ann.open(INBOX)
    form = ann.question(f"Pay 5.00 € back for order {name}")
    ann.tab_to(form.get_by_label("Reason"))
    ann.type("the parcel arrived")
    ann.tab_to(form.get_by_role("button", name="Yes, do it" if is_yes else "No", exact=True))
    ann.press("Enter")
    expect(form).to_have_count(0)
    if is_yes:
        assert state(ann.server, name).paid == f"5.00 € for {name}"
    else:
        ann.server.run(until(ann.server.engine, name, Status.FAILED))
        failure = ann.server.run(ann.server.engine.session(name).info()).failure
        assert failure is not None
        assert "the parcel arrived" in failure.message


# verbs


@pytest.mark.long
def test_pause_everything_and_resume(person: Person) -> None:
    server = person.server
    server.run(server.engine.start(crawl, site="reef.example", session_id="crawl"))
    expect(person.heading).to_have_text("1 session is running")
    person.press("p")
    expect(person.dialog).to_be_visible()
    person.tab_to(person.dialog.get_by_label("Why"))
    person.type("look at the costs first")
    person.press("Enter")
    expect(person.dialog).to_have_count(0)
    expect(person.heading).to_have_text("Everything is paused")
    hero = person.region("At a glance")
    expect(hero).to_contain_text("look at the costs first")
    expect(hero).to_contain_text("stopped after")
    server.run(until(server.engine, "crawl", Status.PAUSED))
    person.tab_to(person.button("Resume"))
    person.press("Enter")
    expect(person.heading).to_have_text("1 session is running")
    server.run(until(server.engine, "crawl", Status.RUNNING))
    server.run(server.engine.session("crawl").cancel())


@pytest.mark.browser
def test_rewind_with_its_plan(ann: Person) -> None:
    server = ann.server
    question = asked(server, brief, "octopus", topic="octopus")
    server.run(server.engine.answer(question, "formal"))
    server.run(server.engine.session("octopus").outcome())
    ann.open(session("octopus"))
    ann.tab_to(ann.button("Rewind"))
    ann.press("Enter")
    expect(ann.dialog).to_be_visible()
    place = ann.dialog.get_by_role("radio", name="review#2")
    ann.tab_to(ann.dialog.get_by_role("radio").first)
    while not place.is_checked():
        ann.press("ArrowDown")
    plan = ann.dialog.get_by_role("list", name="Plan")
    expect(plan).to_contain_text("review")
    expect(plan.get_by_role("listitem").filter(has_text="tone").first).to_be_visible()
    ann.tab_to(ann.dialog.get_by_label("Why"))
    ann.type("another tone")
    ann.press("Enter")
    expect(ann.dialog).to_have_count(0)
    info = server.run(server.engine.session("octopus").info())
    assert (info.step, info.visit) == ("review", 2)
    ann.tab_to(ann.button("Resume"))
    ann.press("Enter")
    expect(ann.dialog.get_by_role("list", name="Plan")).to_contain_text("next")
    ann.tab_to(ann.dialog.get_by_role("button", name="Resume", exact=True))
    ann.press("Enter")
    expect(ann.question("Which tone")).to_be_visible()


@pytest.mark.long
def test_edit_with_its_plan(ann: Person) -> None:
    server = ann.server
    server.run(server.engine.start(memo, title="Moor", session_id="memo", folder=server.folder / "memo"))
    server.run(until(server.engine, "memo", Status.PAUSED))
    ann.open(session("memo"))
    ann.tab_to(ann.button("Edit").first)
    ann.press("Enter")
    ann.tab_to(ann.dialog.get_by_label("Approved"))
    ann.press("Space")
    expect(ann.dialog.get_by_role("list", name="Plan")).to_be_visible()
    ann.press("Enter")
    expect(ann.dialog).to_have_count(0)
    assert server.run(server.engine.session("memo").stored()).values["approved"] is True


@pytest.mark.long
def test_keys_lead_to_every_screen_and_through_lists(person: Person) -> None:
    server = person.server
    for reader in ("ann", "ben", "cleo"):
        server.run(server.engine.start(digest, reader=reader, session_id=f"digest-{reader}"))
        server.run(until(server.engine, f"digest-{reader}", Status.SLEEPING))
    for key, title in [("i", "Inbox"), ("a", "Agents"), ("d", "Store"), ("s", "Sessions")]:
        person.press("g", key)
        expect(person.page).to_have_title(re.compile(title, re.IGNORECASE))
        expect(person.main).to_be_focused()
    person.wait(SESSIONS)
    person.press("/")
    expect(person.page.get_by_role("searchbox")).to_be_focused()
    person.type("digest-")
    person.press("Enter")
    expect(person.page).to_have_url(re.compile("text=digest-"))
    rows = person.region("List of sessions").get_by_role("row")
    expect(rows).to_have_count(4)
    person.tab_to(person.button("sleeping"))
    person.press("j", "j", "x")
    expect(rows.nth(2).get_by_role("checkbox")).to_be_checked()
    person.press("?")
    expect(person.dialog).to_contain_text("next, previous row")
    person.press("Escape")
    expect(person.dialog).to_have_count(0)


@pytest.mark.browser
def test_the_tabs_of_a_session_follow_the_arrows(ann: Person) -> None:
    asked(ann.server, brief, "squid", topic="squid")
    ann.open(session("squid"))
    ann.tab_to(ann.page.get_by_role("tab", name="State"))
    for name in ("Conversation", "Operations", "History", "Output", "Artifacts", "Files", "Children", "Cost", "State"):
        ann.press("ArrowRight")
        expect(ann.page.get_by_role("tab", name=name)).to_be_focused()
        expect(ann.page.get_by_role("tabpanel", name=name)).to_be_visible()


@pytest.mark.browser
def test_a_time_is_the_readers_own(chrome: Browser, server: Served) -> None:
    asked(server, interview, "talk", kind="moment")
    with visit(chrome, server, timezone_id="Asia/Kathmandu") as person:
        person.sign_in()
        person.open(INBOX)
        form = person.question("What moment?")
        form.get_by_label("Answer").first.fill("2027-05-05T12:00")
        form.get_by_role("button", name="Answer", exact=True).click()
        expect(form).to_have_count(0)
    assert datetime.fromisoformat(str(state(server, "talk").answer)) == datetime.fromisoformat("2027-05-05T12:00+05:45")
