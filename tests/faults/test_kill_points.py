"""``kill -9`` at every write, sync, truncation and deletion: before it, in the middle of it, after it."""

from __future__ import annotations

import random

import pytest

from tests.faults.bench_server import Server
from tests.faults.trials import Point, bad

# What runs in the suite: every n-th point of each program. The campaign runs them all, and over again.
STRIDES = {"loop": 1, "folding": 1, "first run": 3}
CHUNKS = 6
CHUNKED = [(program, chunk) for program in STRIDES for chunk in range(CHUNKS)]


@pytest.mark.covers("S1.23", "S1.53", "S3.89")
@pytest.mark.parametrize(("program", "chunk"), CHUNKED)
def test_a_kill_at_any_write_costs_nothing_that_was_acknowledged(bench_server: Server, program: str, chunk: int) -> None:
    bench = bench_server.bench(program)
    points = bench.points()[:: STRIDES[program]][chunk::CHUNKS]
    assert points
    assert bad([bench.kill(point) for point in points]) == []


def test_the_points_are_at_least_a_thousand_and_reach_every_file_and_kind(bench_server: Server) -> None:
    benches = {program: bench_server.bench(program) for program in STRIDES}
    assert sum(len(bench.points()[:: STRIDES[program]]) for program, bench in benches.items()) >= 1000
    kinds = {(touch.kind, touch.file) for bench in benches.values() for touch in bench.touches()}
    assert kinds >= {
        ("write", "-wal"), ("sync", "-wal"), ("delete", "-wal"),
        ("write", ""), ("sync", ""), ("truncate", ""),
        ("write", "-journal"), ("sync", "-journal"), ("delete", "-journal"),
    }  # fmt: skip


@pytest.mark.parametrize("program", ["loop", "folding"])
def test_a_process_that_goes_on_can_be_killed_too(bench_server: Server, program: str) -> None:
    bench = bench_server.bench(program)
    rng = random.Random(program)
    firsts = rng.sample([point for point in bench.points() if point.index > 20], 25)
    points = [Point(first.index, first.variant, second=rng.randint(1, 8)) for first in firsts]
    assert bad([bench.kill(point) for point in points]) == []


def test_a_store_that_commits_position_and_data_apart_is_caught(bench_server: Server) -> None:
    bench = bench_server.bench("loop", twin="apart")
    found = complaints_at(bench, {"after"})
    assert any(complaint.startswith("mixed: ") for complaint in found)


def test_a_store_that_acknowledges_before_it_commits_is_caught(bench_server: Server) -> None:
    bench = bench_server.bench("loop", twin="early")
    found = complaints_at(bench, {"after"})
    assert any(complaint.startswith("lost: commit ") for complaint in found)


def complaints_at(bench: object, variants: set[str]) -> list[str]:
    """What a coarse pass over a twin's points finds; the faults have fired there too."""
    points = [point for point in bench.points() if point.variant in variants][::4]  # type: ignore[attr-defined]  # answers to every name
    reports = [bench.kill(point) for point in points]  # type: ignore[attr-defined]
    assert sum(bool(report.fired) for report in reports) >= len(points) * 0.9
    return [complaint for report in reports for complaint in report.complaints]
