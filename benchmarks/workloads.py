"""The workflows that are measured. Each loops by a route until its state says that it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from pydantic import BaseModel

from pausepoint import Append, Context, Workflow, route, step
from pausepoint.definition import At


def nothing() -> None:
    """What `between_steps` does unless a benchmark measures in between."""


between_steps: Callable[[], None] = nothing
"""Called at the beginning of every step of a lone session."""

reached = asyncio.Event()
"""Set when a `standing` session has made its checkpoints and its next step has begun."""


class Count(BaseModel):
    """A session that only counts."""

    target: int
    n: int = 0


@step(writes="n")
async def count(n: int) -> int:
    """The smallest step that changes something."""
    between_steps()
    return n + 1


@route(after="count")
def count_on(n: int, target: int) -> Literal["count", None]:
    """Once more, or the end."""
    return "count" if n < target else None


counting = Workflow("counting", state=Count, steps=[count], routes=[count_on])


class Growth(BaseModel):
    """A list that grows by one item of 1 KiB with every step."""

    target: int
    n: int = 0
    items: Annotated[list[str], Append] = []


@step(writes=["n", "items"])
async def grow(n: int) -> Mapping[str, object]:
    """Adds an item; does not read the list."""
    between_steps()
    return {"n": n + 1, "items": [f"{n:08}" * 128]}


@route(after="grow")
def grow_on(n: int, target: int) -> Literal["grow", None]:
    """Once more, or the end."""
    return "grow" if n < target else None


growing = Workflow("growing", state=Growth, steps=[grow], routes=[grow_on])


class Ballast(BaseModel):
    """A large field that nobody touches, and a small one that changes."""

    target: int
    ballast: str
    n: int = 0
    note: str = ""


@step(writes=["n", "note"])
async def change(n: int) -> Mapping[str, object]:
    """Changes 100 bytes beside the large field."""
    between_steps()
    return {"n": n + 1, "note": f"{n:010}" * 10}


@route(after="change")
def change_on(n: int, target: int) -> Literal["change", None]:
    """Once more, or the end."""
    return "change" if n < target else None


beside = Workflow("beside", state=Ballast, steps=[change], routes=[change_on])


class Stand(BaseModel):
    """A session that makes its checkpoints and then stands in its next step for ever."""

    target: int
    n: int = 0
    note: str = ""


@step(writes=["n", "note"])
async def advance(n: int, target: int) -> Mapping[str, object]:
    """A small step, until the target is reached."""
    if n == target:
        reached.set()
        await asyncio.Event().wait()
    return {"n": n + 1, "note": f"checkpoint {n + 1}"}


@route(after="advance")
def advance_on() -> Literal["advance"]:
    """Always once more."""
    return "advance"


standing = Workflow("standing", state=Stand, steps=[advance], routes=[advance_on])


WINDOW = 20
"""How many messages a turn of the chat reads."""


class Message(BaseModel):
    """What somebody said."""

    role: Literal["user", "assistant"]
    text: str


class Chat(BaseModel):
    """A conversation without end."""

    messages: Annotated[list[Message], Append] = []


@step(writes="messages")
async def answer(recent: Annotated[list[Message], At(f"messages[-{WINDOW}:]")], ctx: Context) -> list[Message]:
    """One turn: waits for a message, answers it with the last ones in view."""
    text = await ctx.receive()
    return [Message(role="user", text=text), Message(role="assistant", text=f"{len(recent):04}" * 75)]


@route(after="answer")
def answer_on() -> Literal["answer"]:
    """Always once more."""
    return "answer"


chatting = Workflow("chatting", state=Chat, steps=[answer], routes=[answer_on])


class Voyage(BaseModel):
    """A list that grows by 100 bytes with every step, beside a large field."""

    target: int
    ballast: str = ""
    n: int = 0
    note: str = ""
    items: Annotated[list[str], Append] = []


@step(writes=["n", "items"])
async def sail(n: int) -> Mapping[str, object]:
    """Adds an item; reads neither the list nor the large field."""
    return {"n": n + 1, "items": [f"{n:010}" * 10]}


@route(after="sail")
def sail_on(n: int, target: int) -> Literal["sail", None]:
    """Once more, or the end."""
    return "sail" if n < target else None


voyage = Workflow("voyage", state=Voyage, steps=[sail], routes=[sail_on])
