"""Run random programs under random crashes, pauses and holds, and compare them with a reference interpreter.

``python -m tests.faults.random_programs --seconds 600 --seed 1`` runs for a given time. Prints each trial that goes
wrong, shortened, and totals at the end. The same seed draws the same trials; ``--only`` runs a single one of them.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tests.faults.interpreter.faults import Trial, draw
from tests.faults.interpreter.shrink import shrink
from tests.faults.interpreter.trial import Report, run

SHOWN = (
    "programs", "sessions", "operations", "crashes", "crashes of a keeper", "closes", "steals", "pauses",
    "pauses of everything", "pauses awaited", "held in place", "continued in place", "holds that expired",
    "holds taken over", "begun after a steal", "answers", "messages", "lost", "doubled", "begun while paused",
)  # fmt: skip


def run_seeds(seeds: Iterable[str], tally: Counter[str], shrinking: float = 60) -> int:
    """Run the trials of these seeds, add up what happened, and return how many went wrong."""
    failures = 0
    for seed in seeds:
        trial = draw(seed)
        report = run(trial, seed)
        tally.update(report.counts)
        if report.wrong:
            failures += 1
            print(f"seed {seed} goes wrong: {report.wrong[0][:300]}", flush=True)
            print(describe(seed, *shrink(trial, report, seed, shrinking)), flush=True)
    return failures


def describe(seed: str, trial: Trial, report: Report) -> str:
    """Return what went wrong, and the trial in which it did."""
    wrong = "\n".join(f"  {text[:1500]}" for text in report.wrong)
    return f"WRONG, seed {seed}:\n{wrong}\n{trial}\n"


def seeds_for(seed: int, seconds: float) -> Iterator[str]:
    ends_at, number = time.monotonic() + seconds, 0
    while time.monotonic() < ends_at:
        yield f"{seed}:{number}"
        number += 1


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.random_programs", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to go on (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="which trials to draw (default: others each time)")
    parser.add_argument("--only", type=int, default=None, help="run only the trial with this number")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    seeds = seeds_for(seed, options.seconds) if options.only is None else [f"{seed}:{options.only}"]
    logging.disable(logging.CRITICAL)  # engines that die complain
    tally, began = Counter[str](), time.monotonic()
    failures = run_seeds(seeds, tally)
    for name in SHOWN:
        print(f"{name:<22} {tally[name]:>9,}")
    print(f"{failures} programs went wrong; {time.monotonic() - began:.0f} s, seed {seed}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
