"""A corpus of small workflows, one for each way in which a state can change or a path can branch.

Each case lists the operations that really ran in ``Case.ran``, by name and in order.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from pausepoint import Append, Context, Merge, Replace, Workflow, guard, route, step
from pausepoint.definition import At

Ran = list[str]


@dataclass
class Case:
    """A workflow, its input, and the operations that really ran."""

    workflow: Workflow[Any]
    given: dict[str, Any]
    ran: Ran = field(default_factory=list)


def linear() -> Case:
    class Doc(BaseModel):
        topic: str
        outline: str = ""
        draft: str | None = None
        size: int = 0

    @step(writes="outline")
    async def plan(topic: str, ctx: Context) -> str:
        return await ctx.do(noted, f"plan {topic}")

    @step(writes="draft")
    async def write(outline: str, ctx: Context) -> str:
        ctx.spend(usd=0.5, tokens=3)
        await ctx.safe_point()
        return await ctx.do(noted, f"write {outline}")

    @step(writes="size")
    async def measure(draft: str) -> int:
        return len(draft)

    case = Case(Workflow("linear", state=Doc, steps=[plan, write, measure]), {"topic": "otters"})
    noted = noting(case)
    return case


def loop() -> Case:
    class Count(BaseModel):
        n: int = 0
        log: Annotated[list[int], Append] = []

    @step(writes=["n", "log"])
    async def count(n: int, ctx: Context) -> dict[str, Any]:
        await ctx.do(noted, f"count {n}")
        return {"n": n + 1, "log": [n]}

    @route(after="count")
    def again(n: int) -> Literal["count", None]:
        return "count" if n < 12 else None

    case = Case(Workflow("loop", state=Count, steps=[count], routes=[again]), {})
    noted = noting(case)
    return case


def fan_out() -> Case:
    class Batch(BaseModel):
        items: list[str]
        found: dict[str, int] = {}
        total: int = 0

    @step(writes="found")
    async def look(items: list[str], ctx: Context) -> dict[str, int]:
        async def measure(item: str, inner: Context) -> int:
            await inner.do(noted, f"deep {item}")
            return len(await inner.do(noted, item))

        return dict(zip(items, await ctx.map(measure, items, concurrency=3), strict=True))

    @step(writes="total")
    async def add(found: dict[str, int]) -> int:
        return sum(found.values())

    case = Case(Workflow("fan-out", state=Batch, steps=[look, add]), {"items": ["a", "bb", "ccc", "dddd", "eeeee"]})
    noted = noting(case)
    return case


def bent() -> Case:
    """A workflow with skipped steps and a guard that lets the session pass."""

    class Form(BaseModel):
        kind: str
        checked: bool = False
        filled: dict[str, str] = {}
        sent: int = 0

    def is_long(kind: str) -> bool:
        return kind == "long"

    @step(writes="filled")
    async def fill(kind: str, ctx: Context) -> dict[str, str]:
        return {"name": await ctx.do(noted, "name"), "kind": kind}

    @step(writes="checked", when=is_long)
    async def check() -> bool:
        return True

    @step(writes="sent")
    async def send(filled: dict[str, str], sent: int, ctx: Context) -> int:
        ctx.emit("form.sent", "sent", size=len(filled))
        return sent + 1

    @guard(after="fill")
    def complete(filled: dict[str, str]) -> str | None:
        return None if len(filled) == 2 else "fill it in"

    @route(after="send")
    def twice(sent: int) -> Literal["check", None]:
        return "check" if sent < 3 else None

    workflow = Workflow(
        "bent", state=Form, steps=[fill, check, send], guards=[complete], routes=[twice], events=["form.sent"]
    )
    case = Case(workflow, {"kind": "short"})
    noted = noting(case)
    return case


def growing() -> Case:
    class Diary(BaseModel):
        n: int = 0
        lines: Annotated[list[str], Append] = []
        index: Annotated[dict[str, int], Merge] = {}

    @step(writes=["n", "lines", "index"])
    async def write(n: int) -> dict[str, Any]:
        lines: Any = [f"line {n}", "…"] if n != 4 else Replace(["begun anew"])
        return {"n": n + 1, "lines": lines, "index": {f"${n % 3}": n, f"k{n}": -n}}

    @route(after="write")
    def again(n: int) -> Literal["write", None]:
        return "write" if n < 8 else None

    return Case(Workflow("growing", state=Diary, steps=[write], routes=[again]), {"lines": ["first"]})


class Inner(BaseModel):
    notes: Annotated[list[str], Append] = []
    seen: Annotated[dict[str, int], Merge] = {}
    level: int = 0


class Outer(BaseModel):
    title: str = "untitled"
    inner: Inner = Inner()


def nested() -> Case:
    class Tree(BaseModel):
        root: Outer = Outer()
        other: str = "as it was"

    @step(writes=["root.inner.level", "root.inner.notes", "root.inner.seen"])
    async def climb(level: Annotated[int, At("root.inner.level")]) -> dict[str, Any]:
        return {
            "root.inner.level": level + 1,
            "root.inner.notes": [f"level {level}"],
            "root.inner.seen": {f"{level % 2}": level},
        }

    @step(writes="root.title")
    async def name(inner: Annotated[Inner, At("root.inner")]) -> str:
        return f"tree of {len(inner.notes)}"

    @route(after="name")
    def again(level: Annotated[int, At("root.inner.level")]) -> Literal["climb", None]:
        return "climb" if level < 5 else None

    return Case(Workflow("nested", state=Tree, steps=[climb, name], routes=[again]), {})


def large() -> Case:
    """A workflow with values stored by hash: one unchanged, one rewritten, one in a list, one from an operation."""

    class Archive(BaseModel):
        stays: str
        page: str = ""
        pages: Annotated[list[str], Append] = []
        n: int = 0

    @step(writes=["page", "pages", "n"])
    async def turn(n: int, ctx: Context) -> dict[str, Any]:
        page = await ctx.do(noted, f"page {n} " * 5000)
        return {"page": page, "pages": [page[:17_000]], "n": n + 1}

    @route(after="turn")
    def again(n: int) -> Literal["turn", None]:
        return "turn" if n < 6 else None

    case = Case(Workflow("large", state=Archive, steps=[turn], routes=[again]), {"stays": "s" * 300_000})
    noted = noting(case)
    return case


def long() -> Case:
    """A workflow with six hundred visits, so that its log crosses key frames."""

    class March(BaseModel):
        n: int = 0
        trail: Annotated[list[int], Append] = []
        last: Annotated[dict[str, int], Merge] = {}

    @step(writes=["n", "trail", "last"])
    async def go(n: int) -> dict[str, Any]:
        return {"n": n + 1, "trail": [n], "last": {f"{n % 5}": n}}

    @route(after="go")
    def again(n: int) -> Literal["go", None]:
        return "go" if n < 600 else None

    return Case(Workflow("long", state=March, steps=[go], routes=[again]), {})


def noting(case: Case) -> Callable[[str], Coroutine[Any, Any, str]]:
    """Return an operation that notes each run. It never waits, so nothing can interrupt it before it is remembered."""

    async def noted(text: str) -> str:
        case.ran.append(text)
        return text

    return noted


CORPUS: dict[str, Callable[[], Case]] = {
    "linear": linear, "loop": loop, "fan-out": fan_out, "bent": bent, "growing": growing, "nested": nested,
    "large": large, "long": long,
}  # fmt: skip
