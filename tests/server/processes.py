"""`pausepoint serve` in a process of its own, and a client of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from tests.support.children import ROOT
from tests.support.loop import PATIENCE
from tests.support.waits import until


class Process:
    """A server in a process of its own. ``env`` is added to its environment, ``verify`` is the client's trust."""

    def __init__(self, folder: Path, *options: str, env: dict[str, str] | None = None, verify: Any = False) -> None:
        self.log = folder / "log.txt"
        words = [sys.executable, "-m", "pausepoint", "serve", "--port", "0", "--store", str(folder / "store.db")]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*words, *options], cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
                env=os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)} | (env or {}),
            )  # fmt: skip
        try:
            until(self._is_ready, self.log.read_text)
        except BaseException:
            self.process.kill()
            raise
        self.address = self._address()
        parts = urlsplit(self.address)
        self.base = f"{parts.scheme}://{parts.netloc}"
        self.token = parts.fragment.removeprefix("token=")
        self.client = httpx.Client(
            base_url=f"{self.base}/api/v1", timeout=PATIENCE, trust_env=False, verify=verify,
            headers={"Authorization": f"Bearer {self.token}"},
        )  # fmt: skip

    def _is_ready(self) -> bool:
        text = self.log.read_text()
        assert self.process.poll() is None, text
        return "Ctrl+C" in text or '"address"' in text

    def _address(self) -> str:
        lines = self.log.read_text().splitlines()
        if lines[0].startswith("{"):
            document: dict[str, str] = json.loads(lines[0])
            return document["address"]
        shown = [line.strip() for line in lines if "#token=" in line]
        if shown:
            return shown[0]
        token = (self.log.parent / "serve-token").read_text().strip()  # a log must not have it
        return f"{lines[1].split()[0]}#token={token}"

    def until(self, session_id: str, status: str) -> None:
        """Wait until a session has a status."""
        until(
            lambda: self.client.get(f"/sessions/{session_id}").json()["status"] == status,
            lambda: self.client.get(f"/sessions/{session_id}").text,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait(PATIENCE)

    def kill(self) -> None:
        """Kill the process without a warning."""
        os.killpg(self.process.pid, signal.SIGKILL)
        assert self.process.wait(PATIENCE) == -signal.SIGKILL
        self.client.close()

    def end(self, number: int = signal.SIGTERM) -> int:
        self.client.close()
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)
