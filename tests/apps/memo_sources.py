"""A company, its sources and an outline: for the tests of the memo's text."""

from __future__ import annotations

import json
from pathlib import Path

from pausepoint import Retry
from pausepoint.apps.memo.models import CompanyData, Link, Passage, Section, Source
from pausepoint.apps.memo.workflow import PATIENCE
from tests.support.modelserver import Says

SOON = Retry(attempts=2, first=0, on=PATIENCE.on)
DATA = CompanyData(name="Acme")
PEOPLE = Section(name="01-team", title="Team", about=["chief", "founder"], team=True)
MONEY = Section(name="02-money", title="Money", about=["revenue", "raised"])
SUMMARY = Section(name="00-summary", title="Summary", gathers=True)
OUTLINE = [SUMMARY, PEOPLE, MONEY]


def source(key: str, *texts: str, links: dict[str, str] | None = None) -> Source:
    """Make a document of these passages. A text that begins with | is a table."""
    passages = [
        Passage(
            key=f"{key}-{number}",
            text=text,
            table=text.startswith("|"),
            heading="Revenue by year" * text.startswith("|"),
        )
        for number, text in enumerate(texts, 1)
    ]
    found = [Link(text=text, url=url) for text, url in (links or {}).items()]
    return Source(key=key, title=key.title(), kind="document", where=f"{key}.md", passages=passages, links=found)


REPORT = source(
    "report", "Revenue rose to $4.2 million in 2029. It rained a lot that year in many places.",
    "Acme raised $3 million from Harbour Capital.", "Ada Moss is the founder of Acme.",
)  # fmt: skip


def short(tmp_path: Path) -> Path:
    """Write an outline with one section."""
    path = tmp_path / "short.toml"
    path.write_text('[[section]]\nname = "1-money"\ntitle = "Money"\nabout = ["revenue", "raised"]\n')
    return path


def says(text: str, *keys: str) -> Says:
    """Make a model's answer: one sentence that cites these passages."""
    return Says(json.dumps({"sentences": [{"text": text, "sources": list(keys)}]}))
