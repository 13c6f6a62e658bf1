"""The public verbs resume, pause and cancel, for one session and for all that match a filter; and move, for all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Literal

from msgspec.structs import replace

from pausepoint.engine.base import Service, check_texts
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
from pausepoint.engine.control import Control
from pausepoint.engine.filters import Statuses, When, filter_of
from pausepoint.engine.pauses import Pauses
from pausepoint.engine.queries import Queries
from pausepoint.engine.session import Session
from pausepoint.engine.standstill import standstill
from pausepoint.errors import StoreClosed, VerbRefused
from pausepoint.model.budgets import Amount
from pausepoint.model.bulk import BulkItem, BulkReport, BulkVerb
from pausepoint.model.ids import check_session_id
from pausepoint.model.sessions import Filter, PauseMode, SessionRow, Status
from pausepoint.model.views import Listing, SessionInfo
from pausepoint.stores.found import Found
from pausepoint.stores.remembered import current_each

JOBS = 8
"""How many sessions a bulk resume drives at a time, unless the caller says otherwise."""

SHORT_SLEEP = 5_000_000
"""Microseconds. A bulk resume waits for a session that wakes within this time, and not for one that sleeps longer."""

PICK_UP, LOOK_EVERY = 1.5, 0.05
"""Seconds in which every open engine notices that sessions are due, and seconds between two looks."""


class Bulk:
    """The verbs that can be applied to many sessions at once."""

    def __init__(self, service: Service, queries: Queries, pauses: Pauses, control: Control) -> None:
        self.service = service
        self.queries = queries
        self.pauses = pauses
        self.control = control

    async def resume(
        self, session_id: str | None = None, *, by: str | None = None, owner: str | None = None, steal: bool = False,
        budget: Amount | None = None, wake: bool = False, code: Literal["accept"] | None = None,
        until: str | When | None = None, edits: Literal["accept", "discard"] | None = None,
        rerun: str | Sequence[str] = (), here: bool = True, ids: Sequence[str] | None = None, status: Statuses = None,
        failed: bool | None = None, workflow: str | None = None, tag: str | None = None, since: When | None = None,
        queue: str | None = None, jobs: int = JOBS, dry_run: bool = False, on_progress: OnProgress | None = None,
    ) -> Session[Any] | BulkReport:  # fmt: skip
        """Resume a session in this process, exactly where it stopped, and return a handle on it."""
        if session_id is not None:
            _check_one(
                "resume",
                ids=ids,
                status=status,
                failed=failed,
                workflow=workflow,
                tag=tag,
                queue=queue,
                since=since,
                dry_run=dry_run,
            )
            if until is not None and not isinstance(until, str):
                raise ValueError(
                    f"until names a step of session {session_id!r}, so it must be a string: {until!r:.80}."
                )
            return await self.control.resume(
                session_id, by=by, owner=owner, steal=steal, budget=budget, wake=wake, code=code, until=until,
                edits=edits, rerun=rerun, here=here,
            )  # fmt: skip
        if steal or rerun:
            raise ValueError("steal and rerun are for one session. Pass its id, or leave them out.")
        if isinstance(until, str):
            raise ValueError(
                f"until={until!r:.80} names a step, which works for one session only. Pass the session's id."
            )
        if code not in (None, "accept"):
            raise ValueError(f"code must be 'accept' or None, not {code!r:.80}.")
        if not here and (wake or code or edits):
            raise ValueError("here=False only closes pauses. You can combine it only with by and budget.")
        if here and not dry_run and current_each(self.service.store) is not None:
            raise ValueError("In a block of once(each=True), a bulk resume needs here=False.")
        if jobs < 1:
            raise ValueError(f"jobs must be a number of sessions, 1 or more, not {jobs}.")
        query = self._query_of(
            "resume",
            ids=ids,
            status=status,
            failed=failed,
            workflow=workflow,
            tag=tag,
            queue=queue,
            owner=owner,
            since=since,
            until=until,
        )
        check_texts(by=by)
        if here and not dry_run:
            self.service.check_drives("resume", "the sessions that match")
        run = BulkRun(self.service, "resume", query, partial(skips_resume, wake=wake), dry_run, on_progress)

        async def apply(row: SessionRow) -> SessionRow:
            id = row.session_id
            if not here:
                await self.control.resume(id, by=by, budget=budget, here=False)
                return await self._handed_over(id)
            await self.control.resume(id, by=by, budget=budget, wake=wake, code=code, edits=edits)
            return row if row.guest else await self._settled(id)

        report = await run.each(apply, jobs)
        return report if here or dry_run else replace(report, unattended=await self._unattended(report.done))

    async def pause(
        self, session_id: str | None = None, *, everything: bool = False, ids: Sequence[str] | None = None,
        status: Statuses = None, failed: bool | None = None, workflow: str | None = None, tag: str | None = None,
        owner: str | None = None, queue: str | None = None,
        since: When | None = None, until: When | None = None, reason: str = "", by: str | None = None,
        mode: PauseMode = "finish", freeze: bool = False, wait: bool = False,
        timeout: float | timedelta | None = None, dry_run: bool = False, on_progress: OnProgress | None = None,
    ) -> Listing[SessionInfo] | BulkReport:  # fmt: skip
        """Pause one session with its children, all sessions that match, or everything."""
        given = {
            "ids": ids, "status": status, "failed": failed, "workflow": workflow, "tag": tag, "owner": owner,
            "since": since, "until": until, "queue": queue,
        }  # fmt: skip
        if session_id is not None or everything:
            _check_one("pause", everything=everything and session_id is not None, dry_run=dry_run, **given)
        if session_id is not None:
            return await self.pauses.pause(
                session_id, reason=reason, by=by, mode=mode, freeze=freeze, wait=wait, timeout=timeout
            )
        if everything:
            return await self.pauses.pause_everything(reason, by, mode, freeze, wait, timeout)
        pause = self.pauses.pause_of(reason, by, mode, freeze, wait, timeout)
        query = self._query_of("pause", **given)
        if wait and not dry_run:
            await self.pauses.refuse_own_wait(query)
        run = BulkRun(self.service, "pause", query, skips_pause, dry_run, on_progress)

        async def apply(rows: list[SessionRow], found: Found) -> None:
            ids = [row.session_id for row in rows] + [damage.fields["session_id"] for damage in found.damaged]
            # A session that failed since it was read stays as it is.
            paused = await self.pauses.request_pause(Filter(ids=tuple(ids), tree=True, failed=False), pause)
            after = {row.session_id: row for row in paused}
            for row in rows:
                now = after.get(row.session_id) or await self.service.row(row.session_id)
                reason = skips_pause(now)
                run.finish("skipped" if reason else "done", item_of(now, reason))
            for damage in found.damaged:
                run.finish("failed", damaged_item(damage, "It is damaged, but the pause is stored. "))

        report = await run.pages(apply)
        if not wait or dry_run:
            return report
        ids = tuple(item.session_id for item in (*report.done, *report.failed))
        working = await standstill(self.service, Filter(ids=ids, tree=True), pause.created_at, timeout)
        return replace(report, working=working, done=await self._items_now(report.done))

    async def cancel(
        self, session_id: str | None = None, *, ids: Sequence[str] | None = None, status: Statuses = None,
        failed: bool | None = None, workflow: str | None = None, tag: str | None = None, owner: str | None = None,
        queue: str | None = None, since: When | None = None,
        until: When | None = None, reason: str = "", by: str | None = None, dry_run: bool = False,
        on_progress: OnProgress | None = None,
    ) -> Status | BulkReport:  # fmt: skip
        """Cancel a session and its children, and return its status. What it has done stays readable."""
        given = {
            "ids": ids, "status": status, "failed": failed, "workflow": workflow, "tag": tag, "owner": owner,
            "since": since, "until": until, "queue": queue,
        }  # fmt: skip
        if session_id is not None:
            _check_one("cancel", dry_run=dry_run, **given)
            return await self.pauses.cancel(session_id, reason=reason, by=by)
        query = self._query_of("cancel", **given)
        check_texts(reason=reason, by=by)
        run = BulkRun(self.service, "cancel", query, skips_ended, dry_run, on_progress)

        async def apply(row: SessionRow) -> SessionRow:
            await self.pauses.cancel(row.session_id, reason=reason, by=by)
            return await self.service.row(row.session_id)

        return await run.each(apply, JOBS)

    def _query_of(self, verb: BulkVerb, **given: Any) -> Filter:
        """Return the filter of a bulk verb. Refuse a call that would concern all sessions."""
        self.service.check_open()
        ids = given.pop("ids")
        query = replace(filter_of(self.service.clock.now(), **given), ids=_checked_ids(ids))
        if given["status"] is not None and not query.statuses:
            raise ValueError(f"status names no status: {given['status']!r}. Leave it out to match every status.")
        if query == Filter():
            everything = ", or everything=True" if verb == "pause" else ""
            raise ValueError(
                f"Nothing says which sessions to {verb}. Pass a session id, or at least one of ids=, status=,"
                f" failed=, workflow=, tag=, owner=, queue=, since= and until={everything}."
            )
        # Of sessions that were named, the report says that they have ended; others do not match.
        return query if query.statuses or query.ids is not None else replace(query, unended=True)

    async def _settled(self, session_id: str) -> SessionRow:
        """Wait until a resumed session has stopped, and return its facts. A long sleep counts as stopped."""
        with self.service.driver.listening(session_id) as news:
            while True:
                row = await self.service.tended_row(session_id)
                if not row.live and (self.service.driver.ending or not await self._continues_soon(row)):
                    break
                await self.service.wait_for_change(news)
        if self.service.driver.ending and row.status in (Status.CREATED, Status.READY):
            raise StoreClosed(f"Session {session_id!r} was interrupted, because this engine is closing. It is ready.")
        if row.ended is not None and self.service.waker.asked is not None:
            self.service.waker.asked.discard(session_id)  # otherwise it is looked for again and again
        return row

    async def _continues_soon(self, row: SessionRow) -> bool:
        """Return whether a parked session continues on its own within a few seconds."""
        if not await self.queries.continues_on_its_own(row):
            return False
        tree = [row]
        if row.awaits_child:
            tree = await self.service.store.find(Filter(session_id=row.session_id, tree=True, unended=True))
        soon = self.service.clock.now() + SHORT_SLEEP
        changed = row not in tree  # a child has reported to it
        return changed or any(each.live or (each.wakes_at is not None and each.wakes_at <= soon) for each in tree)

    async def _handed_over(self, session_id: str) -> SessionRow:
        """Return the facts of a session that any engine may now drive. Refuse if one has paused it again already."""
        row = await self.service.row(session_id)
        if row.status is not Status.PAUSED or row.guest:
            return row
        why = "; ".join(f"{pause.kind}: {pause.reason}" for pause in await self.service.store.pauses(row.key))
        raise VerbRefused(
            f"Session {session_id!r} is paused again ({why}). Look at it with"
            f" engine.session({session_id!r}).pauses(), then call engine.resume({session_id!r}) again.",
            session_id=session_id, status=row.status.value,
        )  # fmt: skip

    async def _unattended(self, done: Sequence[BulkItem]) -> tuple[str, ...]:
        """Return the workflows of which no engine has taken up a session, after a time in which it would have."""
        own = set(self.service.workflows) if self.service.drives == "all" else set()
        waiting: dict[str, list[str]] = {}
        for item in done:
            if item.status in (Status.READY, Status.CREATED) and item.workflow not in own:
                waiting.setdefault(item.workflow, []).append(item.session_id)
        end = self.service.clock.monotonic() + PICK_UP
        while waiting and self.service.clock.monotonic() < end:
            for workflow, ids in list(waiting.items()):
                some = Filter(ids=tuple(ids[:PAGE]), statuses=(Status.READY, Status.CREATED))
                if len(await self.service.store.ids(some)) < len(ids[:PAGE]):
                    del waiting[workflow]
            await asyncio.sleep(LOOK_EVERY if waiting else 0)
        return tuple(sorted(waiting))

    async def _items_now(self, items: Sequence[BulkItem]) -> tuple[BulkItem, ...]:
        """Return the items with the present status of their sessions."""
        found: dict[str, Status] = {}
        for page in in_pages((item.session_id for item in items), PAGE):
            found |= {row.session_id: row.status for row in await self.service.store.find(Filter(ids=tuple(page)))}
        return tuple(replace(item, status=found.get(item.session_id, item.status)) for item in items)


def _checked_ids(ids: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the ids of sessions, each once. Raises `InvalidSessionId` if one is not valid."""
    if isinstance(ids, str):
        raise TypeError(f"ids must be a list of session ids, not a string: {ids!r:.60}.")
    return None if ids is None else tuple(dict.fromkeys(map(check_session_id, ids)))


def _check_one(verb: BulkVerb, **given: Any) -> None:
    """Refuse filters together with a session id or with everything."""
    names = [f"{name}=" for name, value in given.items() if value not in (None, False, ())]
    if names:
        raise ValueError(
            f"{' and '.join(names)} cannot be combined with a session id or with everything=True. Pass a session id,"
            f" filters, or everything=True alone to {verb}."
        )
