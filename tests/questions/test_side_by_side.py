"""Branches of one step that ask in the same moment: their records are written together, and each question is whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pydantic import BaseModel

from holdfast import Context, Engine, Workflow, step

BRANCHES = 20


class Poll(BaseModel):
    said: list[str] = []


@step(writes="said")
async def poll(ctx: Context) -> list[str]:
    return await asyncio.gather(*(ctx.ask(f"{number}?", key=number) for number in range(BRANCHES)))


polls = Workflow("polls", state=Poll, steps=[poll])


async def test_questions_that_are_asked_together_are_all_readable_and_each_gets_its_answer(tmp_path: Path) -> None:
    async with Engine(tmp_path / "polls.db") as engine:
        session = await engine.start(polls)
        found = (await session.outcome()).questions
        assert sorted(each.next_question for each in found) == sorted(f"{number}?" for number in range(BRANCHES))
        for each in found:
            await engine.answer(each.id, f"to {each.next_question}")
        assert (await session.outcome()).state.said == [f"to {number}?" for number in range(BRANCHES)]
        assert (await engine.verify()).ok
