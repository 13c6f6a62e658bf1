"""A page whose server refuses, fails or is slow: it shows nothing that is not so, and loses nothing that was typed."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.page.asking import interview
from tests.page.exhibit import brief, digest
from tests.page.kit import INBOX, NETWORK, Person, asked, session, visit
from tests.server.kit import Served


@pytest.mark.browser
@pytest.mark.parametrize("status", [429, 500])
def test_an_error_of_a_background_read_keeps_the_screen_and_what_is_typed(person: Person, status: int) -> None:
    """It is told above the screen, and goes away with the next reading that succeeds."""
    server, refused = person.server, list[str]()
    asked(server, interview, "talk", kind="text")
    person.allowed.append(NETWORK)
    person.open(INBOX)
    field = person.question("What text?").get_by_role("textbox")
    field.press_sequentially("half a sent")

    def refuse(route: Route) -> None:
        refused.append(route.request.url)
        route.fulfill(status=status, content_type="application/problem+json", body='{"detail": "Not just now."}')

    person.page.route("**/api/v1/inbox?*", refuse)
    asked(server, brief, "eel", topic="eel")
    expect(person.main.get_by_role("alert")).to_contain_text("Not just now.")
    assert refused
    expect(field).to_have_value("half a sent")
    expect(field).to_be_focused()
    person.page.unroute("**/api/v1/inbox?*")
    asked(server, brief, "cod", topic="cod")
    expect(person.question("Which tone")).to_have_count(2)
    expect(person.main.get_by_role("alert")).to_have_count(0)
    expect(field).to_have_value("half a sent")


@pytest.mark.browser
def test_the_buttons_of_a_session_are_gone_while_the_next_one_loads(chrome: Browser, server: Served) -> None:
    for name in ("digest-0", "digest-1"):
        server.run(server.engine.start(digest, reader="x", session_id=name, paused=True))
    held: list[Route] = []
    with visit(chrome, server) as person:
        person.sign_in()
        person.open(session("digest-0"))
        expect(person.button("Cancel")).to_be_visible()
        person.page.route("**/api/v1/sessions/digest-1", lambda route: held.append(route))
        person.page.evaluate("location.hash = '#/sessions/digest-1'")
        expect(person.button("Cancel")).to_have_count(0)
        assert held, "the next session is not asked for"
        held[0].continue_()
        expect(person.heading).to_have_text("digest-1")
        expect(person.button("Cancel")).to_be_visible()


@pytest.mark.browser
def test_a_long_reason_and_a_long_name_are_readable_on_a_phone(chrome: Browser, server: Served) -> None:
    """No text is drawn one letter per line."""
    reason = "the figures of the third quarter were sent to the wrong list of people before lunch " * 2
    by = "maximiliane.von-und-zu-hohenstaufen@example.com"
    server.run(server.engine.start(digest, reader="x", session_id="digest", paused=True, reason=reason.strip(), by=by))
    with visit(chrome, server, width=390, height=844) as person:
        person.sign_in()
        person.open(session("digest"))
        item = person.region("Why it is not running").locator(".item").filter(has_text="third quarter")
        expect(item).to_be_visible()
        box = item.locator(".name").bounding_box()
        assert box is not None
        assert box["width"] > 150, box
        assert person.page.evaluate("document.documentElement.scrollWidth") <= 390
