"""The part of the `Store` protocol about drawers. `pausepoint.stores.base` has the contract of all methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pausepoint.model.drawers import Change, DrawerId, DrawerInfo, DrawerValue, Fold, Range, StoredDrawer
from pausepoint.stores.found import FoundStreams


class Drawers(Protocol):
    """A store keeps bytes for programs, in drawers beside the sessions.

    A drawer exists from its first write on. A drawer that does not exist is empty. The caller has checked names,
    keys and sizes (`pausepoint.model.drawers`). Every method raises `UnknownSession` if the session of the drawer does
    not exist or is being removed, and `DamagedRecord` instead of returning wrong bytes.

    A write needs no hold, and no lease. It neither changes the session nor makes it due. The drawers of a session are
    removed with it (`strip`), emptied by a commit that names them in ``empty_drawers``, exported (`whole`), imported,
    and copied for a new session whose ``drawers_of`` names it.
    """

    async def drawer_append(
        self, drawer: DrawerId, stream: str, entries: Sequence[bytes], fold: Fold | None, keep_for: int | None = None
    ) -> int:
        """Append entries to a stream, which may be new, and return the number of its last entry.

        The numbers begin at 1. ``fold`` makes the stream's note, in the same transaction: it may be called several
        times, in any thread; what it raises ends this call alone, and nothing is stored.
        `pausepoint.model.drawers.folded` calls it so. Without it, the note stays.
        ``keep_for``, in microseconds, is stored with the drawer for `expire_drawers`; None leaves it as it is.
        """

    async def drawer_read(
        self, drawer: DrawerId, stream: str, after: int = 0, last: int | None = None
    ) -> list[bytes] | None:
        """Return the entries after a number, or the last ones of these, each verified; None if there is no stream."""

    async def drawer_streams(self, drawer: DrawerId, prefix: str = "") -> FoundStreams:
        """Return the streams whose names begin with a prefix, ordered by name. ``damaged`` are unreadable ones."""

    async def drawer_pop(self, drawer: DrawerId, stream: str) -> bytes | None:
        """Remove the last entry of a stream, and return it; None if there is none. Its number is used again."""

    async def drawer_drop(self, drawer: DrawerId, streams: Sequence[str]) -> int:
        """Delete streams with their entries, damaged or not. Return how many there were."""

    async def drawer_put(
        self, drawer: DrawerId, changes: Sequence[Change], keep_for: int | None = None
    ) -> list[int]:  # fmt: skip
        """Change several values in one transaction, and return their versions afterwards; 0 if there is none.

        No key is named twice. Raises `VersionConflict` for the first change whose ``if_version`` does not match, and
        changes nothing. Every stored value gets a version that is larger than all before in its drawer.
        """

    async def drawer_get(self, drawer: DrawerId, keys: Sequence[str]) -> dict[str, DrawerValue]:
        """Return those of these values that exist, as of one moment, in the order of ``keys``."""

    async def drawer_find(self, drawer: DrawerId, keys: Range) -> dict[str, DrawerValue]:
        """Return the values in a range of keys, as of one moment, ordered by key. Keys compare by code points.

        Without a range, this notices values that no key finds.
        """

    async def drawer_keys(self, drawer: DrawerId, prefix: str = "") -> list[str]:
        """Return the keys that begin with a prefix, as of one moment, in order. No value is read, or verified."""

    async def drawer_clear(self, drawer: DrawerId, prefix: str = "") -> int:
        """Delete the values whose keys begin with a prefix, damaged or not. Return how many there were."""

    async def drawers(self, session_id: str | None = None) -> list[DrawerInfo]:
        """Return the store's own drawers, or those of a session, ordered by name. Nothing is verified.

        A drawer without content is left out, but keeps its counters.
        """

    async def drawer_damage(self, session_id: str | None = None) -> list[str]:
        """Verify the drawers of a session, or the store's own, and return a line for each damage.

        Unlike `check`, this can be asked for one session. `check` does not verify drawers.
        """

    async def expire_drawers(self, now: int, limit: int) -> int:
        """Delete up to about ``limit`` streams and values that were not changed for the ``keep_for`` of their drawer.

        Return how many were deleted. A stream disappears as a whole; the entries of one with more than ``limit`` may
        be left to `delete_discarded`. Drawers of sessions are left out, and so is what is damaged, because its time may
        be wrong.
        """

    async def delete_discarded(self, limit: int) -> int:
        """Delete up to ``limit`` rows of streams that `expire_drawers` has taken out of their drawers.

        Return how many there were; 0 if nothing is left.
        """

    async def whole_drawer(self, name: str) -> StoredDrawer | None:
        """Return one of the store's own drawers with everything in it, verified, as of one moment."""

    async def import_drawer(self, drawer: StoredDrawer) -> bool:
        """Store a drawer of another store. Return False, and store nothing, if the one with this name is not empty.

        An empty one is replaced; the drawer then gives out no time and no version again.
        """
