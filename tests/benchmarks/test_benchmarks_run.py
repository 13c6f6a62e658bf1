"""The benchmarks run and say what they found. How fast anything is is not a test's business."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.results import Figure, to_table
from pausepoint.gate.hooks import native_hook
from tests.support.loop import PATIENCE
from tests.support.postgres import server

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.long
def test_a_quick_run_measures_every_figure_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = run("--quick", "--json", "--dir", tmp_path)
    assert done.returncode == 0, done.stderr
    figures = {figure["name"]: figure for figure in json.loads(done.stdout)["figures"]}
    limits = {name: figure["limit"] for name, figure in figures.items()}
    assert limits == {
        "lone": 2.0, "lone-field": None, "crowd": 0.6, "crowd-field": None, "throng": None, "throng-memory": None,
        "turns": None, "turns-followed": None, "turns-cold": None, "turns-process": None, "resume-running": None,
        "growth": 2.0, "growth-slope": 1.25, "growth-bytes": 3.0, "ballast": 2.0,
        "chat": None, "chat-slope": 1.25, "chat-slope-cpu": 1.25, "chat-resume": 60.0, "messages": 25.0,
        "resume": 20.0, "import": 1.3,
        "import-names": None, "travel-checkpoints": 20.0, "travel-state": 20.0, "travel-state-by-name": 20.0,
        "listings-page": 10.0, "listings-updated": None, "listings-tally": None, "listings-health": None,
        "listings-lag": None,
        "parked-tasks": 0, "parked-threads": 0, "parked-bytes": 4096,
        "agents-loops": 50.0, "agents-run": 50.0, "agents-sessions": 50.0, "operations": 1.08,
        "stream-step": 1.05, "stream-latency": 200.0,
        "questions-bytes": 1400, "questions-inbox": 30.0, "questions-answer": 60.0,
        "server-bare": None, "server-first": None, "server-now": 5.0, "server-page": 60.0, "server-pause": 100.0,
        "server-lag": None, "server-list-p99": 30.0, "server-list-text": 300.0, "server-list-text-none": 300.0,
        **{f"server-list-{kind}": 10.0 for kind in [
            "created", "updated", "workflow", "spent", "id", "failed", "open", "ended", "of-workflow", "of-owner",
            "of-tag", "late",
        ]},
        "server-delay-some": 500.0, "server-steps-some": 1.05, "server-busy-steps-some": None,
        "server-delay-many": None, "server-steps-many": None, "server-memory": None,
        "server-import": 200.0, "server-import-app": 200.0, "server-import-starlette": None,
        "gate-answer": 200.0, "gate-answer-p99": 200.0, "gate-burst-p99": None, "gate-hook-cpu": 60.0,
        **({"gate-hook-c-cpu": 4.0} if native_hook() else {}),
        "travel-diff": 20.0, "travel-fork": 20.0, "travel-edit": 20.0, "travel-rewind": 20.0,
    }  # fmt: skip
    assert all(0 <= figure["lowest"] <= figure["value"] <= figure["highest"] for figure in figures.values())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_quick_run_measures_the_store_in_postgres(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.fleet", "--quick", "--json", "--dir", str(tmp_path)]
    environment = os.environ | {"DATABASE_URL": server()}
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    assert done.returncode == 0, done.stderr
    figures = {figure["name"]: figure for figure in json.loads(done.stdout)["figures"]}
    assert {name: figure["limit"] for name, figure in figures.items()} == {
        "lone": 2.0, "batch-server": 0.8, "batch-client": 100.0, "crowd-server": None, "crowd-client": None,
        "trips-create": 1.0, "trips-take": 1.0, "trips-claim": None, "trips-idle-take": 1.0,
        "pause-verb": 50.0, "pause-late": 1000.0, "pause-after": 0.0, "takeover-same": 1.0,
    }  # fmt: skip
    assert figures["pause-after"]["value"] == 0


@pytest.mark.parametrize(("values", "passed"), [((1.0, 2.0, 9.0), True), ((1.0, 2.1, 2.2), False)])
def test_the_median_is_held_against_the_limit(values: tuple[float, ...], passed: bool) -> None:
    figure = Figure("lone", "one session", "units", 2.0, values)
    assert figure.passed is passed
    assert ("MISSED" in to_table([figure], {})) is not passed


def test_a_figure_without_a_limit_cannot_miss_it() -> None:
    assert Figure("import-names", "names", "×", None, (99.0,)).passed is None
