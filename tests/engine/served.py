"""A FastAPI app with an engine in its lifespan, for the tests with real servers. ``STORE`` names its store."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import StreamingResponse

from pausepoint import Engine
from tests.engine.jobs import napping, ticking

flows = {"ticking": ticking, "napping": napping}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with Engine(os.environ["STORE"], workflows=flows.values()) as engine:
        app.state.engine = engine
        app.state.waiting = 0
        yield


async def engine_of(request: Request) -> Engine:
    engine: Engine = request.app.state.engine
    return engine


Open = Annotated[Engine, Depends(engine_of)]
app = FastAPI(lifespan=lifespan)


@app.get("/")
async def waiting(request: Request) -> int:
    """Return how many requests wait for a session."""
    found: int = request.app.state.waiting
    return found


@app.post("/{workflow}")
async def start(workflow: str, engine: Open) -> str:
    return (await engine.start(flows[workflow], session_id=workflow)).id


@app.get("/{workflow}")
async def status(workflow: str, engine: Open) -> str:
    return (await engine.session(workflow).info()).status.value


@app.get("/{workflow}/outcome")
async def outcome(workflow: str, engine: Open, request: Request) -> dict[str, Any]:
    request.app.state.waiting += 1
    found = await engine.session(workflow).outcome()
    return {"status": found.status.value, "ending": engine.ending}


@app.get("/{workflow}/events")
async def events(workflow: str, engine: Open, request: Request) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        request.app.state.waiting += 1
        async for event in engine.session(workflow).events(follow=True):
            yield event.event_type + "\n"

    return StreamingResponse(lines())


@app.get("/{workflow}/watch")
async def watch(workflow: str, engine: Open, request: Request) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        request.app.state.waiting += 1
        async for info in engine.session(workflow).watch():
            yield info.status.value + "\n"

    return StreamingResponse(lines())
