"""Ask pyright how much of the public API has complete types: ``python -m tools.typed_names``.

The public API is what `pausepoint` exports, with all members of its classes, and every error. A type that pyright has
to infer, or that leads to one, counts as incomplete: another type checker could infer something else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pausepoint

LEAST = 97.5
"""The percentage of names that must be complete. It may only rise."""


class Found(NamedTuple):
    """The number of public names, and those whose types are incomplete, with the reason."""

    names: int
    incomplete: dict[str, str]

    @property
    def percentage(self) -> float:
        """The percentage of names whose types are complete."""
        return 100 * (self.names - len(self.incomplete)) / self.names


def asked() -> list[dict[str, Any]]:
    """Return the names of the whole package, as pyright reports them. It needs no network."""
    folder = Path(sys.executable).parent
    path = os.pathsep.join([str(folder), *os.get_exec_path()])  # where pyright looks for Python
    command = [sys.executable, "-m", "basedpyright", "--verifytypes", "pausepoint", "--ignoreexternal", "--outputjson"]
    with tempfile.TemporaryDirectory() as empty:  # no settings of a project
        done = subprocess.run(
            command, cwd=empty, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
        )
    try:
        symbols: list[dict[str, Any]] = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    except (ValueError, KeyError):
        said = (done.stderr or done.stdout)[-500:]
        raise SystemExit(f"pyright did not list the names of pausepoint. Run: make venv\n{said}") from None
    return symbols


def public(symbols: list[dict[str, Any]]) -> Found:
    """Return what pyright says about the public API."""
    homes = {f"pausepoint.{home}.{name}" for name, home in pausepoint._HOMES.items()} | {"pausepoint.errors"}
    ours = [each for each in symbols if _belongs(each["name"], homes)]
    incomplete = {
        each["name"]: "; ".join(" ".join(said["message"].split()) for said in each["diagnostics"]) or "a member"
        for each in ours
        if not each["isTypeKnown"] or each["isTypeAmbiguous"]
    }
    return Found(len(ours), incomplete)


def _belongs(name: str, homes: set[str]) -> bool:
    """Return whether a name is public, or a member of something public.

    >>> _belongs("pausepoint.a.B.c", {"pausepoint.a.B"}), _belongs("pausepoint.a.Be", {"pausepoint.a.B"})
    (True, False)
    """
    words = name.split(".")
    return any(".".join(words[:count]) in homes for count in range(2, len(words) + 1))


def main() -> int:
    """Print the figure, and the names that are incomplete. Return 1 if there are too many."""
    found = public(asked())
    for name, why in found.incomplete.items():
        print(f"{name}: {why[:150]}")
    print(f"{found.percentage:.1f} % of {found.names} public names have complete types; at least {LEAST} % must.")
    return 0 if found.percentage >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
