"""The TLS context of all requests."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


@cache
def tls() -> ssl.SSLContext:
    """Return the TLS context. It is created once, because that takes longer than a request to a local service."""
    import httpx2

    return httpx2.create_ssl_context()
