"""All workflows that the tests of the page use."""

from __future__ import annotations

from typing import Any

from pausepoint import Workflow
from tests.page import asking, exhibit, extremes

KINDS: list[Any] = [*exhibit.WORKFLOWS, *extremes.KINDS, asking.interview, asking.game]
ALL: tuple[Workflow[Any], ...] = tuple(KINDS)
