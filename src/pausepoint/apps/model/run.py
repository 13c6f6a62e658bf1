"""A run of a pydantic-ai agent whose requests are operations of the step. Only `ask` imports this module."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_ai import Agent, NativeOutput, Tool, UsageLimits
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings

from pausepoint import Context
from pausepoint.apps.model.answers import EXCHANGES, A, Asking, Tools
from pausepoint.apps.model.errors import AnswerInvalid, TurnsUsed
from pausepoint.apps.model.exchange import exchange
from pausepoint.apps.model.history import shortened
from pausepoint.apps.model.settings import Settings

UNLIMITED = 1_000_000_000
"""The limits of pydantic-ai would count remembered answers too, so `Recorded` has its own."""

PROFILE = ModelProfile(
    supports_json_schema_output=True, supports_json_object_output=True, supports_inline_system_prompts=True
)
"""pydantic-ai adapts nothing here. The configured model adapts the request to what it can do."""

Before = Callable[[int], Awaitable[None]]


class NoModel(Exception):
    """The visit began without a model."""


async def run(
    asking: Asking, answer: type[A], instructions: str, prompt: str, tools: Tools, turns: int, before: Before | None
) -> A | None:
    """Return the model's answer to a prompt; None if the visit began without a model."""
    kind: Any = answer
    output: Any = NativeOutput(kind, template=False) if issubclass(kind, BaseModel) else kind
    given = [Tool(tool, name=name, takes_ctx=False, sequential=True) for name, tool in tools.items()]
    agent: Agent[None, Any] = Agent(
        Recorded(asking, kind, turns if tools else 0, before), output_type=output, instructions=instructions,
        retries=UNLIMITED, tools=given,
    )  # fmt: skip
    try:
        result = await agent.run(prompt, usage_limits=UsageLimits(request_limit=None))
    except NoModel:
        return None
    found: A = result.output
    return found


class Recorded(Model):
    """A model for pydantic-ai that sends each request to the configured model, as an operation.

    ``turns`` is the limit of requests if the model has tools, else 0.
    """

    def __init__(self, asking: Asking, answer: type[BaseModel] | type[str], turns: int, before: Before | None) -> None:
        super().__init__(profile=PROFILE)
        self.asking = asking
        self.answer = answer
        self.turns = turns
        self.before = before
        self.turn = 0
        self.last: ModelResponse | None = None

    @property
    def model_name(self) -> str:
        return "recorded"

    @property
    def system(self) -> str:
        return "pausepoint"

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Return the next response. pydantic-ai calls this."""
        if self.last is not None:
            self._check_may_ask_again(self.last)
        self.turn += 1
        if self.before is not None:
            await self.before(self.turn)

        async def send(ctx: Context, asked: Settings) -> str:
            response = await exchange(ctx, asked, shortened(messages), model_request_parameters)
            return ModelMessagesTypeAdapter.dump_json([response]).decode()

        text = await self.asking.request(send)
        if text is None:
            raise NoModel
        [self.last] = _responses(text)
        if self.answer is not str:
            self.last = replace(self.last, parts=[_without_words_around(part) for part in self.last.parts])
        return self.last

    def _check_may_ask_again(self, last: ModelResponse) -> None:
        """Raise if the model has used all its attempts. A response that calls no tool was an invalid answer."""
        if self.turns and last.tool_calls:
            if self.turn >= self.turns:
                raise TurnsUsed(
                    f"The model has not finished within {self.turns} turns. Give it more turns, or a smaller task."
                )
        elif self.asking.fresh >= EXCHANGES:
            raise AnswerInvalid(
                f"The model gave {self.asking.fresh} answers that are not a valid {self.answer.__name__}. The last"
                f" error: {self._error(last)}. Resume to ask again, or set PAUSEPOINT_MODEL to a model that is better"
                " at JSON."
            )

    def _error(self, last: ModelResponse) -> str:
        if issubclass(self.answer, BaseModel):
            try:
                self.answer.model_validate_json(last.text or "")
            except ValidationError as error:
                return _said(error)
        return "it has no text"


def _responses(text: str) -> list[ModelResponse]:
    return [each for each in ModelMessagesTypeAdapter.validate_json(text) if isinstance(each, ModelResponse)]


def _without_words_around(part: Any) -> Any:
    """Return a part with the JSON object of its text. Some models put words around it."""
    if not isinstance(part, TextPart):
        return part
    text = part.content
    return replace(part, content=text[text.find("{") : text.rfind("}") + 1] or text)


def _said(error: ValidationError) -> str:
    found = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}".removeprefix(": ") for each in error.errors()]
    return "; ".join(found)[:500]
