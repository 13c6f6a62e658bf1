"""``kill -9`` of processes that fire a schedule: each due time has one session, and broken engines are noticed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.schedules import MINUTE, POINTS, told, yard
from tests.support.postgres import schema_of


def check_kills(url: str, kills: int) -> None:
    with yard(url, random.Random(24)) as found:
        for point in POINTS:
            found.die_at(point)
        assert found.killed == len(POINTS), "each of them died at its point"
        found.kill(2, kills)
        assert found.killed == len(POINTS) + kills + 1
        assert found.faults() == []
        assert found.next_at > found.first + found.killed * MINUTE


@pytest.mark.long
def test_each_due_time_has_one_session_although_processes_are_killed(tmp_path: Path) -> None:
    check_kills(str(tmp_path / "store.db"), kills=4)


@pytest.mark.long
def test_each_due_time_has_one_session_in_postgres_too() -> None:
    with schema_of() as url:
        check_kills(url, kills=2)


@pytest.mark.long
@pytest.mark.parametrize(("twin", "fault"), [("apart", "lost"), ("anonymous", "doubled")])
def test_an_engine_that_starts_a_run_in_two_steps_is_noticed(tmp_path: Path, twin: str, fault: str) -> None:
    with yard(str(tmp_path / "store.db"), random.Random(1)) as found:
        found.die_at(twin)
        found.kill(1, 1)
        assert found.killed == 2
        assert told(found.faults()) == {fault}
