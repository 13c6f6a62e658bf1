"""The snapshot of a paused run, and where it is stored.

A snapshot is read and written as a whole. Its JSON keys are camelCase.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol

import msgspec

from pausepoint.errors import DamagedSnapshot, SnapshotNotSaved
from pausepoint.stores.disk import Folder, Upload, make_folder
from pausepoint.threads import in_thread

DEFAULT_PATH = Path(".devs") / "state_snapshot.json"
"""Where `FileStateStore` writes it, relative to the workspace."""

_PART = re.compile(r"\.[0-9a-f]{32}\.part")
_PLAIN = "plain values in memory and tool calls: text, finite numbers, lists, dictionaries with string keys"


class ToolCall(msgspec.Struct, frozen=True, rename="camel"):
    """A tool call that an agent has decided on. ``id`` is the same for every attempt."""

    id: str
    name: str
    arguments: dict[str, Any] = {}


class AgentState(msgspec.Struct, frozen=True, rename="camel"):
    """One agent between two steps: the context of its task, its memory, and its pending tool calls.

    An agent that works in a session of the engine has the session's id and record number. The session is the truth; the
    rest is a copy for readers of the snapshot.
    """

    id: str
    task: dict[str, Any] | None = None
    memory: dict[str, Any] = {}
    pending_tool_calls: tuple[ToolCall, ...] = ()
    session_id: str | None = None
    seq: int = 0


class TaskState(msgspec.Struct, frozen=True, rename="camel"):
    """A task that had not begun."""

    id: str
    needs: tuple[str, ...] = ()
    priority: int = 0
    status: str = "pending"
    data: Any = None


class RunStateSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """A paused run. ``paused_at`` is in milliseconds since 1970.

    >>> to_json(RunStateSnapshot(1_700_000_000_000))
    b'{"pausedAt":1700000000000,"activeAgents":[],"pendingTasks":[]}'
    """

    paused_at: int
    active_agents: tuple[AgentState, ...] = ()
    pending_tasks: tuple[TaskState, ...] = ()


_decode = msgspec.json.Decoder(RunStateSnapshot).decode
_decode_agent = msgspec.json.Decoder(AgentState).decode


def to_json(snapshot: RunStateSnapshot) -> bytes:
    """Encode a snapshot. Raises `SnapshotNotSaved` for a value that JSON cannot represent."""
    try:
        return msgspec.json.encode(snapshot)
    except (TypeError, ValueError, RecursionError) as error:
        raise SnapshotNotSaved(f"The state of an agent cannot be written as JSON ({error}). Use {_PLAIN}.") from error


def unchanged(state: AgentState) -> AgentState:
    """Return a state that JSON preserves. Raises `SnapshotNotSaved` for others: a set would become a list.

    >>> unchanged(AgentState("ada", memory={"seen": {1, 2}}))
    Traceback (most recent call last):
    ...
    pausepoint.errors.SnapshotNotSaved: JSON would change memory['seen'] of agent 'ada'. Use plain values ...
    """
    try:
        back = _decode_agent(msgspec.json.encode(state))
    except (TypeError, ValueError, RecursionError) as error:
        raise SnapshotNotSaved(
            f"The state of agent {state.id!r} cannot be written as JSON ({error}). Use {_PLAIN}."
        ) from error
    if back == state:
        return state
    parts = {"task": (state.task or {}, back.task or {}), "memory": (state.memory, back.memory)}
    other = [f"{name}[{key!r}]" for name, (was, now) in parts.items() for key in was if now.get(key) != was[key]]
    raise SnapshotNotSaved(
        f"JSON would change {', '.join(other) or 'the tool calls'} of agent {state.id!r}. Use {_PLAIN}."
    )


def readable(value: Any) -> Any:
    """Return a copy for display that JSON can represent: other values become text.

    >>> readable({"from": Path("a.txt"), "seen": {1}, (1, 2): b"key"})
    {'from': 'a.txt', 'seen': [1], '(1, 2)': 'a2V5'}
    """
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=str))
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def from_json(data: bytes, place: str) -> RunStateSnapshot:
    """Decode a stored snapshot. Raises `DamagedSnapshot` with the place."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamagedSnapshot(
            f"The snapshot in {place} cannot be read: {error}. Restore a good copy, or resume the sessions one by one.",
            path=place,
        ) from error


class SnapshotStore(Protocol):
    """Stores the last snapshot of one run. A save that raises leaves the previous snapshot unchanged."""

    async def save_snapshot(self, snapshot: RunStateSnapshot) -> None:
        """Replace the snapshot. When this returns, it is on disk."""

    async def load_snapshot(self) -> RunStateSnapshot | None:
        """Return the last snapshot, or None. Raises `DamagedSnapshot`."""


class FileStateStore:
    """A snapshot as a JSON file: ``<workspace>/.devs/state_snapshot.json``, or another ``path`` (below the workspace).

    The file is written to a temporary file in the same folder, synced, and renamed. So a reader sees the previous
    snapshot or the new one, whatever interrupts the write. Temporary files of dead processes are removed.
    """

    def __init__(self, workspace: str | Path = ".", path: str | Path = DEFAULT_PATH) -> None:
        self.path = Path(workspace).resolve() / path
        self._folder = Folder(self.path.parent, hidden=True)

    def __repr__(self) -> str:
        return f"FileStateStore({str(self.path)!r})"

    async def save_snapshot(self, snapshot: RunStateSnapshot) -> None:
        """See `SnapshotStore`."""
        await in_thread(self._save, to_json(snapshot))

    async def load_snapshot(self) -> RunStateSnapshot | None:
        """See `SnapshotStore`."""
        data = await in_thread(self._load)
        return None if data is None else from_json(data, str(self.path))

    def _save(self, data: bytes) -> None:
        try:
            make_folder(self.path.parent.parent)
            with Upload(self._folder) as upload:
                upload.write(data)
                upload.finish()
                upload.publish(self.path.name, replace=True)
            self._clear()
        except OSError as error:
            raise SnapshotNotSaved(
                f"The snapshot could not be written to {self.path}: {error.strerror or error}. The previous snapshot is"
                " unchanged. Fix the cause, then pause again.",
                path=str(self.path),
            ) from error

    def _load(self) -> bytes | None:
        try:
            with self._folder.read(self.path.name) as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DamagedSnapshot(
                f"{self.path} cannot be read: {error.strerror or error}. Fix the cause, then resume again.",
                path=str(self.path),
            ) from error

    def _clear(self) -> None:
        """Remove temporary files that no living process writes to. Other files in the folder are not ours."""
        for stray in self._folder.strays({self.path.name}):
            try:
                if _PART.fullmatch(stray.name):
                    stray.remove()
            finally:
                stray.close()
