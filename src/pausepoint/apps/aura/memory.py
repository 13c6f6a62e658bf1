"""Find the student's previous report in the store, so that the next one can say what has changed.

The previous session itself is the memory: its state holds the work and the levels of its time. A new session keeps a
short copy, so a resume compares with the same report even if the old session is removed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from pausepoint.apps.aura.models import AuraState, LastReport, standing
from pausepoint.apps.aura.workflow import aura
from pausepoint.engine import BlockingEngine

LOOKED_AT = 100
"""How many of the newest completed sessions are searched. They may belong to several students."""


def remembering(engine: BlockingEngine, state: AuraState) -> AuraState:
    """Return a starting state that knows the student's previous report, if there is one."""
    if state.previous is not None:
        return state
    return state.model_copy(update={"previous": last_report(engine, state, state.now or datetime.now(UTC))})


def last_report(engine: BlockingEngine, wanted: AuraState, now: datetime) -> LastReport | None:
    """Return the student's newest report of an earlier day, or None. A second run on one day compares with the same."""
    today = now.astimezone(ZoneInfo(wanted.time_zone)).date()
    for info in engine.sessions(workflow=aura.name, status="completed", limit=LOOKED_AT):
        state = engine.session(info.session_id).state()
        if not isinstance(state, AuraState) or not _same_student(state, wanted):
            continue
        as_of = state.now or info.created_at
        if state.skill_profile is not None and as_of.astimezone(ZoneInfo(wanted.time_zone)).date() < today:
            work = {each.id: standing(each, as_of) for each in state.assignments}
            return LastReport(session_id=info.session_id, as_of=as_of, work=work, profile=state.skill_profile)
    return None


def _same_student(one: AuraState, other: AuraState) -> bool:
    """Return whether two sessions are about one student. Two children may both be ``me`` in their own accounts."""
    names = {each.name.casefold() for each in (one, other) if each.name}
    return one.student_id.casefold() == other.student_id.casefold() and len(names) < 2
