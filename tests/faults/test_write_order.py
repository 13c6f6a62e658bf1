"""Power loss: the recorded order of writes and syncs, replayed into the states that a disk can be in."""

from __future__ import annotations

import random

import pytest

from tests.faults.bench_server import Server
from tests.faults.crash_states import Disk
from tests.faults.vfs import Touch

PROGRAMS = ["first run", "loop", "folding", "threaded"]
STATES = 100  # drawn for each program; equal states are checked once


@pytest.mark.long
@pytest.mark.covers("S1.53", "S3.89")
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_power_loss_takes_what_was_acknowledged(bench_server: Server, program: str) -> None:
    states = bench_server.bench(program).lose_power(1, STATES)
    assert len(states) >= 40
    assert [loss for loss in states if loss.complaints] == []


@pytest.mark.long
def test_a_store_that_does_not_sync_every_commit_is_caught(bench_server: Server) -> None:
    states = bench_server.bench("loop", synchronous="NORMAL").lose_power(1, STATES)
    lost = [loss.name for loss in states if any(text.startswith("lost: ") for text in loss.complaints)]
    assert len(lost) >= 8


def test_what_was_not_synced_may_be_missing_and_what_was_stays() -> None:
    disk = Disk(b"")
    disk.touch(Touch(1, "write", "", 0, b"kept"))
    disk.touch(Touch(2, "sync", ""))
    disk.touch(Touch(3, "write", "", 4, b"lost"))
    assert disk.crash("synced", random.Random(0)) == {"": b"kept"}
    assert disk.crash("all", random.Random(0)) == {"": b"keptlost"}


def test_a_new_side_file_has_its_name_after_its_first_sync_only() -> None:
    disk = Disk(b"")
    disk.touch(Touch(1, "write", "-wal", 0, b"header"))
    assert "-wal" not in disk.crash("synced", random.Random(0))
    disk.touch(Touch(2, "sync", "-wal"))
    assert disk.crash("synced", random.Random(0))["-wal"] == b"header"


def test_a_deleted_file_may_come_back_until_its_folder_is_synced() -> None:
    disk = Disk(b"")
    for touch in (
        Touch(1, "write", "-journal", 0, b"old"),
        Touch(2, "sync", "-journal"),
        Touch(3, "delete", "-journal"),
    ):
        disk.touch(touch)
    assert disk.crash("synced", random.Random(0))["-journal"] == b"old"
    assert "-journal" not in disk.crash("all", random.Random(0))
    disk.touch(Touch(4, "write", "-wal", 0, b"new"))
    disk.touch(Touch(5, "sync", "-wal"))
    assert disk.crash("synced", random.Random(0)) == {"": b"", "-wal": b"new"}


def test_torn_writes_leave_whole_sectors() -> None:
    disk = Disk(bytes(4096))
    disk.touch(Touch(1, "write", "", 0, b"\1" * 4096))
    for seed in range(20):
        content = disk.crash("sectors", random.Random(seed))[""]
        content = content.ljust(4096, b"\0")
        assert all(len(set(content[start : start + 512])) == 1 for start in range(0, 4096, 512))
