"""Aura as real processes: killed, interrupted and paused in every step, then resumed by another process.

The result is that of an undisturbed session, and the calls of the agents are counted.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pausepoint.apps.aura import get_workflow_state
from pausepoint.apps.aura.models import CurrentStep, WorkflowState
from pausepoint.apps.aura.workflow import POSITIONS
from tests.support.forkserver import Child, Forks
from tests.support.held import Held

COURSES = ("math", "bio", "hist", "astro")
ONCE = Counter([*(f"sync {course}" for course in COURSES), "analyze", "plan", "report"])
HELD = ("sync hist", "analyze", "plan", "report")
"""In which call of an agent the process is met; the sync of one course, while the others may be done or not."""
POSITIONS_SAID = {position: f"at {step}#1" for step, position in POSITIONS.items()}
POSITIONS_SAID[CurrentStep.COMPLETED] = "after the session completed"


class Aura(Held):
    """One session of Aura."""

    job = "tests.apps.aura_watched:job"

    def start(self, at: str = "") -> Child:
        return self.begin("--session-id", "s1", "--reports", str(self.folder / "reports"), at=at)

    def resume(self) -> str:
        return self.run("resume", "s1")

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
        return document.model_dump(exclude={"reports": True, "report": {"markdown", "html", "mail"}}), files


@pytest.fixture
def session(tmp_path: Path, forks: Forks) -> Iterator[Aura]:
    with Aura(tmp_path, forks) as found:
        yield found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> tuple[dict[str, Any], dict[str, bytes]]:
    with Aura(tmp_path_factory.mktemp("undisturbed"), forks) as found:
        said = found.ends(found.start(), 0)
    assert "Session s1 of aura completed" in said
    assert found.calls == ONCE
    return found.result()


@pytest.mark.covers("S1.37")
@pytest.mark.parametrize("where", HELD)
def test_a_kill_in_any_step_costs_that_call_alone(session: Aura, where: str, undisturbed: object) -> None:
    session.kill(session.start(at=where))
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
    child = session.start(at=where)
    child.signal(signal.SIGINT)
    session.release()
    said = session.ends(child, 130)
    assert "resume s1" in said
    stands = POSITIONS_SAID[session.document.current_step]
    assert f"Interrupted {stands}. Finished work is kept." in said
    session.resume()
    again = session.calls - ONCE
    here = HELD.index(where)
    assert set(again) <= set(HELD[here : here + 2])  # it may have got to the next step before it heard
    assert sum(again.values()) <= 1
    assert session.result() == undisturbed


@pytest.mark.long
@pytest.mark.parametrize("where", HELD)
def test_a_pause_from_outside_in_any_step_lets_it_finish_and_starts_no_other(
    session: Aura, where: str, undisturbed: object
) -> None:
    child = session.start(at=where)
    session.run("pause", "s1", "--reason", "lunch")
    session.release()
    if where == "report":  # too late: it was the last one
        session.ends(child, 0)
    else:
        assert "lunch" in session.ends(child, 3)
        # In the sync of the courses it takes effect inside of the step, behind those that were begun.
        done = HELD.index(where) + (where != "sync hist")
        assert session.document.status == "paused"
        assert session.document.current_step in list(CurrentStep)[done : done + 1 + (where == "sync hist")]
    session.resume()
    assert session.calls == ONCE
    assert session.result() == undisturbed


@pytest.mark.long
def test_two_interruptions_in_one_session_change_nothing(session: Aura, undisturbed: object) -> None:
    session.kill(session.start(at="analyze"))
    session.kill(session.begin("resume", "s1", at="report"))
    session.resume()
    assert session.calls == ONCE + Counter(["analyze", "report"])
    assert session.result() == undisturbed
