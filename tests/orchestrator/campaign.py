"""A large graph under kills and pauses at random: ``python -m tests.orchestrator.campaign --kills 100``.

Prints what is wrong, and figures. Each round works through the whole graph once; the same seed draws the same graphs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.orchestrator.ordeal import Ordeal
from tests.support.folders import fast_folder
from tests.support.forkserver import ForkServer

TASKS, NEEDS, AGENTS = 1_700, 1_100, 50


def round_of(server: ForkServer, folder: Path, seed: int, kills: int) -> Ordeal:
    """Work through one graph, and disturb that until there were so many kills, or it is done."""
    ordeal = Ordeal(server, folder, tasks=TASKS, needs=NEEDS, agents=AGENTS, seed=seed)
    while ordeal.kills < kills and not ordeal.done:
        kind = ordeal.draw.random()
        if kind < 0.1:
            ordeal.paused(after=ordeal.draw.randrange(60))
        elif kind < 0.5:
            ordeal.live(die_after=ordeal.draw.randint(1, 120))
        else:
            ordeal.killed_after(ordeal.draw.uniform(0, 0.2))
    ordeal.live()
    if ordeal.last.get("status") == "paused":  # three processes killed before they got any further: somebody resumes it
        ordeal.live()
    return ordeal


def run(kills: int, seed: int) -> int:
    """How much went wrong."""
    total, failures, began = Counter[str](), 0, time.monotonic()
    with ForkServer("tests.orchestrator.jobs") as server:
        while total["kills"] < kills:
            folder = Path(tempfile.mkdtemp(prefix="pausepoint-", dir=fast_folder()))
            try:
                ordeal = round_of(server, folder / "run", seed, kills - total["kills"])
                wrong = ordeal.wrong()
                effects = ordeal.effects()
            finally:
                shutil.rmtree(folder)
            for each in wrong:
                print(f"WRONG, seed {seed}: {each}", flush=True)
            failures += len(wrong)
            total.update(
                graphs=1, kills=ordeal.kills, pauses=ordeal.pauses, processes=ordeal.lives, tasks=len(ordeal.graph),
                effects=len(effects), attempts=sum(tries for _, tries in effects),
            )  # fmt: skip
            seed += 1
    for name, count in total.items():
        print(f"{name:<10} {count:>9,}")
    print(f"{failures} wrong, in {time.monotonic() - began:.0f} s")
    return failures


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code is 1 if something was wrong."""
    parser = argparse.ArgumentParser("python -m tests.orchestrator.campaign")
    parser.add_argument("--kills", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="of the first graph (default: 1)")
    options = parser.parse_args(arguments)
    return 1 if run(options.kills, options.seed) else 0


if __name__ == "__main__":
    sys.exit(main())
