"""The demo's view of its session, built from the session's events. Any other program can do the same."""

from __future__ import annotations

from dataclasses import dataclass, field

from pausepoint import Session
from pausepoint.apps.demo.pipeline import Report, report
from pausepoint.model import Event


@dataclass
class Row:
    """The progress of one step."""

    name: str
    done: bool = False
    kept: bool = False
    took: float = 0.0
    usd: float = 0.0
    total: int = 0
    items: int = 0
    kept_items: int = 0


@dataclass(frozen=True)
class Saving:
    """The work that one resume skipped."""

    at: str
    steps: int
    items: int
    seconds: float
    usd: float


@dataclass
class View:
    """The progress of all steps, and the savings of every resume."""

    rows: dict[str, Row] = field(default_factory=lambda: {step.name: Row(step.name) for step in report.steps})
    savings: list[Saving] = field(default_factory=list)
    cursor: str = ""

    async def refresh(self, session: Session[Report]) -> None:
        """Read the events that are new since the last call."""
        async for event in session.events(self.cursor):
            self.cursor = event.cursor
            self.take(event)

    def take(self, event: Event) -> None:
        """Apply one event."""
        data = event.data
        if event.event_type == "session.resumed":
            self._resumed(str(data["step"]), int(data["skipped"]), data["saved_seconds"], data["saved_usd"])
        row = self.rows.get(event.agent_name)
        if row is None:
            return
        if event.event_type == "map.started":
            row.total = data["total"]
        elif event.event_type == "operation.completed":
            row.items += 1
        elif event.event_type == "spent":
            row.usd += data["usd"]
        elif event.event_type == "step.completed":
            row.done, row.took = True, data["took"]

    def _resumed(self, at: str, steps: int, seconds: float, usd: float) -> None:
        row = self.rows[at]
        row.kept_items = row.items
        for other in self.rows.values():
            other.kept = other.done
        self.savings.append(Saving(at, steps, row.items, seconds, usd))

    @property
    def active(self) -> Row | None:
        """The step that is running or runs next."""
        return next((row for row in self.rows.values() if not row.done), None)

    @property
    def saved_seconds(self) -> float:
        return sum(saving.seconds for saving in self.savings)

    @property
    def saved_usd(self) -> float:
        return sum(saving.usd for saving in self.savings)
