"""Write the table of routes in docs/http.md, from the same table that the server answers by.

    python -m tools.http_reference

A test fails while the page differs from what this script would write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pausepoint.server.calls import Route
from pausepoint.server.openapi import template
from pausepoint.server.routes import ROUTES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "http.md"
BEGIN, END = "<!-- routes: written by tools/http_reference.py -->", "<!-- end of routes -->"
ROLES = {None: "everyone", "any": "everyone who is signed in"}


def render(page: str, routes: Sequence[Route] = ROUTES) -> str:
    """Return the page with an up-to-date table."""
    found = re.search(rf"{re.escape(BEGIN)}\n.*?{re.escape(END)}", page, re.DOTALL)
    if found is None:
        raise ValueError(f"docs/http.md has no place for the routes. Add the markers {BEGIN} … {END}.")
    return page[: found.start()] + f"{BEGIN}\n\n{table(routes)}\n\n{END}" + page[found.end() :]


def table(routes: Sequence[Route]) -> str:
    """Return a line for each route: its method and path, who may call it, and what it does."""
    lines = ["| route | role | what it does |", "|---|---|---|"]
    return "\n".join([*lines, *map(_line, routes)])


def _line(route: Route) -> str:
    role = ROLES.get(route.role, str(route.role))
    heads = "; an answerer gets the facts only" if route.heads and route.answer else ""
    return f"| `{route.method} {template(route.path)}` | {role}{heads} | {route.summary} |"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
