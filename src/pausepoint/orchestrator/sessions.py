"""Sessions as agents: all sessions that match a filter, in any process, or the one session of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any
from weakref import WeakValueDictionary

from pausepoint.engine.engine import Engine
from pausepoint.errors import AlreadyRunning, DefinitionError, RestoreRefused, UnknownSession, VerbRefused
from pausepoint.model.budgets import Amount
from pausepoint.model.sessions import Status
from pausepoint.model.views import Listing, SessionInfo
from pausepoint.orchestrator.registry import IDLE_TIMEOUT, stuck_for
from pausepoint.orchestrator.runs import TaskStatus
from pausepoint.orchestrator.snapshot import AgentState, RunStateSnapshot, TaskState, ToolCall, readable
from pausepoint.orchestrator.workflow import TaskAgent

_AT_WORK = (Status.RUNNING, Status.WAITING, Status.SLEEPING)
_LEFT_ALONE = (Status.PAUSING, Status.PAUSED, Status.FAILED)
_OPEN = tuple(status for status in Status if status not in (Status.COMPLETED, Status.FAILED, Status.CANCELLED))
_RESUMABLE = (*_OPEN, Status.FAILED)


class SessionAgents:
    """An `AgentRegistry` of sessions: all of a workflow, a tag or an owner, or everything in the store.

    The store is the truth. A snapshot holds a copy and is compared with the store before the sessions are resumed.
    Sessions that someone else paused stay paused.
    """

    def __init__(
        self, engine: Engine, *, workflow: str | None = None, tag: str | None = None, owner: str | None = None
    ) -> None:
        self.engine = engine
        self._which: Any = {"workflow": workflow, "tag": tag, "owner": owner}
        self._everything = workflow is tag is owner is None
        self._lifts = self._everything  # not if everything was paused before
        self._before: dict[str, Status] = {}  # the statuses when the pause was requested

    def active_ids(self) -> tuple[str, ...]:
        """See `AgentRegistry`. The sessions that ran, waited or slept when the pause was requested."""
        return tuple(sorted(id for id, status in self._before.items() if status in _AT_WORK))

    async def signal_pause(self, reason: str = "", by: str | None = None) -> None:
        """See `AgentRegistry`. A session of another process sees it within about 50 ms."""
        if not self._before:
            self._before = {info.session_id: info.status for info in await self._open()}
            self._lifts = self._everything and await self.engine.standing_pause() is None
        if self._everything:
            await self.engine.pause_all(reason, by=by)
        else:
            await self.engine.select(**self._which).pause(reason, by=by)

    async def _open(self) -> Listing[SessionInfo]:
        return await self.engine.sessions(**self._which, status=_RESUMABLE)

    async def await_all_idle(self, timeout: float | None = IDLE_TIMEOUT) -> None:
        """See `AgentRegistry`. A session that was started meanwhile is asked to pause, too."""
        await parked(self.engine, self._open, timeout, late=self._ask_too)

    async def _ask_too(self, info: SessionInfo) -> None:
        self._before[info.session_id] = Status.RUNNING
        await self.engine.session(info.session_id).pause(reason="it was started while all sessions were being paused")

    async def agent_states(self) -> Sequence[AgentState]:
        """See `AgentRegistry`."""
        found = [await self.engine.session(id).info() for id in self.active_ids()]
        return [await self._state(info) for info in found if info.status in _OPEN]

    async def _state(self, info: SessionInfo) -> AgentState:
        stored = await self.engine.session(info.session_id).stored()
        task = {"workflow": info.workflow, "step": info.step, "visit": info.visit}
        asked = await self.engine.session(info.session_id).questions()
        calls = tuple(ToolCall(each.id, "ask", {"question": each.next_question}) for each in asked)
        return AgentState(info.session_id, task, stored.values, calls, info.session_id, info.seq)

    async def pending_tasks(self) -> Sequence[TaskState]:
        """See `AgentRegistry`. The sessions that were not running, with their statuses."""
        found = sorted((id, status) for id, status in self._before.items() if status not in _AT_WORK)
        return [TaskState(id, status=status.value) for id, status in found]

    async def restore_from_snapshot(self, snapshot: RunStateSnapshot) -> None:
        """See `AgentRegistry`."""
        for state in snapshot.active_agents:
            info = await check(self.engine, state)
            if info.status in _OPEN:
                await self._check_known(info)
        self._before = {task.id: Status(task.status) for task in snapshot.pending_tasks}
        self._before |= dict.fromkeys((state.id for state in snapshot.active_agents), Status.RUNNING)

    async def _check_known(self, info: SessionInfo) -> None:
        try:
            await self.engine.session(info.session_id).definition()
        except DefinitionError as error:
            raise RestoreRefused(str(error), agent_ids=[info.session_id]) from error

    async def signal_resume(self) -> None:
        """See `AgentRegistry`. Resumes all sessions in this process, or none. The engine must know their workflows."""
        resumed: list[str] = []
        try:
            for session_id, status in self._before.items():
                if status in _AT_WORK:
                    await resume_session(self.engine, session_id)
                    resumed.append(session_id)
        except Exception:
            await self._stop_again(resumed)
            raise
        for session_id, status in self._before.items():
            if status not in (*_AT_WORK, *_LEFT_ALONE):
                await self.engine.session(session_id).resume(here=False)
        if self._lifts:
            await self.engine.lift_pause()
        self._before = {}

    async def _stop_again(self, resumed: Sequence[str]) -> None:
        for session_id in resumed:
            await self.engine.session(session_id).pause(
                reason="another session could not be resumed, so all were paused again"
            )
            await self.engine.idle(session_id)


class RunAgents:
    """The `AgentRegistry` of a run: its agents work on the tasks of one session."""

    def __init__(self, engine: Engine, session_id: str, tasks: Callable[[], Awaitable[list[TaskStatus]]]) -> None:
        self.engine = engine
        self.session_id = session_id
        self._tasks = tasks
        self._agents: WeakValueDictionary[str, TaskAgent] = WeakValueDictionary()
        self._exited: dict[str, tuple[str, dict[str, Any], tuple[ToolCall, ...]]] = {}
        self._asked: tuple[str, ...] | None = None
        self.budget: Amount | None = None  # for the next resume

    def begun(self, agent: TaskAgent) -> None:
        """Record that an agent has begun a task."""
        self._exited.pop(agent.task.id, None)
        self._agents[agent.task.id] = agent

    def exited(self, agent: TaskAgent) -> None:
        """Keep the state of an agent whose step is exited."""
        self._exited[agent.task.id] = agent.id, agent.memory, tuple(agent.pending_tool_calls)

    def ended(self, task: str) -> None:
        """Record that an agent has ended a task."""
        self._exited.pop(task, None)
        self._agents.pop(task, None)

    def active_ids(self) -> tuple[str, ...]:
        """See `AgentRegistry`."""
        return self._asked if self._asked is not None else self._at_work()

    def _at_work(self) -> tuple[str, ...]:
        return tuple(sorted({agent.id for agent in self._agents.values()}))

    async def signal_pause(self, reason: str = "", by: str | None = None) -> None:
        """See `AgentRegistry`."""
        await self.remember()
        if (await self.engine.session(self.session_id).info()).status is not Status.PAUSED:
            await self.engine.session(self.session_id).pause(reason=reason, by=by)

    async def remember(self) -> None:
        """Remember which agents are at work, or were when another process paused the run."""
        if self._asked is None:
            self._asked = self._at_work() or tuple(sorted({each.agent for each in await self._tasks() if each.begun}))

    async def await_all_idle(self, timeout: float | None = IDLE_TIMEOUT) -> None:
        """See `AgentRegistry`. Child sessions of the tasks have to be idle, too."""
        await parked(self.engine, self._tree, timeout, self._busy, withdrawn=self._withdrawn)

    def _withdrawn(self, info: SessionInfo) -> None:
        if info.session_id != self.session_id:
            return  # a child that began meanwhile; its parent asks it to stop
        self.forget()
        raise VerbRefused(
            f"The pause of run {self.session_id!r} was withdrawn while its agents were stopping, so they continue."
            " Pause it again if they should stop.",
            session_id=self.session_id, status=info.status.value,
        )  # fmt: skip

    async def _tree(self) -> Listing[SessionInfo]:
        return await self.engine.sessions(tree=self.session_id, status=_OPEN)

    def _busy(self) -> list[str]:
        return sorted(f"{agent.id} (task {agent.task.id})" for agent in self._agents.values() if agent.in_step)

    async def agent_states(self) -> Sequence[AgentState]:
        """See `AgentRegistry`. Includes the agents that were at work when the pause was requested."""
        info = await self.engine.session(self.session_id).info()
        here: dict[str, Any] = {"session_id": self.session_id, "seq": info.seq}
        working = []
        for each in await self._tasks():
            if each.begun:
                id, memory, calls = self._exited.get(each.task.id, (each.agent, {}, ()))
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
                    f"The snapshot belongs to another run: agent {state.id!r} works in session {state.session_id!r},"
                    f" and this run is {self.session_id!r}. Give each run its own snapshot store.",
                    agent_ids=[state.id],
                )
            await check(self.engine, state)

    async def signal_resume(self) -> None:
        """See `AgentRegistry`."""
        await resume_session(self.engine, self.session_id, self.budget)
        self.forget()

    def forget(self) -> None:
        """Forget which agents were at work."""
        self._asked = None


async def parked(
    engine: Engine, find: Callable[[], Awaitable[Sequence[SessionInfo]]], timeout: float | None,
    busy: Callable[[], list[str]] = list, late: Callable[[SessionInfo], Awaitable[None]] | None = None,
    withdrawn: Callable[[SessionInfo], None] = lambda info: None,
) -> None:  # fmt: skip
    """Wait until none of the sessions that ``find`` returns is running.

    ``busy`` returns the agents that are in the middle of a step. ``late`` and ``withdrawn`` are called with each
    running session that is not asked to pause: it began later, or the pause was withdrawn.
    """
    live: list[SessionInfo] = []
    try:
        async with asyncio.timeout(timeout):
            while live := [info for info in await find() if info.holder is not None]:
                for info in [info for info in live if not info.pause_requested]:
                    withdrawn(info)
                    if late is not None:
                        await late(info)
                await _next_stop(engine, live)
    except TimeoutError:
        raise stuck_for(busy() or [_described(engine, info) for info in live], timeout) from None


async def _next_stop(engine: Engine, live: list[SessionInfo]) -> None:
    """Wait until the sessions that run here have stopped, or one of them has changed: its pause may be withdrawn."""
    here = set(engine.running)
    ours = [info.session_id for info in live if info.session_id in here]
    waits = [asyncio.ensure_future(_next_change(engine, (ours or [live[0].session_id])[0]))]
    if ours:
        waits.append(asyncio.ensure_future(engine.idle(*ours)))
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)
    for wait in done:
        wait.result()  # raises what went wrong


async def _next_change(engine: Engine, session_id: str) -> None:
    async with aclosing(engine.session(session_id).watch()) as news:
        if (await anext(news)).holder is not None:
            await anext(news, None)


def _described(engine: Engine, info: SessionInfo) -> str:
    ours = info.session_id in engine.running
    return info.session_id if ours else f"{info.session_id} ({info.holder})"


async def check(engine: Engine, state: AgentState) -> SessionInfo:
    """Return the session of an agent. Raise `RestoreRefused` if it is missing, or older than the snapshot."""
    try:
        info = await engine.session(state.session_id or state.id).info()
    except UnknownSession as error:
        raise RestoreRefused(
            f"Session {state.session_id!r} of agent {state.id!r} is not in this store. Check the path of the store, or"
            " import the session.",
            agent_ids=[state.id],
        ) from error
    if info.seq < state.seq:
        raise RestoreRefused(
            f"Session {info.session_id!r} is at record {info.seq}, but was at {state.seq} when it was paused: the store"
            " is older than the snapshot. Restore the newer store, or resume the session itself with session.resume().",
            agent_ids=[state.id],
        )
    return info


async def resume_session(engine: Engine, session_id: str, budget: Amount | None = None) -> None:
    """Resume a session, unless it is running or was cancelled."""
    if (await engine.session(session_id).info()).status is not Status.CANCELLED:
        with suppress(AlreadyRunning):
            await engine.session(session_id).resume(budget=budget)
