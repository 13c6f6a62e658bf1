"""Aura's pipeline: four agents, one after the other. Run, resume, plan and display all use this list."""

from __future__ import annotations

from datetime import datetime, time
from pathlib import Path
from zoneinfo import ZoneInfo

from pausepoint import BlockingContext, Context, Retry, Scope, Workflow
from pausepoint.apps.aura import classroom_sync, daily_planner, parent_insight, prose, skill_mastery
from pausepoint.apps.aura.facts import Facts
from pausepoint.apps.aura.free_time import free_days
from pausepoint.apps.aura.models import (
    Assignment,
    AuraState,
    CurrentStep,
    DailyPlanItem,
    DayLoad,
    ParentReport,
    SkillProfile,
    Unplanned,
)

ASKED = ["student_id", "data", "time_zone", "now"]
SETTINGS = ["calendar", "day_start", "day_end", "days", "limit"]
PATIENCE = Retry(attempts=5, on=(ConnectionError, TimeoutError))

sync_agent = Scope("ClassroomSyncAgent", reads=ASKED, writes=["assignments"])
skill_agent = Scope("SkillMasteryAgent", reads=[*ASKED, "assignments"], writes=["skill_profile"])
plan_agent = Scope(
    "DailyPlannerAgent",
    reads=[*ASKED, *SETTINGS, "assignments", "skill_profile"],
    writes=["daily_plan", "unplanned", "load", "advice"],
)
insight_agent = Scope("ParentInsightAgent", reads=["*"], writes=["report"])


@sync_agent.step(writes="assignments", retry=PATIENCE)
async def sync(student_id: str, data: list[str], time_zone: str, ctx: Context) -> list[Assignment]:
    """Gather the assignments."""
    return await classroom_sync.gather(student_id, data, time_zone, ctx)


@skill_agent.step(writes="skill_profile")
def analyze(assignments: list[Assignment], now: datetime | None, ctx: BlockingContext) -> SkillProfile:
    """Compute the mastery of each subject."""
    return skill_mastery.analyze(assignments, now or ctx.started_at)


@plan_agent.step(writes=["daily_plan", "unplanned", "load", "advice"], retry=PATIENCE)
async def plan(
    assignments: list[Assignment], skill_profile: SkillProfile, now: datetime | None, time_zone: str,
    calendar: Path | None, day_start: time, day_end: time, days: int, limit: int, ctx: Context,
) -> dict[str, object]:  # fmt: skip
    """Put the open work into free time."""
    zone, moment = ZoneInfo(time_zone), now or ctx.started_at
    free = await ctx.do(free_days, moment, days, (day_start, day_end), time_zone, calendar)  # a large calendar is slow
    found = daily_planner.plan(assignments, skill_profile, moment, free, limit, zone)
    advice = await prose.written(ctx, "advice", daily_planner.advice(found, moment, zone))
    return {"daily_plan": found.items, "unplanned": found.unplanned, "load": found.load, "advice": advice}


@insight_agent.step(writes="report", retry=PATIENCE)
async def report(
    student_id: str, assignments: list[Assignment], skill_profile: SkillProfile, daily_plan: list[DailyPlanItem],
    unplanned: list[Unplanned], load: list[DayLoad], advice: list[str], now: datetime | None, time_zone: str,
    reports: Path, ctx: Context,
) -> ParentReport:  # fmt: skip
    """Write the report for the parents."""
    facts = Facts(
        student_id, now or ctx.started_at, ZoneInfo(time_zone), assignments, skill_profile, daily_plan, unplanned, load,
        advice,
    )  # fmt: skip
    sentences = await prose.written(ctx, "summary", parent_insight.summary(facts))
    return parent_insight.write(facts, sentences, reports, f"aura-{ctx.session_id}")


aura = Workflow("aura", state=AuraState, steps=[sync, analyze, plan, report], pause="step")

POSITIONS = dict(zip([step.name for step in aura.steps], CurrentStep, strict=False))


def current_step(step: str | None) -> CurrentStep:
    """Return the position for a session's next step. None means the end."""
    return CurrentStep.COMPLETED if step is None else POSITIONS[step]
