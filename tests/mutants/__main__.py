"""Try mutants: put one fault after the other into a copy of the project, and run the tests that must notice it.

    python -m tests.mutants                          # all of them
    python -m tests.mutants --only old-fence-commits # some, by name
    python -m tests.mutants --sample 10 --seed 3     # some, at random
    python -m tests.mutants --tier short             # the twenty that `make test` alone must notice

Ends with 1 if fewer than 95 % are caught, or one of the twenty is not, and with 2 if the tests fail without a mutant or
say nothing about one.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.catalogue import CATALOGUE, SHORT
from tests.mutants.mutant import Mutant
from tests.mutants.workshop import Trial, Workshop
from tools.suite import MARKS

SCORE = 95
"""The share of mutants, in percent, that the tests must catch."""

CAUGHT = ("caught", "timed out")


def main(words: Sequence[str] | None = None, catalogue: Sequence[Mutant] = CATALOGUE) -> int:
    """Try mutants and return the exit code."""
    given = _parser().parse_args(words)
    chosen = _chosen(given, catalogue)
    with Workshop(given.timeout, given.tier) as workshop:
        print(f"{len(chosen)} mutants; first their tests without any", flush=True)
        if broken := _first_without(workshop, chosen):
            print(f"The tests do not pass without a mutant, so mutants say nothing:\n{broken}")
            return 2
        trials: dict[str, Trial] = {}
        started = time.monotonic()
        for number, mutant in enumerate(chosen, 1):
            trial = trials[mutant.name] = workshop.try_out(mutant)
            print(f"{number:3}/{len(chosen)} {trial.verdict:9} {trial.seconds:4.0f} s  {mutant.name}", flush=True)
            if trial.verdict == "no result":
                print(trial.said, flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(_report(chosen, trials), indent=1) + "\n", "utf-8")
    return _summary(chosen, trials, time.monotonic() - started, 100 if given.tier == "short" else SCORE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", metavar="NAME", help="try this mutant; may be repeated")
    parser.add_argument("--room", metavar="ROOM", help="try the mutants of a room, such as stores/sqlite")
    parser.add_argument("--sample", type=int, metavar="N", help="try so many, chosen at random")
    parser.add_argument("--seed", type=int, default=0, help="for --sample (default: 0)")
    parser.add_argument("--tier", choices=MARKS, default="all", help="run the tests of this tier only (default: all)")
    parser.add_argument("--timeout", type=float, default=150.0, help="seconds for the tests of a mutant (default: 150)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the results there as well")
    return parser


def _chosen(given: argparse.Namespace, catalogue: Sequence[Mutant]) -> list[Mutant]:
    unknown = set(given.only or ()) - {mutant.name for mutant in catalogue}
    if unknown:
        sys.exit(f"There is no mutant {min(unknown)!r}. tests/mutants/ has the names.")
    names = given.only or (SHORT if given.tier == "short" else None)
    found = [mutant for mutant in catalogue if names is None or mutant.name in names]
    found = [mutant for mutant in found if given.room in (None, mutant.room)]
    if given.sample is not None:
        found = random.Random(given.seed).sample(found, min(given.sample, len(found)))
    if not found:
        sys.exit("No mutant is left to try. Leave out --room or --sample.")
    return found


def _first_without(workshop: Workshop, chosen: Sequence[Mutant]) -> str:
    """Run the tests of all chosen mutants without one. Return what went wrong; empty if all pass."""
    patience, workshop.timeout = workshop.timeout, max(workshop.timeout, 60.0 * len(chosen))
    try:
        trial = workshop.run([each for mutant in chosen for each in mutant.chosen])
    finally:
        workshop.timeout = patience
    return "" if trial.verdict == "survived" else trial.said


def _report(chosen: Sequence[Mutant], trials: dict[str, Trial]) -> list[dict[str, object]]:
    return [
        {"name": each.name, "room": each.room, "breaks": each.breaks, "verdict": trials[each.name].verdict,
         "seconds": round(trials[each.name].seconds, 1), "said": trials[each.name].said}
        for each in chosen
    ]  # fmt: skip


def _summary(chosen: Sequence[Mutant], trials: dict[str, Trial], seconds: float, least: int) -> int:
    """Print what the trials showed, and return the exit code."""
    caught = [each for each in chosen if trials[each.name].verdict in CAUGHT]
    late = sum(trials[each.name].verdict == "timed out" for each in chosen)
    survivors = [each for each in chosen if trials[each.name].verdict == "survived"]
    silent = [each for each in chosen if trials[each.name].verdict == "no result"]
    for each in survivors:
        print(f"survived: {each.name} ({each.room}). {each.breaks}\n    {each.before!r}\n    {each.after!r}")
    score = 100 * len(caught) / len(chosen)
    by_time = f", {late} of them by time-out" if late else ""
    print(f"{len(caught)} of {len(chosen)} mutants caught{by_time}: {score:.1f} % in {seconds / 60:.1f} minutes")
    if silent:
        print(f"The tests said nothing about {', '.join(each.name for each in silent)}.")
        return 2
    return 0 if score >= least else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the copy is deleted, and its tests end
    sys.exit(main())
