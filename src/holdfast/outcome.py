"""What is known about a session, for people and programs that look at it: plain records, no verbs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from pydantic import BaseModel

from holdfast.errors import StateRefused
from holdfast.html import facts, table
from holdfast.ids import SessionId
from holdfast.model import Failure, Pause, Status

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class SessionInfo:
    """What is known about a session without reading its state."""

    session_id: SessionId
    workflow: str
    version: int
    status: Status
    step: str | None
    visit: int
    owner: str | None
    tags: tuple[str, ...]
    created_at: datetime
    updated_at: datetime
    pause_requested: bool
    cancel_requested: bool
    holder: str | None
    failure: Failure | None
    spent_usd: float
    spent_tokens: int
    budget_usd: float | None
    progress: tuple[int, int] | None
    waiting: tuple[str, ...] = ()
    wakes_at: datetime | None = None
    parent_id: str | None = None

    def _repr_html_(self) -> str:
        failure, progress = self.failure, self.progress
        known = {
            "status": self.status.value,
            "workflow": f"{self.workflow}, version {self.version}",
            "step": self.step and f"{self.step}#{self.visit}",
            "progress": progress and f"{progress[0]}/{progress[1]}",
            "owner": self.owner,
            "tags": ", ".join(self.tags),
            "created": f"{self.created_at:%Y-%m-%d %H:%M:%S} UTC",
            "updated": f"{self.updated_at:%Y-%m-%d %H:%M:%S} UTC",
            "requested": " and ".join(_requests(self)),
            "driven by": self.holder,
            "failure": failure and _failed(failure),
            "spent": _money(self.spent_usd, self.budget_usd),
            "tokens": self.spent_tokens or None,
        }
        return facts(known, f"Session {self.session_id}")


def _requests(info: SessionInfo) -> list[str]:
    asked = {"pause": info.pause_requested, "cancel": info.cancel_requested}
    return [name for name, wanted in asked.items() if wanted]


def _failed(failure: Failure) -> str:
    return f"{failure.type} in {failure.step}: {failure.message}"


def _money(spent: float, budget: float | None = None) -> str:
    if budget is not None:
        return f"{spent:.6g} of {budget:.6g} USD"
    return f"{spent:.6g} USD" if spent else ""


@dataclass(frozen=True)
class VisitInfo:
    """One finished visit."""

    step: str
    visit: int
    seq: int
    at: datetime
    took: timedelta
    skipped: str
    attempts: int


@dataclass(frozen=True)
class Outcome(Generic[S]):
    """How a session stands after it stopped running here."""

    session_id: SessionId
    status: Status
    pauses: tuple[Pause, ...]
    failure: Failure | None
    skipped_visits: int
    saved_time: timedelta
    saved_usd: float
    spent_usd: float
    _state: S | StateRefused

    @property
    def state(self) -> S:
        """The state as of the last checkpoint; raises `StateRefused` if it does not fit the model at hand."""
        if isinstance(self._state, StateRefused):
            raise self._state
        return self._state

    def _repr_html_(self) -> str:
        known = {
            "status": self.status.value,
            "failure": self.failure and _failed(self.failure),
            "skipped": f"{self.skipped_visits} visits, {self.saved_time}" if self.skipped_visits else "",
            "saved": _money(self.saved_usd),
            "spent": _money(self.spent_usd),
        }
        tables = [facts(known, f"Session {self.session_id}")]
        if self.pauses:
            pauses = [(pause.kind, pause.reason, pause.by) for pause in self.pauses]
            tables.append(table(["pause", "reason", "by"], pauses, "Why it stands still"))
        if isinstance(self._state, StateRefused):
            tables.append(facts({"refused": self._state}, "State"))
        else:
            fields = [(name, getattr(self._state, name)) for name in type(self._state).model_fields]
            tables.append(table(["field", "value"], fields, "State"))
        return "".join(tables)
