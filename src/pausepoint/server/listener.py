"""The socket that the server listens on."""

from __future__ import annotations

import socket


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address. Raises OSError or OverflowError if that is not possible.

    Its connections send everything at once. asyncio takes care of that only for sockets that it has made itself, and
    otherwise the end of an answer would wait until the client confirms the beginning, which takes it 40 ms.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=2_048)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # its connections inherit it
    return listener
