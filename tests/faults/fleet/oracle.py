"""Compare the notes of operations with the logs of sessions, and say what was lost and what ran twice without a reason.

A run of an operation that does not count is excused only if it was in flight when its process was hit: the notes show
that it had begun, and that nothing had ended it yet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

FOREVER = float("inf")


class Hit(NamedTuple):
    """A fault that may end operations that are in flight. ``pid`` is None if it hit all processes."""

    fault: str
    since: float
    until: float
    pid: int | None = None
    why: str = ""

    def __str__(self) -> str:
        return f"{self.fault} {self.since:.3f}-{self.until:.3f} {self.why}".rstrip()


class Note(NamedTuple):
    """A line that an operation wrote. ``token`` is ``session/number=run``."""

    at: float
    pid: int
    what: str
    token: str

    @property
    def operation(self) -> str:
        return self.token.partition("=")[0]

    @property
    def session(self) -> str:
        return self.operation.rpartition("/")[0]


class Verdict(NamedTuple):
    """What the oracle found. ``forgotten`` are runs that were acknowledged and are not in the log.

    ``twice`` are operations that ran to their end more than once, with an excuse or without.
    """

    missing: list[str]
    forgotten: list[str]
    doubled: list[str]
    in_flight: dict[str, int]
    runs: int
    twice: list[str]


def read_notes(text: str) -> list[Note]:
    """Return the notes. The last line of a process that was killed is whole, because one write wrote it."""
    found = []
    for line in text.splitlines():
        at, pid, what, token = line.split()
        found.append(Note(float(at), int(pid), what, token))
    return sorted(found)


def judge(
    notes: Sequence[Note], logged: Mapping[str, Sequence[str]], operations: Iterable[str], hits: Sequence[Hit]
) -> Verdict:
    """Judge all runs. ``logged`` has the results of each operation that its session's log has."""
    missing = [f"{name} has {len(logged.get(name, ()))} results in the log" for name in operations
               if len(logged.get(name, ())) != 1]  # fmt: skip
    counts = {token for tokens in logged.values() for token in tokens}
    did = {note.token for note in notes if note.what == "did"}
    missing += [f"{token} is in the log, but no run of it was completed" for token in sorted(counts - did)]
    forgotten = sorted({note.token for note in notes if note.what == "acknowledged"} - counts)
    doubled, in_flight = [], defaultdict[str, int](int)
    begun = [note for note in notes if note.what == "began"]
    for run in begun:
        if run.token in counts or run.token in forgotten:
            continue
        end = _end(run, notes)
        found = [hit for hit in hits if _struck(hit, run, end)]
        reason = min(found, key=lambda hit: hit.pid is None, default=None)
        if reason is None:
            others = ", ".join(str(hit) for hit in hits if hit.pid == run.pid)
            doubled.append(
                f"{run.token} does not count, and nothing hit process {run.pid} while it was in flight:"
                f" {_story(run, notes)}. Hits of the process: {others or 'none'}"
            )
        else:
            in_flight[reason.fault] += 1
    return Verdict(missing, forgotten, doubled, dict(in_flight), len(begun), twice(notes))


def twice(notes: Iterable[Note]) -> list[str]:
    """Return the operations that ran to their end more than once."""
    ends = Counter(note.operation for note in notes if note.what == "did")
    return [name for name in sorted(ends) if ends[name] > 1]


def _story(run: Note, notes: Sequence[Note]) -> str:
    """Return all notes about an operation."""
    same = [note for note in notes if note.operation == run.operation]
    return "; ".join(f"{note.at:.3f} {note.pid} {note.what} {note.token.partition('=')[2]}" for note in same)


def _end(run: Note, notes: Sequence[Note]) -> float:
    """Return when a run was no longer in flight: its process dropped it, or did something else for its session."""
    later = (
        note.at
        for note in notes
        if note.pid == run.pid and note.session == run.session and note.at > run.at and note.token != run.token
    )
    return next(later, FOREVER)


def _struck(hit: Hit, run: Note, end: float) -> bool:
    return hit.pid in (None, run.pid) and run.at <= hit.until and hit.since <= end
