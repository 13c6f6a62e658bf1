"""The sessions that the page of ``demo --serve`` shows: they run, sleep, wait for a person, are paused, failed or done.

The server imports this module for the workflows. Its environment says how long a piece of work waits.
"""

from __future__ import annotations

import os
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from pausepoint import Context, Engine, Workflow, step
from pausepoint.apps.demo.pipeline import Desk, primes_below, report

BY = "the demo"
PACE = "PAUSEPOINT_DEMO_PACE"
Desk.pace = float(os.environ.get(PACE, "0"))


class Details(BaseModel):
    """What a notice has to say about a talk."""

    room: Literal["red", "green", "blue"]
    day: date = Field(title="Day")
    seats: int = Field(ge=1, le=200, description="Between 1 and 200")
    remark: str = ""


class Notice(BaseModel):
    """The state of a notice, which a person helps to write."""

    subject: str
    tone: str = ""
    details: Details | None = None
    text: str = ""


@step(writes="tone")
async def choose_tone(subject: str, ctx: Context) -> str:
    """Ask how the notice should sound."""
    return await ctx.ask(f"Which tone should the notice about {subject} have?", choices=["formal", "playful", "plain"])


@step(writes="details")
async def collect_details(subject: str, ctx: Context) -> Details:
    """Ask where and when the talk is."""
    return await ctx.ask(f"Where and when is the talk about {subject}?", Details)


@step(writes="text")
def write_notice(state: Notice) -> str:
    """Write the notice."""
    found = state.details
    assert found is not None
    words = {"formal": "You are invited to a talk about", "playful": "Come and play with"}
    return f"{words.get(state.tone, 'A talk about')} {state.subject}: {found.room} room, {found.day}. {found.remark}"


notice = Workflow("notice", state=Notice, steps=[choose_tone, collect_details, write_notice])


class Audit(BaseModel):
    """The state of an audit. ``expected`` is wrong at first: correct it, then resume the session."""

    upto: int = 200_000
    expected: int = 17_985
    counted: int = 0
    verdict: str = ""


@step(writes="counted")
def count(upto: int) -> int:
    """Count the primes."""
    return len(primes_below(upto))


@step(writes="verdict")
def compare_counts(state: Audit) -> str:
    """Refuse a count that is not the expected one."""
    if state.counted != state.expected:
        raise ValueError(f"There are {state.counted:,} primes below {state.upto:,}, not {state.expected:,}.")
    return "The counts agree."


audit = Workflow("audit", state=Audit, steps=[count, compare_counts])


class Series(BaseModel):
    """The state of a series of reports, each a session of its own."""

    limits: list[int]
    totals: list[int] = []


@step(writes="totals")
async def call_reports(limits: list[int], ctx: Context) -> list[int]:
    """Have one report written after the other."""
    return [(await ctx.call(report, upto=limit)).total for limit in limits]


series = Workflow("series", state=Series, steps=[call_reports])


class Reminder(BaseModel):
    """The state of a reminder."""

    text: str
    sent: bool = False


@step(writes="sent")
async def remind(ctx: Context) -> bool:
    """Sleep until the night is over."""
    await ctx.sleep(timedelta(hours=9))
    return True


reminder = Workflow("reminder", state=Reminder, steps=[remind])

WORKFLOWS: dict[str, Workflow[Any, Any]] = {each.name: each for each in (report, notice, audit, series, reminder)}
RESTING: tuple[tuple[str, Workflow[Any, Any], dict[str, Any]], ...] = (
    ("report-done", report, {}),
    ("notice-primes", notice, {"subject": "prime numbers"}),
    ("notice-gaps", notice, {"subject": "gaps between primes"}),
    ("audit-primes", audit, {}),
    ("reminder-talk", reminder, {"text": "Prepare the talk"}),
)
RUNNING: tuple[tuple[str, Workflow[Any, Any], dict[str, Any]], ...] = (
    ("report-running", report, {}),
    ("series-running", series, {"limits": [50_000, 75_000, 100_000, 125_000]}),
)


async def fill(place: Path) -> None:
    """Create the sessions in a new store. The server drives those that run on the page."""
    async with Engine(place, workflows=list(WORKFLOWS.values())) as engine:
        await _rest(engine)
    async with Engine(place, drives="none") as engine:  # one that drives would drive them before the server
        for session_id, workflow, given in RUNNING:
            await engine.start(workflow, session_id=session_id, paused=True, by=BY, **given)
            await engine.session(session_id).resume(by=BY, here=False)


async def _rest(engine: Engine) -> None:
    for session_id, workflow, given in RESTING:
        await engine.start(workflow, session_id=session_id, **given)
    await engine.idle()
    (question,) = await engine.session("notice-gaps").questions()
    await engine.answer(question.id, "playful", by="Ada")
    await engine.start(report, session_id="report-paused", paused=True, by=BY)
    await engine.session("report-paused").resume(pause_after="draft", by=BY)
    await engine.idle()
    await engine.session("report-paused").pause(reason="lunch", by="the operator")
