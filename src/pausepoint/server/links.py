"""Answer links: addresses that can see and answer one question, for mail and chat."""

from __future__ import annotations

import time
from typing import NamedTuple
from urllib.parse import urlsplit

from pausepoint.model.questions import Question
from pausepoint.server.limits import Attempts
from pausepoint.server.signin import SignIn
from pausepoint.server.tokens import Tokens


class Link(NamedTuple):
    """An answer link, and when it ends, in seconds since 1970."""

    address: str
    until: int


class Links:
    """Makes answer links with the server's own token, which is created if there is none.

    - ``url``: the address of the server, as the reader reaches it.
    - ``name``: recorded in the history as the person who answers.
    - ``seconds``: how long a link is valid. A link never outlives its question.
    """

    def __init__(self, tokens: Tokens, url: str, name: str, seconds: int) -> None:
        tokens.make()
        self._sign_in = SignIn(tokens, Attempts(5))
        self._url = url.rstrip("/")
        self._name = name
        self._seconds = seconds

    def link(self, question: Question) -> Link:
        """Return the link that answers a question."""
        until = time.time() + self._seconds
        if question.expired_at is not None:
            until = min(until, question.expired_at.timestamp())
        return Link(f"{self._url}/#token={self._sign_in.link(question.id, self._name, until)}", int(until))


def is_address(url: str) -> bool:
    """Return whether an address can be the beginning of an answer link.

    >>> [is_address(each) for each in ("https://example.com/x/", "example.com", "https://a b", "http://x/#y")]
    [True, False, False, False]
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and not set(' #?"<>') & set(url)
    return plain and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
