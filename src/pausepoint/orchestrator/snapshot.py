"""What is kept of a run while it is paused: the snapshot, and the places that it can be kept in.

A snapshot is read and written as a whole. Its JSON keys are camel case, whoever reads it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol

import msgspec

from pausepoint.errors import DamagedSnapshot, SnapshotNotSaved
from pausepoint.stores.disk import Folder, Upload
from pausepoint.threads import in_thread

DEFAULT_PATH = Path(".devs") / "state_snapshot.json"
"""Where `FileStateStore` keeps it, below the workspace."""

_PART = re.compile(r"\.[0-9a-f]{32}\.part")
_PLAIN = "plain values in memory and tool calls: text, finite numbers, lists, dictionaries with texts as keys"


class ToolCall(msgspec.Struct, frozen=True, rename="camel"):
    """A tool call that an agent has decided on. ``id`` stays the same however often it is looked at or tried."""

    id: str
    name: str
    arguments: dict[str, Any] = {}


class AgentState(msgspec.Struct, frozen=True, rename="camel"):
    """One agent at its boundary: the context of its task, its memory, the tool calls that it has yet to make.

    An agent that is (in) a session of the engine names it, and how far its log was: there the truth is, and what stands
    here is a copy for whoever reads the snapshot.
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
    """A snapshot as it is stored. Raises `SnapshotNotSaved` for content that JSON cannot hold."""
    try:
        return msgspec.json.encode(snapshot)
    except (TypeError, ValueError, RecursionError) as error:
        raise SnapshotNotSaved(f"the state of an agent cannot be written as JSON ({error}); keep {_PLAIN}") from error


def unchanged(state: AgentState) -> AgentState:
    """A state that JSON gives back as it is. `SnapshotNotSaved` for another: a set would be a list, NaN nothing.

    >>> unchanged(AgentState("ada", memory={"seen": {1, 2}}))
    Traceback (most recent call last):
    ...
    pausepoint.errors.SnapshotNotSaved: agent 'ada' would find something else in memory['seen'] after a resume; keep ...
    """
    try:
        back = _decode_agent(msgspec.json.encode(state))
    except (TypeError, ValueError, RecursionError) as error:
        raise SnapshotNotSaved(
            f"the state of agent {state.id!r} cannot be written as JSON ({error}); keep {_PLAIN}"
        ) from error
    if back == state:
        return state
    parts = {"task": (state.task or {}, back.task or {}), "memory": (state.memory, back.memory)}
    other = [f"{name}[{key!r}]" for name, (was, now) in parts.items() for key in was if now.get(key) != was[key]]
    raise SnapshotNotSaved(
        f"agent {state.id!r} would find something else in {', '.join(other) or 'its tool calls'} after a resume; keep"
        f" {_PLAIN}"
    )


def readable(value: Any) -> Any:
    """A copy that JSON can hold, of what nobody goes on from: a value without a form in JSON is told in words.

    >>> readable({"from": Path("a.txt"), "seen": {1}, (1, 2): b"key"})
    {'from': 'a.txt', 'seen': [1], '(1, 2)': 'a2V5'}
    """
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=str))
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def from_json(data: bytes, place: str) -> RunStateSnapshot:
    """A stored snapshot. Raises `DamagedSnapshot`, naming the place."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamagedSnapshot(
            f"{place} is no snapshot of a run: {error}; put a good copy in its place, or resume its sessions"
            " themselves",
            path=place,
        ) from error


class SnapshotStore(Protocol):
    """Keeps the last snapshot of one run. A save that raises has left the former one as it was."""

    async def save_snapshot(self, snapshot: RunStateSnapshot) -> None:
        """Replace what was kept. When it returns, the snapshot is on disk."""

    async def load_snapshot(self) -> RunStateSnapshot | None:
        """What was saved last; None if nothing was. Raises `DamagedSnapshot`."""


class FileStateStore:
    """A snapshot as a JSON file: ``<workspace>/.devs/state_snapshot.json``, or another ``path`` (below the workspace).

    It is written to a temporary file in the same folder, made durable, and renamed: whoever reads, and whatever
    interrupts, there is the former snapshot or the new one. Temporary files of writers that are gone are cleared.
    """

    def __init__(self, workspace: str | Path = ".", path: str | Path = DEFAULT_PATH) -> None:
        self.path = Path(workspace).resolve() / path
        self._folder = Folder(self.path.parent)

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
            self.path.parent.parent.mkdir(parents=True, exist_ok=True)
            with Upload(self._folder) as upload:
                upload.write(data)
                upload.finish()
                upload.publish(self.path.name, replace=True)
            self._clear()
        except OSError as error:
            raise SnapshotNotSaved(
                f"the snapshot could not be written to {self.path} ({error.strerror or error}); the former one is as it"
                " was. Mend that, then pause again",
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
                f"{self.path} cannot be read ({error.strerror or error}); mend that, then resume again",
                path=str(self.path),
            ) from error

    def _clear(self) -> None:
        """Temporary files that no living process writes to. Whatever else is in the folder is not ours."""
        for stray in self._folder.strays({self.path.name}):
            try:
                if _PART.fullmatch(stray.name):
                    stray.remove()
            finally:
                stray.close()
