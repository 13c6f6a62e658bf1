"""Answers that arrive through another protocol, in the form that `Engine.answer` takes."""

from __future__ import annotations

from typing import Any, NamedTuple

from pausepoint.model.questions import Question


class Said(NamedTuple):
    """An answer to a question. ``seen`` is the digest of the question as shown, if the protocol returns it."""

    question_id: str
    value: Any
    seen: str | None = None


def declined(question: Question, reason: str = "") -> Said | None:
    """Return a declined confirmation, or None for other questions, which cannot be declined and stay open."""
    return Said(question.id, {"approved": False, "reason": reason}) if question.kind == "confirm" else None


def schema_of(question: Question) -> dict[str, Any]:
    return {"type": "string"} if question.answer_schema is None else question.answer_schema
