"""Aura's pipeline: four agents, one after the other. Run, resume, plan and display all use this list."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, time
from pathlib import Path
from zoneinfo import ZoneInfo

from pausepoint import BlockingContext, Context, Retry, Scope, Workflow
from pausepoint.apps.aura import classroom_sync, daily_planner, parent_insight, prose, skill_mastery
from pausepoint.apps.aura.facts import Facts
from pausepoint.apps.aura.free_time import free_week, odd_events
from pausepoint.apps.aura.language import Code, Speech, doubts_said
from pausepoint.apps.aura.models import (
    Assignment,
    AuraState,
    CurrentStep,
    DailyPlanItem,
    DayLoad,
    LastReport,
    SkillProfile,
    Unplanned,
)
from pausepoint.apps.aura.overview import overview
from pausepoint.apps.aura.sources.cells import Order
from pausepoint.apps.words import one_line

ASKED = ["student_id", "data", "dates", "time_zone", "now"]
SETTINGS = ["language", "calendar", "day_start", "day_end", "days", "limit"]
ODD_EVENT = "calendar.odd_event"
ODD_DATA = "data.odd"
EVENTS = [ODD_EVENT, ODD_DATA, prose.COMPUTED]
PATIENCE = Retry(attempts=5, on=(ConnectionError, TimeoutError))

sync_agent = Scope("ClassroomSyncAgent", reads=[*ASKED, "language", "name"], writes=["assignments", "name", "notes"])
skill_agent = Scope("SkillMasteryAgent", reads=[*ASKED, "assignments"], writes=["skill_profile"])
plan_agent = Scope(
    "DailyPlannerAgent",
    reads=[*ASKED, *SETTINGS, "assignments", "skill_profile", "notes"],
    writes=["daily_plan", "unplanned", "load", "advice", "notes"],
)
insight_agent = Scope("ParentInsightAgent", reads=["*"], writes=["report", "notes"])


@sync_agent.step(writes=["assignments", "name", "notes"])
async def sync(
    student_id: str, data: list[str], time_zone: str, dates: Order | None, now: datetime | None, language: Code,
    name: str, ctx: Context,
) -> dict[str, object]:  # fmt: skip
    """Gather the assignments."""
    gathered = await classroom_sync.gather(student_id, data, time_zone, ctx, dates)
    speech = Speech(language, ZoneInfo(time_zone), now or ctx.started_at)
    notes = doubts_said(gathered.doubts, speech)
    for note in notes:
        ctx.emit(ODD_DATA, note)
    return {"assignments": gathered.assignments, "name": name or one_line(gathered.name), "notes": notes}


@skill_agent.step(writes="skill_profile")
def analyze(assignments: list[Assignment], now: datetime | None, ctx: BlockingContext) -> SkillProfile:
    """Compute the mastery of each subject."""
    return skill_mastery.analyze(assignments, now or ctx.started_at)


@plan_agent.step(writes=["daily_plan", "unplanned", "load", "advice", "notes"], retry=PATIENCE)
async def plan(
    assignments: list[Assignment], skill_profile: SkillProfile, now: datetime | None, time_zone: str, language: Code,
    calendar: Path | None, day_start: time, day_end: time, days: int, limit: int, notes: list[str], ctx: Context,
) -> dict[str, object]:  # fmt: skip
    """Put the open work into free time."""
    speech = Speech(language, ZoneInfo(time_zone), now or ctx.started_at)
    hours = day_start, day_end
    week = await ctx.do(free_week, speech.now, days, hours, time_zone, calendar)  # a large calendar is slow
    found = daily_planner.plan(assignments, skill_profile, week.days, limit, speech)
    advice = await prose.written(ctx, "advice", daily_planner.advice(found, speech), language)
    odd = odd_events(week.skipped, speech)
    for each in odd:
        ctx.emit(ODD_EVENT, each)
    return {
        "daily_plan": found.items, "unplanned": found.unplanned, "load": found.load, "advice": advice.sentences,
        "notes": list(dict.fromkeys([*notes, *odd, *_said(advice, speech)])),
    }  # fmt: skip


@insight_agent.step(writes=["report", "notes"], retry=PATIENCE)
async def report(
    student_id: str, name: str, assignments: list[Assignment], skill_profile: SkillProfile,
    daily_plan: list[DailyPlanItem],
    unplanned: list[Unplanned], load: list[DayLoad], advice: list[str],
    notes: list[str], previous: LastReport | None, now: datetime | None, time_zone: str, language: Code,
    reports: Path, mail_to: str, ctx: Context,
) -> dict[str, object]:  # fmt: skip
    """Write the report for the parents."""
    speech = Speech(language, ZoneInfo(time_zone), now or ctx.started_at)
    found = overview(assignments, previous, speech.now)
    facts = Facts(
        name or student_id, speech, found, skill_profile, daily_plan, unplanned, load, advice, notes, previous
    )
    words = await prose.written(ctx, "summary", parent_insight.summary(facts), language)
    all_notes = list(dict.fromkeys([*notes, *_said(words, speech)]))  # the model's problem may be the same twice
    facts = replace(facts, notes=all_notes)
    done = parent_insight.write(facts, words.sentences, reports, f"aura-{ctx.session_id}", mail_to)
    return {"report": done, "notes": all_notes}


def _said(words: prose.Words, speech: Speech) -> list[str]:
    return [] if words.problem is None else [speech.say("computed_words", problem=words.problem)]


aura = Workflow("aura", state=AuraState, steps=[sync, analyze, plan, report], pause="step", events=EVENTS)

POSITIONS = dict(zip([step.name for step in aura.steps], CurrentStep, strict=False))


def current_step(step: str | None) -> CurrentStep:
    """Return the position for a session's next step. None means the end."""
    return CurrentStep.COMPLETED if step is None else POSITIONS[step]
