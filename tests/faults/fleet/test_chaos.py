"""A short campaign of faults against a fleet on Postgres; `make chaos` runs it for an hour.

Broken twins are caught, and the oracle excuses only what it must.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.faults.fleet.chaos import FAULTS, Lab, play, play_promotion
from tests.faults.fleet.oracle import Hit, Note, judge, read_notes, twice
from tests.faults.tally import Tally
from tests.support.cluster import server_folder


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with server_folder() as folder, ExitStack() as stack:
        yield Lab(folder, stack)


@pytest.fixture
def tally() -> Tally:
    return Tally(seed=11, seconds=60)


@pytest.mark.long
def test_a_fleet_loses_nothing_and_repeats_only_what_was_in_flight(lab: Lab, tally: Tally) -> None:
    play(lab, tally, FAULTS)
    assert not tally.faults
    done = {name: count for name, count in tally.done.items() if name.startswith("faults")}
    assert done == Counter(f"faults: {fault}" for fault in FAULTS)
    assert tally.done["operations"] >= 50


CUTS = ["cut before"] * 4


def at_once(notes: list[Note]) -> bool:
    """Judge the workers after the last fault."""
    return True


@pytest.mark.long
def test_a_copy_that_takes_lost_answers_for_written_is_caught(lab: Lab, tally: Tally) -> None:
    assert play(lab, tally, CUTS, "believes", at_once).forgotten
    assert tally.faults["lost"]


@pytest.mark.long
def test_a_copy_that_takes_other_engines_for_dead_is_caught(lab: Lab, tally: Tally) -> None:
    verdict = play(lab, tally, [], "no leases", lambda notes: bool(twice(notes)))
    assert verdict.twice
    assert verdict.doubled


@pytest.mark.long
def test_the_sound_store_passes_what_the_copies_fail(lab: Lab, tally: Tally) -> None:
    verdict = play(lab, tally, CUTS, enough=at_once)
    assert not tally.faults
    assert verdict.runs
    assert not verdict.twice


@pytest.mark.long
@pytest.mark.parametrize("synchronous", [False, True], ids=["asynchronous", "synchronous"])
def test_the_losses_of_a_replica_are_named_and_a_synchronous_one_has_none(
    lab: Lab, tally: Tally, synchronous: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    play_promotion(lab, tally, synchronous, faults=())
    assert not tally.faults
    assert bool(tally.done["acknowledged, and lost by asynchronous replicas"]) is not synchronous
    assert ("lost by the asynchronous replica: operation" in capsys.readouterr().out) is not synchronous


# the oracle

NOTES = """
1.0 7 began a/0=x
1.1 7 did a/0=x
2.0 8 began a/0=y
2.1 8 did a/0=y
2.2 8 acknowledged a/0=y
"""
KILLED = Hit("kill", 1.5, 1.5, pid=7)


def verdict(notes: str, *hits: Hit, log: str = "a/0=y") -> tuple[int, int, int, dict[str, int]]:
    found = judge(read_notes(notes.strip()), {"a/0": [log]} if log else {}, ["a/0"], hits)
    return len(found.missing), len(found.forgotten), len(found.doubled), found.in_flight


@pytest.mark.parametrize(
    ("hits", "doubled"),
    [
        ([KILLED], 0),
        ([KILLED._replace(pid=8)], 1),  # another process
        ([KILLED._replace(since=0.5, until=0.5)], 1),  # before it began
        ([KILLED._replace(pid=None)], 0),
        ([], 1),
    ],
)
def test_a_run_is_excused_only_by_a_hit_on_its_process_while_it_was_in_flight(hits: list[Hit], doubled: int) -> None:
    assert verdict(NOTES, *hits) == (0, 0, doubled, {} if doubled else {"kill": 1})


def test_a_run_that_its_process_had_dropped_before_the_hit_is_not_excused() -> None:
    assert verdict(NOTES + "1.2 7 dropped a/0=\n", KILLED) == (0, 0, 1, {})


def test_what_was_acknowledged_and_is_not_in_the_log_is_lost() -> None:
    assert verdict(NOTES, KILLED, log="a/0=x") == (0, 1, 0, {})
    assert verdict(NOTES, KILLED, log="")[0] == 1
    assert verdict(NOTES, KILLED, log="a/0=z")[0] == 1  # it never ran


def test_a_note_knows_its_session() -> None:
    assert Note(1.0, 7, "began", "a/0=x").session == "a"
