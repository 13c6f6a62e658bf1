"""An environment for each contender, built by package name from the configured index, under build/bench-peers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "bench-peers"
SERVER = ROOT / "build" / "peers" / "node_modules" / ".bin" / "restate-server"
"""Where ``make programs`` installs the server of Restate."""


@dataclass(frozen=True)
class Entry:
    """A contender: its file, its title, and the packages of its environment. Without packages it uses ours."""

    key: str
    title: str
    packages: tuple[str, ...] = ()
    program: str = ""

    @property
    def folder(self) -> Path:
        return PLACE / f"env-{self.key}"

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python") if self.packages else sys.executable

    def server(self) -> str:
        """Return the path of the server that this contender needs, or an empty text."""
        if not self.program:
            return ""
        named = os.environ.get("PAUSEPOINT_RESTATE")
        return named or shutil.which(self.program) or (str(SERVER) if SERVER.exists() else "")


# Pinned, so that a figure that moves means that something of ours has changed.
CONTENDERS = {
    each.key: each
    for each in (
        Entry("raw", "raw SQLite"),
        Entry("pausepoint", "Pausepoint"),
        Entry("langgraph", "LangGraph", ("langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2")),
        Entry("dbos", "DBOS", ("dbos==3.3.0",)),
        Entry("burr", "Burr", ("apache-burr[tracking-client]==0.43.0",)),
        Entry("restate", "Restate", ("restate-sdk==1.2.0", "hypercorn==0.18.0", "httpx==0.28.1"), "restate-server"),
    )
}


def build(entry: Entry) -> str:
    """Build the environment of a contender unless it is there. Return why that is not possible, or an empty text."""
    if entry.program and not entry.server():
        return f"{entry.program} was not found; install it with: make programs"
    if not entry.packages:
        return ""
    stamp = entry.folder / "built"
    if stamp.exists() and stamp.read_text("utf-8") == " ".join(entry.packages):
        return ""
    try:
        _install(entry)
    except (subprocess.CalledProcessError, OSError):
        return f"its packages could not be installed; try: {' '.join(_command(entry))}"
    stamp.write_text(" ".join(entry.packages), "utf-8")
    return ""


def _install(entry: Entry) -> None:
    if not (entry.folder / "bin" / "python").exists():
        venv.create(entry.folder, with_pip=not shutil.which("uv"))
    subprocess.run(_command(entry), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _command(entry: Entry) -> list[str]:
    if shutil.which("uv"):
        return ["uv", "pip", "install", "--python", entry.python, *entry.packages]
    return [entry.python, "-m", "pip", "install", "--disable-pip-version-check", *entry.packages]
