"""Everything that a report is made of, and what follows from it by counting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from pausepoint.apps.aura.models import Assignment, DailyPlanItem, DayLoad, SkillProfile, Unplanned, in_danger


@dataclass(frozen=True)
class Facts:
    """What the other agents left."""

    student_id: str
    now: datetime
    zone: ZoneInfo
    assignments: Sequence[Assignment]
    profile: SkillProfile
    plan: Sequence[DailyPlanItem]
    unplanned: Sequence[Unplanned]
    load: Sequence[DayLoad]
    advice: Sequence[str]

    @property
    def overdue(self) -> list[Assignment]:
        """Work that should have been handed in."""
        return [each for each in self.assignments if each.is_overdue(self.now)]

    @property
    def in_danger(self) -> list[Unplanned]:
        """Work that is still due and will not be finished in time."""
        return in_danger(self.unplanned, self.load, self.now)

    @property
    def needed(self) -> int:
        """The minutes of work that these days would have to hold."""
        return sum(each.planned for each in self.load) + sum(each.minutes for each in self.in_danger)

    @property
    def free(self) -> int:
        """The minutes that they have."""
        return sum(each.free for each in self.load)
