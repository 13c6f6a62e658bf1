"""The words with which Google Classroom, Canvas, Moodle and people say how far a piece of work is."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple


class WorkStatus(NamedTuple):
    """How far a piece of work is. ``unknown`` are the words that nobody has explained."""

    handed_in: bool = False
    late: bool = False
    excused: bool = False
    unknown: tuple[str, ...] = ()


Meaning = Literal["done", "late", "open", "excused", "grading"]
"""What a word says: handed in, handed in late, not handed in, excused, or something about the grading alone."""

PHRASES: dict[Meaning, str] = {
    "done": """
        yes, true, 1, x, y, ja, j, wahr,
        submitted, turned in, handed in, done, complete, completed, finished, submitted for grading,
        submitted for marking, resubmitted, turned in again, returned, graded, marked, released, final,
        pending review, in review, in marking, in grading, marking completed, grading completed, ready for review,
        ready for release, needs grading, needs marking, to be graded, on paper, on time, student edited,
        abgegeben, eingereicht, erledigt, fertig, abgeschlossen, erneut abgegeben, erneut eingereicht, zurückgegeben,
        bewertet, benotet, korrigiert, zur bewertung abgegeben, zur bewertung eingereicht, wird bewertet, pünktlich
    """,
    "late": """
        late, done late, turned in late, handed in late, submitted late, late submission, graded late, returned late,
        verspätet, zu spät, verspätet abgegeben, mit verspätung abgegeben, verspätet eingereicht, zu spät abgegeben,
        verspätet erledigt
    """,
    "open": """
        no, false, 0, n, nein, falsch, none, n/a,
        missing, assigned, open, new, created, draft, draft not submitted, not turned in, not submitted, unsubmitted,
        not handed in, not done, undone, reclaimed, reclaimed by student, no submission, nothing submitted,
        nothing has been submitted, nothing has been submitted for this assignment, no attempt, never submitted,
        not attempted, not started, in progress, incomplete, not complete, not completed, overdue, abandoned, reopened,
        reassigned, extended, extension granted, due, due soon, upcoming, to do, todo, submission required,
        fehlt, fehlend, zugewiesen, offen, neu, entwurf, entwurf nicht abgegeben, nicht abgegeben, nicht eingereicht,
        nicht erledigt, nicht zur bewertung abgegeben, keine abgabe, kein versuch, überfällig, in bearbeitung,
        wieder geöffnet, wiedereröffnet, verlängert, unvollständig, begonnen, nicht begonnen
    """,
    "excused": "excused, ex, exempt, dropped, waived, entschuldigt, befreit, erlassen",
    "grading": """
        not graded, ungraded, not marked, unmarked, not yet graded, no grade, not released,
        nicht bewertet, nicht benotet, unbewertet, keine bewertung, keine note
    """,
}
"""Status words by their meaning, in small letters."""


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.casefold())


MEANINGS = {
    _letters(phrase): meaning for meaning, phrases in PHRASES.items() for phrase in phrases.split(",") if phrase.strip()
}

PUNCTUALITY = re.compile(r"^.*\d+ (?:secs?|mins?|minutes?|hours?|days?|weeks?) (early|late)$", re.IGNORECASE)
"""Moodle also says by how much: "3 days 2 hours late"."""


def work_status(text: str) -> WorkStatus:
    """Return the status that a cell says, in one or several words. An unknown word counts as not handed in.

    >>> work_status("Turned in late"), work_status("Submitted for grading - Graded - 2 days 3 hours late")
    (WorkStatus(handed_in=True, late=True, excused=False, unknown=()), WorkStatus(handed_in=True, late=True, excused=False, unknown=()))
    >>> work_status("No submission, Not graded").handed_in, work_status("submitted; blessed").unknown
    (False, ('blessed',))
    """  # noqa: E501
    if text.strip() in ("✓", "✔"):
        return WorkStatus(handed_in=True)
    words = [text] if _letters(text) in MEANINGS else _words(text)
    meanings = {word: _meaning(word) for word in words}
    said = set(meanings.values())
    return WorkStatus(
        handed_in=not said.isdisjoint({"done", "late"}) and "open" not in said,
        late="late" in said,
        excused="excused" in said,
        unknown=tuple(word for word, meaning in meanings.items() if meaning is None),
    )


def _words(text: str) -> list[str]:
    parts = re.split(r"[,;|/·()\n]|\s[-–—]\s", text)
    return [part.strip() for part in parts if _letters(part)]


def _meaning(word: str) -> Meaning | None:
    if punctuality := PUNCTUALITY.match(word):
        return "late" if punctuality[1].casefold() == "late" else "done"
    return MEANINGS.get(_letters(word))
