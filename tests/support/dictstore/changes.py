"""The changes of all sessions, in one list."""

from __future__ import annotations

from msgspec.structs import replace

from pausepoint.model.changes import DIGEST, Mark, Moved, Page, Point, Within
from tests.support.dictstore.data import Entry
from tests.support.dictstore.removal import Removals


class Changes(Removals):
    """The changes of all sessions. Only ``record`` and ``within`` of a mark are used, because there is one list."""

    async def changes(self, after: Mark | None, limit: int) -> Page | None:
        self._check()
        feed = self.data.feed
        if after is None:
            return Page((), Mark(self._point(len(feed))))
        if after.record != self._point(after.record.number) or after.signal.number or after.stone.number:
            return None
        if after.within is not None:
            page = feed[after.within.record : after.record.number]
            return self._page(page, after.within, after.record.number)
        start, end = after.record.number, after.record.number
        while end < len(feed) and (end - start < limit or feed[end].turn == feed[end - 1].turn):
            end += 1  # a page ends with a write
        return self._page(feed[start:end], Within(start, 0, 0), end)

    def _point(self, number: int) -> Point:
        if not 0 < number <= len(self.data.feed):
            return Point(0 if number == 0 else -1)
        return Point(number, self.data.feed[number - 1].digest[:DIGEST])

    def _page(self, entries: list[Entry], start: Within, end: int) -> Page:
        mark = Mark(self._point(end))
        known = {kept.row.key for kept in self._known()} | {entry.key for entry in entries if entry.kind == "stone"}
        keys = sorted({entry.key for entry in entries if entry.key in known and entry.key > start.session})
        moved = tuple(self._moved(key, [each for each in entries if each.key == key], end) for key in keys)
        marked = [replace(each, mark=replace(mark, within=Within(start.record, 0, each.key))) for each in moved]
        if marked:
            marked[-1] = replace(marked[-1], mark=mark)
        return Page(tuple(marked), mark, end < len(self.data.feed))

    def _moved(self, key: int, entries: list[Entry], end: int) -> Moved:
        stones = [self.data.stones[entry.number - 1] for entry in entries if entry.kind == "stone"]
        if stones:
            seq = stones[0].records
            return Moved(key, stones[0].session_id, seq + 1, seq, 0, 0, Mark(), stone=stones[0])
        kept = self._by(key)
        before = [each.number for each in self.data.feed[:end] if each.key == key and each.kind == "signal"]
        seqs = [entry.number for entry in entries if entry.kind == "record"]
        signals = [entry.number for entry in entries if entry.kind == "signal"]
        last = max(before, default=0)
        until = seqs[-1] if seqs else kept.signals[signals[-1] - 1].after
        above, up = [], kept.row.parent
        while up is not None:
            above.append(self._by(up).row.session_id)
            up = self._by(up).row.parent
        return Moved(
            key, kept.row.session_id, seqs[0] if seqs else until + 1, until, last - len(signals), last, Mark(),
            tuple(above),
        )  # fmt: skip
