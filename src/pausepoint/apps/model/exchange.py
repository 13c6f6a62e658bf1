"""One request to the configured model: what it costs, what it lacks, and why it fails."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal

import httpx2
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelServerError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.output import OutputMode
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings
from pydantic_core import to_json

from pausepoint import Context
from pausepoint.apps.model.errors import ModelError, ModelRefused, ModelUnavailable, SettingsRefused
from pausepoint.apps.model.settings import Settings
from pausepoint.apps.model.tls import tls

FALLBACKS: dict[OutputMode, OutputMode] = {"native": "prompted", "prompted": "text"}
"""What to ask for if a service cannot return JSON of a schema: any JSON object, then any text."""

ABOUT_FORMAT = re.compile("response_format|json_schema|json_object|json mode|structured output|grammar", re.IGNORECASE)
"""A service that lacks a mode of output mentions one of these in its error."""

PASSING = (ModelConnectionError, ModelRateLimitError, ModelServerError, ModelUnavailableError)

_modes: dict[tuple[str, str], OutputMode] = {}
"""The modes of output of services that lack schemas, for this process."""


async def exchange(
    ctx: Context, asked: Settings, messages: Sequence[ModelMessage], parameters: ModelRequestParameters
) -> ModelResponse:
    """Send one request, record its cost, and return the response. Raises a `ModelError`."""
    response = await _formatted(asked, messages, parameters)
    _spend(ctx, asked, response)
    if response.finish_reason == "content_filter":
        why = (response.provider_details or {}).get("refusal") or "its content filter blocked the answer"
        raise ModelRefused(
            f"Model {asked.name} declines to answer: {str(why)[:500]}. Change the input or the instructions."
        )
    return response


async def _formatted(
    asked: Settings, messages: Sequence[ModelMessage], parameters: ModelRequestParameters
) -> ModelResponse:
    """Send a request in the best mode of output that the service has. The instructions contain the schema anyway."""
    service = asked.name, asked.url
    if parameters.output_mode == "native":
        parameters = replace(parameters, output_mode=_modes.get(service, "native"))
    while True:
        try:
            return await _sent(asked, messages, parameters)
        except LacksMode as error:
            mode = FALLBACKS.get(parameters.output_mode)
            if mode is None:
                raise _refusal(asked, error.cause) from error.cause
            _modes[service] = mode
            parameters = replace(parameters, output_mode=mode)


class LacksMode(Exception):
    """The service does not have the mode of output that was asked for."""

    def __init__(self, cause: ModelHTTPError) -> None:
        self.cause = cause


async def _sent(asked: Settings, messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> ModelResponse:
    try:
        # The limit covers the whole request: a service that sends a byte now and then would pass a limit per read.
        async with asyncio.timeout(asked.timeout), _model(asked) as model:
            if parameters.output_mode == "native" and not model.profile.get("supports_json_schema_output", False):
                parameters = replace(parameters, output_mode="prompted")
            return await model_request(
                model, messages, model_settings=ModelSettings(max_retries=0), model_request_parameters=parameters
            )
    except TimeoutError as error:
        raise _unavailable(asked, f"no answer within {asked.timeout:g} s (PAUSEPOINT_MODEL_TIMEOUT)") from error
    except ModelAPIError as error:
        if isinstance(error, ModelHTTPError) and error.status_code in (400, 422) and ABOUT_FORMAT.search(str(error)):
            raise LacksMode(error) from error
        if isinstance(error.__cause__, ValueError):
            return _unusable(error)
        raise _refusal(asked, error) from error
    except (UnexpectedModelBehavior, IndexError) as error:
        return _unusable(error)


def _unusable(error: Exception) -> ModelResponse:
    """Return an invalid answer in place of a response that is not a completion, so that the model is asked again."""
    return ModelResponse(parts=[TextPart(f"{type(error).__name__}: {error}"[:1000])])


@asynccontextmanager
async def _model(asked: Settings) -> AsyncIterator[Model]:
    """Connect to the configured model. A connection belongs to an event loop, so each request has its own."""
    async with httpx2.AsyncClient(verify=tls(), timeout=None) as client:
        try:
            model = _of_service(asked, client) if asked.url else infer_model(asked.name)
        except httpx2.InvalidURL as error:
            raise SettingsRefused(
                f"PAUSEPOINT_MODEL_URL is {asked.url!r}, which is not a valid URL ({error}). Set it to a base URL such"
                " as http://localhost:11434/v1."
            ) from error
        except (UserError, ImportError) as error:  # an unknown provider, no key, or a package that is not installed
            raise SettingsRefused(f"PAUSEPOINT_MODEL is {asked.name!r}, which cannot be used: {error}") from error
        async with model:
            yield model


def _of_service(asked: Settings, client: httpx2.AsyncClient) -> Model:
    profile = ModelProfile(supports_json_schema_output=True, supports_json_object_output=True)
    provider = OpenAICompatibleProvider(
        "service", base_url=asked.url, api_key=asked.key, http_client=client, profile=profile
    )
    return OpenAIChatModel(asked.name, provider=provider)


def _spend(ctx: Context, asked: Settings, response: ModelResponse) -> None:
    tokens = response.usage.input_tokens, response.usage.output_tokens
    if any(tokens):
        usd = _known_price(response) if asked.prices is None else _price(tokens, asked.prices)
        ctx.spend(usd=usd, model=asked.name, input_tokens=tokens[0], output_tokens=tokens[1])


def _price(tokens: tuple[int, int], prices: tuple[Decimal, Decimal]) -> Decimal:
    return (tokens[0] * prices[0] + tokens[1] * prices[1]) / 1_000_000


def _known_price(response: ModelResponse) -> Decimal:
    """Return the price of a response according to genai-prices, or 0 if the model is not listed there."""
    try:
        return response.cost().total_price
    except (LookupError, ValueError):
        return Decimal(0)


def _unavailable(asked: Settings, why: str, retry_after: float | None = None) -> ModelUnavailable:
    return ModelUnavailable(
        f"The model {asked.where} cannot be reached: {why}. Check the service if this lasts.", retry_after=retry_after
    )


def _refusal(asked: Settings, error: ModelAPIError) -> ModelError:
    """Return the error for a request that failed."""
    said = _said(error)
    if isinstance(error, ModelQuotaExceededError):
        return SettingsRefused(
            f"The account's quota for model {asked.where} is used up: {said}. Add credit, then resume."
        )
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    if isinstance(error, PASSING) or status == 408:
        return _unavailable(asked, said, error.retry_after)
    check = "PAUSEPOINT_MODEL, PAUSEPOINT_MODEL_URL and PAUSEPOINT_MODEL_KEY" if asked.url else "PAUSEPOINT_MODEL"
    return SettingsRefused(f"Model {asked.where} does not accept the request: {said}. Check {check}.")


def _said(error: ModelAPIError) -> str:
    """Return what the service said, or why it said nothing."""
    if isinstance(error, ModelHTTPError):
        body = error.body if isinstance(error.body, str) else to_json(error.body, fallback=str).decode()
        return f"status {error.status_code}: {' '.join(body.split())[:300]}".rstrip(". ")
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return f"{type(cause).__name__}: {cause}"[:300].rstrip(". ")
