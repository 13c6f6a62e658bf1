"""The recorder below libc, and the rules by which its traces become states of the disk."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.crash_states import Style
from tests.faults.libc import trace
from tests.faults.libc.states import Disk, Tree, found_in
from tests.faults.libc.trace import Call, NotModelled
from tests.support.loop import PATIENCE

# names and bytes


class Folders:
    """A disk with the folders ``a`` and ``b``, and the durable file ``a/old``. Other files get made-up inodes."""

    def __init__(self, root: Path) -> None:
        for name in ("a", "b"):
            (root / name).mkdir()
        (root / "a" / "old").write_bytes(b"old")
        self.disk = Disk(root)
        self.a, self.b, self.old = ((root / name).stat().st_ino for name in ("a", "b", "a/old"))
        self.root = root.stat().st_ino
        self.new = max(self.a, self.b, self.old, self.root) + 1

    def __call__(self, *calls: Call) -> None:
        for call in calls:
            self.disk.follow(call)

    def left(self, names: Style = "synced", bytes_: Style = "synced", seed: int = 0) -> Tree:
        return self.disk.crash(names, bytes_, random.Random(seed))

    def seen(self) -> set[str]:
        """Return the different trees that many losses of names leave, as text."""
        return {text(self.left("subset", "all", seed)) for seed in range(200)}


def text(tree: Tree) -> str:
    """Return a tree in a form that can be compared and sorted."""
    return json.dumps(tree, sort_keys=True, default=bytes.decode)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


OLD: Tree = {"a": {"old": b"old"}, "b": {}}


def test_a_new_file_needs_a_sync_of_its_bytes_and_of_its_folder(folders: Folders) -> None:
    folders(Call("create", folders.new, folders.a, "x"), Call("write", folders.new, data=b"text"))
    assert folders.left() == OLD
    folders(Call("sync", folders.new))
    assert folders.left() == OLD
    folders(Call("sync", folders.a))
    assert folders.left() == {"a": {"old": b"old", "x": b"text"}, "b": {}}


def test_a_name_may_survive_without_the_bytes(folders: Folders) -> None:
    folders(Call("create", folders.new, folders.a, "x"), Call("write", folders.new, data=b"text"))
    assert folders.left("all", "synced") == {"a": {"old": b"old", "x": b""}, "b": {}}
    folders(Call("sync", folders.a))
    assert folders.left() == {"a": {"old": b"old", "x": b""}, "b": {}}


def test_a_file_in_a_new_folder_needs_the_name_of_the_folder(folders: Folders) -> None:
    inner = folders.new + 1
    folders(Call("mkdir", folders.new, folders.b, "deep"), Call("create", inner, folders.new, "x"))
    folders(Call("sync", inner), Call("sync", folders.new))
    assert folders.left() == OLD
    folders(Call("sync", folders.b))
    assert folders.left() == {"a": {"old": b"old"}, "b": {"deep": {"x": b""}}}


def test_a_removed_name_may_come_back_until_its_folder_is_synced(folders: Folders) -> None:
    folders(Call("unlink", folder=folders.a, name="old"))
    assert folders.left() == OLD
    assert folders.left("all") == {"a": {}, "b": {}}
    folders(Call("sync", folders.a))
    assert folders.left() == {"a": {}, "b": {}}


def test_a_rename_in_one_folder_happens_completely_or_not_at_all(folders: Folders) -> None:
    folders(Call("rename", folders.old, folders.a, "old", folders.a, "new"))
    assert folders.seen() == {text(OLD), text({"a": {"new": b"old"}, "b": {}})}


def test_a_rename_between_folders_never_loses_the_file(folders: Folders) -> None:
    folders(Call("rename", folders.old, folders.a, "old", folders.b, "new"))
    both: Tree = {"a": {"old": b"old"}, "b": {"new": b"old"}}
    moved: Tree = {"a": {}, "b": {"new": b"old"}}
    assert folders.seen() == {text(OLD), text(both), text(moved)}
    folders(Call("sync", folders.b))
    assert folders.left() == both
    folders(Call("sync", folders.a))
    assert folders.left() == moved


def test_a_sync_of_the_first_folder_alone_also_keeps_the_new_name(folders: Folders) -> None:
    folders(Call("rename", folders.old, folders.a, "old", folders.b, "new"), Call("sync", folders.a))
    assert folders.left() == {"a": {}, "b": {"new": b"old"}}


def test_changes_of_one_name_survive_in_order_and_others_independently(folders: Folders) -> None:
    folders(Call("create", folders.new, folders.a, "x"), Call("unlink", folder=folders.a, name="x"))
    folders(Call("create", folders.new + 1, folders.a, "y"))
    inside = sorted(sorted(json.loads(tree)["a"]) for tree in folders.seen())
    assert inside == [["old"], ["old", "x"], ["old", "x", "y"], ["old", "y"]]


def test_a_reused_inode_is_another_file(folders: Folders) -> None:
    folders(Call("create", folders.new, folders.a, "x"), Call("write", folders.new, data=b"first"))
    folders(Call("sync", folders.new), Call("sync", folders.a), Call("unlink", folder=folders.a, name="x"))
    folders(Call("create", folders.new, folders.b, "y"), Call("sync", folders.b))
    assert folders.left() == {"a": {"old": b"old", "x": b"first"}, "b": {"y": b""}}


def test_links_show_the_same_bytes(folders: Folders) -> None:
    folders(Call("link", folders.old, folders.b, "too"), Call("sync", folders.b))
    folders(Call("write", folders.old, data=b"new"))
    trees = {text(folders.left("all", "subset", seed)) for seed in range(20)}
    assert trees == {text({"a": {"old": same}, "b": {"too": same}}) for same in (b"old", b"new")}


# recording

PROGRAM = """
import mmap, os, sys
from pathlib import Path
from tests.faults.libc.trace import begin, note

