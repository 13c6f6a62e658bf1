"""``inbox``: the questions that wait for somebody, over all sessions. And which question a person means."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.console import span
from pausepoint.cli.context import Cli, not_found, run_async
from pausepoint.cli.exits import USAGE
from pausepoint.cli.host import command_line
from pausepoint.cli.options import SESSIONS, WORKFLOWS, OneOf, common
from pausepoint.cli.sessions import find_session
from pausepoint.cli.text import LEAST, MANY, counted, one_line, shortened, time_left
from pausepoint.errors import SessionError, UnknownSession, did_you_mean

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.questions import Question

LIMIT = 50
"""How many questions are listed if nobody says otherwise."""

STATUSES = ("WAITING_USER_INPUT", "RESUMED", "COMPLETED", "EXPIRED", "CANCELLED")
"""`QuestionStatus` is not imported for help."""


@click.command()
@click.argument("session", required=False, shell_complete=SESSIONS)
@click.option("--workflow", metavar="NAME", shell_complete=WORKFLOWS, help="Only of sessions of this workflow.")
@click.option("--owner", metavar="NAME", help="Only of sessions of this owner.")
@click.option("--key", metavar="KEY", help="Only those of this key.")
@click.option(
    "--status", "statuses", multiple=True, type=OneOf(STATUSES), metavar="STATUS",
    help=f"Instead of those that wait; repeatable: {', '.join(STATUSES)}.",
)  # fmt: skip
@click.option(
    "--limit", type=click.IntRange(min=0), default=LIMIT, show_default=True, metavar="N", help="At most so many."
)
@click.option("--all", "everything", is_flag=True, help="All of them.")
@common(lines=True)
def inbox(cli: Cli, **how: Any) -> None:
    """List the questions that wait for somebody, over all sessions or in one and what it called; the oldest first.

    Each with its age and the time that is left. Any unique beginning of a question's id is accepted by `answer`.
    """
    run_async(_inbox(cli, **how))


async def _inbox(
    cli: Cli, session: str | None, statuses: tuple[str, ...], limit: int, everything: bool, **filters: Any
) -> None:
    if session is None and not (cli.place.exists or cli.place.explicit):
        await show_list(cli, None, [], 0)
        cli.out.note(f"Nothing is asked: there is no store here. `{command_line('run')}` starts a session.")
        return
    async with cli.engine() as engine:
        named = None if session is None else (await find_session(engine, session)).session_id
        wanted = filters | {"status": statuses or STATUSES[0]}
        found = await engine.questions(named, limit=None if everything else limit, **wanted)
        total = len(found) if everything else sum((await engine.tally_questions(named, **wanted)).values())
        await show_list(cli, engine, found, total, found.damaged)
        for broken in found.damaged:
            cli.out.note(f"! {broken}")
        if not total:
            cli.out.note(await _nothing(engine, statuses, filters))
        elif (more := total - len(found) - len(found.damaged)) > 0:
            cli.out.note(f"… and {more:,} more; --all lists them all, --limit N so many")
        if found and not statuses:
            first = await short_questions(cli, engine, found[:1])
            cli.out.note(f"Answer:  {cli.command('answer', first[found[0].id])}")


async def _nothing(engine: Engine, statuses: Sequence[str], filters: dict[str, Any]) -> str:
    known = {workflow for workflow, _ in await engine.tally()}
    workflow = filters["workflow"]
    if workflow is not None and workflow not in known:
        return f"No session of a workflow {workflow!r}{did_you_mean(workflow, known)}"
    return "No question matches." if statuses or any(filters.values()) else "No question waits for an answer."


async def show_list(
    cli: Cli, engine: Engine | None, found: Sequence[Question], total: int, damaged: Sequence[Any] = ()
) -> None:
    """Questions in the form that was asked for."""
    from pausepoint.engine import documents

    entries = [documents.question(each, cli.command("answer", each.id)) for each in found]
    if cli.out.as_json:
        cli.out.document(documents.inbox(entries, total, damaged))
    elif cli.out.as_lines:
        for each in entries:
            cli.out.record(each)
    elif engine is not None and found:
        await _table(cli, engine, found)


async def _table(cli: Cli, engine: Engine, found: Sequence[Question]) -> None:
    short = await short_questions(cli, engine, found)
    sessions = await shortened(cli, engine, [each.session_id for each in found])
    now = datetime.now(UTC)
    rows = [
        [
            short[each.id],
            sessions.get(each.session_id, each.session_id),
            each.workflow_id,
            span(now - each.created_at),
            _time(each, now),
            one_line(each.next_question),
        ]
        for each in found
    ]
    cli.out.table(["QUESTION", "SESSION", "WORKFLOW", "AGE", "TIME", "ASKED"], rows)


def _time(question: Question, now: datetime) -> str:
    """What is left of it, or how it ended."""
    if question.status.value == STATUSES[0]:
        return time_left(question, now)
    who = question.receipt.by if question.receipt is not None else None
    return question.status.value.lower() + (f" by {who}" if who else "")


async def short_questions(cli: Cli, engine: Engine, found: Sequence[Question]) -> dict[str, str]:
    """The ids, cut on a terminal to what tells each apart from all others of the store. Not in a long list."""
    if not cli.out.terminal or len(found) > MANY:
        return {each.id: each.id for each in found}
    return {each.id: await _shortest(engine, each.id) for each in found}


async def _shortest(engine: Engine, id: str) -> str:
    others = [each.id for each in await engine.questions(status=None, prefix=id[:LEAST]) if each.id != id]
    sizes = range(LEAST, len(id))
    return id[: next((size for size in sizes if not any(each.startswith(id[:size]) for each in others)), len(id))]


# which one is meant


async def meant(engine: Engine, text: str | None) -> list[Question]:
    """The questions that could be meant: by an id or the beginning of one, or by a session that waits for an answer.

    Only who names it by itself gets one that is closed: to be told so.
    """
    if text is None:
        if not (waiting := await engine.questions(limit=LIMIT)):
            raise not_found("no question waits for an answer")
        return list(waiting)
    of_session, wrong = await _of_session(engine, text)
    if of_session and of_session[0].session_id == text:
        return of_session
    named = await engine.questions(prefix=text, limit=LIMIT) if text else []
    found = {each.id: each for each in [*of_session, *named]} or {
        each.id: each for each in (await engine.questions(status=None, prefix=text, limit=LIMIT) if text else [])
    }
    if not found:
        raise wrong
    return list(found.values())


async def _of_session(engine: Engine, text: str) -> tuple[list[Question], Exception]:
    """The questions of the session that is meant, and what is wrong if there are none."""
    try:
        info = await engine.find(text)
    except UnknownSession:
        return [], not_found(f"no question and no session begins with {text!r}; {command_line('inbox')} lists what waits")
    except SessionError as error:
        return [], error
    status = info.status.value
    wrong = not_found(f"session {info.session_id} ({status}) waits for no answer; {command_line('inbox')} lists what does")
    return list(await engine.questions(info.session_id)), wrong


async def list_matches(cli: Cli, engine: Engine, found: Sequence[Question]) -> int:
    """Several could be meant: for somebody to name one."""
    await show_list(cli, engine, found[:LIMIT], len(found))
    short = await short_questions(cli, engine, found[:1])
    name = cli.command("answer", short[found[0].id])
    many = f"{counted(len(found), 'question')}{' or more' if len(found) >= LIMIT else ''}"
    cli.out.note(f"{many} could be meant; name one: {name}")
    return USAGE
