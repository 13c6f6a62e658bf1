"""`kill -9` at durable points of a session that sleeps, receives, has children, is edited and is rewound.

The suite takes every sixth point, and `processes` draws from all of them.
"""

from __future__ import annotations

import random

import pytest

from tests.faults.journeys import killed_on_the_way, undisturbed
from tests.faults.lab import Lab
from tests.faults.processes import fault_of
from tests.faults.tally import Fault
from tests.support.journey import REDONE


@pytest.mark.long
@pytest.mark.covers("S1.23", "S1.53", "S3.85")
@pytest.mark.parametrize("where", ["before", "inside", "after", "op"])
def test_a_journey_that_is_killed_anywhere_ends_like_an_undisturbed_one(lab: Lab, where: str) -> None:
    reference = undisturbed(lab)
    points = [point for point in reference.points if point.startswith(where)][::10]
    assert len(points) >= 2
    assert [text for point in points for text in killed_on_the_way(lab, reference, point)] == []
    assert lab.kills >= len(points) / 2  # two children run in parallel, so not every run passes every point


def test_the_journey_does_all_that_it_is_made_for(lab: Lab) -> None:
    reference = undisturbed(lab)
    assert {label for label, count in reference.labels.items() if count > 1} == set(REDONE)
    assert reference.labels.keys() == reference.seen.remembered
    verbs = {point.split()[1] for point in reference.points if point.startswith(("before", "after"))}
    assert verbs == {"create", "commit", "claim", "revise", "answer", "unpause"}
    assert [row.workflow for row in reference.seen.rows] == ["journey", "leg", "leg"]


@pytest.mark.long
@pytest.mark.covers("S3.85")
def test_a_journey_that_is_killed_several_times_ends_like_an_undisturbed_one(lab: Lab) -> None:
    reference = undisturbed(lab)
    draw = random.Random(3)
    trials = [draw.choices(reference.points, k=3) for _ in range(3)]
    assert [text for points in trials for text in killed_on_the_way(lab, reference, *points)] == []
    assert lab.kills >= len(trials)  # a later point may no longer be reached


@pytest.mark.long
@pytest.mark.parametrize(
    ("twin", "point", "symptom", "fault"),
    [
        ("takes messages in two commits", "split mail", "ended with", "other"),
        ("rewinds in two commits", "split rewind", "another result", "other"),
        ("runs operations again", "after commit 3", "kept and run again", "doubled"),
    ],
)
def test_the_harness_catches_an_engine_that_loses_what_it_waited_for(
    lab: Lab, twin: str, point: str, symptom: str, fault: Fault
) -> None:
    reference = undisturbed(lab)
    caught = killed_on_the_way(lab, reference, point, twin=twin)
    assert lab.kills == 1
    assert {fault_of(text) for text in caught if symptom in text} == {fault}, caught
