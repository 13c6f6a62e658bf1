"""The handlers of questions and their answers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from pausepoint.cli.documents import AnswerLink
from pausepoint.engine.documents import damaged
from pausepoint.errors import QuestionClosed
from pausepoint.model.sessions import QuestionStatus
from pausepoint.server import bodies, documents
from pausepoint.server.calls import Call, Reply
from pausepoint.server.links import Links, is_address
from pausepoint.server.problems import Problem


async def index(call: Call) -> Reply:
    """List questions, by default those that wait, oldest first."""
    query = call.query(bodies.Inbox)
    if call.person.question is not None:
        only = await call.access.question(call.person.question)
        return Reply(documents.QuestionPage([documents.HttpQuestion.of(only)], None, []))
    listing = await call.engine.questions(
        status=[QuestionStatus(each) for each in query.status], workflow=query.workflow,
        owner=call.access.owner_of(query.owner), sort=query.sort, reverse=query.reverse, after=query.after,
        limit=query.limit,
    )  # fmt: skip
    questions = [documents.HttpQuestion.of(question) for question in listing]
    return Reply(documents.QuestionPage(questions, listing.next, damaged(listing.damaged)))


async def show(call: Call) -> Reply:
    """Return a question, with the state when it was asked."""
    return Reply(documents.HttpQuestion.of(await call.access.question(call.params["question_id"])))


async def answer(call: Call) -> Reply:
    """Answer a question. The first answer counts."""
    asked: bodies.Answer = call.body
    found = await call.access.question(call.params["question_id"])
    if asked.seen is None and call.is_page:
        raise Problem(428, "'seen' is missing. Send the digest of the question as it was shown.")
    taken = await call.engine.answer(found.id, asked.value, by=call.by, channel="http", seen=asked.seen)
    return Reply(documents.ReceiptDocument.of(taken))


async def link(call: Call) -> Reply:
    """Make a link that can see and answer one question. Only this answer has it.

    The history names both: the person who gets the link, and the one who made it.
    """
    asked: bodies.Link = call.body
    question = await call.access.question(call.params["question_id"])
    tokens = call.desk.signin.tokens
    if tokens is None:
        raise Problem(404, "This server makes no links, because the program that it is part of signs people in.")
    if question.status is not QuestionStatus.WAITING:
        raise QuestionClosed(
            f"Question {question.id!r} is answered or closed, so no link can answer it.",
            session_id=question.session_id, question_id=question.id, status=question.status.value,
        )  # fmt: skip
    own = f"{call.scope['scheme']}://{call.header('host')}{call.scope.get('root_path', '')}"
    url = own if asked.url is None else asked.url
    if not is_address(url):
        raise Problem(
            422, "The address of a link begins with http or https and a host. Send the one at which people reach this"
            " server.", "unfit-address", field="url",
        )  # fmt: skip
    name = f"{asked.name} (link of {call.by})"
    address, until = await asyncio.to_thread(lambda: Links(tokens, url, name, asked.seconds).link(question))
    return Reply(AnswerLink(address, question.id, datetime.fromtimestamp(until, UTC).isoformat()), 201)
