"""The end of an answer does not wait for the client to confirm its beginning."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from pausepoint.server.listener import bound
from tests.support.loop import PATIENCE


async def sends_at_once(listener: socket.socket) -> bool:
    """Return whether a connection that asyncio accepts sends small parts without a delay."""
    found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        found.set_result(bool(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        writer.close()

    async with await asyncio.start_server(connected, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname()[:2])
        async with asyncio.timeout(PATIENCE):
            answer = await found
        writer.close()
    return answer


@pytest.mark.parametrize(
    ("listens", "at_once"),
    [(lambda: bound("127.0.0.1", 0), True), (lambda: socket.create_server(("127.0.0.1", 0)), False)],
    ids=["ours", "a plain one"],
)
def test_answers_are_sent_at_once(listens: Callable[[], socket.socket], at_once: bool) -> None:
    assert asyncio.run(sends_at_once(listens())) is at_once
