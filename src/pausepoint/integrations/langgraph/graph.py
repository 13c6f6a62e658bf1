"""A graph as a workflow of one step: its supersteps are operations, its interrupts are questions.

The thread of the graph is in a drawer of the session. When the step runs again, after a kill, a pause or an answer, the
thread says what to do: begin with the input, answer open interrupts, continue, or return the output.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec
from secrets import token_hex
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from langchain_core.messages import AIMessageChunk
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
)
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS
from langgraph.constants import START
from langgraph.pregel import Pregel
from langgraph.types import Command, StateSnapshot
from msgspec.structs import replace
from pydantic import BaseModel

from pausepoint import Context, DefinitionError, Limit, Workflow, step
from pausepoint.integrations.langgraph.saver import PausepointSaver, strict, to_config
from pausepoint.integrations.langgraph.schemas import blocked_types, plain, types_of
from pausepoint.integrations.langgraph.threads import Data, Place, StoredCheckpoint, Threads, Write

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
    from langgraph.graph import StateGraph
    from langgraph.types import Interrupt, PregelTask, StreamMode

DRAWER = "langgraph"
"""The drawer of a session that has the thread of its graph."""

WORDS = ("question", "message", "description", "prompt", "text", "title")
"""The keys of an interrupt's value whose text is asked, the first one that there is."""

PULLED = "~__pregel_pull, "
"""The beginning of the path of a task that an edge has led to. The name of its node follows."""

BRANCH, JOIN = "branch:to:", "join:"
"""The beginnings of the channels that lead to a node: from one node, and from several that must all have ended."""

SLACK = 2**21
"""The bytes that a thread may have beside what the graph needs to continue, unless that is more."""

LONGEST = 60
"""The most characters of an operation's name. Further nodes of a superstep are counted."""


class GraphRun(BaseModel):
    """The state of a session that runs a graph: what the graph gets, and what it returns, as plain JSON."""

    input: Any = None
    output: Any = None


def workflow(
    graph: StateGraph[Any, Any, Any, Any] | Pregel[Any, Any, Any, Any], *, name: str, version: int = 1,
    config: RunnableConfig | None = None, context: Any = None, allow: Iterable[type] = (), stream: bool = False,
    questions_expire: timedelta | EllipsisType | None = ..., hold: timedelta | float | None = None,
    queue: str | None = None, priority: int | None = None, limit: Limit | None = None,
) -> Workflow[GraphRun]:  # fmt: skip
    """Return a workflow that runs a graph. Start it with ``engine.start(agent, input={…})``.

    A pause takes effect after the superstep that runs. After a kill, nodes that have ended do not run again. Each
    ``interrupt()`` is a question in the inbox, and its answer is the value that ``interrupt()`` returns. The output of
    the graph is the field ``output`` of the session's state.

    - ``graph``: a ``StateGraph`` or a compiled graph. It is not changed. The workflow keeps the thread in its session,
      so a checkpointer that the graph was compiled with is not used.
    - ``config``: for every run of the graph, such as ``{"recursion_limit": 200}``.
    - ``context``: the context of the graph's runtime.
    - ``allow``: types that values may contain, beside those that the schemas of the graph mention.
    - ``stream``: send the text of chat models to the followers of the session, as ``ctx.stream`` does.

    The other options are those of `Workflow`. Raises `DefinitionError` if the graph cannot be a workflow.
    """
    compiled = graph if isinstance(graph, Pregel) else graph.compile()
    _check(compiled, name)
    serde = strict({*types_of(compiled), *allow})
    subgraphs = {name for name, node in compiled.nodes.items() if isinstance(node.bound, Pregel)}

    @step(writes="output", name="graph")
    async def run(input: Any, ctx: Context) -> Any:
        return await ctx.do(drive, input, key="graph")

    async def drive(input: Any, ctx: Context) -> Any:
        id = await ctx.do(thread, key="thread")
        if await ctx.drawer(DRAWER).get(f"t/{id}") is None:
            raise LookupError(
                f"The thread of session {ctx.session_id!r} is no longer in its drawer {DRAWER!r}, so the graph cannot"
                " continue. Rewind the session to start the graph again."
            )
        ctx.branch_by(_task)
        saver = SessionSaver(ctx, id, serde, subgraphs)
        return await _Runner(ctx, compiled, saver, config, context, stream).run(input)

    drive.__qualname__ = "graph"  # the name of the operation
    return Workflow(
        name, state=GraphRun, steps=[run], version=version, questions_expire=questions_expire, hold=hold, queue=queue,
        priority=priority, limit=limit,
    )  # fmt: skip


