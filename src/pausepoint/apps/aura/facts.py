"""The facts for a report, and the counts that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from pausepoint.apps.aura.models import Assignment, DailyPlanItem, DayLoad, SkillProfile, Unplanned, in_danger


@dataclass(frozen=True)
class Facts:
    """The results of the other agents."""

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
        """Work that is past its due date."""
        return [each for each in self.assignments if each.is_overdue(self.now)]

    @property
    def in_danger(self) -> list[Unplanned]:
        """Work that is due within the planned days and cannot be finished in time."""
        return in_danger(self.unplanned, self.load, self.now)

    @property
    def needed(self) -> int:
        """The minutes of work that have to be done in the planned days."""
        return sum(each.planned for each in self.load) + sum(each.minutes for each in self.in_danger)

    @property
    def free(self) -> int:
        """The free minutes in the planned days."""
        return sum(each.free for each in self.load)
