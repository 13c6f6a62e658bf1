"""Power losses below libc.

    python -m tests.faults.libc.campaign --seconds 600

First every sync of the engine is left out once, and the loss of what it protects must be noticed. Then scenarios are
recorded and states of the disk after a power loss are drawn from each recording. States are counted once per recording,
however often they are drawn. The same seed draws the same acts and moments; the interleaving of threads may differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tests.faults.libc import trace
from tests.faults.libc.lab import Lab, opened_lab
from tests.faults.tally import Tally, main

FIXED = ("publishing", "publishing into an unsynced folder", "publishing below an unsynced folder", "retention")
HIDDEN = {"stores.sqlite.schema:_make_file"}
"""Syncs that no state shows, because SQLite syncs the same folder before anything is acknowledged."""
STATES = 200  # drawn from each recording


class PowerLosses:
    """Runs trials until the time is up, and counts."""

    def __init__(self, lab: Lab, tally: Tally) -> None:
        self.lab = lab
        self.tally = tally

    def run(self) -> None:
        self.leave_out_syncs()
        for scenario in self.scenarios():
            if not self.tally.has_time():
                return
            self.lose_power(scenario)

    def scenarios(self) -> Iterator[str]:
        """Yield the fixed scenarios in turn, with three random ones after each."""
        while True:
            for name in FIXED:
                yield name
                yield from (f"random {self.tally.draw.randrange(10**9)}" for _ in range(3))

    def lose_power(self, scenario: str) -> None:
        recording = self.lab.record(scenario)
        self.tally.done["recordings"] += 1
        self.tally.done["recorded calls"] += len(recording.calls)
        if not recording.is_complete:
            self.tally.fail(f"{scenario}: the trace does not explain the files")
        seed = self.tally.draw.randrange(10**9)
        for state, wrong in self.lab.judged(recording, seed, STATES):
            self.tally.done["different states"] += 1
            if wrong:
                self.tally.fail(f"{scenario}, states of seed {seed}, {state.name}: {'; '.join(wrong)}", "lost")
            if not self.tally.has_time():
                break
        self.lab.forget(recording)

    def leave_out_syncs(self) -> None:
        """Check that the trials notice each missing sync, in one of the fixed scenarios."""
        asked = [(scenario, site) for scenario in FIXED for site in self.lab.record(scenario).asked]
        caught = {site for scenario, site in asked if self.is_caught(scenario, site)}
        self.tally.done["syncs left out"] = len({site for _, site in asked})
        for site in {site for _, site in asked} - caught - HIDDEN:
            self.tally.fail(f"without the sync in {site}, nothing was missed", "undetected")

    def is_caught(self, scenario: str, site: str) -> bool:
        recording = self.lab.record(scenario, skip=site)
        caught = any(wrong for _, wrong in self.lab.judged(recording, self.tally.seed, len(recording.facts)))
        self.lab.forget(recording)
        return caught


def run(tally: Tally) -> None:
    """Run trials until the time is up. Without a compiler nothing is tried."""
    if reason := trace.why_not():
        print(f"Nothing was tried: {reason}.")
        return
    with opened_lab() as lab:
        PowerLosses(lab, tally).run()


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