def _check(graph: Pregel[Any, Any, Any, Any], name: str) -> None:
    problems = []
    for path, each in [("", graph), *graph.get_subgraphs(recurse=True)]:
        what = f"the subgraph {path!r}" if path else "it"
        if getattr(each, "interrupt_before_nodes", ()) or getattr(each, "interrupt_after_nodes", ()):
            problems.append(
                f"{what} was compiled with interrupt_before or interrupt_after. Call interrupt() in a node instead: its"
                " value says what is asked."
            )
        if not path:
            continue
        if isinstance(getattr(each, "checkpointer", None), BaseCheckpointSaver):
            problems.append(
                f"the subgraph {path!r} was compiled with a checkpointer of its own, whose threads the session does not"
                " have. Compile it without one, or with checkpointer=True to keep its state between calls."
            )
    if problems:
        raise DefinitionError(f"The graph cannot be workflow {name!r}: {' '.join(problems)}", workflow=name)


def _task() -> str:
    """Return the task of the graph that the calling code belongs to; an empty string outside of all tasks."""
    config = var_child_runnable_config.get() or {}
    return str(config.get("configurable", {}).get("checkpoint_ns", ""))


async def thread(ctx: Context) -> str:
    """Note a new thread in the drawer, and return its id. A rewind starts another one, a fork has its own copy."""
    id = token_hex(8)
    await ctx.drawer(DRAWER).put(f"t/{id}", b"")
    return id


