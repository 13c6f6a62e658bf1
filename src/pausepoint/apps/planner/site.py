"""The plan on a phone: a page of the server that shows the plan of one session and marks its work.

A signed link names the session. No address does, so a link opens one plan only.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from importlib.resources import files
from itertools import groupby
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct

from pausepoint import AlreadyRunning, Engine
from pausepoint.apps.input import BadInput
from pausepoint.apps.planner.dates import said
from pausepoint.apps.planner.models import PlannerState, PlanRow
from pausepoint.apps.planner.sessions import change_of, marks_removed, marks_set
from pausepoint.apps.planner.shown import Shown, days, minutes_of
from pausepoint.apps.planner.work import works
from pausepoint.model import SessionInfo
from pausepoint.server import Action, Problem, Site, Visit

NAME = "plan"
"""The name of the site, and the beginning of its addresses."""

PATIENCE = 20.0
"""The seconds that a mark waits for the planner to finish what it does."""

A_MOMENT = 0.05

SEE = "Load the page again."


class Marking(Struct, forbid_unknown_fields=True):
    """A mark that the page sets or removes. ``what`` is the id of a row, or a topic as ``COURSE: TOPIC``."""

    what: Annotated[str, Meta(min_length=1, max_length=500)]
    done: bool


class PhonePlan:
    """The plans of all sessions, each for the people who have a link to it."""

    def __init__(self) -> None:
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def site(self) -> Site:
        """Return the addresses of the page."""
        return Site(
            NAME, files("pausepoint.apps.planner").joinpath("phone"),
            (
                Action(method="GET", path="/plan", handler=self.read),
                Action(method="POST", path="/marks", handler=self.mark, body=Marking),
            ),
        )  # fmt: skip

    async def read(self, visit: Visit) -> dict[str, Any]:
        """Return the plan as the page shows it."""
        return await asyncio.to_thread(document, visit.name, await _state(visit))

    async def mark(self, visit: Visit) -> dict[str, Any]:
        """Set or remove a mark, and return the plan. The files of the plan are written again."""
        engine: Engine = visit.engine
        session = engine.session(visit.name)
        async with self._turns[visit.name]:
            info, state = await _parked(engine, visit.name), await _state(visit)
            try:
                changes = await asyncio.to_thread(_changes, state, visit.body)
                change = change_of(info, state, changes, "finish", "marked on the page")
            except BadInput as error:
                raise Problem(409, str(error)) from None
            await change.made_on(session)
            with suppress(AlreadyRunning):  # the server has picked it up
                await session.resume(here=engine.drives != "none")
        return await asyncio.to_thread(document, visit.name, state.model_copy(update=changes))


async def _state(visit: Visit) -> PlannerState:
    state = await visit.engine.session(visit.name).state()
    if not isinstance(state, PlannerState):
        raise Problem(404, f"Session {visit.name} has no study plan. Ask for a link to one that has.")
    return state


def _changes(state: PlannerState, marking: Marking) -> dict[str, Any]:
    if not marking.done:
        return marks_removed(state, [marking.what], SEE)
    return marks_set(state, [marking.what], "done", today(state), SEE)[0]


async def _parked(engine: Engine, session_id: str) -> SessionInfo:
    """Wait until nothing drives the session, for a while, and return its info."""
    try:
        async with asyncio.timeout(PATIENCE):
            while (info := await engine.session(session_id).info()).holder is not None:
                await asyncio.sleep(A_MOMENT)
            return info
    except TimeoutError:
        raise Problem(409, "The planner is making a plan. Mark your work when it has finished.") from None


# the document


def today(state: PlannerState) -> date:
    """Return the current day in the student's time zone."""
    return datetime.now(UTC).astimezone(ZoneInfo(state.user_inputs.timezone)).date()


def document(session_id: str, state: PlannerState) -> dict[str, Any]:
    """Return what the page shows of a plan. Without a plan there are no days."""
    shown = Shown.of(state)
    word, sentence = shown.verdict
    return {
        "session_id": session_id, "version": shown.planning.plan_version, "title": shown.title,
        "verdict": word, "sentence": sentence, "today": today(state).isoformat(),
        "midterms": [f"{said(day)}: {name}" for day, name in shown.midterms],
        "standings": shown.standings, "days": list(_days(shown)), "topics": list(_topics(state)),
        "lists": {"Cuts": shown.cuts, "Not in the exam": shown.not_in_exam, "Warnings": shown.warnings},
    }  # fmt: skip


def _days(shown: Shown) -> Iterator[dict[str, Any]]:
    for name, rows in days(shown.planning.plan_rows, today(shown.state)):
        yield {
            "date": rows[0].date.isoformat(), "name": name, "minutes": minutes_of(rows),
            "rows": [_row(row, shown) for row in rows],
        }  # fmt: skip


def _row(row: PlanRow, shown: Shown) -> dict[str, Any]:
    """Return a row. One without minutes cannot be marked."""
    return {
        "id": row.row_id if row.estimated_minutes else "", "time": f"{row.starts_at:%H:%M}" if row.starts_at else "",
        "course": row.course, "topic": row.topic, "task": row.task_description, "minutes": row.estimated_minutes,
        "status": shown.status(row), "notes": shown.self_tests.notes(row), "questions": shown.self_tests.questions(row),
    }  # fmt: skip


def _topics(state: PlannerState) -> Iterator[dict[str, Any]]:
    """Yield the topics of each course that its exam covers, with the minutes that are left of each."""
    for course_id, listed in groupby(
        works(state.user_inputs, state.estimation_state.topic_estimates), key=lambda work: work.course.course_id
    ):
        topics = list(listed)
        yield {
            "course": topics[0].course.course_name,
            "topics": [{"what": f"{course_id}: {work.topic}", "topic": work.topic, "minutes": work.full,
                        "left": work.minutes} for work in topics],
        }  # fmt: skip
