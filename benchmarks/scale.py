"""What one machine and one Postgres hold: a model whose constants come from measured points.

``python -m benchmarks.scale`` prints the tables of docs/scale.md, ``--check`` fails if a measured point is further from
the model than the stated error, and ``--docs`` writes the page. The points are those of docs/benchmarks-peers.json
(``make bench-peers ARGS=--docs``) and docs/benchmarks-fleet.json (``python -m benchmarks.fleet --json``).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
PEERS = DOCS / "benchmarks-peers.json"
FLEET = DOCS / "benchmarks-fleet.json"
PAGE = DOCS / "scale.md"
BEGIN = "<!-- scale: written by python -m benchmarks.scale --docs -->"
END = "<!-- scale: end -->"

ERROR = 2.0
"""The factor by which a measured point may differ from the model, in both directions."""

SHARE = 0.7
"""The part of a server's processors that the model uses."""

CORES = (4, 16, 64)
FLEETS = {"crowd": "sessions of 20 steps, with start and end", "batch": "the store alone, batches of 200"}
FSYNCS = (50, 100, 500, 2_000)
"""Microseconds that a commit waits for the disk: from a good one in the machine to one in the network."""


@dataclass(frozen=True)
class Machine:
    """The constants of one machine, in microseconds of processor time.

    A step of a lone session uses ``lone``. Steps of several sessions share commits: with N sessions at once, a step
    uses ``work + (lone - work) / N``.
    """

    lone: float
    work: float

    def step(self, sessions: int) -> float:
        """Return the processor time of a step.

        >>> Machine(200.0, 50.0).step(1), Machine(200.0, 50.0).step(10)
        (200.0, 65.0)
        """
        return self.work + (self.lone - self.work) / sessions

    def steps_per_second(self, sessions: int, wait: float) -> float:
        """Return how many steps per second one process makes, if a commit waits ``wait`` microseconds for the disk.

        >>> [round(Machine(200.0, 50.0).steps_per_second(sessions, 100.0)) for sessions in (1, 10)]
        [3333, 13333]
        """
        return 1e6 / (self.step(sessions) + wait / sessions)


@dataclass(frozen=True)
class Point:
    """A measured point, and what the model says."""

    name: str
    measured: float
    model: float

    @property
    def factor(self) -> float:
        """How many times the larger of the two is the smaller.

        >>> Point("a", 1.0, 1.5).factor, Point("b", 3.0, 1.5).factor
        (1.5, 2.0)
        """
        return max(self.measured / self.model, self.model / self.measured)


def machine(peers: Mapping[str, Any]) -> Machine:
    """Take the constants from the plot over sessions: its first point, and the one with 100 sessions."""
    found = _plot(peers, "sessions")
    return Machine(found[1], (found[100] * 100 - found[1]) / 99)


def points(peers: Mapping[str, Any]) -> list[Point]:
    """Return the points that the constants do not come from, with what the model says about them."""
    model = machine(peers)
    found = [
        Point(f"{sessions:,} sessions at once", value, model.step(sessions))
        for sessions, value in _plot(peers, "sessions").items()
        if sessions not in (1, 100)
    ]
    for key, what in (("steps", "a session of {:,} steps"), ("state", "{:,} bytes of untouched state")):
        values = _plot(peers, key)
        flat = statistics.median(values.values())
        found += [Point(what.format(at), value, flat) for at, value in values.items()]
    return found


def _plot(peers: Mapping[str, Any], key: str) -> dict[int, float]:
    plot = peers["growths"][key]["pausepoint"]
    return {int(point["at"]): float(point["cpu"]) for point in plot if "cpu" in point}


@dataclass(frozen=True)
class Fleet:
    """The constants of a fleet, in seconds of processor time for a step: of the server, and of a worker."""

    server: float
    worker: float

    def steps_per_second(self, cores: int) -> float:
        """Return how many steps per second a server with these cores carries."""
        return SHARE * cores / self.server

    def workers(self, cores: int) -> float:
        """Return how many worker processes that takes."""
        return self.steps_per_second(cores) * self.worker


def fleet(figures: Mapping[str, Mapping[str, Any]], kind: str) -> Fleet:
    """Take the constants of ``crowd`` (whole sessions of 20 steps) or of ``batch`` (the store alone)."""
    server, client = figures[f"{kind}-server"], figures[f"{kind}-client"]
    return Fleet(float(server["notes"]["server µs"]) / 1e6, float(client["value"]) / 1e6)


def tables(peers: Mapping[str, Any], figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the tables of the page."""
    model = machine(peers)
    parts = [
        f"Constants of one machine, from the plot over sessions: a lone step uses **{model.lone:,.0f} µs** of "
        f"processor time, and the part that sessions cannot share is **{model.work:,.0f} µs**. Steps per second of one "
        "process:",
        _table(
            ["a commit waits for the disk", "one session", "100 sessions", "10,000 sessions"],
            [
                [f"{unit:,} µs", *[f"{model.steps_per_second(n, unit):,.0f}" for n in (1, 100, 10_000)]]
                for unit in FSYNCS
            ],
        ),
        _table(
            ["measured point", "processor time of a step, µs", "model", "factor"],
            [[p.name, f"{p.measured:,.0f}", f"{p.model:,.0f}", f"{p.factor:.2f}"] for p in points(peers)],
        ),
        _bytes(peers),
        _fleet(figures),
    ]
    return "\n\n".join(parts)


def _bytes(peers: Mapping[str, Any]) -> str:
    question = float(peers["workloads"]["W6"]["pausepoint"]["value"])
    rows = [[f"{count:,}", f"{count * question / 1e9:,.2f} GB"] for count in (10_000, 1_000_000, 10_000_000)]
    return f"A session that waits for an answer takes {question:,.0f} bytes:\n\n" + _table(
        ["waiting sessions", "disk"], rows
    )


def _fleet(figures: Mapping[str, Mapping[str, Any]]) -> str:
    rows = []
    for kind in [kind for kind in FLEETS if f"{kind}-server" in figures]:
        found = fleet(figures, kind)
        rows += [
            [FLEETS[kind], str(cores), f"{found.steps_per_second(cores):,.0f}", f"{found.workers(cores):,.0f}"]
            for cores in CORES
        ]
    return _table(["work", "cores of the server", "steps/s", "worker processes for it"], rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *[f"| {' | '.join(row)} |" for row in rows]])


def read() -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Read the measured points."""
    figures = json.loads(FLEET.read_text("utf-8"))["figures"]
    return json.loads(PEERS.read_text("utf-8")), {figure["name"]: figure for figure in figures}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables. Return 1 if --check was given and the model is too far from a point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help=f"fail if a point differs by more than {ERROR:g} times")
    parser.add_argument("--docs", action="store_true", help="write docs/scale.md")
    options = parser.parse_args(arguments)
    peers, figures = read()
    text = tables(peers, figures)
    print(text)
    if options.docs:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}", "utf-8")
    far = [point for point in points(peers) if point.factor > ERROR]
    for point in far:
        print(
            f"{point.name}: the model says {point.model:,.0f} µs and {point.measured:,.0f} µs were measured.",
            file=sys.stderr,
        )
    return int(options.check and bool(far))


if __name__ == "__main__":
    sys.exit(main())
