"""Signed links to the page of an application: what its command ``link`` takes and prints."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from pausepoint.cli import Start

C = TypeVar("C", bound=Callable[..., Any])

URL = "http://127.0.0.1:7333"
"""The default address of ``serve``."""


def link_options(command: C) -> C:
    """Add the options ``--days``, ``--url`` and ``--revoke`` to a command."""
    for option in (
        click.option("--revoke", is_flag=True, help="Make all these links invalid, and print no new one."),
        click.option("--url", metavar="URL", default=URL, show_default=True, help="The server, as readers reach it."),
        click.option("--days", type=click.FloatRange(min=0, min_open=True, max=3_650), default=30, show_default=True,
                     metavar="DAYS", help="How long the link is valid."),
    ):  # fmt: skip
        command = option(command)
    return command


def linked(
    start: Start, site: str, name: str, what: str, *, days: float, url: str, revoke: bool
) -> tuple[str, dict[str, Any]]:  # fmt: skip
    """Return a link that signs a name in to a site, for people and as a document; or revoke all links of the name.

    ``what`` says in the document what the name is.
    """
    from pausepoint.server import Tokens, Visitors

    visitors = Visitors(Tokens(start.folder.absolute()), site)
    if revoke:
        visitors.revoke(name)
        return f"All links of {name} are revoked.", {what: name, "revoked": True}
    visitor = visitors.link(name, timedelta(days=days).total_seconds())
    address = f"{url.rstrip('/')}/{site}/#link={visitor.link}"
    until = datetime.fromtimestamp(visitor.until, UTC)
    return address, {what: name, "address": address, "expires_at": until.isoformat()}
