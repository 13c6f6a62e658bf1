"""A handle on one session: an id and the verbs of its engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pydantic import BaseModel

from holdfast.html import facts
from holdfast.ids import SessionId
from holdfast.model import Event, Pause, PauseMode, Status
from holdfast.outcome import Outcome, SessionInfo, VisitInfo

if TYPE_CHECKING:
    from holdfast.control import Control
    from holdfast.drivers.local import Run

S = TypeVar("S", bound=BaseModel)


class Session(Generic[S]):
    """A handle on one session: an id and an engine, nothing else."""

    def __init__(self, control: Control, session_id: SessionId, run: Run | None = None) -> None:
        self._control = control
        self._run = run
        self.id = session_id

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    def _repr_html_(self) -> str:
        return facts({"id": self.id}, "Session")

    async def info(self) -> SessionInfo:
        """Status, position, owner, times."""
        return await self._control.info(self.id)

    async def status(self) -> Status:
        """What the session is doing."""
        return (await self._control.info(self.id)).status

    async def state(self) -> S:
        """The state as of the last checkpoint."""
        return cast(S, await self._control.state(self.id))

    async def outcome(self) -> Outcome[S]:
        """Wait until the session stops running: completed, failed, cancelled, paused, or left ready by a shutdown."""
        return cast("Outcome[S]", await self._control.outcome(self.id, self._run))

    async def pause(
        self, reason: str = "", *, by: str | None = None, mode: PauseMode = "finish", freeze: bool = False
    ) -> Status:
        """Stop at the next safe point (``finish``), or cancel the running step (``abort``: resume runs it again).

        With ``freeze`` the time that it sleeps stands still too.
        """
        return (await self._control.pause(self.id, reason=reason, by=by, mode=mode, freeze=freeze))[0].status

    async def resume(
        self,
        *,
        by: str | None = None,
        owner: str | None = None,
        steal: bool = False,
        budget: float | Decimal | None = None,
        wake: bool = False,
    ) -> Session[S]:
        """Go on from exactly there, in this process; ``wake`` ends its timers now."""
        resumed = await self._control.resume(self.id, by=by, owner=owner, steal=steal, budget=budget, wake=wake)
        self._run = resumed._run or self._run
        return self

    async def cancel(self, reason: str = "", *, by: str | None = None) -> Status:
        """End the session: at once if nobody drives it, else at its next safe point."""
        return await self._control.cancel(self.id, reason=reason, by=by)

    async def send(self, value: Any, *, by: str | None = None) -> Status:
        """Send a message; the session's next ``ctx.receive`` gets it."""
        return await self._control.message(self.id, value, by=by)

    async def children(self) -> list[SessionInfo]:
        """The sessions that this one has called, newest first."""
        return await self._control.children(self.id)

    async def pauses(self) -> list[Pause]:
        """Why the session stands still: the open pause records."""
        return await self._control.pauses(self.id)

    async def visits(self) -> list[VisitInfo]:
        """The finished visits, in order."""
        return await self._control.visits(self.id)

    def events(self, after: str = "", *, follow: bool = False) -> AsyncIterator[Event]:
        """The history after a cursor; with ``follow``, also what comes, until the session ends."""
        return self._control.events(self.id, after, follow=follow)
