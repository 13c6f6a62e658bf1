"""An agent that books hotels. A person approves each booking."""

from functools import partial
from typing import Any

from pydantic import TypeAdapter
from stand_in import MODEL, client, hotels

from pausepoint import Context, Declined, current, workflow


async def find_hotel(city: str) -> str:
    """Find a hotel in a city."""
    return await hotels.find(city)


async def book(hotel: str, nights: int) -> str:
    """Book a hotel."""
    return await hotels.order(f"{nights} nights, {hotel}", key=current().idempotency_key)


TOOLS: dict[str, Any] = {tool.__name__: tool for tool in (find_hotel, book)}
SPECS = [{"name": n, "description": t.__doc__, "input_schema": TypeAdapter(t).json_schema()} for n, t in TOOLS.items()]


async def think(messages: list[Any], ctx: Context) -> list[dict[str, Any]]:
    async with client.messages.stream(model=MODEL, max_tokens=1000, messages=messages, tools=SPECS) as stream:
        async for text in stream.text_stream:
            ctx.stream(text)
        reply = await stream.get_final_message()
    ctx.spend(model=reply.model, input_tokens=reply.usage.input_tokens, output_tokens=reply.usage.output_tokens)
    return [block.to_dict() for block in reply.content]


async def result_of(call: dict[str, Any], ctx: Context) -> dict[str, Any]:
    try:
        tool = partial(TOOLS[call["name"]], **call["input"])
        return {"content": await ctx.do(tool, key=call["id"], retry=3, timeout=60)}
    except Exception as error:
        return {"content": f"{type(error).__name__}: {error}", "is_error": True}


async def use(call: dict[str, Any], ctx: Context) -> dict[str, Any]:
    try:
        if call["name"] == "book":
            await ctx.confirm(f"Book {call['input']['hotel']}?", payload=call["input"])
        result = await ctx.do(result_of, call, key=call["id"])
    except Declined as no:
        result = {"content": f"declined, {no.reason}"}
    return {"type": "tool_result", "tool_use_id": call["id"], **result}


@workflow
async def agent(task: str, ctx: Context) -> str:
    messages: list[Any] = [{"role": "user", "content": task}]
    while True:
        reply = await ctx.do(think, messages, retry=3, timeout=120)
        calls = [block for block in reply if block["type"] == "tool_use"]
        if not calls:
            return "".join(block["text"] for block in reply)
        results = [await use(call, ctx) for call in calls]
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": results}]
