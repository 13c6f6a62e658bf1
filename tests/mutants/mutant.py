"""What a mutant is: one fault in one place, and the tests that must notice it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path("src") / "pausepoint"


class Mutant(NamedTuple):
    """A fault that a person could write.

    ``room`` is a folder of the package. ``before`` occurs exactly once in its files, in whichever of them, so a mutant
    stays valid when code moves within its room. ``breaks`` says what goes wrong with ``after`` instead. ``tests`` are
    files or classes, and ``only`` are words, separated by "or", of which each of their tests must have one in its name.
    """

    name: str
    room: str
    before: str
    after: str
    breaks: str
    tests: tuple[str, ...]
    only: str = ""

    @property
    def chosen(self) -> list[tuple[str, list[str]]]:
        """The tests, each with the words of ``only``."""
        return [(test, self.only.split(" or ") if self.only else []) for test in self.tests]


class Misplaced(Exception):
    """The fragment of a mutant does not occur exactly once in its room."""


def sources(room: str, root: Path = ROOT) -> Iterator[Path]:
    """Yield the Python and SQL files of a room, without those in ``migrations``, which no code changes any more."""
    for path in sorted((root / PACKAGE / room).rglob("*")):
        if path.suffix in (".py", ".sql") and "migrations" not in path.parts:
            yield path


def place(mutant: Mutant, root: Path = ROOT) -> Path:
    """Return the file that contains the fragment of a mutant. Raises `Misplaced` unless it occurs exactly once."""
    counts = {path: path.read_text("utf-8").count(mutant.before) for path in sources(mutant.room, root)}
    found = {path: count for path, count in counts.items() if count}
    if sum(found.values()) != 1:
        where = ", ".join(f"{path.relative_to(root)} ({count})" for path, count in found.items()) or "nowhere"
        raise Misplaced(
            f"Mutant {mutant.name!r}: its fragment must occur once in {PACKAGE / mutant.room}, but occurs {where}."
            " Give it a fragment of the present code."
        )
    (path,) = found
    return path


def mutated(mutant: Mutant, root: Path = ROOT) -> tuple[Path, str]:
    """Return the file of a mutant and its text with the fault. Raises `SyntaxError` if it is no Python any more."""
    path = place(mutant, root)
    text = path.read_text("utf-8").replace(mutant.before, mutant.after)
    if path.suffix == ".py":
        ast.parse(text)
    return path, text
