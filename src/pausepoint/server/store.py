"""The handlers of the store as a whole: its health, its tokens, and long jobs that check it and clean it up."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from pausepoint.engine import documents
from pausepoint.model.sessions import Status
from pausepoint.server import bodies
from pausepoint.server import documents as http_documents
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
        self.found: dict[int, dict[str, Any]] = {}

    def begin(self, kind: str, work: Coroutine[Any, Any, Any], path: str) -> dict[str, Any]:
        """Begin a job, and return its document."""
        self._last += 1
        number = self._last
        self.found[number] = {"job": number, "kind": kind, "status": "running", "result": None, "problem": None}
        for old in [each for each in self.found if each not in self._running][:-REMEMBERED]:
            del self.found[old]
        self._running[number] = asyncio.ensure_future(self._work(number, work, path))
        return self.found[number]

    async def _work(self, number: int, work: Coroutine[Any, Any, Any], path: str) -> None:
        job = self.found[number]
        try:
            job |= {"result": await work, "status": "done"}
        except Exception as error:
            job |= {"problem": problem_of(error).document(path), "status": "failed"}
        finally:
            del self._running[number]


async def show(call: Call) -> Reply:
    """Return the health of the store: its size, its disk, the engines, and what needs attention."""
    call.access.check_sees_all()
    health = await call.engine.health()
    engines = [each for each in health.store.holders if each.live]
    return Reply(documents.health(health) | {
        "engines": [documents.holder(each) for each in engines],
        "checks": [*_checks(health), *await _undriven(call, engines)],
    })  # fmt: skip


def _checks(health: Health) -> list[dict[str, Any]]:
    """Return what `pausepoint doctor` finds, with requests as the way out."""
    from pausepoint.cli.findings import Ways, findings_of  # a server that is mounted need not load the command line

    left = {each.number: f"POST /sessions/{each.sessions[0]}/resume" for each in health.gone}
    ways = Ways("POST /store/gc", "POST /store/verify", "DELETE /standing-pause", lambda id: f"GET /sessions/{id}")
    return [each.to_json() for each in findings_of(health, left, ways)]


async def _undriven(call: Call, engines: Sequence[Holder]) -> list[dict[str, Any]]:
    """Return a warning for each workflow with sessions that have not ended, if no open engine drives it."""
    driven = {name for each in engines for name in each.workflows}
    driven |= {each.name for each in await call.engine.descriptions() if each.guest}  # their own programs drive them
    waiting: Counter[str] = Counter()
    for (workflow, status), count in (await call.engine.tally()).items():
        if status not in ENDED and workflow not in driven:
            waiting[workflow] += count
    return [
        {
            "level": "warn",
            "about": "engines",
            "text": f"No engine drives {name!r}. Its sessions that have not ended: {count:,}",
            "way_out": "Start `pausepoint worker`.",
        }
        for name, count in sorted(waiting.items())
    ]


async def misfits(call: Call) -> Reply:
    """List sessions that cannot be resumed with the present code, with the reasons and what to do."""
    call.access.check_sees_all()
    asked = call.query(bodies.Misfits)
    found = await call.engine.misfits(limit=asked.limit, after=asked.after)
    known = [http_documents.misfit(each) for each in found if each.session.workflow in call.engine.workflows]
    broken = [documents.damaged(each) for each in found.damaged]
    return Reply({"misfits": known, "next": found.next, "damaged": broken})


async def verify(call: Call) -> Reply:
    """Check everything that is stored. The answer names the job."""
    call.access.check_sees_all()

    async def work() -> Any:
        return documents.verification(await call.engine.verify(), None)

    return _begun(call, "verify", work())


async def collect(call: Call) -> Reply:
    """Clean the store up, or report what would be done. The answer names the job."""
    call.access.check_sees_all()
    asked: bodies.Collect = call.body

    async def work() -> Any:
        found = await call.engine.gc(apply=asked.apply)
        return documents.clean_up(found, (await call.engine.health()).store.size)

    return _begun(call, "gc", work())


def _begun(call: Call, kind: str, work: Coroutine[Any, Any, Any]) -> Reply:
    job = call.desk.jobs.begin(kind, work, call.scope["path"])
    return Reply(job, 202, {"Location": f"{call.desk.base(call.scope)}/store/jobs/{job['job']}"})


async def job(call: Call) -> Reply:
    """Return a job: whether it is done, and its result."""
    call.access.check_sees_all()
    text = call.params["job"]
    found = call.desk.jobs.found.get(int(text)) if text.isascii() and text.isdigit() and len(text) < 10 else None
    if found is None:
        raise Problem(404, f"There is no job {text!r}. Jobs are forgotten when the server ends. Begin another one.")
    return Reply(found)


async def tokens(call: Call) -> Reply:
    """List the created tokens, oldest first. Their secrets are not stored."""
    return Reply({"tokens": [each.to_json() for each in _tokens(call).kept]})


async def create_token(call: Call) -> Reply:
    """Create a token. Only this answer has its secret."""
    asked: bodies.Token = call.body
    kept, secret = await asyncio.to_thread(
        _tokens(call).create, asked.name or asked.owner or asked.role, asked.role, asked.owner, time.time(),
        asked.seconds,
    )  # fmt: skip
    return Reply(kept.to_json() | {"token": secret}, 201)


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
