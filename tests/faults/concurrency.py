"""Interleave every pair of verbs of two engines on one SQLite store; the dictionary store is the reference.

    python -m tests.faults.concurrency --seconds 1200 --seed 1

A fault is a result that no serial order of the calls explains. The same seed draws the same schedules, but the system
decides what two calls at the same moment do, so a fault may need several runs to appear again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock
from pausepoint.testing.suite.concurrency import PAIRS, Arena, Trial
from pausepoint.testing.suite.verbs import VERBS
from tests.faults.tally import Tally, main
from tests.support.dictstore import Data, DictStore
from tests.support.folders import scratch
from tests.support.lockpoints import at_each_statement

ROUNDS_PER_STORE = 5


def add(tally: Tally, trial: Trial) -> None:
    """Count an interleaving, and what is wrong with it."""
    tally.done["interleavings"] += 1
    tally.done["calls"] += trial.calls
    tally.done["interleavings with calls at the same time"] += trial.overlapped
    tally.done["stops at lock points"] += trial.switches
    tally.done["serial orders tried"] += trial.orders
    if trial.wrong:
        tally.fail(trial.wrong)


@contextmanager
def arena() -> Iterator[Arena]:
    """Open two engines on a new SQLite store."""
    clock, data = ManualClock(), Data()
    with (
        scratch() as folder,
        Arena(
            lambda: SqliteStore(folder / "store.db", clock=clock, synchronous="OFF", poll=0.01),
            lambda: DictStore(data, clock), clock, at_each_statement,
        ) as opened,
    ):  # fmt: skip
        yield opened


def run(tally: Tally) -> None:
    """Run a few interleavings of each pair in turn, until the time is up."""
    pairs = set[tuple[str, str]]()
    for pair, ns, opened in _batches():
        for n in ns:
            add(tally, opened.trial(pair, n, tally.seed))
        pairs.add(pair)
        tally.done["pairs of verbs"] = len(pairs)
        if not tally.has_time():
            break


def _batches() -> Iterator[tuple[tuple[str, str], range, Arena]]:
    """Yield pairs with a few rounds each. A store is used for all pairs of one verb, because large ones are slow."""
    for first in count(0, ROUNDS_PER_STORE):
        for verb in VERBS:
            with arena() as opened:
                for pair in PAIRS:
                    if pair[0] == verb:
                        yield pair, range(first, first + ROUNDS_PER_STORE), opened


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
