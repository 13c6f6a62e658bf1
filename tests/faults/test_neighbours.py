"""Whatever else a program does with the files of its store, no operation that returned is lost or runs again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.neighbours import round_of
from tests.faults.tally import Tally
from tests.support.forkserver import ForkServer
from tests.support.loop import PATIENCE

pytestmark = pytest.mark.long


@pytest.mark.parametrize("removes", [False, True])
def test_neighbours_and_a_folder_that_is_moved_away_lose_nothing(tmp_path: Path, removes: bool) -> None:
    tally = Tally(seed=5, seconds=PATIENCE)
    with ForkServer("tests.faults.neighbours") as server:
        for number in range(3):
            (tmp_path / f"{number}").mkdir()
            round_of(server, tmp_path / f"{number}", tally, removes)
    assert not tally.faults
    assert tally.done["operations that returned"]


def test_without_locks_of_open_files_commits_are_lost(tmp_path: Path) -> None:
    tally = Tally(seed=5, seconds=PATIENCE)
    number = 0
    with ForkServer("tests.faults.neighbours") as server:
        while not tally.faults and tally.has_time():
            number += 1
            (tmp_path / f"{number}").mkdir()
            round_of(server, tmp_path / f"{number}", tally, removes=False, twin=True)
    assert tally.faults
