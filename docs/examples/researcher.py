"""A small agent: a model chooses what to look up, and a person chooses the tone of the text."""

import asyncio

from pausepoint import Context, workflow


async def choose(topic: str, notes: list[str]) -> str:
    """Stand in for a language model: return what to look up next, or nothing when that is enough."""
    angles = ["habitat", "memory", "play", "sleep", "friends", "arms"]
    return "".join(angles[len(notes) : len(notes) + 1])


async def look_up(question: str) -> str:
    print("looking up", question, flush=True)
    await asyncio.sleep(2)  # a service that takes its time
    return f"what is known about {question}"


@workflow
async def researcher(topic: str, ctx: Context) -> str:
    notes: list[str] = []
    while angle := await ctx.do(choose, topic, notes):
        notes.append(await ctx.do(look_up, f"{topic}, {angle}"))
    tone = await ctx.ask("Which tone?", choices=["formal", "playful"])
    return f"A {tone} text about the {topic}, from {len(notes)} notes"
