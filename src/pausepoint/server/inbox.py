"""The handlers of questions and their answers."""

from __future__ import annotations

from pausepoint.engine.documents import damaged
from pausepoint.model.sessions import QuestionStatus
from pausepoint.server import bodies, documents
from pausepoint.server.calls import Call, Reply
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
