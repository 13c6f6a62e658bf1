"""A small server that speaks the protocol of the gate, for the programs on the other side."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pausepoint.integrations.gate as hook
from tests.support.loop import PATIENCE

OK = {"do": "ok"}


class FakeGate:
    """Answers `before` with the given messages, and everything else with ``ok``. ``asked`` is what it was sent."""

    def __init__(self, path: Path, *answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[dict[str, Any]] = []
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen()
        self.opened = threading.Event()

    def serve(self) -> None:
        """Answer until the listener is closed."""
        with suppress(OSError):
            while True:
                wire, _ = self.listener.accept()
                threading.Thread(target=self._answer, args=(wire,), daemon=True).start()

    def _answer(self, wire: socket.socket) -> None:
        with wire, wire.makefile("rwb") as stream, suppress(OSError):
            asked = json.loads(stream.readline())
            raw, kind = asked.get("raw"), asked.get("kind")
            if raw is not None:  # the hook in C
                asked = hook.report(json.loads(stream.read(raw)), kind, asked["token"], asked["pid"])
            self.asked.append(asked)
            for said in self.answers if asked["event"] == "before" else (OK,):
                if said == {"do": "hold"}:
                    self.opened.wait(PATIENCE)
                    continue
                line = json.dumps(said)
                if raw is not None:
                    line = "wait" if said["do"] == "wait" else f"={hook.printed(said, kind)}"
                stream.write(line.encode() + b"\n")
                stream.flush()

    def events(self) -> list[str]:
        return [asked["event"] for asked in self.asked]


@contextmanager
def serving(path: Path, *answers: dict[str, Any]) -> Iterator[FakeGate]:
    """Serve at a socket until the end of the block."""
    server = FakeGate(path, *answers)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.opened.set()
        server.listener.shutdown(socket.SHUT_RDWR)
        server.listener.close()
        thread.join(PATIENCE)
        path.unlink()
