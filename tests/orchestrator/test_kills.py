"""A generated graph of tasks whose processes are killed and paused. `make tasks` does a hundred kills, at random."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.orchestrator.ordeal import Ordeal
from tests.support.forkserver import ForkServer


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer("tests.orchestrator.jobs") as server:
        yield server


@pytest.mark.long
@pytest.mark.covers("S5.40", "S5.42", "S5.52", "S5.59")
def test_each_task_takes_effect_once_and_in_order_however_often_its_process_dies(
    server: ForkServer, tmp_path: Path
) -> None:
    ordeal = Ordeal(server, tmp_path / "run", tasks=170, needs=110, agents=10, seed=7)
    ordeal.live(die_after=30)
    ordeal.live(die_after=1)
    ordeal.paused(after=20)
    ordeal.live(die_after=40)
    ordeal.live()
    assert ordeal.wrong() == []
    assert (ordeal.kills, ordeal.pauses) == (3, 1)
    assert sum(tries for _, tries in ordeal.effects()) > 170, "a kill came between an effect and its record"


@pytest.mark.long
def test_a_world_that_knows_no_keys_fails_that_test(server: ForkServer, tmp_path: Path) -> None:
    ordeal = Ordeal(server, tmp_path / "run", tasks=30, needs=20, agents=5, seed=7, keyed=False)
    ordeal.live(die_after=10)
    ordeal.live()
    assert ordeal.kills == 1
    assert any("took effect 2 times" in each for each in ordeal.wrong())
