"""Sessions recorded as files, and rehearsed to find out what the current code would do differently.

`replay` runs the body of every step that the recorded session finished, with the recorded state and the
remembered operations. A rehearsal has no side effects: an operation that was not recorded does not run, and counts
as a difference.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
from pydantic import BaseModel

from pausepoint.codec.values import DEFAULT_LIMITS
from pausepoint.definition.workflow import BoundStep, Workflow
from pausepoint.engine import bundle
from pausepoint.engine.bundle import Bundle
from pausepoint.engine.session import Session
from pausepoint.errors import DefinitionError, StepError, StoreClosed, error_text
from pausepoint.log.access import StateAccess
from pausepoint.log.replay import CheckpointBody, Line, OperationBody, body_of
from pausepoint.log.state import Blobs, Change, Inline
from pausepoint.model.pauses import Paused
from pausepoint.model.records import Record
from pausepoint.runtime.children import Children
from pausepoint.runtime.drive import Drive
from pausepoint.runtime.inside import StepPlace
from pausepoint.runtime.interrupts import Exited
from pausepoint.runtime.spending import unmarked
from pausepoint.runtime.visit import Frame, Operation
from pausepoint.stores.base import Store
from pausepoint.testing.clock import ManualClock
from pausepoint.testing.inline import blocking
from pausepoint.testing.replay import ReplayingVisit, inside


@dataclass(frozen=True)
class Difference:
    """One difference between a recorded session and the current code. ``seq`` is the number of the record."""

    seq: int
    step: str
    visit: int
    what: str

    def __str__(self) -> str:
        return f"record {self.seq}, {self.step}#{self.visit}: {self.what}"


class RecordingDiffers(AssertionError):
    """The current code behaves differently from the recorded session. ``differences`` lists how."""

    def __init__(self, path: str | Path, differences: list[Difference]) -> None:
        self.differences = differences
        lines = "".join(f"\n  {difference}" for difference in differences)
        super().__init__(
            f"The current code differs from the recorded session {path}. Fix the code or record again:{lines}"
        )


async def record(session: Session[Any], path: str | Path) -> Path:
    """Write the session in its current state to a file that `replay` and `load` can read."""
    control = session._engine
    return bundle.write(await bundle.collect(control.store, session.id), path)


def load(path: str | Path, workflow: Workflow[Any]) -> BaseModel:
    """Read a recorded session, verify its digests, and return its last state."""
    kept = bundle.read(path)
    rehearsal = _Rehearsal(kept, workflow)
    for entry in kept.records:
        rehearsal.line.fold(entry, body_of(entry))
    return blocking(rehearsal.state)


def replay(path: str | Path, workflow: Workflow[Any]) -> None:
    """Rehearse a recorded session with the current code. Raise `RecordingDiffers` if the code behaves differently.

    The body of every finished step runs with the recorded state and the remembered operations. No operation runs
    and nothing is written. A step that was still running when the session was recorded is not rehearsed.
    """
    if differences := rehearse(path, workflow):
        raise RecordingDiffers(path, differences)


def rehearse(path: str | Path, workflow: Workflow[Any]) -> list[Difference]:
    """Return the differences between a recorded session and the current code; an empty list if there are none."""
    kept = bundle.read(path)
    if kept.workflow != workflow.name:
        raise DefinitionError(
            f"{path} is a session of workflow {kept.workflow!r}, not of {workflow.name!r}."
            f" Pass the workflow {kept.workflow!r}."
        )
    return blocking(_Rehearsal(kept, workflow).differences)


class _Shelf:
    """A read-only store for a rehearsal: it returns the large values of a bundle and refuses everything else."""

    def __init__(self, kept: Bundle) -> None:
        self.kept = kept

    async def blobs(self, hashes: Any) -> dict[bytes, bytes]:
        return {hash: self.kept.blobs[hash] for hash in hashes}

    def lease_left(self, number: int) -> None:
        """Return None: a rehearsal has no lease."""

    def __getattr__(self, name: str) -> Any:
        raise StoreClosed(f"A rehearsal has no store, so it cannot call {name!r}.")


class _Rehearsal:
    """Walks through a log: folds each record, and runs the step of each checkpoint before folding it."""

    def __init__(self, kept: Bundle, workflow: Workflow[Any]) -> None:
        self.kept = kept
        self.workflow = workflow
        self.store = cast(Store, _Shelf(kept))  # a rehearsal needs nothing else
        self.line = Line()

    async def state(self) -> BaseModel:
        """Return the state after the records folded so far."""
        access = StateAccess(self.workflow, self.line.state, self.store, DEFAULT_LIMITS)
        access.fill_new_fields()
        await access.prefetch()
        return cast(BaseModel, access.build())

    async def differences(self) -> list[Difference]:
        """Rehearse every finished visit and return the differences."""
        found: list[Difference] = []
        for entry in self.kept.records:
            body = body_of(entry)
            if isinstance(body, CheckpointBody) and not body.skipped.startswith("started at "):
                found += [Difference(entry.seq, entry.step, entry.visit, what) for what in await self._of(entry, body)]
            self.line.fold(entry, body)
        return found

    async def _of(self, entry: Record, body: CheckpointBody) -> list[str]:
        if entry.step not in {step.name for step in self.workflow.steps}:
            return [f"workflow {self.workflow.name!r} no longer has this step"]
        row, clock = self.kept.row(), ManualClock(auto=True)
        drive = _RehearsedDrive(self.store, self.workflow, row, clock, DEFAULT_LIMITS, cast(Children, self.store))
        drive.take_in(self.line)
        return await drive.rehearse(self.workflow.step(entry.step), body)


class _RehearsedVisit(ReplayingVisit):
    """A visit in which no operation may begin that was not recorded."""

    async def admit(self, operation: Operation, frame: Frame, found: OperationBody | None) -> None:
        assert isinstance(self.host, _RehearsedDrive)
        if found is None and self.host.has_failed(operation.id):
            raise StepError(f"{operation.name} failed when the session was recorded.")
        if found is None:
            self.fresh.append(operation.id)
            await self.halt(frame)
        elif found.input != operation.input:
            self.fresh.append(f"{operation.id} with other input")


class _RehearsedDrive(Drive):
    """Runs one visit as it was recorded and reports differences. Commits nothing."""

    visits = _RehearsedVisit
    last: _RehearsedVisit | None = None
    recorded: frozenset[str] = frozenset()

    def take_in(self, line: Line) -> None:
        """Continue from the folded log. The rehearsal works on a copy of its state."""
        self.line = self.ledger.line = line
        self.access = StateAccess(self.workflow, line.state.copy(), self.store, self.limits)
        self.access.fill_new_fields()
        self.flags = msgspec.structs.replace(self.flags, pause_requested=False, cancel_requested=False)
        self.interrupter.task = asyncio.current_task()

    async def over_budget(self, asking: int = 0) -> str:
        """Return no reason to stop: a rehearsal spends nothing."""
        return ""

    def has_failed(self, id: str) -> bool:
        """Return whether an item failed when the session was recorded. Failures are events, not operations."""
        return any(effect.startswith(f"failed:{id}:") for effect in self.recorded)

    async def rehearse(self, step: BoundStep, body: CheckpointBody) -> list[str]:
        """Run the visit and return its differences from the recorded one."""
        self.recorded = frozenset(self.line.effects | {effect.id for effect in body.effects})
        if step.when is not None and await self._holds(step.when) == bool(body.skipped):
            return ["it would run" if body.skipped else f"it would be skipped: {step.when.name} returns False"]
        changes: tuple[Change, ...] = ()
        blobs: Blobs = []
        if not body.skipped:
            try:
                changes = await self._attempt(step, body.attempts, blobs)
            except Exited:
                return self._strange()
            except Paused as paused:
                return [f"it would pause: {paused.reason}"]
            except Exception as error:
                return [*self._strange(), f"it raises {type(error).__name__}: {error_text(error)}"]
        differs = [*self._strange(), *_changed(body.changes, changes)]
        return differs or await self._elsewhere(step, body, changes, blobs)

    async def _call(self, step: BoundStep, values: dict[str, Any], inside: StepPlace) -> Any:
        self.last = self.visit if isinstance(self.visit, _RehearsedVisit) else None
        return await super()._call(step, values, inside)

    def _strange(self) -> list[str]:
        """Return the operations and events that are new, and those that the step no longer asks for."""
        visit = self.last
        if visit is None:
            return []
        found = [f"it asks for operation {id}, which was not recorded" for id in visit.fresh]
        new = self.ledger.pending.keys() - self.recorded
        found += [f"it emits {id}, which was not recorded" for id in sorted(new) if not id.startswith(_ENGINES_OWN)]
        if found or visit.attempt > 1:  # a later attempt need not repeat the operations of a failed one
            return found
        lost = sorted(id for id in visit.misses.unclaimed if not inside(id, visit.claimed))
        quiet = sorted(id for id in self.recorded if self._unheard(id, visit))
        return [f"it no longer asks for operation {id}" for id in lost] + [f"it no longer emits {id}" for id in quiet]

    def _unheard(self, id: str, visit: _RehearsedVisit) -> bool:
        base, _, count = unmarked(id).rpartition("#")
        if id.startswith(_ENGINES_OWN) or inside(id, visit.claimed):
            return False
        return visit.seen.get(base, 0) < int(count)

    async def _elsewhere(
        self, step: BoundStep, body: CheckpointBody, changes: tuple[Change, ...], blobs: Blobs
    ) -> list[str]:
        """Return how the session would continue differently after this step."""
        self.access.state.provide(dict(blobs))
        for change in changes:
            self.access.state.apply(change)
        settled, failure = await self._settle(step.name)
        if (failure is None) != (body.failure is None):
            return [f"its route fails: {failure.message}" if failure else "its route no longer fails"]
        if settled.refused != body.refused:
            return [f"a guard says {settled.refused!r}, not {body.refused!r}"]
        if settled.next != body.next:
            return [f"it leads to {settled.next or 'the end'}, not to {body.next or 'the end'}"]
        return []


_ENGINES_OWN = ("miss:", "failed:", "refused:")


def _changed(old: tuple[Change, ...], new: tuple[Change, ...]) -> list[str]:
    """Return the writes that differ, by path."""
    before, after = ({change.path: (change.act, _plain(change)) for change in changes} for changes in (old, new))
    found = [f"it no longer writes {path!r}" for path in before if path not in after]
    for path, value in after.items():
        if path not in before:
            found.append(f"it writes {path!r}, which was not recorded")
        elif value != before[path]:
            found.append(f"it writes {path!r} as {value[1]!r:.120}, not {before[path][1]!r:.120}")
    return found


def _plain(change: Change) -> Any:
    return msgspec.json.decode(change.value.data) if isinstance(change.value, Inline) else change.value.hash
