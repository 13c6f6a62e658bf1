"""A worker of the chaos campaign: ``pausepoint worker`` with a short lease, a wrong clock, and, on demand, a fault.

python -m tests.faults.fleet.worker URL SKEW TWIN FENCES DEATHS
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pausepoint.clock import SystemClock
from pausepoint.stores.postgres import engines, watch, writer

LEASE = 4.0
BEAT = 0.5
"""Seconds, instead of 10 and 3: a campaign waits for leases again and again."""

MARGIN = 2.0
"""Seconds at the end of a lease in which an engine begins no operation."""

CONCURRENCY = 4

FATE = "SELECT state, extract(epoch FROM lease_until - clock_timestamp())::float8, attempt FROM engines WHERE id = ?"
"""What the store says about an engine that has no lease."""


def shorten_leases() -> None:
    for module in (engines, watch):
        vars(module).update(LEASE=LEASE, BEAT=BEAT)


def note_fences(file: str) -> None:
    """Append a line to a file for each lease of this process that ends: when it ended, the process, and why."""
    left_of, begin_again, noted = engines.OwnEngine.lease_left, engines.OwnEngine.begin_again, {0}

    def note(engine: engines.OwnEngine, left: float, why: str) -> None:
        if engine.number not in noted:
            noted.add(engine.number)
            append(file, f"{time.monotonic() + min(left, 0):.6f} {os.getpid()} engine {engine.number}: {why}")

    def lease_left(self: engines.OwnEngine, number: int) -> float:
        left = left_of(self, number)
        if number == self.number and left <= 0:
            note(self, left, "not renewed in time")
        return left

    def began_again(self: engines.OwnEngine, connection: Any, number: int) -> engines.Enrolled | None:
        left = left_of(self, number)
        row = connection.execute(FATE, (number,)).fetchone()
        enrolled = begin_again(self, connection, number)
        if enrolled is not None:
            note(self, left, f"refused with {left:.3f} s left, row (state, left, attempt): {row}")
        return enrolled

    engines.OwnEngine.lease_left = lease_left  # type: ignore[method-assign]
    engines.OwnEngine.begin_again = began_again  # type: ignore[method-assign]


def note_deaths(file: str) -> None:
    """Append a line to a file for each list of engines that this process takes for dead by their locks."""
    dead_here = engines.OwnEngine.dead_here

    def noted(self: engines.OwnEngine, connection: Any) -> list[int]:
        found = dead_here(self, connection)
        if found:
            append(file, f"{time.monotonic():.6f} {os.getpid()} engine {self.number} finds no locks of {found}")
        return found

    engines.OwnEngine.dead_here = noted  # type: ignore[method-assign]


def append(file: str, line: str) -> None:
    with open(file, "a") as notes:
        notes.write(f"{line}\n")


def set_clock(skew: float) -> None:
    """Let the engine's clock be wrong by some seconds."""
    right = SystemClock.now
    SystemClock.now = lambda self: right(self) + int(skew * 1e6)  # type: ignore[method-assign]


def believe() -> None:
    """Take every commit whose answer was lost for written."""
    writer.Writer._took_effect = lambda self, run, mark: True  # type: ignore[method-assign]


def forget_leases() -> None:
    """Take every other engine for dead, except the first one, which drives nothing."""

    def dead(self: engines.OwnEngine, connection: Any) -> list[int]:
        alive = connection.execute(connection.queries["alive"], (0.0,)).fetchall()
        return [number for number, *_ in alive if number not in (1, self.number)]

    engines.OwnEngine.dead_here = dead  # type: ignore[method-assign]
    engines.OwnEngine.anything_left = lambda self, connection: bool(dead(self, connection))  # type: ignore[method-assign]


TWINS: dict[str, Callable[[], None]] = {"none": lambda: None, "believes": believe, "no leases": forget_leases}


def main(url: str, skew: str, twin: str, fences: str, deaths: str) -> None:
    shorten_leases()
    note_fences(fences)
    note_deaths(deaths)
    set_clock(float(skew))
    TWINS[twin]()
    code = Path(__file__).with_name("errands.py")
    words: list[Any] = ["worker", "--store", url, "--target", f"{code}:errand", "--concurrency", CONCURRENCY]
    sys.argv = ["pausepoint", *map(str, words)]
    runpy.run_module("pausepoint", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
