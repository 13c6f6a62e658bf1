"""The figures of docs/why.md are those of the benchmark, and the arithmetic is right."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from benchmarks.storage import Figures, lines, measured
from tests.docs.pages import DOCS, rows, section

PAGE = DOCS / "why.md"


def published() -> Figures:
    return Figures(*(float(row[1].replace(",", "")) for row in rows(section(PAGE, "What it stores"))))


def test_the_table_is_as_the_benchmark_prints_it() -> None:
    assert "\n".join(lines(published())) in PAGE.read_text("utf-8")


@pytest.mark.long
def test_the_bytes_of_a_step_and_of_an_operation_are_still_those(tmp_path: Path) -> None:
    found = asyncio.run(measured(tmp_path, 240))
    for name in ("step", "operation", "turn"):
        assert getattr(found, name) == pytest.approx(getattr(published(), name), rel=0.4), name


def test_the_price_follows_from_the_table() -> None:
    text = section(PAGE, "What it stores")
    found = re.search(r"At ([\d.]+) dollars per gigabyte .*?cost ([\d.]+) dollars a month", text, re.DOTALL)
    assert found
    gigabytes = published().chat * 1000 * 365 / 1e9
    assert float(found[2]) == pytest.approx(float(found[1]) * gigabytes, abs=0.01)
    assert round(published().turn / 1200) == 5, "a turn takes five times its text"
