"""Chromium, and what a tab of it says: messages, errors and violations of the policy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, sync_playwright

from tests.support.loop import PATIENCE

MILLISECONDS = 1000 * PATIENCE
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = (
    "Chromium is not installed. Install it with `apt-get install chromium`,"
    " or with `.venv/bin/python -m playwright install chromium`."
)

WATCH = """
globalThis.violations = [];
globalThis.ran = [];
globalThis.pwned = (what) => { ran.push(String(what)); };
globalThis.alert = globalThis.confirm = globalThis.prompt = pwned;
addEventListener('securitypolicyviolation', (event) => violations.push(
  `${event.violatedDirective} ${event.blockedURI} ${event.sample} (${event.sourceFile}:${event.lineNumber})`));
"""
"""Runs in each frame before its own code. ``pwned`` is what the text of a stranger would call if it were code."""


def executable(playwright: Playwright) -> str | None:
    """Return the path of Chromium: the system's own, or the one that playwright has installed."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run Chromium until the block ends. Skips the test where there is none."""
    with sync_playwright() as playwright:
        path = executable(playwright)
        if path is None:
            pytest.skip(MISSING)
        yield playwright.chromium.launch(executable_path=path)


class Tab:
    """A page of the browser, and all it complained about.

    ``allowed``: parts of messages that belong to the test, such as a server that does not answer.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.allowed: list[str] = []
        self._said: list[str] = []
        page.set_default_timeout(MILLISECONDS)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self._said.append(f"error: {error}"))
        page.on("crash", lambda _: self._said.append("the tab crashed"))
        page.add_init_script(WATCH)

    def _heard(self, message: ConsoleMessage) -> None:
        kind: str = message.type
        if kind != "verbose":  # hints of the browser, which it does not show either
            self._said.append(f"console: {message.type}: {message.text} ({message.location['url']})")

    def complaints(self) -> list[str]:
        """Return what the console, the policy and the sentinel have said since the last call."""
        found: dict[str, list[Any]] = self.page.evaluate("({ violations: violations.splice(0), ran: ran.splice(0) })")
        here = [f"policy: {each}" for each in found["violations"]] + [f"ran: {each}" for each in found["ran"]]
        said, self._said = self._said, []
        return [each for each in said + here if not any(part in each for part in self.allowed)]

    def check(self) -> None:
        """Check that nothing was said."""
        said = self.complaints()
        assert not said, said
