"""Shorten the messages of a run, so that a long run does not outgrow what a model can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolReturnPart

LONGEST = 4_000
"""The number of characters of an earlier text of the model that the model sees again."""

REMEMBERED = 100_000
"""The number of characters of tool results that a model sees at a time. The oldest results are left out first."""


def shortened(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages with shorter texts of the model, and without the oldest results of tools."""
    left, found = REMEMBERED, list[ModelMessage]()
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            found.append(replace(message, parts=[_cut(part) for part in message.parts]))
            continue
        parts: list[Any] = list(message.parts)
        for index in reversed(range(len(parts))):
            if isinstance(parts[index], ToolReturnPart):
                left -= len(parts[index].model_response_str())
                parts[index] = replace(parts[index], content="left out") if left < 0 else parts[index]
        found.append(replace(message, parts=parts))
    return found[::-1]


def _cut(part: Any) -> Any:
    return replace(part, content=part.content[:LONGEST]) if isinstance(part, TextPart) else part
