"""The workflows whose sessions are kept in this folder. What they write must stay readable for ever."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from pausepoint import Append, Context, Merge, Workflow, guard, route, step


class Mood(StrEnum):
    CALM = "calm"
    CROSS = "cross"


class Note(BaseModel):
    text: str
    at: datetime


class Shelf(BaseModel):
    """One field of every kind that a state can have."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    name: str
    mood: Mood = Mood.CALM
    price: Decimal = Decimal("0.10")
    day: date = date(2024, 2, 29)
    span: timedelta = timedelta(seconds=1.5)
    id: UUID = UUID("00000000-0000-0000-0000-000000000001")
    raw: bytes = b""
    pair: tuple[int, str] | None = None
    words: frozenset[str] = frozenset()
    notes: Annotated[list[Note], Append] = []
    tally: Annotated[dict[str, int], Merge] = {}
    page: str = ""
    rounds: int = 0


async def describe(name: str) -> str:
    return f"{name}, described"


async def measure(word: str, ctx: Context) -> int:
    ctx.emit("measured", word)
    return len(await ctx.do(describe, word))


@step(writes=["mood", "pair", "raw", "words", "price"])
async def sort(name: str, ctx: Context) -> dict[str, Any]:
    text = await ctx.do(describe, name)
    ctx.spend(usd=0.25, tokens=12)
    words = frozenset(text.replace(",", "").split())
    return {"mood": Mood.CROSS, "pair": (1, text), "raw": b"\x00\xff", "words": words, "price": Decimal("12.50")}


@step(writes=["notes", "tally", "rounds"])
async def count(name: str, rounds: int, ctx: Context) -> dict[str, Any]:
    sizes = await ctx.map(measure, ["a", "bb", f"{rounds}"], concurrency=1)
    note = Note(text=f"round {rounds}", at=datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=rounds))
    return {"notes": [note], "tally": {f"r{rounds}": sum(sizes)}, "rounds": rounds + 1}


@step(writes="page")
async def fill(name: str, ctx: Context) -> str:
    return f"{name}: ü\u2028 " * 3_000  # large enough to be stored by its hash


@route(after="count")
def again(rounds: int) -> Literal["count", "fill"]:
    return "count" if rounds < 3 else "fill"


@guard(after="fill")
def fits(name: str) -> str | None:
    return "the shelf is full" if name == "full" else None


shelf = Workflow("shelf", state=Shelf, steps=[sort, count, fill], routes=[again], guards=[fits], events=["measured"])


class Diary(BaseModel):
    n: int = 0
    lines: Annotated[list[str], Append] = []


@step(writes=["n", "lines"])
async def write(n: int) -> dict[str, Any]:
    return {"n": n + 1, "lines": [f"line {n}"]}


@route(after="write")
def on(n: int) -> Literal["write", None]:
    return "write" if n < 300 else None


diary = Workflow("diary", state=Diary, steps=[write], routes=[on])


class Wake(BaseModel):
    said: str = ""
    slept: bool = False


@step(writes="slept")
async def nap(ctx: Context) -> bool:
    await ctx.sleep(timedelta(hours=8))
    return True


@step(writes="said")
async def listen(ctx: Context) -> str:
    return await ctx.receive()


wake = Workflow("wake", state=Wake, steps=[nap, listen])


class Poll(BaseModel):
    number: int = 0
    mood: Mood | None = None
    sure: bool = False


@step(writes=["number", "mood", "sure"])
async def ask(ctx: Context) -> dict[str, Any]:
    number = await ctx.ask("How many?", int, key="number", expires=timedelta(days=1))
    mood = await ctx.ask("In which mood? 🐙", Mood, default=Mood.CALM)
    return {"number": number, "mood": mood, "sure": await ctx.confirm("Sure?", act=describe)}


poll = Workflow("poll", state=Poll, steps=[ask])

WORKFLOWS: dict[str, Workflow[Any]] = {workflow.name: workflow for workflow in (shelf, diary, wake, poll)}
