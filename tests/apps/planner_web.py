"""The plan on a phone for tests: a real server with the planner's page, and people who have a link."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from pausepoint import Engine
from pausepoint.apps.planner import planner, sessions
from pausepoint.apps.planner.models import PlannerState, Upload
from pausepoint.apps.planner.site import NAME, PhonePlan
from pausepoint.server.asgi import Settings, application
from pausepoint.server.tokens import Tokens
from pausepoint.server.visitors import Visitors
from tests.apps.planner_kit import FILES, INPUTS
from tests.server.kit import FREE, Served, served
from tests.support.loop import PATIENCE

DAY = 86_400.0


@contextmanager
def web(folder: Path, **options: Any) -> Iterator[Served]:
    """Serve the planner of a folder."""
    site = PhonePlan().site()

    def make(engine: Engine, tokens: Tokens, port: int) -> Any:
        return application(
            engine, Settings(hosts=[f"127.0.0.1:{port}"], tokens=tokens, name="root", limits=FREE, sites=(site,))
        )

    with served(folder, workflows=(planner,), make=make, **options) as server:
        yield server


def plan(server: Served, session_id: str = "spring", uploads: list[Upload] = FILES, **inputs: Any) -> PlannerState:
    """Make a plan on a server."""

    async def made() -> PlannerState:
        session = await server.engine.start(
            planner, sessions.starting(INPUTS | inputs, uploads), session_id=session_id
        )  # fmt: skip
        return (await session.outcome()).state

    return server.run(made())


def link(folder: Path, session_id: str = "spring", seconds: float = DAY) -> str:
    """Return the signed part of a link."""
    return Visitors(Tokens(folder), NAME).link(session_id, seconds).link


@contextmanager
def phone(base: str, link: str | None = None) -> Iterator[httpx.Client]:
    """Yield a client that has signed in with a link, without the page."""
    with httpx.Client(
        base_url=f"{base}/{NAME}/api", headers={"X-Pausepoint": "1"}, timeout=PATIENCE, trust_env=False,
        verify=False,
    ) as http:  # fmt: skip
        if link is not None:
            answer = http.post("/login", json={"link": link})
            assert answer.status_code == 200, answer.text
        yield http
