"""The benchmarks beside other engines run, count what reaches the disk, and the pages show what the files say."""

from __future__ import annotations

import doctest
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks import scale
from benchmarks.peers import environments, measure, plots, report, syncs
from benchmarks.peers.environments import CONTENDERS, Entry
from benchmarks.peers.plots import draw
from benchmarks.peers.syncs import counted
from benchmarks.peers.workloads import WORKLOADS
from tests.support.loop import PATIENCE

ROOT = Path(__file__).resolve().parents[2]


def published() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(report.FILE.read_text("utf-8"))
    return found


@pytest.mark.parametrize("module", [plots, report, scale, syncs])
def test_the_examples_in_the_docstrings_are_right(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.long
def test_a_quick_run_measures_raw_and_pausepoint_and_leaves_nothing_behind(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.peers", "--quick", "--json", "--dir", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["workloads"].keys() == {"W1"}
    for cell in found["workloads"]["W1"].values():
        assert 0 < cell["lowest"] <= cell["value"] <= cell["highest"]
        assert cell["repeats"] == 2
    assert found["workloads"]["W1"]["raw"]["ratio"] == 1.0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_every_step_of_pausepoint_is_on_disk_before_the_next_begins(tmp_path: Path) -> None:
    found = counted(CONTENDERS["pausepoint"], tmp_path, PATIENCE)
    assert found["on_disk"] == 1.0, found
    assert found["per_step"] >= 1.0


def test_a_contender_that_cannot_be_installed_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "PLACE", tmp_path)
    monkeypatch.setattr(environments, "_install", lambda entry: (_ for _ in ()).throw(OSError("no network")))
    assert "install" in environments.build(Entry("nothing", "Nothing", ("no-such-package==1",)))
    monkeypatch.setattr(environments, "SERVER", tmp_path / "nowhere")
    monkeypatch.delenv("PAUSEPOINT_RESTATE", raising=False)
    problem = environments.build(Entry("served", "Served", (), "no-such-server"))
    assert problem == "no-such-server was not found; install it with: make programs"


def test_work_that_a_contender_does_not_have_is_a_result(tmp_path: Path) -> None:
    raw = CONTENDERS["raw"]
    found = measure.start(raw, {"work": "lone", "folder": str(tmp_path / "a"), "size": {}, "limit": PATIENCE})
    assert "KeyError" in found["failed"]
    assert report.cell({"lacks": "no pause"}) == "does not have it"


def test_the_page_shows_the_results_of_the_file() -> None:
    page = report.PAGE.read_text("utf-8")
    assert report.with_part(page, report.tables(published())) == page
    for name, picture in report.pictures(published()).items():
        assert (report.DOCS / "pictures" / name).read_text("utf-8") == picture


def test_every_workload_and_contender_has_a_result() -> None:
    found = published()
    assert found["contenders"].keys() == CONTENDERS.keys()
    for workload in WORKLOADS:
        cells = found["workloads"][workload.key]
        present = {key for key, entry in found["contenders"].items() if "absent" not in entry}
        assert present <= cells.keys(), workload.key
        for cell in cells.values():
            if "value" in cell and "failed" not in cell and not workload.once:
                assert cell["repeats"] >= 5, workload.key


def test_a_new_measurement_of_one_contender_leaves_the_others_alone() -> None:
    old = published()
    new = {
        "contenders": {"raw": {"versions": {}}, "pausepoint": {"versions": {"pausepoint": "9"}}},
        "workloads": {"W1": {"raw": {"value": 1.0}, "pausepoint": {"value": 2.0, "repeats": 1}}},
        "growths": {}, "syncs": {}, "facts": old["facts"],
    }  # fmt: skip
    found = report.merged(old, new)
    assert found["workloads"]["W1"]["pausepoint"] == {"value": 2.0, "repeats": 1}
    assert found["workloads"]["W1"]["raw"] == old["workloads"]["W1"]["raw"]
    assert found["workloads"]["W2"] == old["workloads"]["W2"]
    assert "were measured again later, beside raw SQLite" in report.tables(found)


def test_a_plot_has_a_line_and_a_name_for_every_contender() -> None:
    lines = {"raw": [(1.0, 1.0), (10.0, 1.1)], "pausepoint": [(1.0, 2.0), (10.0, 0.5)], "dbos": []}
    picture = draw("Title & more", "sessions", "units", lines, {key: CONTENDERS[key].title for key in lines})
    assert picture.count("<polyline") == 2
    assert "Title &amp; more" in picture
    assert "DBOS" not in picture


def test_the_model_of_the_page_on_scale_fits_the_points() -> None:
    peers, figures = scale.read()
    assert [point for point in scale.points(peers) if point.factor > scale.ERROR] == []
    assert scale.tables(peers, figures) in scale.PAGE.read_text("utf-8")


def test_the_model_is_refused_if_a_point_is_far_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    peers, figures = scale.read()
    plot = peers["growths"]["sessions"]["pausepoint"]
    next(point for point in plot if point["at"] == 10)["cpu"] *= 50
    monkeypatch.setattr(scale, "read", lambda: (peers, figures))
    assert scale.main(["--check"]) == 1
