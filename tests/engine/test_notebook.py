"""An engine in a real Jupyter kernel: an interrupt ends the cell, SIGTERM ends the kernel, the sessions stay ready."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine, Status
from tests.support.children import ROOT
from tests.support.loop import PATIENCE

INSTALL = "install the Jupyter kernel that the tests use: pip install -e '.[dev]'"
pytest.importorskip("ipykernel", reason=INSTALL)

pytestmark = pytest.mark.filterwarnings("ignore")  # those of Jupyter's own packages

SETUP = """
import asyncio, sys
sys.path.insert(0, {root!r})
from pausepoint import *
from tests.engine.jobs import Job, ticking
path = {path!r}
"""
RUN = "run(ticking, store=path, session_id='x')"
BLOCK = """
async with Engine(path) as engine:
    await (await engine.start(ticking, session_id='x')).outcome()
"""
OPEN = """
engine = await Engine(path).__aenter__()
session = await engine.start(ticking, session_id='x')
"""


class Kernel:
    """A real kernel, and what its cells print."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager = manager
        self.client = client

    def begin(self, cell: str) -> str:
        request: str = self.client.execute(cell)
        return request

    def reply(self, request: str) -> dict[str, Any]:
        """Wait until a cell has ended."""
        end = time.monotonic() + PATIENCE
        while True:
            found = self.client.get_shell_msg(timeout=max(end - time.monotonic(), 0.1))
            if found["parent_header"].get("msg_id") == request:
                content: dict[str, Any] = found["content"]
                return content

    def run(self, cell: str) -> None:
        reply = self.reply(self.begin(cell))
        assert reply["status"] == "ok", reply

    def signal(self, number: signal.Signals) -> None:
        self.manager.signal_kernel(number)

    def ended(self) -> bool:
        end = time.monotonic() + PATIENCE
        while self.manager.is_alive():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True


@contextmanager
def kernel(path: Path) -> Iterator[Kernel]:
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(startup_timeout=PATIENCE, kernel_name="python3", cwd=str(path.parent))
    try:
        found = Kernel(manager, client)
        found.run(SETUP.format(root=str(ROOT), path=str(path)))
        yield found
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.context.destroy(linger=0)


def has_begun(path: Path, before: int = 1) -> int:
    """Wait until the session has finished an operation after record ``before``. Return its last record."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if path.exists():
            with Engine(path) as engine:
                for info in engine.sessions():
                    if info.seq > before + 1 and info.status is Status.RUNNING:  # one record is about the resume
                        return info.seq
        time.sleep(0.05)
    raise AssertionError("the session never began")


def last(path: Path) -> tuple[int, Status]:
    """Return the last record of the session, and its status."""
    with Engine(path) as engine:
        info = engine.session("x").info()
    return info.seq, info.status


@pytest.mark.long
def test_an_interrupt_ends_the_cell_and_sigterm_ends_the_kernel(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    seen = 1
    with kernel(path) as notebook:
        for cell in (RUN, BLOCK):  # the second one resumes the session
            request = notebook.begin(cell)
            seen = has_begun(path, seen)
            notebook.signal(signal.SIGINT)
            reply = notebook.reply(request)
            assert reply["ename"] in ("KeyboardInterrupt", "CancelledError"), reply
            seen, status = last(path)
            assert status is Status.READY
        notebook.run("1 + 1")  # the kernel is alive
        notebook.begin(RUN)
        has_begun(path, seen)
        notebook.signal(signal.SIGTERM)
        assert notebook.ended()
    assert last(path)[1] is Status.READY


@pytest.mark.long
@pytest.mark.parametrize("cell", [BLOCK, OPEN], ids=["in a block", "between cells"])
def test_sigterm_ends_a_kernel_with_an_engine_on_its_own_loop(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "a.db"
    with kernel(path) as notebook:
        notebook.begin(cell)
        has_begun(path)
        notebook.signal(signal.SIGTERM)
        assert notebook.ended()
    assert last(path)[1] is Status.READY
