"""The real server of Restate, for the tests of the dispatcher."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.loop import PATIENCE
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "peers" / "node_modules" / ".bin" / "restate-server"
"""Where ``make programs`` installs the command."""

HOW = (
    "The server of Restate is not installed. Run `make programs`, or `npm install -g @restatedev/restate-server`, "
    "or set PAUSEPOINT_RESTATE to the path of the command."
)


def find() -> str | None:
    """Return the path of the ``restate-server`` command, or None if this machine does not have it."""
    named = os.environ.get("PAUSEPOINT_RESTATE")
    if named:
        return named
    return shutil.which("restate-server") or (str(KEPT) if KEPT.exists() else None)


class Restate:
    """A running server."""

    def __init__(self, folder: Path, command: str) -> None:
        self.ingress, self.admin, fabric = (free_port() for _ in range(3))
        settings = {
            "RESTATE_BASE_DIR": folder / "data", "RESTATE_LISTEN_MODE": "tcp", "RESTATE_BIND_IP": "127.0.0.1",
            "RESTATE_BIND_PORT": fabric, "RESTATE_INGRESS__BIND_PORT": self.ingress,
            "RESTATE_ADMIN__BIND_PORT": self.admin, "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_DEFAULT_NUM_PARTITIONS": 1, "RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE": "64MB",
        }  # fmt: skip
        self.log = folder / "restate.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [command, "--no-logo"], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env=os.environ | {name: str(value) for name, value in settings.items()},
            )  # fmt: skip

    def register(self, port: int) -> None:
        """Tell the server the address of a worker, as soon as both answer."""
        url, end = f"http://127.0.0.1:{self.admin}/deployments", time.monotonic() + PATIENCE
        while True:
            try:
                answer = httpx.post(url, json={"uri": f"http://127.0.0.1:{port}", "force": True}, timeout=PATIENCE)
                if answer.is_success:
                    return
                said = answer.text
            except httpx.TransportError as error:
                said = str(error)
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, (said, self.log.read_text()[-2000:])
            time.sleep(0.1)

    async def drive(self, name: str, session_id: str, wait: bool = False) -> int:
        """Send a ``drive`` of a session, or call it and wait for its end. Return the HTTP status."""
        url = f"http://127.0.0.1:{self.ingress}/{name}/{session_id}/drive"
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            return (await client.post(url if wait else f"{url}/send")).status_code

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()


@contextmanager
def serving(folder: Path, command: str) -> Iterator[Restate]:
    """Run the server until the block ends."""
    server = Restate(folder, command)
    try:
        yield server
    finally:
        server.end()
