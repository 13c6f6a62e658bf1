"""Session ids: short, random, safe as a file name."""

from __future__ import annotations

import random
import re
from typing import NewType, TypeGuard

from pausepoint.errors import InvalidSessionId

SessionId = NewType("SessionId", str)

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # without i, l, o and u, which are easy to misread
KEPT = 1000
"""How many characters of an invalid id the error keeps."""

SHOWN = 80
"""How many characters of a name from outside a message repeats."""

_LEGAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:+-]{0,127}")


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
