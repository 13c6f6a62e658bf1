"""`pause`, `cancel`, `send`: requests to sessions. None of them needs the workflow's code."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pausepoint.cli.bulk import BulkCommand
from pausepoint.cli.console import span
from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import CONFLICT, DONE, USAGE, Refused
from pausepoint.cli.filters import NAMES, Filters, filter_options
from pausepoint.cli.host import command_line
from pausepoint.cli.options import SESSIONS, TARGETS, by_option, common, reason_and_by
from pausepoint.cli.text import one_line
from pausepoint.errors import DamagedRecord, UnknownSession
from pausepoint.name import NAME

if TYPE_CHECKING:
    from pausepoint.definition.workflow import Workflow
    from pausepoint.engine.engine import Engine
    from pausepoint.engine.session import Session
    from pausepoint.model.views import SessionInfo, StandingPause

ENDED = ("completed", "cancelled")
LOOK_EVERY = 0.1
"""Seconds between two checks of sessions to wait for."""


@click.command()
@click.argument("session", required=False, shell_complete=SESSIONS)
@click.option("--all", "everything", is_flag=True, help="Pause everything in this store.")
@filter_options("Pause all sessions")
@click.option("--dry-run", is_flag=True, help="With filters: show what would be paused, and change nothing.")
@click.option("--abort", is_flag=True, help="Cancel the running step; a resume runs it again.")
@click.option("--freeze", is_flag=True, help="Stop timers, too, and commands of agents at the gate.")
@click.option("--wait", is_flag=True, help="Wait until all of them have stopped.")
@reason_and_by
@common()
def pause(
    cli: Cli, session: str | None, everything: bool, dry_run: bool, wait: bool, abort: bool, freeze: bool, reason: str,
    by: str | None, **given: Any,
) -> int:  # fmt: skip
    """Pause one session, several, or everything.

    A running session stops at its next safe point: before the next operation, at a wait, or at the end of the step.
    --abort cancels the step instead. Sessions are paused with their children. If you give several filters, all must
    match. With filters, failed sessions stay as they are, because they do not run.

    --all stays in effect until `pausepoint resume --all`: sessions that any process starts meanwhile are stored paused.
    """
    filters = Filters.taken_from(given)
    if [session is not None, everything, filters != Filters()].count(True) != 1:
        raise click.UsageError(f"Give exactly one of: a session, filters ({NAMES}), or --all.")
    how = {"mode": "abort" if abort else "finish", "freeze": freeze, "reason": reason, "by": by}
    if filters != Filters():
        words = ["--abort"] * abort + ["--freeze"] * freeze + ["--wait"] * wait
        return BulkCommand(cli, "pause", filters, how | {"wait": wait}, dry_run=dry_run, words=words).run()
    if dry_run:
        raise click.UsageError("--dry-run needs filters. `show` tells about one session, `status` about all.")
    create = session is None and not cli.place.exists and _has_gate(cli)
    if session is None and not cli.place.exists and not cli.place.explicit and not create:
        return _nothing(cli, "There is no store here, so there is nothing to pause.")
    return _run_waiting(cli, "The pause stays requested.", _pause(cli, session, how, wait, create))


def _has_gate(cli: Cli) -> bool:
    """Return whether the project has a gate. Its agents then look at the flag of the store, also if it is new."""
    from pausepoint.gate.settings import gate_file

    return gate_file(cli.project.root).exists()


async def _note_unserved(cli: Cli) -> None:
    """Say that nothing tells which agents of the project work, and when they stop, if its gate has no server."""
    if not _has_gate(cli):
        return
    from pausepoint.gate.callers import GateCaller
    from pausepoint.gate.settings import SettingsRefused, gate_file, read_gate
    from pausepoint.integrations.gate import GatePlace

    try:
        known = read_gate(gate_file(cli.project.root))
    except SettingsRefused as refused:
        cli.out.note(str(refused))
        return
    if known is None or cli.place.path is None or known.flag != f"{cli.place.path.absolute()}-paused":
        return  # its agents look at the flag of another store
    caller = GateCaller(GatePlace(known.socket, known.flag, known.on_loss), "pause", "pause")
    if await asyncio.to_thread(caller.end) is None:
        cli.out.note(
            "The gate has no server, so agents of this project stop before their next tool call, but nothing tells"
            f" which ones work. Start it:  {command_line('gate', 'serve')}"
        )


async def _pause(cli: Cli, session: str | None, how: dict[str, Any], wait: bool, create: bool) -> int:
    async with cli.engine(create=create) as engine:
        everything = session is None
        named = "" if session is None else await _named(engine, session)
        with _delays_shown(cli):
            paused = await (engine.pause_all(**how) if everything else engine.session(named).pause(**how))
        if everything:
            await _note_unserved(cli)
        if not paused and not paused.damaged:
            _note_standing(cli, everything)
            return _nothing(cli, "There is no session to pause.", await engine.standing_pause())
        for info in paused:
            cli.note_driver(info)
        finishing = "cancelling" if how["mode"] == "abort" else "still finishing"
        driven = [info.session_id for info in paused if info.holder is not None] if wait else []
        asked = await _asked_at(engine, driven)
        over = [info.session_id for info in paused if info.status.value in ENDED]
        infos = await _reported(cli, engine, paused, over, finishing, _asked_to_pause if wait else None)
        if everything:
            await _report_rest(cli, engine, len(infos), wait)
        took = None if asked is None else await _took(engine, driven, asked, everything)
        for damage in paused.damaged:
            cli.out.line(f"{damage.fields['session_id']}  is damaged, but the pause is stored. {damage}")
        if not _note_standing(cli, everything):
            _hint(cli, infos)
        if not cli.out.for_people:
            from pausepoint.engine.documents import stopping

            seconds = None if took is None else took.total_seconds()
            cli.out.document(stopping(infos, paused.damaged, await engine.standing_pause(), seconds))
        again = [info.session_id for info in infos if not _asked_to_pause(info) and info.status.value not in ENDED]
        if again:
            cli.out.note(f"The pause was withdrawn: {', '.join(again)}")
        elif took is not None:
            cli.out.note(f"All have stopped, {span(took)} after the request.")
        return CONFLICT if again or paused.damaged else DONE


@contextmanager
def _delays_shown(cli: Cli) -> Iterator[None]:
    """Print warnings at once, such as why a pause of everything is not stored yet."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: cli.out.note(record.getMessage())  # type: ignore[method-assign]  # as for a subclass
    logging.getLogger(NAME).addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger(NAME).removeHandler(handler)


