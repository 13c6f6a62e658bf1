"""A workflow that writes a brief, and helpers that return the messages for wrong definitions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from pausepoint.definition.fields import Append, Merge
from pausepoint.definition.workflow import Workflow, guard, route, step
from pausepoint.errors import DefinitionError


class Context:
    __pausepoint_context__ = "async"


class BlockingContext:
    __pausepoint_context__ = "blocking"


class Plan(BaseModel):
    title: str = ""
    pages: int | None = None


class Brief(BaseModel):
    topic: str
    facts: list[str] = []
    draft: str = ""
    score: int = 0
    verdict: str | None = None
    log: Annotated[list[str], Append] = []
    votes: Annotated[dict[str, int], Merge] = {}
    plan: Plan = Plan()
    review: Plan | None = None
    notes: dict[str, str] = {}
    fixed: str = Field(default="", frozen=True)
    owner_id: str = ""
    anything: Any = None


def made(*steps: Any, **options: Any) -> Workflow[Brief]:
    return Workflow("brief", state=Brief, steps=steps, **options)


def refused(*steps: Any, **options: Any) -> str:
    """Return the message that refuses the definition. It always names the workflow."""
    with pytest.raises(DefinitionError) as caught:
        made(*steps, **options)
    assert "Workflow 'brief'" in str(caught.value)
    return str(caught.value)


def refused_once(*steps: Any, **options: Any) -> str:
    """Return the message for a definition with one mistake, which is one line."""
    message = refused(*steps, **options)
    assert "\n" not in message, message
    return message


@step(writes="facts")
async def research(topic: str, ctx: Context) -> list[str]:
    return [topic]


@step(writes="draft")
def write(topic: str, facts: list[str]) -> str:
    return f"{topic}: {', '.join(facts)}"


@step
def publish(draft: str) -> None:
    pass


@route(after="write")
def judge(score: int) -> Literal["research", "publish"] | None:
    return "publish" if score else None


@guard(after=research)
def enough(facts: list[str]) -> str | None:
    return None if facts else "no facts yet"
