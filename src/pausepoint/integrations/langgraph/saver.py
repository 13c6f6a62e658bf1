"""`PausepointSaver`: a checkpointer of LangGraph that keeps threads in a store of Pausepoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from pausepoint.integrations.langgraph.bridge import Bridge
from pausepoint.integrations.langgraph.threads import Data, Found, Place, StoredCheckpoint, Threads
from pausepoint.integrations.langgraph.values import next_version

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from pausepoint import Engine

DELTAS = "counters_since_delta_snapshot"
"""The metadata that names the delta channels of a checkpoint."""


class PausepointSaver(BaseCheckpointSaver[str], AbstractContextManager[Any], AbstractAsyncContextManager[Any]):
    """Keeps the threads of graphs in a store of Pausepoint: ``graph.compile(checkpointer=PausepointSaver(url))``.

    - ``store``: the URL or the path of a store, as for `Engine`, or an open engine, of any event loop. For a
      URL, the saver has an engine of its own; `close` closes it, and so does ``with PausepointSaver(…) as saver:``.
    - ``allow``: types that a stored value may contain, beside those that LangGraph always allows (messages, dates,
      standard types). Any other type is returned as plain data. LangGraph's own default imports and calls whatever the
      stored bytes name.
    - ``serde``: a serializer to use instead.

    A version of a channel's value is stored once. A list or a dict that only grew is stored as what was added.
    """

    def __init__(
        self, store: str | Path | Engine | Threads, *, allow: Iterable[type] = (),
        serde: SerializerProtocol | None = None,
    ) -> None:  # fmt: skip
        super().__init__(serde=serde or strict(allow))
        self._bridge = Bridge(store)

    def close(self) -> None:
        """Close the engine, if it is the saver's own. Safe to call twice."""
        self._bridge.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return a version after the current one, different from those of all other branches of the thread."""
        return next_version(current)

    # reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, by default the latest of the thread."""
        found = self._bridge.call(lambda threads: threads.get(_place(config), get_checkpoint_id(config)))
        return None if found is None else self._tuple(found)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, by default the latest of the thread."""
        found = await self._bridge.acall(lambda threads: threads.get(_place(config), get_checkpoint_id(config)))
        return None if found is None else self._tuple(found)

    def list(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None, limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:  # fmt: skip
        """Yield the checkpoints of a thread, or of all threads, the newest of each namespace first."""
        cursor = _Cursor(self, config, filter, before, limit)
        while found := self._bridge.call(cursor.next):
            yield found

    async def alist(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None, limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:  # fmt: skip
        """Yield the checkpoints of a thread, or of all threads, the newest of each namespace first."""
        cursor = _Cursor(self, config, filter, before, limit)
        while found := await self._bridge.acall(cursor.next):
            yield found

    def _tuple(self, found: Found) -> CheckpointTuple:
        stored, load = found.checkpoint, self.serde.loads_typed
        body = load(stored.body)
        body["channel_versions"] = dict(stored.versions)
        body["channel_values"] = {name: self._load(name, data) for name, data in found.values.items()}
        return CheckpointTuple(
            to_config(stored.place, stored.id),
            body,
            load(stored.metadata),
            None if stored.parent is None else to_config(stored.place, stored.parent),
            [(each.task, each.channel, self._load(each.channel, each.data)) for each in found.writes],
        )

    def _load(self, channel: str, data: Data) -> Any:
        """Return a value that is, or will be, the value of a channel."""
        return self.serde.loads_typed(data)

    # writing

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:  # fmt: skip
        """Store a checkpoint."""
        stored, values = self._stored(config, checkpoint, metadata, new_versions)
        self._bridge.call(lambda threads: threads.put(stored, values))
        return to_config(stored.place, stored.id)

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:  # fmt: skip
        """Store a checkpoint."""
        stored, values = self._stored(config, checkpoint, metadata, new_versions)
        await self._bridge.acall(lambda threads: threads.put(stored, values))
        return to_config(stored.place, stored.id)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store writes of a task that follows a checkpoint."""
        self._bridge.call(self._put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store writes of a task that follows a checkpoint."""
        await self._bridge.acall(self._put_writes(config, writes, task_id, task_path))

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> Callable[[Threads], Any]:
        dump, id = self.serde.dumps_typed, config["configurable"]["checkpoint_id"]
        data = [(WRITES_IDX_MAP.get(name, n), name, dump(value)) for n, (name, value) in enumerate(writes)]
        return lambda threads: threads.put_writes(_place(config), id, task, path, data)

    def _stored(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new: ChannelVersions
    ) -> tuple[StoredCheckpoint, dict[str, Data]]:
        body = cast(dict[str, Any], checkpoint.copy())
        values, versions = body.pop("channel_values"), body.pop("channel_versions")
        whole = cast(dict[str, Any], get_checkpoint_metadata(config, metadata))
        place, dump = _place(config), self.serde.dumps_typed
        stored = StoredCheckpoint(
            place.thread, place.ns, checkpoint["id"], get_checkpoint_id(config), dump(body), dump(whole),
            versions, str(whole.get("run_id") or ""), list(whole.get(DELTAS) or ()),
        )  # fmt: skip
        return stored, {name: dump(values[name]) for name in new if name in values and name in versions}

    # removing and copying

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread."""
        self._bridge.call(lambda threads: threads.remove_thread(str(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread."""
        await self._bridge.acall(lambda threads: threads.remove_thread(str(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs."""
        for each in run_ids:
            self._bridge.call(lambda threads, run=str(each): threads.remove_run(run))  # type: ignore[misc]

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs."""
        for each in run_ids:
            await self._bridge.acall(lambda threads, run=str(each): threads.remove_run(run))  # type: ignore[misc]

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread to another one."""
        self._bridge.call(lambda threads: threads.copy(str(source_thread_id), str(target_thread_id)))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread to another one."""
        await self._bridge.acall(lambda threads: threads.copy(str(source_thread_id), str(target_thread_id)))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete checkpoints: all but the latest of each namespace (``keep_latest``), or all (``delete``)."""
        self._bridge.call(_pruning(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete checkpoints: all but the latest of each namespace (``keep_latest``), or all (``delete``)."""
        await self._bridge.acall(_pruning(thread_ids, strategy))


class _Cursor:
    """Finds checkpoints, so that nothing is held while the caller looks at them. Values are read one by one."""

    def __init__(
        self, saver: PausepointSaver, config: RunnableConfig | None, filter: dict[str, Any] | None,
        before: RunnableConfig | None, limit: int | None,
    ) -> None:  # fmt: skip
        self._saver, self._filter, self._left = saver, filter, limit
        configurable = (config or {}).get("configurable", {})
        self._thread = None if config is None else str(configurable["thread_id"])
        self._ns: str | None = configurable.get("checkpoint_ns")
        self._id: str | None = configurable.get("checkpoint_id")
        self._before = None if before is None else get_checkpoint_id(before)
        self._pages: AsyncIterator[list[StoredCheckpoint]] | None = None
        self._wanted: Iterator[StoredCheckpoint] = iter(())

    async def next(self, threads: Threads) -> CheckpointTuple | None:
        """Return the next checkpoint; None after the last."""
        if self._pages is None:
            place = None if self._thread is None or self._ns is None else Place(self._thread, self._ns)
            self._pages = threads.checkpoints(place, self._thread, self._before)
        while self._left != 0:
            for each in self._wanted:
                self._left = None if self._left is None else self._left - 1
                return self._saver._tuple(await threads.complete(each))
            page = await anext(self._pages, None)
            if page is None:
                break
            self._wanted = filter(self._fits, page)
        return None

    def _fits(self, each: StoredCheckpoint) -> bool:
        if (self._ns is not None and each.ns != self._ns) or (self._id and each.id != self._id):
            return False
        if self._before is not None and each.id >= self._before:
            return False
        if not self._filter:
            return True
        metadata = self._saver.serde.loads_typed(each.metadata)
        return all(metadata.get(name) == value for name, value in self._filter.items())


def strict(allow: Iterable[type] = ()) -> JsonPlusSerializer:
    """Return LangGraph's serializer, restricted to the types that it regards as safe and to those that are passed."""
    return JsonPlusSerializer(allowed_msgpack_modules=[(each.__module__, each.__name__) for each in allow] or None)


def _pruning(thread_ids: Sequence[str], strategy: str) -> Callable[[Threads], Any]:
    if strategy not in ("keep_latest", "delete"):
        raise ValueError(f"strategy must be 'keep_latest' or 'delete', not {strategy!r}.")

    async def prune(threads: Threads) -> None:
        for each in thread_ids:
            await (threads.prune(str(each)) if strategy == "keep_latest" else threads.remove_thread(str(each)))

    return prune


def _place(config: RunnableConfig) -> Place:
    configurable = config["configurable"]
    return Place(str(configurable["thread_id"]), configurable.get("checkpoint_ns") or "")


def to_config(place: Place, id: str | None = None) -> RunnableConfig:
    """Return the config of LangGraph that names a checkpoint, by default the latest."""
    return {"configurable": {"thread_id": place.thread, "checkpoint_ns": place.ns, "checkpoint_id": id}}
