"""A workflow that does what a script says, and the plain-Python model of what must come of it.

A session's ``plan`` is a list of acts, one for each visit of the step ``act``. The `World` is
everything outside the store: it counts what really ran, holds steps at gates, and fails them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel

from holdfast import Append, Context, Merge, Retry, SessionId, Workflow, guard, route, step

ACTS = ("ok", "raise", "retry", "spend", "spend and raise", "skip", "wait", "work", "big")
"""What a visit of ``act`` may do."""

BIG = "x" * 20_000


class Notes(BaseModel):
    last: str = ""
    marks: Annotated[list[int], Append] = []


class Desk(BaseModel):
    plan: list[str]
    at: int = 0
    log: Annotated[list[str], Append] = []
    tally: Annotated[dict[str, int], Merge] = {}
    notes: Notes = Notes()
    page: str = ""
    bonus: int = 0
    closed: bool = False


class Visited(NamedTuple):
    step: str
    visit: int
    skipped: bool


class World:
    """What is outside the store, and what really happened."""

    def __init__(self) -> None:
        self.bodies: Counter[tuple[str, str, int]] = Counter()
        self.operations: Counter[tuple[str, int, str]] = Counter()
        self.waiting: list[tuple[Context, asyncio.Event]] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.troubles: dict[tuple[str, int], int] = {}
        self.shut = False
        self.settled: set[tuple[str, str, int]] = set()
        self.remembered: set[tuple[str, int, str]] = set()
        self.doubled: list[Any] = []
        self.workflow = self._workflow()

    def open(self, session_id: str) -> None:
        """Let whoever waits in this session go on, once."""
        self.gates.pop(session_id, asyncio.Event()).set()

    async def wait(self, ctx: Context) -> None:
        entry = (ctx, self.gates.setdefault(ctx.session_id, asyncio.Event()))
        self.waiting.append(entry)
        try:
            await entry[1].wait()
        finally:
            self.waiting.remove(entry)

    def blocked(self) -> list[Context]:
        """Who waits at a shut gate."""
        return [ctx for ctx, gate in self.waiting if not gate.is_set()]

    def enter(self, ctx: Context) -> None:
        """A step's body begins; one whose visit is recorded must not."""
        key = (ctx.session_id, ctx.step, ctx.visit)
        self.bodies[key] += 1
        if key in self.settled:
            self.doubled.append(key)

    def perform(self, session_id: str, visit: int, name: str) -> int:
        key = (session_id, visit, name)
        self.operations[key] += 1
        if key in self.remembered:
            self.doubled.append(key)
        return len(name)

    def fails(self, session_id: str, visit: int, times: int) -> bool:
        """Whether this run of the visit has to fail; each visit does so a few times only."""
        left = self.troubles.setdefault((session_id, visit), times)
        self.troubles[session_id, visit] = left - 1
        return left > 0

    async def play(self, act: str, ctx: Context) -> None:
        if act.startswith("spend"):
            ctx.spend(usd=1, tokens=10)
        if act.endswith("raise") and self.fails(ctx.session_id, ctx.visit, 1):
            raise ValueError("as scripted")
        if act == "retry" and self.fails(ctx.session_id, ctx.visit, 2):
            raise ConnectionError("as scripted")
        if act == "wait":
            await self.wait(ctx)
        if act == "work":
            await ctx.do(self.perform, ctx.session_id, ctx.visit, "first", key="first")
            await self.wait(ctx)
            await ctx.map(self._item(ctx), ["a", "bb", "ccc"], key=str, concurrency=2)

    def _item(self, ctx: Context) -> Any:
        async def item(name: str) -> int:
            return self.perform(ctx.session_id, ctx.visit, name)

        return item

    def _workflow(self) -> Workflow[Desk]:
        world = self

        @step(
            writes=["at", "log", "tally", "notes.last", "notes.marks", "page"],
            retry=Retry(attempts=3, on=(ConnectionError,)),
        )
        async def act(plan: list[str], at: int, ctx: Context) -> dict[str, Any]:
            world.enter(ctx)
            await world.play(plan[at], ctx)
            return written(plan, at)

        def wanted(plan: list[str], at: int) -> bool:
            return plan[at - 1] != "skip"

        @step(writes="bonus", when=wanted)
        async def extra(bonus: int, ctx: Context) -> int:
            world.enter(ctx)
            return bonus + 1

        @route(after="extra")
        def again(plan: list[str], at: int) -> Literal["act", "close"]:
            return "act" if at < len(plan) else "close"

        @step(writes="closed")
        async def close(session_id: SessionId, ctx: Context) -> bool:
            world.enter(ctx)
            return True

        @guard(after="close")
        def in_order(log: list[str]) -> str | None:
            return "the door is shut" if world.shut else None

        return Workflow("scripted", state=Desk, steps=[act, extra, close], routes=[again], guards=[in_order])


def written(plan: Sequence[str], at: int) -> dict[str, Any]:
    """What a visit of ``act`` returns."""
    name = plan[at]
    result: dict[str, Any] = {"at": at + 1, "log": [name], "tally": {name: at, f"${at % 2}": at}, "notes.last": name}
    if at % 2:
        result["notes.marks"] = [at, at]
    if name == "big":
        result["page"] = f"{at}{BIG}"
    return result


def path(plan: Sequence[str]) -> list[Visited]:
    """The visits of an undisturbed run."""
    loop = [
        visit
        for n, act in enumerate(plan, 1)
        for visit in (Visited("act", n, False), Visited("extra", n, act == "skip"))
    ]
    return [*loop, Visited("close", 1, False)]


def state_after(plan: Sequence[str], visits: Sequence[Visited]) -> Desk:
    """The state that these visits add up to, by plain Python."""
    desk = Desk(plan=list(plan))
    for visit in visits:
        if visit.step == "act":
            result = written(plan, desk.at)
            desk.log += result["log"]
            desk.tally |= result["tally"]
            desk.at, desk.notes.last = result["at"], result["notes.last"]
            desk.notes.marks += result.get("notes.marks", [])
            desk.page = result.get("page", desk.page)
        elif visit.step == "extra":
            desk.bonus += not visit.skipped
        else:
            desk.closed = True
    return desk


def cost_of(plan: Sequence[str], visits: Sequence[Visited]) -> int:
    """The dollars that these visits have spent."""
    return sum(plan[visit.visit - 1].startswith("spend") for visit in visits if visit.step == "act")
