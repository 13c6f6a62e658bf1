"""``always_replay``: run every step again from its top after each of its operations.

Every test run then takes the path of a resume after a crash. As soon as an operation is remembered, the engine
exits the step, reads the log again, and runs the step's body from its top against the remembered operations. A
step that does not ask for the same operations again fails with `NotReplayable`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, Unpack

from pausepoint.codec.values import Typed
from pausepoint.definition.workflow import BoundStep
from pausepoint.engine.engine import Engine
from pausepoint.errors import NotReplayable
from pausepoint.log.access import StateAccess
from pausepoint.log.state import Blobs, Change
from pausepoint.model.commits import Facts
from pausepoint.runtime.drive import Drive
from pausepoint.runtime.inside import StepPlace
from pausepoint.runtime.interrupts import Exited
from pausepoint.runtime.keep import Keeper
from pausepoint.runtime.visit import Frame, Operation, Visit

C = TypeVar("C", bound=Engine)

PATIENCE = 0.2
"""Seconds that a branch waits for its replay while others are in flight. One of them may be waiting for this branch."""


def always_replay(engine: C) -> C:
    """Make this engine run every step again from its top after each operation, and return the engine.

    If a step does not ask for the same operations again, awaiting its outcome raises `NotReplayable`.
    """
    engine._service.drive_class = ReplayingDrive
    return engine


class ReplayingVisit(Visit):
    """A visit that stops after each new operation so that the step exits, and notes the operations it was asked for."""

    def __init__(self, host: Drive, step: BoundStep, number: int, attempt: int) -> None:
        super().__init__(host, step, number, attempt)
        self.claimed: set[str] = set()
        self.fresh: list[str] = []

    def remembered(self, operation: Operation) -> Any:
        found = super().remembered(operation)
        if found is not None:
            self.claimed.add(operation.id)
        return found

    async def keep(
        self, operation: Operation, result: Typed, value: Any, started: float | None, frame: Frame,
        outcome: str = "", **facts: Unpack[Facts],
    ) -> bytes:  # fmt: skip
        data = await super().keep(operation, result, value, started, frame, outcome, **facts)
        self.fresh.append(operation.id)
        if isinstance(self.host, ReplayingDrive):
            self.host.kept_ids.add(operation.id)
        # Exit only after this run has claimed everything the previous run remembered. Otherwise branches that race
        # would never record their results. Do not exit while the session stops: a stop has its own safe points.
        if isinstance(self.host, ReplayingDrive) and not self.host.must_stop and not self.host.missing(self):
            await self._leave_from(frame, self.host)
        return data

    async def settle_mail(self, frame: Frame | None) -> list[str]:
        done = await super().settle_mail(frame)
        self.fresh += done
        if isinstance(self.host, ReplayingDrive):
            self.host.kept_ids.update(done)
            # At the end of the step there is no branch left that could run again.
            if done and frame is not None and not self.host.must_stop and not self.host.missing(self):
                await self._leave_from(frame, self.host)
        return done

    async def _leave_from(self, frame: Frame, drive: ReplayingDrive) -> None:
        """Wait until the step exits. Continue instead if another operation in flight waits for this branch."""
        drive.again = True
        release = self.loop.call_later(PATIENCE, self.reconsider)
        try:
            await self.halt(frame)
            drive.again = False
        finally:
            release.cancel()


class NoKeeper(Keeper):
    """Keeps no step in memory: it would prove nothing about its replay."""

    def _may_keep(self) -> bool:
        return False


class ReplayingDrive(Drive):
    """A drive that exits a step after each operation, reads the log again and starts the step from its top."""

    visits = ReplayingVisit
    keepers = NoKeeper
    expected: frozenset[str] = frozenset()
    kept_ids: set[str]  # of the current attempt
    again = False

    async def _attempt(self, step: BoundStep, attempt: int, blobs: Blobs) -> tuple[Change, ...]:
        self.kept_ids = set()  # the next attempt need not repeat the operations of a failed one
        while True:
            self.expected = frozenset(self.kept_ids)
            self.again = False
            try:
                return await super()._attempt(step, attempt, blobs)
            except Exited:
                if not self.again or self.must_stop or self.broken is not None:
                    raise
            blobs.clear()
            await self._read_again()

    async def _call(self, step: BoundStep, values: dict[str, Any], inside: StepPlace) -> Any:
        value = await super()._call(step, values, inside)
        if isinstance(self.visit, ReplayingVisit) and (missing := self.missing(self.visit)):
            raise _not_replayable(step, self.line.visit, missing, self.visit)
        return value

    async def _retry(self, step: BoundStep, attempt: int, error: Exception) -> bool:
        if isinstance(error, NotReplayable):
            raise error
        return await super()._retry(step, attempt, error)

    async def _checkpoint(self, step: BoundStep, *args: Any, **options: Any) -> None:
        await super()._checkpoint(step, *args, **options)
        if not self.ledger.parked:
            await self._read_again()

    async def _read_again(self) -> None:
        """Discard everything that is not in the store, as if another process had taken over."""
        self.ledger.pending.clear()
        self.ledger.load(await self.store.records(self.row.key, self.ledger.key_frame))
        self.line = self.ledger.line
        self.access = StateAccess(self.workflow, self.line.state, self.store, self.limits)
        self.access.fill_new_fields()

    def missing(self, visit: ReplayingVisit) -> list[str]:
        """Return the operations that the previous run remembered and this run has not asked for."""
        return sorted(id for id in self.expected - visit.claimed if not inside(id, visit.claimed))


def inside(id: str, claimed: Iterable[str]) -> bool:
    """Return whether an operation is nested in a claimed one. Nested operations are not asked for again."""
    return any(id.startswith(f"{outer}/") for outer in claimed)


def _not_replayable(step: BoundStep, number: int, missing: list[str], visit: ReplayingVisit) -> NotReplayable:
    instead = f"asked for {', '.join(visit.fresh)} instead" if visit.fresh else "did not ask for them"
    return NotReplayable(
        f"{step.name}#{number} does not replay. An earlier run remembered {', '.join(missing)}; the replay {instead}."
        " Move everything that varies between runs (time, randomness, set order, changed globals) into an operation.",
        step=step.name, visit=number, operations=missing, instead=list(visit.fresh),
    )  # fmt: skip
