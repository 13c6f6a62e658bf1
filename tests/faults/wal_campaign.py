"""Power losses and flipped bits in the write-ahead log, for a given time.

    python -m tests.faults.wal_campaign --seconds 600 --seed 1

Prints the counts and every failure, and exits with 1 if there is one. A failure is a false alarm after a power loss, a
verdict that differs from the store's own check, a flip that lost commits of a killed process without being noticed, or
an alarm without a loss. The same seed draws the same trials.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.faults.lab import fast_folder
from tests.faults.wal_states import bits_of, flip_all, killed, opens, remember_checksums, states, verdict

MOMENTS = 40  # per life
FLIPS = 300  # per log
OPENED = 0.05  # the share of states that the store's own check opens


class WalCampaign:
    """Counts what was tried and what went wrong."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.done = Counter[str]()
        self.wrong: list[str] = []

    def round(self, number: int) -> None:
        """Run the lives of one database, and flip bits in the log of one killed process."""
        folder = Path(tempfile.mkdtemp(prefix="pausepoint-", dir=fast_folder()))
        try:
            self._power_losses(folder, f"round {number}")
            self._flips(folder, f"round {number}")
        finally:
            shutil.rmtree(folder)

    def _power_losses(self, folder: Path, name: str) -> None:
        for state in states(folder, self.rng, MOMENTS):
            self.done["power-loss states"] += 1
            found = verdict(state.files, padded=state.padded)
            if found is not None:
                self._failed("false alarms", f"{name}, {state.style}: {found}")
            self.done.update(f"false alarms of the wrong rule: {rule}" for rule in state.wrong_alarms())
            # The store's own check does not know that a log is padded: its disk is another one.
            if not state.padded and self.rng.random() < OPENED:
                self.done["states opened by the store"] += 1
                if not opens(state.files, folder / "opened.db"):
                    self._failed("refused by the store", f"{name}, {state.style}")

    def _flips(self, folder: Path, name: str) -> None:
        files = killed(folder / "killed.db", self.rng, self.rng.choice([3, 12, 40]))
        bits = bits_of(files["-wal"], self.rng, FLIPS)
        found = flip_all(files, bits)
        self.done["flips"] += found.flips
        self.done["flips that lose commits"] += found.losing
        self.done["noticed without the index"] += found.noticed
        self.done["noticed with the index"] += found.noticed_with_index
        if found.losing > found.noticed_with_index:
            self._failed("unnoticed", f"{name}: {found.losing - found.noticed_with_index} flips of a killed process")
        if found.alarms_without_loss:
            self._failed("alarms without loss", f"{name}: {found.alarms_without_loss} flips")

    def _failed(self, what: str, text: str) -> None:
        self.wrong.append(text)
        self.done[f"WRONG: {what}"] += 1
        print(f"WRONG, seed {self.seed}: {what}: {text}", flush=True)


def run(seconds: float, seed: int) -> int:
    """Run rounds and return the number of failures."""
    campaign, started, number = WalCampaign(seed), time.monotonic(), 0
    undo = remember_checksums()
    try:
        while time.monotonic() - started < seconds:
            number += 1
            campaign.round(number)
    finally:
        undo()
    for name, count in sorted(campaign.done.items()):
        print(f"{name:<62} {count:>9,}")
    took = time.monotonic() - started
    print(f"{len(campaign.wrong)} failures in {number} rounds; {took:.0f} s, seed {seed}")
    return len(campaign.wrong)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.wal_campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to continue (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="which trials to draw (default: others each time)")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    return 1 if run(options.seconds, seed) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
