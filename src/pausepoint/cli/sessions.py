"""Find the session that a person means: by an id, by the beginning of one, or the last that was interrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pausepoint.cli.console import ago
from pausepoint.cli.context import Cli, not_found
from pausepoint.cli.exits import NOT_FOUND, USAGE, Refused
from pausepoint.cli.host import spoken
from pausepoint.errors import UnknownSession, did_you_mean

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.views import SessionInfo


CANDIDATES = ("ready", "created"), ("failed",), ("paused",)
"""What `resume` goes on with if nobody says which: what was interrupted before what failed before what was paused."""


LISTED = 20
"""How many candidates are listed."""


INTERRUPTED_ONES = [status for group in CANDIDATES for status in group]


def where(info: SessionInfo) -> str:
    """``failed at write, 5 min ago``."""
    from pausepoint.cli.text import at

    return f"{info.status.value}{at(info)}, {ago(info.updated_at)}"


async def candidates(cli: Cli, engine: Engine) -> list[SessionInfo]:
    """What was interrupted; without such what failed, or was paused. Those that nobody drives any more."""
    counts: Counter[str] = Counter()
    for (workflow, status), count in (await engine.tally(level="root")).items():
        if workflow in engine.workflows or not (cli.targets or cli.host.workflows):
            counts[status.value] += count
    for group in CANDIDATES:
        if not any(counts[status] for status in group):
            continue
        found = await _newest(cli, engine, group)
        if len(found) == 1:
            others = sum(counts[status] for status in INTERRUPTED_ONES) - 1
            more = f"; {others:,} more stand still: {spoken('ls')}" if others else ""
            cli.out.note(f"The last one: {found[0].session_id} of {found[0].workflow}, {where(found[0])}{more}")
        return found
    running = sum(counts[status] for status in ("running", "pausing", "sleeping", "waiting"))
    more = f"; {running} run or wait: {spoken('ls')}" if running else ""
    if await engine.questions(limit=1):
        more += f"; somebody is asked something: {spoken('inbox')}"
    raise Refused(f"nothing to resume: no session of this store was interrupted{more}", NOT_FOUND)


async def _newest(cli: Cli, engine: Engine, statuses: Sequence[str]) -> list[SessionInfo]:
    """The newest of them, as many as a person looks at."""
    names = list(engine.workflows) if cli.targets or cli.host.workflows else [None]
    found: list[SessionInfo] = []
    for name in names:
        found += await engine.sessions(workflow=name, status=statuses, level="root", limit=LISTED + 1)
    return sorted(found, key=lambda info: info.created_at, reverse=True)


async def listed(cli: Cli, engine: Engine, found: list[SessionInfo]) -> int:
    """Several could be meant: the newest of them, for somebody to name one."""
    from pausepoint.cli.text import place, shortened
    from pausepoint.engine import documents

    some = found[:LISTED]
    if not cli.out.for_people:
        cli.out.document(documents.candidates(some))
        return USAGE
    short = await shortened(cli, engine, [info.session_id for info in some])
    ids = [short.get(info.session_id, info.session_id) for info in some]
    stand = [[cli.out.status(info.status.value), place(info), ago(info.updated_at)] for info in some]
    rows = [[id, info.workflow, *how] for id, info, how in zip(ids, some, stand, strict=True)]
    cli.out.table(["SESSION", "WORKFLOW", "STATUS", "STEP", "MOVED"], rows)
    many = f"More than {LISTED}" if len(found) > LISTED else len(found)
    cli.out.note(f"{many} sessions could go on; name one: {spoken('resume', ids[0])}")
    return USAGE


async def found_session(engine: Engine, text: str) -> SessionInfo:
    """The session that a person means; if it is gone, they are told so."""
    try:
        return await engine.find(text)
    except UnknownSession as error:
        raise await missing(engine, error) from error


async def missing(engine: Engine, error: Any) -> Exception:
    """Why there is no such session: perhaps it was removed."""
    from pausepoint.clock import to_datetime

    for stone in await engine.tombstones():
        if stone.session_id == error.session_id:
            who, why = stone.by or "somebody", f": {stone.reason}" if stone.reason else ""
            when = ago(to_datetime(stone.removed_at))
            return not_found(f"session {stone.session_id} ({stone.workflow}) was removed {when} by {who}{why}")
    known = [info.session_id for info in await engine.sessions(sort="updated", limit=1000)]
    if near := did_you_mean(error.session_id, known).partition("Did you mean ")[2]:
        return not_found(f"{error}. Did you mean {near}")
    return not_found(f"{error}; {spoken('ls')} lists those that are")


async def session_and_checkpoint(engine: Engine, text: str) -> tuple[SessionInfo, int | str | None]:
    """A session, and the checkpoint behind an @. An id may contain one itself, so the whole is tried first."""
    before, mark, at = text.rpartition("@")
    try:
        return await engine.find(text), None
    except UnknownSession as error:
        if not mark or not at:
            raise await missing(engine, error) from error
    return await engine.find(before), checkpoint_of(at)


def checkpoint_of(text: str) -> int | str:
    return int(text) if text.isdecimal() else text
