"""`Selection`: the verbs over many sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from pausepoint.engine.base import standstill
from pausepoint.engine.bulk_run import (
    PAGE,
    BulkRun,
    OnProgress,
    damaged_item,
    in_pages,
    item_of,
    skips_ended,
    skips_pause,
    skips_resume,
)
from pausepoint.engine.filters import filter_of
from pausepoint.errors import StoreClosed, VerbRefused
from pausepoint.model.budgets import Amount
from pausepoint.model.bulk import BulkItem, BulkReport
from pausepoint.model.ids import check_session_id, check_texts
from pausepoint.model.sessions import Filter, PauseMode, SessionRow, Status
from pausepoint.stores.found import Found
from pausepoint.stores.remembered import current_each

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine

JOBS = 8
"""How many sessions a bulk resume drives at a time, unless the caller says otherwise."""

SHORT_SLEEP = 5_000_000
"""Microseconds. A bulk resume waits for a session that wakes within this time, and not for one that sleeps longer."""

PICK_UP, LOOK_EVERY = 1.5, 0.05
"""Seconds in which every open engine notices that sessions are due, and seconds between two looks."""


class Selection:
    """Many sessions: those of the store that match the filters of `Engine.select`, whenever a verb is called.

    Each verb treats every session on its own, and returns a `BulkReport`. One session that fails does not stop the
    others.
    """

    def __init__(self, engine: Engine, filters: dict[str, Any]) -> None:
        self._parts = engine._parts
        self._service = self._parts.control.service
        self._filters = filters
        self._query()  # raises if a filter is not valid

    def __repr__(self) -> str:
        filters = ", ".join(f"{name}={value!r:.80}" for name, value in self._filters.items() if value is not None)
        return f"Selection({filters})"

    async def resume(
        self, *, by: str | None = None, budget: Amount | None = None, wake: bool = False,
        code: Literal["accept"] | None = None, edits: Literal["accept", "discard"] | None = None, here: bool = True,
        jobs: int = JOBS, dry_run: bool = False, on_progress: OnProgress | None = None,
    ) -> BulkReport:  # fmt: skip
        """Resume all sessions that match, and return a `BulkReport`. Failed sessions are retried::

            report = await engine.select(status="failed", tag="night").resume()

        - ``by``, ``budget``, ``wake``, ``code``, ``edits``: as for `Session.resume`, for each session.
        - ``jobs``: how many sessions to drive at a time. The call returns when each of them has stopped: it has ended,
          or it is paused, waits, or sleeps for more than 5 seconds.
        - ``here=False``: return when the sessions are due. ``unattended`` of the report names workflows whose sessions
          no open engine took up within 1.5 seconds.
        - ``dry_run``: report what would be resumed and what would be skipped, and change nothing.
        - ``on_progress``: a function that is called with a `BulkProgress` before and after each session.

        Sessions that are running, wait or sleep are skipped, and so are guests, unless they are paused. A child whose
        parent matches too is left to its parent.
        """
        if code not in (None, "accept"):
            raise ValueError(f"code must be 'accept' or None, not {code!r:.80}.")
        if not here and (wake or code or edits):
            raise ValueError("here=False only closes pauses. You can combine it only with by and budget.")
        if here and not dry_run and current_each(self._service.store) is not None:
            raise ValueError("In a block of once(each=True), a bulk resume needs here=False.")
        if jobs < 1:
            raise ValueError(f"jobs must be a number of sessions, 1 or more, not {jobs}.")
        query = self._query()
        check_texts(by=by)
        if here and not dry_run:
            self._service.check_drives("resume", "the sessions that match")
        run = BulkRun(self._service, "resume", query, partial(skips_resume, wake=wake), dry_run, on_progress)

        async def apply(row: SessionRow) -> SessionRow:
            id, control = row.session_id, self._parts.control
            if not here:
                await control.resume(id, by=by, budget=budget, here=False)
                return await self._handed_over(id)
            await control.resume(id, by=by, budget=budget, wake=wake, code=code, edits=edits)
            return row if row.guest else await self._settled(id)

        report = await run.each(apply, jobs)
        return report if here or dry_run else replace(report, unattended=await self._unattended(report.done))

    async def pause(
        self, reason: str = "", *, by: str | None = None, mode: PauseMode = "finish", freeze: bool = False,
        wait: bool = False, timeout: float | timedelta | None = None, dry_run: bool = False,
        on_progress: OnProgress | None = None,
    ) -> BulkReport:  # fmt: skip
        """Pause all sessions that match, each with its children, and return a `BulkReport`.

        ``reason``, ``by``, ``mode``, ``freeze``, ``wait`` and ``timeout`` are as for `Session.pause`. Failed sessions
        do not run anyway: they are skipped and stay failed. Damaged ones are paused too, and are listed in ``failed``.
        ``dry_run`` reports what would be paused and changes nothing; ``on_progress`` is as for `resume`.
        """
        pauses = self._parts.pauses
        pause, query = pauses.pause_of(reason, by, mode, freeze, wait, timeout), self._query()
        if wait and not dry_run:
            await pauses.refuse_own_wait(query)
        run = BulkRun(self._service, "pause", query, skips_pause, dry_run, on_progress)

        async def apply(rows: list[SessionRow], page: Found) -> None:
            ids = [row.session_id for row in rows] + [damage.fields["session_id"] for damage in page.damaged]
            # A session that failed since it was read stays as it is.
            paused = await pauses.request_pause(Filter(ids=tuple(ids), tree=True, failed=False), pause)
            after = {row.session_id: row for row in paused}
            for row in rows:
                now = after.get(row.session_id) or await self._service.row(row.session_id)
                reason = skips_pause(now)
                run.finish("skipped" if reason else "done", item_of(now, reason))
            for damage in page.damaged:
                run.finish("failed", damaged_item(damage, "It is damaged, but the pause is stored. "))

        report = await run.pages(apply)
        if not wait or dry_run:
            return report
        ids = tuple(item.session_id for item in (*report.done, *report.failed))
        working = await standstill(self._service, Filter(ids=ids, tree=True), pause.created_at, timeout)
        return replace(report, working=working, done=await self._items_now(report.done))

    async def cancel(
        self, reason: str = "", *, by: str | None = None, dry_run: bool = False, on_progress: OnProgress | None = None
    ) -> BulkReport:
        """Cancel all sessions that match, each with its children, and return a `BulkReport`.

        ``dry_run`` reports what would be cancelled and changes nothing; ``on_progress`` is as for `resume`.
        """
        query = self._query()
        check_texts(reason=reason, by=by)
        run = BulkRun(self._service, "cancel", query, skips_ended, dry_run, on_progress)

        async def apply(row: SessionRow) -> SessionRow:
            await self._parts.pauses.cancel(row.session_id, reason=reason, by=by)
            return await self._service.row(row.session_id)

        return await run.each(apply, JOBS)

    def _query(self) -> Filter:
        """Return the filter as of now. Refuse a selection of all sessions."""
        self._service.check_open()
        filters = dict(self._filters)
        ids, status = filters.pop("ids"), filters["status"]
        query = replace(filter_of(self._service.clock.now(), **filters), ids=_checked_ids(ids))
        if status is not None and not query.statuses:
            raise ValueError(f"status names no status: {status!r}. Leave it out to match every status.")
        if query == Filter():
            raise ValueError(
                "Nothing says which sessions to select. Pass at least one of ids=, status=, failed=, workflow=, tag=,"
                " owner=, queue=, since= and until=. To pause everything, use pause_all()."
            )
        # Of sessions that were named, the report says that they have ended; others do not match.
        return query if query.statuses or query.ids is not None else replace(query, unended=True)

    async def _settled(self, session_id: str) -> SessionRow:
        """Wait until a resumed session has stopped, and return its facts. A long sleep counts as stopped."""
        with self._service.driver.listening(session_id) as news:
            while True:
                row = await self._service.tended_row(session_id)
                if not row.live and (self._service.driver.ending or not await self._continues_soon(row)):
                    break
                await self._service.wait_for_change(news)
        if self._service.driver.ending and row.status in (Status.CREATED, Status.READY):
            raise StoreClosed(f"Session {session_id!r} was interrupted, because this engine is closing. It is ready.")
        if row.ended is not None and self._service.waker.asked is not None:
            self._service.waker.asked.discard(session_id)  # otherwise it is looked for again and again
        return row

    async def _continues_soon(self, row: SessionRow) -> bool:
        """Return whether a parked session continues on its own within a few seconds."""
        if not await self._parts.queries.continues_on_its_own(row):
            return False
        tree = [row]
        if row.awaits_child:
            tree = await self._service.store.find(Filter(session_id=row.session_id, tree=True, unended=True))
        soon = self._service.clock.now() + SHORT_SLEEP
        changed = row not in tree  # a child has reported to it
        return changed or any(row.live or (row.wakes_at is not None and row.wakes_at <= soon) for row in tree)

    async def _handed_over(self, session_id: str) -> SessionRow:
        """Return the facts of a session that any engine may now drive. Refuse if one has paused it again already."""
        row = await self._service.row(session_id)
        if row.status is not Status.PAUSED or row.guest:
            return row
        why = "; ".join(f"{pause.kind}: {pause.reason}" for pause in await self._service.store.pauses(row.key))
        raise VerbRefused(
            f"Session {session_id!r} is paused again ({why}). Look at it with"
            f" engine.session({session_id!r}).pauses(), then call resume() again.",
            session_id=session_id, status=row.status.value,
        )  # fmt: skip

    async def _unattended(self, done: Sequence[BulkItem]) -> tuple[str, ...]:
        """Return the workflows of which no engine has taken up a session, after a time in which it would have."""
        own = set(self._service.workflows) if self._service.drives == "all" else set()
        waiting: dict[str, list[str]] = {}
        for item in done:
            if item.status in (Status.READY, Status.CREATED) and item.workflow not in own:
                waiting.setdefault(item.workflow, []).append(item.session_id)
        end = self._service.clock.monotonic() + PICK_UP
        while waiting and self._service.clock.monotonic() < end:
            for workflow, ids in list(waiting.items()):
                some = Filter(ids=tuple(ids[:PAGE]), statuses=(Status.READY, Status.CREATED))
                if len(await self._service.store.ids(some)) < len(ids[:PAGE]):
                    del waiting[workflow]
            await asyncio.sleep(LOOK_EVERY if waiting else 0)
        return tuple(sorted(waiting))

    async def _items_now(self, items: Sequence[BulkItem]) -> tuple[BulkItem, ...]:
        """Return the items with the present status of their sessions."""
        statuses: dict[str, Status] = {}
        for page in in_pages((item.session_id for item in items), PAGE):
            statuses |= {row.session_id: row.status for row in await self._service.store.find(Filter(ids=tuple(page)))}
        return tuple(replace(item, status=statuses.get(item.session_id, item.status)) for item in items)


def _checked_ids(ids: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the ids of sessions, each once. Raises `InvalidSessionId` if one is not valid."""
    if isinstance(ids, str):
        raise TypeError(f"ids must be a list of session ids, not a string: {ids!r:.60}.")
    return None if ids is None else tuple(dict.fromkeys(map(check_session_id, ids)))
