"""`make campaign`: every instrument runs, reports what it tried, and the report is honest about faults."""

from __future__ import annotations

import importlib
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.faults import campaign, concurrency, processes, vfs_campaign
from tests.faults.bench_server import Server
from tests.faults.campaign import INSTRUMENTS, Instrument, table
from tests.faults.tally import Tally, main
from tests.support.forkserver import ForkServer


def test_every_instrument_can_be_run() -> None:
    for name, instrument in INSTRUMENTS.items():
        assert callable(importlib.import_module(instrument.module).run), name


def test_the_shares_of_the_time_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    given = dict[str, float]()

    def play(name: str, seconds: float, seed: int, instruments: object) -> campaign.Report:
        given[name] = seconds
        return {"done": {"trials": 1}, "code": 0}

    monkeypatch.setattr(campaign, "play", play)
    assert list(campaign.run(100, 1, list(INSTRUMENTS))) == list(INSTRUMENTS)
    assert sum(given.values()) == pytest.approx(100 * campaign.AT_ONCE)


@pytest.mark.long
def test_a_real_instrument_reports_its_counts() -> None:
    found = campaign.run(0.1, 4, ["cut verbs"])
    report = found["cut verbs"]
    assert (report["code"], report["faults"], report["seed"]) == (0, {}, 4)
    assert any(what.startswith("cuts of ") and count for what, count in report["done"].items())
    assert report["command"].startswith("python -m tests.faults.cuts --seconds ")
    assert table(found)[-1] == "lost: 0, doubled: 0, undetected: 0, false alarm: 0, other: 0"


@pytest.mark.long
def test_short_interleavings_find_nothing_and_count_what_overlapped() -> None:
    tally = Tally(seed=7, seconds=1)
    concurrency.run(tally)
    assert not tally.faults
    assert tally.done["interleavings"] >= 5 * tally.done["pairs of verbs"] > 0
    assert tally.done["calls"] > tally.done["interleavings with calls at the same time"] > 0
    assert tally.done["stops at lock points"] > 0


class SharedServer:
    """The server of all tests. It stays open when an instrument closes it."""

    def __init__(self, server: Server) -> None:
        self.bench = server.bench

    def close(self) -> None:
        pass


@pytest.mark.long
def test_kills_losses_and_flips_of_a_store_are_counted_once_each(
    bench_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vfs_campaign, "Server", lambda: SharedServer(bench_server))
    monkeypatch.setattr(vfs_campaign, "PROGRAMS", ("short",))
    monkeypatch.setattr(vfs_campaign, "BATCH", 3)
    names = [*vfs_campaign.TRIALS]
    monkeypatch.setattr(Tally, "has_time", lambda tally, share: tally.done.keys() < {*names[: round(3 * share)]})
    tally = Tally(seed=2, seconds=0)
    vfs_campaign.run(tally, workers=1)
    assert not tally.faults
    assert [*tally.done] == names
    assert (tally.done["kill points"], tally.done["flipped bits"]) == (2, 6)
    assert 0 < tally.done["power-loss states"] <= 12


@pytest.mark.parametrize(
    ("name", "complaint", "fault"),
    [
        ("kill points", "lost: commit of records [4] was acknowledged", "lost"),
        ("kill points", "after going on: fact squid 1 ran 2 times, not 1", "doubled"),
        ("kill points", "mixed: completed and still held", "other"),
        ("power-loss states", "broken: StoreDamaged", "other"),
        ("flipped bits", "wrong: ''", "undetected"),
    ],
)
def test_a_complaint_about_a_store_counts_as_the_fault_that_it_describes(name: str, complaint: str, fault: str) -> None:
    assert vfs_campaign.fault_of(name, complaint) == fault


@pytest.mark.long
def test_processes_that_were_killed_are_counted(server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ForkServer", lambda jobs: nullcontext(server))
    tally = Tally(seed=1, seconds=0.01)
    processes.run(tally)
    assert not tally.faults
    assert tally.done["trials with kills at two points"] == 1
    assert 1 <= tally.done["processes that were killed"] <= 2


def test_an_instrument_that_does_not_run_is_not_sound() -> None:
    report = campaign.play("gone", 1, 1, {"gone": Instrument("tests.faults.no_such_module", 1)})
    assert report["code"] != 0
    assert table({"gone": report})[1].startswith("gone             NOT SOUND")


def test_faults_and_empty_runs_give_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def faulty(tally: Tally) -> None:
        tally.done["trials"] += 1
        tally.fail("one operation ran twice", "doubled")

    file = tmp_path / "report.json"
    assert main(faulty, None, ["--seed", "3", "--report", str(file)]) == 1
    assert "WRONG (doubled), seed 3: one operation ran twice" in capsys.readouterr().out
    assert '"faults": {"doubled": 1}' in file.read_text()
    assert main(lambda tally: None, None, []) == 1
    assert "Nothing was tried." in capsys.readouterr().err
