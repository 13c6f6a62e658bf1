"""The web app of docs/web-app.md: a killed server and a deploy lose nothing, repeat nothing and confuse no page."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from pausepoint.model import Restarted, StreamChunk, StreamText
from tests.docs.programs import NEVER, Folder, Program
from tests.engine.test_servers import INSTALL
from tests.support.loop import PATIENCE
from tests.support.ports import free_port

pytest.importorskip("fastapi", reason=INSTALL)
pytest.importorskip("uvicorn", reason=INSTALL)

TRIP = {"task": "Book a hotel in Lisbon."}
BOOK = "hotels: 2 nights, Hotel Astoria in Lisbon"


class Page:
    """What a page in a browser does: it follows a run, and reconnects with the number of the last event."""

    def __init__(self) -> None:
        self.client = httpx.Client(timeout=PATIENCE, trust_env=False)
        self.last = 0
        self.text = StreamText()
        self.dropped: list[str] = []

    @contextmanager
    def connected(self) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
        """Connect, and yield the events until the server ends the stream."""
        headers = {"Last-Event-ID": str(self.last)}
        with self.client.stream("GET", "/runs/trip/stream", headers=headers) as response:
            yield self.events(response)

    def events(self, response: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
        name = ""
        for line in response.iter_lines():
            field, _, value = line.partition(": ")
            if field == "id":
                self.last = int(value)
            elif field == "event":
                name = value
            elif field == "data":
                self.show(name, data := json.loads(value))
                yield name, data

    def show(self, name: str, data: dict[str, Any]) -> None:
        if name == "text":
            self.text.apply(StreamChunk(self.last, data["text"], "text", data["source"], 1, "", 1, 1))
        elif name == "restarted":
            self.dropped += data["sources"]
            self.text.apply(Restarted(self.last, tuple(f"{source}#1" for source in data["sources"])))

    def follow(self) -> dict[str, Any]:
        """Follow the run until it stops, and return what the last event says."""
        end = time.monotonic() + PATIENCE
        while True:
            with self.connected() as events:
                seen = list(events)
            if seen and seen[-1][0] == "stopped":
                return seen[-1][1]
            assert time.monotonic() < end, "no server picked up the run"
            time.sleep(0.05)

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        response = self.client.post(f"/runs/trip/{path}", json=body)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found


@contextmanager
def served(folder: Folder, page: Page) -> Iterator[Program]:
    """Run the app with uvicorn, and turn the page to it."""
    port = free_port()
    page.client.base_url = httpx.URL(f"http://127.0.0.1:{port}")
    with folder.running("-m", "uvicorn", "app:app", "--port", str(port), "--log-level", "warning") as server:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                assert page.client.get("/runs/nothing").status_code == 404
                break
            except httpx.TransportError:
                assert server.job.is_alive(), server.printed()
                assert time.monotonic() < end, server.printed()
                time.sleep(0.02)
        yield server


def until_closed(page: Page) -> None:
    """Wait until the server takes no more connections."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            httpx.get(page.client.base_url, trust_env=False, timeout=PATIENCE)
        except httpx.TransportError:
            return
        assert time.monotonic() < end, "the server still takes connections"
        time.sleep(0.02)


@pytest.mark.long
def test_a_killed_server_and_a_deploy_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    folder, page = Folder(tmp_path), Page()
    folder.set(pace=NEVER)
    with served(folder, page) as server:
        started = page.client.put("/runs/trip", json=TRIP)
        assert started.json()["status"] == "running"
        with page.connected() as events:
            assert next(events)[0] == "text"  # in the middle of the model's first message
            server.killed()

    gate = folder.gate()
    gate.touch()
    with served(folder, page) as server:
        waiting = page.follow()
        assert waiting["status"] == "waiting"
        assert len(page.dropped) == 1  # the fault fired: the page was told to drop the unfinished message
        [question] = waiting["questions"]
        assert question["about"] == {"hotel": "Hotel Astoria in Lisbon", "nights": 2}

        assert page.post("pause", reason="lunch")["status"] == "paused"
        assert page.client.put("/runs/trip", json=TRIP).json()["status"] == "paused"  # a repeated start
        assert page.post(f"answers/{question['id']}", value=True)["status"] == "paused"
        again = page.client.post(f"/runs/trip/answers/{question['id']}", json={"value": False})
        assert again.status_code == 409
        assert "already has a different answer" in again.json()["error"]
        assert folder.orders("hotels") == []

        gate.unlink()
        page.post("resume")
        server.until(BOOK)
        with page.connected() as events:
            server.job.signal(signal.SIGTERM)
            until_closed(page)  # a busy machine may deliver the signal late
            gate.touch()
            assert list(events) == []  # an open stream does not hold up the deploy
        assert server.ended() in (0, -signal.SIGTERM)
        assert "Traceback" not in "".join(server.printed())

    folder.set()
    with served(folder, page) as server:
        done = page.follow()
        assert BOOK not in server.printed()  # the former server had finished the operation
        assert done["status"] == "completed"
        assert done["result"] == "The booking: done, 2 nights, Hotel Astoria in Lisbon."
        assert page.client.put("/runs/trip", json=TRIP).json() == done
    page.client.close()
    assert folder.orders("hotels") == ["2 nights, Hotel Astoria in Lisbon"]
    assert list(page.text.parts.values()) == [
        "I will look for a hotel in Lisbon.",
        "I found Hotel Astoria in Lisbon: 120 euros a night. I will book it.",
        done["result"],
    ]


def test_an_app_that_starts_without_a_look_is_caught(tmp_path: Path) -> None:
    folder, page = Folder(tmp_path), Page()
    folder.replace("app.py", "        return await show(run, engine)  # a repeated", "        pass  # a repeated")
    with served(folder, page):
        page.client.put("/runs/trip", json=TRIP)
        assert page.follow()["status"] == "waiting"
        assert page.post("pause")["status"] == "paused"
        assert page.client.put("/runs/trip", json=TRIP).json()["status"] != "paused"
    page.client.close()
