"""A small program that asks a model, as a job of the fork server.

Every wait for the service parks the session, as a wait of more than a minute does.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import msgspec
from pydantic import BaseModel

from pausepoint import Context, Workflow, program, step
from pausepoint.apps.model import answers, ask
from pausepoint.cli import drive
from pausepoint.runtime import attempts
from tests.support.held import as_program


class Verdict(BaseModel):
    mood: Literal["calm", "tense"]


class Paper(BaseModel):
    text: str = "a quiet day"
    mood: str = ""


@step(writes="mood")
async def judge(text: str, ctx: Context) -> str:
    found = await ask(ctx, "Judge the text.", {"text": text}, Verdict)
    return "" if found is None else found.mood


main = program(Workflow("paper", state=Paper, steps=[judge]))


def warm_up() -> None:
    """Import what is imported when a model is asked for the first time."""
    import pausepoint.apps.model.run  # noqa: F401


def job(args: list[str], **place: Any) -> None:
    """``python -m tests.apps.model_watched ARGS``."""
    with as_program("tests.apps.model_watched", args, **place):
        attempts.HOLD = 0
        answers.OUTAGE = msgspec.structs.replace(answers.OUTAGE, longest=0.5)
        drive.SHORT_SLEEP = timedelta(0)
        main(args)
