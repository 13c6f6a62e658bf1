"""A brief about a topic: what is known is looked up first, then it is written down.

    pausepoint run brief.py --topic octopus

Press Ctrl+C, or kill it, while it looks things up: `pausepoint resume` goes on, and what was found is not looked up
again.
"""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from pausepoint import Context, Workflow, step


class Brief(BaseModel):
    """Everything that a session of this workflow knows. Steps read and write its fields."""

    topic: str
    facts: list[str] = []
    draft: str = ""


async def look_up(question: str) -> str:
    """Stands for a model or a service that takes its time."""
    await asyncio.sleep(0.5)
    return f"what is known about {question}"


@step(writes="facts", retry=3)
async def research(topic: str, ctx: Context) -> list[str]:
    """Its parameters are what a step reads; what it returns is written."""
    questions = [f"{topic}, {angle}" for angle in ("habitat", "memory", "play", "sleep")]
    return await ctx.map(look_up, questions, concurrency=1)  # each answer is kept as it comes


@step(writes="draft")
def write(topic: str, facts: list[str]) -> str:
    """A plain function, which a test can call."""
    return f"{topic.capitalize()}: " + "; ".join(facts)


brief = Workflow("brief", state=Brief, steps=[research, write])
