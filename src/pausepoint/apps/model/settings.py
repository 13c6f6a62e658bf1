"""The settings of the language model, from environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from pausepoint.apps.model.errors import SettingsRefused


class Settings(NamedTuple):
    """The model to ask and how to reach it. Prices are dollars per million input tokens and output tokens.

    With a ``url``, ``name`` is a model of the service there, which speaks OpenAI's chat completions. Without one, it is
    ``provider:name`` as pydantic-ai knows it, and the provider's own variables have the key.
    """

    name: str
    url: str = ""
    key: str | None = None
    timeout: float = 60.0
    prices: tuple[Decimal, Decimal] | None = None

    @property
    def where(self) -> str:
        """The model and its place, for messages."""
        return f"{self.name} at {self.url}" if self.url else self.name


def settings(environ: Mapping[str, str] | None = None) -> Settings | None:
    """Return the settings from the environment, or None if it names no model."""
    given = os.environ if environ is None else environ
    name = given.get("PAUSEPOINT_MODEL", "").strip()
    if not name:
        return None
    url = given.get("PAUSEPOINT_MODEL_URL", "").strip()
    if url and not url.startswith(("http://", "https://")):
        raise SettingsRefused(
            f"PAUSEPOINT_MODEL_URL is {url!r}. Set it to the base URL of a service that speaks OpenAI's chat"
            " completions, such as http://localhost:11434/v1."
        )
    provider, _, model = name.partition(":")
    if not url and not (provider and model):
        raise SettingsRefused(
            f"PAUSEPOINT_MODEL is {name!r}, which names no provider, and PAUSEPOINT_MODEL_URL is not set. Set"
            f" PAUSEPOINT_MODEL to provider:name, such as openai:{model or provider}, or set PAUSEPOINT_MODEL_URL to"
            " the base URL of a service that speaks OpenAI's chat completions, such as http://localhost:11434/v1."
        )
    key = given.get("PAUSEPOINT_MODEL_KEY") or None
    return Settings(name, url.rstrip("/"), key, _timeout(given), _prices(given))


def _timeout(given: Mapping[str, str]) -> float:
    text = given.get("PAUSEPOINT_MODEL_TIMEOUT") or "60"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < 86_400:
        raise SettingsRefused(f"PAUSEPOINT_MODEL_TIMEOUT is {text!r}. Set it to a number of seconds, such as 60.")
    return seconds


def _prices(given: Mapping[str, str]) -> tuple[Decimal, Decimal] | None:
    text = given.get("PAUSEPOINT_MODEL_PRICE", "").strip()
    if not text:
        return None
    try:
        prices = [Decimal(part) for part in text.split("/")]
    except InvalidOperation:
        prices = []
    if len(prices) != 2 or not all(price.is_finite() and price >= 0 for price in prices):
        raise SettingsRefused(
            f"PAUSEPOINT_MODEL_PRICE is {text!r}. Set it to the dollars per million input tokens and output tokens,"
            " such as 0.15/0.60."
        )
    return prices[0], prices[1]
