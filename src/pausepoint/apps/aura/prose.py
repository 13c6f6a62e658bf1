"""Sentences in better words: a language model may rewrite what was computed. Without one they stay as they are.

The facts stay those that were computed: an answer with a number that is not among the findings is asked for again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import BaseModel, Field, field_validator

from pausepoint import Context
from pausepoint.apps.model import ask

INSTRUCTIONS = {
    "advice": "You advise a student on the week ahead. Say what these findings mean, in short and friendly sentences.",
    "summary": "You write to a student's parents. Sum these findings up in short, calm and friendly sentences.",
}
RULES = "Use only these findings: add no number, date, name or fact. Keep every number as it is. At most six sentences."


async def written(ctx: Context, purpose: Literal["advice", "summary"], findings: Sequence[str]) -> list[str]:
    """The findings in a model's words, or as they are if there is no model."""
    known = _numbers(findings)

    class Prose(BaseModel):
        sentences: list[str] = Field(min_length=1, max_length=6)

        @field_validator("sentences")
        @classmethod
        def adds_no_number(cls, sentences: list[str]) -> list[str]:
            invented = sorted(_numbers(sentences) - known)
            if invented:
                raise ValueError(f"{', '.join(invented)} is not among the findings")
            return sentences

    answer = await ask(ctx, f"{INSTRUCTIONS[purpose]} {RULES}", {"findings": list(findings)}, Prose)
    return list(findings) if answer is None else answer.sentences


def _numbers(sentences: Iterable[str]) -> set[str]:
    return {number for sentence in sentences for number in re.findall(r"\d+(?:[.,:]\d+)*", sentence)}
