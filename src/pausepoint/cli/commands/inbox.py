"""``inbox``: list the questions that wait for an answer, in all sessions; and find the question that a person names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.console import span
from pausepoint.cli.context import Cli, not_found, run_async
from pausepoint.cli.exits import USAGE
from pausepoint.cli.host import command_line, how_to_start
from pausepoint.cli.options import CURSOR, SESSIONS, WORKFLOWS, OneOf, Whole, common, not_a_cursor
from pausepoint.cli.sessions import find_session
from pausepoint.cli.text import LEAST, MANY, approval, counted, one_line, shortened, time_left
from pausepoint.errors import SessionError, UnknownSession, did_you_mean

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.questions import Question

LIMIT = 50
"""The default number of questions to list."""

STATUSES = ("WAITING_USER_INPUT", "RESUMED", "COMPLETED", "EXPIRED", "CANCELLED")
"""The values of `QuestionStatus`, which is not imported so that ``--help`` is fast."""


SORTS = ("asked", "expires", "updated")


@click.command()
@click.argument("session", required=False, shell_complete=SESSIONS)
@click.option("--workflow", metavar="NAME", shell_complete=WORKFLOWS, help="Only questions of this workflow.")
@click.option("--owner", metavar="NAME", help="Only questions of this owner's sessions.")
@click.option("--key", metavar="KEY", help="Only questions with this key.")
@click.option(
    "--status", "statuses", multiple=True, type=OneOf(STATUSES), metavar="STATUS",
    help=f"List questions with this status; repeatable: {', '.join(STATUSES)}.",
)  # fmt: skip
@click.option(
    "--sort",
    type=OneOf(SORTS),
    default="asked",
    metavar="BY",
    help="Sort by asked, the oldest first; expires, the least time left first; or updated, the last first."
    "  [default: asked]",
)
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@click.option("--limit", type=Whole(), default=LIMIT, show_default=True, metavar="N", help="List at most N.")
@CURSOR
@click.option("--all", "everything", is_flag=True, help="List all.")
@common(lines=True)
def inbox(cli: Cli, **how: Any) -> None:
    """List the questions that wait for an answer, the oldest first: in all sessions, or in one and its children.

    The list shows each question's age and the time that is left. A terminal shows the shortest unique beginning of each
    id. `answer` needs the whole id, unless you are asked for the answer at a terminal.
    """
    run_async(_inbox(cli, **how))


async def _inbox(
    cli: Cli, session: str | None, statuses: tuple[str, ...], limit: int, everything: bool, sort: str, reverse: bool,
    after: str | None, **filters: Any,
) -> None:  # fmt: skip
    if session is None and not (cli.place.exists or cli.place.explicit):
        await show_list(cli, None, [], 0)
        cli.out.note(f"No questions: there is no store here. {how_to_start()}")
        return
    async with cli.engine() as engine:
        named = None if session is None else (await find_session(engine, session)).session_id
        wanted = filters | {"status": statuses or STATUSES[0]}
        order: dict[str, Any] = {"sort": sort, "reverse": reverse, "after": after}
        try:
            found = await engine.questions(tree=named, limit=None if everything else limit, **wanted, **order)
        except ValueError:
            if after is None:
                raise
            raise not_a_cursor() from None
        total = (
            len(found)
            if everything and after is None
            else sum((await engine.tally_questions(tree=named, **wanted)).values())
        )
        await show_list(cli, engine, found, total, found.damaged, found.next)
        for broken in found.damaged:
            cli.out.note(f"! {broken}")
        if not total:
            cli.out.note(await _nothing(engine, statuses, filters))
        elif after is None and (more := total - len(found) - len(found.damaged)) > 0:
            cli.out.note(f"… and {more:,} more. --all lists all.")
        if found and not statuses:
            cli.out.note(f"Answer:  {cli.command('answer', found[0].id)}")
            _tell_approvals(cli, found)


def _tell_approvals(cli: Cli, questions: Sequence[Question]) -> None:
    """Name the command that shows all of a call, because a line shows less than a person approves."""
    for question in [question for question in questions if approval(question) is not None][:1]:
        cli.out.note(f"Show all that would run:  {cli.command('answer', question.id)} --later")


async def _nothing(engine: Engine, statuses: Sequence[str], filters: dict[str, Any]) -> str:
    known = {workflow for workflow, _ in await engine.tally()}
    workflow = filters["workflow"]
    if workflow is not None and workflow not in known:
        return f"There is no session of workflow {workflow!r}{did_you_mean(workflow, known)}"
    return "No question matches." if statuses or any(filters.values()) else "No question waits for an answer."


async def show_list(
    cli: Cli, engine: Engine | None, found: Sequence[Question], total: int, damaged: Sequence[Any] = (),
    next: str | None = None,
) -> None:  # fmt: skip
    """Print questions as a table, JSON or JSON lines."""
    from pausepoint.engine import documents

    entries = [documents.QuestionDocument.of(each, answer=cli.command("answer", each.id)) for each in found]
    if cli.out.as_json:
        cli.out.document(documents.InboxDocument(entries, total, next, documents.damaged(damaged)))
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
            _question_cell(each, cli.out.terminal),
        ]
        for each in found
    ]
    head = ["ID", "SESSION", "WORKFLOW", "AGE", "TIME", "QUESTION"]
    calls = [each.next_question if cli.out.terminal and approval(each) else "" for each in found]
    cli.out.table(head, rows, below=[one_line(call) for call in calls])


def _question_cell(question: Question, is_terminal: bool) -> str:
    """Return the question in one line. A terminal cuts it, so a call to approve is shown below its row."""
    call = approval(question) if is_terminal else None
    if call is None:
        return one_line(question.next_question)
    return one_line(f"{call.tool}, restricted ({', '.join(call.restricted)})")


def _time(question: Question, now: datetime) -> str:
    """Return the time that is left for an answer, or how the question ended."""
    if question.status.value == STATUSES[0]:
        return time_left(question, now)
    who = question.receipt.by if question.receipt is not None else None
    return question.status.value.lower() + (f" by {who}" if who else "")


async def short_questions(cli: Cli, engine: Engine, found: Sequence[Question]) -> dict[str, str]:
    """Return the ids, cut on a terminal to their shortest unique beginnings. In a long list they stay whole."""
    if not cli.out.terminal or len(found) > MANY:
        return {each.id: each.id for each in found}
    return {each.id: await _shortest(engine, each.id) for each in found}


async def _shortest(engine: Engine, id: str) -> str:
    others = [each.id for each in await engine.questions(status=None, prefix=id[:LEAST]) if each.id != id]
    sizes = range(LEAST, len(id))
    return id[: next((size for size in sizes if not any(each.startswith(id[:size]) for each in others)), len(id))]


# find a question


async def matching(engine: Engine, text: str | None) -> list[Question]:
    """Return the questions that the text matches: a question id or the beginning of one, or a waiting session.

    Closed questions are returned only if no open question matches.
    """
    if text is None:
        if not (waiting := await engine.questions(limit=LIMIT)):
            raise not_found(f"No question waits for an answer. `{command_line('ls')}` lists the sessions.")
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
    """Return the questions of the session that the text names, and the error to raise if there are none."""
    try:
        info = await engine.find(text)
    except UnknownSession:
        return [], not_found(
            f"No question or session id begins with {text!r}. `{command_line('inbox')}` lists the open questions."
        )
    except SessionError as error:
        return [], error
    status = info.status.value
    wrong = not_found(
        f"Session {info.session_id!r} is {status} and does not wait for an answer. `{command_line('inbox')}` lists the"
        " open questions."
    )
    return list(await engine.session(info.session_id).questions()), wrong


async def is_whole_id(engine: Engine, text: str, question: Question) -> bool:
    """Return whether the text is the id of the question or of a session, and not the beginning of one."""
    if text == question.id:
        return True
    try:
        return bool((await engine.find(text, exact=True)).session_id)
    except SessionError:
        return False


async def list_matches(cli: Cli, engine: Engine, found: Sequence[Question]) -> int:
    """List the questions that match, so that the person can name one."""
    await show_list(cli, engine, found[:LIMIT], len(found))
    name = cli.command("answer", found[0].id)
    many = f"{counted(len(found), 'question')}{' or more' if len(found) >= LIMIT else ''}"
    cli.out.note(f"{many} match. Name one:  {name}")
    return USAGE
