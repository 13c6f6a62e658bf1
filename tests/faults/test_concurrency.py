"""The campaign of interleavings works: a short one finds no fault in the SQLite store, and counts what it did."""

from __future__ import annotations

import json

import pytest

from tests.faults import concurrency


def test_a_short_campaign_finds_nothing_and_reports_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert concurrency.main(["--rounds", "10", "--seconds", "1", "--seed", "7"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    report = json.loads(line)
    assert (report["wrong"], report["seed"]) == (0, 7)
    assert report["interleavings"] >= 5 * report["pairs"] > 0
    assert report["calls"] > report["with calls at the same time"] > 0
    assert report["stops at lock points"] > 0
