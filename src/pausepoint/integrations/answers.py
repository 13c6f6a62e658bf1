"""Answers that arrive through another protocol: the shape that `Engine.answer` takes."""

from __future__ import annotations

from typing import Any, NamedTuple

from pausepoint.model.questions import Question


class Said(NamedTuple):
    """An answer from elsewhere. ``seen`` binds it to what was shown, where the protocol brings that back."""

    question_id: str
    value: Any
    seen: str | None = None


def declined(question: Question, reason: str = "") -> Said | None:
    """A no. To anything but a confirmation it is no answer."""
    return Said(question.id, {"approved": False, "reason": reason}) if question.kind == "confirm" else None


def schema_of(question: Question) -> dict[str, Any]:
    return {"type": "string"} if question.answer_schema is None else question.answer_schema
