"""The handlers of questions and their answers."""

from __future__ import annotations

from pausepoint.engine import documents as engine_documents
from pausepoint.model.sessions import QuestionStatus
from pausepoint.server import bodies, documents
from pausepoint.server.calls import Call, Reply
from pausepoint.server.problems import Problem


async def index(call: Call) -> Reply:
    """List questions, by default those that wait, oldest first."""
    asked = call.query(bodies.Inbox)
    if call.person.question is not None:
        only = await call.access.question(call.person.question)
        return Reply({"questions": [documents.question(only)], "next": None, "damaged": []})
    found = await call.engine.questions(
        status=[QuestionStatus(each) for each in asked.status], workflow=asked.workflow,
        owner=call.access.owner_of(asked.owner), sort=asked.sort, reverse=asked.reverse, after=asked.after,
        limit=asked.limit,
    )  # fmt: skip
    broken = [engine_documents.damaged(each) for each in found.damaged]
    return Reply({"questions": [documents.question(each) for each in found], "next": found.next, "damaged": broken})


async def show(call: Call) -> Reply:
    """Return a question, with the state when it was asked."""
    return Reply(documents.question(await call.access.question(call.params["question_id"])))


async def answer(call: Call) -> Reply:
    """Answer a question. The first answer counts."""
    asked: bodies.Answer = call.body
    found = await call.access.question(call.params["question_id"])
    if asked.seen is None and call.is_page:
        raise Problem(428, "'seen' is missing. Send the digest of the question as it was shown.")
    taken = await call.engine.answer(found.id, asked.value, by=call.by, channel="http", seen=asked.seen)
    return Reply(documents.receipt(taken))
