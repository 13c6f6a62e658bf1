"""``pausepoint notify``: send questions by mail, chat or webhook, with a link or a command that answers them."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.console import span
from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import DONE, FAILED, USAGE, Refused
from pausepoint.cli.options import WORKFLOWS, common
from pausepoint.cli.project import check_exists
from pausepoint.cli.text import counted, one_line
from pausepoint.server.command import Span, tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pausepoint.cli.documents import NoticeDocument
    from pausepoint.engine.engine import Engine
    from pausepoint.integrations.notify import Notice
    from pausepoint.integrations.services import Service
    from pausepoint.model.questions import Question

VARIABLE = "PAUSEPOINT_NOTIFY_URLS"

PATIENCE = 1.0
"""After so many seconds, a stopped command says that it waits."""

WAITING = "Waiting for the service to confirm the last message. Ctrl+C ends this without waiting."


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...", envvar=VARIABLE)
@click.option("--url", "address", metavar="ADDRESS",
              help="The address of `serve`, as the reader reaches it, for answer links.")  # fmt: skip
@click.option("--expires", type=Span(), default="7d", show_default=True, metavar="SPAN",
              help="When an answer link ends, at the latest.")  # fmt: skip
@click.option("--name", metavar="NAME", default="answer link", show_default=True,
              help="The name for the history if a link answers.")  # fmt: skip
@click.option("--owner", metavar="NAME", help="Only questions of this owner's sessions.")
@click.option("--workflow", metavar="NAME", shell_complete=WORKFLOWS, help="Only questions of this workflow.")
@click.option("--once", is_flag=True, help="Send what waits now, try each message once, and exit.")
@common(lines=True)
def notify(cli: Cli, urls: tuple[str, ...], **given: Any) -> int:
    """Send each question once to every URL, by mail, chat or webhook: the open ones, and those that are asked later.

    A URL is an address of apprise, such as mailto://USER:PASSWORD@example.com, slack://TOKENS/#CHANNEL or
    json://HOST/PATH. Other users of this machine can see the arguments of a command, so put the URLs into
    PAUSEPOINT_NOTIFY_URLS, separated by spaces.

    A message contains the question, and an answer link (with --url) or the command that answers. The store remembers
    what was sent, over restarts and for several processes. A service that is down gets its messages later.
    """
    if cli.out.as_json and not given["once"]:
        raise Refused("--json prints one document at the end, but notify does not end. Add --once, or use --jsonl.",
                      USAGE)  # fmt: skip
    if find_spec("apprise") is None:
        from pausepoint.integrations.services import MISSING

        raise Refused(MISSING, USAGE)
    check_exists(cli.place)
    job = _Job(cli, urls, given)
    code: int = run_async(job.work())
    return code


class _Job:
    """One call of ``notify``."""

    def __init__(self, cli: Cli, urls: tuple[str, ...], given: dict[str, Any]) -> None:
        self.cli = cli
        self.urls = urls
        self.given = given
        self.notices: list[NoticeDocument] = []
        self.stopped_by = 0
        self.link = self._links()

    def _links(self) -> Callable[[Question], str] | None:
        from pausepoint.server.links import Links, is_address

        if (address := self.given["address"]) is None:
            return None
        if not is_address(address):
            raise Refused(
                "--url is not the address of a server. Write it as the reader reaches it, such as"
                " https://pausepoint.example.com.",
                USAGE,
            )
        links = Links(tokens_of(self.cli), address, self.given["name"], self.given["expires"])
        return lambda question: links.link(question).address

    async def work(self) -> int:
        """Send questions until the process is stopped, or what waits (``--once``)."""
        from pausepoint.engine.engine import Engine
        from pausepoint.integrations.services import services

        try:
            named = services(self.urls)
        except ValueError as error:
            raise Refused(str(error), USAGE) from None
        # Signals end the sending first, so that a message that was sent is also recorded.
        async with Engine(self.cli.place.url, create=False, drives="none", signals=False) as engine:
            self._begin(named)
            unsent = await self._stoppable(engine)
        if self.stopped_by:
            self.cli.out.note("Stopped. The next call continues here.")
            return 128 + self.stopped_by
        return self._end(unsent)

    async def _stoppable(self, engine: Engine) -> int:
        """Send questions. A signal lets the messages that are on their way end; a second one does not."""
        from pausepoint.integrations.notify import send_questions

        work = asyncio.ensure_future(send_questions(
            engine, *self.urls, owner=self.given["owner"], workflow=self.given["workflow"],
            follow=not self.given["once"], link=self.link, report=self._show,
            command=lambda question: self.cli.command("answer", question.id),
        ))  # fmt: skip
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            if self.stopped_by:
                os._exit(128 + number)  # nothing is lost: the record of each message says that it was not confirmed
            self.stopped_by = number
            work.cancel()
            loop.call_later(PATIENCE, self.cli.out.note, WAITING)

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, int(number))
        try:
            return await work
        except asyncio.CancelledError:
            if not self.stopped_by:
                raise
            return 0
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _begin(self, named: list[Service]) -> None:
        if not self.given["once"]:
            to = ", ".join(map(str, named))
            self.cli.out.note(f"Sending the questions of {self.cli.place.shown} to {to}; Ctrl+C stops this")

    def _show(self, notice: Notice) -> None:
        from pausepoint.cli.documents import NoticeDocument  # the help of the command does not need it

        at = datetime.now(UTC)
        self.notices.append(NoticeDocument.of(notice, noticed_at=at))
        if self.cli.out.as_lines:
            self.cli.out.record(self.notices[-1])
        if not self.given["once"]:
            self.notices.clear()  # only the document of --once needs them
        self.cli.out.say(f"{at.astimezone():%H:%M:%S}  {_sentence(notice)}", indent=10)

    def _end(self, unsent: int) -> int:
        """Report the result of ``--once``."""
        sent = sum(each.status == "sent" for each in self.notices)
        if self.cli.out.as_json:
            from pausepoint.cli.documents import NotifiedDocument

            self.cli.out.document(NotifiedDocument(self.notices, unsent))
        if not self.notices:
            self.cli.out.note("No question waits to be sent.")
        else:
            failed = f" {counted(unsent, 'message')} failed; the next call tries again." if unsent else ""
            self.cli.out.note(f"{counted(sent, 'message')} sent.{failed}")
        return FAILED if unsent else DONE


def _sentence(notice: Notice) -> str:
    where = f"{notice.service} (URL {notice.number})"
    what = f"{notice.question_id} of {one_line(notice.workflow)}"
    if notice.round > 1:
        what += f", round {notice.round}"
    if notice.status == "sent":
        return f"sent {what} to {where}"
    later = "" if notice.retry_in is None else f"; next attempt in {span(timedelta(seconds=notice.retry_in))}"
    return f"could not send {what} to {where}: {notice.reason}{later}"
