"""Applies a verb to all sessions that match a filter: a few at a time, each through the verb for one session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from pausepoint.clock import to_datetime
from pausepoint.engine.base import Service
from pausepoint.errors import DamagedRecord, PausepointError, StoreClosed, UnknownSession, error_text
from pausepoint.model.bulk import BulkItem, BulkProgress, BulkReport, BulkResult, BulkVerb
from pausepoint.model.ids import SessionId
from pausepoint.model.sessions import Filter, SessionRow, Status
from pausepoint.stores.found import Found

PAGE = 100
"""The number of sessions whose facts are read at a time."""

Skips = Callable[[SessionRow, str], str]
"""Returns why a verb does not concern a session, which a process may drive; empty if it does."""

Apply = Callable[[SessionRow], Awaitable[SessionRow]]
"""Applies a verb to one session, and returns its facts afterwards."""

OnProgress = Callable[[BulkProgress], None]

OTHER = "It does not match the other filters."
UNKNOWN = "This store has no session with this id."
CHANGED = "It no longer matches, because it changed in the meantime."


class BulkRun:
    """One bulk verb at work. Only the ids of the sessions are kept, so that it needs little memory for many of them."""

    def __init__(
        self, service: Service, verb: BulkVerb, query: Filter, skips: Skips, dry_run: bool,
        on_progress: OnProgress | None = None,
    ) -> None:  # fmt: skip
        self.service = service
        self.verb = verb
        self.query = replace(query, sort="created", reverse=True)  # a parent comes before its children
        self.skips = skips
        self.dry_run = dry_run
        self.on_progress = on_progress
        self.items: dict[BulkResult, list[BulkItem]] = {"done": [], "skipped": [], "failed": []}
        self.covered: set[str] = set()  # the verb was applied to them, and so to their children
        self.total = 0
        self.running = 0

    async def each(self, apply: Apply, jobs: int) -> BulkReport:
        """Apply the verb to each session, ``jobs`` at a time. A session is read right before."""
        rows = self._rows(PAGE if self.dry_run else 1)
        if self.dry_run:
            async for row in rows:
                self.finish("done", item_of(row))
        else:
            await self._share(rows, apply, jobs)
        return self.report()

    async def _share(self, rows: AsyncIterator[SessionRow], apply: Apply, jobs: int) -> None:
        """Apply the verb in ``jobs`` tasks. If the caller is cancelled, sessions that were resumed run on."""
        turn = asyncio.Lock()
        tasks = [asyncio.ensure_future(self._work(rows, turn, apply)) for _ in range(jobs)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def pages(self, apply: Callable[[list[SessionRow], Found], Awaitable[None]]) -> BulkReport:
        """Apply the verb to a page of sessions at a time. ``apply`` also gets the sessions that cannot be read."""
        async for rows, found in self._pages(PAGE):
            if self.dry_run:
                for row in rows:
                    self.finish("done", item_of(row))
            if self.dry_run or not (rows or found.damaged):
                continue
            try:
                await apply(rows, found)
            except StoreClosed:
                break
            except PausepointError as error:
                for row in rows:
                    self.finish("failed", refused_item(row, error))
        return self.report()

    async def _work(self, rows: AsyncIterator[SessionRow], turn: asyncio.Lock, apply: Apply) -> None:
        while True:
            async with turn:
                row = await anext(rows, None)
            if row is None:
                return
            self.running += 1
            self._tell(None, None)
            result: BulkResult = "failed"
            try:
                after = await apply(row)
                failed = self.verb == "resume" and after.status is Status.FAILED
                result, item = ("failed", item_of(after, _failure(after))) if failed else ("done", item_of(after))
            except StoreClosed:
                return  # it counts as left
            except PausepointError as error:
                item = refused_item(row, error)
            finally:
                self.running -= 1
            self.finish(result, item)

    async def _rows(self, size: int) -> AsyncIterator[SessionRow]:
        """Yield the sessions that the verb concerns, until the engine is closed."""
        async for rows, found in self._pages(size):
            for damage in found.damaged:
                self.finish("failed", damaged_item(damage))
            for row in rows:
                yield row

    async def _pages(self, size: int) -> AsyncIterator[tuple[list[SessionRow], Found]]:
        """Yield the facts of the sessions, page by page: those that the verb concerns, and all that still match."""
        treated = dict.fromkeys(await self.service.store.treated())
        ids = [each for each in await self.service.store.ids(self.query) if each not in treated]
        matching = treated.keys() | set(ids)
        others = [each for each in self.query.ids or () if each not in matching]
        self.covered |= treated.keys()
        self.total = len(ids) + len(others)
        await self._note_treated(treated)
        self._tell(None, None)
        await self._note_others(others)
        for page in in_pages(ids, size):
            if self.service.ending or not self.service.is_open:
                return
            found = await self.service.store.find(replace(self.query, ids=tuple(page)))
            held = {row.holder for row in found if row.live and row.holder is not None}
            holders = await self.service.store.describe_holders(held) if held else {}
            rows = [row for row in found if self._concerns(row, holders.get(row.holder or 0, ""))]
            await self._note_changed(page, found)
            yield rows, found

    async def _note_treated(self, ids: Collection[str]) -> None:
        """Note the sessions that the same request has treated before, in a process that was killed."""
        for page in in_pages(ids, PAGE):
            found = await self.service.store.find(Filter(ids=tuple(page)))
            rows = [row for row in found if row.parent_id not in ids]  # the others were left to their parents
            self.total += len(rows) + len(found.damaged)
            for row in rows:
                self.finish("done", item_of(row))
            for damage in found.damaged:
                self.finish("failed", damaged_item(damage))

    async def _note_others(self, ids: Sequence[str]) -> None:
        """Note the sessions that were named and are not there, or do not match the other filters."""
        known: dict[str, BulkItem] = {}
        damaged: dict[str, BulkItem] = {}
        for page in in_pages(ids, PAGE):
            found = await self.service.store.find(Filter(ids=tuple(page)))
            known |= {row.session_id: item_of(row, OTHER) for row in found}
            damaged |= {damage.fields["session_id"]: damaged_item(damage, f"{OTHER} ") for damage in found.damaged}
        for each in ids:
            if each in known:
                self.finish("skipped", known[each])
            else:
                self.finish("failed", damaged.get(each) or unknown_item(each))

    def _concerns(self, row: SessionRow, holder: str) -> bool:
        """Return whether the verb concerns a session. Otherwise note why not."""
        if row.parent_id in self.covered:
            self.covered.add(row.session_id)
            self.total -= 1
        elif reason := self.skips(row, holder):
            self.finish("skipped", item_of(row, reason))
        else:
            self.covered.add(row.session_id)
            return True
        return False

    async def _note_changed(self, page: Sequence[str], found: Found) -> None:
        """Note the sessions that matched in the beginning and do not match any more."""
        known = {row.session_id for row in found} | {damage.fields["session_id"] for damage in found.damaged}
        changed = tuple(each for each in page if each not in known)
        now = await self.service.store.find(Filter(ids=changed)) if changed else Found()
        rows = {row.session_id: row for row in now}
        damaged = {damage.fields["session_id"]: damage for damage in now.damaged}
        for each in changed:
            row = rows.get(each)
            if row is not None and row.parent_id in self.covered:
                self.covered.add(each)
                self.total -= 1
            elif each in damaged:
                self.finish("failed", damaged_item(damaged[each], f"{CHANGED} "))
            else:
                item = item_of(row, CHANGED) if row else BulkItem(SessionId(each), "", None, "It was removed.")
                self.finish("skipped", item)

    def finish(self, result: BulkResult, item: BulkItem) -> None:
        """Note the result of one session."""
        self.items[result].append(item)
        self._tell(result, item)

    def _tell(self, result: BulkResult | None, item: BulkItem | None) -> None:
        if self.on_progress is not None:
            counts = {name: len(items) for name, items in self.items.items()}
            self.on_progress(BulkProgress(self.total, **counts, running=self.running, item=item, result=result))

    def report(self) -> BulkReport:
        done, skipped, failed = map(tuple, self.items.values())
        left = self.total - len(done) - len(skipped) - len(failed)
        return BulkReport(self.verb, self.dry_run, done, skipped, failed, left)


def in_pages(ids: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield the ids in lists of at most ``size``."""
    rest = iter(ids)
    while page := list(islice(rest, size)):
        yield page


