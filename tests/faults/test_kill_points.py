"""``kill -9`` before, during and after every write, sync, truncation and deletion."""

from __future__ import annotations

import random

import pytest

from tests.faults.bench_server import Bench, Server
from tests.faults.trials import Point, Report, bad, killed

# The suite runs every n-th point of each program. `vfs_campaign` runs them all.
STRIDES = {"loop": 97, "folding": 97, "threaded": 97, "first run": 101}
CHUNKS = 2
FIRST_TOUCHES = 12  # the touches that create a database in an empty file, under a rollback journal: all points
CHUNKED = [(program, chunk) for program in STRIDES for chunk in range(CHUNKS)]


@pytest.mark.long
@pytest.mark.covers("S1.23", "S1.53", "S3.89")
@pytest.mark.parametrize(("program", "chunk"), CHUNKED)
def test_a_kill_at_any_write_costs_nothing_that_was_acknowledged(
    bench_server: Server, program: str, chunk: int
) -> None:
    bench = bench_server.bench(program)
    points = chosen(bench, program)[chunk::CHUNKS]
    assert points
    assert bad([bench.kill_at(point) for point in points]) == []


def test_the_points_are_at_least_a_thousand_and_reach_every_file_and_kind(bench_server: Server) -> None:
    benches = {program: bench_server.bench(program) for program in STRIDES}
    assert sum(len(bench.points()) for bench in benches.values()) >= 1000
    kinds = {(touch.kind, touch.file) for bench in benches.values() for touch in bench.touches()}
    assert kinds >= {
        ("write", "-wal"), ("sync", "-wal"), ("delete", "-wal"),
        ("write", ""), ("sync", ""), ("truncate", ""),
        ("write", "-journal"), ("sync", "-journal"), ("delete", "-journal"),
    }  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("program", ["loop", "folding"])
def test_a_process_that_goes_on_can_be_killed_too(bench_server: Server, program: str) -> None:
    bench = bench_server.bench(program)
    rng = random.Random(program)
    firsts = rng.sample([point for point in bench.points() if point.touch > 20], 4)
    points = [Point(first.touch, first.variant, second=rng.randint(1, 8)) for first in firsts]
    assert bad([bench.kill(point) for point in points]) == []


@pytest.mark.long
def test_a_store_that_commits_position_and_data_apart_is_caught(bench_server: Server) -> None:
    assert caught(bench_server.bench("loop", twin="apart"), "mixed: ")


@pytest.mark.long
def test_a_store_that_acknowledges_before_it_commits_is_caught(bench_server: Server) -> None:
    assert caught(bench_server.bench("loop", twin="early"), "lost: commit ")


def chosen(bench: Bench, program: str) -> list[Point]:
    points = enumerate(bench.points())
    return [point for n, point in points if n % STRIDES[program] == 0 or point.touch <= FIRST_TOUCHES]


def caught(bench: Bench, complaint: str) -> bool:
    """Return whether any kill that really happened in the broken twin causes such a complaint."""
    for point in random.Random(complaint).sample(bench.points(), len(bench.points())):  # the first precede any commit
        if point.variant == "after":
            report: Report = bench.kill(point)
            if killed(report) and any(text.startswith(complaint) for text in report.complaints):
                return True
    return False
