"""What an instrument of a campaign tried and what went wrong, and the command line that all instruments share."""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

Fault = Literal["lost", "doubled", "undetected", "false alarm", "other"]
FAULTS: tuple[Fault, ...] = get_args(Fault)


class Tally:
    """Counts trials by name, and faults by kind. Prints each fault when it is found."""

    def __init__(self, seed: int, seconds: float) -> None:
        self.seed = seed
        self.draw = random.Random(seed)
        self.done = Counter[str]()
        self.faults = Counter[Fault]()
        self.started = time.monotonic()
        self.seconds = seconds

    def has_time(self, share: float = 1) -> bool:
        """Return whether less than this share of the time has passed."""
        return time.monotonic() < self.started + share * self.seconds

    def fail(self, text: str, fault: Fault = "other") -> None:
        """Count a fault and print what happened."""
        self.faults[fault] += 1
        print(f"WRONG ({fault}), seed {self.seed}: {text}", flush=True)

    def report(self) -> dict[str, Any]:
        """Return the counts for a report."""
        took = round(time.monotonic() - self.started, 1)
        return {"seed": self.seed, "seconds": took, "done": dict(self.done), "faults": dict(self.faults)}


def main(run: Callable[[Tally], None], about: str | None, arguments: Sequence[str] | None = None) -> int:
    """Run one instrument from the command line. Return 1 if it found a fault or tried nothing."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="how long to continue (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="which trials to draw (default: others each time)")
    parser.add_argument(
        "--report", "--json", type=Path, default=None, metavar="FILE", help="also write the counts as JSON"
    )
    given = parser.parse_args(arguments)
    tally = Tally(random.SystemRandom().randrange(10**6) if given.seed is None else given.seed, given.seconds)
    run(tally)
    report = tally.report()
    for name, count in sorted(tally.done.items()):
        print(f"{name:<45} {count:>9,}")
    print(f"{tally.faults.total()} faults; {report['seconds']:.0f} s, seed {tally.seed}")
    if given.report is not None:
        given.report.write_text(json.dumps(report))
    if not tally.done.total():
        print("Nothing was tried.", file=sys.stderr)
    return 0 if tally.done.total() and not tally.faults else 1
