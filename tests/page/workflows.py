"""All workflows that the tests of the page use."""

from __future__ import annotations

from tests.page import asking, exhibit, extremes

ALL = (*exhibit.WORKFLOWS, *extremes.KINDS, asking.interview, asking.game)
