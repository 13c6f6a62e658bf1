"""docs/http.md has a line for every route of the server."""

from __future__ import annotations

from pausepoint.server.routes import ROUTES
from tools.http_reference import PAGE, render


def test_the_page_lists_the_routes_as_they_are() -> None:
    page = PAGE.read_text("utf-8")
    assert render(page) == page, "docs/http.md is not up to date; run: make reference"
    assert page.count("\n| `") == len(ROUTES)
    assert render(page, ROUTES[1:]) != page, "a route that is missing would be noticed"
