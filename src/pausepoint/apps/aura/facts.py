"""The facts for a report, and the counts that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pausepoint.apps.aura.language import Speech
from pausepoint.apps.aura.models import (
    DailyPlanItem,
    DayLoad,
    LastReport,
    SkillProfile,
    Unplanned,
    in_danger,
)
from pausepoint.apps.aura.overview import Overview


@dataclass(frozen=True)
class Facts:
    """The results of the other agents. ``name`` is the student's name."""

    name: str
    speech: Speech
    overview: Overview
    profile: SkillProfile
    plan: Sequence[DailyPlanItem]
    unplanned: Sequence[Unplanned]
    load: Sequence[DayLoad]
    advice: Sequence[str]
    notes: Sequence[str] = ()
    previous: LastReport | None = None

    @cached_property
    def in_danger(self) -> list[Unplanned]:
        """Work that is due within the planned days and cannot be finished in time."""
        return in_danger(self.unplanned, self.load, self.speech.now)

    @property
    def needed(self) -> int:
        """The minutes of work that have to be done in the planned days."""
        return sum(each.planned for each in self.load) + sum(each.minutes for each in self.in_danger)

    @property
    def free(self) -> int:
        """The free minutes in the planned days."""
        return sum(each.free for each in self.load)
