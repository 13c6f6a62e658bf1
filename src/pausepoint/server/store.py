"""The handlers of the store as a whole: its health, and long jobs that check it and clean it up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from pausepoint.engine import documents
from pausepoint.server import bodies
from pausepoint.server.calls import Call, Reply
from pausepoint.server.problems import Problem, problem_of

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
    """Return the health of the store."""
    call.access.check_sees_all()
    return Reply(documents.health(await call.engine.health()))


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
