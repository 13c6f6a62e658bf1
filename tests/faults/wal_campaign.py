"""Power losses and flipped bits in the write-ahead log.

    python -m tests.faults.wal_campaign --seconds 600 --seed 1

A fault is a false alarm after a power loss, a verdict that differs from the store's own check, a flip that lost commits
of a killed process without being noticed, or an alarm without a loss. The same seed draws the same trials.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.faults.tally import Tally, main
from tests.faults.wal_states import bits_of, flip_all, killed, opens, remember_checksums, states, verdict
from tests.support.folders import scratch

MOMENTS = 40  # per life
FLIPS = 300  # per log
OPENED = 0.05  # the share of states that the store's own check opens


def play(tally: Tally) -> None:
    """Run the lives of one database, and flip bits in the log of one killed process."""
    tally.done["rounds"] += 1
    name = f"round {tally.done['rounds']}"
    with scratch() as folder:
        lose_power(tally, folder, name)
        flip(tally, folder, name)


def lose_power(tally: Tally, folder: Path, name: str) -> None:
    for state in states(folder, tally.draw, MOMENTS):
        tally.done["power-loss states"] += 1
        found = verdict(state.files, padded=state.padded)
        if found is not None:
            tally.fail(f"{name}, {state.style}: {found}", "false alarm")
        tally.done.update(f"false alarms of the wrong rule: {rule}" for rule in state.wrong_alarms())
        # The store's own check does not know that a log is padded: its disk is another one.
        if not state.padded and tally.draw.random() < OPENED:
            tally.done["states opened by the store"] += 1
            if not opens(state.files, folder / "opened.db"):
                tally.fail(f"{name}, {state.style}: refused by the store", "false alarm")


def flip(tally: Tally, folder: Path, name: str) -> None:
    files = killed(folder / "killed.db", tally.draw, tally.draw.choice([3, 12, 40]))
    found = flip_all(files, bits_of(files["-wal"], tally.draw, FLIPS))
    tally.done["flips"] += found.flips
    tally.done["flips that lose commits"] += found.losing
    tally.done["noticed without the index"] += found.noticed
    tally.done["noticed with the index"] += found.noticed_with_index
    if found.losing > found.noticed_with_index:
        tally.fail(f"{name}: {found.losing - found.noticed_with_index} flips of a killed process", "undetected")
    if found.alarms_without_loss:
        tally.fail(f"{name}: {found.alarms_without_loss} alarms without a loss", "false alarm")


def run(tally: Tally) -> None:
    """Run rounds until the time is up."""
    undo = remember_checksums()
    try:
        while tally.has_time():
            play(tally)
    finally:
        undo()


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
