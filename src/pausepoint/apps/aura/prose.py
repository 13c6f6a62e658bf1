"""Let a language model rephrase computed sentences. Without a usable answer they stay as they are.

The model's words are decoration, so they never fail a session, and no outage is waited out. If the model is
unreachable, declines or answers badly, the computed sentences are used, and the report and the session's log say so.
The facts do not change: if an answer contains a number that is not among the findings, the model is asked again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from pydantic import BaseModel, Field, field_validator

from pausepoint import Context, Retry
from pausepoint.apps.aura.language import Code
from pausepoint.apps.model import ModelError, ask
from pausepoint.apps.words import one_line

INSTRUCTIONS = {
    "advice": "You advise a student on the week ahead. Explain what these findings mean in short, friendly sentences.",
    "summary": "You write to a student's parents. Summarise these findings in short, calm and friendly sentences.",
}
RULES = "Use only these findings. Add no number, date, name or fact. Change no number. Write at most six sentences."
LANGUAGES = {"en": "English", "de": "German"}
ONCE = Retry(attempts=1)
"""A report does not wait for its words."""

COMPUTED = "words.computed"
"""The event that says why the model's words are not used."""


class Words(NamedTuple):
    """Sentences for a report. ``problem`` says why they are the computed ones although a model is configured."""

    sentences: list[str]
    problem: str | None = None


async def written(
    ctx: Context, purpose: Literal["advice", "summary"], findings: Sequence[str], language: Code = "en"
) -> Words:
    """Return the findings rephrased by a model, or unchanged if there is no model or no usable answer."""
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

    try:
        instructions = f"{INSTRUCTIONS[purpose]} {RULES} Write in {LANGUAGES[language]}."
        answer = await ask(ctx, instructions, {"findings": list(findings)}, Prose, retry=ONCE)
    except ModelError as error:
        problem = one_line(str(error))
        ctx.emit(COMPUTED, f"The {purpose} uses the computed words: {problem}", purpose=purpose)
        return Words(list(findings), problem)
    return Words(list(findings) if answer is None else answer.sentences)


def _numbers(sentences: Iterable[str]) -> set[str]:
    return {number for sentence in sentences for number in re.findall(r"\d+(?:[.,:]\d+)*", sentence)}
