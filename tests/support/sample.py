"""A workflow that uses most features and notes every execution.

The functions of its operations return ``<label>=<value>``, so a record in the log shows which execution it remembers.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from pausepoint import Append, BlockingContext, Context, Merge, Workflow, guard, route, step
from tests.support.points import points

WIDTH = 2
"""The largest number of operations in flight at the same time."""

COMPOSITE = "op enrich_one"
"""An operation with a nested one. A program that shuts down starts no nested operation, so this one runs again."""

BLOCKING = ("step offer", "step tally", "op quote")
"""The executions that run in a thread and cannot be cancelled."""

LAST = "step close#1"
TOPIC = "octopus"


class Survey(BaseModel):
    topic: str
    angles: list[str] = []
    facts: list[str] = []
    notes: Annotated[dict[str, str], Merge] = {}
    trail: Annotated[list[str], Append] = []
    price: int = 0
    draft: str = ""
    rounds: int = 0
    pictures: list[str] = []
    appendix: str = ""
    total: int = 0


async def _step(name: str, visit: int = 1) -> None:
    await points.begin(f"step {name}#{visit}")


async def _did(name: str, value: str = "ok") -> str:
    await points.begin(f"op {name}")
    return f"{name}={value}"


async def suggest(topic: str) -> str:
    return await _did("suggest", f"{topic}:mind,arms,ink,skin")


async def look_up(angle: str, ctx: Context) -> str:
    ctx.spend(usd=0.25)
    return await _did(f"look_up:{angle}", f"fact about {angle}")


async def define(angle: str) -> str:
    return await _did(f"define:{angle}", angle.upper())


async def enrich_one(angle: str, ctx: Context) -> str:
    text = await _did(f"enrich_one:{angle}")
    defined = await ctx.do(define, angle)
    ctx.emit("enriched", angle)
    return f"{text}; {defined}"


def quote(angle: str) -> str:
    points.enter(f"op quote:{angle}")
    return f"quote:{angle}={len(angle)}"


async def phrase(part: str, number: int) -> str:
    return await _did(f"phrase:{part}:{number}")


async def paint(angle: str) -> str:
    return await _did(f"paint:{angle}")


async def post(draft: str) -> str:
    return await _did("post", str(len(draft)))


@step(writes="angles")
async def plan(topic: str, ctx: Context) -> list[str]:
    await _step("plan")
    found = await ctx.do(suggest, topic)
    return found.partition(":")[2].split(",")


@step(writes="facts")
async def collect(angles: list[str], ctx: Context) -> list[str]:
    await _step("collect")
    ctx.emit("collecting", f"{len(angles)} angles")
    return await ctx.map(look_up, angles, concurrency=WIDTH)


@step(writes="notes")
async def enrich(angles: list[str], ctx: Context) -> dict[str, str]:
    await _step("enrich")
    texts = await ctx.map(enrich_one, angles[:3], key=str, concurrency=WIDTH)
    return dict(zip(angles, texts, strict=False))


@step(writes=["price", "notes"])
def offer(angles: list[str], ctx: BlockingContext) -> dict[str, Any]:
    points.enter("step offer#1")
    quotes = [ctx.do(quote, angle) for angle in angles[:2]]
    ctx.spend(usd=0.5, tokens=120)
    ctx.emit("offered", "two quotes")
    return {"price": len(quotes), "notes": {"offer": " ".join(quotes)}}


@step(writes="trail")
async def check(facts: list[str]) -> list[str]:
    await _step("check")
    return [f"checked {len(facts)}"]


def is_foreign(topic: str) -> bool:
    return topic.startswith("le ")


@step(writes="topic", when=is_foreign)
async def translate(topic: str) -> str:
    await _step("translate")
    return topic.removeprefix("le ")


@step(writes=["draft", "trail"])
async def write(draft: str, rounds: int, ctx: Context) -> dict[str, Any]:
    await _step("write", ctx.visit)
    parts = [await ctx.do(phrase, part, rounds, key=part) for part in ("head", "body", "tail", "end")]
    ctx.spend(tokens=7)
    return {"draft": draft + " ".join(parts), "trail": [f"wrote {ctx.visit}"]}


@step(writes=["rounds", "trail"])
async def review(rounds: int, ctx: Context) -> dict[str, Any]:
    await _step("review", ctx.visit)
    ctx.emit("reviewed", f"round {rounds + 1}")
    return {"rounds": rounds + 1, "trail": [f"reviewed {rounds + 1}"]}


@step(writes="pictures")
async def illustrate(angles: list[str], ctx: Context) -> list[str]:
    await _step("illustrate")
    return list(await asyncio.gather(*(ctx.do(paint, angle) for angle in angles[:WIDTH])))


@step(writes="total")
def tally(facts: list[str], pictures: list[str]) -> int:
    points.enter("step tally#1")
    return len(facts) + len(pictures)


@step(writes="appendix")
async def archive(topic: str) -> str:
    await _step("archive")
    return topic * 4_000  # large enough to be stored by hash


@step(writes="trail")
async def publish(draft: str, appendix: str, ctx: Context) -> list[str]:
    await _step("publish")
    ctx.spend(usd=1)
    posted = await ctx.do(post, draft)
    ctx.emit("published", posted)
    return [posted, f"with {len(appendix)}"]


@step(writes="trail")
async def close(total: int) -> list[str]:
    await _step("close")
    return [f"closed {total}"]


@guard(after="check")
def has_facts(facts: list[str]) -> str | None:
    return None if facts else "there are no facts yet"


@route(after="review")
def good_enough(rounds: int) -> Literal["write", "illustrate"]:
    return "write" if rounds < 3 else "illustrate"


sample = Workflow(
    "survey",
    state=Survey,
    steps=[plan, collect, enrich, offer, check, translate, write, review, illustrate, tally, archive, publish, close],
    routes=[good_enough],
    guards=[has_facts],
    events=["collecting", "enriched", "offered", "reviewed", "published"],
)
