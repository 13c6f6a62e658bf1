"""An engine inside real servers: their own signal handlers work, and a signal leaves the sessions ready."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from pausepoint import Engine, Status
from tests.support.children import ROOT
from tests.support.loop import PATIENCE
from tests.support.ports import free_port

INSTALL = "install the servers that the tests use: pip install -e '.[dev]'"
pytest.importorskip("fastapi", reason=INSTALL)
pytest.importorskip("uvicorn", reason=INSTALL)

APP = "tests.engine.served:app"
UVICORN = ("uvicorn", APP, "--port", "{port}", "--log-level", "warning")
GUNICORN = ("gunicorn", APP, "-k", "uvicorn_worker.UvicornWorker", "-b", "127.0.0.1:{port}", "--log-level", "warning")


class Server:
    """A real server in its own process group, and a client of it."""

    def __init__(self, folder: Path, command: tuple[str, ...]) -> None:
        self.store = folder / "store.db"
        self.log = folder / "log.txt"
        port = free_port()
        words = [sys.executable, "-m", *(word.format(port=port) for word in command)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                words, cwd=ROOT, env=os.environ | {"STORE": str(self.store)}, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, trust_env=False)

    def until(self, path: str, expected: object) -> None:
        """Ask until the server gives this answer."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                if (found := self.client.get(path).json()) == expected:
                    return
            except httpx.TransportError:
                found = None
            assert time.monotonic() < end, f"{path} gave {found!r}, never {expected!r}:\n{self.log.read_text()}"
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)

    def ask_until_it_is_gone(self) -> list[int]:
        """Ask for a status again and again while the server ends, and return the codes of all responses."""
        codes = []
        while True:
            try:
                codes.append(self.client.get("/ticking").status_code)
            except httpx.TransportError:
                return codes

    def ended(self) -> int:
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the server is still alive:\n{self.log.read_text()}") from None


@contextmanager
def served(folder: Path, command: tuple[str, ...]) -> Iterator[Server]:
    server = Server(folder, command)
    try:
        server.until("/", 0)
        yield server
    finally:
        server.client.close()
        if server.process.poll() is None:
            os.killpg(server.process.pid, signal.SIGKILL)
            server.process.wait(PATIENCE)


def statuses(store: Path) -> dict[str, Status]:
    with Engine(store) as engine:
        return {info.session_id: info.status for info in engine.sessions()}


@pytest.mark.long
@pytest.mark.covers("S1.52")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", [UVICORN, GUNICORN], ids=lambda command: command[0])
def test_a_server_that_is_told_to_end_answers_its_requests_and_leaves_the_sessions_ready(
    tmp_path: Path, command: tuple[str, ...], number: signal.Signals
) -> None:
    if command is GUNICORN:
        pytest.importorskip("uvicorn_worker", reason=INSTALL)
    with ThreadPoolExecutor() as threads, served(tmp_path, command) as server:
        for workflow in ("ticking", "napping"):
            assert server.client.post(f"/{workflow}").status_code == 200
        server.until("/ticking", "running")
        server.until("/napping", "sleeping")
        asked: dict[str, Future[httpx.Response]] = {
            path: threads.submit(server.client.get, path)
            for path in ("/ticking/outcome", "/napping/outcome", "/ticking/events", "/napping/watch")
        }
        server.until("/", len(asked))
        asking = threads.submit(server.ask_until_it_is_gone)
        os.killpg(server.process.pid, number)  # the whole group, as a terminal does
        server.ended()
        responses = {path: each.result(PATIENCE) for path, each in asked.items()}
        assert {path: each.status_code for path, each in responses.items()} == dict.fromkeys(asked, 200)
        assert responses["/ticking/outcome"].json() == {"status": "ready", "ending": f"{number.name} received"}
        assert responses["/napping/outcome"].json()["status"] == "sleeping"
        assert responses["/ticking/events"].text.splitlines()[-1] == "session.stopped"
        assert set(asking.result(PATIENCE)) <= {200}
        assert "Traceback" not in server.log.read_text()
        assert statuses(server.store) == {"ticking": Status.READY, "napping": Status.SLEEPING}
