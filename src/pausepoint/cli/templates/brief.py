"""Research a topic, then write a brief about it.

    pausepoint run brief.py --topic octopus

Press Ctrl+C during the research, or kill the process. `pausepoint resume` continues, and finished lookups do not run
again.
"""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from pausepoint import Context, Workflow, step


class Brief(BaseModel):
    """The state of a session. Steps read and write its fields."""

    topic: str
    facts: list[str] = []
    draft: str = ""


async def look_up(question: str) -> str:
    """Look up one question. This stands for a call to a slow model or service."""
    await asyncio.sleep(0.5)
    return f"what is known about {question}"


@step(writes="facts", retry=3)
async def research(topic: str, ctx: Context) -> list[str]:
    """Read ``topic`` from the state; the result is written to ``facts``."""
    questions = [f"{topic}, {angle}" for angle in ("habitat", "memory", "play", "sleep")]
    return await ctx.map(look_up, questions, concurrency=1)  # each answer is stored as soon as it is there


@step(writes="draft")
def write(topic: str, facts: list[str]) -> str:
    """Write the brief. A step is a plain function, so a test can call it directly."""
    return f"{topic.capitalize()}: " + "; ".join(facts)


brief = Workflow("brief", state=Brief, steps=[research, write])
