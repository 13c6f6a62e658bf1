"""Signed texts: what cookies and links say, sealed with a key that only the server knows."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import TypeVar

import msgspec

from pausepoint.server.calls import Scope, header_lines
from pausepoint.server.problems import Problem
from pausepoint.server.tokens import Tokens

T = TypeVar("T")


class Seal:
    """Signs documents for one purpose. A document that was sealed for another purpose cannot be opened.

    The key is derived from the server's own token, so a new token makes all old signatures wrong.
    """

    def __init__(self, tokens: Tokens | None, purpose: str) -> None:
        self._tokens = tokens
        self._purpose = purpose

    def sealed(self, document: msgspec.Struct) -> str:
        """Return a document as a signed text that fits into an address or a cookie."""
        data = _base64(msgspec.json.encode(document))
        return f"{data}.{_base64(self._mac(data))}"

    def opened(self, text: str, kind: type[T]) -> T | None:
        """Return the document of a signed text; None if the signature is wrong."""
        data, _, mac = text.partition(".")
        if not text.isascii() or not hmac.compare_digest(mac, _base64(self._mac(data))):
            return None
        try:
            return msgspec.json.decode(urlsafe_b64decode(data + "=" * (-len(data) % 4)), type=kind)
        except (ValueError, msgspec.MsgspecError):
            return None

    def _mac(self, data: str) -> bytes:
        if self._tokens is None or not self._tokens.own:
            raise refused("This server has no token yet. Start it with pausepoint serve.")
        return hmac.digest(_key(self._tokens, self._purpose), data.encode(), "sha256")


def _key(tokens: Tokens | None, purpose: str) -> bytes:
    own = "" if tokens is None else tokens.own
    return hmac.digest(own.encode(), f"pausepoint {purpose}".encode(), "sha256")


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def refused(text: str) -> Problem:
    """Return a 401."""
    return Problem(401, text, headers={"WWW-Authenticate": "Bearer"})


# cookies


def cookie_name(tokens: Tokens | None, prefix: str = "pausepoint") -> str:
    """Return the name of a cookie. Browsers share cookies between ports, so each store has a name of its own."""
    return f"{prefix}-{sha256(_key(tokens, 'name')).hexdigest()[:8]}"


def cookies(scope: Scope, name: str) -> Iterator[str]:
    """Yield the cookies with a name. Other servers on this machine can add theirs, and nonsense before ours."""
    for line in header_lines(scope, "cookie"):
        for part in line.split(";"):
            given, _, value = part.strip().partition("=")
            if given == name:
                yield value


def set_cookie(name: str, value: str, seconds: int, scope: Scope, path: str) -> str:
    """Return the header that stores a cookie in the browser, which no script can read and no other site can send."""
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    return f"{name}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
