"""Run jobs: each in a process of its own, all contenders in turn, again and again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import ROOT, Entry
from benchmarks.peers.workloads import Found, Growth, Workload

HARD = 60.0
"""Seconds after the limit of a job until its process is ended: starts, ends and the work around the measured part."""

PREPARE = 240.0
"""The same for a job that prepares files: 1,000 turns of a chat take some engines minutes on a busy machine."""

Job = dict[str, Any]

_ERROR = re.compile(r"[\w.]+(?:Error|Exception|Timeout)\b")


def start(entry: Entry, job: Job, prefix: Sequence[str] = (), hard: float = HARD) -> Found:
    """Run one job and return its sample: a figure, ``lacks``, ``over`` or ``failed`` with a text."""
    given = {"spawned": time.time(), "server": entry.server()} | job
    module = f"benchmarks.peers.contenders.{entry.key}"
    command = [*prefix, entry.python, "-m", module, json.dumps(given)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        out, errors = process.communicate(timeout=job.get("limit", 0.0) + hard)
    except subprocess.TimeoutExpired:
        return {"over": job.get("limit", 0.0)}
    finally:
        _end(process)
    return _answer(process.returncode, out, errors, job)


def _end(process: subprocess.Popen[str]) -> None:
    """End the processes of a job, such as a server that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _answer(code: int, out: str, errors: str, job: Job) -> Found:
    last = out.strip().splitlines()[-1:] or [""]
    if code == 0 and last[0].startswith("{"):
        found: Found = json.loads(last[0])
        return found
    if code == 0 and str(job["work"]).endswith("_prepare"):
        return {"count": 1}  # a process that ends inside a step says nothing
    lines = errors.strip().splitlines() or out.strip().splitlines() or [f"exit {code}"]
    return {"failed": ([line for line in lines if _ERROR.match(line)] or lines)[-1][:300]}


@dataclass
class Cell:
    """The figure of one contender in one workload, over all repeats."""

    values: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        if not self.values:
            return dict(self.notes)
        found: dict[str, Any] = {
            "value": statistics.median(self.values), "lowest": min(self.values), "highest": max(self.values),
            "repeats": len(self.values),
        }  # fmt: skip
        if self.ratios:
            found |= {"ratio": statistics.median(self.ratios)}
            found |= {"ratio_lowest": min(self.ratios), "ratio_highest": max(self.ratios)}
        if self.cpu:
            found["cpu"] = statistics.median(self.cpu)
        return {name: _round(value) for name, value in found.items()} | self.notes


