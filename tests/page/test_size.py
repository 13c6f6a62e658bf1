"""The page is small. It has no build step: a browser gets its files as they are, but for comments and indentation."""

from __future__ import annotations

from pausepoint.server.page import Page

MOST = 120 * 1024
"""The most bytes that the page's files may have together."""

UNCOUNTED = {"vendor/LICENSE.txt"}
"""Files that no browser asks for."""


def test_the_page_is_small() -> None:
    sizes = {name: len(data) for name, data in Page().files.items() if name not in UNCOUNTED}
    told = ", ".join(f"{name} {size:,}" for name, size in sorted(sizes.items(), key=lambda each: -each[1]))
    assert sum(sizes.values()) <= MOST, f"{sum(sizes.values()):,} bytes: {told}"
