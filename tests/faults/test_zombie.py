"""A driver is stopped, loses its hold and wakes up: it commits nothing and gets an error that says why."""

from __future__ import annotations

import pytest

from tests.faults.jobs import SLOW
from tests.faults.lab import Lab, undisturbed
from tests.faults.processes import fault_of
from tests.faults.verdicts import zombie


@pytest.mark.long
@pytest.mark.covers("S1.62", "S3.88")
@pytest.mark.parametrize("overtake", ["ended", "claimed"])
@pytest.mark.parametrize("poll", [0.005, SLOW], ids=["looks", "looks never"])
def test_an_overtaken_process_that_wakes_up_writes_nothing_and_is_told(lab: Lab, overtake: str, poll: float) -> None:
    reference = undisturbed(lab)
    inside = [*reference.some("step")[1::8], *reference.some("op")[2::10]]
    between = reference.some("before commit")[3::16]
    assert len(inside) + len(between) >= 6
    trials = [zombie(lab, reference, point, overtake, poll) for point in inside + between]
    assert [text for trial in trials for text in trial] == []


@pytest.mark.long
def test_the_harness_catches_a_store_that_ignores_the_fence(lab: Lab) -> None:
    reference = undisturbed(lab)
    caught = zombie(lab, reference, "op phrase:body:1", "claimed", SLOW, "ignores the fence")
    assert any("the zombie wrote" in text for text in caught)
    assert {fault_of(text) for text in caught if "the zombie" in text} == {"other"}
