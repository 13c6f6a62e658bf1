"""Ask a language model about the texts of a file.

A failure is remembered as an answer is, so a resume gives the same result and does not ask again. The plan then does
without the model.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json

from pausepoint import Context, Retry
from pausepoint.apps import model
from pausepoint.apps.words import one_line

A = TypeVar("A", bound=BaseModel)

OUTAGE = Retry(attempts=10, first=1.0, longest=60.0, on=(model.ModelUnavailable,))
"""An outage is waited out for about four minutes. The plan is useful without the model."""

FAILURES = 3
"""After so many questions in a row without a usable answer, the model is asked nothing else about the file."""

LONGEST_PROBLEM = 300


class Outcome(BaseModel):
    """The result of a question: the answer as JSON, or the problem. After a lasting problem no other question helps."""

    answer: str = ""
    problem: str = ""
    is_lasting: bool = False


class Reader:
    """A language model that reads one file. ``notes`` say what it was not asked, ``problem`` what failed last."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._failures = 0
        self.notes: list[str] = []
        self.problem = ""

    @property
    def has_given_up(self) -> bool:
        """Whether no further question makes sense."""
        return self._failures >= FAILURES

    def progress(self, done: int, total: int) -> None:
        """Report how many topics the model has read."""
        self._ctx.progress(done, total)

    async def ask(self, instructions: str, data: Any, answer: type[A]) -> A | None:
        """Return the model's answer, or None if there is no usable one."""
        if self.has_given_up:
            return None

        async def consult(question: str, ctx: Context) -> Outcome:
            return await _outcome(ctx, instructions, data, answer)

        question = to_json([instructions, data, answer.model_json_schema()])
        found = await self._ctx.do(consult, sha256(question).hexdigest())
        if found.answer:
            self._failures = 0
            return answer.model_validate_json(found.answer)
        self.problem = found.problem
        self._failures = FAILURES if found.is_lasting else self._failures + 1
        return None


async def _outcome(ctx: Context, instructions: str, data: Any, answer: type[A]) -> Outcome:
    try:
        found = await model.ask(ctx, instructions, data, answer, before=_limited, retry=OUTAGE)
    except model.AnswerInvalid:
        return Outcome(problem="Its answers do not fit the text, or are not what was asked for.")
    except model.ModelError as error:
        is_lasting = isinstance(error, model.SettingsRefused | model.ModelUnavailable)
        return Outcome(problem=one_line(str(error))[:LONGEST_PROBLEM], is_lasting=is_lasting)
    if found is None:
        return Outcome(problem="PAUSEPOINT_MODEL is no longer set.", is_lasting=True)
    return Outcome(answer=found.model_dump_json())


async def _limited(number: int) -> None:
    """Refuse more answers after a kill than without one, so that both give the same result."""
    if number > model.EXCHANGES:
        raise model.AnswerInvalid(f"The model gave {model.EXCHANGES} invalid answers.")
