"""Drawers, in plain dictionaries."""

from __future__ import annotations

from collections.abc import Sequence

from pausepoint.errors import VersionConflict
from pausepoint.model.drawers import (
    Change,
    DrawerId,
    DrawerInfo,
    DrawerStream,
    DrawerValue,
    Fold,
    Range,
    StoredDrawer,
    StoredValue,
    folded,
    next_changed,
)
from pausepoint.stores.found import FoundStreams
from tests.support.dictstore.data import KeptDrawer, KeptStream
from tests.support.dictstore.removal import Removals


class Drawers(Removals):
    """Streams and values by name."""

    def _place(self, drawer: DrawerId) -> tuple[int, str]:
        self._check()
        return 0 if drawer.session_id is None else self._named(drawer.session_id).row.key, drawer.name

    def _drawer(self, drawer: DrawerId) -> KeptDrawer:
        return self.data.drawers.get(self._place(drawer)) or KeptDrawer(drawer.name)

    def _opened(self, drawer: DrawerId, keep_for: int | None = None) -> KeptDrawer:
        found = self.data.drawers.setdefault(self._place(drawer), KeptDrawer(drawer.name))
        found.keep_for = found.keep_for if keep_for is None else keep_for
        return found

    async def drawer_append(
        self, drawer: DrawerId, stream: str, entries: Sequence[bytes], fold: Fold | None, keep_for: int | None = None
    ) -> int:
        known = self._drawer(drawer)
        found = known.streams.get(stream) or KeptStream()
        changed = next_changed(known.changed, self.clock.now())
        note = found.note if fold is None else folded(fold, found.note, changed)
        opened = self._opened(drawer, keep_for)
        opened.changed = found.changed = changed
        found.note = note
        found.entries += entries
        opened.streams[stream] = found
        return len(found.entries)

    async def drawer_read(
        self, drawer: DrawerId, stream: str, after: int = 0, last: int | None = None
    ) -> list[bytes] | None:
        found = self._drawer(drawer).streams.get(stream)
        if found is None:
            return None
        return found.entries[max(after, 0 if last is None else len(found.entries) - last) :]

    async def drawer_streams(self, drawer: DrawerId, prefix: str = "") -> FoundStreams:
        found = sorted(self._drawer(drawer).streams.items())
        return FoundStreams(
            DrawerStream(stream, len(each.entries), each.changed, each.note)
            for stream, each in found
            if stream.startswith(prefix)
        )

    async def drawer_pop(self, drawer: DrawerId, stream: str) -> bytes | None:
        known = self._drawer(drawer)
        found = known.streams.get(stream)
        if found is None or not found.entries:
            return None
        known.changed = found.changed = next_changed(known.changed, self.clock.now())
        return found.entries.pop()

    async def drawer_drop(self, drawer: DrawerId, streams: Sequence[str]) -> int:
        known = self._drawer(drawer).streams
        return sum(known.pop(each, None) is not None for each in streams)

    async def drawer_put(
        self, drawer: DrawerId, changes: Sequence[Change], keep_for: int | None = None
    ) -> list[int]:  # fmt: skip
        values = self._drawer(drawer).values
        for each in changes:
            had = values[each.key].version if each.key in values else 0
            if each.if_version not in (None, had):
                raise VersionConflict("another version", key=each.key, expected=each.if_version, found=had)
        opened = self._opened(drawer, keep_for)
        return [self._put(opened, each) for each in changes]

    def _put(self, opened: KeptDrawer, change: Change) -> int:
        had = opened.values.get(change.key)
        if change.only_new and had is not None:
            return had.version
        if change.data is None:
            opened.values.pop(change.key, None)
            return 0
        opened.version += 1
        opened.values[change.key] = StoredValue(change.key, opened.version, self.clock.now(), change.data)
        return opened.version

    async def drawer_get(self, drawer: DrawerId, keys: Sequence[str]) -> dict[str, DrawerValue]:
        values = self._drawer(drawer).values
        return {key: DrawerValue(values[key].data, values[key].version) for key in keys if key in values}

    async def drawer_find(self, drawer: DrawerId, keys: Range) -> dict[str, DrawerValue]:
        found = sorted((key, each) for key, each in self._drawer(drawer).values.items() if keys.contains(key))
        if keys.limit is not None:
            found = found[max(0, len(found) - keys.limit) :] if keys.last else found[: keys.limit]
        return {key: DrawerValue(each.data, each.version) for key, each in found}

    async def drawer_keys(self, drawer: DrawerId, prefix: str = "") -> list[str]:
        return list(await self.drawer_find(drawer, Range(prefix)))

    async def drawer_clear(self, drawer: DrawerId, prefix: str = "") -> int:
        values = self._drawer(drawer).values
        gone = [key for key in values if key.startswith(prefix)]
        for key in gone:
            del values[key]
        return len(gone)

    async def drawers(self, session_id: str | None = None) -> list[DrawerInfo]:
        owner, _ = self._place(DrawerId("", session_id))
        return [
            DrawerInfo(name, session_id, len(each.streams), len(each.values), each.size)
            for (key, name), each in sorted(self.data.drawers.items())
            if key == owner and (each.streams or each.values)
        ]

    async def drawer_damage(self, session_id: str | None = None) -> list[str]:
        self._place(DrawerId("", session_id))
        return []

    async def expire_drawers(self, now: int, limit: int) -> int:
        self._check()
        gone = 0
        for (key, _), each in self.data.drawers.items():
            if key or each.keep_for is None:
                continue
            before = now - each.keep_for
            streams = [name for name, stream in each.streams.items() if stream.changed * 1000 <= before]
            values = [name for name, value in each.values.items() if value.changed <= before]
            for name in streams:
                del each.streams[name]
            for name in values:
                del each.values[name]
            gone += len(streams) + len(values)
        return gone

    async def delete_discarded(self, limit: int) -> int:
        self._check()
        return 0

    async def whole_drawer(self, name: str) -> StoredDrawer | None:
        self._check()
        found = self.data.drawers.get((0, name))
        return None if found is None else found.stored()

    async def import_drawer(self, drawer: StoredDrawer) -> bool:
        self._check()
        known = self.data.drawers.get((0, drawer.name)) or KeptDrawer(drawer.name)
        if known.streams or known.values:
            return False
        self.data.drawers[0, drawer.name] = KeptDrawer.of(drawer.after(known.changed, known.version))
        return True
