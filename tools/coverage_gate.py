"""Fail if the branch coverage of the engine and the stores is too low.

``coverage report --fail-under`` mixes lines and branches into one figure; our limit is for branches alone.
"""

from __future__ import annotations

import json
import subprocess
import sys

# The rooms and modules that the data of a session depends on. Front ends are measured, but have no limit.
GUARDED = (
    "artifacts/*", "engine/*", "log/*", "orchestrator/*", "runtime/*", "stores/*",
    "definition/artifacts", "definition/functions",
    "model/chunks", "model/files", "model/questions", "model/schemas", "threads",
)  # fmt: skip


def covered_branches() -> float:
    include = ",".join(f"*/pausepoint/{name}" if "*" in name else f"*/pausepoint/{name}.py" for name in GUARDED)
    report = subprocess.run(
        [sys.executable, "-m", "coverage", "json", "--quiet", "-o", "-", f"--include={include}"],
        stdout=subprocess.PIPE,
        check=True,
    )
    totals = json.loads(report.stdout)["totals"]
    if not totals["num_branches"]:
        raise SystemExit(
            "No module of the engine or the stores was measured. Check that .venv belongs to this checkout."
        )
    return 100.0 * float(totals["covered_branches"]) / float(totals["num_branches"])


def main() -> None:
    needed = float(sys.argv[1])
    reached = covered_branches()
    print(f"Branch coverage of engine and stores: {reached:.1f} % (required: {needed:g} %)")
    if reached < needed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
