"""Picking up a session that ran before: what prevents it from running, and its first record."""

from __future__ import annotations

from pausepoint.errors import StateRefused
from pausepoint.log.replay import deferred, limits_child
from pausepoint.log.versions import DoesNotFit, fits, upgrade
from pausepoint.model.pauses import Paused
from pausepoint.model.sessions import Pause, QuestionChange
from pausepoint.runtime.hold import Held

CRASHES_ALLOWED = 3


async def begin_resumed(held: Held) -> bool:
    """Write the first record of a resumed session: what it skips and which pauses close, or why it stays paused.

    Return False, and write nothing, if the session wakes on its own.
    """
    pauses: list[Pause] = []
    if held.row.open_pauses:
        pauses = [pause for pause in await held.store.pauses(held.row.key) if pause.kind != "operator"]
    if obstacle := await _obstacle(held, pauses):
        await held.ledger.park(obstacle, pauses)
        return True
    paused_for = await idle(held)
    if not (held.resumed or held.wake or held.row.frozen or paused_for):
        return False
    visits, took, usd = held.saved
    operations = sum(1 for operation in held.line.operations.values() if not operation.total)
    data = {
        "step": held.line.step,
        "by": held.resumed_by,
        "skipped": visits,
        "operations": operations,
        "saved_seconds": took / 1e6,
        "saved_usd": usd / 1e6,
    }
    closed = tuple(pause.id for pause in pauses if pause.kind != "guard")
    by = f" by {held.resumed_by}" if held.resumed_by else ""
    summary = f"resumed{by} at {held.line.step}#{held.line.visit}{_skipped(visits, operations)}"
    await held.ledger.note(
        "session.resumed", summary, data, close_pauses=closed, closed_by=held.resumed_by,
        shift=held.row.frozen, wake=held.wake, thaw=bool(held.row.frozen), questions=deferred_questions(held),
        idle=paused_for,
    )  # fmt: skip
    return True


async def idle(held: Held) -> int:
    """Return how long the session was paused since its last record, if the time-out of a child depends on it."""
    if not any(map(limits_child, held.line.waits.values())):
        return 0
    pauses, now = await held.store.pauses(held.row.key, open_only=False), held.clock.now()
    # Other pauses, such as that of a budget, are closed by the record that this is for, or before it.
    open_ = [(each.created_at, now) for each in pauses if each.closed_at is None]
    since = {"operator": held.row.updated_at}
    lifted = [
        (each.created_at, each.closed_at)
        for each in pauses
        if each.closed_at is not None and each.closed_at >= since.get(each.kind, held.row.updated_at + 1)
    ]
    ended = [*open_, *lifted]
    return max(max(end for _, end in ended) - min(start for start, _ in ended), 0) if ended else 0


def deferred_questions(held: Held) -> tuple[QuestionChange, ...]:
    """Return changes that postpone the expiry of questions by the time that the timers were frozen."""
    now, frozen = held.clock.now(), held.row.frozen
    asking = [wait for wait in held.line.waits.values() if wait.ask is not None and frozen]
    due = {wait.ask.id: deferred(wait, now, frozen, wake=False) for wait in asking if wait.ask is not None}
    return tuple(QuestionChange(id, expires_at=at) for id, at in due.items())


async def _obstacle(held: Held, pauses: list[Pause]) -> Paused | None:
    if held.row.crashes >= CRASHES_ALLOWED and not any(pause.kind == "crashes" for pause in pauses):
        return Paused("crashes", crash_report(held.row.crashes, held.line.step, held.line.visit))
    try:
        await _upgrade(held)
    except DoesNotFit as wrong:
        return Paused("definition", str(wrong))
    if reason := await held.over_budget():
        return Paused("budget", reason)
    try:
        held.access.fill_new_fields()
    except StateRefused as error:
        return Paused("definition", f"{error} Then resume the session.")
    return None


async def _upgrade(held: Held) -> None:
    """Upgrade the session to the present definition if it differs from the one it was last driven with."""
    if fits(held.workflow, held.line):
        return
    body, blobs = await upgrade(
        held.workflow, held.line, held.store, held.limits, accept_code=held.accept_code, by=held.resumed_by
    )
    step = body.renamed.get(held.line.step or "", held.line.step or "")
    held.line.state.provide(dict(blobs))
    await held.ledger.commit("definition", step, held.line.visit, body, blobs)
    held.line.state.forget()


def _skipped(visits: int, operations: int) -> str:
    """Return what a resume does not run again, as the end of a sentence.

    >>> _skipped(0, 0), _skipped(1, 0), _skipped(2, 4)
    ('', ', 1 visit skipped', ', 2 visits and 4 operations skipped')
    """
    counts = {"visit": visits, "operation": operations}
    parts = [f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items() if count]
    return f", {' and '.join(parts)} skipped" if parts else ""


def crash_report(crashes: int, step: str | None, visit: int) -> str:
    """Return why a session whose processes keep dying is paused."""
    return (
        f"{crashes} processes died at {step}#{visit} without making progress; check what the step does there, then"
        " resume"
    )
