"""Plans for tests: commands that leave a trace, can be held in their middle, and take effect once per key."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

SCRIPT = """\
# What every task does: say that it began, wait while it is held, take effect unless that was done before.
echo "$1 $$" >> began
while [ -e "hold-$1" ]; do sleep 0.02; done
mkdir -p done
echo "$1" > "part-$$"
ln "part-$$" "done/$DEVS_KEY" 2> /dev/null || true
rm "part-$$"
"""

NEEDS = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
"""The small plan of most tests: one, two beside each other, one."""


def task(id: str, needs: list[str] | None = None, **more: Any) -> dict[str, Any]:
    return {"id": id, "needs": needs or [], "run": ["sh", "task.sh", id]} | more


def small() -> list[dict[str, Any]]:
    return [task(id, needs) for id, needs in NEEDS.items()]


def write_plan(folder: Path, tasks: list[dict[str, Any]], **head: Any) -> Path:
    """A plan file in its own workspace."""
    (folder / "work").mkdir(exist_ok=True)
    (folder / "work" / "task.sh").write_text(SCRIPT)
    path = folder / "plan.json"
    path.write_text(json.dumps({"workspace": "work", "agents": 2, "grace": 0.5, "tasks": tasks} | head, indent=1))
    return path


def lines(folder: Path, name: str) -> list[str]:
    path = folder / "work" / name
    return path.read_text().splitlines() if path.exists() else []


def effects(folder: Path) -> list[str]:
    """What the tasks did to the world, in order: one act each, by the key that they were given."""
    found = sorted((folder / "work" / "done").glob("*"), key=lambda path: path.stat().st_mtime_ns)
    return [path.read_text().strip() for path in found]


def in_order(found: list[str]) -> bool:
    """Each task of the small plan once, and behind what it needs."""
    return sorted(found) == list(NEEDS) and all(
        found.index(need) < found.index(id) for id, needs in NEEDS.items() for need in needs
    )


def alive(pid: int) -> bool:
    """Whether a process could still do something: a zombie cannot."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        if os.path.exists("/proc/self/stat"):
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pids(folder: Path) -> list[int]:
    """The processes of the commands that began."""
    return [int(line.split()[1]) for line in lines(folder, "began")]