async def _report_rest(cli: Cli, engine: Engine, listed: int, wait: bool) -> None:
    """Report how many sessions a pause of everything stops beyond the listed ones; with ``wait``, wait for them too."""
    while wait and await engine.sessions(status="pausing", limit=1):
        await asyncio.sleep(LOOK_EVERY)
    total = sum((await engine.tally(status=("pausing", "paused"))).values())
    if total > listed:
        how = command_line("ls", "--status", "paused")
        cli.out.note(f"{listed:,} of {total:,} paused sessions. List them with `{how}`.")


async def _asked_at(engine: Engine, driven: Iterable[str]) -> int | None:
    """Return when the running sessions were first asked to pause, perhaps by an earlier request; None if none runs."""
    return min(
        [pause.created_at for session_id in driven for pause in await engine.session(session_id).pauses()], default=None
    )


async def _took(engine: Engine, driven: Iterable[str], asked: int, everything: bool) -> timedelta:
    """Return how long the sessions took to stop. It is the stored figure, which lists and the page have, too."""
    standing = await engine.standing_pause() if everything else None
    if standing is not None and standing.longest is not None:
        return standing.longest
    pauses = [pause for session_id in driven for pause in await engine.session(session_id).pauses()]
    ends = [each.took_effect_at for each in pauses if each.took_effect_at is not None]
    return timedelta(microseconds=max(ends, default=engine.clock.now()) - asked)


def _note_standing(cli: Cli, everything: bool) -> bool:
    if everything:
        cli.out.note(f"New sessions are stored paused from now on. Resume everything:  {cli.lift}")
    return everything


async def _named(engine: Engine, text: str) -> str:
    """Return the id of the session that the text names, even if it is damaged: it can still be paused."""
    from pausepoint.cli.sessions import session_to_change

    try:
        return (await session_to_change(engine, text)).session_id
    except DamagedRecord as damage:
        return str(damage.fields["session_id"])


