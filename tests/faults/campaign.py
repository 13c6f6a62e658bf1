"""Run all instruments of this folder for a given time, and report what they tried and found.

    python -m tests.faults.campaign --seconds 7200 --seed 1

Every instrument is a process of its own and gets its share of the time; two run at once. Faults are printed when they
are found. The report at the end is also written to build/campaign.json. The exit code is 1 if there was a fault, or if
an instrument tried nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.tally import FAULTS
from tests.support.forkserver import ROOT


class Instrument(NamedTuple):
    """A module with a command line, and its share of the time in parts of the whole."""

    module: str
    share: int


INSTRUMENTS = {
    "processes": Instrument("tests.faults.processes", 5),
    "kill points": Instrument("tests.faults.vfs_campaign", 4),
    "write-ahead log": Instrument("tests.faults.wal_campaign", 2),
    "power loss": Instrument("tests.faults.libc.campaign", 4),
    "programs": Instrument("tests.faults.random_programs", 4),
    "concurrency": Instrument("tests.faults.concurrency", 20),
    "neighbours": Instrument("tests.faults.neighbours", 3),
    "standstill": Instrument("tests.faults.standstill", 2),
    "cut verbs": Instrument("tests.faults.cuts", 2),
    "hostile names": Instrument("tests.faults.hostile", 2),
    "schedules": Instrument("tests.faults.schedules", 1),
    "live streams": Instrument("tests.faults.floods", 1),
    "artifact disk": Instrument("tests.faults.folder_disk", 1),
    "generated requests": Instrument("tests.server.generated", 2),
}
AT_ONCE = 2

Report = dict[str, Any]


def play(name: str, seconds: float, seed: int, instruments: Mapping[str, Instrument]) -> Report:
    """Run one instrument, and return its counts. They are empty if it ended without a report."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        command = [sys.executable, "-m", instruments[name].module, "--seconds", f"{seconds:.2f}", "--seed", f"{seed}"]
        with subprocess.Popen(
            [*command, "--report", str(file)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if "WRONG" in line or (not file.exists() and "Error" in line):
                    print(f"{name}: {line.rstrip()}", flush=True)
        found: Report = json.loads(file.read_text()) if file.exists() else {"seed": seed, "seconds": 0, "done": {}}
    found["command"] = " ".join(["python", *command[1:]])
    found["code"] = process.returncode
    print(f"{name}: {'sound' if not process.returncode else 'NOT SOUND'}, {found['seconds']:.0f} s", flush=True)
    return found


def table(reports: Mapping[str, Report]) -> list[str]:
    """Return the lines of the report: what each instrument tried, and how many faults of each kind it found."""
    lines = [f"{'instrument':<16} {'tried':<45} {'count':>11}"]
    for name, report in reports.items():
        lines += [f"{name:<16} {what:<45} {count:>11,}" for what, count in sorted(report["done"].items())]
        if report["code"]:
            lines.append(f"{name:<16} NOT SOUND: it found a fault, tried nothing or failed itself")
    faults = sum((Counter(report.get("faults", {})) for report in reports.values()), Counter[str]())
    return [*lines, "", ", ".join(f"{fault}: {faults[fault]}" for fault in FAULTS)]


def run(
    seconds: float, seed: int, names: Sequence[str], instruments: Mapping[str, Instrument] = INSTRUMENTS
) -> dict[str, Report]:
    """Run the named instruments, each for its share of the time."""
    whole = sum(instruments[name].share for name in names) / min(AT_ONCE, len(names))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        started = {
            name: pool.submit(play, name, seconds * instruments[name].share / whole, seed, instruments)
            for name in sorted(names, key=lambda name: -instruments[name].share)
        }
        return {name: started[name].result() for name in names}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="how long all of it takes (default: 600)")
    parser.add_argument("--seed", type=int, default=None, help="which trials to draw (default: others each time)")
    parser.add_argument("--only", action="append", choices=INSTRUMENTS, help="run this instrument (repeatable)")
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    print(f"Seed {seed}, {given.seconds:.0f} seconds", flush=True)
    reports = run(given.seconds, seed, given.only or list(INSTRUMENTS))
    print("\n".join(table(reports)))
    file = ROOT / "build" / "campaign.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(reports, indent=2))
    return 1 if any(report["code"] for report in reports.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
