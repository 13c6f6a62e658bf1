"""The folder with a session's files, below the verbs: clean-ups next to uploads, and copies that fail."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from pausepoint.stores.disk import Folder, Upload, share
from tests.files.kit import TEXT, everything_in, folder_of, standing
from tests.support.loop import PATIENCE, on_loop

NAME = "file_000000000000.txt"


def publish(folder: Folder) -> Upload:
    """Publish a file, also if its name is taken, and return the upload, whose lock is still there."""
    upload = Upload(folder).begin()
    upload.write(TEXT)
    upload.finish()
    upload.take_over(NAME)
    return upload


def test_an_upload_waits_for_the_clean_up_that_deletes_a_leftover_with_its_name(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "store" / "s1" / "files")
    publish(folder).close()  # by a process that was killed before it recorded the file
    (leftover,) = folder.strays(())
    again: list[Upload] = []
    uploading = Thread(target=lambda: again.append(publish(folder)))
    uploading.start()
    uploading.join(0.2)  # long enough to take over the name, if nothing stopped it
    leftover.remove()
    leftover.close()
    uploading.join(PATIENCE)
    again[0].close()
    with folder.read(NAME) as file:
        assert file.read() == TEXT


def test_a_clean_up_keeps_a_file_that_took_over_the_name_before_it_got_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path / "store" / "s1" / "files")
    publish(folder).close()
    flock, again = fcntl.flock, list[Upload]()

    def late(descriptor: int, operation: int) -> None:
        if operation & fcntl.LOCK_EX:
            monkeypatch.setattr(fcntl, "flock", flock)
            again.append(publish(folder))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    (leftover,) = folder.strays(())
    leftover.remove()
    leftover.close()
    again[0].close()
    with folder.read(NAME) as file:
        assert file.read() == TEXT


def test_a_clean_up_deletes_a_leftover(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "store" / "s1" / "files")
    publish(folder).close()
    (leftover,) = folder.strays(())
    leftover.remove()
    leftover.close()
    assert everything_in(tmp_path) == []


def test_a_copy_that_fails_leaves_nothing_that_the_next_one_takes_for_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = (Folder(tmp_path / "store" / name / "files") for name in ("s1", "s2"))
    publish(source).close()
    rename, refusals = os.rename, [OSError(errno.EIO, "Input/output error")]

    def refused(*args: Any, **kwargs: Any) -> None:
        if refusals:
            raise refusals.pop()
        rename(*args, **kwargs)

    def no_links(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "rename", refused)
    monkeypatch.setattr(os, "link", no_links)
    locks: list[int] = []
    with pytest.raises(OSError, match="Input/output error"):
        share(source, target, [NAME], locks)
    assert (refusals, locks) == ([], [])
    share(source, target, [NAME], locks)
    for lock in locks:
        os.close(lock)
    with target.read(NAME) as file:
        assert file.read() == TEXT


@on_loop
async def test_a_fork_that_is_cut_while_it_shares_files_releases_their_locks(tmp_path: Path) -> None:
    async with standing(tmp_path) as session:
        await session.files.add(TEXT, "notes.txt")
        before = len(os.listdir("/dev/fd"))
        for ticks in range(12):
            task = asyncio.ensure_future(session.fork(session_id=f"fork-{ticks}", paused=True))
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        assert len(os.listdir("/dev/fd")) == before
        assert everything_in(folder_of(tmp_path)) != []
