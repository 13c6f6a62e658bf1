"""Several processes claim one session at the same moment: one gets it, the others' errors name the holder."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from pausepoint import Status
from pausepoint.model.sessions import Filter, SessionRow
from tests.faults.contests import parked, races
from tests.faults.lab import Lab


@pytest.mark.long
@pytest.mark.covers("S1.62", "S3.88")
@pytest.mark.parametrize("processes", range(2, 9))
def test_of_several_processes_that_resume_a_session_exactly_one_runs_it(lab: Lab, processes: int) -> None:
    assert races(lab, processes, 8, "resume") == []


@pytest.mark.long
@pytest.mark.covers("S1.62", "S3.86")
@pytest.mark.parametrize("processes", [2, 5, 8])
def test_of_several_processes_that_start_a_session_id_exactly_one_runs_it(lab: Lab, processes: int) -> None:
    assert races(lab, processes, 6, "start") == []
    assert len(lab.do(lab.engine.sessions())) == 6


@pytest.mark.covers("S1.61", "S1.53")
def test_after_kill_9_a_process_that_waits_takes_over_at_once(lab: Lab) -> None:
    for _ in range(5):
        trial = parked(lab)
        holder = lab.server.start("tests.faults.jobs:hold", path=lab.path, sessions=[trial])
        while "standing" not in holder.hear():
            pass
        heir = lab.server.start("tests.faults.jobs:take_next", path=lab.path, session=trial["session"])
        assert "refused" in heir.hear()
        holder.signal(signal.SIGKILL)
        assert holder.wait() == -signal.SIGKILL
        dead_since = time.monotonic()
        while "taken" not in (message := heir.hear()):
            assert message["refused"] < dead_since, "no attempt that begins after the death is refused"
        Path(trial["end"]).touch()
        assert heir.wait() == 0
        assert heir.said[-1] == {"status": "completed"}


def test_the_harness_catches_a_hold_that_is_never_checked(lab: Lab) -> None:
    caught = races(lab, 4, 3, "resume", "ignores the hold")
    assert any("HoldLost" in text for text in caught)


def started_beside_a_pause(lab: Lab, twin: str = "") -> tuple[list[SessionRow], int]:
    """Start sessions in several processes and pause everything meanwhile. Return the sessions and how many started."""
    gate = lab.folder / lab.new("over")
    children = [
        lab.server.start("tests.faults.jobs:start_many", path=lab.path, me=f"p{n}", gate=str(gate), twin=twin)
        for n in range(4)
    ]
    for child in children:
        assert "ready" in child.hear()
    lab.do(lab.engine.pause_all(reason="fire drill"))
    gate.touch()
    count = sum(child.hear()["started"] for child in children)
    assert [child.wait() for child in children] == [0] * 4
    return list(lab.do(lab.store.find(Filter()))), count


def test_what_any_process_starts_beside_a_pause_of_everything_is_stopped_or_stored_paused(lab: Lab) -> None:
    rows, count = started_beside_a_pause(lab)
    assert len(rows) == count
    assert {row.status for row in rows} == {Status.PAUSED}
    assert {row.fence for row in rows} == {0, 1}, "some were driven before, some were never held"


def test_the_harness_catches_a_session_that_is_started_all_the_same(lab: Lab) -> None:
    rows, _ = started_beside_a_pause(lab, "starts while everything is paused")
    assert Status.PAUSED in {row.status for row in rows} != {Status.PAUSED}
