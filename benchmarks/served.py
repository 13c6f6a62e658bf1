"""A real server in a process of its own, on loopback, for `benchmarks.server`.

``python -m benchmarks.served STORE`` prints its port and token. It ends when its standard input does, so it never
outlives the process that started it. Below ``/bench`` it answers questions about itself.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Literal

import uvicorn
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks.fresh import compiling
from benchmarks.many import WORKFLOWS
from benchmarks.workloads import counting, standing
from pausepoint import Context, Engine, Workflow, route, step
from pausepoint.server.asgi import Settings, application
from pausepoint.server.limits import Limits
from pausepoint.server.listener import bound
from pausepoint.server.tokens import Tokens

UNLIMITED = Limits(actions=10**9, reads=10**9, streams=10**6, all_streams=10**6)

CALL = 0.1
"""Seconds of an operation of a paced session, in which it waits as for a model."""

BESIDE = 10
"""The number of paced sessions that run at the same time."""


class Paced(BaseModel):
    """The state of a session whose steps call something slow."""

    target: int
    n: int = 0


@step(writes="n")
async def call(n: int, ctx: Context) -> int:
    """Wait as for a model."""
    await ctx.do(asyncio.sleep, CALL)
    return n + 1


@route(after="call")
def call_on(n: int, target: int) -> Literal["call", None]:
    """Loop until the target is reached."""
    return "call" if n < target else None


pacing = Workflow("pacing", state=Paced, steps=[call], routes=[call_on])


class Bench:
    """What the benchmark asks the process about itself."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.gaps: list[tuple[float, float]] = []  # of the ticking task: elapsed, and processor time of the loop
        self.app = Starlette(routes=[
            Route(f"/bench/{handler.__name__}", handler, methods=["GET"])
            for handler in (self.bare, self.gaps_since, self.steps, self.memory, self.cpu)
        ])  # fmt: skip

    async def bare(self, request: Request) -> JSONResponse:
        """The least that an answer costs here."""
        return JSONResponse({"ok": True})

    async def gaps_since(self, request: Request) -> JSONResponse:
        """The milliseconds between the ticks since the last call."""
        gaps, self.gaps = self.gaps, []
        return JSONResponse(gaps)

    async def memory(self, request: Request) -> JSONResponse:
        """The bytes that the process has in memory."""
        pages = int(Path("/proc/self/statm").read_text().split()[1]) if os.path.exists("/proc/self/statm") else 0
        return JSONResponse(pages * os.sysconf("SC_PAGE_SIZE"))

    async def cpu(self, request: Request) -> JSONResponse:
        """The processor time of all threads, in milliseconds."""
        return JSONResponse(time.process_time() * 1e3)

    async def steps(self, request: Request) -> JSONResponse:
        """Drive so many steps of each session. Returns the milliseconds of a step, elapsed and of the processor."""
        count = int(request.query_params["count"])
        workflow, beside = (counting, 1) if "busy" in request.query_params else (pacing, BESIDE)
        begin, cpu = time.perf_counter(), time.process_time()
        sessions = [await self.engine.start(workflow, target=count) for _ in range(beside)]
        for session in sessions:
            assert (await session.outcome()).status == "completed"
        wall, used = time.perf_counter() - begin, time.process_time() - cpu
        return JSONResponse({"wall": wall * 1e3 / count, "cpu": used * 1e3 / count / beside})

    async def tick(self) -> None:
        """Note how long the loop took to come back to this task, and how much of that it was busy itself."""
        while True:
            begin, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            self.gaps.append(((time.perf_counter() - begin) * 1e3 - 1, (time.thread_time() - cpu) * 1e3))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


async def _serve(path: Path) -> None:
    tokens = Tokens(path.parent)
    tokens.make()
    workflows = [*WORKFLOWS, standing, pacing]
    async with Engine(path, workflows=workflows, signals=False) as engine:
        ours, bench = application(engine, Settings(tokens=tokens, limits=UNLIMITED)), Bench(engine)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            about = scope["type"] == "http" and scope["path"].startswith("/bench/")
            await (bench if about else ours)(scope, receive, send)

        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            backlog=4096,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=600,
        )
        server = uvicorn.Server(config)
        listener = bound("127.0.0.1", 0)
        gc.freeze()  # as `pausepoint serve` does
        ticking = asyncio.create_task(bench.tick())
        ending = asyncio.create_task(_end_with_input(server))
        print(json.dumps({"port": listener.getsockname()[1], "token": tokens.own}), flush=True)
        await server.serve(sockets=[listener])
        for task in (ticking, ending):
            task.cancel()


async def _end_with_input(server: uvicorn.Server) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    server.should_exit = True


class Served:
    """A running server, as the benchmark sees it."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        """Send a request to the API, and return the answer's document."""
        _, document = self.timed(f"/api/v1{path}", method, body)
        return json.loads(document)

    def bench(self, path: str) -> Any:
        return json.loads(self.timed(f"/bench/{path}")[1])

    def timed(self, path: str, method: str = "GET", body: Any = None, tries: int = 0) -> tuple[float, bytes]:
        """Send a request. Returns the milliseconds until the whole answer was there, and the answer."""
        data = None if body is None else json.dumps(body)
        begin = time.perf_counter()
        self._connection.request(method, path, data, self.headers)
        answer = self._connection.getresponse()
        document = answer.read()
        elapsed = (time.perf_counter() - begin) * 1e3
        if answer.status == 503 and tries:  # the server reads the store for the first time
            later, document = self.timed(path, method, body, tries - 1)
            return elapsed + later, document
        assert answer.status < 300, document
        return elapsed, document

    def close(self) -> None:
        self._connection.close()


@contextmanager
def served(path: Path, folder: Path) -> Iterator[Served]:
    """Serve a store until the block ends. Compiled modules are kept in the folder."""
    command = [sys.executable, "-m", "benchmarks.served", str(path)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=compiling(folder), **pipes) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        place = Served(**json.loads(process.stdout.readline()))
        try:
            yield place
        finally:
            place.close()
            process.stdin.close()  # the server ends by itself


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