root = Path(sys.argv[1])
begin(sys.argv[2], str(root))

def calls():
    with open(root / "plain", "wb") as file:
        file.write(b"a" * 5000)
    with open(root / "plain", "ab") as file:
        file.write(b"appended")
    with open(root / "plain", "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), b"middle", 100)
        os.pwritev(file.fileno(), [b"one", b"two"], 200)
        os.writev(file.fileno(), [b"first", b"second"])
        os.ftruncate(file.fileno(), 3000)
    os.truncate(root / "plain", 2000)
    os.mkdir(root / "folder")
    folder = os.open(root / "folder", os.O_RDONLY)
    os.close(os.open("inner", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=folder))
    os.rename("inner", "renamed", src_dir_fd=folder, dst_dir_fd=folder)
    os.link("renamed", root / "linked", src_dir_fd=folder)
    os.rename(root / "linked", root / "folder" / "moved")
    with open(root / "extended", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 700)
    os.chdir(root / "folder")
    Path("relative").write_text("text")
    Path("relative").write_text("other")
    Path("gone").touch()
    os.unlink("gone", dir_fd=folder)
    os.mkdir("empty")
    os.rmdir("empty")
    note("done")

def symlink():
    os.symlink("a", root / "link")

def mapped():
    with open(root / "mapped", "w+b") as file:
        file.truncate(4096)
        mmap.mmap(file.fileno(), 4096)

def synchronous():
    os.open(root / "x", os.O_CREAT | os.O_WRONLY | os.O_DSYNC)

def copied():
    with open(root / "x", "wb") as target, open("/proc/self/exe", "rb") as source:
        os.sendfile(target.fileno(), source.fileno(), 0, 10)

{"calls": calls, "symlink": symlink, "mapped": mapped, "synchronous": synchronous, "copied": copied}[sys.argv[3]]()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := trace.why_not():
        pytest.skip(reason)
    return trace.library(tmp_path_factory.mktemp("recorder"))


def recorded(library: Path, tmp_path: Path, what: str) -> tuple[Disk, list[Call], Path]:
    root, path = tmp_path / "root", tmp_path / "trace"
    root.mkdir()
    disk = Disk(root)
    environment = os.environ | trace.environment(library) | {"PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", PROGRAM, str(root), str(path), what]
    subprocess.run(command, env=environment, check=True, timeout=PATIENCE)
    return disk, trace.read(path), root


@pytest.mark.long
def test_every_call_that_changes_a_file_is_recorded(library: Path, tmp_path: Path) -> None:
    disk, calls, root = recorded(library, tmp_path, "calls")
    for call in calls:
        disk.follow(call)
    assert disk.crash("all", "all", random.Random(0)) == found_in(root)
    assert disk.crash("synced", "synced", random.Random(0)) == {}
    assert [call.data for call in calls if call.kind == "note"] == [b"done"]


@pytest.mark.parametrize("what", ["symlink", "mapped", "synchronous", "copied"])
def test_a_call_that_the_model_does_not_know_is_refused(library: Path, tmp_path: Path, what: str) -> None:
    with pytest.raises(NotModelled):
        recorded(library, tmp_path, what)


def test_without_a_compiler_the_reason_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert "apt install gcc" in trace.why_not()
