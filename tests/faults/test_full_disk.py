"""A disk without free space: which verbs may still write, what they use, and how the store recovers."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import pausepoint
from pausepoint.stores.sqlite.ballast import SIZE
from tests.faults.full_disk import CAPACITY
from tests.support.loop import PATIENCE

ROOT = Path(__file__).parents[2]
MOUNTS = {
    "tmpfs": f"mount -t tmpfs -o size={CAPACITY} tmpfs disk",
    "ext4": f"truncate -s {CAPACITY} image && mkfs.ext4 -q -m 0 -O ^has_journal image && mount -o loop image disk",
}
# In its own mount namespace, the disk is private and disappears with its last process.
SHELL = ["unshare", "--mount", *(["--map-root-user"] if os.getuid() else []), "sh", "-ec"]


def run(folder: Path, kind: str, reserve: int = SIZE) -> dict[str, Any]:
    """Run the scenario on a disk of this kind in its own process, and return the observations."""
    program = f"exec {sys.executable} -m tests.faults.full_disk {folder}/disk {kind} {reserve}"
    (folder / "disk").mkdir()
    mount = f"cd {folder}; {MOUNTS[kind]}; cd {ROOT}; " if kind in MOUNTS else ""
    command = [*SHELL, mount + program] if mount else ["sh", "-ec", program]
    paths = (str(Path(pausepoint.__file__).parents[1]), str(ROOT))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


@functools.cache
def can_mount(kind: str) -> bool:
    """Return whether this user may mount such a disk on this machine."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            command = [*SHELL, f"mkdir disk; {MOUNTS[kind]}"]
            return subprocess.run(command, cwd=folder, capture_output=True, timeout=PATIENCE).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False


@pytest.fixture
def folder(tmp_path: Path, kind: str) -> Path:
    if kind in MOUNTS and not can_mount(kind):
        pytest.skip(f"nobody may mount a {kind} here; the budget stands in")
    return tmp_path


@pytest.mark.long
@pytest.mark.covers("S1.19")
@pytest.mark.parametrize("kind", ["budget", "tmpfs", "ext4"])
def test_a_full_disk_can_be_read_stopped_cleaned_and_used_again(folder: Path, kind: str) -> None:
    seen = run(folder, kind)
    assert seen.get("ended", "") == ""
    # New sessions and results are refused with a helpful message, and take nothing from the ballast.
    for refused in ("start", "checkpoint", "start in the morning"):
        full = r"StoreReadOnly: \S+/store.db: the disk is full.*\. Nothing was written"
        assert re.match(full, seen[refused]), refused
        assert "becomes writable on its own" in seen[refused]
    assert seen["trouble"].startswith("read-only since 20")
    assert seen["ballast at first"] == seen["ballast after starts"] == seen["ballast after checkpoint"] == SIZE
    assert seen["seconds for 100 refusals"] < 60  # none of them waits for the disk
    assert seen["reading"] == seen["reading in the morning"] == ["DONE", True, True]
    # Pausing everything and cleaning up work, although a plain SQL DELETE fails.
    assert (seen["pause"], seen["cut"]) == ("", "paused")
    assert 0 < seen["ballast after pause"] < SIZE
    assert seen["delete"] == "FullError"
    assert (seen["remove"], seen["gc"]) == ("", "")
    assert seen["bytes given back"] > SIZE
    assert (seen["trouble after cleaning"], seen["ballast after cleaning"]) == (None, SIZE)
    # The next engine finds the disk full again. After space is free, unacknowledged work runs again.
    assert seen["trouble in the morning"].startswith("read-only since 20")
    assert (seen["trouble at last"], seen["ballast at last"]) == (None, SIZE)
    assert seen["finishing at last"] == ["completed", "FINISHING", 2]
    assert seen["cut at last"] == ["completed", "CUT", 2]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["budget"])
def test_a_store_without_ballast_can_neither_be_stopped_nor_cleaned(folder: Path, kind: str) -> None:
    seen = run(folder, kind, reserve=0)
    assert seen["reading"] == ["DONE", True, True]
    assert [seen[act].partition(":")[0] for act in ("pause", "remove", "gc")] == ["StoreReadOnly"] * 3
    assert "StoreReadOnly" in seen["ended"]  # not even the holds can be released
