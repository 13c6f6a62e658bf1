"""Restate: its server in a process beside this one, and a worker of its Python SDK in this process.

A session is a call of a handler, a step is an action that the server keeps (``ctx.run_typed``). The server has one
partition, because there is one worker; everything else is the default, so its log is written with fsync.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from benchmarks.peers.contender import Contender, Job, Lacks, Sample, main, message, reply, stored, text

JOB: Job
WINDOW = 20

ends: asyncio.Event
"""Set when all steps of the sessions that are being paused may end."""

work = restate.Service("work")
chats = restate.VirtualObject("chats", enable_lazy_state=True)


async def write(n: int) -> str:
    """Return the new content of the field."""
    JOB.begins(n)
    return text(n)


async def change(n: int) -> str:
    """Return the new content of the small field."""
    JOB.begins(n)
    return text(n, 100)


async def one_write(n: int) -> str:
    """Return the new content of the field, as one of many sessions."""
    return text(n)


async def item(n: int) -> str:
    """Do the work of one item."""
    return text(n, 100)


async def hold() -> str:
    """Stay inside the step until it may end."""
    JOB.mark()
    await ends.wait()
    return "done"


async def answered(count: int) -> str:
    """Answer a message."""
    return reply(count)


@work.handler("lone")
async def lone(ctx: restate.Context, steps: int) -> int:
    """Replace a field again and again. The items of a growing list are the results of the steps, too."""
    n = 0
    while JOB.more(n):
        await ctx.run_typed("write", write, n=n)
        n += 1
    return n


@work.handler("beside")
async def beside(ctx: restate.Context, ballast: str) -> int:
    """Change a small field beside a large one, which is the input of the call."""
    n = 0
    while JOB.more(n):
        await ctx.run_typed("change", change, n=n)
        n += 1
    return n


@work.handler("crowd")
async def crowd(ctx: restate.Context, steps: int) -> int:
    """Replace a field as one of many sessions."""
    n = 0
    while n < steps and JOB.in_time:
        await ctx.run_typed("write", one_write, n=n)
        n += 1
    return n


@work.handler("ask")
async def ask(ctx: restate.Context, n: int) -> str:
    """Ask a person, and wait for the answer."""
    answer: tuple[str, Any] = ctx.awakeable()
    JOB.mark()
    return str(await answer[1])


@work.handler("spread")
async def spread(ctx: restate.Context, count: int) -> int:
    """Apply a function to all items."""
    found = await restate.gather(*[ctx.run_typed("item", item, n=n) for n in range(count)])
    return len(found)


@work.handler("holding")
async def holding(ctx: restate.Context, n: int) -> None:
    """Stay inside a step, then begin the next."""
    while True:
        await ctx.run_typed("hold", hold)


@chats.handler("turn")
async def turn(ctx: restate.ObjectContext, said: str) -> int:
    """Answer a message, with the last twenty in view. Every message has a key of its own in the state."""
    count = await ctx.get("count", type_hint=int) or 0
    recent: list[str] = await ctx.get("recent", type_hint=list) or []
    reply = await ctx.run_typed("answer", answered, count=len(recent))
    ctx.set(f"message-{count:06}", [said, reply])
    ctx.set("recent", [*recent, said, reply][-WINDOW:])
    ctx.set("count", count + 1)
    return count + 1


@work.handler("once")
async def once(ctx: restate.Context, n: int) -> str:
    """Run one small step."""
    return await ctx.run_typed("once", item, n=0)


class Server:
    """The server and the addresses of its parts."""

    def __init__(self, job: Job) -> None:
        fabric, self.ingress, self.admin, self.worker = _ports(job.folder / "ports.json")
        settings = {
            "RESTATE_BASE_DIR": job.folder / "data", "RESTATE_LISTEN_MODE": "tcp", "RESTATE_BIND_IP": "127.0.0.1",
            "RESTATE_BIND_PORT": fabric, "RESTATE_INGRESS__BIND_PORT": self.ingress,
            "RESTATE_ADMIN__BIND_PORT": self.admin, "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_DEFAULT_NUM_PARTITIONS": 1, "RESTATE_WORKER__INVOKER__CONCURRENT_INVOCATIONS_LIMIT": 10_000,
        }  # fmt: skip
        with (job.folder / "restate.log").open("wb") as log:
            self.process = subprocess.Popen(
                [job.server, "--no-logo"], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env=os.environ | {name: str(value) for name, value in settings.items()},
            )  # fmt: skip

    async def call(self, client: httpx.AsyncClient, path: str, body: Any) -> Any:
        """Call a handler, and return its result."""
        answer = await client.post(f"http://127.0.0.1:{self.ingress}/{path}", json=body)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    async def register(self, client: httpx.AsyncClient) -> None:
        """Tell the server where the worker is, as soon as both answer."""
        end = time.monotonic() + 60
        body = {"uri": f"http://127.0.0.1:{self.worker}", "force": True}
        while time.monotonic() < end:
            try:
                answer = await client.post(f"http://127.0.0.1:{self.admin}/deployments", json=body)
                if answer.is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)
        raise TimeoutError("The server of Restate did not answer within 60 seconds; its log is restate.log.")


def _ports(path: Path) -> list[int]:
    """Return the ports of the server and the worker. They stay with the data, because the server remembers them."""
    if not path.exists():
        path.write_text(json.dumps([_free() for _ in range(4)]))
    found: list[int] = json.loads(path.read_text())
    return found


def _free() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@asynccontextmanager
async def _running(job: Job) -> AsyncIterator[tuple[Server, httpx.AsyncClient]]:
    global JOB
    JOB = job
    server = Server(job)
    config = Config()
    config.bind = [f"127.0.0.1:{server.worker}"]
    config.loglevel = "ERROR"
    config.h2_max_concurrent_streams = 20_000
    app: Any = restate.app([work, chats])
    serving = asyncio.create_task(serve(app, config))
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
    try:
        async with httpx.AsyncClient(timeout=600, limits=limits) as client:
            await server.register(client)
            job.opened = time.perf_counter()
            yield server, client
    finally:
        assert not serving.done(), "the worker has ended"
        server.process.terminate()


def _run(job: Job, act: Callable[[Server, httpx.AsyncClient], Awaitable[Sample]]) -> Sample:
    async def main() -> Sample:
        async with _running(job) as (server, client):
            return await act(server, client)

    # Not asyncio.run, which would wait for the handlers that still wait. The process ends after the sample.
    return asyncio.new_event_loop().run_until_complete(main())


class Restate(Contender):
    """Handlers of Restate."""

    name = "restate"
    packages = ("restate-sdk",)

    def lone(self, job: Job) -> Sample:
        async def act(server: Server, client: httpx.AsyncClient) -> Sample:
            await server.call(client, "work/lone", job.steps)
            return job.per_step()

        return _run(job, act)

    growing = lone

    def beside(self, job: Job) -> Sample:
        async def act(server: Server, client: httpx.AsyncClient) -> Sample:
            await server.call(client, "work/beside", text(0, job.size["ballast"]))
            return job.per_step()

        return _run(job, act)

    def crowd(self, job: Job) -> Sample:
        async def act(server: Server, client: httpx.AsyncClient) -> Sample:
            job.mark()
            some = [server.call(client, "work/crowd", job.steps) for _ in range(job.sessions)]
            done = sum(await asyncio.gather(*some))
            return job.took(done)

        return _run(job, act)

    def resume_prepare(self, job: Job) -> Sample:
        raise Lacks("not comparable: its server retries the call after a pause of its own, whatever the worker does")

    def questions(self, job: Job) -> Sample:
        async def act(server: Server, client: httpx.AsyncClient) -> Sample:
            done, before = 0, stored(job.folder)
            while done < job.sessions and job.in_time:
                some = [server.call(client, "work/ask/send", n) for n in range(100)]
                done += len(await asyncio.gather(*some))
                while len(job.times) < done:
                    await asyncio.sleep(0.01)
            return Sample(count=done, bytes=stored(job.folder) - before)

        return _run(job, act)

    def map(self, job: Job) -> Sample:
        async def act(server: Server, client: httpx.AsyncClient) -> Sample:
            begin = time.perf_counter()
            assert await server.call(client, "work/spread", job.size["items"]) == job.size["items"]
            return Sample(time.perf_counter() - begin, job.size["items"])

        return _run(job, act)

    def pause(self, job: Job) -> Sample:
        """Pause every invocation with the API of the server, and wait until it lists all of them as paused."""
        return _run(job, lambda server, client: _pause(job, server, client))

    def chat_prepare(self, job: Job) -> Sample:
        async def act(server: Server, client: httpx.AsyncClient) -> Sample:
            for n in range(job.size["turns"]):
                await server.call(client, "chats/one/turn", message(n))
            return Sample()

        return _run(job, act)

    def chat(self, job: Job) -> Sample:
        if job.size.get("cold"):
            raise Lacks("not comparable: its server keeps running when a worker ends, and so do its connections")

        async def act(server: Server, client: httpx.AsyncClient) -> Sample:
            for n in range(job.size["warm"]):
                await server.call(client, "chats/one/turn", message(n))
            begin = time.perf_counter()
            for n in range(job.size["turns"]):
                await server.call(client, "chats/one/turn", message(n))
            return Sample(time.perf_counter() - begin, job.size["turns"])

        return _run(job, act)

    def listing_prepare(self, job: Job) -> Sample:
        async def act(server: Server, client: httpx.AsyncClient) -> Sample:
            done = 0
            while job.in_time and done < job.sessions:
                await asyncio.gather(*[server.call(client, "work/once", n) for n in range(200)])
                done += 200
            return Sample(count=done)

        return _run(job, act)

    def listing(self, job: Job) -> Sample:
        """Read 50 completed invocations, which the server keeps for a day, with its SQL API."""

        async def act(server: Server, client: httpx.AsyncClient) -> Sample:
            while not await _answers(server, client):
                await asyncio.sleep(0.1)
            begin = time.perf_counter()
            for _ in range(job.size["reads"]):
                assert len(await _rows(server, client, "SELECT id, status FROM sys_invocation LIMIT 50")) == 50
            return Sample(time.perf_counter() - begin, job.size["reads"])

        return _run(job, act)


async def _rows(server: Server, client: httpx.AsyncClient, query: str) -> list[Any]:
    url = f"http://127.0.0.1:{server.admin}/query"
    answer = await client.post(url, json={"query": query}, headers={"accept": "application/json"})
    answer.raise_for_status()
    found: list[Any] = answer.json()["rows"]
    return found


async def _answers(server: Server, client: httpx.AsyncClient) -> bool:
    """Return whether the server answers queries; after a start its partition is not ready at once."""
    try:
        return len(await _rows(server, client, "SELECT id FROM sys_invocation LIMIT 1")) == 1
    except httpx.HTTPStatusError:
        return False


async def _pause(job: Job, server: Server, client: httpx.AsyncClient) -> Sample:
    global ends
    ends = asyncio.Event()
    some = [server.call(client, "work/holding/send", n) for n in range(job.sessions)]
    ids = [found["invocationId"] for found in await asyncio.gather(*some)]
    while len(job.times) < job.sessions:
        await asyncio.sleep(0.01)
    called = time.perf_counter()
    admin = f"http://127.0.0.1:{server.admin}/invocations"
    for answer in await asyncio.gather(*[client.patch(f"{admin}/{each}/pause") for each in ids]):
        answer.raise_for_status()
    begin = time.perf_counter()
    ends.set()
    count = "SELECT count(*) AS n FROM sys_invocation WHERE status = 'paused'"
    while (await _rows(server, client, count))[0]["n"] < job.sessions:
        await asyncio.sleep(0.005)
    return Sample(time.perf_counter() - begin, notes={"call": begin - called})


if __name__ == "__main__":
    main(Restate())
