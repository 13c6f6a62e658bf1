"""A program whose model goes away: it waits and says so, can be interrupted, and continues when the model returns."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.devs_kit import until
from tests.support.forkserver import Child, Forks
from tests.support.held import Driven
from tests.support.modelserver import Holds, ModelServer, Says
from tests.support.servers import serving

GOOD = Says('{"mood": "calm"}')


class Paper(Driven):
    """The small program, with a model at a port."""

    job = "tests.apps.model_watched:job"
    port = 0

    def begin(self, *args: str, at: str = "", by: signal.Signals | None = None) -> Child:
        url = f"http://127.0.0.1:{self.port}/v1"
        settings = {"PAUSEPOINT_MODEL": "tiny", "PAUSEPOINT_MODEL_URL": url, "NO_PROXY": "127.0.0.1"}
        return self.server.start(
            self.job, args=[*args, *self.options], folder=str(self.folder), said=str(self._said(self.server.next)),
            environment=settings,
        )  # fmt: skip

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
    found.port = service.server_address[1]
    return found


@pytest.mark.long
def test_a_program_waits_for_its_model_and_can_be_interrupted_meanwhile(tmp_path: Path, forks: Forks) -> None:
    paper = Paper(tmp_path, forks)
    with serving(ModelServer()) as server:
        paper.port = server.server_address[1]
    child = paper.begin("--session-id", "s1")
    until(lambda: paper.has_said(child, "attempt 2 failed"))
    assert f"The model tiny at {server.url} cannot be reached: " in paper.said(child)
    shown = paper.run("show", "s1")
    assert "ask_model waits to be retried at " in shown
    child.signal(signal.SIGINT)
    assert "Resume:" in paper.ends(child, 130)
    child = paper.begin("resume", "s1")
    until(lambda: paper.has_said(child, "failed, ModelUnavailable"))
    with serving(ModelServer(paper.port)) as server:
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
