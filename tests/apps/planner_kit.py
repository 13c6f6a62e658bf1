"""Planner sessions for tests: inputs, material, and what a session looks like afterwards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Retry
from pausepoint.apps.planner import SessionDocument, ingestion, planner, sessions
from pausepoint.apps.planner.models import Upload
from pausepoint.apps.planner.sample import SAMPLE
from pausepoint.engine import BlockingEngine

CALC = {"course_id": "calc2", "course_name": "Calculus II", "midterm_date": "2030-02-21"}
HIST = {"course_id": "hist", "course_name": "History", "midterm_date": "2030-02-26"}
INPUTS: dict[str, Any] = {
    "timezone": "America/Los_Angeles", "start_date": "2030-02-08", "courses": [CALC, HIST],
    "shared_constraints": {"max_minutes_per_day": 60, "preferred_rest_day": "Sunday"},
}  # fmt: skip
FILES = [
    Upload(path=SAMPLE / "calculus.md", course_ids=["calc2"]),
    Upload(path=SAMPLE / "how-to-study.md", is_shared=True),
]


def watched_chunks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each chunk was read; those in `BROKEN` fail."""
    counted: Counter[str] = Counter()
    real = ingestion._pieces

    def watched(path: str, kind: str, first: int, count: int, bookmarks: list[Any]) -> Any:
        name = f"{Path(path).stem}:{first // count}"
        counted[name] += 1
        if name in BROKEN:
            raise ConnectionError("429 rate limit")
        return real(path, kind, first, count, bookmarks)

    BROKEN.clear()
    monkeypatch.setattr(ingestion, "_pieces", watched)
    monkeypatch.setattr(ingestion, "PATIENCE", Retry(attempts=2, first=0))
    return counted


BROKEN: set[str] = set()


def run(
    engine: BlockingEngine, session_id: str = "s1", uploads: list[Upload] = FILES, **inputs: Any
) -> SessionDocument:
    engine.start(planner, sessions.starting(INPUTS | inputs, uploads), session_id=session_id).outcome()
    return sessions.document(engine, session_id)


def go_on(engine: BlockingEngine, session_id: str = "s1") -> SessionDocument:
    engine.session(session_id).resume().outcome()
    return sessions.document(engine, session_id)


def held_by(engine: BlockingEngine, session_id: str = "s1") -> str:
    """The guard's reason, of a session that a guard holds back."""
    (pause,) = engine.session(session_id).pauses()
    assert pause.kind == "guard"
    return pause.reason


def long_text(path: Path, chapters: int = 6, pages: int = 20) -> Path:
    """A book of so many chunks, each one chapter."""
    line = "a line of words about the {} of {} and of what follows from it\n"
    words = ["tides", "currents", "anchors", "rudders", "sails", "charts"]
    with path.open("w") as file:
        for number in range(chapters):
            text = f"Chapter {number + 1}: The {words[number % 6]}\n\n"
            while len(text) < pages * 3_000 - 80:
                text += line.format(words[number % 6], number)
            file.write(text.ljust(pages * 3_000 - 1, "x") + "\n")
    return path
