"""`make peers` counts what passes, runs tests that fail by chance again, and fails below the count."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import peer_suites
from tools.peer_suites import Suite, main

TESTS = """
from pathlib import Path
import pytest

def test_good(): pass
def test_bad(): assert False
def test_by_chance():
    marks = Path("marks")
    marks.write_text(marks.read_text() + "x" if marks.exists() else "x")
    assert len(marks.read_text()) > 1
def test_skipped_then():
    if len(Path("marks").read_text()) > 1: pytest.skip("not run is not passed")
    assert False
"""


@pytest.mark.long
def test_a_suite_fails_below_its_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = (("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1"),)
    suite = Suite("shop", "1.0", (), (), least=3, unordered=("test_by_chance", "test_skipped_then"), variables=plain)
    monkeypatch.setattr(peer_suites, "PEERS", tmp_path)
    monkeypatch.setattr(peer_suites, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(peer_suites, "SUITES", {"shop": suite})
    monkeypatch.setattr(peer_suites, "fetch", lambda suite: None)  # its sources are here
    suite.folder.mkdir()
    (suite.folder / "test_shop.py").write_text(TESTS)
    assert main(["shop"]) == 1
    assert capsys.readouterr().out == "shop 1.0: 2 tests passed, at least 3 must.\n"
