"""A workflow that follows a script, and a plain-Python model of its expected results.

A session's ``plan`` is a list of acts, one for each visit of the step ``act``. The `World` is everything outside the
store: it counts what really ran, holds steps at gates, and makes them fail. `Course` is the model: it adds up a
session's visits and edits, and knows which visit comes next.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel

from pausepoint import Append, Context, Merge, Retry, Workflow, guard, route, step
from pausepoint.model import SessionId

ACTS = ("ok", "raise", "retry", "spend", "spend and raise", "skip", "wait", "work", "big")
"""The acts that do not wait for anything outside."""

WAITS = ("sleep", "receive", "call", "call and wait", "both")
"""The acts that wait."""

NAP = 100.0
"""Seconds that a visit sleeps."""

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
    heard: Annotated[list[int], Append] = []
    brought: int = 0
    bonus: int = 0
    closed: bool = False


class Errand(BaseModel):
    """The state of a child session."""

    n: int
    held: bool = False
    brought: int = 0


class Visited(NamedTuple):
    step: str
    visit: int
    skipped: bool


class World:
    """Everything outside the store, and a count of what really ran."""

    def __init__(self) -> None:
        self.bodies: Counter[tuple[str, str, int]] = Counter()
        self.operations: Counter[tuple[str, int, str]] = Counter()
        self.waiting: list[tuple[Context, asyncio.Event]] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.troubles: dict[tuple[str, int], int] = {}
        self.shut = False
        # Visits and operations that the log remembers. They must not run again.
        self.settled: dict[str, set[tuple[str, int]]] = {}
        self.remembered: dict[str, set[tuple[int, str]]] = {}
        self.doubled: list[Any] = []
        self.errand = self._errand()
        self.workflow = self._workflow()

    def open(self, session_id: str) -> None:
        """Open the gate of this session once, for the steps that wait at it now."""
        self.gates.pop(session_id, asyncio.Event()).set()

    async def wait(self, ctx: Context) -> None:
        entry = (ctx, self.gates.setdefault(ctx.session_id, asyncio.Event()))
        self.waiting.append(entry)
        try:
            await entry[1].wait()
        finally:
            self.waiting.remove(entry)

    def blocked(self) -> list[Context]:
        """Return the contexts that wait at a closed gate."""
        return [ctx for ctx, gate in self.waiting if not gate.is_set()]

    def enter(self, ctx: Context) -> None:
        """Note that a step's body begins. A visit that is already recorded must not begin."""
        self.bodies[ctx.session_id, ctx.step, ctx.visit] += 1
        if (ctx.step, ctx.visit) in self.settled.get(ctx.session_id, ()):
            self.doubled.append((ctx.session_id, ctx.step, ctx.visit))

    def perform(self, ctx: Context, name: str) -> int:
        key = (ctx.session_id, ctx.visit, name)
        self.operations[key] += 1
        if key[1:] in self.remembered.get(ctx.session_id, ()):
            self.doubled.append(key)
        return len(name)

    def fails(self, session_id: str, visit: int, times: int) -> bool:
        """Return whether this run of the visit must fail. Each visit fails at most ``times`` times."""
        left = self.troubles.setdefault((session_id, visit), times)
        self.troubles[session_id, visit] = left - 1
        return left > 0

    async def play(self, act: str, at: int, ctx: Context) -> dict[str, Any]:
        """Perform the act of a visit and return its result."""
        if act.startswith("spend"):
            ctx.spend(usd=1, tokens=10)
        if act.endswith("raise") and self.fails(ctx.session_id, ctx.visit, 1):
            raise ValueError("as scripted")
        if act == "retry" and self.fails(ctx.session_id, ctx.visit, 2):
            raise ConnectionError("as scripted")
        if act == "wait":
            await self.wait(ctx)
        if act == "work":
            await ctx.do(self._first(ctx), "first", key="first")
            await self.wait(ctx)
            await ctx.map(self._item(ctx), ["a", "bb", "ccc"], key=str, concurrency=2)
        return await self._bring(act, at, ctx) if act in WAITS else {}

    async def _bring(self, act: str, at: int, ctx: Context) -> dict[str, Any]:
        await ctx.do(self._first(ctx), "before", key="before")
        if act == "sleep":
            await ctx.sleep(NAP)
        elif act == "receive":
            return {"heard": [await ctx.receive(int)]}
        elif act == "both":
            _, heard = await asyncio.gather(ctx.sleep(NAP), ctx.receive(int))
            return {"heard": [heard]}
        else:
            return {"brought": (await ctx.call(self.errand, n=at, held=act == "call and wait")).brought}
        return {}

    def _first(self, ctx: Context) -> Any:
        async def first(name: str) -> int:
            return self.perform(ctx, name)

        return first

    def _item(self, ctx: Context) -> Any:
        async def item(name: str) -> int:
            return self.perform(ctx, name)

        return item

    def _workflow(self) -> Workflow[Desk]:
        world = self

        @step(
            writes=["at", "log", "tally", "notes.last", "notes.marks", "page", "heard", "brought"],
            retry=Retry(attempts=3, first=0.001, on=(ConnectionError,)),
        )
        async def act(plan: list[str], at: int, ctx: Context) -> dict[str, Any]:
            world.enter(ctx)
            brought = await world.play(plan[at], at, ctx)
            return written(plan, at) | brought

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

    def _errand(self) -> Workflow[Errand]:
        world = self

        @step
        async def go(held: bool, ctx: Context) -> None:
            world.enter(ctx)
            ctx.spend(usd=1)
            await ctx.do(world._first(ctx), "gone", key="gone")
            if held:
                await world.wait(ctx)

        @step(writes="brought")
        async def back(n: int, ctx: Context) -> int:
            world.enter(ctx)
            return 2 * n + 1

        return Workflow("errand", state=Errand, steps=[go, back])


