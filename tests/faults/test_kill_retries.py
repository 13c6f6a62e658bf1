"""`kill -9` at every attempt and in every back-off: no attempt is forgotten, and what they spent counts once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.retries import FAILURES, Trials
from tests.support.forkserver import ForkServer


@pytest.fixture(scope="module")
def retries() -> Iterator[ForkServer]:
    with ForkServer("tests.faults.retries") as server:
        yield server


@pytest.fixture
def trials(retries: ForkServer, folder: Path) -> Trials:
    return Trials(retries, folder)


@pytest.mark.long
def test_the_undisturbed_session_does_all_that_it_is_made_for(trials: Trials) -> None:
    said = trials.reference.said
    assert (said["status"], said["done"], said["ok"]) == ("completed", ["alone", "a", "attempt 4"], True)
    assert len(said["retried"]) == 3 * FAILURES
    assert said["usd"] == pytest.approx(3 * (4 * 0.25 + 0.5 + 0.01))
    assert trials.reference.labels["op inner alone"] == 1


@pytest.mark.long
@pytest.mark.parametrize("where", ["op", "after commit", "inside commit", "before commit"])
def test_a_kill_anywhere_keeps_the_count_of_attempts(trials: Trials, where: str) -> None:
    points = [point for point in dict.fromkeys(trials.reference.hits) if point.startswith(where)]
    points = points[:: 2 if where in ("op", "after commit") else 5]  # a sample, to save time
    assert len(points) >= 4
    assert [text for point in points for text in trials.killed(point)] == []
    assert trials.kills == len(points)


@pytest.mark.long
def test_a_process_that_is_killed_in_several_attempts_keeps_the_count(trials: Trials) -> None:
    draw, hits = random.Random(7), [*dict.fromkeys(trials.reference.hits)]
    rounds = [sorted(draw.sample(range(len(hits)), 2)) for _ in range(4)]
    assert [text for first, second in rounds for text in trials.killed(hits[first], hits[second])] == []
    assert trials.kills >= len(rounds) * 1.5  # commits are counted per process, so a second point may not be reached


@pytest.mark.long
def test_an_engine_that_counts_attempts_in_memory_is_caught(trials: Trials) -> None:
    caught = trials.killed("op outer alone 4", twin="counts attempts in memory")
    assert trials.kills == 1
    assert any("more executions than undisturbed" in text for text in caught), caught
