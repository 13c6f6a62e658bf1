"""Agents of pydantic-ai whose model follows a script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from pausepoint import Session
from pausepoint.integrations.pydantic_ai import PausepointDurability

Calls = Sequence[tuple[str, dict[str, Any]]]


@dataclass
class Script:
    """A model that makes the calls of each turn, and then reports their results, or else what the user said.

    ``done`` counts its requests, and the calls of its tools.
    """

    turns: list[Calls]
    done: list[str] = field(default_factory=list)

    def reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(each, ModelResponse) for each in messages)
        self.done.append(f"model {turn}")
        if turn < len(self.turns):
            calls = enumerate(self.turns[turn])
            return ModelResponse(
                [ToolCallPart(name, args, tool_call_id=f"{name}-{turn}{n}") for n, (name, args) in calls]
            )
        return ModelResponse([TextPart(", ".join(texts(messages, "tool-return", "retry-prompt") or texts(messages)))])

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for index, part in enumerate(self.reply(messages, info).parts):
            if isinstance(part, ToolCallPart):
                yield {index: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
            elif isinstance(part, TextPart):
                yield part.content

    def agent(self, name: str = "biller", **options: Any) -> Agent[None, str]:
        """Return an agent with this model. ``durability`` are the options of the capability."""
        durability = PausepointDurability[None](**options.pop("durability", {}))
        capabilities = [*options.pop("capabilities", ()), durability]
        model = FunctionModel(self.reply, stream_function=self.stream)
        return Agent(model, name=name, capabilities=capabilities, **options)


def texts(messages: list[ModelMessage], *kinds: str) -> list[str]:
    """Return the content of all parts of some kinds; by default what the user said."""
    wanted = kinds or ("user-prompt",)
    return [str(getattr(part, "content", "")) for each in messages for part in each.parts if part.part_kind in wanted]


async def operations(session: Session[Any]) -> list[str]:
    """Return the ids of a session's operations, in the order in which they ended."""
    found = [event async for event in session.events()]
    return [event.data["id"] for event in found if event.event_type == "operation.completed"]


async def asked(session: Session[Any]) -> dict[str, Any]:
    """Return the open questions of a session by key."""
    return {question.key or "": question for question in (await session.outcome()).questions}
