"""The web chat for tests: a real server with the helpdesk, and customers who have a link."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from pausepoint import Engine
from pausepoint.apps.helpdesk.models import Desk
from pausepoint.apps.helpdesk.operators import WORKFLOWS
from pausepoint.apps.helpdesk.shop import open_shop
from pausepoint.apps.helpdesk.site import NAME, WebChat
from pausepoint.server.asgi import Settings, application
from pausepoint.server.tokens import Tokens
from pausepoint.server.visitors import Visitors
from tests.apps.helpdesk_kit import NOW
from tests.server.kit import FREE, Served, served
from tests.support.loop import PATIENCE

DAY = 86_400.0


@contextmanager
def web(folder: Path, port: int = 0, **settings: Any) -> Iterator[Served]:
    """Serve the helpdesk of a folder. Persons are asked as long as it runs."""
    open_shop(folder / "shop.db")
    site = WebChat(Desk(shop=folder / "shop.db", now=NOW, **settings)).site()

    def make(engine: Engine, tokens: Tokens, port: int) -> Any:
        return application(
            engine, Settings(hosts=[f"127.0.0.1:{port}"], tokens=tokens, name="root", limits=FREE, sites=(site,))
        )

    with served(folder, workflows=WORKFLOWS, make=make, port=port) as found:
        assert site.work is not None
        work = asyncio.run_coroutine_threadsafe(site.work(found.engine), found.loop)
        try:
            yield found
        finally:
            work.cancel()


def link(folder: Path, customer: str, seconds: float = DAY) -> str:
    """Return the signed part of a link."""
    return Visitors(Tokens(folder), NAME).link(customer, seconds).link


class Customer:
    """A customer's browser, without the page."""

    def __init__(self, base: str, link: str | None = None) -> None:
        self.http = httpx.Client(
            base_url=f"{base}/{NAME}/api", headers={"X-Pausepoint": "1"}, timeout=PATIENCE, trust_env=False,
            verify=False,
        )  # fmt: skip
        if link is not None:
            answer = self.http.post("/login", json={"link": link})
            assert answer.status_code == 200, answer.text

    def __enter__(self) -> Customer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.http.close()

    def send(self, text: str, key: str | None = None) -> httpx.Response:
        return self.http.post("/messages", json={"text": text, "key": key or str(uuid4())})

    def read(self) -> dict[str, Any]:
        answer = self.http.get("/messages")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def until(self, holds: Callable[[list[tuple[str, str]]], bool]) -> list[tuple[str, str]]:
        """Wait until the messages are as expected, and the helpdesk's turn is over."""
        end = time.monotonic() + PATIENCE
        while True:
            read = self.read()
            said = [(each["author"], each["text"]) for each in read["messages"]]
            if not read["typing"] and holds(said):
                return said
            assert time.monotonic() < end, said
            time.sleep(0.02)

    def says(self, text: str) -> str:
        """Send a message, and return the reply."""
        before = len(self.read()["messages"])
        assert self.send(text).json() == {"late": False}
        return self.until(lambda said: len(said) >= before + 2)[-1][1]

    def streamed(self) -> Iterator[dict[str, Any]]:
        """Yield what the stream sends."""
        with self.http.stream("GET", "/stream") as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))