class SessionSaver(PausepointSaver):
    """Keeps one thread in a drawer of its session. Each superstep of the graph is an operation.

    ``names`` are the nodes of the tasks that have begun, by the id of the task. ``ran`` are those that have ended since
    the last checkpoint, in the order in which they did. ``subgraphs`` are the nodes that are graphs. ``overdue`` says
    whether an earlier run has stored checkpoints, so that nobody knows how many. ``continues`` says whether nodes get
    the values that are loaded.
    """

    def __init__(self, ctx: Context, thread: str, serde: JsonPlusSerializer, subgraphs: Collection[str] = ()) -> None:
        self.threads = Threads(ctx.drawer(DRAWER))
        super().__init__(self.threads, serde=serde)
        self.place = Place(thread)
        self.names: dict[str, str] = {}
        self.ran: dict[str, None] = {}
        self._inside: dict[str, None] = {}
        self._subgraphs = subgraphs
        self._ctx = ctx
        self.overdue = self.continues = False
        self._most = SLACK

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:  # fmt: skip
        """Store a checkpoint. If no node runs now, a pause takes effect here."""
        stored, values = self._stored(config, checkpoint, metadata, new_versions)
        if stored.place == self.place:
            stored = replace(stored, nodes=list(self.ran))
            self.names, self.ran = {}, {}
        elif outer := self._alone(stored.ns):
            stored = replace(stored, nodes=[f"{outer}: {node}" for node in self._inside])
            self._inside = {}
        await self.threads.put(stored, values)
        if self.threads.stored > self._most or (self.overdue and stored.place == self.place):
            await self.trim(stored.place)
        if stored.nodes:
            await self.remember(stored)
        return to_config(stored.place, stored.id)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store writes of a task. A task with other than special ones has ended."""
        if any(name not in WRITES_IDX_MAP for name, _ in writes):
            if task_id in self.names:
                self.ran[self.names[task_id]] = None
            elif self._alone(config["configurable"].get("checkpoint_ns", "")) and task_path.startswith(PULLED):
                node = task_path.removeprefix(PULLED)
                self._inside |= {} if node == START else {node: None}
        await super().aput_writes(config, writes, task_id, task_path)

    def _load(self, channel: str, data: Data) -> Any:
        with blocked_types() as blocked:
            value = super()._load(channel, data)
        if blocked and self.continues and channel not in WRITES_IDX_MAP:
            raise TypeError(
                f"The thread of session {self._ctx.session_id!r} has a value of {', '.join(sorted(blocked))} in channel"
                f" {channel!r}, and the graph would continue with a dict instead. Mention the type in a schema of the"
                " graph, or pass allow=[…] to workflow(). Then resume the session."
            )
        return value

    def _alone(self, ns: str) -> str:
        """Return the node of a subgraph if no other node of the graph runs beside it; otherwise an empty string."""
        node = next(iter(self.names.values())) if len(self.names) == 1 else ""
        return node if node in self._subgraphs and "|" not in ns and ns.startswith(f"{node}:") else ""

    async def trim(self, place: Place) -> None:
        """Delete the checkpoints of a graph that are not needed to continue after its last one.

        The next time is when as many bytes are stored as stayed. So the work is in proportion to what is stored.
        """
        kept = await self.threads.trim(place)
        self._most = self.threads.stored + max(kept, SLACK)
        self.overdue = self.overdue and place != self.place

    async def remember(self, head: StoredCheckpoint) -> None:
        """Remember a superstep as an operation, which counts as progress and has the names of the nodes."""
        await self._ctx.do(_operation(head.nodes), key=head.id)


class _Open(NamedTuple):
    """An interrupt that waits for an answer. ``key`` differs for each time that a node has raised it."""

    key: str
    node: str
    interrupt: Interrupt


class _Runner:
    """Runs a graph in a step until it ends."""

    def __init__(
        self, ctx: Context, graph: Pregel[Any, Any, Any, Any], saver: SessionSaver, config: RunnableConfig | None,
        context: Any, stream: bool,
    ) -> None:  # fmt: skip
        self._ctx, self._saver, self._context = ctx, saver, context
        self._modes: list[StreamMode] = ["tasks", "messages"] if stream else ["tasks"]
        self._graph = graph.copy({"checkpointer": saver})
        given = dict(config or {})
        configurable = {**given.get("configurable", {}), "thread_id": saver.place.thread}  # type: ignore[dict-item]
        self._config = cast("RunnableConfig", {**given, "configurable": configurable})

    async def run(self, input: Any) -> Any:
        """Return the output of the graph, as plain JSON."""
        stopped = await self._saver.threads.head(self._saver.place) is None
        if stopped:
            await self._continue(input)
        else:
            self._saver.overdue = True
            await self._check(await self._graph.aget_state(self._config, subgraphs=True))
        while (state := await self._graph.aget_state(self._config)).next:
            head = await self._saver.threads.head(self._saver.place)
            assert head is not None
            if head.nodes:
                await self._saver.remember(head)  # unless a pause or a kill came first, it is remembered already
            waiting = await self._open(state, head)
            if stopped and not waiting:
                raise RuntimeError(
                    f"The graph stopped in {_listed(state.next)} and asks nothing: a subgraph was called with"
                    " interrupt_before or interrupt_after. Call interrupt() in a node instead. Resume the session to"
                    " continue behind the place where it stopped."
                )
            await self._continue(await self._resume(waiting))
            stopped = True
        await self._saver.trim(self._saver.place)
        return plain(self._output(state.values))

    async def _check(self, state: StateSnapshot, path: str = "") -> None:
        """Raise `LookupError` if the thread has begun nodes that the graph no longer has."""
        graph = dict(self._graph.get_subgraphs(recurse=True)).get(path) if path else self._graph
        place = Place(self._saver.place.thread, state.config["configurable"].get("checkpoint_ns") or "")
        found = await self._saver.aget_tuple(to_config(place))
        if found is None or not isinstance(graph, Pregel):
            return
        values, tasks = found.checkpoint["channel_values"], {task.id for task in state.tasks}
        lost = [each.node for each in values.get(TASKS) or () if each.node not in graph.nodes]
        for channel in values.keys() - graph.channels.keys():
            if channel.startswith(BRANCH) or (channel.startswith(JOIN) and values[channel]):
                lost.append(channel.removeprefix(BRANCH).removeprefix(JOIN))
        for each in await self._saver.threads.writes(place, found.checkpoint["id"]):
            if each.channel == INTERRUPT and each.task not in tasks and each.path.startswith(PULLED):
                lost.append(each.path.removeprefix(PULLED))
        if lost:
            raise LookupError(
                f"The thread of session {self._ctx.session_id!r} has to continue in {_listed(lost)}, which the graph no"
                " longer has. Resume the session with the graph that it began with, or rewind it to start the graph"
                " again."
            )
        for task in state.tasks:
            if isinstance(task.state, StateSnapshot):
                await self._check(task.state, f"{path}|{task.name}".removeprefix("|"))

    async def _continue(self, given: Any) -> None:
        """Run the graph until it ends or waits for answers."""
        self._saver.continues = True
        news = self._graph.astream(
            given, self._config, context=self._context, stream_mode=self._modes, durability="sync"
        )  # fmt: skip
        async for mode, found in cast("AsyncIterator[tuple[str, Any]]", news):
            if mode == "messages":
                message = found[0]
                if isinstance(message, AIMessageChunk) and (text := str(message.text)):
                    self._ctx.stream(text)
            elif "input" in found:  # a task begins
                self._saver.names[found["id"]] = found["name"]
        self._saver.continues = False

    async def _resume(self, waiting: list[_Open]) -> Command[Any] | None:
        if not waiting:
            return None
        answers = await asyncio.gather(*(self._ask(each) for each in waiting))
        # By id: the order of parallel interrupts is not that of their nodes.
        return Command(resume={each.interrupt.id: answer for each, answer in zip(waiting, answers, strict=True)})

    async def _ask(self, each: _Open) -> Any:
        value, schema = plain(each.interrupt.value), each.interrupt.response_schema
        text = question(value, each.node)
        if isinstance(schema, Mapping) and find_spec("jsonschema") is not None:
            return await self._ctx.ask(text, schema=schema, key=each.key, payload=value)
        return await self._ctx.ask(text, Any, key=each.key, payload=value)

    async def _open(self, state: StateSnapshot, head: StoredCheckpoint) -> list[_Open]:
        writes = await self._saver.threads.writes(self._saver.place, head.id)
        ended = {each.task for each in writes if each.position >= 0}
        self._saver.ran = dict.fromkeys(task.name for task in state.tasks if task.id in ended)
        raised = {each.task: each for each in writes if each.channel == INTERRUPT and each.task not in ended}
        failed = {each.task: each for each in writes if each.channel == ERROR}
        found = []
        for task in state.tasks:
            stop, error = raised.get(task.id), failed.get(task.id)
            if stop is None or await self._is_answered(task, stop, writes):
                continue  # the node runs again with the answers that it has
            for each in task.interrupts:
                # A node that has a schema and failed before it kept the answer was given one that does not fit.
                again = error if each.response_schema and error and error.version > stop.version else None
                key = f"{each.id}:{stop.stamp}" + (f":{again.stamp}" if again else "")
                found.append(_Open(key, task.name, each))
        return found

    async def _is_answered(self, task: PregelTask, stop: Write, writes: list[Write]) -> bool:
        """Whether a task, or one inside it, has kept an answer since the task was interrupted.

        The answer must not be given again: the task would take it as that of its next interrupt.
        """
        for each in writes:
            own, inside = each.task == task.id and each.stamp != stop.stamp, f", {stop.path}, " in each.path
            if each.channel == RESUME and (own or (inside and each.version > stop.version)):
                return True
        # A subgraph that keeps its state between calls has a namespace without the id of the task.
        spaces = (f"{task.name}:{task.id}", task.name)
        return await self._saver.threads.resumed(self._saver.place.thread, spaces) > stop.version

    def _output(self, values: Any) -> Any:
        names = self._graph.output_channels
        return values if isinstance(names, str) else {name: values[name] for name in names if name in values}


def question(value: Any, node: str) -> str:
    """Return the text of the question for the value of an interrupt.

    >>> question("Send it?", "send"), question({"question": "Send it?", "to": "Ada"}, "send"), question([1], "send")
    ('Send it?', 'Send it?', "Node 'send' waits for an answer.")
    """
    found = value
    if isinstance(value, Mapping):
        requests = value.get("action_requests")
        first = requests[0] if isinstance(requests, list) and requests else value
        found = next((first[word] for word in WORDS if isinstance(first, Mapping) and first.get(word)), None)
    return found if isinstance(found, str) and found.strip() else f"Node {node!r} waits for an answer."


def _listed(nodes: Iterable[str]) -> str:
    return ", ".join(repr(each) for each in sorted(set(nodes)))


@functools.cache
def _named(name: str) -> Callable[[], Coroutine[Any, Any, None]]:
    async def superstep() -> None:
        """The work is done when this is called."""

    superstep.__qualname__ = superstep.__name__ = name
    return superstep


def _operation(nodes: Sequence[str]) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return a function with the names of nodes, for the operation that stands for a superstep."""
    names = list(dict.fromkeys(re.sub(r"[/~\[\]<>]", "-", node) for node in nodes))
    text = ", ".join(names)
    return _named(text if len(text) <= LONGEST else f"{names[0]:.40} and {len(names) - 1} more")
