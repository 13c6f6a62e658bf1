"""A process that is killed at every call of the system with which it writes a snapshot."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pausepoint.errors import DamagedSnapshot
from pausepoint.orchestrator import FileStateStore, RunStateSnapshot
from tests.orchestrator.samples import NEW, OLD
from tests.support.forkserver import ForkServer


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer("tests.orchestrator.jobs") as server:
        yield server


def saved(server: ForkServer, folder: Path, kind: str, at: int) -> list[str]:
    """Have the new snapshot saved over the old one, by a process that dies at a call; at 0: the calls that it makes."""
    asyncio.run(FileStateStore(folder).save_snapshot(OLD))
    child = server.start("tests.orchestrator.jobs:save", folder=str(folder), kind=kind, at=at)
    if at:
        assert child.wait() == -signal.SIGKILL
        return []
    calls: list[str] = child.hear()["calls"]
    assert child.wait() == 0
    return calls


def found(folder: Path) -> RunStateSnapshot | None:
    return asyncio.run(FileStateStore(folder).load_snapshot())


@pytest.mark.covers("S5.48", "S5.49", "S5.50")
def test_killed_at_any_call_the_former_snapshot_is_there_or_the_new_one(server: ForkServer, tmp_path: Path) -> None:
    calls = saved(server, tmp_path / "undisturbed", "sound", 0)
    assert found(tmp_path / "undisturbed") == NEW
    seen: list[RunStateSnapshot | None] = []
    for at in range(1, len(calls) + 1):
        folder = tmp_path / str(at)
        saved(server, folder, "sound", at)
        seen.append(found(folder))
        assert seen[-1] in (OLD, NEW), f"killed at call {at}, {calls[at - 1]}"
        asyncio.run(FileStateStore(folder).save_snapshot(NEW))
        assert os.listdir(folder / ".devs") == ["state_snapshot.json"], "what was left over is cleared"
    assert set(map(str, seen)) == {str(OLD), str(NEW)}, "some kills came before the new one was there, and some after"


def test_a_store_that_writes_in_place_fails_that_test(server: ForkServer, tmp_path: Path) -> None:
    calls = saved(server, tmp_path / "undisturbed", "in place", 0)
    lost = 0
    for at in range(1, len(calls) + 1):
        saved(server, tmp_path / str(at), "in place", at)
        try:
            lost += found(tmp_path / str(at)) not in (OLD, NEW)
        except DamagedSnapshot:
            lost += 1
    assert lost >= 1


@pytest.mark.covers("S5.48", "S5.52")
def test_it_is_on_disk_before_it_gets_its_name_and_the_name_is_too(server: ForkServer, tmp_path: Path) -> None:
    """What a power failure may undo is not seen after a kill; so this looks at the order of the calls."""
    calls = saved(server, tmp_path, "sound", 0)
    written, renamed = calls.index("write"), calls.index("rename")
    assert "fsync" in calls[written:renamed]
    assert "fsync" in calls[renamed:]
