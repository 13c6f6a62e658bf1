"""Opening and closing, and the helpers that every part of the store uses."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import replace

from pausepoint.clock import Clock, SystemClock
from pausepoint.errors import (
    AlreadyRunning,
    StoreClosed,
    UnknownSession,
)
from pausepoint.model.commits import Commit
from pausepoint.model.endings import can_end, cancelled
from pausepoint.model.everything import frozen_by
from pausepoint.model.ids import check_owner
from pausepoint.model.records import first_digest, seal_signal
from pausepoint.model.sessions import Filter, SessionRow, contains, ready_at
from pausepoint.stores.base import OnChange
from pausepoint.stores.text import storable
from tests.support.dictstore.data import Data, Drives, Entry, Kept, noted, over, own_freeze
from tests.support.dictstore.pages import comes_after, place


def described(holder: int | None) -> str:
    return f"engine {holder}" if holder else "nobody"


class Base:
    """The part of the store that the other parts build on."""

    def __init__(self, data: Data | None = None, clock: Clock | None = None) -> None:
        self.data = data or Data()
        self.clock = clock or SystemClock()
        self._number = 0
        self._closed = False
        self._drives: Drives = ((), None)

    @property
    def number(self) -> int:
        return self._number

    def lease_left(self, number: int) -> float | None:
        return None

    def has_news(self) -> bool:
        return False  # writes of others are told at once

    @property
    def trouble(self) -> str | None:
        return None

    def announce(self, workflows: Sequence[str], queues: Sequence[str] | None = None) -> None:
        self._drives = tuple(sorted(workflows)), None if queues is None else tuple(sorted(queues))
        if self._number:
            self.data.drives[self._number] = self._drives

    async def open(self, on_change: OnChange) -> None:
        if self._closed or self._number:
            raise StoreClosed("this store was opened before; make another one")
        self.data.last_engine += 1
        self._number = self.data.last_engine
        self.data.engines[self._number] = on_change
        self.data.drives[self._number] = self._drives
        for kept in self._known():
            self._end(kept, self.clock.now())

    async def close(self) -> None:
        await asyncio.sleep(0)  # commits that were submitted before come first
        for kept in self.data.sessions.values():
            if self._number and kept.row.holder == self._number:
                kept.row = replace(kept.row, holder=None)
            if kept.row.kept_by == self._number:
                kept.row = replace(kept.row, kept_by=None)
        self.data.engines.pop(self._number, None)
        self._closed = True

    async def describe_holders(self, holders: Collection[int]) -> dict[int, str]:
        self._check()
        return {each: described(each) for each in holders}

    def _check(self) -> None:
        if self._closed or not self._number:
            raise StoreClosed("the store is not open")

    def _tell(self, *keys: int) -> None:
        """Tell the other engines that these sessions have changed; without keys, anything may have."""
        self.data.turn += 1
        loop = asyncio.get_running_loop()
        for number, on_change in self.data.engines.items():
            if number != self._number:
                loop.call_soon(on_change, frozenset(keys) or None)

    # lookups

    def _known(self) -> list[Kept]:
        return [kept for kept in self.data.sessions.values() if kept.tombstone is None]

    def _find_id(self, session_id: str) -> Kept | None:
        kept = next((kept for kept in self._known() if kept.row.session_id == session_id), None)
        if kept is not None:
            check_owner(session_id, kept.row.owner)
        return kept

    def _named(self, session_id: str) -> Kept:
        kept = self._find_id(session_id)
        if kept is None:
            raise UnknownSession(f"no session has the id {session_id!r}", session_id=session_id)
        return kept

    def _by(self, key: int) -> Kept:
        kept = self.data.sessions.get(key)
        if kept is None or kept.tombstone is not None:
            session_id = "" if kept is None else kept.row.session_id
            raise UnknownSession(f"no session has the key {key}", session_id=session_id)
        return kept

    def _tree(self, session_id: str | None) -> list[Kept]:
        found = [each for each in self._known() if each.row.session_id == session_id]
        for above in found:
            found += [each for each in self._known() if each.row.parent == above.row.key]
        return found

    def _trees(self, query: Filter) -> list[Kept]:
        tops = (query.session_id,) if query.ids is None else query.ids
        return list({each.row.key: each for top in tops for each in self._tree(top)}.values())

    def _matching(self, query: Filter) -> list[Kept]:
        wanted = {
            "workflow": query.workflow, "owner": storable(query.owner), "queue": query.queue, "parent": query.parent,
        }  # fmt: skip
        if not query.tree:
            wanted["session_id"] = query.session_id
        found = self._known() if not query.tree else self._trees(query)
        if query.ids is not None and not query.tree:
            found = [each for each in found if each.row.session_id in query.ids]
        since, until = query.since, query.until
        found = [each for each in found if since is None or each.row.updated_at >= since]
        found = [each for each in found if until is None or each.row.updated_at <= until]
        found = [each for each in found if all(v in (None, getattr(each.row, k)) for k, v in wanted.items())]
        found = [each for each in found if each.row.session_id.startswith(query.prefix or "")]
        found = [each for each in found if query.tag is None or storable(query.tag) in each.row.tags]
        found = [each for each in found if not query.unended or not over(each.row)]
        found = [each for each in found if query.input_digest in (None, each.row.input_digest)]
        found = [each for each in found if not query.statuses or self._seen(each).status in query.statuses]
        found = [each for each in found if query.text is None or self._mentions(each, query.text)]
        failed = query.failed
        found = [each for each in found if failed is None or (each.row.ended == "failed") is failed]
        found = [each for each in found if not query.own_pause or (not over(each.row) and self._has_own_pause(each))]
        found = [each for each in found if not query.crashed or (each.row.crashes and each.row.ended is None)]
        above = {each.row.key for each in found} if query.level == "top" else set(self.data.sessions)
        found = [each for each in found if query.level == "any" or each.row.parent not in above]
        found = [each for each in found if comes_after(each.row, query)]
        return sorted(found, key=lambda each: place(each.row, query), reverse=query.reverse)

    def _has_own_pause(self, kept: Kept) -> bool:
        return kept.row.pause_requested or any(each.closed_at is None and not each.standing for each in kept.pauses)

    def _mentions(self, kept: Kept, text: str) -> bool:
        row, standing = kept.row, self.data.standing
        shown = [row.session_id, row.owner or "", *row.tags]
        shown += [] if row.failure is None else [row.failure.type, row.failure.message]
        shown += [each.reason for each in kept.pauses if each.closed_at is None and not each.standing]
        shown += [] if standing is None or not self._stopped(kept) else [standing.reason]
        return any(contains(each, text) for each in shown)

    def _seen(self, kept: Kept) -> SessionRow:
        """Return the row with the facts that depend on the current time."""
        row = kept.row
        above = None if row.parent is None else self.data.sessions.get(row.parent)
        due = row.wakes_at is not None and (row.wakes_at == 0 or row.wakes_at <= self.clock.now())
        stopped = self._stopped(kept)
        abort = stopped and self.data.standing is not None and self.data.standing.mode == "abort"
        thawed = frozen_by(self.data.rounds, kept.exempt, own_freeze(kept), noted(kept)) if row.ended is None else 0
        row = replace(
            row, live=row.holder in self.data.engines, due=due,
            kept_by=row.kept_by if row.kept_by in self.data.engines else None,
            open_pauses=sum(pause.closed_at is None and not pause.standing for pause in kept.pauses),
            parent_id=None if above is None else above.row.session_id, own_pause=row.pause_requested,
            under_everything=stopped, pause_requested=row.pause_requested or stopped,
            pause_mode="abort" if abort else row.pause_mode, frozen=row.frozen + thawed, signals=len(kept.signals),
        )  # fmt: skip
        return replace(row, ready_at=ready_at(row))

    def _stopped(self, kept: Kept) -> bool:
        """Return whether the pause of everything stops a session."""
        return kept.row.ended is None and self._is_concerned(kept)

    def _is_concerned(self, kept: Kept) -> bool:
        """Return whether the pause of everything stops a session, or would if the session were opened again."""
        return self.data.standing is not None and kept.exempt < self.data.rounds[-1].round

    def _last_lifted(self) -> int:
        return max((each.round for each in self.data.rounds if each.lifted_at is not None), default=0)

    def _refuse_held(self, row: SessionRow) -> None:
        holder = described(row.holder)
        raise AlreadyRunning(f"{row.session_id} is driven by {holder}", session_id=row.session_id, holder=holder)

    # changes

    def _end(self, kept: Kept, at: int) -> None:
        """End a session that was cancelled, unless an engine drives it."""
        row = self._seen(kept)
        if can_end(row):
            self._settle_lifted(kept)
            self._set(kept, fence=row.fence + 1, kept_by=None)
            self._move(kept, cancelled(row, at))

    def _move(self, kept: Kept, commit: Commit) -> None:
        raise NotImplementedError

    def _settle_lifted(self, kept: Kept) -> None:
        raise NotImplementedError

    def _keep(self, kept: Kept, blobs: Sequence[tuple[bytes, bytes]]) -> None:
        self.data.large.update(blobs)
        kept.names |= {key for key, _ in blobs}

    def _set(self, kept: Kept, **changes: Any) -> None:
        kept.row = replace(kept.row, **changes)

    def _signal(self, kept: Kept, kind: str, by: str | None, at: int, payload: bytes, after: int | None = None) -> int:
        previous = kept.signals[-1].digest if kept.signals else first_digest(kept.row.session_id)
        seq = kept.row.seq if after is None else after
        kept.signals.append(seal_signal(previous, len(kept.signals) + 1, seq, kind, by, at, payload))
        self._log("signal", kept.row.key, len(kept.signals), kept.signals[-1].digest)
        return len(kept.signals)

    def _log(self, kind: str, key: int, number: int, digest: bytes) -> None:
        self.data.feed.append(Entry(kind, self.data.turn, key, number, digest))

    def _deliver(self, kept: Kept, n: int, kind: str) -> None:
        kept.inbox.append(n)
        waits = kind in (kept.row.waiting or "").split(",")
        self._set(kept, mail=True, **({"wakes_at": 0} if waits else {}))
