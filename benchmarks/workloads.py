"""The measured workflows. Each loops through a route until its state reaches a target."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from pydantic import BaseModel

from pausepoint import Append, Context, Workflow, route, step
from pausepoint.definition import At


def nothing() -> None:
    """Do nothing: the default of `between_steps`, unless a benchmark measures between steps."""


between_steps: Callable[[], None] = nothing
"""Called at the beginning of every step of a lone session."""

reached = asyncio.Event()
"""Set when a `standing` session has made its checkpoints and its next step has begun."""


class Count(BaseModel):
    """The state of a session that only counts."""

    target: int
    n: int = 0


@step(writes="n")
async def count(n: int) -> int:
    """Change as little as a step can."""
    between_steps()
    return n + 1


@route(after="count")
def count_on(n: int, target: int) -> Literal["count", None]:
    """Loop until the target is reached."""
    return "count" if n < target else None


counting = Workflow("counting", state=Count, steps=[count], routes=[count_on])


class Page(BaseModel):
    """A field of 1 KB that every step replaces."""

    target: int
    n: int = 0
    text: str = ""


@step(writes=["n", "text"])
async def rewrite(n: int) -> Mapping[str, object]:
    """Replace the text."""
    between_steps()
    return {"n": n + 1, "text": f"{n:08}" * 125}


@route(after="rewrite")
def rewrite_on(n: int, target: int) -> Literal["rewrite", None]:
    """Loop until the target is reached."""
    return "rewrite" if n < target else None


rewriting = Workflow("rewriting", state=Page, steps=[rewrite], routes=[rewrite_on])


class Growth(BaseModel):
    """A list that grows by one item of 1 KiB with every step."""

    target: int
    n: int = 0
    items: Annotated[list[str], Append] = []


@step(writes=["n", "items"])
async def grow(n: int) -> Mapping[str, object]:
    """Add an item without reading the list."""
    between_steps()
    return {"n": n + 1, "items": [f"{n:08}" * 128]}


@route(after="grow")
def grow_on(n: int, target: int) -> Literal["grow", None]:
    """Loop until the target is reached."""
    return "grow" if n < target else None


growing = Workflow("growing", state=Growth, steps=[grow], routes=[grow_on])


class Ballast(BaseModel):
    """A large field that no step uses, and a small one that changes."""

    target: int
    ballast: str
    n: int = 0
    note: str = ""


@step(writes=["n", "note"])
async def change(n: int) -> Mapping[str, object]:
    """Change 100 bytes next to the large field."""
    between_steps()
    return {"n": n + 1, "note": f"{n:010}" * 10}


@route(after="change")
def change_on(n: int, target: int) -> Literal["change", None]:
    """Loop until the target is reached."""
    return "change" if n < target else None


beside = Workflow("beside", state=Ballast, steps=[change], routes=[change_on])


class Stand(BaseModel):
    """A session that makes its checkpoints and then stays in its next step for ever."""

    target: int
    n: int = 0
    note: str = ""


@step(writes=["n", "note"])
async def advance(n: int, target: int) -> Mapping[str, object]:
    """Run a small step; wait for ever once the target is reached."""
    if n == target:
        reached.set()
        await asyncio.Event().wait()
    return {"n": n + 1, "note": f"checkpoint {n + 1}"}


@route(after="advance")
def advance_on() -> Literal["advance"]:
    """Loop for ever."""
    return "advance"


standing = Workflow("standing", state=Stand, steps=[advance], routes=[advance_on])


WINDOW = 20
"""The number of messages that a turn of the chat reads."""


class Message(BaseModel):
    """One message of the chat."""

    role: Literal["user", "assistant"]
    text: str


class Chat(BaseModel):
    """An endless conversation."""

    messages: Annotated[list[Message], Append] = []


@step(writes="messages")
async def answer(recent: Annotated[list[Message], At(f"messages[-{WINDOW}:]")], ctx: Context) -> list[Message]:
    """Wait for a message and answer it, with the last messages in view."""
    text = await ctx.receive()
    return [Message(role="user", text=text), Message(role="assistant", text=f"{len(recent):04}" * 75)]


@route(after="answer")
def answer_on() -> Literal["answer"]:
    """Loop for ever."""
    return "answer"


chatting = Workflow("chatting", state=Chat, steps=[answer], routes=[answer_on])


class Voyage(BaseModel):
    """A list that grows by 100 bytes with every step, next to a large field."""

    target: int
    ballast: str = ""
    n: int = 0
    note: str = ""
    items: Annotated[list[str], Append] = []


@step(writes=["n", "items"])
async def sail(n: int) -> Mapping[str, object]:
    """Add an item without reading the list or the large field."""
    return {"n": n + 1, "items": [f"{n:010}" * 10]}


@route(after="sail")
def sail_on(n: int, target: int) -> Literal["sail", None]:
    """Loop until the target is reached."""
    return "sail" if n < target else None


voyage = Workflow("voyage", state=Voyage, steps=[sail], routes=[sail_on])
