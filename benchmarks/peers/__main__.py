"""Measure Pausepoint beside other engines: ``make bench-peers``, or ``python -m benchmarks.peers``."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import report
from benchmarks.peers.environments import CONTENDERS, PLACE, Entry, build
from benchmarks.peers.measure import Bench, say, start
from benchmarks.peers.syncs import counted
from benchmarks.peers.workloads import GROWTHS, QUICK, WORKLOADS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the workloads and print or store the results. Return 1 if a contender failed at something that it has."""
    options = _parser().parse_args(arguments)
    began = time.time()
    keys = list(CONTENDERS) if not options.contender else ["raw", *options.contender]
    if options.quick:
        keys = ["raw", "pausepoint"]
    contenders: dict[str, Any] = {}
    entries: list[Entry] = []
    for key in dict.fromkeys(keys):
        say(f"building {key}")
        problem = build(CONTENDERS[key])
        found = {"failed": problem} if problem else start(CONTENDERS[key], {"work": "versions"})
        if "versions" in found:
            entries.append(CONTENDERS[key])
            contenders[key] = {"versions": found["versions"]}
        else:
            contenders[key] = {"absent": found.get("failed", "it does not answer")}
    results: report.Results = {"contenders": contenders}
    parent = options.dir or PLACE
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=parent) as name:
        bench = Bench(Path(name), options.limit, 2 if options.quick else options.repeats)
        results |= _measured(bench, entries, options)
        results["facts"] = _facts(bench, began, _limits(bench, results))
    if options.docs:
        part = (options.contender or options.only or options.growth) and report.FILE.exists()
        old = json.loads(report.FILE.read_text("utf-8")) if part else None
        results = report.merged(old, results) if old else results
        report.write(results)
    print(json.dumps(results, indent=1, ensure_ascii=False) if options.json else report.tables(results))
    return int(any("failed" in cell for cells in results["workloads"].values() for cell in cells.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", choices=[each.key for each in WORKLOADS], help="one workload")
    parser.add_argument("--contender", action="append", choices=CONTENDERS, help="only this one, beside raw SQLite")
    parser.add_argument("--repeats", type=int, default=5, help="how often each workload runs (default: 5)")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for the work of one cell (default: 60)")
    parser.add_argument("--growth", action="append", choices=[each.key for each in GROWTHS], help="one plot")
    parser.add_argument("--growth-limit", type=float, default=60.0, help="seconds for a point of a plot (default: 60)")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to measure (default: build/bench-peers)")
    parser.add_argument("--quick", action="store_true", help="a tiny sample of raw and Pausepoint, without meaning")
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks-peers.json, the plots and the page")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


def _measured(bench: Bench, entries: list[Entry], options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"workloads": {}, "syncs": {}, "growths": {}}
    everything = not options.only and not options.growth
    bench.growth_limit = options.growth_limit
    wanted = [each for each in WORKLOADS if everything or each.key in (options.only or ())]
    if options.quick:
        wanted = [dataclasses.replace(each, size=QUICK[each.key]) for each in WORKLOADS if each.key in QUICK]
    for workload in wanted:
        say(f"{_clock()} {workload.key}")
        found["workloads"][workload.key] = bench.workload(workload, entries)
    if options.quick:
        return found
    for entry in entries if any(each.key == "W1" for each in wanted) else ():
        say(f"{_clock()} fsyncs of {entry.key}")
        found["syncs"][entry.key] = counted(entry, bench.folder, bench.limit)
    for growth in [each for each in GROWTHS if everything or each.key in (options.growth or ())]:
        say(f"{_clock()} growth over {growth.key}")
        found["growths"][growth.key] = bench.growth(growth, entries)
    return found


def _facts(bench: Bench, began: float, limits: dict[str, float]) -> dict[str, Any]:
    return {
        "date": datetime.datetime.fromtimestamp(began, datetime.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "cores": os.cpu_count(), "loads": [round(load, 1) for load in bench.loads], "repeats": bench.repeats,
        "limits": limits, "minutes": round((time.time() - began) / 60, 1),
    }  # fmt: skip


def _limits(bench: Bench, results: report.Results) -> dict[str, float]:
    workloads = dict.fromkeys(results["workloads"], bench.limit)
    return workloads | dict.fromkeys(results["growths"], bench.growth_limit)


def _clock() -> str:
    return time.strftime("%H:%M:%S")


if __name__ == "__main__":
    sys.exit(main())
