"""Stand-ins for a language model and for two services. They follow a script and need no network.

The model has the interface of the Anthropic client, as far as the examples use it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MODEL = "stand-in"
PACE = 0.05  # seconds between two words of the model
TAKES = 0.5  # seconds that a service takes


class Block:
    """A part of the model's message: text, or a call of a tool."""

    def __init__(self, **content: Any) -> None:
        self.content = content

    def to_dict(self) -> dict[str, Any]:
        return self.content


class Stream:
    """An answer that arrives word by word."""

    def __init__(self, text: str, call: dict[str, Any] | None) -> None:
        self.text = text
        self.blocks = [Block(type="text", text=text)] + ([Block(type="tool_use", **call)] if call else [])

    @property
    async def text_stream(self) -> AsyncIterator[str]:
        for number, word in enumerate(self.text.split(" ")):
            yield f" {word}" if number else word
            await asyncio.sleep(PACE)

    async def get_final_message(self) -> Any:
        usage = SimpleNamespace(input_tokens=100, output_tokens=len(self.text.split(" ")))
        return SimpleNamespace(content=self.blocks, usage=usage, model=MODEL)


def script(messages: list[Any], tools: list[Any]) -> tuple[str, dict[str, Any] | None]:
    """Return what the model says next, and which tool it calls."""
    said = messages[-1]["content"]
    if not tools:
        return f"You said {said!r}. I see {len(messages)} messages.", None
    if isinstance(said, str):
        city = said.split()[-1].strip(".")
        return f"I will look for a hotel in {city}.", {"id": "call-1", "name": "find_hotel", "input": {"city": city}}
    found = said[0]["content"]
    if said[0]["tool_use_id"] == "call-1":
        stay = {"hotel": found.split(":")[0], "nights": 2}
        return f"I found {found}. I will book it.", {"id": "call-2", "name": "book", "input": stay}
    return f"The booking: {found}.", None


@asynccontextmanager
async def stream(*, messages: list[Any], tools: Any = (), **options: Any) -> AsyncIterator[Stream]:
    yield Stream(*script(messages, list(tools)))


client = SimpleNamespace(messages=SimpleNamespace(stream=stream))


class Service:
    """A service that takes idempotency keys: a repeated request with the same key changes nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def find(self, city: str) -> str:
        print(f"{self.name}: find {city}", flush=True)
        await asyncio.sleep(TAKES)
        return f"Hotel Astoria in {city}: 120 euros a night"

    async def order(self, what: str, *, key: str) -> str:
        Path(self.name).mkdir(exist_ok=True)
        Path(self.name, key).write_text(what)  # the same key is the same file
        print(f"{self.name}: {what}", flush=True)
        await asyncio.sleep(TAKES)
        return f"done, {what}"


hotels = Service("hotels")
payments = Service("payments")