def _round(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


class Bench:
    """A run: its folder, its limit of time for each cell, and how many times it repeats."""

    def __init__(self, folder: Path, limit: float, repeats: int) -> None:
        self.folder, self.limit, self.repeats = folder, limit, repeats
        self.growth_limit = limit
        self._ready: dict[tuple[str, str], Found] = {}
        self._samples: dict[tuple[str, str, str, int], Found] = {}
        self.loads: list[float] = []

    def workload(self, workload: Workload, entries: Sequence[Entry]) -> dict[str, Any]:
        """Measure a workload with all contenders in turn."""
        cells = {entry.key: Cell() for entry in entries}
        ready = [entry for entry in entries if self._prepared(workload, entry, cells[entry.key])]
        for repeat in range(1 if workload.once else self.repeats):
            turn = repeat % len(entries)  # another contender is the first in every repeat
            self._repeat(workload, [*ready[turn:], *ready[:turn]], repeat, cells)
        return {key: cell.as_json() for key, cell in cells.items()}

    def _prepared(self, workload: Workload, entry: Entry, cell: Cell) -> bool:
        """Make the files that every repeat gets a copy of. Workloads that need the same files share them."""
        if workload.prepare is None:
            return True
        found = self._ready.get((workload.work, entry.key))
        if found is None:
            job = self._job(f"{workload.work}_prepare", self._place(workload, entry), workload.prepare)
            found = self._ready[workload.work, entry.key] = start(entry, job, hard=PREPARE)
        if "count" not in found:
            cell.notes |= found
            return False
        if workload.key == "W10":
            cell.notes["sessions"] = found["count"]
        return True

    def _repeat(self, workload: Workload, entries: Iterable[Entry], repeat: int, cells: dict[str, Cell]) -> None:
        seen: dict[str, float] = {}
        self.loads.append(os.getloadavg()[0])
        for entry in entries:
            cell = cells[entry.key]
            if "value" not in cell.notes and cell.notes.keys() & {"lacks", "over", "failed"}:
                continue
            found = self._sample(workload, entry, repeat)
            if "count" not in found:
                cell.notes |= found
                continue
            cell.values.append(workload.read(found))
            if "cpu" in found["notes"]:
                cell.cpu.append(found["notes"]["cpu"] * 1e6)
            seen[entry.key] = cell.values[-1] / (found["unit"] if workload.in_units else 1.0)
            if workload.key == "W6":
                cell.notes["sessions"] = found["count"]
        for key, value in seen.items():
            if seen.get("raw"):
                cells[key].ratios.append(value / seen["raw"])

    def _sample(self, workload: Workload, entry: Entry, repeat: int) -> Found:
        """Run a job, or return its sample if another workload has read another figure from it."""
        key = (workload.work, json.dumps(workload.size), entry.key, repeat)
        if key not in self._samples:
            self._samples[key] = self._run(workload, entry)
        return self._samples[key]

    def _place(self, workload: Workload, entry: Entry) -> Path:
        return self.folder / f"{workload.work}-{entry.key}-ready"

    def _run(self, workload: Workload, entry: Entry) -> Found:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            place = Path(name, "data")
            if workload.prepare is not None:
                shutil.copytree(self._place(workload, entry), place)
            return start(entry, self._job(workload.work, place, workload.size))

    def _job(self, work: str, folder: Path, size: dict[str, int]) -> Job:
        return {"work": work, "folder": str(folder), "size": size, "limit": self.limit}

    def growth(self, growth: Growth, entries: Sequence[Entry]) -> dict[str, Any]:
        """Measure a growth plot: microseconds per step, and multiples of the unit of the same process."""
        points: dict[str, list[dict[str, Any]]] = {entry.key: [] for entry in entries}
        if growth.key == "steps":
            for entry in entries:
                found = self._once(growth, entry, {"steps": growth.sizes[-1] + 1})
                points[entry.key] = _laps(found, growth, self.growth_limit)
            return points
        for value in growth.sizes:
            for entry in entries:
                if points[entry.key] and "over" in points[entry.key][-1]:
                    continue  # a larger size takes longer
                found = self._once(growth, entry, growth.size(value))
                points[entry.key].append({"at": value} | _point(found))
        return points

    def _once(self, growth: Growth, entry: Entry, size: dict[str, int]) -> Found:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            job = self._job(growth.work, Path(name, "data"), size) | {"limit": self.growth_limit}
            return start(entry, job, hard=self.growth_limit)


def _point(found: Found) -> dict[str, Any]:
    if not found.get("count"):
        return {name: found[name] for name in ("lacks", "over", "failed") if name in found} or {"over": 0}
    each = found["seconds"] / found["count"]
    used = found["notes"]["cpu"] * 1e6
    return {"us": _round(each * 1e6), "units": _round(each / found["unit"]), "cpu": _round(used)}


def _laps(found: Found, growth: Growth, limit: float) -> list[dict[str, Any]]:
    """Return the points of a plot over steps. The limit of time may end the session before the last of them."""
    if "notes" not in found:
        return [{"at": growth.sizes[0]} | _point(found)]
    notes = found["notes"]
    points: list[dict[str, Any]] = []
    for value in growth.sizes:
        if f"at {value}" not in notes:
            points.append({"at": value, "over": limit})
            break
        each, used = notes[f"at {value}"], notes[f"cpu at {value}"]
        point = {"us": each * 1e6, "units": each / found["unit"], "cpu": used * 1e6}
        points.append({"at": value} | {name: _round(number) for name, number in point.items()})
    return points


def say(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)
