"""The browser, and servers for it to look at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.page import exhibit, extremes
from tests.page.browser import chromium
from tests.page.kit import Person, visit
from tests.page.workflows import ALL
from tests.server.kit import Served, served


@pytest.fixture(scope="package")
def chrome() -> Iterator[Browser]:
    """The browser. While it runs, its own event loop runs in this thread, so it ends with the tests of this folder."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with the exhibit. Tests that share it change nothing."""
    folder = tmp_path_factory.mktemp("shown")
    with served(folder, workflows=ALL) as server:
        server.run(exhibit.fill(server.engine, folder))
        yield server


@pytest.fixture(scope="package")
def unusual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with sessions of unusual kinds and sizes. Tests that share it change nothing."""
    folder = tmp_path_factory.mktemp("unusual")
    with served(folder, workflows=ALL) as server:
        server.run(extremes.add(server.engine, folder))
        yield server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """A server without sessions, for tests that start their own."""
    with served(tmp_path, workflows=ALL) as one:
        yield one


@pytest.fixture
def person(chrome: Browser, server: Served) -> Iterator[Person]:
    """A person who is signed in at a server without sessions."""
    with visit(chrome, server) as one:
        one.sign_in()
        yield one
