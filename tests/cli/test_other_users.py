"""Commands on a store in a folder of another user, which this user may not open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kit import run

WITHOUT_PRIVILEGES = (
    "-c",
    "import ctypes, os, runpy\n"
    "if os.geteuid() == 0:\n"  # root may open every folder, by its capabilities
    "    head, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()\n"
    "    assert ctypes.CDLL(None).capset(head, none) == 0\n"
    "runpy.run_module('pausepoint', run_name='__main__', alter_sys=True)",
)


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder with a store that only another user may open."""
    folder = tmp_path / ".pausepoint"
    folder.mkdir()
    (folder / "pausepoint.db").touch()
    folder.chmod(0)
    yield folder
    folder.chmod(0o700)


@pytest.mark.parametrize("command", ["ls", "inbox", "pause --all", "resume x", "verify"])
def test_a_command_on_the_store_of_another_user_says_so(closed: Path, command: str) -> None:
    done = run(*command.split(), cwd=closed.parent, program=WITHOUT_PRIVILEGES)
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f"pausepoint: The store {closed / 'pausepoint.db'} cannot be reached: this user may not open the folder"
        f" {closed}. Run the command as the owner of the folder, or name another store with --store or"
        " PAUSEPOINT_STORE."
    ]


def test_a_folder_of_another_user_above_this_one_gives_no_raw_error(tmp_path: Path) -> None:
    (tmp_path / "closed" / "here").mkdir(parents=True)
    program = ("-c", f"import os; os.chmod('..', 0)\n{WITHOUT_PRIVILEGES[1]}")
    done = run("ls", cwd=tmp_path / "closed" / "here", program=program)
    (tmp_path / "closed").chmod(0o700)
    [line] = done.stderr.splitlines()
    assert done.code == 1
    assert line.startswith("pausepoint: The store ")
