"""Signing in: a token, a cookie that was traded for one, an answer link, a proxy, or the program's own function."""

from __future__ import annotations

import hmac
import inspect
import ipaddress
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from pausepoint.server.calls import Scope, header, header_lines
from pausepoint.server.limits import Attempts
from pausepoint.server.people import Person
from pausepoint.server.roles import ROLES
from pausepoint.server.seals import Seal, cookie_name, cookies, refused, set_cookie
from pausepoint.server.tokens import Tokens

DAYS = 30
"""How many days a cookie is valid."""

AMBIENT = frozenset({"", "basic", "digest", "negotiate", "ntlm"})
"""The kinds of Authorization that a browser may send on its own. Without the header, it may send a cookie."""

Who = Callable[[Any], Person | Awaitable[Person | None] | None]
"""A program's own sign-in: it gets the request, and returns a person, or None to refuse it."""


class Ticket(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a cookie or an answer link says, signed by the server. ``token`` is the id of the token behind it."""

    person: Person
    until: int
    token: str = ""


class Signed(NamedTuple):
    """A sign-in. ``ambient``: the browser sends it on its own, so an action must prove that the page sent it.

    ``until`` is the time at which an answer link ends.
    """

    person: Person
    id: str
    ambient: bool
    until: int | None = None


class SignIn:
    """Finds the person who sends a request.

    - ``tokens``: the tokens of the store; None if only ``who`` signs people in.
    - ``name``: the name of the person who signs in with the server's own token.
    - ``who``: a function of the program that mounts the server. It replaces tokens and cookies.
    - ``proxied``: believe the user and the groups that a proxy sends.
    """

    def __init__(
        self, tokens: Tokens | None, attempts: Attempts, name: str = "admin", who: Who | None = None,
        proxied: bool = False,
    ) -> None:  # fmt: skip
        self.tokens = tokens
        self.name = name
        self._who = who
        self._proxied = proxied
        self._attempts = attempts

    async def person(self, scope: Scope) -> Signed | None:
        """Return the sign-in of a request; None if it has none. Raises a 401 for a wrong token."""
        return await self._found(scope, lambda token: self.by_token(token, address_of(scope)))

    async def is_still(self, scope: Scope, person: Person) -> bool:
        """Return whether a request that was accepted from a person would be accepted again, and from the same one."""
        found = await self._found(scope, self._token)  # without counting wrong tokens
        return found is not None and found.person == person

    async def _found(self, scope: Scope, by_token: Callable[[str], Signed | None]) -> Signed | None:
        if self._who is not None:
            return await self._asked(scope)
        if given := header(scope, "authorization"):
            kind, _, token = given.partition(" ")
            if kind.lower() != "bearer":
                raise refused("The header Authorization is not 'Bearer' and a token. Send 'Authorization: Bearer …'.")
            return by_token(token.strip())
        if self._proxied and scope.get("pausepoint.proxy"):
            return _forwarded(scope) if _names_user(scope) else self._by_link(scope)
        return self._by_cookie(scope)

    def _by_link(self, scope: Scope) -> Signed | None:
        """Return the sign-in of a cookie that was traded for an answer link. Other people the proxy signs in."""
        found = self._by_cookie(scope)
        return None if found is None or found.person.question is None else found

    async def _asked(self, scope: Scope) -> Signed | None:
        from starlette.requests import Request  # only programs that mount the server need it

        assert self._who is not None
        found = self._who(Request(scope))
        person = await found if inspect.isawaitable(found) else found
        ambient = header(scope, "authorization").partition(" ")[0].lower() in AMBIENT
        return None if person is None else Signed(person, f"who:{person.name}", ambient)

    def by_token(self, token: str, address: str) -> Signed:
        """Return the sign-in of a token. Raises a 401 if it is wrong, and a 429 after too many wrong ones."""
        self._attempts.check(address, token)
        found = self._token(token)
        if found is None:
            self._attempts.wrong(address, token)
            raise refused("The token is wrong, has expired or was revoked. Ask the operator of the server for another.")
        self._attempts.right(address, token)
        return found

    def _token(self, token: str) -> Signed | None:
        if self.tokens is None or not (own := self.tokens.own) or not token.isascii():
            return None
        if hmac.compare_digest(token, own):
            return Signed(Person(self.name, "admin"), "own", False)
        if (kept := self.tokens.find(token, time.time())) is not None:
            return Signed(kept.person, kept.id, False)
        if (ticket := self._opened(token, "link")) is not None:
            return Signed(ticket.person, f"link:{ticket.person.question}", False, ticket.until)
        return None

    def _by_cookie(self, scope: Scope) -> Signed | None:
        if self.tokens is None or not self.tokens.own:
            return None
        tickets = (self._opened(value, "cookie") for value in cookies(scope, self.cookie_name))
        ticket = next((each for each in tickets if each is not None), None)
        if ticket is None:
            return None
        if ticket.person.question is not None:
            return Signed(ticket.person, f"link:{ticket.person.question}", True)
        if ticket.token == "own":
            return Signed(ticket.person, ticket.token, True)
        kept = self.tokens.by_id(ticket.token, time.time())
        return None if kept is None else Signed(kept.person, ticket.token, True)  # the token's role now, unless revoked

    # cookies and links

    @property
    def cookie_name(self) -> str:
        """The name of the cookie. Browsers share cookies between ports, so each store has a name of its own."""
        return cookie_name(self.tokens)

    def cookie(self, signed: Signed, scope: Scope) -> str:
        """Return the header that stores a sign-in in the browser."""
        token = signed.id.partition(":")[0]
        now = int(time.time())
        until = min(now + DAYS * 86_400, signed.until or now + DAYS * 86_400)
        return self._set_cookie(
            Seal(self.tokens, "cookie").sealed(Ticket(signed.person, until, token)), until - now, scope
        )

    def no_cookie(self, scope: Scope) -> str:
        """Return the header that deletes the cookie."""
        return self._set_cookie("", 0, scope)

    def _set_cookie(self, value: str, seconds: int, scope: Scope) -> str:
        return set_cookie(self.cookie_name, value, seconds, scope, scope.get("root_path") or "/")

    def link(self, question_id: str, name: str, until: float) -> str:
        """Return a token that can see and answer one question, until a time."""
        return Seal(self.tokens, "link").sealed(Ticket(Person(name, "answerer", None, question_id), int(until)))

    def _opened(self, text: str, purpose: str) -> Ticket | None:
        """Return a ticket whose signature is right and whose time is not over."""
        ticket = Seal(self.tokens, purpose).opened(text, Ticket)
        return ticket if ticket is not None and time.time() < ticket.until else None


def address_of(scope: Scope) -> str:
    """Return the address of the client. A client with IPv6 has a whole network of them, which counts as one.

    >>> address_of({"client": ("10.0.0.7", 50123)}), address_of({"client": ("2001:db8:1:2:3::4", 50123)})
    ('10.0.0.7', '2001:db8:1:2::/64')
    """
    given = str((scope.get("client") or ("", 0))[0])
    try:
        found = ipaddress.ip_address(given)
    except ValueError:
        return given
    return given if found.version == 4 else str(ipaddress.ip_network((int(found), 64), strict=False))


def _names_user(scope: Scope) -> bool:
    """Return whether a request has a user: the proxy's, or one that the client sent and the proxy did not remove."""
    return any(line.strip() for line in header_lines(scope, "x-forwarded-user"))


def _forwarded(scope: Scope) -> Signed | None:
    """Return the person that a proxy has signed in: a user, and the group that names the highest role."""
    users, lines = header_lines(scope, "x-forwarded-user"), header_lines(scope, "x-forwarded-groups")
    if len(users) > 1 or len(lines) > 1:
        return None  # the client sent a line of its own, and the proxy did not remove it
    user = "".join(users).strip()
    groups = {each.strip().lower().removeprefix("pausepoint-") for each in "".join(lines).split(",")}
    roles = [role for role in ROLES if role in groups]
    if not user or not roles:
        return None
    return Signed(Person(user, roles[-1]), f"proxy:{user}", True)
