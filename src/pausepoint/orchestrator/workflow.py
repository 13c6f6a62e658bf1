"""A run as a session of the engine: one step, in which every task is an operation.

So a run keeps the engine's promises: finished tasks are remembered, a kill costs only the work in flight, and any
process can pause the run. The result of a task, or its error, is the result of the operation. A failed task runs again
only when someone asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, overload

from pydantic import BaseModel

from pausepoint.codec.values import encode
from pausepoint.errors import ContextClosed, TasksFailed, error_text
from pausepoint.orchestrator.bus import TaskCompleted, TaskFailed, TaskStarted
from pausepoint.orchestrator.graph import Board, Task
from pausepoint.orchestrator.snapshot import ToolCall, readable
from pausepoint.runtime.context import Context

R = TypeVar("R")


class Plan(BaseModel):
    """The state of a run: its tasks, and the changes that people made to them.

    ``skipped``: tasks that count as done, with the reason. ``again``: how often a task was requested again.
    """

    tasks: list[Task]
    skipped: dict[str, str] = {}
    again: dict[str, int] = {}


class Ended(NamedTuple):
    """The result or the error of a task."""

    result: Any = None
    error: str = ""


class TaskAgent:
    """An agent at work on one task: the argument of the function that does the tasks.

    ``results`` holds the results of the tasks that this one needs. Put plain values into ``memory`` to show them in a
    snapshot; a function that runs again fills it again.
    """

    def __init__(
        self, agent: str, task: Task, results: Mapping[str, Any], board: Board, ctx: Context,
        called: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        self.id = agent
        self.task = task
        self.results = dict(results)
        self.memory: dict[str, Any] = {}
        self.pending_tool_calls: list[ToolCall] = []
        self.ctx = ctx
        self.in_step = True
        self.is_away = False
        self._board = board
        self._called = called
        self._calls = 0

    def __repr__(self) -> str:
        return f"TaskAgent({self.id!r}, task={self.task.id!r})"

    @overload
    async def call(
        self, fn: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, key: str | int | None = None, **kwargs: Any
    ) -> R: ...
    @overload
    async def call(self, fn: Callable[..., R], /, *args: Any, key: str | int | None = None, **kwargs: Any) -> R: ...
    async def call(self, fn: Callable[..., Any], /, *args: Any, key: str | int | None = None, **kwargs: Any) -> Any:
        """Call a tool once, as an atomic step. A pause may take effect before the call, which is then pending.

        The result is remembered; see `Context.do` for how a call is recognised when the function runs again.
        """
        call = self._tool_call(fn, args, kwargs)
        self.pending_tool_calls.append(call)
        self.in_step = False
        # Not `boundary`, which would be one more frame to unwind for each of a thousand agents.
        await self.ctx.safe_point()
        self.in_step = True
        try:
            found = await self.ctx.do(fn, *args, key=key, **kwargs)
        except Exception:
            self.pending_tool_calls.remove(call)  # the call was made; a cancelled call stays pending
            raise
        self.pending_tool_calls.remove(call)
        await self._called()
        return found

    def _tool_call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> ToolCall:
        self._calls += 1
        name = getattr(fn, "__name__", type(fn).__name__)
        arguments = {"args": list(args)} | kwargs if args else kwargs
        return ToolCall(f"{self.task.id}/{self._calls}", name, {each: readable(arguments[each]) for each in arguments})

    async def boundary(self) -> None:
        """Mark a place between two atomic steps where a pause may take effect."""
        self.in_step = False
        await self.ctx.safe_point()
        self.in_step = True

    @asynccontextmanager
    async def away(self) -> AsyncIterator[Context]:
        """Free the agent for other tasks during a wait: ``async with agent.away() as ctx:``."""
        self._board.free(self.id)
        self.is_away, self.in_step = True, False
        try:
            yield self.ctx
        except Exception:
            await self._come_back()
            raise
        # Not if the step is being exited: there is nothing to return to.
        await self._come_back()

    async def _come_back(self) -> None:
        self.id = await self._board.back()
        self.is_away, self.in_step = False, True

    async def ask(self, question: str, kind: Any = str, **options: Any) -> Any:
        """Call `Context.ask` while the agent does other tasks."""
        async with self.away() as ctx:
            return await ctx.ask(question, kind, **options)

    async def confirm(self, what: str, **options: Any) -> Literal[True]:
        """Call `Context.confirm` while the agent does other tasks."""
        async with self.away() as ctx:
            return await ctx.confirm(what, **options)


Work = Callable[[TaskAgent], Awaitable[Any]]


class Foreman(Protocol):
    """Receives the progress of the tasks, in the process that runs them."""

    async def begun(self, agent: TaskAgent, event: TaskStarted) -> None:
        """Called when an agent begins a task."""

    def exited(self, agent: TaskAgent) -> None:
        """Called when the step is exited while the agent is at work."""

    async def called(self) -> None:
        """Called when an agent has made a tool call."""

    async def ended(self, event: TaskCompleted | TaskFailed) -> None:
        """Called when a task has ended and its result is on disk."""


class Performance:
    """One execution of the step that runs the tasks."""

    def __init__(self, plan: Plan, agents: int, work: Work, foreman: Foreman, ctx: Context) -> None:
        self.plan = plan
        self.work = work
        self.foreman = foreman
        self.ctx = ctx
        self.board = Board(plan.tasks, agents, plan.skipped)

    async def run(self) -> None:
        """Run tasks until no more can begin. Raise one error for all tasks that failed."""
        async with asyncio.TaskGroup() as group:
            while (given := await self.board.take()) is not None:
                await self.ctx.safe_point()
                group.create_task(self._perform(*given))
        if self.board.failed:
            raise self._failure()

    async def _perform(self, what: Task, agent: str) -> None:
        again = self.plan.again.get(what.id, 0)
        worker: TaskAgent | None = None

        async def task(data: Any, ctx: Context) -> Ended:
            nonlocal worker
            needed = {need: self.board.results.get(need) for need in what.needs}
            worker = TaskAgent(agent, what, needed, self.board, ctx, self.foreman.called)
            return await self._done(worker, again + 1)

        try:
            ended = await self.ctx.do(task, what.data, key=f"{again}:{what.id}")
            if worker is not None:
                await self.foreman.ended(_event(worker, again + 1, ended))
        finally:
            if worker is None or not worker.is_away:
                self.board.free(agent if worker is None else worker.id)
        self._settle(what.id, ended)

    def _settle(self, id: str, ended: Ended) -> None:
        if ended.error:
            self.board.fails(id, ended.error)
        else:
            self.board.done(id, ended.result)
        self.ctx.progress(len(self.board.results), len(self.plan.tasks))

    async def _done(self, agent: TaskAgent, attempt: int) -> Ended:
        """Run a task. An exception is the task's result, unless the step is being exited or the store has failed."""
        host, task = agent.ctx._visit.host, agent.task.id
        started = TaskStarted(task, agent.id, attempt)
        await host.note(started.in_history(), task, started.data, agent=agent.id)
        await self.foreman.begun(agent, started)
        try:
            ended = Ended(await self.work(agent))
            encode(ended.result, f"the result of task {task}", host.limits)
        except asyncio.CancelledError:
            self.foreman.exited(agent)
            raise
        except ContextClosed:
            raise
        except Exception as error:
            if host.ledger.broken is not None:
                raise
            ended = Ended(error=f"{type(error).__name__}: {error_text(error)}")
        event = _event(agent, attempt, ended)
        agent.ctx.emit(event.in_history(), f"{task}: {ended.error}" if ended.error else task, **event.data)
        return ended

    def _failure(self) -> TasksFailed:
        failed, waiting = self.board.failed, self.board.blocked
        first = "; ".join(f"{id} ({error:.200})" for id, error in list(failed.items())[:3])
        more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
        waits = f" Number of tasks that wait for them: {len(waiting)}." if waiting else ""
        return TasksFailed(
            f"{len(failed)} of {len(self.plan.tasks)} tasks failed: {first}{more}.{waits} Retry or skip the failed"
            " tasks.",
            failed=dict(failed), waiting=waiting,
        )  # fmt: skip


def _event(agent: TaskAgent, attempt: int, ended: Ended) -> TaskCompleted | TaskFailed:
    if ended.error:
        return TaskFailed(agent.task.id, agent.id, ended.error, attempt)
    return TaskCompleted(agent.task.id, agent.id, attempt)
