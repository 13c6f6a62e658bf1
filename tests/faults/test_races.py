"""Several processes want one session at the same moment: one gets it, the others are told who has it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.faults.contests import parked, races
from tests.faults.lab import Lab


@pytest.mark.covers("S1.62", "S3.88")
@pytest.mark.parametrize("processes", range(2, 9))
def test_of_several_processes_that_resume_a_session_exactly_one_runs_it(lab: Lab, processes: int) -> None:
    assert races(lab, processes, 8, "resume") == []


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
        assert heir.hear() == {"refused": "AlreadyRunning"}
        killed_at = time.monotonic()
        holder.signal(signal.SIGKILL)
        assert holder.wait() == -signal.SIGKILL
        while "taken" not in (message := heir.hear()):
            assert message == {"refused": "AlreadyRunning"}
        assert message["taken"] - killed_at < 1
        Path(trial["end"]).touch()
        assert heir.wait() == 0
        assert heir.said[-1] == {"status": "completed"}


def test_the_harness_catches_a_hold_that_is_never_checked(lab: Lab) -> None:
    caught = races(lab, 4, 3, "resume", "ignores the hold")
    assert any("HoldLost" in text for text in caught)
