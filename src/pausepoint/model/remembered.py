"""Requests that must have one effect, however often they are repeated: what a store remembers about each."""

from __future__ import annotations

from typing import Any

import msgspec

LONGEST_KEY = 255
"""The most characters of a key."""

LARGEST_ANSWER = 2**20
"""The most bytes of an answer. Store a short answer that says where to read the rest."""

LONGEST_DIGEST = 64
"""The most bytes of a request's digest."""


class Remembered(msgspec.Struct, frozen=True):
    """What a store remembers about a request. ``until`` is when it forgets the request.

    - ``digest``: of the request that used the key first. Compare it with your own: the same key with another request
      is a mistake of the caller.
    - ``answer``: the stored answer; None as long as there is none.
    - ``claimed``: this call took the key, so the caller must carry out the request now.
    - ``at_work``: there is no answer yet, and the engine that took the key is alive.
    - ``took_effect``: a write under the key is stored (see `pausepoint.stores.base.Store.once`). With ``claimed``, the
      engine that took the key before died after the effect and before the answer: do not carry out the request again.
    """

    key: str
    digest: bytes
    answer: bytes | None
    until: int
    claimed: bool = False
    at_work: bool = False
    took_effect: bool = False


def check_key(key: Any) -> str:
    """Return a key that can be remembered. Raises `TypeError` or `ValueError` for any other value.

    >>> check_key("ann 7f1c")
    'ann 7f1c'
    >>> check_key("")
    Traceback (most recent call last):
    ...
    ValueError: The key '' cannot be used. Use 1 to 255 printable characters.
    """
    if not isinstance(key, str):
        raise TypeError(f"The key must be a string, not {type(key).__name__}: {key!r:.60}.")
    if not 1 <= len(key) <= LONGEST_KEY or not key.isprintable():
        raise ValueError(f"The key {key!r:.60} cannot be used. Use 1 to {LONGEST_KEY} printable characters.")
    return key


def check_remembered(key: Any, digest: Any, answer: Any) -> None:
    """Check what is to be remembered. Raises `TypeError` or `ValueError`."""
    check_key(key)
    if not isinstance(digest, bytes) or not isinstance(answer, bytes | None):
        raise TypeError(f"The digest and the answer of key {key!r:.60} must be bytes.")
    if not 1 <= len(digest) <= LONGEST_DIGEST:
        raise ValueError(f"The digest of key {key!r:.60} has {len(digest)} bytes. Use 1 to {LONGEST_DIGEST} bytes.")
    if answer is not None and len(answer) > LARGEST_ANSWER:
        raise ValueError(
            f"The answer of key {key!r:.60} has {len(answer)} bytes, but at most {LARGEST_ANSWER} are kept. Store a"
            " short answer that says where to read the rest."
        )
