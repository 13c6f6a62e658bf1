"""The agent behind HTTP: start, follow, pause, resume, answer."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

from agent import agent
from fastapi import Body, Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse

from pausepoint import Budget, Engine, StoreError, UnknownSession
from pausepoint.errors import SessionError
from pausepoint.model import Restarted, StreamChunk

LIMITS = Budget(tokens=20_000, operations=100)
STOPPED = ("waiting", "paused", "completed", "failed", "cancelled")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with Engine(workflows=[agent]) as engine:
        app.state.engine = engine
        task = asyncio.create_task(pick_up(engine))
        yield
        task.cancel()


async def pick_up(engine: Engine) -> None:
    """Continue the runs that a deploy or a crash interrupted."""
    while not engine.ending:
        try:
            await engine.take_ready()
        except StoreError:
            logging.exception("Interrupted runs cannot be picked up. Trying again.")
        await asyncio.sleep(1)


def open_engine(request: Request) -> Engine:
    engine: Engine = request.app.state.engine
    return engine


Open = Annotated[Engine, Depends(open_engine)]
app = FastAPI(lifespan=lifespan)


@app.exception_handler(SessionError)
async def refuse(request: Request, error: SessionError) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 404 if isinstance(error, UnknownSession) else 409)


@app.put("/runs/{run}")
async def start(run: str, task: Annotated[str, Body(embed=True)], engine: Open) -> dict[str, Any]:
    with suppress(UnknownSession):
        return await show(run, engine)  # a repeated request must not resume a paused run, as engine.start does
    await engine.start(agent, session_id=run, task=task, budget=LIMITS)
    return await show(run, engine)


@app.get("/runs/{run}")
async def show(run: str, engine: Open) -> dict[str, Any]:
    found = await engine.session(run).outcome(wait=False)
    questions = [{"id": each.id, "text": each.next_question, "about": each.payload} for each in found.questions]
    return {"status": found.status, "questions": questions, "result": found.state.result}


@app.get("/runs/{run}/stream")
async def stream(run: str, engine: Open, last_event_id: Annotated[int, Header()] = 0) -> StreamingResponse:
    await engine.session(run).info()  # 404 before the response begins

    async def lines() -> AsyncIterator[str]:
        async for item in engine.session(run).stream(last_event_id):
            if isinstance(item, StreamChunk) and item.kind == "text":
                yield event("text", {"source": item.source, "text": item.data}, item.n)
            elif isinstance(item, Restarted):
                yield event("restarted", {"sources": item.sources}, item.n)
        found = await show(run, engine)
        if found["status"] in STOPPED:  # otherwise the server shuts down, or has not picked up the run: reconnect
            yield event("stopped", found)

    return StreamingResponse(lines(), media_type="text/event-stream")


def event(name: str, data: dict[str, Any], number: int | None = None) -> str:
    """Return a server-sent event. A browser that reconnects sends the last number as Last-Event-ID."""
    head = "" if number is None else f"id: {number}\n"
    return f"{head}event: {name}\ndata: {json.dumps(data)}\n\n"


@app.post("/runs/{run}/pause")
async def pause(run: str, engine: Open, reason: Annotated[str, Body(embed=True)] = "") -> dict[str, Any]:
    await engine.session(run).pause(reason=reason, wait=True)
    return await show(run, engine)


@app.post("/runs/{run}/resume")
async def resume(run: str, engine: Open) -> dict[str, Any]:
    await engine.session(run).resume()
    return await show(run, engine)


@app.post("/runs/{run}/answers/{question}")
async def answer(run: str, question: str, value: Annotated[Any, Body(embed=True)], engine: Open) -> dict[str, Any]:
    await engine.session(run).answer(value, question=question)
    return await show(run, engine)
