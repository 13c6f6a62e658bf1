"""How the tests of the page get around in it. Elements are found as people find them: by role, name and label."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from pausepoint import Workflow
from tests.page.browser import MILLISECONDS, Tab
from tests.server.kit import Served
from tests.support.loop import PATIENCE

expect.set_options(timeout=MILLISECONDS)

SHOWN = """
(title) => document.title.toLowerCase().endsWith(`${title} · pausepoint`.toLowerCase())
  && !document.querySelector('[aria-busy=true]') && document.querySelector('main h1')
"""
NETWORK = "Failed to load resource"
"""What the browser says if a request is refused. It says so even if the page expects a refusal."""


class Screen(NamedTuple):
    """A screen: its address, its title, and the tab of a session that it shows."""

    path: str
    title: str
    tab: str = ""

    def __str__(self) -> str:
        return self.path.strip("/").replace("/", " ") or "now"


def session(session_id: str, tab: str = "") -> Screen:
    query = f"?tab={tab.lower()}" if tab else ""
    return Screen(f"/sessions/{session_id}{query}", session_id, tab)


NOW, INBOX, SESSIONS = Screen("/", "Now"), Screen("/inbox", "Inbox"), Screen("/sessions", "Sessions")
AGENTS, STORE = Screen("/agents", "Agents"), Screen("/store", "Store")


class Person(Tab):
    """A tab in which a person looks at a server."""

    def __init__(self, page: Page, server: Served) -> None:
        super().__init__(page)
        self.server = server

    # where

    def open(self, screen: Screen) -> None:
        """Go to a screen, and wait until it is drawn."""
        if self.dialog.count():
            self.press("Escape")
        self.page.goto(f"{self.server.base}/#{screen.path}")
        self.wait(screen)

    def wait(self, screen: Screen) -> None:
        """Wait until a screen is drawn."""
        self.page.wait_for_function(SHOWN, arg=screen.title)
        if screen.tab:
            self.page.get_by_role("tabpanel", name=screen.tab).wait_for()

    def sign_in(self, token: str | None = None, screen: Screen = NOW) -> None:
        """Open the address that the server prints."""
        self.page.goto(f"{self.server.base}/#token={token or self.server.tokens.own}")
        self.wait(screen)

    # what

    @property
    def main(self) -> Locator:
        return self.page.get_by_role("main")

    @property
    def heading(self) -> Locator:
        return self.main.get_by_role("heading", level=1)

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    def region(self, name: str) -> Locator:
        return self.page.get_by_role("region", name=name, exact=True)

    def question(self, text: str) -> Locator:
        return self.page.get_by_role("article", name=text)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name)

    # by keyboard

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def tab_to(self, locator: Locator, most: int = 250) -> None:
        """Press Tab until an element has the focus. An element that this never reaches cannot be used by keyboard."""
        locator.wait_for()
        for _ in range(most):
            if locator.evaluate("(element) => element === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{most} presses of Tab did not reach {locator}")

    def focused(self) -> str:
        """Return which element has the focus, and where the caret is."""
        found: str = self.page.evaluate(
            "(({ tagName, id, name, value, selectionStart }) => [tagName, id, name, value, selectionStart].join(' '))"
            "(document.activeElement)"
        )
        return found


def asked(server: Served, workflow: Workflow[Any], session_id: str, **fields: Any) -> str:
    """Start a session, wait until it asks, and return the id of its question."""

    async def start() -> str:
        session = await server.engine.start(workflow, session_id=session_id, **fields)
        await session.outcome()
        (question,) = await session.questions()
        return question.id

    return server.run(start())


def state(server: Served, session_id: str) -> Any:
    """Wait until a session has ended, and return its state."""
    return server.run(server.engine.session(session_id).outcome()).state


@contextmanager
def visit(browser: Browser, server: Served, **options: Any) -> Iterator[Person]:
    """Yield a tab of a browser that has been nowhere yet. At the end it must have had nothing to complain about."""
    with window(browser, **options) as context:
        person = Person(context.new_page(), server)
        yield person
        person.check()


@contextmanager
def window(browser: Browser, width: int = 1440, height: int = 900, **options: Any) -> Iterator[BrowserContext]:
    """Yield a browser's window with cookies of its own."""
    context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce", **options)
    try:
        yield context
    finally:
        context.close()


def eventually(true: Callable[[], Any], what: str = "") -> Any:
    """Wait until a condition holds, and return its value."""
    end = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < end, what
        time.sleep(0.02)
    return found


def words(text: str) -> re.Pattern[str]:
    """Match a name that contains some words, whatever is around them."""
    return re.compile(re.escape(text), re.IGNORECASE)
