"""What is known about a session, for people and programs that look at it: plain records, no verbs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from pydantic import BaseModel

from holdfast.errors import StateRefused
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
