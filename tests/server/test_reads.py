"""No read of many sessions runs on the thread of the event loop, whichever address is asked."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from pausepoint.server.routes import ROUTES
from pausepoint.stores.sql import pickup, questions, removal, sessions, transfer
from pausepoint.stores.sqlite import SqliteStore, about
from tests.server.kit import Served, send, served

LISTED: tuple[tuple[Any, str], ...] = (
    (sessions, "find"), (sessions, "ids"), (sessions, "tally"), (sessions, "spending"), (pickup, "waking"),
    (questions, "found"), (questions, "tally"), (about, "about"), (transfer, "whole"), (removal, "tombstones"),
)  # fmt: skip
"""The functions of the store that may read many rows."""

NOT_READ = {"sessions.ids"}
"""What no GET route needs."""


def label(module: Any, name: str) -> str:
    return f"{module.__name__.rpartition('.')[2]}.{name}"


class Watch:
    """Notes on which threads the listed reads run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: defaultdict[str, set[int]] = defaultdict(set)
        for module, name in LISTED:
            monkeypatch.setattr(module, name, self._watched(label(module, name), getattr(module, name)))

    def _watched(self, name: str, read: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            if name != "questions.found" or not args[1].ids:  # questions that are named are few
                self.threads[name].add(threading.get_ident())
            return read(*args, **kwargs)

        return watched

    def on(self, thread: int) -> set[str]:
        return {name for name, found in self.threads.items() if thread in found}


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as server:
        server.asked("one")
        server.finished("two")
        yield server


def get_everything(server: Served) -> int:
    """Send a request to every address that is read, and return the thread of the loop."""
    (question,) = server.run(server.engine.session("one").questions())
    real = {"session_id": "one", "question_id": question.id, "field": "topic", "step": "choose", "name": "brief"}
    with server.admin() as client:
        for route in ROUTES:
            if route.method == "GET":
                path = re.sub(r"\{(\w+)(:path)?\}", lambda found: real.get(found[1], "1"), route.path)
                params = {"a": "1", "b": "2"} if path.endswith("/diff") else {}
                answer = send(client, route, path, params=params)
                assert answer.status_code < 500, (path, answer.status_code)
        assert client.get("/sessions/gone").status_code == 404
        assert client.get("/sessions", params={"text": "o", "count": "1"}).status_code == 200

    async def here() -> int:
        return threading.get_ident()

    return server.run(here())


@pytest.mark.long
def test_no_listed_read_runs_on_the_thread_of_the_loop(asked: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    loop = get_everything(asked)
    assert watch.on(loop) == set()
    assert set(watch.threads) >= {label(*each) for each in LISTED} - NOT_READ, "each of them was read"


@pytest.mark.long
def test_a_store_that_reads_inline_would_be_found(asked: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scan(self: SqliteStore, read: Callable[[apsw.Connection], Any], *, at_once: bool = False) -> Any:
        with self._reading() as connection:
            return read(connection)

    monkeypatch.setattr(SqliteStore, "_scan", scan)
    watch = Watch(monkeypatch)
    assert "sessions.tally" in watch.on(get_everything(asked))
