"""Responses of models of the OpenAI Agents SDK: read from a stream, stored, restored, and sent as an event."""

from __future__ import annotations

from typing import Annotated, Any

from agents import Model, ModelResponse, Usage
from agents.items import TResponseOutputItem
from agents.models._response_terminal import response_error_event_failure_error, response_terminal_failure_error
from agents.usage import (
    _attach_raw_usage_snapshot,
    _extract_raw_usage_snapshot,
    deserialize_usage,
    serialize_usage,
)
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseOutputItemDoneEvent,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from pydantic import Field, TypeAdapter

from pausepoint import Context

_ITEM: TypeAdapter[TResponseOutputItem] = TypeAdapter(Annotated[TResponseOutputItem, Field(discriminator="type")])


async def streamed(model: Model, ctx: Context, args: tuple[Any, ...], named: dict[str, Any]) -> ModelResponse:
    """Send the text to those who follow the session while it arrives, and return the whole response."""
    final: Response | None = None
    items: list[TResponseOutputItem] = []
    async for event in model.stream_response(*args, **named):
        if isinstance(event, ResponseTextDeltaEvent):
            ctx.stream(event.delta)
        elif isinstance(event, ResponseOutputItemDoneEvent):
            items.append(event.item)
        elif isinstance(event, ResponseCompletedEvent):
            final = event.response
        elif event.type in ("response.incomplete", "response.failed"):
            raise response_terminal_failure_error(event.type, getattr(event, "response", None))
        elif event.type in ("error", "response.error"):
            raise response_error_event_failure_error(event.type, event)
    if final is None:
        raise RuntimeError("The model's stream ended without a response. Run the step again.")
    return ModelResponse(
        output=final.output or items,  # some services send the items one by one, and an empty response at the end
        usage=_usage(final.usage),
        response_id=final.id,
        request_id=getattr(final, "_request_id", None),
        raw_usage=_extract_raw_usage_snapshot(final),
    )


def _usage(usage: ResponseUsage | None) -> Usage:
    if usage is None:
        return Usage(requests=1)
    return Usage(
        requests=1,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        input_tokens_details=usage.input_tokens_details,
        output_tokens_details=usage.output_tokens_details,
    )


def stored(response: ModelResponse) -> dict[str, Any]:
    """Return a response as plain JSON."""
    return {
        "output": [item.model_dump(mode="json", exclude_unset=True) for item in response.output],
        "usage": serialize_usage(response.usage),
        "response_id": response.response_id,
        "request_id": response.request_id,
        "raw_usage": response.raw_usage,
    }


def restored(kept: dict[str, Any]) -> ModelResponse:
    """Return the response that was stored."""
    return ModelResponse(
        output=[_ITEM.validate_python(item) for item in kept["output"]],
        usage=deserialize_usage(kept["usage"]),
        response_id=kept["response_id"],
        request_id=kept["request_id"],
        raw_usage=kept["raw_usage"],
    )


def as_event(response: ModelResponse) -> ResponseCompletedEvent:
    """Return a response as the last event of a stream. The SDK reads from it what a response has."""
    usage = response.usage
    whole = Response(
        id=response.response_id or "",
        created_at=0,
        model="",
        object="response",
        output=response.output,
        tool_choice="auto",
        tools=[],
        parallel_tool_calls=True,
        usage=ResponseUsage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            total_tokens=usage.total_tokens,
            input_tokens_details=usage.input_tokens_details,
            output_tokens_details=usage.output_tokens_details,
        ),
    )
    whole._request_id = response.request_id
    _attach_raw_usage_snapshot(whole, response.raw_usage)
    return ResponseCompletedEvent(type="response.completed", sequence_number=0, response=whole)
