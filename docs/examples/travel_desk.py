"""Two agents of the OpenAI Agents SDK: one hands over to the other, which books. A person approves the booking."""

import os
from typing import Any

from agents import Agent, ModelResponse, Usage, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from stand_in import hotels

from pausepoint import Context, current, workflow
from pausepoint.integrations.openai_agents import run

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"  # the stand-in needs no network


class StandIn(ScriptedModel):
    """Stands for a language model. The results of the tools so far say what it does next."""

    async def get_response(self, *args: Any, **request: Any) -> ModelResponse:
        items = request["input"] if isinstance(request["input"], list) else []
        results = [item["output"] for item in items if item.get("type") == "function_call_output"]
        if not results:
            answer: Any = function_call("transfer_to_booker", {}, call_id="to booker")
        elif len(results) == 1:
            answer = function_call("find_hotel", {"city": "Lisbon"}, call_id="search")
        elif len(results) == 2:
            answer = function_call("book", {"hotel": results[1].split(":")[0], "nights": 2}, call_id="stay")
        else:
            answer = assistant_message(f"The booking: {results[2]}.")
        return ModelResponse([answer], Usage(requests=1, input_tokens=100, output_tokens=20), None)


@function_tool
async def find_hotel(city: str) -> str:
    """Find a hotel in a city."""
    return await hotels.find(city)


@function_tool(needs_approval=True)
async def book(hotel: str, nights: int) -> str:
    """Book a hotel."""
    return await hotels.order(f"{nights} nights, {hotel}", key=current().idempotency_key)


booker = Agent(name="booker", model=StandIn(), tools=[find_hotel, book])
desk = Agent(name="desk", model=StandIn(), handoffs=[booker])


@workflow
async def travel_desk(task: str, ctx: Context) -> str:
    return str((await run(ctx, desk, task)).final_output)
