"""``answer``: answer a question, from a prompt or from options. With ``--run`` it also resumes the session."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pausepoint.cli.commands.edit import run_option
from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.description import GUEST
from pausepoint.cli.exits import CONFLICT, DONE, PERSON, USAGE, Refused
from pausepoint.cli.host import command_line
from pausepoint.cli.options import QUESTIONS, by_option, common
from pausepoint.cli.prompts import Later, ask, assigned, at_terminal, confirmation, show_question
from pausepoint.cli.text import answer_hint, one_line, time_left
from pausepoint.errors import UnknownQuestion

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
    "--set", "pairs", metavar="NAME=VALUE", multiple=True, help="One part of an answer with several parts; repeatable."
)
@click.option("--data", metavar="JSON", help="The answer as JSON.")
@click.option("--approve", is_flag=True, help="Say yes to a confirmation.")
@click.option("--reject", metavar="WHY", help="Say no to a confirmation.")
@click.option("--later", is_flag=True, help="Show all of the question and leave it open. Its time limit still applies.")
@click.option("--seen", metavar="DIGEST", help="Refuse if the question no longer has this digest.")
@run_option
@by_option
@common(target=True)
def answer(
    cli: Cli, question: str | None, text: str | None, pairs: tuple[str, ...], data: str | None, approve: bool,
    reject: str | None, later: bool, seen: str | None, run: bool, by: str | None,
) -> int:  # fmt: skip
    """Answer a question. At a terminal, the command asks for what is missing.

    QUESTION is a question id, or a session that waits for one answer. Without it, the only waiting question is
    answered. If you are asked at a terminal, the beginning of an id is enough. TEXT can be a number, a date or another
    value. If TEXT or JSON is `-`, it is read from standard input.

    The first answer counts. The session continues in the process that drives it, or with a worker, a resume, or --run.
    """
    given = Given(text, pairs, data, approve, reject, later)
    given.check(cli)
    found = run_async(_found(cli, question, run, exact=bool(given)))
    if isinstance(found, int):
        return found
    asked, workflow = found
    if later or not given:
        _check_open(asked)
    if later:
        return _leave_open(cli, asked)
    try:
        value = given.value(asked) if given else ask(cli.out, asked)
    except Later:
        return _leave_open(cli, asked, shown=True)
    reply = Reply(asked, value, by, seen if given or seen else asked.digest)
    if workflow is not None:
        return _run(cli, reply, workflow)
    receipt, info = run_async(_record(cli, reply))
    return _resumed(cli, info) if run and info.holder is None else _report(cli, reply, receipt, info)


class Given(NamedTuple):
    """The answer on the command line."""

    text: str | None
    pairs: tuple[str, ...]
    data: str | None
    approve: bool
    reject: str | None
    later: bool

    def __bool__(self) -> bool:
        return any(each not in (None, (), False) for each in self)

    def check(self, cli: Cli) -> None:
        """Refuse several answers, and a missing answer if there is no terminal to ask at."""
        if sum(each not in (None, (), False) for each in self) > 1:
            raise click.UsageError(
                "There is more than one answer. Give one of TEXT, --set, --data, --approve, --reject or --later."
            )
        if not self and not at_terminal(cli.out):
            raise click.UsageError(
                "There is no terminal to ask at. Give TEXT, --set, --data, --approve or --reject; --later shows the"
                " question."
            )

    def value(self, question: Question) -> Any:
        """Return the answer as plain data."""
        if self.pairs:
            return assigned(question, self.pairs)
        if self.approve or self.reject is not None:
            if question.kind != "confirm":
                asked = one_line(question.next_question)
                raise Refused(
                    f"Question {question.id} ({asked!r}) is not a confirmation. Answer it with TEXT, --set or --data.",
                    USAGE,
                )
            return confirmation(self.approve, self.reject or "")
        content = self.text if self.data is None else self.data
        if content == "-":
            content = sys.stdin.read().removesuffix("\n")
        return content if self.data is None else _parsed(content or "")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Refused(f"--data is not JSON: {error}. Pass plain text as TEXT, without --data.", USAGE) from None


class Reply(NamedTuple):
    """An answer to a question. ``seen``: the digest of the question that was shown."""

    question: Question
    value: Any
    by: str | None
    seen: str | None

    async def give(self, engine: Engine) -> Receipt:
        """Record the answer. Raises an error if it is not accepted."""
        return await engine.answer(self.question.id, self.value, by=self.by, channel=CHANNEL, seen=self.seen)


async def _found(cli: Cli, text: str | None, run: bool, exact: bool) -> tuple[Question, Workflow[Any] | None] | int:
    """Return the question, and with ``run`` its session's workflow; or an exit code if several questions match.

    ``exact``: refuse the beginning of an id, because the answer is recorded before the person sees the question.
    """
    from pausepoint.cli.commands.inbox import is_whole_id, list_matches, matching

    async with cli.engine(code=run, quiet=True) as engine:
        found = await matching(engine, text)
        if len(found) > 1:
            return await list_matches(cli, engine, found)
        if exact and text is not None and not await is_whole_id(engine, text, found[0]):
            raise UnknownQuestion(
                f"There is no question {text!r}.", session_id=found[0].session_id, question_id=text, near=found[0].id
            )
        asked = await engine.question(found[0].id)
        if not run or cli.host.drives:
            return asked, None
        info = await engine.session(asked.session_id).info()
        try:
            if info.guest:
                raise Refused(f"Session {info.session_id!r} cannot run here. {GUEST}", CONFLICT)
            cli.check_code(engine, info)
        except Refused as error:
            raise Refused(f"{error.message} Without --run the answer is only recorded.", error.exit_code) from None
        return asked, engine.workflows[info.workflow]


def _check_open(question: Question) -> None:
    status = question.status.value
    if status != "WAITING_USER_INPUT":
        who = f" by {question.receipt.by}" if question.receipt is not None and question.receipt.by else ""
        raise Refused(
            f"Question {question.id} ({question.next_question!r}) is {status}{who} and accepts no answer."
            f" `{command_line('inbox')}` lists the open ones.",
            CONFLICT,
        )


def _leave_open(cli: Cli, question: Question, shown: bool = False) -> int:
    """Record nothing. The last line is the command that answers the question."""
    from pausepoint.engine import documents

    command = cli.command("answer", question.id)
    if not cli.out.for_people:
        cli.out.document(documents.QuestionDocument.of(question, answer=command))
        return PERSON
    if not shown:
        show_question(cli.out, question, whole=True)
        if hint := answer_hint(question):
            cli.out.line(one_line(f"Expected answer: {hint}."))
    cli.out.note(f"The question stays open ({time_left(question)}).")
    cli.out.note(f"Answer:  {command}")
    return PERSON


async def _record(cli: Cli, reply: Reply) -> tuple[Receipt, SessionInfo]:
    async with cli.engine() as engine:
        receipt = await reply.give(engine)
        return receipt, await engine.session(reply.question.session_id).info()


def _report(cli: Cli, reply: Reply, receipt: Receipt, info: SessionInfo) -> int:
    from pausepoint.engine import documents

    if not cli.out.for_people:
        cli.out.document(documents.answered(receipt, info, cli.resume(info)))
        return DONE
    who = f" by {receipt.by}" if receipt.by else ""
    cli.out.line(f"Answered{who}: {one_line(reply.question.next_question)}")
    cli.out.line(f"{info.session_id} {cli.out.status_phrase(info.status.value)}.")
    if info.holder is None and info.status.value not in ("completed", "cancelled"):
        cli.out.note(GUEST if info.guest else cli.resume_line(info))
    return DONE


def _resumed(cli: Cli, info: SessionInfo) -> int:
    """Resume the session with the ``resume`` command of a program that drives its sessions itself."""
    words = ["resume", info.session_id, *cli.store_words(own=True), *(["--json"] if cli.out.as_json else [])]
    return int(click.get_current_context().find_root().command.main(words, standalone_mode=False, obj=cli.host))


def _run(cli: Cli, reply: Reply, workflow: Workflow[Any]) -> int:
    """Record the answer, and drive the session here until it ends or needs a person again."""
    from pausepoint.cli.drive import DrivenSession
    from pausepoint.cli.live import catch_up

    driven = DrivenSession(cli, workflow, reply.by)

    async def begin(engine: Engine) -> Session[Any]:
        await catch_up(engine, reply.question.session_id, driven.view)
        await reply.give(engine)
        return engine.session(reply.question.session_id)

    return driven.drive(begin)
