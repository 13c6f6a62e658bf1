"""Aura as real processes: killed, interrupted and paused in every step, then resumed by another process.

The result is that of an undisturbed session, and the calls of the agents are counted.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.apps.aura import get_workflow_state
from holdfast.apps.aura.models import CurrentStep, WorkflowState
from tests.support.children import ROOT

PATIENCE = 30
COURSES = ("math", "bio", "hist", "astro")
ONCE = Counter([*(f"sync {course}" for course in COURSES), "analyze", "plan", "report"])
HELD = ("sync hist", "analyze", "plan", "report")
"""In which call of an agent the process is met; the sync of one course, while the others may be done or not."""


class Aura:
    """One session in a folder of its own, driven by one process after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "aura.db"
        self.calls_file = folder / "calls.txt"
        for pipe in ("reached", "gate"):
            os.mkfifo(folder / pipe)
        # Opened for both, so that neither side hangs or sees an end if the other one dies.
        self.reached = os.open(folder / "reached", os.O_RDWR)
        self.gate = os.open(folder / "gate", os.O_RDWR)

    def close(self) -> None:
        os.close(self.reached)
        os.close(self.gate)

    def begin(self, *args: str, hold: str = "") -> subprocess.Popen[str]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        environment |= {
            "PYTHONPATH": str(ROOT), "AURA_CALLS": str(self.calls_file), "AURA_HOLD": hold,
            "AURA_REACHED": str(self.folder / "reached"), "AURA_GATE": str(self.folder / "gate"),
        }  # fmt: skip
        words = [sys.executable, "-m", "tests.apps.aura_watched", *args, "--store", str(self.store)]
        return subprocess.Popen(
            words, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def start(self, hold: str = "") -> subprocess.Popen[str]:
        child = self.begin("--session-id", "s1", "--reports", str(self.folder / "reports"), hold=hold)
        if hold:
            self.reach()
        return child

    def reach(self) -> None:
        """Wait until the call is made in which a process is held."""
        ready, _, _ = select.select([self.reached], [], [], PATIENCE)
        assert ready, "the call was never made"
        assert os.read(self.reached, 100) == b"here"

    def release(self) -> None:
        os.write(self.gate, b"x")

    def resume(self) -> str:
        return ended(self.begin("resume", "s1"), 0)

    @property
    def calls(self) -> Counter[str]:
        return Counter(self.calls_file.read_text().splitlines())

    @property
    def document(self) -> WorkflowState:
        found = get_workflow_state("s1", store=self.store)
        assert found is not None
        return found

    def result(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """All that a session leaves, apart from where it lies."""
        document = self.document
        assert document.report is not None
        files = {path.name: path.read_bytes() for path in sorted((self.folder / "reports").iterdir())}
        return document.model_dump(exclude={"reports": True, "report": {"markdown", "html"}}), files


def ended(child: subprocess.Popen[str], code: int) -> str:
    """Wait for a process and see that it ended as it should."""
    with child:
        said, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode == code, said
    return said


@pytest.fixture
def session(tmp_path: Path) -> Any:
    found = Aura(tmp_path)
    yield found
    found.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, bytes]]:
    found = Aura(tmp_path_factory.mktemp("undisturbed"))
    said = ended(found.start(), 0)
    assert "Session s1 of aura completed" in said
    assert found.calls == ONCE
    found.close()
    return found.result()


@pytest.mark.covers("S1.37")
@pytest.mark.parametrize("where", HELD)
def test_a_kill_in_any_step_costs_that_call_alone(session: Aura, where: str, undisturbed: object) -> None:
    child = session.start(hold=where)
    child.kill()
    ended(child, -signal.SIGKILL)
    assert session.document.current_step is list(CurrentStep)[HELD.index(where)]
    assert session.document.status == "ready"
    session.resume()
    again = session.calls - ONCE
    # Other courses were being fetched at the same time: a kill costs what was in flight.
    assert again[where] == 1
    assert {name for name in again if name != where} <= (
        {f"sync {each}" for each in COURSES} if "sync" in where else set()
    )
    assert max(session.calls.values()) == 2
    assert session.result() == undisturbed


@pytest.mark.parametrize("where", HELD)
def test_ctrl_c_in_any_step_ends_with_130_and_a_resume_goes_on(session: Aura, where: str, undisturbed: object) -> None:
    child = session.start(hold=where)
    child.send_signal(signal.SIGINT)
    session.release()
    said = ended(child, 130)
    assert "resume s1" in said
    session.resume()
    again = session.calls - ONCE
    assert set(again) <= {where}
    assert sum(again.values()) <= 1
    assert session.result() == undisturbed


@pytest.mark.parametrize("where", HELD)
def test_a_pause_from_outside_in_any_step_lets_it_finish_and_starts_no_other(
    session: Aura, where: str, undisturbed: object
) -> None:
    child = session.start(hold=where)
    pause = [sys.executable, "-m", "holdfast", "pause", "s1", "--store", str(session.store), "--reason", "lunch"]
    assert subprocess.run(pause, capture_output=True, timeout=PATIENCE, cwd=session.folder).returncode == 0
    session.release()
    if where == "report":  # too late: it was the last one
        ended(child, 0)
    else:
        assert "lunch" in ended(child, 3)
        # In the sync of the courses it takes effect inside of the step, behind those that were begun.
        done = HELD.index(where) + (where != "sync hist")
        assert session.document.status == "paused"
        assert session.document.current_step in list(CurrentStep)[done : done + 1 + (where == "sync hist")]
    session.resume()
    assert session.calls == ONCE
    assert session.result() == undisturbed


def test_two_interruptions_in_one_session_change_nothing(session: Aura, undisturbed: object) -> None:
    child = session.start(hold="analyze")
    child.kill()
    ended(child, -signal.SIGKILL)
    child = session.begin("resume", "s1", hold="report")
    session.reach()
    child.kill()
    ended(child, -signal.SIGKILL)
    session.resume()
    assert session.calls == ONCE + Counter(["analyze", "report"])
    assert session.result() == undisturbed
