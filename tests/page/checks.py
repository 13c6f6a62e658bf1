"""Checks of what a tab shows. Each returns the faults it has found."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

ROWS = 200
"""How many rows a list may draw."""

GARBAGE = re.compile(r"\[object \w+\]|\bundefined\b|\bNaN\b|Invalid Date|\bInfinity\b|\$\{")

OVERFLOW = """
() => {
  const width = document.documentElement.clientWidth, whole = document.documentElement.scrollWidth;
  if (whole <= width) return [];
  const scrolls = (element) => {
    for (let each = element.parentElement; each && each !== document.documentElement; each = each.parentElement) {
      if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(each).overflowX)) return true;
    }
    return false;
  };
  const ends = (each) => Math.round(each.getBoundingClientRect().right);
  const wide = [...document.body.querySelectorAll('*')].filter((each) => ends(each) > width && !scrolls(each));
  return [`the page is ${whole} wide, the window ${width}`,
    ...wide.slice(0, 5).map((each) => `${each.tagName} ${each.getAttribute('class') ?? ''} ends at ${ends(each)}`)];
}
"""

COUNTED = """
() => {
  const rows = document.querySelectorAll('li, tbody tr, article, details, option, dt');
  const lists = [...Map.groupBy(rows, (each) => each.parentElement)];
  return lists.map(([list, found]) => [`${list.tagName} in ${list.closest('section')?.ariaLabel}`, found.length]);
}
"""


@cache
def axe() -> str:
    """Return the source of axe-core."""
    return files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")


def overflow(page: Page) -> list[str]:
    """Return what is wider than the window, so that the whole page scrolls sideways."""
    found: list[str] = page.evaluate(OVERFLOW)
    return found


def barriers(page: Page) -> list[str]:
    """Return what axe-core finds: barriers for people who use a screen reader, a keyboard or large contrast."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(axe())
    found: dict[str, Any] = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    faults = [(each, node) for each in found["violations"] for node in each["nodes"]]
    return [f"{each['id']}: {each['help']}: {node['html'][:300]}" for each, node in faults]


def garbage(page: Page) -> list[str]:
    """Return words that only a program says, where a value is missing or has another shape than the page thinks."""
    text = page.locator("body").inner_text()
    return sorted({found.group() for found in GARBAGE.finditer(text)})


def long_lists(page: Page) -> dict[str, int]:
    """Return the lists that draw more rows than they may."""
    found: list[tuple[str, int]] = page.evaluate(COUNTED)
    return {what: rows for what, rows in found if rows > ROWS}
