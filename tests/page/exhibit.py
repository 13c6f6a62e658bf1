"""A store with sessions of every kind, for the tests and the pictures of the page."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from pausepoint import Artifact, Context, Engine, Status, Workflow, guard, route, step
from pausepoint.orchestrator import Orchestrator, Task, TaskAgent

PACE = 0.02
"""Seconds that a simulated call takes."""


class Brief(BaseModel):
    topic: str
    angles: list[str] = []
    facts: list[str] = []
    reviewed: int = 0
    tone: str = ""
    draft: str = ""


ANGLES = ["habitat", "memory", "tool use", "play", "sleep"]


async def look_up(topic: str, angle: str) -> str:
    await asyncio.sleep(PACE)
    return f"What is known about {topic}, {angle}: three studies agree, one does not."


@step(writes="facts")
async def research(ctx: Context, topic: str, facts: list[str]) -> list[str]:
    first = len(facts)
    found = [await ctx.do(look_up, topic, angle) for angle in ANGLES[first : first + 3]]
    ctx.spend(usd=0.05 * len(found), tokens=6_000 * len(found))
    return [*facts, *found]


@step(writes="reviewed")
async def review(ctx: Context, facts: list[str], reviewed: int) -> int:
    await ctx.do(asyncio.sleep, PACE)
    ctx.spend(usd=0.01, tokens=900)
    return reviewed + 1


@route(after=review)
def enough(facts: list[str]) -> Literal["research", "tone"]:
    return "tone" if len(facts) >= len(ANGLES) else "research"


@step(writes="tone")
async def tone(ctx: Context, topic: str) -> str:
    return await ctx.ask(
        f"Which tone should the brief on {topic} have?", choices=["formal", "playful", "neutral"],
        expires=timedelta(hours=9),
    )  # fmt: skip


@step(writes="draft")
async def write(ctx: Context, topic: str, facts: list[str], tone: str) -> str:
    await ctx.do(asyncio.sleep, PACE)
    ctx.spend(usd=0.15, tokens=14_000)
    return f"# {topic.title()}\n\nIn a {tone} voice: {len(facts)} facts.\n\n" + "\n".join(f"- {each}" for each in facts)


brief = Workflow("brief", state=Brief, steps=[research, review, tone, write], routes=[enough])


# a refund needs a confirmation


class Refund(BaseModel):
    order: str
    amount: float
    paid: str = ""


def pay(order: str, amount: float) -> str:
    return f"{amount:.2f} € for {order}"


@step(writes="paid")
async def refund_order(ctx: Context, order: str, amount: float) -> str:
    await ctx.confirm(
        f"Pay {amount:.2f} € back for order {order}?", act=pay,
        payload={"tool": "pay", "order": order, "amount": amount},
        expires=timedelta(hours=2),
    )  # fmt: skip
    return await ctx.do(pay, order, amount)


refund = Workflow("refund", state=Refund, steps=[refund_order])


# a form with fields of every kind


class Address(BaseModel):
    street: str
    city: str = Field(description="Where the parcel goes")


class Booking(BaseModel):
    """The answer to one question."""

    name: str = Field(min_length=2, max_length=80)
    email: str = Field(json_schema_extra={"format": "email"})
    nights: int = Field(ge=1, le=30)
    room: Literal["single", "double", "suite"] = "double"
    country: Literal["Austria", "Belgium", "Denmark", "Estonia", "Finland", "Norway", "Sweden"] = "Norway"
    breakfast: bool = True
    arrival: str = Field(json_schema_extra={"format": "date"})
    address: Address
    guests: list[str] = Field(default_factory=list, max_length=4)
    remark: str = Field("", max_length=500)
    extras: dict[str, int] = {}
    contact: int | str = 0


class Trip(BaseModel):
    place: str
    booking: Booking | None = None


@step(writes="booking")
async def book(ctx: Context, place: str) -> Booking:
    return await ctx.ask(f"Which room in {place}?", Booking, payload={"hotel": place})


trip = Workflow("trip", state=Trip, steps=[book])


# sleeping, failing, guarded, long


class Digest(BaseModel):
    reader: str
    sent: int = 0


@step(writes="sent")
async def wait_for_morning(ctx: Context, sent: int) -> int:
    await ctx.sleep(timedelta(hours=19))
    return sent + 1


digest = Workflow("digest", state=Digest, steps=[wait_for_morning])


class Import(BaseModel):
    source: str
    rows: int = 0


@step(writes="rows")
def load_rows(source: str) -> int:
    raise ConnectionError(f"{source}:5439 refused the connection")


importer = Workflow("import", state=Import, steps=[load_rows])


class Memo(BaseModel):
    title: str
    approved: bool = False
    sections: list[str] = []
    memo: str = ""


@step(writes="sections", publishes=Artifact("sections.json"))
def outline_it(title: str) -> list[str]:
    return [f"{title}: {part}" for part in ("question", "law", "facts", "answer")]


@guard(after=outline_it)
def is_approved(approved: bool) -> str | None:
    return None if approved else "the sections are not approved; edit approved to true"


@step(writes="memo", publishes=Artifact("memo.md"))
def finish_memo(title: str, sections: list[str]) -> str:
    return f"# {title}\n\n" + "\n\n".join(sections)


memo = Workflow("memo", state=Memo, steps=[outline_it, finish_memo], guards=[is_approved])


class Crawl(BaseModel):
    site: str
    pages: int = 0


async def fetch_page(n: int) -> int:
    await asyncio.sleep(0.2)
    return n


@step(writes="pages")
async def crawl_site(ctx: Context, site: str) -> int:
    for n in range(960):
        ctx.progress(n, 960)
        ctx.stream(f"page {n} of {site}\n")
        await ctx.do(fetch_page, n)
    return 960


crawl = Workflow("crawl", state=Crawl, steps=[crawl_site])


# a run: agents work on a graph of tasks

RELEASE = [
    Task(id="schema"), Task(id="api", needs=["schema"]), Task(id="page", needs=["schema"]), Task(id="importer"),
    Task(id="clean", needs=["schema"]), Task(id="guide", needs=["schema"]), Task(id="tests", needs=["api", "page"]),
    Task(id="ship", needs=["tests", "clean"]),
]  # fmt: skip


async def develop(agent: TaskAgent) -> str:
    """Work on a task: schema is done at once, importer fails, clean needs an approval, others take long."""
    task = agent.task.id
    if task == "importer":
        raise ConnectionError("warehouse.example:5439 refused the connection")
    if task == "clean":
        await agent.confirm("Run a restricted command?", payload={"tool": "shell", "command": "rm -rf build/ dist/"})
    for _ in range(0 if task == "schema" else 5_000):
        await agent.call(asyncio.sleep, 0.2)
    return task


WORKFLOWS = [brief, refund, trip, digest, importer, memo, crawl]


async def fill(engine: Engine, folder: Path) -> None:
    """Start the sessions of the exhibit, and bring each to its place."""
    done = await engine.start(
        brief, topic="octopus", session_id="brief-octopus", owner="ann", tags=["marine"], budget=2
    )
    await until(engine, done.id, Status.WAITING)
    (question,) = await engine.session(done.id).questions()
    await engine.answer(question.id, "playful", by="ann")
    await until(engine, done.id, Status.COMPLETED)
    await engine.session(done.id).rewind("tone", by="ann", reason="another tone")
    await engine.session(done.id).resume(by="ann")
    await until(engine, done.id, Status.WAITING)
    (question,) = await engine.session(done.id).questions()
    await engine.answer(question.id, "formal", by="ann")
    for topic in ("limpet", "whelk"):
        await engine.start(brief, topic=topic, session_id=f"brief-{topic}", owner="ben", tags=["campaign"])
    await engine.start(refund, order="B-2044", amount=219, session_id="refund-b-2044", owner="ann")
    await engine.start(trip, place="Tromsø", session_id="trip-tromso", owner="cleo")
    for reader in ("ann", "ben", "cleo"):
        await engine.start(digest, reader=reader, session_id=f"digest-{reader}", owner=reader)
    await engine.start(importer, source="warehouse.example", session_id="import-returns", tags=["night"])
    await engine.start(memo, title="Moorwerk", session_id="memo-moorwerk", owner="ann", folder=folder / "memo-moorwerk")
    await engine.start(crawl, site="kelp.example", session_id="crawl-kelp", owner="ben", budget=3)
    await engine.start(brief, topic="lamprey", session_id="brief-lamprey", owner="ben", budget=0.05)
    run = Orchestrator(engine, "release-2", develop, agents=3)
    await run.start(RELEASE, owner="ann", tags=["sprint"], budget=20)
    await until(engine, "brief-limpet", Status.WAITING)
    await engine.session("brief-octopus").fork("tone", session_id="brief-octopus-b", paused=True, by="ben",
                      reason="compare two tones first")  # fmt: skip
    for session_id, status in [
        ("import-returns", Status.FAILED),
        ("memo-moorwerk", Status.PAUSED),
        ("digest-cleo", Status.SLEEPING),
    ]:
        await until(engine, session_id, status)


async def until(engine: Engine, session_id: str, status: Status) -> None:
    """Wait until a session has a status."""
    while (await engine.session(session_id).info()).status is not status:
        await asyncio.sleep(0.02)
