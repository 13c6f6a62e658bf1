"""The programs of docs/examples in a folder of their own, where real processes run them."""

from __future__ import annotations

import atexit
import os
import re
import runpy
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from pausepoint import Engine, StoreError, UnknownSession
from pausepoint.engine import BlockingEngine
from pausepoint.model import StreamChunk, StreamText
from tests.docs.pages import EXAMPLES, ROOT
from tests.support.forkserver import ForkServer
from tests.support.loop import PATIENCE

NEVER = "3600"
"""As seconds: a call that takes this long is still in progress when the test kills its process."""

GATE = """

async def gate() -> None:
    while not Path("gate").exists():
        await asyncio.sleep(0.01)
"""


class Folder:
    """A folder with a copy of the examples. Their store is in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for file in EXAMPLES.glob("*.py"):
            shutil.copy(file, path)
        self.set()

    def set(self, pace: str = "0", takes: str = "0") -> None:
        """Set how many seconds the model takes for a word, and a service for an answer."""
        text = (EXAMPLES / "stand_in.py").read_text()
        for name, value in {"PACE": pace, "TAKES": takes}.items():
            text, count = re.subn(rf"^{name} = [\d.]+", f"{name} = {value}", text, flags=re.MULTILINE)
            assert count == 1
        (self.path / "stand_in.py").write_text(text)

    def gate(self) -> Path:
        """Keep the services busy until the returned file exists."""
        self.set()
        file = self.path / "gate"
        file.unlink(missing_ok=True)
        text = (self.path / "stand_in.py").read_text()
        busy = text.replace("asyncio.sleep(TAKES)", "gate()")
        assert text.count("asyncio.sleep(TAKES)") == 2
        (self.path / "stand_in.py").write_text(busy + GATE)
        return file

    def replace(self, file: str, old: str, new: str) -> None:
        """Break a program in one place."""
        text = (self.path / file).read_text()
        assert text.count(old) == 1
        (self.path / file).write_text(text.replace(old, new))

    @contextmanager
    def running(self, *words: str) -> Iterator[Program]:
        """Run ``python WORDS`` in the folder. The end of the block kills it."""
        program = Program(self.path, words)
        try:
            yield program
        finally:
            program.kill()

    def python(self, *words: str) -> list[str]:
        """Run ``python WORDS`` until it ends, and return the lines that it printed."""
        with self.running(*words) as program:
            return program.lines()

    def orders(self, service: str) -> list[str]:
        """Return the orders that a service has carried out."""
        return sorted(file.read_text() for file in (self.path / service).glob("*"))

    @contextmanager
    def desk(self) -> Iterator[BlockingEngine]:
        """Open the store from outside, to look and to answer."""
        with Engine(self.store, drives="none", create=False) as engine:
            yield engine

    def shown(self, session_id: str) -> str:
        """Return the text that everyone who followed the session sees by now."""
        text = StreamText()
        with self.desk() as desk:
            for item in desk.session(session_id).stream(follow=False):
                text.apply(item)
        return "\n".join(text.parts.values())

    def until_words(self, session_id: str) -> None:
        """Wait until the model has sent the first word of a message that it has not finished."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                with self.desk() as desk:
                    if any(isinstance(item, StreamChunk) for item in desk.session(session_id).stream(follow=False)):
                        return
            except (StoreError, UnknownSession):  # the program has not created them yet
                pass
            time.sleep(0.05)
        raise AssertionError("the model never said a word")

    @property
    def store(self) -> Path:
        return self.path / ".pausepoint" / "pausepoint.db"


class Program:
    """A running process: forked from one that has imported Pausepoint, and then like ``python WORDS``."""

    def __init__(self, folder: Path, words: tuple[str, ...]) -> None:
        handle, name = tempfile.mkstemp(dir=folder.parent, suffix=".output")
        os.close(handle)
        self.output = Path(name)
        self.job = server().start("tests.docs.programs:job", words=words, cwd=str(folder), output=name)

    def printed(self) -> list[str]:
        """Return the lines that the program has printed so far."""
        return self.output.read_text().splitlines()

    def until(self, line: str) -> None:
        """Wait until the program has printed this line."""
        end = time.monotonic() + PATIENCE
        while line not in self.printed():
            assert self.job.is_alive(), f"{line!r} was never printed, but: {self.printed()}"
            assert time.monotonic() < end, f"{line!r} was not printed in time, but: {self.printed()}"
            time.sleep(0.01)

    def ended(self) -> int:
        """Wait for the end and return the exit code."""
        return self.job.wait(PATIENCE)

    def lines(self) -> list[str]:
        """Wait for the end, and return everything that the program printed."""
        code = self.ended()
        assert code in (0, 3), (code, self.printed())  # 3: the session waits for a person
        return self.printed()

    def kill(self) -> int:
        """Kill the program with SIGKILL, unless it has ended, and return its exit code."""
        if self.job.is_alive():
            self.job.signal(signal.SIGKILL)
        return self.ended()

    def killed(self) -> None:
        """Kill the program, and check that it was alive."""
        assert self.kill() == -signal.SIGKILL, "the program had ended before it was killed"


_server: ForkServer | None = None


def server() -> ForkServer:
    """Return the server of this process, which forks the programs. It ends with the process."""
    global _server
    if _server is None:
        _server = ForkServer("tests.docs.programs")
        atexit.register(_server.__exit__, None, None, None)
    return _server


def warm_up() -> None:
    """Import what most programs need."""
    agents = ("pausepoint.integrations.pydantic_ai", "pydantic_ai.models.function")  # take three seconds
    for name in ("pausepoint.cli.commands.run", "pausepoint.engine.engine", "fastapi", "uvicorn", *agents):
        with suppress(ImportError):  # the tests that need a server say so
            import_module(name)


def job(words: list[str], cwd: str, output: str) -> None:
    """Run ``python WORDS`` in the forked process."""
    os.chdir(cwd)
    for name in [name for name in os.environ if name.startswith("PAUSEPOINT_")]:
        del os.environ[name]
    file = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.dont_write_bytecode = True  # tests change the programs
    sys.path[:] = [cwd, *(path for path in sys.path if path not in ("", str(ROOT)))]
    is_module = words[0] == "-m"
    sys.argv = words[is_module:]
    try:
        if is_module:
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")
    finally:
        sys.stdout.flush()
