"""Session ids: short, random, safe as a file name. And the checks of other names and texts from outside."""

from __future__ import annotations

import random
import re
from typing import NewType, TypeGuard

from pausepoint.errors import InvalidSessionId, WrongOwner, error_text

SessionId = NewType("SessionId", str)

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # without i, l, o and u, which are easy to misread
KEPT = 1000
"""How many characters of an invalid id the error keeps."""

SHOWN = 80
"""How many characters of a name from outside a message repeats."""

_LEGAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:+-]{0,127}")


class OwnedId(str):
    """A session id with the owner that its session must have.

    A store checks the owner in every transaction that looks the session up by this id.
    """

    __slots__ = ("owner",)
    owner: str

    def __new__(cls, session_id: str, owner: str) -> OwnedId:
        made = super().__new__(cls, session_id)
        made.owner = owner
        return made

    def __reduce__(self) -> tuple[type[OwnedId], tuple[str, str]]:
        return OwnedId, (str(self), self.owner)


def check_owner(session_id: str, owner: str | None) -> None:
    """Raise `WrongOwner` if the id says that its session must have another owner. A session may have none."""
    if isinstance(session_id, OwnedId) and owner is not None and session_id.owner != owner:
        raise WrongOwner(
            f"Session {str(session_id)!r} belongs to {owner!r}, not to {session_id.owner!r}. Use it as its owner.",
            session_id=str(session_id), owner=owner,
        )  # fmt: skip


def new_session_id(bits: int | None = None) -> SessionId:
    """Return a new id: 60 random bits in 12 characters. Every character is random, so short prefixes differ.

    ``bits`` are the random ones, if they were drawn before.

    >>> new_session_id(0), new_session_id(2**60 - 1)
    ('000000000000', 'zzzzzzzzzzzz')
    """
    bits = random.SystemRandom().getrandbits(60) if bits is None else bits
    return SessionId("".join([_ALPHABET[bits >> shift & 31] for shift in range(0, 60, 5)]))


def is_session_id(text: object) -> TypeGuard[str]:
    """Return whether a value is a valid session id.

    >>> is_session_id("student-7"), is_session_id("../x")
    (True, False)
    """
    return isinstance(text, str) and _LEGAL.fullmatch(text) is not None and ".." not in text


def check_session_id(text: object) -> SessionId:
    """Return ``text`` as a session id, or raise `InvalidSessionId`. No valid id can lead out of a session's folder.

    >>> check_session_id("student-7")
    'student-7'
    >>> check_session_id("../x")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    pausepoint.errors.InvalidSessionId: '../x' is not a valid session id. Use 1 to 128 letters, ...
    """
    if not is_session_id(text):
        raise InvalidSessionId(
            f"{shortened(text)} is not a valid session id. Use 1 to 128 letters, digits or . _ @ : + -,"
            " starting with a letter or digit, without '..'.",
            session_id=str(text)[:KEPT],
        )
    return SessionId(text)


def shortened(name: object) -> str:
    """Return the repr of a name from outside, cut after 80 characters.

    >>> shortened("../x"), len(shortened("x" * 10_000_000))
    ("'../x'", 81)
    """
    shown = repr(name)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"


def check_strings(**given: object) -> None:
    """Check that ids and cursors are strings. Raises `TypeError`."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a string, not {type(value).__name__}: {shortened(value)}.")


def check_texts(**given: object) -> None:
    """Check that names and reasons are strings that can be stored. Raises `TypeError` or `ValueError`."""
    for name, value in given.items():
        if value is None or value == "":
            continue
        check_strings(**{name: value})
        if error_text(ValueError(value)) != value:
            raise ValueError(
                f"{name} must be a string of at most 10,000 characters that can be encoded as UTF-8: {value!r:.60}."
            )
