"""The store itself, with verification and transfer."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from uuid import uuid4

from msgspec.structs import replace

from pausepoint.errors import (
    DamagedRecord,
)
from pausepoint.model.files import check_names
from pausepoint.model.sessions import SessionRow
from pausepoint.model.stores import About, Holder, Proved, Whole
from pausepoint.stores import text
from tests.support.dictstore.changes import Changes
from tests.support.dictstore.data import Kept, KeptDrawer
from tests.support.dictstore.drawers import Drawers
from tests.support.dictstore.schedules import Schedules


class DictStore(Schedules, Changes, Drawers):
    """A `pausepoint.stores.base.Store` in plain dictionaries, for one process."""

    async def survey(self, after: int, limit: int) -> list[tuple[int, str, SessionRow | DamagedRecord]]:
        self._check()
        rows = sorted((self._seen(kept) for kept in self._known() if kept.row.key > after), key=lambda row: row.key)
        return [(row.key, row.session_id, row) for row in rows[:limit]]

    async def names(self, key: int) -> dict[bytes, bool]:
        self._check()
        return {name: name in self.data.large for name in self._by(key).names}

    async def values(self, after: int, limit: int) -> Proved:
        self._check()
        looked = list(self.data.large.items())[after : after + limit]
        damaged = tuple(key.hex() for key, value in looked if sha256(value).digest() != key)
        return Proved(after + len(looked) if looked else None, len(looked), damaged)

    async def check(self) -> list[str]:
        self._check()
        return []

    async def about(self) -> About:
        self._check()
        held: dict[int, list[str]] = {number: [] for number in self.data.engines}
        for kept in self._known():
            if kept.row.holder is not None:
                held.setdefault(kept.row.holder, []).append(kept.row.session_id)
        drives = self.data.drives
        holders = [
            Holder(n, 0, "", 0, n in self.data.engines, tuple(ids), *drives.get(n, ((), None)))
            for n, ids in sorted(held.items())
        ]
        return About("dictionaries", "memory", 1, (await self.space()).total, 0, {}, tuple(holders))

    # transfer

    async def whole(self, session_id: str) -> list[Whole]:
        self._named(session_id)
        found = []
        for kept in self._tree(session_id):
            row = self._seen(kept)
            blobs = await self.blobs(kept.names)
            signals = await self.signals(row.key, 0)
            found.append(
                Whole(
                    row,
                    await self.records(row.key, 1),
                    signals,
                    list(kept.inbox),
                    await self.pauses(row.key, open_only=False),
                    blobs,
                    list(kept.questions.values()),
                    [each.stored() for (key, _), each in sorted(self.data.drawers.items()) if key == row.key],
                )
            )
        return found

    async def import_(self, sessions: Sequence[Whole]) -> bool:
        self._check()
        sessions = [text.of_whole(each) for each in sessions]
        for each in sessions:
            check_names(each)
        if any(self._find_id(each.row.session_id) is not None for each in sessions):
            return False
        self._check_key()
        keys: dict[str | None, int] = {}
        for each in sessions:
            self.data.last_key += 1
            key = keys[each.row.session_id] = self.data.last_key
            parent = keys.get(each.row.parent_id)
            row = replace(each.row, key=key, parent=parent, holder=None, fence=1, mail=bool(each.mail))
            pauses = [
                replace(pause, standing=False, id=str(uuid4()) if pause.standing and not pause.closed_at else pause.id)
                for pause in each.pauses
            ]
            kept = Kept(row, list(each.records), pauses, list(each.signals), list(each.mail))
            self.data.sessions[key] = kept
            for record in each.records:
                self._log("record", key, record.seq, record.digest)
            for signal in each.signals:
                self._log("signal", key, signal.n, signal.digest)
            for facts in each.questions:
                self.data.last_question += 1
                kept.questions[self.data.last_question] = facts
            self._keep(kept, tuple(each.blobs.items()))
            self.data.drawers |= {(key, drawer.name): KeptDrawer.of(drawer) for drawer in each.drawers}
            kept.exempt = self._last_lifted()
            self._note(kept, self.clock.now())
        self._tell()
        self._took_effect()
        return True