def _asked_to_pause(info: SessionInfo) -> bool:
    return info.pause_requested or info.status.value in ("pausing", "paused")


def _nothing(cli: Cli, why: str, standing: StandingPause | None = None) -> int:
    cli.out.line(why)
    if not cli.out.for_people:
        from pausepoint.engine.documents import stopping

        cli.out.document(stopping([], (), standing, None))
    return DONE


def _hint(cli: Cli, infos: list[SessionInfo]) -> None:
    first = next((info for info in infos if info.status.value not in ENDED), None)
    if first is not None:
        cli.out.note(cli.resume_line(first, "Resume" if len(infos) == 1 else "Resume the first"))
        left = first.holder is None and first.kept_by is None
        if left and (driver := cli.drivers.get(first.session_id)):
            cli.out.note(f"{first.session_id} was driven by:  {driver}")


def _run_waiting(cli: Cli, text: str, work: Any) -> int:
    """Run the command. On Ctrl+C, print that the request stays in effect."""
    try:
        return int(run_async(work))
    except KeyboardInterrupt:
        cli.out.note(text)
        raise


# report


async def _reported(
    cli: Cli, engine: Engine, found: list[SessionInfo], ended_before: Collection[str], finishing: str,
    wanted: Callable[[SessionInfo], bool] | None,
) -> list[SessionInfo]:  # fmt: skip
    """Print the sessions; if ``wanted`` is given, wait for them and print how that ended. Return the sessions."""
    over = [info for info in found if info.session_id in ended_before]
    for info in over:
        how = "has already completed" if info.status.value == "completed" else "was already cancelled"
        cli.out.line(f"Session {info.session_id} {how}. Nothing was changed.")
    print_sessions(cli, [info for info in found if info not in over], finishing)
    if wanted is None:
        return found
    ended = await wait_until_settled(engine, found, wanted)
    print_sessions(cli, list(ended.values()), notes=await _agent_notes(engine, list(ended.values())))
    return [ended.get(info.session_id, info) for info in found]


async def wait_until_settled(
    engine: Engine, infos: Iterable[SessionInfo], wanted: Callable[[SessionInfo], bool]
) -> dict[str, SessionInfo]:
    """Wait until no process drives the sessions, or the request was withdrawn (``wanted`` is false)."""
    waited = [info.session_id for info in infos if info.holder is not None]
    ended: dict[str, SessionInfo] = {}
    while len(ended) < len(waited):
        await asyncio.sleep(LOOK_EVERY)
        for session_id in waited:
            if session_id not in ended:
                info = await engine.session(session_id).info()
                if info.holder is None or not wanted(info):
                    ended[session_id] = info
    return ended


async def _agent_notes(engine: Engine, infos: Sequence[SessionInfo]) -> dict[str, str]:
    """Return what agents of other programs wait to do, and what they have left running."""
    if not any(info.guest or info.tags for info in infos):  # a run has a tag
        return {}
    from pausepoint.gate.guests import agent_note

    found = {info.session_id: await agent_note(engine, info) for info in infos}
    return {
        session_id: (f", waits to run {one_line(each.call)}" if each.call else "")
        + (f", its commands: {one_line(each.background)}" if each.background else "")
        for session_id, each in found.items()
    }


