"""deck_analyst: read a pitch deck page by page, with the figures, dates and names on its slides."""

from __future__ import annotations

from pathlib import Path

from pausepoint.apps.memo import documents
from pausepoint.apps.memo.facts import Fact, facts
from pausepoint.apps.memo.models import DeckAnalysis, FactKind, Slide, Source


def analyze(path: Path) -> DeckAnalysis:
    """Analyze a deck. Raises `BadInput` if it cannot be read."""
    source = read(path)
    pages: dict[int, list[str]] = {}
    titles: dict[int, str] = {}
    for passage in source.passages:
        page = passage.page or 1
        pages.setdefault(page, []).append(passage.text)
        titles.setdefault(page, passage.heading)
    slides = [Slide(page=page, title=titles[page], text="\n".join(texts)) for page, texts in sorted(pages.items())]
    known = [fact for passage in source.passages for fact in facts(passage.text)]
    return DeckAnalysis(
        file=path.name, pages=documents.pages(path), slides=slides, figures=_texts(known, "number"),
        dates=_texts(known, "date"), names=_texts(known, "name"),
    )  # fmt: skip


def read(path: Path) -> Source:
    """Return the deck as a source that can be cited."""
    return documents.read(path, "deck")


def _texts(known: list[Fact], kind: FactKind) -> list[str]:
    return list(dict.fromkeys(fact.text for fact in known if fact.kind == kind))
