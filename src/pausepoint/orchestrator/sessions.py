"""Sessions of the engine as agents: those that match a filter, in whatever process they run; and the one of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any
from weakref import WeakValueDictionary

from pausepoint.engine.control import Control
from pausepoint.errors import AlreadyRunning, DefinitionError, RestoreRefused, UnknownSession
from pausepoint.model.sessions import Filter, SessionRow, Status
from pausepoint.orchestrator.registry import IDLE_TIMEOUT, stuck_for
from pausepoint.orchestrator.snapshot import AgentState, RunStateSnapshot, TaskState, ToolCall, readable
from pausepoint.orchestrator.workflow import TaskAgent, TaskStatus

_AT_WORK = (Status.RUNNING, Status.WAITING, Status.SLEEPING)
_LEFT_ALONE = (Status.PAUSING, Status.PAUSED)


class SessionAgents:
    """An `AgentRegistry` of sessions: all of a workflow, a tag or an owner, or everything in the store.

    Their truth is in the store. A snapshot holds a copy of it, and is compared with it before they go on. What somebody
    else has paused stays paused.
    """

    def __init__(
        self, engine: Control, *, workflow: str | None = None, tag: str | None = None, owner: str | None = None
    ) -> None:
        self.engine = engine
        self._query = Filter(workflow=workflow, tag=tag, owner=owner, unended=True)
        self._everything = workflow is tag is owner is None
        self._lifts = self._everything  # not if somebody else's pause of everything stood before ours
        self._before: dict[str, Status] = {}  # how the sessions stood when the pause was asked for

    def active_ids(self) -> tuple[str, ...]:
        """See `AgentRegistry`. The sessions that ran, waited or slept when the pause was asked for."""
        return tuple(sorted(id for id, status in self._before.items() if status in _AT_WORK))

    async def signal_pause(self, reason: str = "", by: str | None = None) -> None:
        """See `AgentRegistry`. A session of another process hears of it within about 50 ms."""
        query = self._query
        if not self._before:
            self._before = {row.session_id: row.status for row in await self.engine.store.find(query)}
            self._lifts = self._everything and await self.engine.store.standing_pause() is None
        await self.engine.pause(
            workflow=query.workflow, tag=query.tag, owner=query.owner, everything=self._everything, reason=reason, by=by
        )
        await self.engine.driver._refresh()  # from now on the sessions of this process know

    async def await_all_idle(self, timeout: float | None = IDLE_TIMEOUT) -> None:
        """See `AgentRegistry`. A session that was started meanwhile is asked as well."""
        await parked(self.engine, self._query, timeout, late=self._ask_too)

    async def _ask_too(self, row: SessionRow) -> None:
        self._before[row.session_id] = Status.RUNNING
        await self.engine.pause(row.session_id, reason="it was started while all were asked to stop")

    async def agent_states(self) -> Sequence[AgentState]:
        """See `AgentRegistry`."""
        rows = [await self.engine._row(id) for id in self.active_ids()]
        return [await self._state(row) for row in rows if row.ended is None]

    async def _state(self, row: SessionRow) -> AgentState:
        stored = await self.engine.stored(row.session_id)
        task = {"workflow": row.workflow, "step": row.step, "visit": row.visit}
        asked = await self.engine.questions(row.session_id)
        calls = tuple(ToolCall(each.id, "ask", {"question": each.next_question}) for each in asked)
        return AgentState(row.session_id, task, stored.values, calls, row.session_id, row.seq)

    async def pending_tasks(self) -> Sequence[TaskState]:
        """See `AgentRegistry`. Sessions that nobody drove, with the status that they had."""
        found = sorted((id, status) for id, status in self._before.items() if status not in _AT_WORK)
        return [TaskState(id, status=status.value) for id, status in found]

    async def restore_from_snapshot(self, snapshot: RunStateSnapshot) -> None:
        """See `AgentRegistry`."""
        for state in snapshot.active_agents:
            row = await check(self.engine, state)
            if row.ended is None:
                self._check_known(row)
        self._before = {task.id: Status(task.status) for task in snapshot.pending_tasks}
        self._before |= dict.fromkeys((state.id for state in snapshot.active_agents), Status.RUNNING)

    def _check_known(self, row: SessionRow) -> None:
        try:
            self.engine._workflow_of(row)
        except DefinitionError as error:
            raise RestoreRefused(str(error), agent_ids=[row.session_id]) from error

    async def signal_resume(self) -> None:
        """See `AgentRegistry`. They go on in this process, which has to know their workflows; all of them, or none."""
        gone_on: list[str] = []
        try:
            for session_id, status in self._before.items():
                if status in _AT_WORK:
                    await go_on(self.engine, session_id)
                    gone_on.append(session_id)
        except Exception:
            await self._stop_again(gone_on)
            raise
        for session_id, status in self._before.items():
            if status not in (*_AT_WORK, *_LEFT_ALONE):
                await self.engine.store.unpause(session_id, None, self.engine.clock.now())
        if self._lifts:
            await self.engine.resume(everything=True)
        self._before = {}
        self.engine.driver.on_change()

    async def _stop_again(self, gone_on: Sequence[str]) -> None:
        for session_id in gone_on:
            await self.engine.pause(session_id, reason="another session could not be resumed with it")
            await parked(self.engine, Filter(session_id=session_id, unended=True), IDLE_TIMEOUT)


class RunAgents:
    """The `AgentRegistry` of a run: its agents are at work in one session, on the tasks of its graph."""

    def __init__(self, engine: Control, session_id: str, tasks: Callable[[], Awaitable[list[TaskStatus]]]) -> None:
        self.engine = engine
        self.session_id = session_id
        self._tasks = tasks
        self._agents: WeakValueDictionary[str, TaskAgent] = WeakValueDictionary()
        self._left: dict[str, tuple[str, dict[str, Any], tuple[ToolCall, ...]]] = {}
        self._asked: tuple[str, ...] | None = None
        self.budget: float | Decimal | None = None  # what the next resume sets

    def begun(self, agent: TaskAgent) -> None:
        """An agent is at work on a task."""
        self._agents[agent.task.id] = agent

    def left(self, agent: TaskAgent) -> None:
        """The step was left: how the agent stood is all that stays."""
        self._left[agent.task.id] = agent.id, agent.memory, tuple(agent.pending_tool_calls)

    def ended(self, task: str) -> None:
        """An agent is done with a task."""
        self._agents.pop(task, None)

    def active_ids(self) -> tuple[str, ...]:
        """See `AgentRegistry`."""
        return self._asked if self._asked is not None else self._at_work()

    def _at_work(self) -> tuple[str, ...]:
        return tuple(sorted({agent.id for agent in self._agents.values()}))

    async def signal_pause(self, reason: str = "", by: str | None = None) -> None:
        """See `AgentRegistry`."""
        await self.remember()
        if (await self.engine.info(self.session_id)).status is not Status.PAUSED:
            await self.engine.pause(self.session_id, reason=reason, by=by)
            await self.engine.driver._refresh()  # from now on it knows

    async def remember(self) -> None:
        """Who is at work; once all stand still, nobody is."""
        if self._asked is None:
            self._left.clear()
            self._asked = self._at_work() or tuple(sorted({each.agent for each in await self._tasks() if each.begun}))

    async def await_all_idle(self, timeout: float | None = IDLE_TIMEOUT) -> None:
        """See `AgentRegistry`. Also what the tasks have called has to stand still."""
        tree = Filter(session_id=self.session_id, tree=True, unended=True)
        await parked(self.engine, tree, timeout, self._busy)

    def _busy(self) -> list[str]:
        return sorted(f"{agent.id} (task {agent.task.id})" for agent in self._agents.values() if agent.in_step)

    async def agent_states(self) -> Sequence[AgentState]:
        """See `AgentRegistry`. Who is in the middle of a task; and who was at work when the pause was asked for."""
        row = await self.engine._row(self.session_id)
        here: dict[str, Any] = {"session_id": self.session_id, "seq": row.seq}
        working = []
        for each in await self._tasks():
            if each.begun:
                id, memory, calls = self._left.get(each.task.id, (each.agent, {}, ()))
                task = each.task.model_dump() | {"data": readable(each.task.data)}
                shown = {str(key): readable(value) for key, value in memory.items()}
                working.append(AgentState(id, task, shown, calls, **here))
        known = {state.id for state in working}
        idle = [AgentState(id, **here) for id in self._asked or () if id not in known]
        return sorted([*working, *idle], key=lambda state: state.id)

    async def pending_tasks(self) -> Sequence[TaskState]:
        """See `AgentRegistry`."""
        return [
            TaskState(each.task.id, tuple(each.task.needs), each.task.priority, each.status, readable(each.task.data))
            for each in await self._tasks()
            if each.status in ("pending", "failed")
        ]

    async def restore_from_snapshot(self, snapshot: RunStateSnapshot) -> None:
        """See `AgentRegistry`."""
        for state in snapshot.active_agents:
            if state.session_id != self.session_id:
                raise RestoreRefused(
                    f"the snapshot is of another run: {state.id} works in session {state.session_id!r}, this one is"
                    f" {self.session_id!r}; give this run a snapshot store of its own",
                    agent_ids=[state.id],
                )
            await check(self.engine, state)

    async def signal_resume(self) -> None:
        """See `AgentRegistry`."""
        await go_on(self.engine, self.session_id, self.budget)
        self.forget()

    def forget(self) -> None:
        """Agents are at work again."""
        self._asked = None


async def parked(
    engine: Control, query: Filter, timeout: float | None, busy: Callable[[], list[str]] = list,
    late: Callable[[SessionRow], Awaitable[None]] | None = None,
) -> None:  # fmt: skip
    """Wait until nobody drives any of these sessions. ``busy`` names those in them that are in the middle of a step.

    ``late`` is told of those that nobody has asked to stop.
    """
    live: list[SessionRow] = []
    try:
        async with asyncio.timeout(timeout):
            while live := [row for row in await engine.store.find(query) if row.live]:
                if late is not None:
                    for row in [row for row in live if not row.pause_requested]:
                        await late(row)
                await _stands(engine, live)
    except TimeoutError:
        raise stuck_for(busy() or [_described(engine, row) for row in live], timeout) from None


async def _stands(engine: Control, live: list[SessionRow]) -> None:
    """Until those that are driven here have stopped; if there are none, until another process wrote."""
    runs = [run for row in live if (run := engine.driver.runs.get(row.session_id)) is not None]
    if runs:
        await asyncio.wait([run.task for run in runs])
        return
    with engine.driver.listening(live[0].session_id) as news:
        if (await engine._row(live[0].session_id)).live:
            await engine._news_of(news)


def _described(engine: Control, row: SessionRow) -> str:
    ours = row.holder == engine.store.number
    return row.session_id if ours else f"{row.session_id} ({engine.store.describe_holder(row.holder)})"


async def check(engine: Control, state: AgentState) -> SessionRow:
    """The session of an agent. Refuse a snapshot of a session that is gone, or that knows less than the snapshot."""
    try:
        row = await engine._row(state.session_id or state.id)
    except UnknownSession as error:
        raise RestoreRefused(
            f"agent {state.id!r} of the snapshot is session {state.session_id!r}, which is not in this store; look at"
            " the store's path, or put the session back",
            agent_ids=[state.id],
        ) from error
    if row.seq < state.seq:
        raise RestoreRefused(
            f"session {row.session_id!r} is at record {row.seq} and was at {state.seq} when it was paused: the store is"
            " older than the snapshot; put the newer store back, or resume the session itself to go on from what is"
            " here",
            agent_ids=[state.id],
        )
    return row


async def go_on(engine: Control, session_id: str, budget: float | Decimal | None = None) -> None:
    """Resume a session; that it goes on already, or was cancelled, is as good."""
    row = await engine._row(session_id)
    if row.status is not Status.CANCELLED:
        with suppress(AlreadyRunning):
            await engine.resume(session_id, budget=budget)
