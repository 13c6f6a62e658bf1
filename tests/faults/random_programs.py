"""Run random programs under random crashes, pauses and holds, and compare them with a reference interpreter.

    python -m tests.faults.random_programs --seconds 600 --seed 1

A trial that goes wrong is shortened before it is printed. The same seed draws the same trials.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator

from tests.faults.interpreter.faults import Trial, draw
from tests.faults.interpreter.shrink import shrink
from tests.faults.interpreter.trial import Report
from tests.faults.interpreter.trial import run as run_trial
from tests.faults.tally import Fault, Tally, main

FAULTS: dict[str, Fault] = {"lost": "lost", "doubled": "doubled"}


def run_seeds(seeds: Iterable[str], tally: Tally, shrinking: float = 60) -> None:
    """Run the trials of these seeds, and add up what happened."""
    for seed in seeds:
        trial = draw(seed)
        report = run_trial(trial, seed)
        tally.done.update({name: count for name, count in report.counts.items() if name not in FAULTS})
        if report.wrong:
            fault: Fault = next((fault for name, fault in FAULTS.items() if report.counts[name]), "other")
            print(f"seed {seed} goes wrong: {report.wrong[0][:300]}", flush=True)
            tally.fail(describe(seed, *shrink(trial, report, seed, shrinking)), fault)


def describe(seed: str, trial: Trial, report: Report) -> str:
    """Return what went wrong, and the trial in which it did."""
    wrong = "\n".join(f"  {text[:1500]}" for text in report.wrong)
    return f"trial {seed}:\n{wrong}\n{trial}\n"


def seeds_of(tally: Tally) -> Iterator[str]:
    """Yield seeds of trials until the time is up."""
    number = 0
    while tally.has_time():
        yield f"{tally.seed}:{number}"
        number += 1


def run(tally: Tally) -> None:
    """Run trials until the time is up."""
    logging.disable(logging.CRITICAL)  # engines that die complain
    run_seeds(seeds_of(tally), tally)


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
