"""``pausepoint notify`` in a process of its own, forked from one that has imported apprise, which takes long."""

from __future__ import annotations

import atexit
import os
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.cli import documents
from tests.cli.kit import Done
from tests.support.forkserver import ROOT, ForkServer
from tests.support.loop import PATIENCE

_server: ForkServer | None = None


def server() -> ForkServer:
    """Return the server of this process. It ends with the process."""
    global _server
    if _server is None:
        _server = ForkServer("tests.server.notifier")
        atexit.register(_server.__exit__, None, None, None)
    return _server


class Notifier:
    """A running command over the store in this folder. The end of the block kills it."""

    def __init__(self, folder: Path, *words: str, env: Mapping[str, str] | None = None) -> None:
        self._output = tempfile.TemporaryDirectory()
        self._ends = [Path(self._output.name, name) for name in ("out", "err")]
        for end in self._ends:
            end.touch()
        self.words = ["notify", *words, "--store", "store.db"]
        self._job = server().start(
            "tests.server.notifier:job", words=self.words, cwd=str(folder), env=dict(env or {}),
            ends=[str(end) for end in self._ends],
        )  # fmt: skip

    def __enter__(self) -> Notifier:
        return self

    def __exit__(self, *error: object) -> None:
        self.signal(signal.SIGKILL)
        self._job.wait()
        self._output.cleanup()

    @property
    def said(self) -> str:
        return "".join(end.read_text() for end in self._ends)

    def until(self, text: str) -> None:
        """Wait until this text was printed."""
        end = time.monotonic() + PATIENCE
        while text not in self.said:
            assert self._job.is_alive(), self.said
            assert time.monotonic() < end, self.said
            time.sleep(0.01)

    def signal(self, number: signal.Signals) -> None:
        if self._job.is_alive():
            self._job.signal(number)

    def kill(self) -> None:
        """Kill the process, which must be alive."""
        self.signal(signal.SIGKILL)
        assert self._job.wait() == -signal.SIGKILL, self.said

    def wait(self) -> Done:
        """Wait for the end, check the documents that were printed, and return the result."""
        code = self._job.wait()
        out, err = (end.read_text() for end in self._ends)
        for form in {"--json", "--jsonl"} & set(self.words) if out else ():
            documents.check("notify", out, form.removeprefix("--"))
        return Done(code, out, err)


def notified(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> Done:
    """Run the command until it exits, and return what it printed."""
    with Notifier(folder, *words, env=env) as process:
        return process.wait()


def warm_up() -> None:
    """Import what the command needs, with all services of apprise."""
    from apprise import Apprise

    import pausepoint.engine.engine
    import pausepoint.integrations.notify
    import pausepoint.server.links
    import pausepoint.server.notify  # noqa: F401

    Apprise.instantiate("json://127.0.0.1")


def job(words: list[str], cwd: str, env: dict[str, str], ends: list[str]) -> None:
    """Run ``pausepoint WORDS`` in the forked process."""
    os.chdir(cwd)
    for name in [name for name in os.environ if name.startswith("PAUSEPOINT_")]:
        del os.environ[name]
    os.environ.update(env)
    for number, path in enumerate(ends, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it is a real stream
    sys.path[:] = [cwd, *(path for path in sys.path if path not in ("", str(ROOT)))]
    sys.argv = ["pausepoint", *words]
    try:
        runpy.run_module("pausepoint", run_name="__main__", alter_sys=True)
    finally:
        sys.stdout.flush()
