"""Ports for servers that a test starts, and perhaps stops and starts again."""

from __future__ import annotations

import random
import socket

_PORTS = range(10_240, 32_768)
"""Below those that the system gives to clients and to servers without a port of their own.

One of these would be taken by another program before the server listens, or while it is stopped.
"""


def free_port() -> int:
    """Return a port on which nothing listens."""
    while True:
        port = random.SystemRandom().choice(_PORTS)  # tests seed the shared generator
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
