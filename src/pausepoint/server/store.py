"""The handlers of the store as a whole: its health, its tokens, and long jobs that check it and clean it up."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from pausepoint.cli.documents import AccessTokens
from pausepoint.engine import store_documents
from pausepoint.engine.documents import damaged
from pausepoint.model.sessions import Status
from pausepoint.server import bodies, documents
from pausepoint.server.calls import Call, Reply
from pausepoint.server.problems import Problem, problem_of

if TYPE_CHECKING:
    from pausepoint.model.stores import Holder
    from pausepoint.model.views import Health
    from pausepoint.server.tokens import Tokens

ENDED = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)

REMEMBERED = 100
"""How many finished jobs are remembered."""


class Jobs:
    """Work that takes longer than a request. Its result is read later, and lost when the server ends."""

    def __init__(self) -> None:
        self._last = 0
        self._running: dict[int, asyncio.Task[None]] = {}
        self.documents: dict[int, documents.JobDocument] = {}

    def begin(self, kind: str, work: Coroutine[Any, Any, Any], path: str) -> documents.JobDocument:
        """Begin a job, and return its document."""
        self._last += 1
        number = self._last
        self.documents[number] = documents.JobDocument(number, kind)
        for old in [each for each in self.documents if each not in self._running][:-REMEMBERED]:
            del self.documents[old]
        self._running[number] = asyncio.ensure_future(self._work(number, work, path))
        return self.documents[number]

    async def _work(self, number: int, work: Coroutine[Any, Any, Any], path: str) -> None:
        job = self.documents[number]
        try:
            job.result, job.status = await work, "done"
        except Exception as error:
            job.problem, job.status = problem_of(error).document(path), "failed"
        finally:
            del self._running[number]


async def show(call: Call) -> Reply:
    """Return the health of the store: its size, its disk, the engines, and what needs attention."""
    call.access.check_sees_all()
    health = await call.engine.health()
    engines = [each for each in health.store.holders if each.live]
    return Reply(documents.StoreDocument.of(
        store_documents.health(health), engines=[store_documents.holder(engine) for engine in engines],
        checks=[*_checks(health), *await _undriven(call, engines)],
    ))  # fmt: skip


def _checks(health: Health) -> list[store_documents.CheckDocument]:
    """Return what `pausepoint doctor` finds, with requests as the way out."""
    from pausepoint.cli.findings import Ways, findings_of  # a server that is mounted need not load the command line

    left = {each.number: f"POST /sessions/{each.sessions[0]}/resume" for each in health.gone}
    ways = Ways("POST /store/gc", "POST /store/verify", "DELETE /standing-pause", lambda id: f"GET /sessions/{id}")
    return [finding.document() for finding in findings_of(health, left, ways)]


async def _undriven(call: Call, engines: Sequence[Holder]) -> list[store_documents.CheckDocument]:
    """Return a warning for each workflow with sessions that have not ended, if no open engine drives it."""
    driven = {name for each in engines for name in each.workflows}
    driven |= {each.name for each in await call.engine.descriptions() if each.guest}  # their own programs drive them
    waiting: Counter[str] = Counter()
    for (workflow, status), count in (await call.engine.tally()).items():
        if status not in ENDED and workflow not in driven:
            waiting[workflow] += count
    return [
        store_documents.CheckDocument(
            "warn",
            "engines",
            f"No engine drives {name!r}. Its sessions that have not ended: {count:,}",
            "Start `pausepoint worker`.",
        )
        for name, count in sorted(waiting.items())
    ]


async def misfits(call: Call) -> Reply:
    """List sessions that cannot be resumed with the present code, with the reasons and what to do."""
    call.access.check_sees_all()
    query = call.query(bodies.Misfits)
    listing = await call.engine.misfits(limit=query.limit, after=query.after)
    driven = [documents.misfit(misfit) for misfit in listing if misfit.session.workflow in call.engine.workflows]
    return Reply(documents.MisfitsDocument(driven, listing.next, damaged(listing.damaged)))


async def verify(call: Call) -> Reply:
    """Check everything that is stored. The answer names the job."""
    call.access.check_sees_all()

    async def work() -> Any:
        return store_documents.verification(await call.engine.verify(), None)

    return _begun(call, "verify", work())


async def collect(call: Call) -> Reply:
    """Clean the store up, or report what would be done. The answer names the job."""
    call.access.check_sees_all()
    asked: bodies.Collect = call.body

    async def work() -> Any:
        report = await call.engine.gc(apply=asked.apply)
        return store_documents.clean_up(report, (await call.engine.health()).store.size)

    return _begun(call, "gc", work())


def _begun(call: Call, kind: str, work: Coroutine[Any, Any, Any]) -> Reply:
    job = call.desk.jobs.begin(kind, work, call.scope["path"])
    return Reply(job, 202, {"Location": f"{call.desk.base(call.scope)}/store/jobs/{job.job}"})


async def job(call: Call) -> Reply:
    """Return a job: whether it is done, and its result."""
    call.access.check_sees_all()
    text = call.params["job"]
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    document = call.desk.jobs.documents.get(int(text)) if is_number else None
    if document is None:
        raise Problem(404, f"There is no job {text!r}. Jobs are forgotten when the server ends. Begin another one.")
    return Reply(document)


async def tokens(call: Call) -> Reply:
    """List the created tokens, oldest first. Their secrets are not stored."""
    return Reply(AccessTokens([token.document() for token in _tokens(call).kept]))


async def create_token(call: Call) -> Reply:
    """Create a token. Only this answer has its secret."""
    asked: bodies.Token = call.body
    kept, secret = await asyncio.to_thread(
        _tokens(call).create, asked.name or asked.owner or asked.role, asked.role, asked.owner, time.time(),
        asked.seconds,
    )  # fmt: skip
    return Reply(kept.created(secret), 201)


async def revoke_token(call: Call) -> Reply:
    """Delete a token. Everyone who signed in with it is signed out."""
    id = call.params["token_id"]
    if not await asyncio.to_thread(_tokens(call).revoke, id):
        raise Problem(404, f"There is no token {id!r}. List them with GET /store/tokens.", "unknown-token")
    return Reply(None, 204)


def _tokens(call: Call) -> Tokens:
    call.access.check_sees_all()
    found = call.desk.signin.tokens
    if found is None:
        raise Problem(404, "This server has no tokens, because the program that it is part of signs people in.")
    return found
