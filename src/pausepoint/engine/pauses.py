"""The verbs that pause and cancel sessions."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

import msgspec

from pausepoint.engine.base import check_texts
from pausepoint.engine.queries import Queries
from pausepoint.engine.standstill import standstill
from pausepoint.errors import DamagedRecord, UnknownSession
from pausepoint.log.telemetry import log_line, log_pause_request
from pausepoint.model.endings import is_over
from pausepoint.model.sessions import Filter, Pause, PauseMode, SessionRow, Status
from pausepoint.model.views import Listing, SessionInfo, Working
from pausepoint.runtime.hold import report_ended
from pausepoint.stores.base import Found

PAGE = 100
"""The number of sessions that a pause of everything, or its lift, returns."""


class Pauses(Queries):
    """The verbs that pause and cancel sessions."""

    async def pause(
        self, session_id: str | None = None, *, workflow: str | None = None, tag: str | None = None,
        owner: str | None = None, everything: bool = False, reason: str = "", by: str | None = None,
        mode: PauseMode = "finish", freeze: bool = False, wait: bool = False, timeout: float | timedelta | None = None,
    ) -> Listing[SessionInfo]:  # fmt: skip
        """Pause one session with its children, all sessions that match, or everything. Return the sessions.

        Sessions stop at their next safe point. Sessions that have ended are returned with their status. Of everything,
        the first `PAGE` sessions are returned, those that are still driven first.

        - ``workflow``, ``tag``, ``owner``: pause all sessions that match. ``everything=True`` pauses all sessions until
          `lift_pause`; sessions that any process starts meanwhile are stored paused. Failed sessions do not run anyway
          and stay failed, unless one is named by its id.
        - ``reason``, ``by``: recorded with the pause.
        - ``mode``: ``"finish"`` lets a running step stop at a safe point; ``"abort"`` cancels the step, and a resume
          runs it again.
        - ``freeze``: stop the sessions' timers too, so that they are due later by the length of the pause.
        - ``wait``: return when every one of them has stopped. From then on nothing begins until a resume. With
          ``timeout``, in seconds or as a timedelta, return after that time; ``working`` of the result then names the
          sessions that are still worked on, by which process and with what. Without ``wait``, an operation that a
          process admitted just before the pause was stored may still begin.

        Damaged sessions are paused too and are listed in ``damaged`` of the result. If the session you named is
        damaged, its `DamagedRecord` is raised after the pause is stored.
        """
        self._check_open()
        check_texts(reason=reason, by=by)
        if mode not in ("finish", "abort"):
            raise ValueError(f"mode must be 'finish' or 'abort', not {mode!r}.")
        if timeout is not None and not wait:
            raise ValueError("timeout limits the wait for a pause. Pass wait=True with it.")
        named = [part for part in (session_id, workflow, tag, owner) if part is not None]
        if everything == bool(named):
            raise ValueError("Pass a session id, workflow=, tag= or owner= to pause, or pass everything=True alone.")
        if session_id is not None:
            with suppress(DamagedRecord):  # a damaged session can be paused too
                await self._row(session_id)
        query = Filter(
            session_id=session_id, workflow=workflow, tag=tag, owner=owner, unended=session_id is None,
            tree=session_id is not None, failed=None if session_id is not None else False,
        )  # fmt: skip
        pause = msgspec.structs.replace(operator_pause(self.clock.now(), reason, by, mode, freeze), standing=everything)
        found = await self.store.pause(query, pause)
        if everything:
            found = await self._first_under_pause()
        log_pause_request(found, by, reason)
        found.sort(key=lambda row: row.session_id != session_id)  # the named session first, then its children
        self.driver.on_change()
        await self.driver.refresh()  # the drives of this process see the pause from now on
        working: tuple[Working, ...] = ()
        if wait:
            working = await standstill(self, query, pause.created_at, timeout)
            if session_id is not None:
                with suppress(DamagedRecord):  # it is raised below
                    await self._row(session_id)  # raises UnknownSession if it was removed meanwhile
            found = Found(await self._present(found), found.damaged)
        for damage in found.damaged:
            log_line(logging.ERROR, f"was asked to pause but is damaged: {damage}", damage.fields["session_id"])
            if damage.fields["session_id"] == session_id:
                raise damage
        return Listing(map(self._info, found), found.damaged, working)

    async def _present(self, rows: Iterable[SessionRow]) -> list[SessionRow]:
        """Return the facts of these sessions as they are now, without those that were removed meanwhile."""
        found = []
        for row in rows:
            with suppress(UnknownSession):
                found.append(await self._row(row.session_id))
        return found

    async def _first_under_pause(self) -> Found:
        """Return the first sessions that a pause of everything stops: those that are still driven, then the newest."""
        driven = await self.store.find(Filter(statuses=(Status.PAUSING,), limit=PAGE))
        some = await self.store.find(Filter(unended=True, failed=False, limit=PAGE))
        rows = {row.key: row for row in (*driven, *some)}
        return Found(list(rows.values())[:PAGE], some.damaged or driven.damaged)

    async def cancel(self, session_id: str, *, reason: str = "", by: str | None = None) -> Status:
        """Cancel a session and its children, and return its status. What it has done stays readable.

        Sessions that no process drives end immediately, all in one transaction; a running one at its next safe point.
        A session that has completed or was cancelled is not changed, but what is still open below it ends too.
        """
        self._check_open()
        check_texts(reason=reason, by=by)
        row = await self._row(session_id)
        tree = await self.store.cancel(row.session_id, by, reason, self.clock.now())
        self.driver.on_change()
        for damage in tree.damaged:
            log_line(logging.ERROR, f"was asked to end but is damaged: {damage}", damage.fields["session_id"])
        report_ended(tree[1:] if is_over(row) else tree)
        return (await self._row(session_id)).status


def operator_pause(
    now: int, reason: str, by: str | None, mode: PauseMode = "finish", freeze: bool = False
) -> Pause:  # fmt: skip
    """Return the record of a pause that a person requested."""
    return Pause(str(uuid4()), "operator", reason, by, now, mode=mode, freeze=freeze)
