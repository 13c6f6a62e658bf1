"""`pause`, `cancel`, `send`: what is asked of sessions from outside. None of them needs the code of a workflow."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import CONFLICT, DONE, NOT_FOUND, USAGE, Refused
from pausepoint.cli.options import SESSIONS, TARGETS, WORKFLOWS, by_option, common, reason_and_by
from pausepoint.errors import DamagedRecord, UnknownSession, did_you_mean

if TYPE_CHECKING:
    from pausepoint.definition.workflow import Workflow
    from pausepoint.engine.engine import Engine
    from pausepoint.engine.session import Session
    from pausepoint.model.sessions import Pause
    from pausepoint.model.views import SessionInfo

ENDED = ("completed", "cancelled")
LOOK_EVERY = 0.1
"""Seconds between two looks at sessions that are waited for."""


@click.command()
@click.argument("session", required=False, shell_complete=SESSIONS)
@click.option("--all", "everything", is_flag=True, help="Everything in this store.")
@click.option(
    "--workflow",
    metavar="NAME",
    shell_complete=WORKFLOWS,
    help="All sessions of a workflow, or runs of an orchestrator.",
)
@click.option("--tag", metavar="TAG", help="All with a tag.")
@click.option("--owner", metavar="NAME", help="All of an owner.")
@click.option("--abort", is_flag=True, help="Cancel the running step; a resume runs it again.")
@click.option("--freeze", is_flag=True, help="Stop timers too: what sleeps, sleeps as much longer.")
@click.option("--wait", is_flag=True, help="Wait until all of them stand still.")
@reason_and_by
@common()
def pause(
    cli: Cli, session: str | None, everything: bool, workflow: str | None, tag: str | None, owner: str | None,
    wait: bool, abort: bool, freeze: bool, reason: str, by: str | None,
) -> int:  # fmt: skip
    """Stop one session, some, or everything, at the next safe point.

    A step that runs is finished first; with --abort it is cancelled. A named session is paused with all that it has
    called. Several filters must all match.

    --all stands: what anybody starts afterwards, in any process, is stored paused, until `pausepoint resume --all`.
    """
    filters = Filters(workflow, tag, owner)
    if [session is not None, everything, any(filters)].count(True) != 1:
        raise click.UsageError("name a session, or filters (--workflow, --tag, --owner), or --all")
    if session is None and not cli.place.exists and not cli.place.explicit:
        return _nothing(cli, "There is no store here, so there is nothing to pause.")
    how = {"mode": "abort" if abort else "finish", "freeze": freeze, "reason": reason, "by": by}
    return _noted(cli, "The pause stays asked for.", _pause(cli, session, filters, how, wait))


class Filters(NamedTuple):
    """Which sessions are meant; all that is given must match."""

    workflow: str | None
    tag: str | None
    owner: str | None


async def _pause(cli: Cli, session: str | None, filters: Filters, how: dict[str, Any], wait: bool) -> int:
    async with cli.engine() as engine:
        named = None if session is None else await _named(engine, session)
        everything = named is None and not any(filters)
        given = {"everything": True} if everything else filters._asdict()
        found = await engine.pause(named, **given, **how)
        if not found and not found.damaged:
            why = await _why_nothing(cli, engine, filters) if any(filters) else "There is no session to stop."
            _waits(cli, everything)
            return _nothing(cli, why, await engine.standing_pause())
        finishing = "cancelling" if how["mode"] == "abort" else "still finishing"
        asked = await _asked_at(engine, found) if wait else None
        infos = await _reported(cli, engine, found, finishing, _asked_to_pause if wait else None)
        took = None if asked is None else round((engine.clock.now() - asked) / 1e6, 3)
        for damage in found.damaged:
            cli.out.line(f"{damage.fields['session_id']}  was asked to pause, and is damaged: {damage}")
        if not _waits(cli, everything):
            _hint(cli, infos)
        if not cli.out.for_people:
            cli.out.document(_document(infos, found.damaged, await engine.standing_pause()) | {"stopped_in": took})
        again = [info.session_id for info in infos if not _asked_to_pause(info) and info.status.value not in ENDED]
        if again:
            cli.out.note(f"Somebody took the pause back: {', '.join(again)}")
        elif took is not None:
            cli.out.note(f"All stand still, {took:.1f} s after they were asked to.")
        return CONFLICT if again or found.damaged else DONE


async def _asked_at(engine: Engine, found: Iterable[SessionInfo]) -> int | None:
    """When those that somebody drives were first asked to stop, perhaps before this; None if nobody drives any."""
    driven = [info.session_id for info in found if info.holder is not None]
    return min([pause.created_at for session_id in driven for pause in await engine.pauses(session_id)], default=None)


def _waits(cli: Cli, everything: bool) -> bool:
    if everything:
        cli.out.note(f"What is started from now on waits. Let everything go on:  {cli.lift}")
    return everything


async def _named(engine: Engine, text: str) -> str:
    """The id that is meant. Also of a session that is damaged: nothing may keep it from being stopped."""
    from pausepoint.cli.sessions import find_session

    try:
        return (await find_session(engine, text)).session_id
    except DamagedRecord as damage:
        return str(damage.fields["session_id"])


def _asked_to_pause(info: SessionInfo) -> bool:
    return info.pause_requested or info.status.value in ("pausing", "paused")


async def _why_nothing(cli: Cli, engine: Engine, filters: Filters) -> str:
    """Nothing matched: all of them have ended, or a name is wrong, which must not look like success."""
    every = await engine.sessions()
    ended = await engine.sessions(workflow=filters.workflow, tag=filters.tag, owner=filters.owner)
    if ended:
        some = "the session that matches has" if len(ended) == 1 else f"all {len(ended):,} sessions that match have"
        return f"Nothing to pause: {some} ended."
    known: dict[str, set[str]] = {
        "workflow": {info.workflow for info in every} | cli.project.targets.keys(),
        "tag": {tag for info in every for tag in info.tags},
        "owner": {info.owner for info in every if info.owner is not None},
    }
    for name, value in filters._asdict().items():
        if value is not None and value not in known[name]:
            raise Refused(f"no session has {name} {value!r}{did_you_mean(value, known[name])}", NOT_FOUND)
    return "Nothing to pause."


def _nothing(cli: Cli, why: str, standing: Pause | None = None) -> int:
    cli.out.line(why)
    if not cli.out.for_people:
        cli.out.document(_document([], (), standing) | {"stopped_in": None})
    return DONE


def _hint(cli: Cli, infos: list[SessionInfo]) -> None:
    first = next((info for info in infos if info.status.value not in ENDED), None)
    if first is not None:
        which = "Go on" if len(infos) == 1 else "Go on with the first"
        cli.out.note(f"{which}:  {cli.resume(first)}")


def _noted(cli: Cli, text: str, work: Any) -> int:
    """Run it. Who is tired of waiting is told that what was asked for stays asked for."""
    try:
        return int(run_async(work))
    except KeyboardInterrupt:
        cli.out.note(text)
        raise


# what was found


async def _reported(
    cli: Cli, engine: Engine, found: list[SessionInfo], finishing: str, wanted: Callable[[SessionInfo], bool] | None
) -> list[SessionInfo]:
    """Say what was found, and if it is waited for, how that ended. The sessions as they stand then."""
    print_sessions(cli, found, finishing)
    if wanted is None:
        return found
    ended = await wait_until_settled(engine, found, wanted)
    print_sessions(cli, list(ended.values()))
    return [ended.get(info.session_id, info) for info in found]


async def wait_until_settled(
    engine: Engine, infos: Iterable[SessionInfo], wanted: Callable[[SessionInfo], bool]
) -> dict[str, SessionInfo]:
    """Wait for those that somebody drives until nobody does, or until what was asked for is no longer wanted."""
    waited = [info.session_id for info in infos if info.holder is not None]
    ended: dict[str, SessionInfo] = {}
    while len(ended) < len(waited):
        await asyncio.sleep(LOOK_EVERY)
        for session_id in waited:
            if session_id not in ended:
                info = await engine.info(session_id)
                if info.holder is None or not wanted(info):
                    ended[session_id] = info
    return ended


def _document(
    infos: list[SessionInfo], damaged: Iterable[DamagedRecord] = (), standing: Pause | None = None
) -> dict[str, Any]:
    from pausepoint.engine import documents

    return documents.listing(infos, len(infos), damaged, standing)


def print_sessions(cli: Cli, infos: Sequence[SessionInfo], finishing: str = "") -> None:
    """A line for each session, aligned."""
    wide = [max((len(getattr(info, name)) for info in infos), default=0) for name in ("session_id", "workflow")]
    for info in infos:
        status = cli.out.status(info.status.value) + " " * (9 - len(info.status.value))
        head = f"{info.session_id:{wide[0]}}  {info.workflow:{wide[1]}}  {status}"
        cli.out.say(f"{head}  {short_status(info, finishing)}".rstrip(), 4)


def short_status(info: SessionInfo, finishing: str = "") -> str:
    """Where a session stands, and what it is still busy with."""
    from pausepoint.cli.text import one_line, position

    at = position(info)
    if info.holder is not None:
        done = f", {info.progress[0]} of {info.progress[1]}" if info.progress else ""
        holder = info.holder.partition(",")[0]
        return f"{finishing} {at}{done} ({holder})".lstrip()
    if info.status.value in ENDED:
        return "has ended" + (f", at {at}" if at else "")
    failed = f", which failed: {info.failure.type}: {info.failure.message:.60}" if info.failure is not None else ""
    return one_line(f"at {at}{failed}") if at else ""


# cancel


@click.command()
@click.argument("sessions", metavar="SESSION...", nargs=-1, required=True, shell_complete=SESSIONS)
@click.option("--wait", is_flag=True, help="Wait until they have ended.")
@reason_and_by
@common()
def cancel(cli: Cli, sessions: tuple[str, ...], wait: bool, reason: str, by: str | None) -> int:
    """End sessions for good, with all that they have called.

    One that nobody drives ends at once, another at its next safe point. What it has done stays readable; rewind and
    fork still work.
    """
    return _noted(cli, "It stays asked for.", _cancel(cli, sessions, wait, reason, by))


async def _cancel(cli: Cli, sessions: tuple[str, ...], wait: bool, reason: str, by: str | None) -> int:
    from pausepoint.cli.sessions import find_session

    async with cli.engine() as engine:
        infos = [await find_session(engine, text) for text in sessions]  # all of them, before one is ended
        named = dict.fromkeys(info.session_id for info in infos)
        for session_id in named:
            await engine.cancel(session_id, reason=reason, by=by)
        found = [await engine.info(session_id) for session_id in named]
        infos = await _reported(cli, engine, found, "ends after", _asked_to_end if wait else None)
        for number, info in enumerate(infos):
            if wait and info.status.value not in ENDED:  # its process was killed: nobody is there who ends it
                await engine.cancel(info.session_id, reason=reason, by=by)
                infos[number] = await engine.info(info.session_id)
        if not cli.out.for_people:
            cli.out.document(_document(infos, (), await engine.standing_pause()))
        return DONE


def _asked_to_end(info: SessionInfo) -> bool:
    return info.cancel_requested


# send


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.argument("text", required=False)
@click.option("--data", metavar="JSON", help="The message as JSON, instead of a text.")
@click.option("--workflow", metavar="TARGET", shell_complete=TARGETS,
              help="Start a session of that id if there is none, and run it here.")  # fmt: skip
@click.option("--field", "fields", metavar="NAME=VALUE", multiple=True, help="Its input, if it is started.")
@by_option
@common()
def send(
    cli: Cli, session: str, text: str | None, data: str | None, workflow: str | None,
    fields: tuple[str, ...], by: str | None,
) -> int:  # fmt: skip
    """Send a message to a session; its next `receive` gets it.

    TEXT or JSON may be `-`: then it is read from the standard input. The session is driven on by whoever drives it, by
    a worker, or by a resume; with --workflow by this command.
    """
    if fields and workflow is None:
        raise click.UsageError("--field is for a session that is started: say of which --workflow")
    value = _message(text, data)
    if workflow is None:
        return int(run_async(_send(cli, session, value, by)))
    return _send_and_run(cli, session, value, workflow, fields, by)


def _message(text: str | None, data: str | None) -> Any:
    if (text is None) == (data is None):
        raise click.UsageError("give a TEXT, or --data JSON; either may be -, for the standard input")
    given = data if text is None else text
    if given == "-":
        given = sys.stdin.read().removesuffix("\n")
    if data is None:
        return given
    try:
        return json.loads(given or "")
    except ValueError as error:
        raise Refused(f"--data is no JSON: {error}; a plain text goes without --data", USAGE) from None


async def _send(cli: Cli, session: str, value: Any, by: str | None) -> int:
    from pausepoint.cli.sessions import find_session

    async with cli.engine() as engine:
        session_id = (await find_session(engine, session)).session_id
        await engine.send(session_id, value, by=by)
        info = await engine.info(session_id)
        _told_sent(cli, info)
        return DONE


def _told_sent(cli: Cli, info: SessionInfo) -> None:
    from pausepoint.engine import documents

    if not cli.out.for_people:
        cli.out.document(documents.session(info))
        return
    what = {
        "running": f"is for the process that drives it ({info.holder})",
        "ready": "is kept until somebody drives the session on",
        "waiting": "is kept: the session waits for something else",
    }.get(info.status.value, "is kept")
    cli.out.line(f"{info.session_id}  {cli.out.status(info.status.value)}: the message {what}")
    if info.holder is None:
        cli.out.note(f"Go on:  {cli.resume(info)}")


def _send_and_run(cli: Cli, session: str, value: Any, target: str, pairs: tuple[str, ...], by: str | None) -> int:
    """The code is at hand: what the message leads to is done here, until the session needs somebody again."""
    from pausepoint.cli.drive import DrivenSession
    from pausepoint.cli.fields import collect_values, fields_of
    from pausepoint.cli.live import catch_up
    from pausepoint.cli.targets import load_named

    target, code = load_named(target, cli.project)
    cli.targets = (target,)
    driven = DrivenSession(cli, code, by)

    async def begin(engine: Engine) -> Session[Any]:
        if await _is_known(cli, engine, session, driven.workflow):
            if pairs:
                cli.out.note(f"{session} was started before: --field is not used")
            await catch_up(engine, session, driven.view)
            handle = await engine.session(session)
        else:
            values = collect_values({}, pairs, fields_of(driven.workflow.model))
            handle = await driven.start(engine, values, {"session_id": session, "by": by})
        await engine.send(session, value, by=by)
        return handle

    return driven.drive(begin)


async def _is_known(cli: Cli, engine: Engine, session: str, workflow: Workflow[Any]) -> bool:
    try:
        info = await engine.info(session)
    except UnknownSession:
        return False
    if info.workflow != workflow.name:
        raise Refused(
            f"session {session} is one of workflow {info.workflow!r}, not of {workflow.name!r}: name another session,"
            " or its own workflow",
            CONFLICT,
        )
    return True
