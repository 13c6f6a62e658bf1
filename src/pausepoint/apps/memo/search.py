"""Thin access to a web-search service that speaks Tavily's interface. Without a key nothing is asked.

| variable | |
|---|---|
| ``PAUSEPOINT_SEARCH_KEY`` | the key. Without it documents alone are read |
| ``PAUSEPOINT_SEARCH_URL`` | the base URL; else ``https://api.tavily.com`` |
| ``PAUSEPOINT_SEARCH_PRICE`` | dollars for a search. Without it no money is counted |

Every search is an operation of the step, with what it cost: a resume pays for none of them again.
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
"""Characters of a page that are kept."""


class SearchUnavailable(PausepointError, ConnectionError):
    """Not now: busy, too slow or out of reach. Worth another attempt; ``retry_after`` says when, if that is known."""

    retry_after: float | None


class SearchRefused(PausepointError):
    """The settings, or the account, are wrong."""

    retryable = False


class Settings(NamedTuple):
    """Which service is asked."""

    key: str
    url: str = DEFAULT_URL
    price: Decimal = Decimal(0)


class _Result(BaseModel):
    """Of what a service answers, what is looked at."""

    model_config = ConfigDict(extra="ignore")

    title: str = ""
    url: str
    content: str = ""
    raw_content: str | None = None


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    results: list[_Result]


def settings(environ: Mapping[str, str] | None = None) -> Settings | None:
    """What the environment says; None if it has no key."""
    given = os.environ if environ is None else environ
    key = given.get("PAUSEPOINT_SEARCH_KEY", "").strip()
    if not key:
        return None
    url = given.get("PAUSEPOINT_SEARCH_URL", "").strip() or DEFAULT_URL
    if not url.startswith(("http://", "https://")):
        raise SearchRefused(f"PAUSEPOINT_SEARCH_URL is {url!r}; give the base URL of a service, such as {DEFAULT_URL}")
    text = given.get("PAUSEPOINT_SEARCH_PRICE", "").strip() or "0"
    try:
        price = Decimal(text)
    except InvalidOperation:
        price = Decimal(-1)
    if not price.is_finite() or price < 0:
        raise SearchRefused(f"PAUSEPOINT_SEARCH_PRICE is {text!r}; it must be the dollars for a search, such as 0.008")
    return Settings(key, url.rstrip("/"), price)


async def found(ctx: Context, query: str) -> list[Source] | None:
    """The pages that a search finds, as sources; None if there is no service to ask. Remembered."""
    return await ctx.do(search_web, query)


async def search_web(query: str, ctx: Context) -> list[Source] | None:
    """One search, whatever comes of it."""
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
        import httpx
    except ImportError as error:
        raise SearchRefused("searching the web needs httpx: pip install 'pausepoint[apps]'") from error
    body = {"query": query, "max_results": RESULTS, "include_raw_content": True}
    headers = {"authorization": f"Bearer {asked.key}"}
    try:
        async with httpx.AsyncClient(verify=tls(), timeout=PATIENCE) as client:
            response = await client.post(f"{asked.url}/search", json=body, headers=headers)
    except httpx.TransportError as error:
        raise SearchUnavailable(f"{asked.url}: {type(error).__name__}: {error}; try again later") from error
    status, said = response.status_code, " ".join(response.text.split())[:300]
    if status in (408, 429) or status >= 500:
        raise SearchUnavailable(f"{asked.url}: status {status}: {said}; try again later", retry_after=_wait(response))
    if status != 200:
        raise SearchRefused(f"{asked.url}: status {status}: {said}; look at PAUSEPOINT_SEARCH_KEY")
    try:
        return _Answer.model_validate_json(response.content)
    except ValidationError as error:
        raise SearchRefused(f"{asked.url}: its answer is no list of results ({said[:100]}); look at the URL") from error


def _wait(response: object) -> float | None:
    try:
        return max(float(response.headers["retry-after"]), 0.0)  # type: ignore[attr-defined]
    except (KeyError, ValueError):
        return None
