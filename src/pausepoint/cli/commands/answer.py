"""``answer``: one question is answered, from a prompt or from options. It records, and with ``--run`` drives on."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pausepoint.cli.commands.edit import run_option
from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import CONFLICT, DONE, PERSON, USAGE, Refused
from pausepoint.cli.options import QUESTIONS, by_option, common
from pausepoint.cli.prompts import Later, ask, assigned, at_terminal, confirmation, show_question
from pausepoint.cli.text import answer_hint, one_line, time_left

if TYPE_CHECKING:
    from pausepoint.definition.workflow import Workflow
    from pausepoint.engine.engine import Engine
    from pausepoint.engine.session import Session
    from pausepoint.model.questions import Question, Receipt
    from pausepoint.model.views import SessionInfo

CHANNEL = "cli"


@click.command()
@click.argument("question", required=False, shell_complete=QUESTIONS)
@click.argument("text", required=False)
@click.option(
    "--set", "pairs", metavar="NAME=VALUE", multiple=True, help="A part of the answer, if it has several; repeatable."
)
@click.option("--data", metavar="JSON", help="The answer as JSON, instead of a text.")
@click.option("--approve", is_flag=True, help="Say yes to a confirmation.")
@click.option("--reject", metavar="WHY", help="Say no to a confirmation.")
@click.option("--later", is_flag=True, help="Show the question, and leave it open; it expires when it would have.")
@click.option("--seen", metavar="DIGEST", help="Refuse if something else is asked by now than what had this digest.")
@run_option
@by_option
@common(target=True)
def answer(
    cli: Cli, question: str | None, text: str | None, pairs: tuple[str, ...], data: str | None, approve: bool,
    reject: str | None, later: bool, seen: str | None, run: bool, by: str | None,
) -> int:  # fmt: skip
    """Answer a question. At a terminal it asks for what is missing.

    QUESTION is its id, the beginning of it, or a session that waits for one answer; without it, the only question that
    waits. TEXT may stand for a number, a date or another value; TEXT or JSON may be `-`: then it is read from the
    standard input. The first answer counts. The session is driven on by whoever drives it, by a worker, by a resume,
    or with --run by this command.
    """
    given = Given(text, pairs, data, approve, reject, later)
    given.check(cli)
    found = run_async(_found(cli, question, run))
    if isinstance(found, int):
        return found
    asked, workflow = found
    if later:
        return _left_open(cli, asked)
    if not given:
        _check_open(asked)
    try:
        value = given.value(asked) if given else ask(cli.out, asked)
    except Later:
        return _left_open(cli, asked, shown=True)
    reply = Reply(asked, value, by, seen if given or seen else asked.digest)
    if workflow is not None:
        return _run(cli, reply, workflow)
    receipt, info = run_async(_record(cli, reply))
    return _resumed(cli, info) if run and info.holder is None else _told(cli, reply, receipt, info)


class Given(NamedTuple):
    """What was said on the command line."""

    text: str | None
    pairs: tuple[str, ...]
    data: str | None
    approve: bool
    reject: str | None
    later: bool

    def __bool__(self) -> bool:
        return any(each not in (None, (), False) for each in self)

    def check(self, cli: Cli) -> None:
        """Before anything is looked up: one answer, or somebody who can be asked."""
        if sum(each not in (None, (), False) for each in self) > 1:
            raise click.UsageError("one answer: TEXT, --set, --data, --approve, --reject or --later")
        if not self and not at_terminal(cli.out):
            raise click.UsageError(
                "there is no terminal to ask at: give TEXT, --set, --data, --approve or --reject; --later shows what is"
                " asked"
            )

    def value(self, question: Question) -> Any:
        """The answer as plain data."""
        if self.pairs:
            return assigned(question, self.pairs)
        if self.approve or self.reject is not None:
            if question.kind != "confirm":
                asked = one_line(question.next_question)
                raise Refused(f"question {question.id} is not one of yes or no: {asked}", USAGE)
            return confirmation(self.approve, self.reject or "")
        content = self.text if self.data is None else self.data
        if content == "-":
            content = sys.stdin.read().removesuffix("\n")
        return content if self.data is None else _parsed(content or "")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Refused(f"--data is no JSON: {error}; a plain text goes without --data", USAGE) from None


class Reply(NamedTuple):
    """An answer to a question; ``seen`` is the digest of what was shown."""

    question: Question
    value: Any
    by: str | None
    seen: str | None

    async def give(self, engine: Engine) -> Receipt:
        """Have it taken, or be told why not."""
        return await engine.answer(self.question.id, self.value, by=self.by, channel=CHANNEL, seen=self.seen)


async def _found(cli: Cli, text: str | None, run: bool) -> tuple[Question, Workflow[Any] | None] | int:
    """The question that is meant; with the code of its session, if that is to go on. Or an exit code."""
    from pausepoint.cli.commands.inbox import list_matches, meant

    what = "nothing to answer" if text is None else f"question {text!r}"
    async with cli.engine(code=run, quiet=True) as engine:
        found = await meant(engine, text)
        if len(found) > 1:
            return await list_matches(cli, engine, found)
        asked = await engine.question(found[0].id)
        if not run or cli.host.drives:
            return asked, None
        info = await engine.info(asked.session_id)
        try:
            cli.check_code(engine, info)
        except Refused as error:
            raise Refused(f"{error.message}; without --run the answer is taken, and kept", error.exit_code) from None
        return asked, engine.workflows[info.workflow]


def _check_open(question: Question) -> None:
    status = question.status.value
    if status != "WAITING_USER_INPUT":
        who = f" by {question.receipt.by}" if question.receipt is not None and question.receipt.by else ""
        raise Refused(f"question {question.id} ({question.next_question!r}) is {status}{who}", CONFLICT)


def _left_open(cli: Cli, question: Question, shown: bool = False) -> int:
    """Nothing is recorded; the last line is the command that answers."""
    from pausepoint.engine import documents

    command = cli.command("answer", question.id)
    if not cli.out.for_people:
        cli.out.document(documents.question(question, command))
        return PERSON
    if not shown:
        show_question(cli.out, question)
        if hint := answer_hint(question):
            cli.out.line(one_line(f"An answer is {hint}."))
    cli.out.note(f"It stays open ({time_left(question)}).")
    cli.out.note(f"Answer:  {command}")
    return PERSON


async def _record(cli: Cli, reply: Reply) -> tuple[Receipt, SessionInfo]:
    async with cli.engine() as engine:
        receipt = await reply.give(engine)
        return receipt, await engine.info(reply.question.session_id)


def _told(cli: Cli, reply: Reply, receipt: Receipt, info: SessionInfo) -> int:
    from pausepoint.engine import documents

    if not cli.out.for_people:
        cli.out.document(documents.answered(receipt, info, cli.resume(info)))
        return DONE
    who = f" by {receipt.by}" if receipt.by else ""
    cli.out.line(f"Answered{who}: {one_line(reply.question.next_question)}")
    cli.out.line(f"{info.session_id} {cli.out.status_phrase(info.status.value)}.")
    if info.holder is None:
        cli.out.note(f"Go on:  {cli.resume(info)}")
    return DONE


def _resumed(cli: Cli, info: SessionInfo) -> int:
    """A program that drives its sessions by functions of its own: its ``resume`` goes on with this one."""
    words = ["resume", info.session_id, *cli.store_words(own=True), *(["--json"] if cli.out.as_json else [])]
    return int(click.get_current_context().find_root().command.main(words, standalone_mode=False, obj=cli.host))


def _run(cli: Cli, reply: Reply, workflow: Workflow[Any]) -> int:
    """The code is at hand: what the answer leads to is done here, until the session needs somebody again."""
    from pausepoint.cli.drive import DrivenSession
    from pausepoint.cli.live import catch_up

    driven = DrivenSession(cli, workflow, reply.by)

    async def begin(engine: Engine) -> Session[Any]:
        await catch_up(engine, reply.question.session_id, driven.view)
        await reply.give(engine)
        return await engine.session(reply.question.session_id)

    return driven.drive(begin)
