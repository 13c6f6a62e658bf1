"""The events and the snapshot of a run, stored in the log of its session."""

from __future__ import annotations

import msgspec

from pausepoint.engine.engine import Engine
from pausepoint.errors import DamagedSnapshot
from pausepoint.orchestrator.bus import KINDS, BusEvent, Logged
from pausepoint.orchestrator.snapshot import RunStateSnapshot, from_json, to_json

SNAPSHOT = "orchestrator.snapshot"
_KINDS = {kind.in_history(): kind for kind in KINDS}


class SessionLog:
    """An `EventLog` in the history of a session. Its cursors are those of `Session.events`."""

    def __init__(self, engine: Engine, session_id: str) -> None:
        self._engine = engine
        self._session_id = session_id

    async def append(self, event: BusEvent) -> None:
        """See `EventLog`."""
        data = event.data
        agent = str(data.get("agent", ""))
        await self._engine.session(self._session_id).emit(event.in_history(), _summary(event), data, agent_name=agent)

    async def read(self, after: str = "") -> list[Logged]:
        """See `EventLog`."""
        found = self._engine.session(self._session_id).events(after)
        return [
            Logged(event.cursor, msgspec.convert(event.data, _KINDS[event.event_type]))
            async for event in found
            if event.event_type in _KINDS
        ]


class SessionStateStore:
    """A `SnapshotStore` in the log of a session, so that the snapshot is as durable as the session."""

    def __init__(self, engine: Engine, session_id: str) -> None:
        self._engine = engine
        self._session_id = session_id

    def __repr__(self) -> str:
        return f"SessionStateStore({self._session_id!r})"

    async def save_snapshot(self, snapshot: RunStateSnapshot) -> None:
        """See `SnapshotStore`."""
        agents, tasks = len(snapshot.active_agents), len(snapshot.pending_tasks)
        summary = f"{_counted(agents, 'agent')}, {_counted(tasks, 'task')} that had not begun"
        await self._engine.session(self._session_id).emit(SNAPSHOT, summary, {"json": to_json(snapshot).decode()})

    async def load_snapshot(self) -> RunStateSnapshot | None:
        """See `SnapshotStore`."""
        event = await self._engine.session(self._session_id).last_event(SNAPSHOT)
        if event is None:
            return None
        place = f"event {event.cursor} of session {self._session_id!r}"
        text = event.data.get("json")
        if not isinstance(text, str):
            raise DamagedSnapshot(
                f"{place[0].upper()}{place[1:]} does not contain a snapshot. Resume the session itself with"
                f" engine.session({self._session_id!r}).resume().",
                path=place,
            )
        return from_json(text.encode(), place)


def _summary(event: BusEvent) -> str:
    data = event.data
    if "task" in data:
        return f"{data['task']}: {data['error']}" if "error" in data else str(data["task"])
    agents = data.get("activeAgentIds", ())
    reason = f": {data['reason']}" if data.get("reason") else ""
    return f"{_counted(len(agents), 'agent')}{reason}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
