"""LangGraph's conformance suite for checkpointers, on `PausepointSaver`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from langgraph.checkpoint.conformance import checkpointer_test, validate

from pausepoint.integrations.langgraph import PausepointSaver


async def conformance(store: str | Path) -> tuple[int, list[str]]:
    """Return how many tests passed, and what the others say."""

    @checkpointer_test(name=PausepointSaver.__name__)
    async def saver() -> AsyncGenerator[PausepointSaver, None]:
        with PausepointSaver(store) as opened:
            yield opened

    results: dict[str, dict[str, Any]] = (await validate(saver)).to_dict()["results"]
    failures = [line for each in results.values() for line in each["failures"]]
    return sum(each["tests_passed"] for each in results.values()), failures
