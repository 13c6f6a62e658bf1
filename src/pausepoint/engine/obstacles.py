"""Obstacles: why a resume would not run a session now. Stored pauses are tested again, as a resume does.

A stored pause says why the session was paused then. Since then, the code, the state or the budget may have changed.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from pausepoint.definition.workflow import Workflow
from pausepoint.errors import DamagedRecord, DefinitionError, StateRefused, error_text
from pausepoint.log.access import StateAccess
from pausepoint.log.decisions import refusal
from pausepoint.log.replay import Line
from pausepoint.log.versions import DoesNotFit, fits, upgrade
from pausepoint.model.budgets import reached
from pausepoint.model.pauses import Paused
from pausepoint.model.sessions import Pause, SessionRow
from pausepoint.model.views import Obstacles
from pausepoint.runtime.pickup import CRASHES_ALLOWED, crash_report

TRIED = ("crashes", "question", "oversized", "mismatch")
"""The kinds of pauses that hold no resume back: it runs the step again, and only that shows whether it helps."""


async def misfit_of(workflow: Workflow[Any], line: Line, access: StateAccess) -> Obstacles | None:
    """Return why a session does not fit the code, and what to do about it; None if it fits."""
    try:
        if fits(workflow, line):
            access.fill_new_fields()
        else:
            await upgrade(workflow, line, access.store, access.limits)
    except DoesNotFit as wrong:
        return Obstacles(wrong.reasons, wrong.ways)
    except (DefinitionError, StateRefused, DamagedRecord) as error:
        return Obstacles((str(error),))
    return None


class Examiner:
    """Tests one session as the start of a resume does, but writes nothing. The line is upgraded in memory."""

    def __init__(self, workflow: Workflow[Any], row: SessionRow, line: Line, access: StateAccess) -> None:
        self.workflow, self.row, self.line, self.access = workflow, row, line, access

    async def found(self, pauses: Sequence[Pause]) -> Obstacles:
        """Return what a resume would find now. ``pauses`` are the session's open ones."""
        if (misfit := await misfit_of(self.workflow, self.line, self.access)) is not None:
            return misfit
        await self._upgrade()
        if self.row.live or self.row.ended in ("completed", "cancelled"):
            return Obstacles()
        kinds: set[str] = {pause.kind for pause in pauses}
        reasons = [*self._crashes(kinds), *await self._budget(), *await self._guards(pauses), *await self._reads(kinds)]
        return Obstacles((*reasons, *(_stored(pause) for pause in pauses if pause.kind == "disk")))

    async def _upgrade(self) -> None:
        if not fits(self.workflow, self.line):
            body, blobs = await upgrade(self.workflow, self.line, self.access.store, self.access.limits)
            self.line.upgrade(body)
            self.line.state.provide(dict(blobs))

    def _crashes(self, kinds: Set[str]) -> list[str]:
        if self.row.crashes < CRASHES_ALLOWED or "crashes" in kinds:
            return []
        return [f"crashes: {crash_report(self.row.crashes, self.line.step, self.line.visit)}"]

    async def _budget(self) -> list[str]:
        reason = reached(await self.access.store.purses(self.row.key), self.row.session_id)
        return [f"budget: {reason}"] if reason else []

    async def _guards(self, pauses: Sequence[Pause]) -> list[str]:
        """Return what the guards of the finished step say now. Guards are pure functions of the state."""
        held = [pause for pause in pauses if pause.kind == "guard"]
        step = self.line.step
        if not held or step not in self.workflow.outline:
            return []
        try:
            for guard in self.workflow.guards.get(step, ()):
                await self.access.prefetch(guard)
            found = refusal(self.workflow, step, self.access.evaluate)
            refused = found.refused if found is not None else ""
        except Paused as paused:
            refused = paused.reason
        except Exception:  # a resume runs it and stores the failure
            return []
        return [f"guard: {refused} (after {step})"] if refused else []

    async def _reads(self, kinds: Set[str]) -> list[str]:
        """Return why the next step cannot be called, if that is why the session was paused."""
        if not {"missing", "definition"}.intersection(kinds) or self.line.held_by_guard or self.line.step is None:
            return []
        step = self.workflow.step(self.line.step)
        try:
            if step.when is not None:
                await self.access.prefetch(step.when)
                if not self.access.evaluate(step.when):
                    return []
            await self.access.prefetch(step)
            self.access.lend(step)
        except Paused as paused:
            return [f"{paused.kind}: {paused.reason} (at {step.name})"]
        except StateRefused as error:
            return [f"definition: step {step.name!r} cannot read the stored state: {error_text(error)}"]
        except Exception:  # a resume runs it and stores the failure
            return []
        return []


def _stored(pause: Pause) -> str:
    return f"{pause.kind}: {pause.reason}" + (f" (at {pause.step})" if pause.step else "")
