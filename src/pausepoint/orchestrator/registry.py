"""The agents of a run, by id: what a controller needs of them, and agents that are plain loops in this process.

A registry holds no agent: it knows ids and looks agents up. Who made an agent keeps it; one that nobody keeps any more
is not active.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

from pausepoint.errors import AgentsStuck, DefinitionError, RestoreRefused
from pausepoint.name import NAME
from pausepoint.orchestrator.snapshot import AgentState, RunStateSnapshot, TaskState, ToolCall, unchanged

IDLE_TIMEOUT = 30.0
"""Seconds that a pause waits for the agents, unless it is told otherwise."""


class AgentRegistry(Protocol):
    """The agents that one button stops."""

    def active_ids(self) -> tuple[str, ...]:
        """Who is at work. While a pause is asked for: who was, when it was."""

    async def signal_pause(self, reason: str = "", by: str | None = None) -> None:
        """Have every agent stop at its next boundary. When it returns, none of them begins another step."""

    async def await_all_idle(self, timeout: float | None = IDLE_TIMEOUT) -> None:
        """Wait until all have stopped. Raises `AgentsStuck` with those that have not, after so many seconds."""

    async def agent_states(self) -> Sequence[AgentState]:
        """The states of the active agents, which stand still."""

    async def pending_tasks(self) -> Sequence[TaskState]:
        """The tasks that have not begun."""

    async def restore_from_snapshot(self, snapshot: RunStateSnapshot) -> None:
        """Have the agents as the snapshot says; none of them goes on yet. Raises `RestoreRefused`."""

    async def signal_resume(self) -> None:
        """Have all of them go on. Also takes back a pause that has not taken effect."""


Work = Callable[["Agent"], AsyncGenerator[None, None]]


class Agent:
    """A loop of atomic steps: an async generator, which is at a boundary whenever it yields.

    What must outlive a pause lies in ``task``, ``memory`` and ``pending_tool_calls``, as plain JSON values. At a pause
    the generator is closed where it yields; at a resume it is called anew, by then with the state of the snapshot.
    """

    def __init__(
        self, id: str, work: Work, *, task: dict[str, Any] | None = None, memory: dict[str, Any] | None = None,
        pending_tool_calls: Sequence[ToolCall] = (),
    ) -> None:  # fmt: skip
        self.id = id
        self.work = work
        self.task = task
        self.memory = memory if memory is not None else {}
        self.pending_tool_calls = list(pending_tool_calls)
        self.ended = False
        self.error: BaseException | None = None
        self._loop: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"Agent({self.id!r})"

    @property
    def state(self) -> AgentState:
        """What a snapshot keeps of it."""
        return AgentState(self.id, self.task, self.memory, tuple(self.pending_tool_calls))

    @state.setter
    def state(self, state: AgentState) -> None:
        self.task, self.memory = copy.deepcopy((state.task, state.memory))  # the snapshot stays as it is
        self.pending_tool_calls = list(state.pending_tool_calls)

    @property
    def idle(self) -> bool:
        """Whether it stands at a boundary, or has ended."""
        return self._loop is None

    async def finished(self) -> None:
        """Wait until its loop stops: its work is done or a pause took effect. Raises what it failed with."""
        if self._loop is not None:
            await asyncio.wait([self._loop])
        if self.error is not None:
            raise self.error

    def _go(self, paused: Callable[[], bool]) -> None:
        if self._loop is None and not self.ended:
            self._loop = asyncio.get_running_loop().create_task(self._run(paused), name=f"{NAME} agent {self.id}")

    async def _run(self, paused: Callable[[], bool]) -> None:
        try:
            while not (self.ended or paused()):  # once more if the pause was taken back while the generator closed
                await self._until(paused)
        finally:
            self._loop = None

    async def _until(self, paused: Callable[[], bool]) -> None:
        steps = self.work(self)
        try:
            while not paused():
                await anext(steps)
                await asyncio.sleep(0)  # a loop that awaits nothing must not keep the others from their turn
            await steps.aclose()
        except StopAsyncIteration:
            self.ended = True
        except Exception as error:
            self.ended, self.error = True, error


class Agents:
    """The agents of this process that are plain loops. Those that are added while all stand still wait like the others.

    ``revive`` makes the agents that a snapshot has and this process has not, and keeps them.
    """

    def __init__(self, revive: Callable[[AgentState], Agent] | None = None) -> None:
        self._agents: WeakValueDictionary[str, Agent] = WeakValueDictionary()
        self._revive = revive
        self._paused = False
        self._asked: tuple[str, ...] = ()

    def add(self, agent: Agent) -> Agent:
        """Take an agent in and have it work, unless a pause is asked for."""
        known = self._agents.get(agent.id)
        if known is not None and known is not agent and not known.ended:
            raise DefinitionError(f"there is an agent {agent.id!r} already; give each an id of its own")
        self._agents[agent.id] = agent
        if not self._paused:
            agent._go(self._is_paused)
        return agent

    def get(self, id: str) -> Agent | None:
        """The agent of an id, if somebody keeps it."""
        return self._agents.get(id)

    def waiting(self) -> tuple[str, ...]:
        """Who came since the pause was asked for."""
        return tuple(id for id in self._at_work() if id not in self._asked) if self._paused else ()

    def _is_paused(self) -> bool:
        return self._paused

    def _at_work(self) -> tuple[str, ...]:
        return tuple(id for id, agent in sorted(self._agents.items()) if not agent.ended)

    def active_ids(self) -> tuple[str, ...]:
        """See `AgentRegistry`."""
        return self._asked if self._paused else self._at_work()

    async def signal_pause(self, reason: str = "", by: str | None = None) -> None:
        """See `AgentRegistry`."""
        if not self._paused:
            self._asked = self._at_work()
            self._paused = True

    async def await_all_idle(self, timeout: float | None = IDLE_TIMEOUT) -> None:
        """See `AgentRegistry`."""
        loops = [agent._loop for agent in list(self._agents.values()) if agent._loop is not None]
        if loops:
            await asyncio.wait(loops, timeout=timeout)
        stuck = [agent.id for agent in self._agents.values() if not agent.idle]
        if stuck:
            raise stuck_for(stuck, timeout)

    async def agent_states(self) -> Sequence[AgentState]:
        """See `AgentRegistry`. They go on from it, so `SnapshotNotSaved` refuses what JSON would change."""
        found = [self._agents.get(id) for id in self._at_work()]
        return [unchanged(agent.state) for agent in found if agent is not None]

    async def pending_tasks(self) -> Sequence[TaskState]:
        """See `AgentRegistry`. Loops have no tasks beyond those that they are at."""
        return ()

    async def restore_from_snapshot(self, snapshot: RunStateSnapshot) -> None:
        """See `AgentRegistry`."""
        missing = [state for state in snapshot.active_agents if state.id not in self._agents]
        if missing and self._revive is None:
            names = ", ".join(state.id for state in missing)
            raise RestoreRefused(
                f"the snapshot has agents that are not here: {names}; add them, or give the registry a revive=",
                agent_ids=[state.id for state in missing],
            )
        for state in snapshot.active_agents:
            agent = self._agents.get(state.id)
            if agent is None and self._revive is not None:
                agent = self._agents[state.id] = self._revive(state)
            if agent is not None:
                agent.state = state

    async def signal_resume(self) -> None:
        """See `AgentRegistry`."""
        self._paused, self._asked = False, ()
        for agent in list(self._agents.values()):
            agent._go(self._is_paused)


def stuck_for(ids: Sequence[str], timeout: float | None) -> AgentsStuck:
    """What to say of agents that did not stop in time."""
    names = ", ".join(ids)
    return AgentsStuck(
        f"after {timeout:g} s these agents are still in the middle of a step: {names}; the pause stays asked for. Pause"
        " again to wait on, resume to take it back, or end what they wait for",
        agent_ids=list(ids),
    )
