"""Run many interleavings of each pair of verbs: ``python -m tests.faults.concurrency --rounds 200 --seed 1``.

Two engines use one SQLite store at the same time; the dictionary store is the reference. Prints each interleaving that
no serial order explains, and at the end one line of JSON with totals. The same seed draws the same schedules, but the
system decides what two calls at the same moment do, so a failure may need several runs to appear again.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock
from pausepoint.testing.suite.concurrency import PAIRS, Arena, Trial
from pausepoint.testing.suite.verbs import VERBS
from tests.faults.lab import fast_folder
from tests.support.dictstore import Data, DictStore
from tests.support.lockpoints import at_each_statement

ROUNDS_PER_STORE = 5


@dataclass
class Report:
    """What a campaign has done, and what it found."""

    seed: int
    done: Counter[str] = field(default_factory=Counter)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, trial: Trial) -> None:
        """Count an interleaving, and print what is wrong with it."""
        self.pairs.add(trial.case.verbs)
        self.done["interleavings"] += 1
        self.done["calls"] += trial.calls
        self.done["with calls at the same time"] += trial.overlapped
        self.done["stops at lock points"] += trial.switches
        self.done["serial orders tried"] += trial.orders
        if trial.wrong:
            self.wrong.append(trial.wrong)
            print(f"WRONG: {trial.wrong}", flush=True)

    def facts(self) -> dict[str, Any]:
        """Return the totals."""
        took = round(self.seconds, 1)
        return {"pairs": len(self.pairs), **self.done, "wrong": len(self.wrong), "seconds": took, "seed": self.seed}


@contextmanager
def arena() -> Iterator[Arena]:
    """Open two engines on a new SQLite store."""
    folder, clock, data = Path(tempfile.mkdtemp(dir=fast_folder())), ManualClock(), Data()
    try:
        with Arena(
            lambda: SqliteStore(folder / "store.db", clock=clock, synchronous="OFF", poll=0.01),
            lambda: DictStore(data, clock), clock, at_each_statement,
        ) as opened:  # fmt: skip
            yield opened
    finally:
        shutil.rmtree(folder)


def run(rounds: int, seed: int, seconds: float | None = None) -> Report:
    """Run this many interleavings of each pair, or as many as fit into the given time."""
    report, started = Report(seed), time.monotonic()
    for pair, ns, opened in _batches(rounds):
        for n in ns:
            report.add(opened.trial(pair, n, seed))
        report.seconds = time.monotonic() - started
        if seconds is not None and report.seconds >= seconds:
            break
    return report


def _batches(rounds: int) -> Iterator[tuple[tuple[str, str], range, Arena]]:
    """Yield pairs with a few rounds each. A store is used for all pairs of one verb, because large ones are slow."""
    for first in range(0, rounds, ROUNDS_PER_STORE):
        for verb in VERBS:
            with arena() as opened:
                for pair in PAIRS:
                    if pair[0] == verb:
                        yield pair, range(first, min(first + ROUNDS_PER_STORE, rounds)), opened


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.concurrency", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="how many interleavings of each pair (default: 200)")
    parser.add_argument("--seconds", type=float, default=None, help="stop after this time (default: after all rounds)")
    parser.add_argument("--seed", type=int, default=None, help="which schedules to draw (default: others each time)")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    report = run(options.rounds, seed, options.seconds)
    print(json.dumps(report.facts()))
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
