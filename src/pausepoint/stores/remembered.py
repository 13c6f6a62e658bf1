"""How a request has one effect, although it may be repeated: by other processes, and after a kill.

A client that gets no answer repeats its request with the same key (an Idempotency-Key). Every engine of the store
handles it like this:

1. ``remember(key, digest, None, until)``, where ``digest`` identifies the request. Exactly one engine gets ``claimed``.
   The others get the stored answer and return it, or ``at_work``, and tell the client to ask again later. If the result
   has another digest, the key was used for another request, which is the client's mistake.
2. The engine that got ``claimed`` carries out the request in ``with once(key):``. The first write of the block stores
   ``took_effect`` in its own transaction.
3. ``remember(key, digest, answer, until)`` stores the answer. If the request was refused without an effect, and may be
   repeated, ``forget(key)`` gives the key up instead.

**Killed before the effect**: the key stays taken. Its engine is not alive, so the next request gets ``claimed``, with
``took_effect`` false, and carries the request out. **Killed after the effect**: the next request gets ``claimed`` with
``took_effect`` true. It skips step 2 and answers from the present facts. There is no moment between the two, because
effect and ``took_effect`` are one transaction.

The guarantee is about the first transaction of the block. A verb that makes several, such as a resume that also adopts
edited artifacts, has taken effect with the first. Such verbs leave out what is done, so a caller that must complete the
rest repeats them; it does so without ``once``.

**Many sessions.** In ``with once(key, each=True):``, every `pause`, `unpause` and `cancel` is covered. Each of them
notes, in its own transaction, the sessions that it treats, and leaves out those that the request has treated before. So
a request for many sessions that was cut off is completed in another such block, and has one effect on each session,
whatever other people have done with it since. ``treated()`` names these sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pausepoint.errors import CallRefused, KeyLost
from pausepoint.model.ids import shortened
from pausepoint.model.remembered import check_key


class Once:
    """A block whose first write also records that the request of ``key`` took effect; ``each``: on which sessions."""

    __slots__ = ("each", "ended", "key", "over", "store")

    def __init__(self, store: object, key: str, each: bool) -> None:
        self.store = store
        self.key = key
        self.each = each
        self.over = False  # the effect is recorded, or the block has ended; a task that it started may still run
        self.ended = False


_current: ContextVar[Once | None] = ContextVar("pausepoint_once", default=None)


@contextmanager
def once(store: object, key: str, each: bool = False) -> Iterator[None]:
    """Let the first write that this task makes in the block record that the request of ``key`` took effect."""
    if current(store) is not None or current_each(store) is not None:
        raise CallRefused("once() was called inside the block of another once(). Leave that block first.")
    block = Once(store, check_key(key), each)
    token = _current.set(block)
    try:
        yield
    finally:
        block.over = block.ended = True
        _current.reset(token)


def current(store: object) -> Once | None:
    """Return the block that the next write of this task belongs to; None if there is none."""
    block = _current.get()
    return None if block is None or block.over or block.store is not store else block


def current_each(store: object) -> Once | None:
    """Return the block with ``each`` that the writes of this task belong to; None if there is none."""
    block = _current.get()
    return None if block is None or block.ended or not block.each or block.store is not store else block


def key_lost(key: str) -> KeyLost:
    """Return the error for a write under a key that this engine does not hold."""
    return KeyLost(
        f"Nothing was written, because this engine does not hold the key {shortened(key)}: it was never taken, it has"
        " expired, or its request is answered. Take it with remember(), and repeat the request if that returns"
        " claimed=True.",
        key=key,
    )
