"""An agent of pydantic-ai that compares hotels in two cities and books one. A person approves the booking."""

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from stand_in import hotels

from pausepoint import Context, current, workflow
from pausepoint.integrations.pydantic_ai import PausepointDurability


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stand for a language model: compare two cities, book in the first, then report."""
    results = [part.content for message in messages for part in message.parts if part.part_kind == "tool-return"]
    if not results:
        cities = ["Lisbon", "Porto"]
        return ModelResponse([ToolCallPart("find_hotel", {"city": city}, tool_call_id=f"in {city}") for city in cities])
    if len(results) == 2:
        stay = {"hotel": str(results[0]).split(":")[0], "nights": 2}
        return ModelResponse([ToolCallPart("book", stay, tool_call_id="stay")])
    return ModelResponse([TextPart(f"I compared {results[0]} and {results[1]}. The booking: {results[2]}.")])


agent = Agent(FunctionModel(script), name="concierge", capabilities=[PausepointDurability()])


@agent.tool_plain
async def find_hotel(city: str) -> str:
    """Find a hotel in a city."""
    return await hotels.find(city)


@agent.tool_plain(requires_approval=True)
async def book(hotel: str, nights: int) -> str:
    """Book a hotel."""
    return await hotels.order(f"{nights} nights, {hotel}", key=current().idempotency_key)


@workflow
async def concierge(task: str, ctx: Context) -> str:
    return (await agent.run(task)).output
