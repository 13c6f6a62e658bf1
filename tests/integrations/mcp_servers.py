"""MCP servers in forked processes, which start in milliseconds, and the pipes of their clients."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from mcp import types
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage

from tests.support import forked
from tests.support.children import environment
from tests.support.forkserver import Child, ForkServer


def warm_up() -> None:
    """Import what a server needs: the package mcp takes two seconds of computing time."""
    import pausepoint.integrations.mcp_server  # noqa: F401

    forked.warm_up()


class Served:
    """A server in a forked process: a transport for a client of the package mcp."""

    def __init__(self, forks: ForkServer, words: Sequence[str], cwd: Path) -> None:
        (asked, self._asking), (self._telling, told) = os.pipe(), os.pipe()
        self._open = True
        with (cwd / "stderr").open("a") as errors:
            ends = [f"/proc/{os.getpid()}/fd/{end}" for end in (asked, told, errors.fileno())]
            env = environment() | {"LOGNAME": "ann"}
            self.job: Child = forks.start(
                "tests.support.forked:job", words=["-m", "pausepoint", "mcp", *words], cwd=str(cwd), env=env, ends=ends,
                terminal=False,
            )  # fmt: skip
            assert self.job.hear() == {"open": True}
        os.close(asked)
        os.close(told)

    def end_stdin(self) -> None:
        """Close stdin of the server."""
        if self._open:
            self._open = False
            os.close(self._asking)

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[TransportStreams]:
        """Yield the streams of a client. At the end, stdin of the server is closed."""
        into, reading = anyio.create_memory_object_stream[SessionMessage | Exception](100)
        writing, outof = anyio.create_memory_object_stream[SessionMessage](0)
        reader = asyncio.StreamReader(limit=2**24)
        loop = asyncio.get_running_loop()
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._telling))

        async def read() -> None:
            async with into:
                with suppress(anyio.BrokenResourceError):  # the client is closed
                    while line := await reader.readline():
                        await into.send(SessionMessage(types.jsonrpc_message_adapter.validate_json(line)))

        async def write() -> None:
            async with outof:
                async for message in outof:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    with suppress(BrokenPipeError):  # the server was killed
                        if self._open:
                            os.write(self._asking, text.encode() + b"\n")

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            group.start_soon(write)
            try:
                yield reading, writing
            finally:
                group.cancel_scope.cancel()
                self.end_stdin()
                pipe.close()
                reading.close()
                writing.close()
