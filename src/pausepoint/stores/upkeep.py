"""The part of the `Store` protocol that keeps a store in order: remove, verify, describe and transfer what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pausepoint.errors import DamagedRecord
from pausepoint.model.sessions import SessionRow
from pausepoint.model.stores import About, Proved, Removal, Space, Sweep, Tombstone, Whole


class Upkeep(Protocol):
    """The contract that all methods share is in `pausepoint.stores.base`."""

    # removing data; as far as possible, these also work while the disk is full

    async def remove(
        self, session_id: str, by: str | None, reason: str, at: int, expired: bool = False, ended_for: int | None = None
    ) -> list[Removal]:
        """Mark a session and its descendants as being removed. No other method finds them from now on.

        The fences rise, so that an engine that still holds one of them can no longer write. `strip` then deletes the
        data.

        With ``expired``, the session is removed only if it has expired at ``at``
        (`pausepoint.model.sessions.has_expired`); otherwise return an empty list and change nothing. For completed and
        cancelled sessions without their own ``keep_for``, ``ended_for`` applies. Damaged facts then raise
        `DamagedRecord`. Without ``expired``, a damaged session can be removed; its tombstone has the status
        ``damaged``.

        Raises `AlreadyRunning` if a live engine holds one of the sessions, and `VerbRefused` if the session has a
        parent.
        """

    async def removing(self) -> list[Removal]:
        """Return the sessions whose removal has started but is not complete, children before parents."""

    async def strip(self, key: int, limit: int) -> Tombstone | None:
        """Delete up to ``limit`` rows of a session that is being removed. Return None while there are more.

        When only the session's own row remains, one transaction replaces it with the tombstone, and `strip` returns the
        tombstone. After that the id can be used again. The key is never used again.
        """

    async def expired(self, now: int, after: int, limit: int, ended_for: int | None = None) -> list[tuple[int, str]]:
        """Return key and id of root sessions with ``key > after`` that may have expired by ``now``, ordered by key.

        ``ended_for`` is as in `remove`, which makes the final decision.
        """

    async def tombstones(self, session_id: str | None = None) -> list[Tombstone]:
        """Return the tombstones of removed sessions, in the order of removal, each verified."""

    async def sweep(self, after: int, limit: int, apply: bool) -> Sweep:
        """Count the unreferenced values among up to ``limit`` large values after number ``after``.

        With ``apply``, delete them.
        """

    async def weight(self, *session_ids: str) -> int:
        """Estimate how many bytes removing these sessions and their descendants would free.

        A session that does not exist counts as 0.
        """

    async def space(self) -> Space:
        """Return the size of the store, and how much of it is free."""

    async def compact(self, at_most: int) -> int:
        """Give up to about ``at_most`` free bytes back to the system. Return how many bytes it gave back."""

    async def fold(self) -> bool:
        """Make sure that deleted data can no longer be found in the store's files.

        Return False if another reader or writer prevents it at present.
        """

    # verification

    async def survey(self, after: int, limit: int) -> list[tuple[int, str, SessionRow | DamagedRecord]]:
        """Return up to ``limit`` sessions with ``key > after``, in order: key, id, and the facts or their damage."""

    async def names(self, key: int) -> dict[bytes, bool]:
        """Return the hashes of the large values that a session references, and whether each value exists."""

    async def values(self, after: int, limit: int) -> Proved:
        """Verify up to ``limit`` large values after number ``after``."""

    async def check(self) -> list[str]:
        """Return one line for each problem that the database finds in its files, and for each row that does not fit."""

    async def about(self) -> About:
        """Return facts about the store, and the engines that have it open or died while they held sessions."""

    # transfer

    async def whole(self, session_id: str) -> list[Whole]:
        """Return a session and its descendants as of one moment, parents before children, each verified.

        Raises `UnknownSession` or `DamagedRecord`.
        """

    async def import_(self, sessions: Sequence[Whole]) -> bool:
        """Store sessions from another store, in one transaction. No engine holds them afterwards.

        Return False, and store nothing, if one of the ids is taken. Raises `InvalidSessionId` or `FileRefused` if the
        name of a session or a file could lead out of the store's folders: check them with `check_names`.

        ``key``, ``holder``, ``fence`` and ``parent`` of the rows are ignored; a parent is found by ``parent_id`` among
        the given sessions. If the sessions were part of a pause of everything in the other store, that pause becomes
        their own. While everything is paused in this store, they are paused too.
        """