def written(plan: Sequence[str], at: int) -> dict[str, Any]:
    """Return the writes of a visit of ``act``, without the values that it received."""
    name = plan[at]
    result: dict[str, Any] = {"at": at + 1, "log": [name], "tally": {name: at, f"${at % 2}": at}, "notes.last": name}
    if at % 2:
        result["notes.marks"] = [at, at]
    if name == "big":
        result["page"] = f"{at}{BIG}"
    return result


@dataclass
class Course:
    """The expected path and state of a session, in plain Python. Received messages are not modelled: see `same`."""

    desk: Desk
    step: str | None = "act"
    visits: dict[str, int] = field(default_factory=dict)
    cost: int = 0
    since: int = 0  # visits of this session itself, without those that a fork inherited

    @property
    def act(self) -> str:
        """Return the act of the next visit."""
        return self.desk.plan[self.desk.at] if self.step == "act" else ""

    def go(self, visit: Visited) -> None:
        """Apply the next visit, which must be the expected one."""
        assert visit.step == self.step, (visit, self)
        assert visit.visit == self.visits.get(visit.step, 0) + 1, (visit, self)
        self.visits[visit.step] = visit.visit
        self.since += 1
        desk = self.desk
        if visit.step == "act":
            self._act()
        elif visit.step == "extra":
            assert visit.skipped == (desk.plan[desk.at - 1] == "skip")
            desk.bonus += not visit.skipped
            self.step = "act" if desk.at < len(desk.plan) else "close"
        else:
            desk.closed = True
            self.step = None

    def _act(self) -> None:
        desk, at, act = self.desk, self.desk.at, self.act
        result = written(desk.plan, at)
        desk.log += result["log"]
        desk.tally |= result["tally"]
        desk.at, desk.notes.last = result["at"], result["notes.last"]
        desk.notes.marks += result.get("notes.marks", [])
        desk.page = result.get("page", desk.page)
        if act.startswith("call"):
            desk.brought = 2 * at + 1
        self.cost += act.startswith(("spend", "call"))
        self.step = "extra"

    def edit(self, fields: Mapping[str, Any]) -> None:
        """Apply an edit of the state."""
        for path, value in fields.items():
            *above, name = path.split(".")
            place: Any = self.desk
            for part in above:
                place = getattr(place, part)
            setattr(place, name, value)

    def same(self, state: Desk) -> bool:
        """Return whether a stored state equals this one."""
        return state.model_dump(exclude={"heard"}) == self.desk.model_dump(exclude={"heard"})


def path(plan: Sequence[str]) -> list[Visited]:
    """Return the visits of an uninterrupted run."""
    loop = [
        visit
        for n, act in enumerate(plan, 1)
        for visit in (Visited("act", n, False), Visited("extra", n, act == "skip"))
    ]
    return [*loop, Visited("close", 1, False)]


def course(plan: Sequence[str], visits: Sequence[Visited]) -> Course:
    """Return the course of a new session after these visits."""
    found = Course(Desk(plan=list(plan)))
    for visit in visits:
        found.go(visit)
    return found
