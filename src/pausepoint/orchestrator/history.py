"""What a run keeps in the engine's store: its events and its snapshot, both in the log of its session."""

from __future__ import annotations

import msgspec

from pausepoint.engine.control import Control
from pausepoint.errors import AlreadyRunning, DamagedSnapshot, HoldLost
from pausepoint.log.replay import EventBody, body_of, to_payload
from pausepoint.model.records import seal
from pausepoint.model.sessions import Commit, SessionRow
from pausepoint.orchestrator.bus import KINDS, BusEvent, Logged, TaskCompleted, TaskFailed, TaskStarted
from pausepoint.orchestrator.snapshot import RunStateSnapshot, from_json, to_json

SNAPSHOT = "orchestrator.snapshot"
_WINDOW = 256
_KINDS = {kind.in_history(): kind for kind in KINDS}


class SessionLog:
    """An `EventLog` in the history of a session; its cursors are those of `Session.events`."""

    def __init__(self, engine: Control, session_id: str) -> None:
        self._engine = engine
        self._session_id = session_id

    async def append(self, event: BusEvent) -> None:
        """See `EventLog`."""
        data = event.data
        await note(
            self._engine, self._session_id, event.in_history(), _summary(event), data, str(data.get("agent", ""))
        )

    async def read(self, after: str = "") -> list[Logged]:
        """See `EventLog`."""
        found = self._engine.events(self._session_id, after)
        return [
            Logged(event.cursor, msgspec.convert(event.data, _KINDS[event.event_type]))
            async for event in found
            if event.event_type in _KINDS
        ]


class SessionStateStore:
    """A `SnapshotStore` in the log of a session: durable with it, exported with it, never out of step with it."""

    def __init__(self, engine: Control, session_id: str) -> None:
        self._engine = engine
        self._session_id = session_id

    def __repr__(self) -> str:
        return f"SessionStateStore({self._session_id!r})"

    async def save_snapshot(self, snapshot: RunStateSnapshot) -> None:
        """See `SnapshotStore`."""
        summary = f"{len(snapshot.active_agents)} agents, {len(snapshot.pending_tasks)} tasks that had not begun"
        await note(self._engine, self._session_id, SNAPSHOT, summary, {"json": to_json(snapshot).decode()})

    async def load_snapshot(self) -> RunStateSnapshot | None:
        """See `SnapshotStore`."""
        row = await self._engine._row(self._session_id)
        until = row.seq
        while until > 0:
            since = max(1, until - _WINDOW + 1)
            for record in reversed(await self._engine.store.records(row.key, since, until)):
                if record.kind != "event" or record.redacted:
                    continue
                body = body_of(record)
                if isinstance(body, EventBody) and body.type == SNAPSHOT:
                    return _read(body, f"record {record.seq} of session {self._session_id!r}")
            until = since - 1
        return None


def _read(body: EventBody, place: str) -> RunStateSnapshot:
    text = msgspec.json.decode(body.data).get("json")
    if not isinstance(text, str):
        raise DamagedSnapshot(f"{place} holds no snapshot of a run; resume the session itself", path=place)
    return from_json(text.encode(), place)


async def at_work(engine: Control, session_id: str) -> dict[str, str]:
    """The tasks that agents of a run are in the middle of, and who is at each; none if the session is no run."""
    found: dict[str, str] = {}
    try:
        log = await SessionLog(engine, session_id).read()
    except msgspec.ValidationError:
        return found  # a workflow of somebody else's, which has events of these names
    for logged in log:
        event = logged.event
        if isinstance(event, TaskStarted):
            found[event.task] = event.agent
        elif isinstance(event, TaskCompleted | TaskFailed):
            found.pop(event.task, None)
    return found


def _summary(event: BusEvent) -> str:
    data = event.data
    if "task" in data:
        return f"{data['task']}: {data['error']}" if "error" in data else str(data["task"])
    agents = data.get("activeAgentIds", ())
    reason = f": {data['reason']}" if data.get("reason") else ""
    return f"{len(agents)} agents{reason}"


async def note(
    engine: Control, session_id: str, type: str, summary: str, data: dict[str, object], agent: str = ""
) -> None:
    """Write an event into the log of a session, whether this engine drives it or nobody does."""
    while True:
        await engine.driver.begun(session_id)
        run = engine.driver.runs.get(session_id)
        drive = None if run is None else run.drive
        if drive is not None and not drive.ledger.parking:
            await drive.ledger.note(type, summary, data, agent=agent)
            return
        if run is not None:
            await run.finished()
            continue
        row = await engine._row(session_id)
        if row.live:  # by another process, or the store refused when it should have been given back
            raise engine.driver.troubles.get(session_id) or engine._driven(row)
        try:
            await engine.store.revise(_commit(row, engine.clock.now(), type, summary, data, agent))
        except (HoldLost, AlreadyRunning):
            continue  # it moved since it was looked at
        engine.driver.changed(session_id)
        return


def _commit(row: SessionRow, now: int, type: str, summary: str, data: dict[str, object], agent: str) -> Commit:
    """The event alone: all else of the session stays as it is."""
    body = EventBody(type, summary, agent, msgspec.Raw(msgspec.json.encode(data)))
    step = row.step or ""
    record = seal(row.digest, row.seq + 1, row.seq, "event", step, row.visit, now, to_payload(body))
    return Commit(
        row.key, row.fence, row.seq, (record,), max(now, row.updated_at), row.key_frame, row.step, row.visit,
        row.leaving, ended=row.ended, failure=row.failure, release=True, keep_crashes=True, progress=row.progress,
        waiting=row.waiting, wakes_at=row.wakes_at, parent=row.parent,
    )  # fmt: skip
