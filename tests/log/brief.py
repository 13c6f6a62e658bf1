"""A workflow that researches and writes a brief, and the telemetry and log lines of its sessions."""

from __future__ import annotations

import logging
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from pydantic import BaseModel

from pausepoint import Context, Engine, Retry, Workflow, step
from pausepoint.log.telemetry import SessionIdFilter
from tests.support.loop import on_loop
from tests.support.telemetry import Telemetry

SECRET = "Ada Lovelace, 12 St James's Square"


class State(BaseModel):
    who: str = ""
    notes: list[str] = []
    text: str = ""


def parent_of(span: ReadableSpan, among: Telemetry) -> str:
    assert span.parent is not None
    (parent,) = [each for each in among.spans if each.context and each.context.span_id == span.parent.span_id]
    return parent.name


def trace_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("pausepoint."): value for name, value in (span.attributes or {}).items()}


async def look_up(name: str) -> str:
    return f"about {name}"


@step(writes="notes")
async def collect(ctx: Context) -> list[str]:
    return await ctx.map(look_up, ["a", "b"])


@step(writes="text")
async def write(notes: list[str], ctx: Context) -> str:
    return await ctx.do(look_up, notes[0])


workflow = Workflow("brief", state=State, steps=[collect, write])


@on_loop
async def run_brief(session_id: str = "s-1") -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(workflow, session_id=session_id)).outcome()


@on_loop
async def run_failing(retry: int) -> None:
    async def shaky(attempt: int) -> str:
        if attempt == 1:
            raise ConnectionError("down")
        return "up"

    @step(writes="text", retry=Retry(retry, first=0))
    async def call(ctx: Context) -> str:
        return await ctx.do(shaky, ctx.attempt, key=ctx.attempt)

    async with Engine(":memory:") as engine:
        await (await engine.start(Workflow("calls", state=State, steps=[call]))).outcome()


class Lines(logging.Handler):
    """A handler that keeps the log records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.addFilter(SessionIdFilter())

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def places(self) -> dict[str, tuple[str, str, int]]:
        return {each.getMessage(): place(each) for each in self.records}


def place(record: logging.LogRecord) -> tuple[str, str, int]:
    known = vars(record)
    return known["session_id"], known["step"], known["visit"]
