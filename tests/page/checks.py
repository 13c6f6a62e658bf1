"""Checks of what a tab shows. Each returns the faults it has found."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.sync_api import Page

ROWS = 200
"""How many rows a list may draw."""

GARBAGE = re.compile(r"\[object \w+\]|\bundefined\b|\bNaN\b|Invalid Date|\bInfinity\b|\$\{")

OVERFLOW = """
() => {
  const width = document.documentElement.clientWidth;
  const scrolls = (element) => {
    for (let each = element.parentElement; each && each !== document.documentElement; each = each.parentElement) {
      if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(each).overflowX)) return true;
    }
    return false;
  };
  const wide = [...document.body.querySelectorAll('*')].filter((each) => {
    const box = each.getBoundingClientRect();
    return box.width && box.height && box.right > width + 1 && !scrolls(each) && !each.closest('svg svg, .unseen');
  }).map((each) => `${each.tagName} ${each.className.baseVal ?? each.className} ends at ${each.getBoundingClientRect().right}`);
  const whole = document.documentElement.scrollWidth;
  return [...(whole > width ? [`the page is ${whole} wide, the window ${width}`] : []), ...(whole > width ? wide.slice(0, 5) : [])];
}
"""

COUNTED = """
() => Object.entries(Object.groupBy(document.querySelectorAll('li, tbody tr, article, details, option, dt, svg rect'),
  (each) => `${each.tagName} in ${each.parentElement.tagName} ${each.closest('section')?.ariaLabel ?? ''}`))
  .map(([what, found]) => [what, Math.max(...[...Map.groupBy(found, (each) => each.parentElement).values()].map((list) => list.length))])
"""


@cache
def axe() -> str:
    """Return the source of axe-core."""
    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")


def overflow(page: Page) -> list[str]:
    """Return what is wider than the window, so that the whole page scrolls sideways."""
    found: list[str] = page.evaluate(OVERFLOW)
    return found


def barriers(page: Page) -> list[str]:
    """Return what axe-core finds: barriers for people who use a screen reader, a keyboard or large contrast."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(axe())
    found: dict[str, Any] = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [f"{each['id']}: {each['help']}: {node['html'][:300]}" for each in found["violations"] for node in each["nodes"]]


def garbage(page: Page) -> list[str]:
    """Return words that only a program says, where a value is missing or has another shape than the page thinks."""
    text = page.locator("body").inner_text()
    return sorted({found.group() for found in GARBAGE.finditer(text)})


def long_lists(page: Page) -> dict[str, int]:
    """Return the lists that draw more rows than they may."""
    return {what: rows for what, rows in page.evaluate(COUNTED) if rows > ROWS}
