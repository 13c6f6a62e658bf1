"""Sessions of unusual kinds and sizes, for the tests and the pictures of the page of one session."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, create_model

from pausepoint import Artifact, Context, Engine, Retry, Status, Workflow, route, step, workflow
from tests.page.exhibit import PACE, Digest, digest, until

LARGE = 5_000_000
"""Bytes of the large field."""

FEW = Retry(attempts=3, first=0.05, jitter=0)


# a function: its operations are what there is to see


async def fetch_part(name: str) -> str:
    await asyncio.sleep(PACE)
    return f"the text of {name}"


async def flaky(left: list[int]) -> str:
    await asyncio.sleep(PACE)
    if left.pop():
        raise TimeoutError("the model did not answer in 30 s")
    return "a summary"


@workflow
async def summarise(topic: str, ctx: Context) -> str:
    """A workflow that is one function."""
    for name in ("abstract", "method", "results"):
        await ctx.do(fetch_part, name)
    text = await ctx.do(flaky, [0, 1, 1], retry=FEW)
    await ctx.confirm(f"Publish the summary of {topic}?", expires=None)
    return text


# a parent, whose children work


class Book(BaseModel):
    titles: list[str]
    pages: int = 0


@step(writes="pages")
async def write_chapters(ctx: Context, titles: list[str]) -> int:
    async with asyncio.TaskGroup() as group:
        for title in titles:
            group.create_task(ctx.call(digest, reader=title))
    return len(titles)


book = Workflow("book", state=Book, steps=[write_chapters])


# a step that fails after two attempts, in code of its own


class Sync(BaseModel):
    source: str
    rows: int = 0
    loaded: int = 0


@step(writes="rows")
async def count_rows(ctx: Context, source: str) -> int:
    await ctx.do(asyncio.sleep, PACE)
    return 12_480


def connect(host: str) -> int:
    raise ConnectionError(f"{host}:5439 refused the connection; is the cluster awake?")


@step(writes="loaded", retry=FEW)
async def load_all(ctx: Context, source: str) -> int:
    await ctx.do(asyncio.sleep, PACE)
    return connect(source)


sync = Workflow("sync", state=Sync, steps=[count_rows, load_all])


# many items, a large field, many steps


class Batch(BaseModel):
    count: int
    found: list[int] = []


async def square(n: int) -> int:
    return n * n


@step(writes="found")
async def square_all(ctx: Context, count: int) -> list[int]:
    return await ctx.map(square, range(count))


@step(writes="count")
async def hold(ctx: Context, found: list[int]) -> int:
    await ctx.ask("Continue?", choices=["yes", "no"])
    return len(found)


batch = Workflow("batch", state=Batch, steps=[square_all, hold])


class Scan(BaseModel):
    name: str
    text: str = ""
    note: str = ""


@step(writes="text")
def read_scan(name: str) -> str:
    return "<b>0123456789</b>" * (LARGE // 17)


@step(writes="note")
async def comment(ctx: Context, text: str) -> str:
    return await ctx.ask("What is on it?", str)


scan = Workflow("scan", state=Scan, steps=[read_scan, comment])


def ladder(count: int) -> Workflow[BaseModel]:
    """Return a workflow of many steps. It asks in the middle."""
    fields = {f"rung_{n}": (int, 0) for n in range(1, count + 1)}
    model = create_model("Ladder", **fields)  # type: ignore[call-overload]

    def rung(n: int) -> Any:
        async def climb(ctx: Context) -> int:
            if n == count // 2:
                await ctx.ask(f"Climb on from rung {n}?", choices=["yes", "no"])
            return n

        return step(name=f"rung_{n}", writes=f"rung_{n}")(climb)

    return Workflow(f"ladder_{count}", state=model, steps=[rung(n) for n in range(1, count + 1)])


ladder_34, ladder_120 = ladder(34), ladder(120)


class Rounds(BaseModel):
    n: int = 0


@step(writes="n")
def turn(n: int) -> int:
    return n + 1


@route(after=turn)
def again(n: int) -> Literal["turn"] | None:
    return "turn" if n < 450 else None


rounds = Workflow("rounds", state=Rounds, steps=[turn], routes=[again])


# artifacts in every condition


class Report(BaseModel):
    title: str
    research: str = ""
    sections: dict[str, str] = {}
    final: str = ""


@step(writes="research", publishes=Artifact("1-research.md"))
def gather(title: str) -> str:
    return f"# Research on {title}\n\nThe market grows.\nTwo rivals exist.\n"


@step(writes="sections", publishes=Artifact("2-sections.json"))
def draft_sections(research: str) -> dict[str, str]:
    return {"team": "Three people.", "market": research.splitlines()[2], "risks": "Few."}


@step(writes="final", publishes=Artifact("3-final.md"))
async def assemble(ctx: Context, title: str, sections: dict[str, str]) -> str:
    await ctx.ask(f"Is the report on {title} ready?", choices=["yes", "no"])
    return "\n".join(sections.values()) + "\n"


report = Workflow("report", state=Report, steps=[gather, draft_sections, assemble])
visitors = Workflow.guest("visitors", state=Digest)

STRANGE = "b:ann@example.org+1"
"""An id with every kind of character that an id may have."""

KINDS = [summarise, book, sync, batch, scan, ladder_34, ladder_120, report, rounds, visitors]


async def add(engine: Engine, folder: Path, items: int = 10_000) -> None:
    """Start the sessions, and bring each to its place."""
    await engine.start(summarise, topic="kelp", session_id="summary-kelp", owner="ann")
    await engine.start(book, titles=["tides", "reefs"], session_id="book-sea", owner="ben")
    await engine.start(sync, source="warehouse.example", session_id="sync-returns", tags=["night"])
    await engine.start(batch, count=items, session_id="batch-large")
    await engine.start(scan, name="map of 1699", session_id="scan-map")
    await engine.start(ladder_34, session_id="ladder-34")
    await engine.start(ladder_120, session_id="ladder-120")
    await engine.start(rounds, session_id="rounds")
    await engine.start(report, title="Brinefjord", session_id="report-brinefjord", folder=folder / "report")
    await engine.start(digest, reader="x", session_id=STRANGE, owner="o'neill & <sons>", tags=["a/b", "<i>tag</i>"])
    await _visit(engine)
    await engine.start(digest, reader="gone", session_id="digest-removed", paused=True)
    await engine.session("digest-removed").remove(by="ann", reason="asked to")
    for session_id in ("summary-kelp", "batch-large", "scan-map", "ladder-34", "ladder-120", "report-brinefjord"):
        await until(engine, session_id, Status.WAITING)
    await until(engine, "sync-returns", Status.FAILED)
    await engine.session("report-brinefjord").pause(reason="read the research first", by="ann")
    (folder / "report" / "1-research.md").write_text(
        "# Research on Brinefjord\n\nThe market shrinks.\nTwo rivals exist.\n"
    )
    (folder / "report" / "2-sections.json").write_text('{"team": "Three')


async def _visit(engine: Engine) -> None:
    async with engine.visit(visitors, session_id="visitor-1", input={"reader": "ann"}) as ctx:
        await ctx.do(fetch_part, "lobby")
        ctx.output = {"sent": 1}
