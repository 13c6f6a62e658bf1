"""A small client for web-search services that speak Tavily's interface. Without a key it does nothing.

| variable | |
|---|---|
| ``PAUSEPOINT_SEARCH_KEY`` | the API key. Without it, only documents are read |
| ``PAUSEPOINT_SEARCH_URL`` | the base URL; the default is ``https://api.tavily.com`` |
| ``PAUSEPOINT_SEARCH_PRICE`` | dollars per search. Without it, no cost is counted |

Every search is an operation of the step, recorded with its cost. A resume does not pay for it again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from pausepoint import Context, PausepointError
from pausepoint.apps.memo.documents import of_text
from pausepoint.apps.memo.models import Source
from pausepoint.apps.memo.prose import slug
from pausepoint.apps.model import tls

DEFAULT_URL = "https://api.tavily.com"
RESULTS = 5
PATIENCE = 30.0
LONGEST = 40_000
"""The number of characters of a page that are kept."""


class SearchUnavailable(PausepointError, ConnectionError):
    """The service is busy, too slow or unreachable. Retry later; ``retry_after`` is the wait in seconds, if known."""

    retry_after: float | None


class SearchRefused(PausepointError):
    """The service rejects the settings or the account, or a setting is invalid."""

    retryable = False


class Settings(NamedTuple):
    """The search service to ask."""

    key: str
    url: str = DEFAULT_URL
    price: Decimal = Decimal(0)


class _Result(BaseModel):
    """The part of a search result that this client reads."""

    model_config = ConfigDict(extra="ignore")

    title: str = ""
    url: str
    content: str = ""
    raw_content: str | None = None


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    results: list[_Result]


def settings(environ: Mapping[str, str] | None = None) -> Settings | None:
    """Return the settings from the environment, or None if there is no key."""
    given = os.environ if environ is None else environ
    key = given.get("PAUSEPOINT_SEARCH_KEY", "").strip()
    if not key:
        return None
    url = given.get("PAUSEPOINT_SEARCH_URL", "").strip() or DEFAULT_URL
    if not url.startswith(("http://", "https://")):
        raise SearchRefused(f"PAUSEPOINT_SEARCH_URL is {url!r}. Set it to the URL of a service, such as {DEFAULT_URL}.")
    text = given.get("PAUSEPOINT_SEARCH_PRICE", "").strip() or "0"
    try:
        price = Decimal(text)
    except InvalidOperation:
        price = Decimal(-1)
    if not price.is_finite() or price < 0:
        raise SearchRefused(f"PAUSEPOINT_SEARCH_PRICE is {text!r}. Set it to the dollars per search, such as 0.008.")
    return Settings(key, url.rstrip("/"), price)


async def found(ctx: Context, query: str) -> list[Source] | None:
    """Return the pages that a search finds as sources, or None without a service. The result is remembered."""
    return await ctx.do(search_web, query)


async def available(ctx: Context) -> bool:
    """Return whether a service was configured when this visit first asked. A resume gets the same answer."""

    async def search_settings() -> bool:
        return settings() is not None

    return await ctx.do(search_settings)


async def search_web(query: str, ctx: Context) -> list[Source] | None:
    """Run one search."""
    asked = settings()
    if asked is None:
        return None
    answer = await _post(asked, query)
    if asked.price:
        ctx.spend(usd=asked.price)
    sources = []
    for result in answer.results:
        text = (result.raw_content or result.content)[:LONGEST]
        if result.url.startswith(("http://", "https://")) and text.strip():
            address = result.url.partition("://")[2]
            sources.append(of_text(f"web-{slug(address)}", result.title or address, result.url, text))
    return sources


async def _post(asked: Settings, query: str) -> _Answer:
    try:
        import httpx2
    except ImportError as error:
        raise SearchRefused("Searching the web needs httpx2. Install it: pip install 'pausepoint[apps]'") from error
    body = {"query": query, "max_results": RESULTS, "include_raw_content": True}
    headers = {"authorization": f"Bearer {asked.key}"}
    try:
        async with httpx2.AsyncClient(verify=tls(), timeout=PATIENCE) as client:
            response = await client.post(f"{asked.url}/search", json=body, headers=headers)
    except httpx2.TransportError as error:
        why = f"{type(error).__name__}: {error}"
        raise SearchUnavailable(f"{asked.url} is not available: {why}. Try again later.") from error
    status, said = response.status_code, " ".join(response.text.split())[:300]
    if status in (408, 429) or status >= 500:
        raise SearchUnavailable(
            f"{asked.url} answered with status {status}: {said}. Try again later.", retry_after=_wait(response)
        )
    if status != 200:
        raise SearchRefused(f"{asked.url} answered with status {status}: {said}. Check PAUSEPOINT_SEARCH_KEY.")
    try:
        return _Answer.model_validate_json(response.content)
    except ValidationError as error:
        raise SearchRefused(
            f"{asked.url} did not return a list of results ({said[:100]}). Check PAUSEPOINT_SEARCH_URL."
        ) from error


def _wait(response: object) -> float | None:
    try:
        return max(float(response.headers["retry-after"]), 0.0)  # type: ignore[attr-defined]
    except (KeyError, ValueError):
        return None
