"""Run the benchmarks (``python -m benchmarks``) and print a table or JSON; with --check, fail on a missed limit."""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw

from benchmarks import fresh, steps, travel
from benchmarks.agents import agents
from benchmarks.chat import chat
from benchmarks.gate import gate
from benchmarks.listings import listings
from benchmarks.messages import messages
from benchmarks.operations import operations
from benchmarks.parked import parked
from benchmarks.questions import questions
from benchmarks.results import Figure, to_json, to_table
from benchmarks.server import server
from benchmarks.steps import QUICK, Scale
from benchmarks.streams import streams
from benchmarks.turns import turns

FIGURES: dict[str, Callable[[Path, Scale], list[Figure]]] = {
    "lone": steps.lone,
    "crowd": steps.crowd,
    "growth": steps.growth,
    "ballast": steps.ballast,
    "throng": steps.throng,
    "chat": chat,
    "turns": turns,
    "messages": messages,
    "resume": fresh.resume,
    "travel": travel.travel,
    "parked": parked,
    "listings": listings,
    "questions": questions,
    "agents": agents,
    "operations": operations,
    "streams": streams,
    "server": server,
    "gate": gate,
    "import": fresh.imports,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested figures. Return 1 only if --check was given and a figure misses its limit."""
    options = _parser().parse_args(arguments)
    scale = QUICK if options.quick else Scale()
    if options.rounds:
        scale = dataclasses.replace(scale, rounds=options.rounds, processes=max(options.rounds, scale.processes))
    figures: list[Figure] = []
    with ExitStack() as stack:
        folder = _folder(stack, options.dir)
        for name in options.only or FIGURES:
            _say(f"measuring {name} …", options.json)
            figures += FIGURES[name](folder, scale)
        _say("", options.json)
    facts = _facts(options.quick)
    print(to_json(figures, facts) if options.json else to_table(figures, facts))
    return 1 if options.check and any(figure.passed is False for figure in figures) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m benchmarks", description="Measure what Pausepoint costs, in units of plain SQLite."
    )
    parser.add_argument("--dir", type=Path, help="a folder on the disk to measure (default: the current folder)")
    parser.add_argument("--quick", action="store_true", help="run a tiny sample, whose numbers mean nothing")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure misses its limit")
    parser.add_argument("--rounds", type=_positive, help="how often to measure each figure")
    parser.add_argument("--only", action="append", choices=FIGURES, help="measure only this figure; repeatable")
    return parser


def _positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _folder(stack: ExitStack, parent: Path | None) -> Path:
    """Create a temporary folder on the disk to measure."""
    parent = parent or Path.cwd()
    parent.mkdir(parents=True, exist_ok=True)
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".bench-", dir=parent)))


def _facts(quick: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "sqlite": f"{apsw.sqlite_lib_version()} (the unit: {sqlite3.sqlite_version})",
        "cores": os.cpu_count(),
    }
    if quick:
        facts["sample"] = "quick: too small for its numbers to mean anything"
    return facts


def _say(text: str, quiet: bool) -> None:
    """Print progress, at a terminal only."""
    if not quiet and sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
