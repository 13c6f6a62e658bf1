"""Find a session by its id, as the last one that was interrupted, or, to read it, by the beginning of its id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pausepoint.cli.console import ago
from pausepoint.cli.context import Cli, not_found
from pausepoint.cli.exits import NOT_FOUND, USAGE, Refused
from pausepoint.cli.host import command_line
from pausepoint.errors import UnknownSession, did_you_mean

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.views import SessionInfo


CANDIDATES = ("ready", "created"), ("failed",), ("paused",)
"""The statuses that `resume` looks for if no session is named, in this order: interrupted, failed, paused."""


LISTED = 20
"""The number of candidates to list."""


RESUMABLE = [status for group in CANDIDATES for status in group]


def status_and_age(info: SessionInfo) -> str:
    """Return a phrase such as ``failed at write, 5 min ago``."""
    from pausepoint.cli.text import position_phrase

    return f"{info.status.value}{position_phrase(info)}, {ago(info.updated_at)}"


async def candidates(cli: Cli, engine: Engine) -> list[SessionInfo]:
    """Return the interrupted sessions; if there are none, the failed ones; if there are none, the paused ones."""
    counts: Counter[str] = Counter()
    for (workflow, status), count in (await engine.tally(level="root")).items():
        if workflow in engine.workflows or not (cli.targets or cli.host.workflows):
            counts[status.value] += count
    for group in CANDIDATES:
        if not any(counts[status] for status in group):
            continue
        found = await _newest(cli, engine, group)
        if not found:
            continue  # only guests, which their own programs continue
        if len(found) == 1:
            others = sum(counts[status] for status in RESUMABLE) - 1
            more = f"; {others:,} more: {command_line('ls')}" if others else ""
            what = f"{found[0].session_id} ({found[0].workflow}), {status_and_age(found[0])}"
            cli.out.note(f"Picked the last session: {what}{more}")
        return found
    running = sum(counts[status] for status in ("running", "pausing", "sleeping", "waiting"))
    more = f" Running or waiting: {running}; `{command_line('ls')}` lists them." if running else ""
    if await engine.questions(limit=1):
        more += f" Questions wait for an answer: `{command_line('inbox')}`."
    raise Refused(
        f"There is nothing to resume: no session of this store is interrupted, failed or paused.{more}", NOT_FOUND
    )


async def _newest(cli: Cli, engine: Engine, statuses: Sequence[str]) -> list[SessionInfo]:
    """Return the newest sessions with one of the statuses."""
    names = list(engine.workflows) if cli.targets or cli.host.workflows else [None]
    found: list[SessionInfo] = []
    for name in names:
        found += await engine.sessions(workflow=name, status=statuses, level="root", limit=LISTED + 1)
    found = [info for info in found if not info.guest or info.status.value == "paused"]
    return sorted(found, key=lambda info: info.created_at, reverse=True)


async def list_candidates(cli: Cli, engine: Engine, found: list[SessionInfo]) -> int:
    """List the newest candidates, so that the person can name one."""
    from pausepoint.cli.text import position, shortened
    from pausepoint.engine import documents

    some = found[:LISTED]
    if not cli.out.for_people:
        cli.out.document(documents.Candidates([documents.SessionDocument.of(info) for info in some]))
        return USAGE
    short = await shortened(cli, engine, [info.session_id for info in some])
    ids = [short.get(info.session_id, info.session_id) for info in some]
    details = [[cli.out.status(info.status.value), position(info), ago(info.updated_at)] for info in some]
    rows = [[id, info.workflow, *how] for id, info, how in zip(ids, some, details, strict=True)]
    cli.out.table(["SESSION", "WORKFLOW", "STATUS", "STEP", "UPDATED"], rows)
    many = f"More than {LISTED}" if len(found) > LISTED else len(found)
    resume = cli.command("resume", some[0].session_id, some[0].workflow)
    cli.out.note(f"{many} sessions can be resumed. Name one{cli.to_add(some[0])}:  {resume}")
    return USAGE


async def find_session(engine: Engine, text: str) -> SessionInfo:
    """Return the session to read whose id is, or begins with, the text. Refuse with a suggestion if there is none."""
    try:
        return await engine.find(text)
    except UnknownSession as error:
        raise await unknown_session(engine, error) from error


async def session_to_change(engine: Engine, text: str) -> SessionInfo:
    """Return the session with this id. Refuse if there is none.

    For the beginning of an id the error names the session (``near``), and `common` asks the person about it.
    """
    try:
        return await engine.find(text, exact=True)
    except UnknownSession as error:
        raise error if error.near is not None else await unknown_session(engine, error) from error


async def unknown_session(engine: Engine, error: Any) -> Exception:
    """Return the refusal of an unknown session: it was removed, or the nearest ids."""
    from pausepoint.clock import to_datetime
    from pausepoint.model.ids import is_session_id

    for stone in await engine.tombstones(error.session_id) if is_session_id(error.session_id) else ():
        if stone.session_id == error.session_id:
            who, why = f" by {stone.by}" if stone.by else "", f": {stone.reason}" if stone.reason else ""
            when = ago(to_datetime(stone.removed_at))
            return not_found(
                f"Session {stone.session_id!r} ({stone.workflow}) was removed {when}{who}{why}."
                f" `{command_line('ls')}` lists the sessions that exist."
            )
    known = [info.session_id for info in await engine.sessions(sort="updated", limit=1000)]
    what = f"There is no session {error.session_id!r} in this store"
    if "Did you mean" in (hint := did_you_mean(error.session_id, known)):
        return not_found(what + hint)
    return not_found(f"{what}. `{command_line('ls')}` lists the sessions that exist.")


async def session_and_checkpoint(engine: Engine, text: str) -> tuple[SessionInfo, int | str | None]:
    """Return the session and the checkpoint of ``SESSION@CHECKPOINT``. An id may contain @, so try it whole first."""
    before, mark, at = text.rpartition("@")
    try:
        return await engine.find(text), None
    except UnknownSession as error:
        if not mark or not at:
            raise await unknown_session(engine, error) from error
    return await find_session(engine, before), checkpoint_of(at)


def checkpoint_of(text: str) -> int | str:
    return int(text) if text.isdecimal() else text
