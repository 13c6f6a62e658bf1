"""Branches of one step that ask in the same moment: their records are written together, and each question is whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pydantic import BaseModel

from pausepoint import Context, Engine, Workflow, step
from tests.support.loop import on_loop

SESSIONS = 30
"""At once: then the writer has several commits of one session in one batch."""


class Poll(BaseModel):
    said: list[str] = []


@step(writes="said")
async def poll(ctx: Context) -> list[str]:
    return await asyncio.gather(*(ctx.ask(f"{number}?") for number in range(3)))


polls = Workflow("polls", state=Poll, steps=[poll])


@on_loop
async def test_questions_that_are_asked_together_are_all_readable_and_each_gets_its_answer(tmp_path: Path) -> None:
    async with Engine(tmp_path / "polls.db") as engine:
        sessions = await asyncio.gather(*(engine.start(polls) for _ in range(SESSIONS)))
        for session in sessions:
            found = (await session.outcome()).questions
            assert sorted(each.next_question for each in found) == ["0?", "1?", "2?"]
            for each in found:
                await engine.answer(each.id, f"to {each.next_question}")
            assert (await session.outcome()).state.said == ["to 0?", "to 1?", "to 2?"]
