"""The pause button over many agents: signal, wait until all stand still, keep a snapshot, say so; and back again.

The controller holds no agent. It knows the registry, which knows ids. Its state says `paused` only once that is true
of every agent and on disk; what lies in between is a phase beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum

from pausepoint.clock import Clock, SystemClock
from pausepoint.errors import DamagedSnapshot, SnapshotMissing
from pausepoint.orchestrator.bus import EventBus, OrchestratorPaused, OrchestratorResumed
from pausepoint.orchestrator.registry import IDLE_TIMEOUT, AgentRegistry
from pausepoint.orchestrator.snapshot import RunStateSnapshot, SnapshotStore


class OrchestratorState(StrEnum):
    """Whether a run goes on."""

    RUNNING = "running"
    PAUSED = "paused"


class Phase(StrEnum):
    """The state, and the ways between its two values."""

    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"


class PauseResumeController:
    """See the module's text."""

    def __init__(
        self,
        event_bus: EventBus,
        snapshot_store: SnapshotStore,
        agent_registry: AgentRegistry,
        *,
        idle_timeout: float | None = IDLE_TIMEOUT,
        clock: Clock | None = None,
    ) -> None:
        self.event_bus = event_bus
        self.snapshot_store = snapshot_store
        self.agent_registry = agent_registry
        self.idle_timeout = idle_timeout
        self.stopped_in: float | None = None
        self._clock = clock or SystemClock()
        self._phase = Phase.RUNNING
        self._one_at_a_time = asyncio.Lock()

    def get_state(self) -> OrchestratorState:
        """`paused` from the moment that all agents stand still and the snapshot is on disk, until they go on."""
        paused = self._phase in (Phase.PAUSED, Phase.RESUMING)
        return OrchestratorState.PAUSED if paused else OrchestratorState.RUNNING

    @property
    def phase(self) -> Phase:
        """What is going on. `pausing`: a pause is asked for; some agent has yet to stop, or the snapshot to be kept."""
        return self._phase

    def found_paused(self) -> None:
        """The run was paused before this process came to it, and its snapshot is there: it can be resumed."""
        self._phase = Phase.PAUSED

    async def found_running(self) -> None:
        """Agents are at work although all were paused: somebody had them go on without this button."""
        if self._phase is Phase.PAUSED:
            self._phase = Phase.RUNNING
            await self._tell_resumed(self.agent_registry.active_ids())

    async def pause(
        self, reason: str = "", by: str | None = None, *, signalled: float | None = None,
        said: Callable[[], Awaitable[OrchestratorPaused | None]] | None = None,
    ) -> None:  # fmt: skip
        """Stop every agent after its current step. Returns when all stand still and that is on disk.

        If that cannot be (`AgentsStuck`, `SnapshotNotSaved`), the pause stays asked for, in phase `pausing`: no
        snapshot and no event claim otherwise. Call it again to go on waiting, or `resume` to take it back.
        ``signalled``: somebody else has told the agents, so many seconds ago. ``said``: asked, once all stand still,
        what another process, whose agents they are, has said of this pause; it is told on to the listeners here.
        """
        async with self._one_at_a_time:
            if self._phase is Phase.PAUSED:
                return
            self._phase = Phase.PAUSING
            began = self._clock.monotonic()
            if signalled is None:
                await self.agent_registry.signal_pause(reason, by)
            active = self.agent_registry.active_ids()
            await self.agent_registry.await_all_idle(self.idle_timeout)
            self.stopped_in = self._clock.monotonic() - began + (signalled or 0.0)
            heard = None if said is None else await said()
            now = self._clock.now() // 1000 if heard is None else heard.timestamp
            if heard is None or not await self._is_kept(now):
                await self.snapshot_store.save_snapshot(await self._snapshot(now))
            self._phase = Phase.PAUSED
            if heard is None:
                await self.event_bus.emit(OrchestratorPaused(now, active, reason, by, round(self.stopped_in, 6)))
            else:
                self.event_bus.tell(heard)

    async def _is_kept(self, at: int) -> bool:
        """Whether the snapshot of a pause is where this button would look for it."""
        with suppress(DamagedSnapshot):
            snapshot = await self.snapshot_store.load_snapshot()
            return snapshot is not None and snapshot.paused_at == at
        return False

    async def _snapshot(self, now: int) -> RunStateSnapshot:
        registry = self.agent_registry
        return RunStateSnapshot(now, tuple(await registry.agent_states()), tuple(await registry.pending_tasks()))

    async def resume(self) -> None:
        """Have every agent go on from the snapshot. If that cannot be, all stay paused.

        While a pause is under way it waits for that. One that could not be carried through is taken back, without a
        snapshot and without an event: there was none of a pause either.
        """
        async with self._one_at_a_time:
            if self._phase is Phase.RUNNING:
                return
            if self._phase is Phase.PAUSING:
                await self.agent_registry.signal_resume()
                self._phase = Phase.RUNNING
                return
            self._phase = Phase.RESUMING
            try:
                snapshot = await self._go_on()
            except BaseException:
                self._phase = Phase.PAUSED
                raise
            self._phase = Phase.RUNNING
            await self._tell_resumed(tuple(state.id for state in snapshot.active_agents))

    async def _tell_resumed(self, active: tuple[str, ...]) -> None:
        await self.event_bus.emit(OrchestratorResumed(self._clock.now() // 1000, active))

    async def _go_on(self) -> RunStateSnapshot:
        snapshot = await self.snapshot_store.load_snapshot()
        if snapshot is None:
            raise SnapshotMissing(
                f"there is no snapshot to resume from in {self.snapshot_store!r}; put it back, or resume its sessions"
                " themselves"
            )
        await self.agent_registry.restore_from_snapshot(snapshot)
        await self.agent_registry.signal_resume()
        return snapshot
