"""Let a language model rephrase computed sentences. Without a model they stay as they are.

The facts do not change: if an answer contains a number that is not among the findings, the model is asked again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import BaseModel, Field, field_validator

from pausepoint import Context
from pausepoint.apps.model import ask

INSTRUCTIONS = {
    "advice": "You advise a student on the week ahead. Explain what these findings mean in short, friendly sentences.",
    "summary": "You write to a student's parents. Summarise these findings in short, calm and friendly sentences.",
}
RULES = "Use only these findings. Add no number, date, name or fact. Change no number. Write at most six sentences."


async def written(ctx: Context, purpose: Literal["advice", "summary"], findings: Sequence[str]) -> list[str]:
    """Return the findings rephrased by a model, or unchanged if there is no model."""
    known = _numbers(findings)

    class Prose(BaseModel):
        sentences: list[str] = Field(min_length=1, max_length=6)

        @field_validator("sentences")
        @classmethod
        def adds_no_number(cls, sentences: list[str]) -> list[str]:
            invented = sorted(_numbers(sentences) - known)
            if invented:
                raise ValueError(f"these numbers are not among the findings: {', '.join(invented)}")
            return sentences

    answer = await ask(ctx, f"{INSTRUCTIONS[purpose]} {RULES}", {"findings": list(findings)}, Prose)
    return list(findings) if answer is None else answer.sentences


def _numbers(sentences: Iterable[str]) -> set[str]:
    return {number for sentence in sentences for number in re.findall(r"\d+(?:[.,:]\d+)*", sentence)}
