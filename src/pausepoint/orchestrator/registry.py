"""The agents of a run, by id: the protocol that a controller needs, and agents that are loops in this process.

A registry owns its agents until they end. A controller knows only the registry and the agents' ids.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Protocol

from pausepoint.errors import AgentsStuck, DefinitionError, RestoreRefused
from pausepoint.name import NAME
from pausepoint.orchestrator.snapshot import AgentState, RunStateSnapshot, TaskState, ToolCall, unchanged

IDLE_TIMEOUT = 30.0
"""How many seconds a pause waits for the agents by default."""


class AgentRegistry(Protocol):
    """The agents that one controller stops."""

    def active_ids(self) -> tuple[str, ...]:
        """Return the ids of the agents at work; during a pause, those at work when it was requested."""

    async def signal_pause(self, reason: str = "", by: str | None = None) -> None:
        """Ask every agent to stop after its current step. After this returns, no agent begins another step."""

    async def await_all_idle(self, timeout: float | None = IDLE_TIMEOUT) -> None:
        """Wait until all agents have stopped. After ``timeout`` seconds, raise `AgentsStuck` with the others."""

    async def agent_states(self) -> Sequence[AgentState]:
        """Return the states of the active agents, which are idle."""

    async def pending_tasks(self) -> Sequence[TaskState]:
        """Return the tasks that have not begun."""

    async def restore_from_snapshot(self, snapshot: RunStateSnapshot) -> None:
        """Set the agents to the state of the snapshot without running them. Raises `RestoreRefused`."""

    async def signal_resume(self) -> None:
        """Let all agents continue. This also withdraws a pause that has not taken effect."""


Work = Callable[["Agent"], AsyncGenerator[None, None]]


class Agent:
    """A loop of atomic steps: an async generator, which is at a boundary whenever it yields.

    Keep everything that must survive a pause in ``task``, ``memory`` and ``pending_tool_calls``, as plain JSON values.
    A pause closes the generator where it yields; a resume calls ``work`` again with the state of the snapshot.
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
        """The state that a snapshot stores."""
        return AgentState(self.id, self.task, self.memory, tuple(self.pending_tool_calls))

    @state.setter
    def state(self, state: AgentState) -> None:
        self.task, self.memory = copy.deepcopy((state.task, state.memory))  # the snapshot stays as it is
        self.pending_tool_calls = list(state.pending_tool_calls)

    @property
    def idle(self) -> bool:
        """Whether the agent is at a boundary or has ended."""
        return self._loop is None

    async def finished(self) -> None:
        """Wait until the loop stops: the work is done, or a pause took effect. Raise the error that ended it."""
        if self._loop is not None:
            await asyncio.wait([self._loop])
        if self.error is not None:
            raise self.error

    def _go(self, paused: Callable[[], bool], on_end: Callable[[Agent], None]) -> None:
        if self._loop is None and not self.ended:
            loop = asyncio.get_running_loop()
            self._loop = loop.create_task(self._run(paused, on_end), name=f"{NAME} agent {self.id}")

    async def _run(self, paused: Callable[[], bool], on_end: Callable[[Agent], None]) -> None:
        try:
            while not (self.ended or paused()):  # again if the pause was withdrawn while the generator closed
                await self._until(paused)
        finally:
            self._loop = None
            if self.ended:
                on_end(self)

    async def _until(self, paused: Callable[[], bool]) -> None:
        steps = self.work(self)
        try:
            while not paused():
                await anext(steps)
                await asyncio.sleep(0)  # so that a loop that awaits nothing lets the others run
            await steps.aclose()
        except StopAsyncIteration:
            self.ended = True
        except Exception as error:
            self.ended, self.error = True, error


class Agents:
    """The agents of this process that are plain loops. An agent that is added during a pause waits like the others.

    The registry keeps an agent until its work is done or fails. ``revive`` creates the agents of a snapshot that this
    process does not have.
    """

    def __init__(self, revive: Callable[[AgentState], Agent] | None = None) -> None:
        self._agents: dict[str, Agent] = {}
        self._revive = revive
        self._paused = False
        self._asked: tuple[str, ...] = ()

    def add(self, agent: Agent) -> Agent:
        """Add an agent and start it, unless a pause is requested."""
        namesake = self._agents.get(agent.id)
        if namesake is not None and namesake is not agent and not namesake.ended:
            raise DefinitionError(f"An agent with the id {agent.id!r} exists already. Give each agent its own id.")
        if not agent.ended:
            self._agents[agent.id] = agent
        if not self._paused:
            agent._go(self._is_paused, self._release)
        return agent

    def _release(self, agent: Agent) -> None:
        if self._agents.get(agent.id) is agent:
            del self._agents[agent.id]

    def get(self, id: str) -> Agent | None:
        """Return the agent with an id; None if there is none, or if it has ended."""
        return self._agents.get(id)

    def waiting(self) -> tuple[str, ...]:
        """Return the ids of the agents that were added since the pause was requested."""
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
        """See `AgentRegistry`. Raises `SnapshotNotSaved` for a value that JSON would change."""
        return [unchanged(self._agents[id].state) for id in self._at_work()]

    async def pending_tasks(self) -> Sequence[TaskState]:
        """See `AgentRegistry`. A loop has no tasks other than its current one."""
        return ()

    async def restore_from_snapshot(self, snapshot: RunStateSnapshot) -> None:
        """See `AgentRegistry`."""
        missing = [state for state in snapshot.active_agents if state.id not in self._agents]
        if missing and self._revive is None:
            names = ", ".join(state.id for state in missing)
            raise RestoreRefused(
                f"The snapshot has agents that this process does not have: {names}. Add them, or pass revive= to"
                " Agents.",
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
            agent._go(self._is_paused, self._release)


def stuck_for(ids: Sequence[str], timeout: float | None) -> AgentsStuck:
    """Return the error for agents that did not stop in time."""
    names = ", ".join(ids)
    return AgentsStuck(
        f"These agents did not finish their step within {timeout:g} s: {names}. The pause is still requested: pause"
        " again to keep waiting, or resume to withdraw it.",
        agent_ids=list(ids),
    )
