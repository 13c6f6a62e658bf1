"""`kill -9` at commits, steps and operations of the sample: nothing remembered is lost or runs again.

The suite takes every sixth point, and `processes` draws from all of them.
"""

from __future__ import annotations

import random

import pytest

from pausepoint import Status
from tests.faults.lab import Lab, undisturbed
from tests.faults.processes import fault_of
from tests.faults.tally import Fault
from tests.faults.verdicts import killed, killed_at_times


@pytest.mark.long
@pytest.mark.covers("S1.23", "S1.38", "S1.53", "S1.61", "S4.4")
@pytest.mark.parametrize("where", ["before c", "inside c", "after c", "step", "op"])
def test_a_process_killed_anywhere_costs_at_most_what_was_running(lab: Lab, where: str) -> None:
    reference = undisturbed(lab)
    points = reference.some(where)[::6]
    assert len(points) >= 2
    assert [text for point in points for text in killed(lab, reference, point)] == []
    assert lab.kills == len(points)


def test_the_sample_runs_each_of_its_parts_once_when_nothing_happens(lab: Lab) -> None:
    reference = undisturbed(lab)
    assert sorted(reference.labels) == sorted(set(reference.labels))
    assert set(reference.labels) == reference.seen.remembered
    assert len(reference.some("before commit")) == reference.seen.row.seq - 1
    assert "step translate#1" not in reference.labels
    assert "step write#3" in reference.labels


@pytest.mark.long
@pytest.mark.covers("S3.85")
def test_a_run_that_is_killed_twice_at_random_points_ends_like_an_undisturbed_one(lab: Lab) -> None:
    reference = undisturbed(lab)
    draw = random.Random(1)
    trials = [draw.choices(reference.points, k=2) for _ in range(6)]
    assert [text for first, second in trials for text in killed(lab, reference, first, also=second)] == []
    assert lab.kills >= len(trials) + 1  # a second point may come before the first one, or may not be reached again


@pytest.mark.long
@pytest.mark.covers("S3.85")
def test_a_run_that_is_killed_at_random_moments_ends_like_an_undisturbed_one(lab: Lab) -> None:
    reference = undisturbed(lab)
    took = min(undisturbed(lab).took for _ in range(3))  # the very first process takes much longer than the others
    draw = random.Random(2)
    for _ in range(50):
        before, delays = lab.kills, [draw.uniform(0.1, 0.6) * took for _ in range(2)]
        assert killed_at_times(lab, reference, delays) == []
        if lab.kills >= 3:
            return
        if lab.kills == before:  # both finished their work before the kill: the machine was slower when it was measured
            took *= 0.7
    pytest.fail(f"only {lab.kills} processes were killed")


def test_a_step_that_kills_its_process_each_time_is_paused_after_three_crashes(lab: Lab) -> None:
    session = lab.new()
    codes = [
        lab.drive(session, verb=verb, point="step write#1").wait() for verb in ("start", "resume", "resume", "resume")
    ]
    assert codes == [-9, -9, -9, 0]
    assert lab.row(session).status is Status.PAUSED
    (pause,) = lab.do(lab.engine.session(session).pauses())
    assert pause.kind == "crashes"


@pytest.mark.long
@pytest.mark.parametrize(
    ("twin", "where", "symptom", "fault"),
    [
        ("checkpoint in two commits", "split 26", "another result", "other"),
        ("acknowledges early", "after commit", "was acknowledged", "lost"),
        ("forgets operations", "op", "more than what was in flight", "lost"),
    ],
)
def test_the_harness_catches_an_engine_that_loses_work(
    lab: Lab, twin: str, where: str, symptom: str, fault: Fault
) -> None:
    reference = undisturbed(lab)
    points = reference.some(where)[20:24] or [where]
    caught = [text for point in points for text in killed(lab, reference, point, twin)]
    assert {fault_of(text) for text in caught if symptom in text} == {fault}
    assert not any("did not fire" in text for text in caught)
