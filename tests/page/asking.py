"""A workflow that asks a question of any kind."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Any, Literal

from pydantic import BaseModel, Field

from pausepoint import Context, Workflow, step

KINDS: dict[str, Any] = {
    "text": str,
    "whole": int,
    "number": float,
    "yes": bool,
    "day": date,
    "moment": datetime,
    "hour": time,
    "few": Literal["red", "green", "blue"],
    "many": Literal["Austria", "Belgium", "Denmark", "Estonia", "Finland", "Norway", "Sweden"],
    "list": list[str],
    "either": int | str,
    "maybe": int | None,
    "any": dict[str, int],
}


class Interview(BaseModel):
    kind: str
    answer: Any = None


@step(writes="answer")
async def interview_them(ctx: Context, kind: str) -> Any:
    return await ctx.ask(f"What {kind}?", KINDS[kind])


interview = Workflow("interview", state=Interview, steps=[interview_them])


class Guess(BaseModel):
    low: int = Field(ge=0, le=10)
    high: int = Field(ge=0, le=10, multiple_of=2)


class Game(BaseModel):
    name: str
    guess: Guess | None = None


@step(writes="guess")
async def guess_it(ctx: Context, name: str) -> Guess:
    return await ctx.ask(f"Which numbers, {name}?", Guess)


game = Workflow("game", state=Game, steps=[guess_it])