def print_sessions(
    cli: Cli, infos: Sequence[SessionInfo], finishing: str = "", notes: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Print an aligned line for each session. ``notes`` are further facts about some."""
    wide = [max((len(getattr(info, name)) for info in infos), default=0) for name in ("session_id", "workflow")]
    for info in infos:
        status = cli.out.status(info.status.value) + " " * (9 - len(info.status.value))
        head = f"{info.session_id:{wide[0]}}  {info.workflow:{wide[1]}}  {status}"
        cli.out.say(f"{head}  {short_status(info, finishing)}{notes.get(info.session_id, '')}".rstrip(), 4)


def short_status(info: SessionInfo, finishing: str = "") -> str:
    """Return a session's position, and what it is still doing."""
    from pausepoint.cli.text import position, position_phrase, short_holder

    if info.holder is not None:
        done = f", {info.progress[0]} of {info.progress[1]}" if info.progress else ""
        return f"{finishing} {position(info)}{done} ({short_holder(info.holder)})".lstrip()
    if info.status.value in ENDED:
        return f"ended{position_phrase(info)}"
    failed = f", which failed: {info.failure.type}: {info.failure.message:.60}" if info.failure is not None else ""
    kept = f", kept in {short_holder(info.kept_by)}" if info.kept_by is not None else ""
    return one_line(f"{position_phrase(info)}{kept}{failed}") if info.step else ""


# cancel


@click.command()
@click.argument("sessions", metavar="[SESSION...]", nargs=-1, shell_complete=SESSIONS)
@filter_options("Cancel all sessions")
@click.option("--dry-run", is_flag=True, help="With filters: show what would be cancelled, and change nothing.")
@click.option("--yes", is_flag=True, help="With filters: do not ask at a terminal.")
@click.option("--wait", is_flag=True, help="Wait until they have ended.")
@reason_and_by
@common()
def cancel(
    cli: Cli, sessions: tuple[str, ...], dry_run: bool, yes: bool, wait: bool, reason: str, by: str | None, **given: Any
) -> int:
    """End sessions permanently, with their children.

    A session that is not running ends immediately, a running one at its next safe point. Its history and state stay
    readable, and rewind and fork still work.

    With filters, all sessions that match are cancelled. At a terminal, the command lists them first and asks.
    """
    filters = Filters.taken_from(given)
    if bool(sessions) == (filters != Filters()):
        raise click.UsageError(f"Give sessions to cancel, or filters ({NAMES}).")
    if sessions and (dry_run or yes):
        raise click.UsageError("--dry-run and --yes need filters.")
    if sessions:
        return _run_waiting(cli, "The cancel stays requested.", _cancel(cli, sessions, wait, reason, by))
    how = {"reason": reason, "by": by}
    words = ["--wait"] * wait + ["--yes"] * yes
    bulk = BulkCommand(cli, "cancel", filters, how, dry_run=dry_run, asks=not yes, words=words)
    bulk.waits = _until_ended if wait else None
    return bulk.run()


async def _until_ended(engine: Engine, ids: Sequence[str]) -> None:
    """Wait until sessions that were asked to end have ended. Those whose process was killed end here."""
    found = [await engine.session(session_id).info() for session_id in ids]
    for info in (await wait_until_settled(engine, found, _asked_to_end)).values():
        if info.status.value not in ENDED:
            await engine.session(info.session_id).cancel()


async def _cancel(cli: Cli, sessions: tuple[str, ...], wait: bool, reason: str, by: str | None) -> int:
    from pausepoint.cli.sessions import session_to_change

    async with cli.engine() as engine:
        infos = [await session_to_change(engine, text) for text in sessions]  # find all before one is cancelled
        named = dict.fromkeys(info.session_id for info in infos)
        over = [info.session_id for info in infos if info.status.value in ENDED]
        for session_id in named:
            await engine.session(session_id).cancel(reason=reason, by=by)
        found = [await engine.session(session_id).info() for session_id in named]
        infos = await _reported(cli, engine, found, over, "ends after", _asked_to_end if wait else None)
        for number, info in enumerate(infos):
            if wait and info.status.value not in ENDED:  # its process was killed, so it ends here
                await engine.session(info.session_id).cancel(reason=reason, by=by)
                infos[number] = await engine.session(info.session_id).info()
        if not cli.out.for_people:
            from pausepoint.engine.documents import listing

            cli.out.document(listing(infos, len(infos), (), await engine.standing_pause()))
        return DONE


def _asked_to_end(info: SessionInfo) -> bool:
    return info.cancel_requested


# send


@click.command()
@click.argument("session", shell_complete=SESSIONS)
@click.argument("text", required=False)
@click.option("--data", metavar="JSON", help="The message as JSON.")
@click.option("--workflow", metavar="TARGET", shell_complete=TARGETS,
              help="Run the session here; start it if it does not exist.")  # fmt: skip
@click.option("--field", "fields", metavar="NAME=VALUE", multiple=True, help="The input of a new session; repeatable.")
@click.option("--key", metavar="KEY", help="Deliver the message once, however often this command is repeated.")
@by_option
@common()
def send(
    cli: Cli, session: str, text: str | None, data: str | None, workflow: str | None,
    fields: tuple[str, ...], key: str | None, by: str | None,
) -> int:  # fmt: skip
    """Send a message to a session; its next `receive` gets it.

    If TEXT or JSON is `-`, it is read from standard input. The session continues in the process that drives it, or with
    a worker or a resume; with --workflow, in this command.
    """
    if fields and workflow is None:
        raise click.UsageError("--field is the input of a new session. Add --workflow to start one.")
    if key == "":
        raise click.UsageError("--key is empty. Give each message a key of its own, or leave the option out.")
    sent = _Sent(_message(text, data), key, by)
    if workflow is None:
        return int(run_async(_send(cli, session, sent)))
    return _send_and_run(cli, session, sent, workflow, fields)


class _Sent(NamedTuple):
    """A message on the command line."""

    value: Any
    key: str | None
    by: str | None

    async def to(self, engine: Engine, session_id: str) -> None:
        await engine.session(session_id).send(self.value, key=self.key, by=self.by)


def _message(text: str | None, data: str | None) -> Any:
    if (text is None) == (data is None):
        raise click.UsageError("Give either TEXT or --data JSON. Use - to read from standard input.")
    given = data if text is None else text
    if given == "-":
        given = sys.stdin.read().removesuffix("\n")
    if data is None:
        return given
    try:
        return json.loads(given or "")
    except ValueError as error:
        raise Refused(f"--data is not JSON: {error}. Pass plain text as TEXT, without --data.", USAGE) from None


async def _send(cli: Cli, session: str, sent: _Sent) -> int:
    from pausepoint.cli.sessions import session_to_change

    async with cli.engine() as engine:
        session_id = (await session_to_change(engine, session)).session_id
        await sent.to(engine, session_id)
        info = await engine.session(session_id).info()
        _report_sent(cli, info)
        return DONE


def _report_sent(cli: Cli, info: SessionInfo) -> None:
    from pausepoint.engine import documents

    if not cli.out.for_people:
        cli.out.document(documents.SessionDocument.of(info))
        return
    what = {
        "running": f"goes to {info.holder}",
        "ready": "is stored, and delivered when the session is resumed",
        "waiting": "is stored; the session waits for something else",
    }.get(info.status.value, "is stored")
    cli.out.line(f"{info.session_id}  {cli.out.status(info.status.value)}: the message {what}")
    if info.holder is None:
        cli.out.note(cli.resume_line(info))


def _send_and_run(cli: Cli, session: str, sent: _Sent, target: str, pairs: tuple[str, ...]) -> int:
    """Send the message, and drive the session here until it ends or needs a person again."""
    from pausepoint.cli.drive import DrivenSession
    from pausepoint.cli.live import catch_up
    from pausepoint.cli.targets import load_named

    target, code = load_named(target, cli.project)
    cli.targets = (target,)
    driven = DrivenSession(cli, code, sent.by)
    if not cli.place.exists:
        driven.check_start(_input(code, pairs), {"session_id": session})

    async def begin(engine: Engine) -> Session[Any]:
        if await _is_known(cli, engine, session, driven.workflow):
            if pairs:
                cli.out.note(f"Session {session} already exists, so --field is ignored.")
            await catch_up(engine, session, driven.view)
            handle = engine.session(session)
        else:
            handle = await driven.start(engine, _input(code, pairs), {"session_id": session, "by": sent.by})
        await sent.to(engine, session)
        return handle

    return driven.drive(begin)


def _input(workflow: Workflow[Any], pairs: tuple[str, ...]) -> dict[str, Any]:
    from pausepoint.cli.fields import collect_values, input_of

    fields = input_of(workflow)
    for field in fields.values():
        field.taken = True  # `send` has no option for a field, only --field
    return collect_values({}, pairs, fields)


async def _is_known(cli: Cli, engine: Engine, session: str, workflow: Workflow[Any]) -> bool:
    try:
        info = await engine.session(session).info()
    except UnknownSession:
        return False
    if info.workflow != workflow.name:
        raise Refused(
            f"Session {session!r} belongs to workflow {info.workflow!r}, not to {workflow.name!r}. Name another"
            " session, or its own workflow.",
            CONFLICT,
        )
    return True
