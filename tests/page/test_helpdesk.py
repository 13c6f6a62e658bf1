"""An operator and a customer in two browsers: the helpdesk's chat, and Pausepoint's inbox."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.apps.helpdesk_kit import effects
from tests.apps.helpdesk_web import Customer, link, web
from tests.page.browser import Tab
from tests.page.checks import barriers, overflow
from tests.page.kit import INBOX, NETWORK, visit, window
from tests.page.test_strangers import AUDIT

ANN = "ann@example.com"
HOSTILE = "<img src=x onerror=pwned(1)><script>pwned(2)</script> I want to talk to a person"


def says(page: Page, text: str) -> None:
    page.get_by_label("Your message").fill(text)
    page.keyboard.press("Enter")


@pytest.mark.browser
def test_an_operator_and_a_customer_talk_in_two_browsers_and_the_server_may_restart(
    chrome: Browser, tmp_path: Path
) -> None:
    with window(chrome, 390, 780) as phone:
        customer = Tab(phone.new_page())
        page = customer.page
        log = page.get_by_role("log").get_by_role("listitem")
        with web(tmp_path) as server, visit(chrome, server) as operator:
            page.goto(f"{server.base}/chat/#link={link(tmp_path, ANN)}")
            expect(log).to_contain_text(["Hello Ann Winter."])
            assert "link=" not in page.url
            says(page, "Where is A-1001?")
            expect(log.nth(1)).to_contain_text("Order A-1001 (Storm lantern)")
            says(page, HOSTILE)
            expect(log.nth(3)).to_contain_text("ticket 1")
            expect(log.nth(2)).to_contain_text(HOSTILE)
            assert page.evaluate(AUDIT) == []
            # The operator finds the ticket in the inbox, and keeps the chat.
            operator.sign_in()
            operator.open(INBOX)
            asked = operator.question("Ticket 1 from ann@example.com")
            asked.get_by_label("Reply").fill("Hello, I am root. <b>What</b> can I do?")
            asked.get_by_role("radio", name="keep the chat").check()
            asked.get_by_role("button", name="Answer").click()
            expect(log.nth(4)).to_contain_text("Hello, I am root. <b>What</b> can I do?")
            expect(page.get_by_text("You are talking to root.")).to_be_visible()
            # The bot is silent: the next message asks the operator.
            says(page, "Where is A-1002?")
            again = operator.question("A message for you from ann@example.com: “Where is A-1002?”")
            expect(again).to_be_visible()
            expect(log).to_have_count(6)
            again.get_by_label("Reply").fill("I give you back to the bot.")
            again.get_by_role("button", name="Answer").click()
            expect(log.nth(6)).to_contain_text("I give you back to the bot.")
            says(page, "Where is A-1002?")
            expect(log.nth(8)).to_contain_text("Order A-1002")
            port = server.port
        # The server is gone. What the customer writes now is kept, survives a reload, and is sent once.
        customer.allowed += [NETWORK, "ERR_"]
        expect(page.get_by_text("Not connected.")).to_be_visible()
        says(page, "refund A-1001, it is damaged")
        expect(log.nth(9)).to_contain_text("not sent yet")
        with web(tmp_path, port):
            expect(log.nth(10)).to_contain_text("Shall I refund 49.90")
            expect(log).to_have_count(11)
            page.reload()
            expect(log).to_have_count(11)
            customer.check()


@pytest.mark.browser
def test_a_yes_that_was_written_offline_does_not_answer_a_question_that_was_asked_meanwhile(
    chrome: Browser, tmp_path: Path
) -> None:
    with web(tmp_path) as server, window(chrome, 390, 780) as phone, Customer(server.base, link(tmp_path, ANN)) as ann:
        tab = Tab(phone.new_page())
        tab.allowed += [NETWORK, "ERR_"]
        tab.page.goto(f"{server.base}/chat/#link={link(tmp_path, ANN)}")
        log = tab.page.get_by_role("log").get_by_role("listitem")
        says(tab.page, "refund A-1001, it is damaged")
        expect(log.last).to_contain_text("Shall I refund 49.90")
        phone.set_offline(True)
        says(tab.page, "yes")
        expect(log.last).to_contain_text("not sent yet")
        assert ann.says("no") == "Nothing was refunded."
        assert ann.says("cancel the order A-1002").startswith("Shall I cancel order A-1002")
        phone.set_offline(False)
        expect(tab.page.get_by_role("alert")).to_contain_text("your message was not used")
        expect(tab.page.get_by_label("Your message")).to_have_value("yes")
        expect(log.last).to_contain_text("Shall I cancel order A-1002")
        assert effects(tmp_path / "shop.db").total() == 0
        tab.check()


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_chat_is_readable_at_all_sizes_and_in_both_schemes(
    chrome: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    with web(tmp_path) as server, window(chrome, width, 780, color_scheme=scheme) as context:
        tab = Tab(context.new_page())
        tab.page.goto(f"{server.base}/chat/#link={link(tmp_path, 'lihua@example.com')}")
        expect(tab.page.get_by_label("Your message")).to_be_visible()
        says(tab.page, "C-3001到哪了？" + "x" * 300)
        says(tab.page, "转人工")
        expect(tab.page.get_by_role("log")).to_contain_text("1")
        assert overflow(tab.page) == []
        assert not (found := barriers(tab.page)), found
        tab.check()


@pytest.mark.long
def test_a_link_that_has_ended_says_what_to_do(chrome: Browser, tmp_path: Path) -> None:
    with web(tmp_path) as server, window(chrome, 390, 780) as context:
        tab = Tab(context.new_page())
        tab.allowed.append(NETWORK)
        tab.page.goto(f"{server.base}/chat/#link={link(tmp_path, ANN, -1)}")
        expect(tab.page.get_by_role("alert")).to_contain_text("has expired or was revoked. Ask for a new one.")
        expect(tab.page.get_by_label("Your message")).to_be_hidden()
        tab.check()
