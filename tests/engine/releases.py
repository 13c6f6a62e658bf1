"""A workflow in several releases: its steps and its state change between them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel

from pausepoint import Append, Engine, Session, Status, Workflow, migrate, step
from pausepoint.definition.steps import Migration, Step
from pausepoint.model import Event

State = dict[str, Any]


class Memo(BaseModel):
    topic: str = "otters"
    trail: Annotated[list[str], Append] = []


def made(name: str, fails: bool = False, was: str | Sequence[str] = ()) -> Step[..., Any]:
    """Make a step that appends its name to the trail, or fails."""

    @step(name=name, writes="trail", was=was)
    async def one() -> list[str]:
        if fails:
            raise RuntimeError("not today")
        return [name]

    return one


def flow(names: str, **options: Any) -> Workflow[Any]:
    """Make a workflow of these steps. A step in capital letters fails; ``new=old`` was called ``old`` before."""
    steps = []
    for word in names.split():
        name, _, was = word.partition("=")
        steps.append(made(name.lower(), name.isupper(), was.split(",") if was else ()))
    return Workflow("memo", state=options.pop("state", Memo), steps=steps, **options)


async def stored(path: Path, workflow: Workflow[Any], **options: Any) -> None:
    """Start session m-1 and run it until it stops."""
    async with Engine(path) as engine:
        await (await engine.start(workflow, session_id="m-1", **options)).outcome()


async def resumed(engine: Engine, **options: Any) -> Session[Any]:
    session = await engine.session("m-1").resume(**options)
    await session.outcome()
    return session


async def types(session: Session[Any], *wanted: str) -> list[Event]:
    return [event async for event in session.events() if event.event_type in wanted]


async def why(session: Session[Any]) -> str:
    """Return the reason of the only open pause."""
    (pause,) = await session.pauses()
    assert pause.kind == "definition"
    assert await session.status() is Status.PAUSED
    return pause.reason


class Second(BaseModel):
    subject: str
    trail: Annotated[list[str], Append] = []


class Third(BaseModel):
    subject: str
    words: int
    trail: Annotated[list[str], Append] = []
    mood: str = "calm"


@migrate(from_version=1)
def rename_topic(state: State) -> State:
    state["subject"] = state.pop("topic")
    return state


@migrate(from_version=2)
def count_words(state: State) -> State:
    return {**state, "words": len(state["subject"].split())}


def third(*migrations: Migration[..., Any], model: type[BaseModel] = Third, fails: bool = False) -> Workflow[Any]:
    """Make version 3 of the memo, with a step that reads the fields of that version."""

    @step(writes="trail")
    async def c(subject: str, words: int) -> list[str]:
        if fails:
            raise RuntimeError("not today")
        return [f"{subject}: {words}"]

    @step(name="a", writes="trail")
    async def a(subject: str) -> list[str]:
        return ["a"]

    return Workflow("memo", state=model, steps=[a, c], version=3, migrations=migrations)
