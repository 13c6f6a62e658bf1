"""The workloads W1 to W10 and the growth plots: what runs, how large it is, and how its figure is read.

`docs/benchmarks.md` shows the definitions of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Found = dict[str, Any]
"""A sample of a contender, as JSON."""


@dataclass(frozen=True)
class Workload:
    """One workload. ``read`` takes the figure from a sample, in ``unit``.

    ``in_units`` says that the ratio to raw compares multiples of the raw commit that each process measured itself, so
    that a machine which slows down meanwhile slows both. ``once`` says that the figure does not vary: it is measured
    once. ``prepare`` runs once, and every repeat gets a copy of the files that it left.
    """

    key: str
    words: str
    work: str
    size: dict[str, int]
    read: Callable[[Found], float]
    unit: str
    in_units: bool = False
    once: bool = False
    prepare: dict[str, int] | None = None


def _each(scale: float) -> Callable[[Found], float]:
    return lambda found: float(found["seconds"]) / int(found["count"]) * scale


def _bytes(found: Found) -> float:
    return float(found["bytes"]) / int(found["count"])


def _total(found: Found) -> float:
    return float(found["notes"]["total"]) * 1e3


def _paused(found: Found) -> float:
    return (float(found["notes"].get("call", 0.0)) + float(found["seconds"])) * 1e3


MICRO, MILLI = _each(1e6), _each(1e3)

WORKLOADS = (
    Workload(
        "W1", "One session of 300 steps, or as many as the limit of time permits. Each step replaces a field of 1 KiB. "
        "Time per step, from the beginning of the first step to the beginning of the last.",
        "lone", {"steps": 300}, MICRO, "µs", in_units=True,
    ),
    Workload(
        "W2", "200 sessions of 20 such steps, likewise, all at the same time. Time from the first start to the last "
        "end, divided by the steps of all.", "crowd", {"sessions": 200, "steps": 20}, MICRO, "µs", in_units=True,
    ),
    Workload(
        "W3", "One session of 300 steps, likewise. Each step adds an item of 1 KiB to a list that it does not read. "
        "Time per step as in W1.", "growing", {"steps": 300}, MICRO, "µs", in_units=True,
    ),
    Workload(
        "W4", "One session of 100 steps, likewise. Each step changes 100 bytes beside a field of 5 MB that it neither "
        "reads nor writes. Time per step as in W1.",
        "beside", {"steps": 100, "ballast": 5_000_000}, MICRO, "µs", in_units=True,
    ),
    Workload(
        "W5", "A process was killed inside the step after 1,000 steps of W1. Time in a new process that has imported "
        "everything, from opening the store until the code of this step runs.",
        "resume", {"steps": 1000}, MILLI, "ms", prepare={"steps": 1000},
    ),
    Workload(
        "W6", "Sessions that each ask a person one question with two choices, and wait: 10,000, or as many as the "
        "limit of time permits. Bytes on disk for each.", "questions", {"sessions": 10_000}, _bytes, "bytes", once=True,
    ),
    Workload(
        "W7", "One step applies a function to 1,000 items. The result of every item, 100 bytes, is stored on its own, "
        "so that a crash repeats only unfinished items. Time per item.",
        "map", {"items": 1000}, MICRO, "µs", in_units=True,
    ),
    Workload(
        "W8", "1,000 sessions are inside a step. A pause of all of them is requested; these steps end as soon as the "
        "request has returned. Time from the request until all sessions are stored as paused.",
        "pause", {"sessions": 1000}, _paused, "ms", in_units=True,
    ),
    Workload(
        "W9", "A chat of 1,000 turns continues in a process that had 20 turns before: a message of 128 bytes, an "
        "answer of 300 bytes with the last 20 messages in view, and the session waits again. Time per turn.",
        "chat", {"turns": 30, "warm": 20}, MILLI, "ms", in_units=True, prepare={"turns": 1000},
    ),
    Workload(
        "W9-cold", "The same chat in a new process that has imported everything. Time from opening the store until the "
        "answer to one message is stored.",
        "chat", {"turns": 1, "warm": 0, "cold": 1}, MILLI, "ms", prepare={"turns": 1000},
    ),
    Workload(
        "W9-total", "The same, from the start of the interpreter.",
        "chat", {"turns": 1, "warm": 0, "cold": 1}, _total, "ms", prepare={"turns": 1000},
    ),
    Workload(
        "W10", "A store of 100,000 finished sessions of one step, or as many as the limit of time permits. Time to "
        "read a list of 50 of them.", "listing", {"reads": 20}, MILLI, "ms", prepare={"sessions": 100_000},
    ),
)  # fmt: skip

QUICK = {"W1": {"steps": 20}}
"""The sizes of a quick run: a sample whose figures mean nothing."""


@dataclass(frozen=True)
class Growth:
    """A growth plot: one kind of work at several sizes."""

    key: str
    title: str
    axis: str
    work: str
    sizes: tuple[int, ...]

    def size(self, value: int) -> dict[str, int]:
        """Return the size of the job at a point."""
        if self.key == "state":
            return {"steps": 30, "ballast": value}
        return {"sessions": value, "steps": 10}


GROWTHS = (
    Growth("steps", "Time of a step as a session grows longer", "steps so far", "lone", (100, 1000, 10_000, 100_000)),
    Growth(
        "state", "Time of a step beside untouched state", "bytes of state", "beside",
        (1_000, 10_000, 100_000, 1_000_000, 5_000_000, 30_000_000),
    ),
    Growth("sessions", "Time of a step of many sessions at once", "sessions", "crowd", (1, 10, 100, 1_000, 10_000)),
)  # fmt: skip
