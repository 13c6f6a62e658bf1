"""A disk under the artifact folder that is full or failing: a pause, never the step's failure; and what is synced."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine
from pausepoint.artifacts import VersionFolders
from pausepoint.artifacts.folder import ArtifactFolder
from pausepoint.errors import FolderUnavailable
from pausepoint.runtime.drive import Drive
from pausepoint.stores.sqlite import SqliteStore
from tests.faults.folder_disk import CASES, RUNS, in_use, notes, sweep
from tests.support.loop import on_loop

STRIDES = {errno.ENOSPC: 7, errno.EIO: 29}
"""The suite samples the file calls: 79 write, 352 read or write. Each case begins at another one."""


@pytest.mark.long
@pytest.mark.parametrize(("number", "case"), [*enumerate(CASES)])
def test_a_full_or_failing_disk_pauses_and_costs_no_result_and_no_attempt(
    tmp_path: Path, number: int, case: tuple[int, bool]
) -> None:
    assert sweep(tmp_path, *case, first=1 + number, stride=STRIDES[case[0]])[1] == {}


def _raw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of the disk are raised as they are."""
    monkeypatch.setattr(ArtifactFolder, "_refused", lambda self, path, error: error)


def _failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the folder refuses counts as the failure of the step."""

    async def stage(self: Drive, *args: Any) -> None:
        assert self.publisher is not None
        if (refused := await self.publisher.stage(*args)) is not None:
            raise refused

    monkeypatch.setattr(Drive, "_stage", stage)


def _silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were not written are forgotten."""
    monkeypatch.setattr(ArtifactFolder, "publish", lambda *args: "")


@pytest.mark.long
@pytest.mark.parametrize(("broken", "symptom"), [(_raw, "bare OSError"), (_failure, "Failure(step=")])
def test_broken_twins_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None], symptom: str
) -> None:
    broken(monkeypatch)
    _, wrong = sweep(tmp_path, errno.ENOSPC, True, first=2, stride=12)
    assert any(symptom in text for found in wrong.values() for text in found), wrong


def test_a_folder_that_forgets_files_is_caught_even_on_a_good_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _silent(monkeypatch)
    with pytest.raises(AssertionError, match="was changed or deleted since step 'begin' published it"):
        sweep(tmp_path, errno.ENOSPC, True, first=2, stride=12)


def refuse(monkeypatch: pytest.MonkeyPatch, act: str, path: str, code: int) -> Callable[[], None]:
    """Refuse to stage or publish a file, as the disk would. Return the function that ends this."""
    real = getattr(ArtifactFolder, act)

    def refusing(self: ArtifactFolder, name: str, *args: Any) -> Any:
        with self._edge(name):
            if name == path:
                raise OSError(code, os.strerror(code))
        return real(self, name, *args)

    monkeypatch.setattr(ArtifactFolder, act, refusing)
    return lambda: monkeypatch.setattr(ArtifactFolder, act, real)


@pytest.mark.long
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("path", ["first.md", "parts/b.md"])
@on_loop
async def test_the_pause_names_the_file_and_the_way_out_and_a_resume_runs_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, code: int
) -> None:
    RUNS.clear()
    heal = refuse(monkeypatch, "stage", path, code)
    async with Engine(":memory:", workflows=[notes], signals=False) as engine:
        session = await engine.start(notes, session_id="s1", folder=tmp_path / "output")
        for _ in range(2):
            outcome = await session.outcome()
            [pause] = outcome.pauses
            assert (outcome.status, pause.kind, pause.by) == ("paused", "disk", None)
            assert engine.trouble is None  # the store is healthy; other sessions continue
            assert f"{tmp_path}/output/{path} " in pause.reason
            assert "Finished results are kept." in pause.reason
            plan = await session.plan()
            assert any(f"{path} " in each for each in plan.obstacles)
            step = "begin" if path == "first.md" else "divide"
            assert plan[step].verdict == "done"
            with suppress(FolderUnavailable):
                await session.resume()  # on the same disk
        heal()
        await session.resume()
        assert (await session.outcome()).status == "completed"
        assert {each.state for each in await session.artifacts()} == {"valid"}
    assert RUNS == ["begin", "divide"]


@on_loop
async def test_a_session_that_has_ended_tells_in_its_outcome_which_file_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heal = refuse(monkeypatch, "publish", "parts/b.md", errno.ENOSPC)
    async with Engine(":memory:", workflows=[notes], signals=False) as engine:
        session = await engine.start(notes, session_id="s1", folder=tmp_path / "output")
        with pytest.raises(FolderUnavailable, match=r"'divide' of session 's1' has finished, .* Free some space") as no:
            await session.outcome()
        assert (no.value.session_id, no.value.path, no.value.errno) == ("s1", "parts/b.md", errno.ENOSPC)
        assert (await session.info()).status == "completed"
        with pytest.raises(FolderUnavailable, match="the disk is full"):
            await session.resume()
        heal()
        await session.resume()
    assert (tmp_path / "output" / "parts" / "b.md").exists()


# power loss


class Entries:
    """The module `os`, which records the names in folders that were created and are not synced yet."""

    def __init__(self) -> None:
        self.pending: set[tuple[int, str]] = set()
        self.created = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        os.mkdir(path, mode, dir_fd=dir_fd)
        parent = os.fstat(dir_fd) if dir_fd is not None else os.stat(Path(path).parent)
        self.pending.add((parent.st_ino, Path(path).name))
        self.created += 1

    def rename(self, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        os.rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        self.pending.add((os.fstat(dst_dir_fd).st_ino, target))

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)
        folder = os.fstat(descriptor).st_ino
        self.pending = {entry for entry in self.pending if entry[0] != folder}


async def unsynced_at_commits(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[set[tuple[int, str]]], int]:
    """Run a session, and return the entries that a power loss could take away at each commit."""
    disk, found, commit = Entries(), list[set[tuple[int, str]]](), SqliteStore.commit

    async def watched(self: SqliteStore, new: Any) -> Any:
        found.append(set(disk.pending))
        return await commit(self, new)

    monkeypatch.setattr(SqliteStore, "commit", watched)
    with in_use(disk):
        async with Engine(":memory:", workflows=[notes], signals=False) as engine:
            folder = path / "out" / "deep" / "fern"
            assert (await (await engine.start(notes, session_id="s1", folder=folder)).outcome()).status == "completed"
    found.append(set(disk.pending))
    return found, disk.created


@on_loop
async def test_the_names_of_a_new_folder_and_of_its_parents_are_synced_before_a_commit_relies_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, created = await unsynced_at_commits(tmp_path, monkeypatch)
    assert created >= 7, "out, deep, fern, .pausepoint and its folders, parts"
    assert [entries for entries in found if entries] == []


@on_loop
async def test_a_folder_whose_parents_are_not_synced_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pausepoint.stores.disk.sync_folder", lambda folder: None)
    found, _ = await unsynced_at_commits(tmp_path, monkeypatch)
    assert {name for _, name in found[-1]} == {"out", "deep", "fern"}


@on_loop
async def test_a_folder_that_a_person_has_just_made_is_synced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("pausepoint.artifacts.folder.sync_folder", synced.append)
    (tmp_path / "output").mkdir()
    folder = ArtifactFolder(tmp_path / "output")
    for _ in range(2):
        folder.make()
    assert synced == [tmp_path], "once; later, the session's own folder in it shows that it was synced"


def test_a_numbered_folder_is_synced(tmp_path: Path) -> None:
    disk = Entries()
    with in_use(disk):
        VersionFolders(tmp_path / "a" / "b", "Fern").make()
    assert (disk.pending, disk.created) == (set(), 3)
