"""Power losses below libc for a given time: ``python -m tests.faults.libc.campaign --seconds 600``.

First every sync of the engine is left out once, and the loss of what it protects must be noticed. Then scenarios are
recorded and states of the disk after a power loss are drawn from each recording. Prints each failure when it is found,
and totals at the end. States are counted once per recording, however often they are drawn. The same seed draws the same
acts and moments; the interleaving of threads may differ.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.faults.libc import trace
from tests.faults.libc.lab import Lab, opened_lab

FIXED = ("publishing", "retention")
HIDDEN = {"stores.sqlite.schema:_make_file"}
"""Syncs that no state shows, because SQLite syncs the same folder before anything is acknowledged."""
STATES = 200  # drawn from each recording


class Campaign:
    """Runs trials until its time is up, and counts."""

    def __init__(self, lab: Lab, seconds: float, seed: int) -> None:
        self.lab = lab
        self.end = time.monotonic() + seconds
        self.seed = seed
        self.draw = random.Random(seed)
        self.done = Counter[str]()
        self.failures = 0

    def run(self) -> None:
        self.leave_out_syncs()
        for scenario in self.scenarios():
            if time.monotonic() >= self.end:
                return
            self.lose_power(scenario)

    def scenarios(self) -> Iterator[str]:
        """Yield the fixed scenarios in turn, with three random ones after each."""
        while True:
            for name in FIXED:
                yield name
                yield from (f"random {self.draw.randrange(10**9)}" for _ in range(3))

    def lose_power(self, scenario: str) -> None:
        recording = self.lab.record(scenario)
        self.done["recordings"] += 1
        self.done["recorded calls"] += len(recording.calls)
        if not recording.is_complete:
            self.fail(f"{scenario}: the trace does not explain the files")
        seed = self.draw.randrange(10**9)
        for state, wrong in self.lab.judged(recording, seed, STATES):
            self.done["different states"] += 1
            if wrong:
                self.fail(f"{scenario}, states of seed {seed}, {state.name}: {'; '.join(wrong)}")
            if time.monotonic() >= self.end:
                break
        self.lab.forget(recording)

    def leave_out_syncs(self) -> None:
        """Check that the trials notice each missing sync, in one of the fixed scenarios."""
        asked = [(scenario, site) for scenario in FIXED for site in self.lab.record(scenario).asked]
        caught = {site for scenario, site in asked if self.is_caught(scenario, site)}
        self.done["syncs left out"] = len({site for _, site in asked})
        for site in {site for _, site in asked} - caught - HIDDEN:
            self.fail(f"without the sync in {site}, nothing was missed")

    def is_caught(self, scenario: str, site: str) -> bool:
        recording = self.lab.record(scenario, skip=site)
        caught = any(wrong for _, wrong in self.lab.judged(recording, self.seed, len(recording.facts)))
        self.lab.forget(recording)
        return caught

    def fail(self, text: str) -> None:
        self.failures += 1
        print(f"WRONG, seed {self.seed}: {text}", flush=True)


def run(seconds: float, seed: int) -> int:
    """Run trials and return the number of failures."""
    if reason := trace.why_not():
        print(f"Nothing was tried: {reason}.")
        return 1
    started = time.monotonic()
    with opened_lab() as lab:
        campaign = Campaign(lab, seconds, seed)
        campaign.run()
    for name, count in sorted(campaign.done.items()):
        print(f"{name:<22} {count:>9,}")
    print(f"{campaign.failures} trials went wrong; {time.monotonic() - started:.0f} s, seed {seed}")
    return campaign.failures


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.libc.campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to go on (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="which trials to draw (default: others each time)")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    return 1 if run(options.seconds, seed) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