def item_of(row: SessionRow, reason: str = "") -> BulkItem:
    return BulkItem(SessionId(row.session_id), row.workflow, row.status, reason)


def refused_item(row: SessionRow, error: PausepointError) -> BulkItem:
    return replace(item_of(row, error_text(error)), error=error)


def unknown_item(session_id: str) -> BulkItem:
    return BulkItem(SessionId(session_id), "", None, UNKNOWN, UnknownSession(UNKNOWN, session_id=session_id))


def damaged_item(damage: DamagedRecord, before: str = "") -> BulkItem:
    return BulkItem(SessionId(damage.fields["session_id"]), "", None, f"{before}{error_text(damage)}", damage)


def _failure(row: SessionRow) -> str:
    return "" if row.failure is None else f"{row.failure.type} in {row.failure.step}: {row.failure.message}"


# why a verb does not concern a session


def skips_ended(row: SessionRow, holder: str = "") -> str:
    """Return why a cancel, or any verb, does not concern a session."""
    return {Status.COMPLETED: "It has completed.", Status.CANCELLED: "It was cancelled."}.get(row.status, "")


def skips_pause(row: SessionRow, holder: str = "") -> str:
    """Return why a bulk pause does not concern a session."""
    return "It has failed, so it does not run." if row.status is Status.FAILED else skips_ended(row)


def skips_resume(row: SessionRow, holder: str, wake: bool) -> str:
    """Return why a bulk resume does not concern a session. ``holder`` is the process that drives it."""
    if row.status is Status.RUNNING:
        return f"It is running in {holder}."
    if row.guest and row.status not in (Status.PAUSED, Status.PAUSING, Status.COMPLETED, Status.CANCELLED):
        return "It is a guest. Its own program continues it."
    if row.status is Status.SLEEPING and not wake and row.wakes_at is not None:
        return f"It sleeps until {to_datetime(row.wakes_at):%Y-%m-%d %H:%M:%S} UTC."
    if row.status is Status.WAITING and not wake and not row.awaits_child:
        kinds = {"answer": "an answer", "message": "a message", "timer": "a timer"}
        waits = [kinds.get(kind, kind) for kind in (row.waiting or "").split(",")]
        return f"It waits for {' or '.join(waits)}."
    return skips_ended(row)
