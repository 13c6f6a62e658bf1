"""Measure the planner on documents that a lottery has drawn: ``python -m tests.apps.planner_lottery COMMAND``."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent / "data"
CANDIDATES, LOTTERY = DATA / "planner_candidates.txt", DATA / "planner_lottery.toml"
SEED = 20301119
SEATS = {"outline": 20, "pdf": 10, "text": 6, "markdown": 2, "set": 2, "rst": 2}
_TONGUE = re.compile(r"[-_.](?:[a-z]{2}|zh-(?:cn|tw|hans)|pt-(?:br|pt))(?=$|[-_.])", re.I)


class Candidate(NamedTuple):
    """A document in a package. ``language`` is the one that its name says, and English if it says none."""

    kind: str
    language: str
    source: str
    package: str
    version: str
    path: str

    @property
    def work(self) -> str:
        """The package without its language: a book is drawn in one language only."""
        return _TONGUE.sub("", self.package)


def candidates() -> list[Candidate]:
    """Return the candidates in the order of their file."""
    return [
        Candidate(*line.split("\t"))
        for line in CANDIDATES.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]


def draw(documents: list[Candidate], rejected: set[tuple[str, str]]) -> list[Candidate]:
    """Return the documents that the seed draws: of each kind up to half in other languages than English, each once.

    A rejected document gives its place to the next one.
    """
    drawn: list[Candidate] = []
    for kind, seats in SEATS.items():
        bowl = [document for document in documents if document.kind == kind]
        random.Random(f"{SEED} {kind}").shuffle(bowl)
        bowl = [document for document in bowl if (document.package, document.path) not in rejected]
        chosen: list[Candidate] = []
        for wanted, others in ((seats // 2, True), (seats, False)):
            for document in bowl:
                taken = any(
                    document.work == other.work or (others and document.language == other.language) for other in chosen
                )
                if len(chosen) < wanted and not taken and (document.language != "en") == others:
                    chosen.append(document)
        drawn += chosen
    return drawn
