"""The verbs that pause and cancel sessions."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

import msgspec

from pausepoint.engine import flags
from pausepoint.engine.base import Service, standstill
from pausepoint.errors import CallRefused, DamagedRecord, UnknownSession
from pausepoint.log.telemetry import log_line, log_pause_request
from pausepoint.model.endings import is_over
from pausepoint.model.ids import check_texts, shortened
from pausepoint.model.sessions import Filter, Pause, PauseMode, SessionRow, Status
from pausepoint.model.views import Listing, SessionInfo, Working
from pausepoint.runtime.inside import place
from pausepoint.runtime.park import report_ended
from pausepoint.stores.found import Found

PAGE = 100
"""The number of sessions that a pause of everything, or its lift, returns."""


class Pauses:
    """The verbs that pause and cancel sessions."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def pause(
        self, session_id: str, *, reason: str = "", by: str | None = None, mode: PauseMode = "finish",
        freeze: bool = False, wait: bool = False, timeout: float | timedelta | None = None,
    ) -> Listing[SessionInfo]:  # fmt: skip
        """Pause one session with its children. `Session.pause` describes the options."""
        pause = self.pause_of(reason, by, mode, freeze, wait, timeout)
        with suppress(DamagedRecord):  # a damaged session can be paused too
            await self.service.row(session_id)
        query = Filter(session_id=session_id, tree=True)
        if wait:
            await self.refuse_own_wait(query)
        found = await self.request_pause(query, pause)
        found.sort(key=lambda row: row.session_id != session_id)  # the named session first, then its children
        working: tuple[Working, ...] = ()
        if wait:
            working = await standstill(self.service, query, pause.created_at, timeout)
            with suppress(DamagedRecord):  # it is raised below
                await self.service.row(session_id)  # raises UnknownSession if it was removed meanwhile
            found = Found(await self.present(found), found.damaged)
        for damage in found.damaged:
            if damage.fields["session_id"] == session_id:
                raise damage
        return Listing(await self.service.infos(found), found.damaged, working)

    async def pause_all(
        self, reason: str = "", *, by: str | None = None, mode: PauseMode = "finish", freeze: bool = False,
        wait: bool = False, timeout: float | timedelta | None = None,
    ) -> Listing[SessionInfo]:  # fmt: skip
        """Pause everything until `lift_pause`, and return the first sessions that it stops."""
        pause = msgspec.structs.replace(self.pause_of(reason, by, mode, freeze, wait, timeout), standing=True)
        query = Filter(unended=True, failed=False)
        if wait:
            await self.refuse_own_wait(query)
        found = await self.request_pause(query, pause)
        working: tuple[Working, ...] = ()
        if wait:
            working = await standstill(self.service, query, pause.created_at, timeout)
            found = Found(await self.present(found), found.damaged)
        return Listing(await self.service.infos(found), found.damaged, working)

    def pause_of(
        self, reason: str, by: str | None, mode: PauseMode, freeze: bool, wait: bool, timeout: float | timedelta | None
    ) -> Pause:
        """Check the options of a pause, and return its record."""
        self.service.check_open()
        check_texts(reason=reason, by=by)
        if mode not in ("finish", "abort"):
            raise ValueError(f"mode must be 'finish' or 'abort', not {shortened(mode)}.")
        if timeout is not None and not wait:
            raise ValueError("timeout limits the wait for a pause. Pass wait=True with it.")
        return operator_pause(self.service.clock.now(), reason, by, mode, freeze)

    async def refuse_own_wait(self, query: Filter) -> None:
        """Raise `CallRefused` if the calling code is a step that the pause would stop: it would wait for itself."""
        step = place()
        if step is None:
            return
        own = step.opened().visit.host.row
        line = [own.session_id]
        with suppress(UnknownSession):  # the step belongs to another store
            parent = (await self.service.row(own.session_id)).parent_id
            while parent is not None:
                line.append(parent)
                parent = (await self.service.row(parent)).parent_id
        named = (query.session_id,) if query.session_id is not None else query.ids
        ids = tuple(id for id in line if named is None or id in named)
        rows = await self.service.store.find(msgspec.structs.replace(query, session_id=None, ids=ids, tree=True))
        if any((row.session_id, row.created_at) == (own.session_id, own.created_at) for row in rows):
            raise CallRefused(
                f"This code is a step of session {own.session_id!r}, which the pause would stop, so it would wait for"
                " itself. Nothing was paused. Pass wait=False: the step stops before its next operation.",
                session_id=own.session_id,
            )

    async def request_pause(self, query: Filter, pause: Pause) -> Found:
        """Store the request, and make sure that the drives of this process see it from now on."""
        found = await self.service.store.pause(query, pause)
        self.service.driver.on_change()
        await self.service.driver.refresh()
        if pause.standing:
            await flags.show(self.service.store)
            found = await self._first_under_pause()
        log_pause_request(found, pause.by, pause.reason)
        for damage in found.damaged:
            log_line(logging.ERROR, f"was asked to pause but is damaged: {damage}", damage.fields["session_id"])
        return found

    async def present(self, rows: Iterable[SessionRow]) -> list[SessionRow]:
        """Return the facts of these sessions as they are now, without those that were removed meanwhile."""
        found = []
        for row in rows:
            with suppress(UnknownSession):
                found.append(await self.service.row(row.session_id))
        return found

    async def _first_under_pause(self) -> Found:
        """Return the first sessions that a pause of everything stops: those that are still driven, then the newest."""
        driven = await self.service.store.find(Filter(statuses=(Status.PAUSING,), limit=PAGE))
        some = await self.service.store.find(Filter(unended=True, failed=False, limit=PAGE))
        rows = {row.key: row for row in (*driven, *some)}
        return Found(list(rows.values())[:PAGE], some.damaged or driven.damaged)

    async def cancel(self, session_id: str, *, reason: str = "", by: str | None = None) -> Status:
        """Cancel one session with its children, and return its status. See `Session.cancel`."""
        self.service.check_open()
        check_texts(reason=reason, by=by)
        row = await self.service.row(session_id)
        tree = await self.service.store.cancel(session_id, by, reason, self.service.clock.now())
        self.service.driver.on_change()
        for damage in tree.damaged:
            log_line(logging.ERROR, f"was asked to end but is damaged: {damage}", damage.fields["session_id"])
        report_ended(tree[1:] if is_over(row) else tree)
        return (await self.service.row(session_id)).status


def operator_pause(
    now: int, reason: str, by: str | None, mode: PauseMode = "finish", freeze: bool = False
) -> Pause:  # fmt: skip
    """Return the record of a pause that a person requested."""
    return Pause(str(uuid4()), "operator", reason, by, now, mode=mode, freeze=freeze)
