"""`doctor` and `verify` report a damaged write-ahead log, and the commands that they print work."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from pausepoint import Engine
from tests.cli.kit import run
from tests.cli.samples import letter
from tests.support.killed import copy_as_killed, harm


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A store with the default name whose log is damaged."""
    path = tmp_path / ".pausepoint" / "pausepoint.db"
    path.parent.mkdir()
    alive = tmp_path / "alive.db"
    with Engine(alive, workflows=[letter]) as engine:
        for name in ("ada", "bob", "eve"):
            engine.start(letter, session_id=name, name=name).outcome()
        copy_as_killed(alive, path)
    harm(path)
    return path


def commands(text: str) -> list[list[str]]:
    return [shlex.split(each)[1:] for each in re.findall(r"`(pausepoint [^`]+)`", text)]


def test_doctor_reports_it_and_the_way_out_works(tmp_path: Path, damaged: Path) -> None:
    done = run("doctor", "--json", cwd=tmp_path)
    assert done.code == 1
    (bad,) = [check for check in json.loads(done.stdout)["checks"] if check["level"] == "bad"]
    assert "write-ahead log is damaged" in bad["way_out"]
    (accept,) = commands(bad["way_out"])
    assert accept == ["doctor", "--loss", "accept", "--store", str(damaged)]
    accepted = run(*accept, cwd=tmp_path)
    assert (accepted.code, accepted.stderr) == (0, "")
    assert "the loss was accepted" in accepted.stdout
    (copy,) = damaged.parent.glob("*-wal-damaged-*")
    assert f"{copy} is a copy of a damaged write-ahead log" in accepted.stdout
    for command in commands(accepted.stdout):
        assert run(*command, cwd=tmp_path).code == 0
    again = run("doctor", "--loss", "accept", cwd=tmp_path)
    assert "is not damaged, so nothing was changed" in again.stdout


def test_verify_reports_it_and_the_way_out_works(tmp_path: Path, damaged: Path) -> None:
    done = run("verify", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (done.code, found["ok"], [each["what"] for each in found["problems"]]) == (1, False, ["log"])
    told = run("verify", cwd=tmp_path)
    assert told.code == 1
    assert "everything is intact" not in told.stdout
    (accept,) = commands(found["problems"][0]["text"])
    assert run(*accept, cwd=tmp_path).code == 0
    assert run("verify", cwd=tmp_path).code == 0


def test_every_other_command_refuses_with_the_same_way_out(tmp_path: Path, damaged: Path) -> None:
    done = run("ls", cwd=tmp_path)
    assert (done.code, done.stdout) == (1, "")
    assert commands(done.stderr) == [["doctor", "--loss", "accept", "--store", str(damaged)]]
    assert "pausepoint.engine" not in done.stderr
