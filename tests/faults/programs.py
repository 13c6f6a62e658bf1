"""The programs that the trials kill: small workflows that run the same way in every process.

A program starts its session, or resumes it if it exists, until it has completed. Every step body and every operation
notes that it ran, under a unique label.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from pausepoint import Append, BlockingContext, Context, Engine, Session, Status, Workflow, guard, route, step
from pausepoint.stores.base import Store
from pausepoint.stores.sqlite import SqliteStore, schema, writer
from tests.faults.witness import Note, Notes, Witness

SESSION = "s1"
LARGE = 17_000  # bytes; stored as a blob, which makes a commit of many pages


class Clock:
    """A clock that advances by a microsecond with each read, so times are unique and the same in every run."""

    def __init__(self, incarnation: int) -> None:
        self.micros = 1_700_000_000_000_000 + incarnation * 1_000_000

    def now(self) -> int:
        self.micros += 1
        return self.micros

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


@dataclass
class Running:
    """The parts of the running program that the functions below use."""

    ran: Callable[[str], None] = lambda label: None
    engine: Engine | None = None


NOW = Running()


class Brief(BaseModel):
    topic: str
    facts: list[str] = []
    draft: str = ""
    rounds: int = 0
    log: Annotated[list[str], Append] = []


async def look_up(what: str) -> str:
    NOW.ran(what)
    return what


async def compose(label: str) -> str:
    NOW.ran(label)
    return label


async def ask_for_a_break(label: str) -> str:
    NOW.ran(label)
    assert NOW.engine is not None
    await NOW.engine.session(SESSION).pause(reason="lunch", by="ann")
    return label


def judge(label: str) -> str:
    NOW.ran(label)
    return label


@step(writes="facts")
async def research(topic: str, ctx: Context) -> list[str]:
    NOW.ran(f"research#{ctx.visit}")
    return await ctx.map(look_up, [f"fact {topic} {n}" for n in range(2)], concurrency=1)


@step(writes="draft")
async def write(facts: list[str], rounds: int, ctx: Context) -> str:
    NOW.ran(f"write#{ctx.visit}")
    draft = await ctx.do(compose, f"draft {rounds}")
    if not rounds:
        await ctx.do(ask_for_a_break, "break")
    return f"{draft} from {len(facts)} facts" + "." * rounds * LARGE


@step(writes=["log", "rounds"])
def review(rounds: int, ctx: BlockingContext) -> dict[str, object]:
    NOW.ran(f"review#{ctx.visit}")
    ctx.spend(usd=0.25)
    return {"log": [ctx.do(judge, f"judged {rounds}")], "rounds": rounds + 1}


@route(after="review")
def again(rounds: int) -> Literal["write"] | None:
    return "write" if rounds < 2 else None


@guard(after="research")
def enough(facts: list[str]) -> str | None:
    return None if facts else "there are no facts"


@step(writes="draft")
async def jot(topic: str, ctx: Context) -> str:
    NOW.ran(f"jot#{ctx.visit}")
    return await ctx.do(compose, f"a line on {topic}")


short = Workflow("short", state=Brief, steps=[jot])
looping = Workflow("looping", state=Brief, steps=[research, write, review], routes=[again])
guarded = Workflow("guarded", state=Brief, steps=[research, review], guards=[enough])


@dataclass(frozen=True)
class Program:
    """A workflow and the conditions under which it runs."""

    workflow: Workflow[Brief]
    start: dict[str, Any] = field(default_factory=dict)
    wal_pages: int = schema.WAL_PAGES  # few pages: the WAL is checkpointed while sessions run
    prepared: bool = True  # the store exists and contains other sessions; otherwise it is an empty file
    inline: bool = True  # a single commit runs on the loop's thread, never on the writer's

    def arrange(self) -> None:
        """Fix the choices that the store would make by time, so that every run has the same touches."""
        schema.WAL_PAGES = self.wal_pages
        writer.CHEAP = math.inf if self.inline else 0.0


PROGRAMS = {
    "first run": Program(short, prepared=False, inline=False),
    "loop": Program(looping),
    "folding": Program(guarded, {"paused": True}, wal_pages=12),
    "threaded": Program(guarded, {"paused": True}, wal_pages=12, inline=False),
    "short": Program(short),
}


async def run(
    program: Program, path: Path, notes: Notes, incarnation: int = 1, *, vfs: str | None = None,
    synchronous: str = "FULL", twin: Callable[[Store], Store] = lambda store: store,
) -> BaseModel:  # fmt: skip
    """Start or resume the session until it has completed, and return the final state."""
    program.arrange()
    notes.write(Note("begin", number=incarnation))
    clock = Clock(incarnation)
    store = SqliteStore(path, clock=clock, vfs=vfs, synchronous=synchronous)
    async with Engine(Witness(twin(store), notes), clock=clock, signals=False) as engine:
        NOW.ran = lambda label: notes.write(Note("ran", label=label))
        NOW.engine = engine
        return await complete(engine, program)


async def complete(engine: Engine, program: Program) -> BaseModel:
    session: Session[Brief] = await engine.start(program.workflow, session_id=SESSION, topic="squid", **program.start)
    while (outcome := await session.outcome()).status is Status.PAUSED:
        await session.resume(by="ann")
    assert outcome.status is Status.COMPLETED, outcome
    return outcome.state


async def prepare(path: Path) -> None:
    """Create a store that was used before: it has another completed session and was closed cleanly."""
    clock = Clock(0)
    async with Engine(SqliteStore(path, clock=clock), clock=clock, signals=False) as engine:
        NOW.ran = lambda label: None
        NOW.engine = engine
        session = await engine.start(guarded, session_id="other", topic="cuttlefish", rounds=3)
        await session.outcome()
