"""Visitors: people outside whom a signed link signs in to one site of a program. They have no role in the server."""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from pausepoint.server.calls import Scope
from pausepoint.server.seals import Seal, cookie_name, cookies, set_cookie
from pausepoint.server.tokens import Cached, Tokens, write_private


class Pass(msgspec.Struct, frozen=True):
    """What a visitor's link says. ``series`` is the number of times that the visitor's links had been revoked."""

    name: str
    until: int
    series: int = 0


class Visitor(NamedTuple):
    """A person whom a link has signed in, and the link."""

    name: str
    until: int
    link: str


class Visitors:
    """The links of a site. A link is signed, ends at a time, and can be revoked together with all others of its name.

    Only revocations are stored: the series of each name, in a private file next to the store.
    """

    def __init__(self, tokens: Tokens, site: str) -> None:
        self._tokens = tokens
        self._site = site
        self._seal = Seal(tokens, f"site {site}")
        self._file = tokens.folder / f"serve-{site}-links.json"
        self._series = Cached(self._file, msgspec.json.Decoder(dict[str, int]).decode)

    def link(self, name: str, seconds: float) -> Visitor:
        """Return a new link for a name."""
        until = int(time.time() + seconds)
        self._tokens.make()
        return Visitor(name, until, self._seal.sealed(Pass(name, until, self._series_of(name))))

    def revoke(self, name: str) -> None:
        """Make all links of a name invalid. People who signed in with them are signed out."""
        with self._tokens.locked():
            known = self._series.value() or {}
            write_private(self._file, msgspec.json.encode(known | {name: self._series_of(name) + 1}))

    def find(self, link: str) -> Visitor | None:
        """Return the visitor of a link; None if the link is forged, has ended or was revoked."""
        found = self._seal.opened(link, Pass)
        if found is None or time.time() >= found.until or found.series != self._series_of(found.name):
            return None
        return Visitor(found.name, found.until, link)

    def of(self, scope: Scope) -> Visitor | None:
        """Return the visitor who sends a request, by the cookie that was traded for a link."""
        found = (self.find(value) for value in cookies(scope, self._cookie_name))
        return next((each for each in found if each is not None), None)

    def cookie(self, visitor: Visitor | None, scope: Scope) -> str:
        """Return the header that stores the sign-in in the browser, or deletes it."""
        path = f"{scope.get('root_path', '')}/{self._site}/"
        if visitor is None:
            return set_cookie(self._cookie_name, "", 0, scope, path)
        return set_cookie(self._cookie_name, visitor.link, visitor.until - int(time.time()), scope, path)

    @property
    def _cookie_name(self) -> str:
        return cookie_name(self._tokens, self._site)

    def _series_of(self, name: str) -> int:
        return (self._series.value() or {}).get(name, 0)
