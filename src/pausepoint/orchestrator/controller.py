"""The pause button over many agents: a pause signals them, waits until all are idle, and saves a snapshot.

The controller keeps no references to agents. It knows the registry, and the registry knows ids. The state is `paused`
only when every agent is idle and the snapshot is on disk; `Phase` also has the transitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum

from pausepoint.clock import Clock, SystemClock
from pausepoint.errors import DamagedSnapshot, SnapshotMissing, VerbRefused
from pausepoint.orchestrator.bus import EventBus, OrchestratorPaused, OrchestratorResumed
from pausepoint.orchestrator.registry import IDLE_TIMEOUT, AgentRegistry
from pausepoint.orchestrator.snapshot import RunStateSnapshot, SnapshotStore


class OrchestratorState(StrEnum):
    """Whether a run is running or paused."""

    RUNNING = "running"
    PAUSED = "paused"


class Phase(StrEnum):
    """The state, and the transitions between its two values."""

    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"


class PauseResumeController:
    """Pauses and resumes all agents of a registry as one."""

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
        """Return `paused` while all agents are idle and their snapshot is on disk, else `running`."""
        paused = self._phase in (Phase.PAUSED, Phase.RESUMING)
        return OrchestratorState.PAUSED if paused else OrchestratorState.RUNNING

    @property
    def phase(self) -> Phase:
        """The current phase. `pausing`: a pause was requested, and an agent or the snapshot is not done yet."""
        return self._phase

    def found_paused(self) -> None:
        """Record that the run was paused before this process opened it, with a snapshot to resume from."""
        self._phase = Phase.PAUSED

    async def found_running(self) -> None:
        """Record that the agents work again: someone resumed them without this controller."""
        if self._phase is Phase.PAUSED:
            self._phase = Phase.RUNNING
            await self._emit_resumed(self.agent_registry.active_ids())

    async def pause(
        self, reason: str = "", by: str | None = None, *, signalled: float | None = None,
        said: Callable[[], Awaitable[OrchestratorPaused | None]] | None = None,
    ) -> None:  # fmt: skip
        """Stop every agent after its current step. Return when all are idle and the snapshot is on disk.

        If an agent does not stop (`AgentsStuck`) or the snapshot cannot be saved (`SnapshotNotSaved`), the phase stays
        `pausing`, without a snapshot or an event. Call `pause` again to keep waiting, or `resume` to withdraw it. If
        someone else withdraws it meanwhile, `VerbRefused` is raised and the agents continue.
        ``signalled``: how many seconds ago someone else signalled the agents. ``said``: called when all are idle; it
        returns the event that another process emitted for this pause, which is then passed to the listeners here.
        """
        async with self._one_at_a_time:
            if self._phase is Phase.PAUSED:
                return
            self._phase = Phase.PAUSING
            began = self._clock.monotonic()
            if signalled is None:
                await self.agent_registry.signal_pause(reason, by)
            active = self.agent_registry.active_ids()
            try:
                await self.agent_registry.await_all_idle(self.idle_timeout)
            except VerbRefused:  # someone withdrew the pause
                self._phase = Phase.RUNNING
                raise
            self.stopped_in = self._clock.monotonic() - began + (signalled or 0.0)
            heard = None if said is None else await said()
            now = self._clock.now() // 1000 if heard is None else heard.timestamp
            if heard is None or not await self._reuse(now):
                await self.snapshot_store.save_snapshot(await self._snapshot(now))
            self._phase = Phase.PAUSED
            if heard is None:
                await self.event_bus.emit(OrchestratorPaused(now, active, reason, by, round(self.stopped_in, 6)))
            else:
                self.event_bus.tell(heard)

    async def _reuse(self, at: int) -> bool:
        """Return whether the snapshot of a pause is in the snapshot store."""
        with suppress(DamagedSnapshot):
            snapshot = await self.snapshot_store.load_snapshot()
            return snapshot is not None and snapshot.paused_at == at
        return False

    async def _snapshot(self, now: int) -> RunStateSnapshot:
        registry = self.agent_registry
        return RunStateSnapshot(now, tuple(await registry.agent_states()), tuple(await registry.pending_tasks()))

    async def resume(self) -> None:
        """Resume every agent from the snapshot. If one cannot be resumed, all stay paused.

        A pause that is under way is waited for. A pause that could not be completed is withdrawn, without a snapshot
        and without an event, because none was written for it.
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
                snapshot = await self._resume_all()
            except BaseException:
                self._phase = Phase.PAUSED
                raise
            self._phase = Phase.RUNNING
            await self._emit_resumed(tuple(state.id for state in snapshot.active_agents))

    async def _emit_resumed(self, active: tuple[str, ...]) -> None:
        await self.event_bus.emit(OrchestratorResumed(self._clock.now() // 1000, active))

    async def _resume_all(self) -> RunStateSnapshot:
        snapshot = await self.snapshot_store.load_snapshot()
        if snapshot is None:
            raise SnapshotMissing(
                f"There is no snapshot to resume from in {self.snapshot_store!r}. Restore the snapshot, or resume the"
                " sessions one by one with session.resume()."
            )
        await self.agent_registry.restore_from_snapshot(snapshot)
        await self.agent_registry.signal_resume()
        return snapshot
