"""The page stays small: it has no build step, so every byte that is written is sent."""

from __future__ import annotations

import gzip

from pausepoint.server.page import Page

RAW, PACKED = 120 * 1024, 40 * 1024
"""The most bytes that the page's files may have together, and gzipped one by one."""

UNCOUNTED = {"vendor/LICENSE.txt"}
"""Files that no browser asks for."""


def shipped() -> dict[str, bytes]:
    return {name: data for name, data in Page().files.items() if name not in UNCOUNTED}


def told(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {size:,}" for name, size in sorted(sizes.items(), key=lambda each: -each[1]))


def test_the_page_is_small() -> None:
    sizes = {name: len(data) for name, data in shipped().items()}
    assert sum(sizes.values()) <= RAW, told(sizes)


def test_the_page_is_small_when_it_is_gzipped() -> None:
    sizes = {name: len(gzip.compress(data, mtime=0)) for name, data in shipped().items()}
    assert sum(sizes.values()) <= PACKED, told(sizes)
