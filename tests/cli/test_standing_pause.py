"""`pause --all` stands and `resume --all` lifts it; meanwhile `run`, `ls`, `status` and `doctor` say so."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from pausepoint.cli.app import app
from pausepoint.stores.sqlite.errors import LOCK_PATIENCE
from tests.cli.kit import Done, Process, run
from tests.stores.kit import LOCKER, process

CODE = """
from pydantic import BaseModel
from pausepoint import Workflow, step

class Doc(BaseModel):
    topic: str
    text: str = ""

@step(writes="text")
def write(topic: str) -> str:
    return f"about {topic}"

brief = Workflow("brief", state=Doc, steps=[write])
"""
TARGET = ("--target", "brief.py")
PAUSED = "Everything in this store has been paused since "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with code, and a store in which everything was paused by Ann."""
    (tmp_path / "brief.py").write_text(CODE)
    assert run("run", "brief.py", "--topic", "otters", "--session-id", "before", cwd=tmp_path).code == 0
    paused = run("pause", "--all", "--reason", "fire drill", "--by", "ann", cwd=tmp_path)
    assert paused == (
        0,
        "There is no session to pause.\n",
        "New sessions are stored paused from now on. Resume everything:  pausepoint resume --all\n",
    )
    return tmp_path


@pytest.mark.long
def test_what_is_run_meanwhile_says_that_all_stands_still_and_goes_on_when_that_is_lifted(folder: Path) -> None:
    def here(*args: str) -> Done:
        return run(*args, cwd=folder)

    code, out, err = here("run", "brief.py", "--topic", "squid", "--session-id", "new")
    assert (code, out.splitlines()[0]) == (3, "Session new of brief")
    assert err.startswith(PAUSED)
    assert "by ann: fire drill\n" in err
    assert "Resume everything:  pausepoint resume --all\n" in err
    assert "pausepoint resume new --target brief.py" in err, "which is asked for by name"

    again = here("run", "brief.py", "--topic", "squid", "--session-id", "new", "--json")
    [pause] = json.loads(again.stdout)["pauses"]
    assert (again.code, pause["by"], pause["reason"], pause["standing"]) == (3, "ann", "fire drill", True)

    listed = json.loads(here("ls", "--json").stdout)
    assert (listed["standing_pause"]["by"], listed["total"]) == ("ann", 2)
    assert PAUSED in here("ls").stderr
    assert PAUSED in here("status").stdout
    found = json.loads(here("doctor", "--json", *TARGET).stdout)
    assert found["store"]["standing_pause"]["reason"] == "fire drill"
    assert [check["level"] for check in found["checks"] if check["text"].startswith(PAUSED)] == ["warn"]

    lifted = here("resume", "--all", "--by", "ben", *TARGET)
    assert lifted.code == 0
    assert lifted.stdout.startswith(PAUSED)
    assert "new  brief  running" in lifted.stdout
    assert "new  completed" in lifted.stdout
    assert here("resume", "--all") == (0, "There is nothing to lift: no `pause --all` is in effect.\n", "")
    status = json.loads(here("status", "--json").stdout)
    assert (status["standing_pause"], status["counts"]) == (None, {"completed": 2})


@pytest.mark.long
def test_without_the_code_it_is_lifted_all_the_same_and_the_rest_is_left_to_who_has_it(folder: Path) -> None:
    run("run", "brief.py", "--topic", "squid", "--session-id", "new", cwd=folder)
    lifted = run("resume", "--all", cwd=folder)
    assert "new  brief  ready" in lifted.stdout
    assert "1 session is ready, but its code is not loaded." in lifted.stderr
    assert "Run all of them (add --target file.py:name):  pausepoint worker\n" in lifted.stderr
    assert "Run one of them (add --target file.py:name):  pausepoint resume new\n" in lifted.stderr
    assert run("worker", "--once", *TARGET, cwd=folder).code == 0
    assert json.loads(run("show", "new", "--json", cwd=folder).stdout)["status"] == "completed"


@pytest.mark.long
def test_sessions_that_were_paused_one_by_one_stay_paused_and_are_counted(folder: Path) -> None:
    for name, count in {
        "one": "1 session stays paused: it has a pause of its own. Resume it:",
        "two": "2 sessions stay paused: they have pauses of their own. Resume one of them:",
    }.items():
        run("run", "brief.py", "--topic", name, "--session-id", name, "--paused", cwd=folder)
        lifted = run("resume", "--all", *TARGET, cwd=folder)
        assert f"{count}  pausepoint resume {name} --target brief.py\n" in lifted.stderr
        assert json.loads(run("show", name, "--json", cwd=folder).stdout)["status"] == "paused"


@pytest.mark.parametrize("args", [("mine",), ("--dry-run",), ("--from", "write"), ("--budget", "3"), ("--jobs", "8")])
def test_a_resume_of_all_takes_nothing_else(
    args: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["resume", "--all", *args])
    assert (found.exit_code, "--all is for the whole store" in found.stderr) == (2, True)


def test_without_a_store_there_is_nothing_to_lift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["resume", "--all"])
    assert (found.exit_code, found.stdout) == (0, "There is no store here, so nothing is paused.\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_pause_that_cannot_be_stored_names_the_suspended_process_and_stays_requested(folder: Path) -> None:
    assert run("resume", "--all", cwd=folder).code == 0
    with process(LOCKER, folder / ".pausepoint" / "pausepoint.db") as locker:
        os.kill(locker.pid, signal.SIGSTOP)
        with Process("pause", "--all", "--by", "ann", cwd=folder) as pausing:
            pausing.until(f"`kill -CONT {locker.pid}`")
            assert "the pause of everything is not stored yet" in pausing.seen
            interrupted = time.monotonic()
            pausing.signal(signal.SIGINT)
            assert pausing.wait().code == 130
            assert time.monotonic() - interrupted < LOCK_PATIENCE / 2, "its end does not wait for the lock"
            assert "The pause stays requested." in pausing.seen
        assert PAUSED in run("status", cwd=folder).stdout
        os.kill(locker.pid, signal.SIGCONT)
        locker.send()
    assert run("run", "brief.py", "--topic", "squid", "--session-id", "new", cwd=folder).code == 3
    assert run("resume", "--all", *TARGET, cwd=folder).code == 0
    assert run("run", "brief.py", "--topic", "eels", "--session-id", "newer", cwd=folder).code == 0
