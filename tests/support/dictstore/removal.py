"""Removal, expiry and the space that values take."""

from __future__ import annotations

from msgspec.structs import replace

from pausepoint.errors import (
    DamagedRecord,
    VerbRefused,
)
from pausepoint.model.files import file_facts
from pausepoint.model.sessions import has_expired
from pausepoint.model.stores import Removal, Space, Sweep, Tombstone
from pausepoint.stores.files import Files
from pausepoint.stores.pause_flag import PauseFlag
from pausepoint.stores.places import StreamFolder
from tests.support.dictstore.data import over
from tests.support.dictstore.files import DictFiles
from tests.support.dictstore.sessions import Sessions


class Removals(Sessions):
    """Removal, expiry and the space that values take."""

    async def remove(
        self, session_id: str, by: str | None, reason: str, at: int, expired: bool = False, ended_for: int | None = None
    ) -> list[Removal]:
        self._check()
        if self._named(session_id).row.parent is not None:
            raise VerbRefused(f"{session_id} goes with its parent", session_id=session_id, status="")
        tree = self._tree(session_id)
        rows = [self._seen(kept) for kept in tree]
        if expired and not has_expired(rows, at, ended_for):
            return []
        for row in rows:
            if row.live:
                self._refuse_held(row)
        for kept, row in zip(tree, rows, strict=True):
            kept.tombstone = Tombstone(
                row.session_id, row.workflow, row.owner, row.status.value, row.created_at, at, by, reason, row.seq,
                row.digest,
            )  # fmt: skip
            self._set(kept, fence=row.fence + 1, holder=None)
        self._tell()
        return await self.removing()

    async def removing(self) -> list[Removal]:
        self._check()
        marked = [(key, kept.tombstone) for key, kept in self.data.sessions.items()]
        return [Removal(key, stone) for key, stone in sorted(marked, reverse=True) if stone is not None]

    async def strip(self, key: int, limit: int) -> Tombstone | None:
        self._check()
        kept = self.data.sessions.get(key)
        if kept is None or kept.tombstone is None:
            raise DamagedRecord(f"no session with the key {key} is being removed")
        for part in (kept.records, kept.signals, kept.pauses):
            if part:
                del part[-limit:]
                return None
        for place in [place for place in self.data.drawers if place[0] == key]:
            del self.data.drawers[place]
        self.data.stones.append(kept.tombstone)
        self._log("stone", key, len(self.data.stones), kept.tombstone.digest)
        self._tell()
        del self.data.sessions[key]
        return kept.tombstone

    async def expired(self, now: int, after: int, limit: int, ended_for: int | None = None) -> list[tuple[int, str]]:
        self._check()
        rows = [kept.row for kept in self._known() if kept.row.parent is None and kept.row.key > after]
        rows = [replace(row, keep_for=ended_for) if row.keep_for is None and over(row) else row for row in rows]
        return [
            (row.key, row.session_id)
            for row in sorted(rows, key=lambda row: row.key)
            if row.keep_for is not None and max(row.updated_at, row.wakes_at or 0) + row.keep_for <= now
        ][:limit]

    async def tombstones(self, session_id: str | None = None) -> list[Tombstone]:
        self._check()
        return [stone for stone in self.data.stones if session_id in (None, stone.session_id)]

    def files_of(self, session_id: str) -> Files | None:
        return DictFiles(self.data, session_id)

    async def sessions_with_files(self) -> list[str]:
        self._check()
        return sorted(session_id for session_id, stored in self.data.files.items() if stored)

    def flag(self) -> PauseFlag | None:
        return None

    def streams(self) -> StreamFolder | None:
        return None

    async def sweep(self, after: int, limit: int, apply: bool) -> Sweep:
        self._check()
        named = {name for kept in self.data.sessions.values() for name in kept.names}
        looked = list(self.data.large)[after : after + limit]
        loose = {key: len(self.data.large[key]) for key in looked if key not in named}
        kept = len(looked) - len(loose) if apply else len(looked)
        for key in loose if apply else ():
            del self.data.large[key]
        return Sweep(after + kept if len(looked) == limit else None, len(loose), sum(loose.values()))

    async def weight(self, *session_ids: str) -> int:
        self._check()
        tree = [kept for session_id in session_ids for kept in self._tree(session_id)]
        others = {name for kept in self._known() if kept not in tree for name in kept.names}
        values = {name for kept in tree for name in kept.names} - others
        records = sum(len(record.payload) for kept in tree for record in kept.records)
        keys = {kept.row.key for kept in tree}
        records += sum(each.size for (key, _), each in self.data.drawers.items() if key in keys)
        files = [file for kept in tree for file in await self.files(kept.row.key)]
        return (
            records
            + sum(len(self.data.large[name]) for name in values)
            + sum(file_facts(file.payload).size for file in files)
        )

    async def space(self) -> Space:
        self._check()
        return Space(sum(map(len, self.data.large.values())), 0)

    async def compact(self, at_most: int) -> int:
        self._check()
        return 0

    async def fold(self) -> bool:
        self._check()
        return True
