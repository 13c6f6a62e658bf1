"""A program whose model goes away: it waits and says so, can be interrupted, and continues when the model returns."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.forkserver import Child, Forks
from tests.support.held import Driven
from tests.support.modelserver import Holds, ModelServer, Says, model_at
from tests.support.servers import serving
from tests.support.waits import until

GOOD = Says('{"mood": "calm"}')


class Paper(Driven):
    """The small program, with a model at a port."""

    job = "tests.apps.model_watched:job"

    def ask(self, server: ModelServer) -> None:
        """Use this model."""
        self.variables = model_at(server.url)

    def has_said(self, child: Child, text: str) -> bool:
        out = self._said(child.number)
        return out.exists() and text in out.read_text("utf-8")


@pytest.fixture
def service() -> Iterator[ModelServer]:
    with serving(ModelServer()) as server:
        yield server


@pytest.fixture
def paper(tmp_path: Path, forks: Forks, service: ModelServer) -> Paper:
    found = Paper(tmp_path, forks)
    found.ask(service)
    return found


@pytest.mark.long
def test_a_program_waits_for_its_model_and_can_be_interrupted_meanwhile(tmp_path: Path, forks: Forks) -> None:
    paper = Paper(tmp_path, forks)
    with serving(ModelServer()) as server:
        paper.ask(server)
    child = paper.begin("--session-id", "s1")
    until(lambda: paper.has_said(child, "attempt 2 failed"))
    assert f"The model tiny at {server.url} cannot be reached: " in paper.said(child)
    until(lambda: "ask_model waits to be retried at " in paper.run("show", "s1"))  # not while it tries
    child.signal(signal.SIGINT)
    assert "Resume:" in paper.ends(child, 130)
    child = paper.begin("resume", "s1")
    until(lambda: paper.has_said(child, "failed, ModelUnavailable"))
    with serving(ModelServer(server.server_address[1])) as server:
        server.will(GOOD)
        assert "Session s1 of paper completed" in paper.ends(child, 0)
    assert len(server.requests) == 1


@pytest.mark.long
def test_after_a_kill_between_two_requests_the_first_is_not_paid_again(paper: Paper, service: ModelServer) -> None:
    answered = threading.Event()
    service.will(Says('{"mood": "merry"}'), Holds(GOOD.text, answered), GOOD)
    child = paper.begin("--session-id", "s1")
    until(lambda: len(service.requests) == 2)
    paper.kill(child)
    answered.set()
    assert "Session s1 of paper completed" in paper.run("resume", "s1")
    first, second, third = service.requests
    assert len(first["messages"]) == 2
    assert second == third, "the run continues with the request that was in flight"
    assert "merry" in second["messages"][2]["content"]
