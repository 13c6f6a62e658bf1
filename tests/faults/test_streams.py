"""Live streams under faults: processes that are killed in a flood, and disks that cannot be written."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from pausepoint import Engine
from pausepoint.model import Gap, StreamChunk, StreamItem
from tests.faults.floods import CHUNKS, OPERATIONS, Judge, flooding, followed
from tests.faults.test_full_disk import ROOT, SHELL, can_mount
from tests.support.forkserver import ForkServer
from tests.support.loop import PATIENCE, excused, on_loop


@pytest.mark.long
def test_followers_of_killed_processes_see_no_wrong_chunk(folder: Path) -> None:
    careful, careless = Judge(), Judge(heeds_restarts=False)
    with ForkServer("tests.faults.floods") as server:
        killed = asyncio.run(followed(server, folder / "s.db", 3, random.Random(7), [careful, careless]))
    assert killed == 3
    assert careful.wrong == []
    assert careful.counts["Restarted"] >= 1
    assert careful.complete or careful.counts["lost"], careful.seen
    assert careful.counts["StreamChunk"] > OPERATIONS * CHUNKS / 2
    assert careless.wrong  # a follower that ignores restarts shows the same text twice


# disks that cannot be written


class Disk:
    """Makes 50 writes to rings fail, or end early."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, short: bool) -> None:
        self.calls = self.refused = 0
        write = os.pwrite

        def limited(descriptor: int, data: bytes, at: int) -> int:
            self.calls += 1
            if 100 < self.calls <= 150:
                self.refused += 1
                if not short:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return write(descriptor, data[: len(data) // 2], at)
            return write(descriptor, data, at)

        monkeypatch.setattr(os, "pwrite", limited)


@pytest.mark.long
@pytest.mark.parametrize("short", [False, True], ids=["refused", "cut short"])
@on_loop
async def test_a_full_disk_drops_chunks_and_never_fails_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: bool
) -> None:
    disk = Disk(monkeypatch, short)
    async with Engine(tmp_path / "s.db") as engine:
        session = await engine.start(flooding)
        items: list[StreamItem] = [item async for item in session.stream()]
        assert (await session.status()).value == "completed"
    assert disk.refused == 50
    lost = sum(item.lost for item in items if isinstance(item, Gap))
    assert lost >= 25  # a chunk needs up to two writes
    assert lost + sum(isinstance(item, StreamChunk) for item in items) == 1 + OPERATIONS * CHUNKS


@pytest.mark.long
@on_loop
async def test_a_folder_that_cannot_be_made_drops_all_chunks(tmp_path: Path) -> None:
    (tmp_path / "s.db-streams").write_text("in the way")
    async with Engine(tmp_path / "s.db") as engine:
        session = await engine.start(flooding)
        assert [item async for item in session.stream()] == []
        assert (await session.status()).value == "completed"


PROGRAM = """
import asyncio, json, os, sys
from pathlib import Path
from pausepoint import Engine
from tests.faults.floods import flooding

async def main():
    async with Engine(sys.argv[1]) as engine:
        session = await engine.start(flooding, session_id="s")
        items = [item async for item in session.stream()]
        info = await session.info()
        print(json.dumps([info.status.value, len(items)]))

asyncio.run(main())
"""


@pytest.mark.long
@pytest.mark.skipif(not can_mount("tmpfs"), reason="nobody may mount a tmpfs here; the test above stands in")
def test_a_full_tmpfs_under_the_rings_kills_no_process(tmp_path: Path) -> None:
    (tmp_path / "s.db-streams").mkdir()
    mount = f"mount -t tmpfs -o size=32768 tmpfs {tmp_path}/s.db-streams; cd {ROOT}"
    command = [*SHELL, f'{mount}; exec {sys.executable} -c "$PROGRAM" {tmp_path}/s.db']
    with excused():
        done = subprocess.run(
            command, env=os.environ | {"PROGRAM": PROGRAM}, capture_output=True, text=True, timeout=PATIENCE
        )
    assert done.returncode == 0, done.stderr
    status, seen = json.loads(done.stdout)
    assert status == "completed"
    assert 0 < seen < OPERATIONS * CHUNKS  # the disk was full
