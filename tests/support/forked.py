"""Python programs in forked processes, which have imported Pausepoint already.

`Program` is for the test what ``subprocess.Popen`` is: it has a pid, its own folder, environment and streams, and ends
with an exit code or by a signal. A new Python would take half a second of computing time to import what the fork has.
"""

from __future__ import annotations

import atexit
import os
import pkgutil
import runpy
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from subprocess import PIPE, Popen
from types import ModuleType
from typing import Self

from tests.support.forkserver import ROOT, ForkServer, say
from tests.support.loop import PATIENCE

FORKS = Path("/proc/self/fd").exists()
"""Whether a forked process can open the streams of the test: it can on Linux. Elsewhere tests start a new Python."""

_WRITE = os.O_WRONLY | os.O_APPEND

_server: ForkServer | None = None


def server() -> ForkServer:
    """Return the server of this process. It ends with the process."""
    global _server
    if _server is None:
        _server = ForkServer("tests.support.forked")
        atexit.register(_server.__exit__, None, None, None)
    return _server


class Program:
    """``python WORDS`` in a forked process; ``words`` begin with -m MODULE, -c TEXT or the name of a file.

    ``ends`` are standard input, output and error: open files of this process, or one terminal.
    """

    def __init__(self, words: Sequence[str], ends: Sequence[int], cwd: Path, env: Mapping[str, str]) -> None:
        terminal = os.isatty(ends[0])
        paths = [os.ttyname(ends[0])] if terminal else [f"/proc/{os.getpid()}/fd/{end}" for end in ends]
        self.child = server().start(
            "tests.support.forked:job", words=list(words), cwd=str(cwd), env=dict(env), ends=paths, terminal=terminal
        )
        assert self.child.hear() == {"open": True}

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def returncode(self) -> int | None:
        return self.child.code

    def poll(self) -> int | None:
        """Return the exit code if the process has ended."""
        self.child.is_alive()
        return self.child.code

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for the end and return the exit code: minus the number of the signal that ended the process."""
        return self.child.wait(timeout)

    def send_signal(self, number: signal.Signals | int) -> None:
        """Send a signal, unless the process has ended."""
        self.child.signal(signal.Signals(number))

    def kill(self) -> None:
        """End the process, unless it has ended."""
        self.send_signal(signal.SIGKILL)


@contextmanager
def piped(words: Sequence[str], cwd: Path, env: Mapping[str, str]) -> Iterator[Piped | Popen[str]]:
    """Start a program with pipes as its standard input and output. The end of the block kills it."""
    if FORKS:
        with Piped(words, cwd, env) as program:
            yield program
        return
    with Popen([sys.executable, *words], stdin=PIPE, stdout=PIPE, text=True, cwd=cwd, env=env) as popen:
        try:
            yield popen
        finally:
            popen.kill()


class Piped(Program):
    """A forked program of `piped`."""

    def __init__(self, words: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        (asked, asking), (telling, told) = os.pipe(), os.pipe()
        try:
            super().__init__(words, [asked, told, 2], cwd, env)
        finally:
            os.close(asked)
            os.close(told)
        self.stdin, self.stdout = os.fdopen(asking, "w"), os.fdopen(telling)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        self.wait()
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()


# in the forked process


def warm_up() -> None:
    """Import what programs of Pausepoint need, most of which is imported on first use."""
    import pydantic
    import rich.live

    import pausepoint.cli.commands
    import pausepoint.engine

    class Warm(pydantic.BaseModel):
        word: str = rich.live.__name__

    pydantic.TypeAdapter(list[Warm]).json_schema()
    for package in (pausepoint.cli.commands, pausepoint.cli, pausepoint.engine):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)


def job(words: list[str], cwd: str, env: dict[str, str], ends: list[str], terminal: bool) -> None:
    """Make this process a Python of its own: folder, environment, streams, words; then run the program in it."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    _open_streams(ends, terminal)
    say({"open": True})
    code = 1
    try:
        _run(words, cwd, env.get("PYTHONPATH", ""))
        code = 0
    except SystemExit as end:
        code = _code_of(end)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            raise
    finally:
        _end()
    raise SystemExit(code)


def _open_streams(ends: list[str], terminal: bool) -> None:
    if terminal:
        os.login_tty(os.open(ends[0], os.O_RDWR))
    else:
        for number, (path, how) in enumerate(zip(ends, (os.O_RDONLY, _WRITE, _WRITE), strict=True)):
            file = os.open(path, how)
            os.dup2(file, number)
            os.close(file)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]  # no test replaced it


def _run(words: list[str], cwd: str, path: str) -> None:
    how, *args = words
    sys.orig_argv = [sys.executable, *words]
    first = cwd if how.startswith("-") else os.path.dirname(os.path.join(cwd, how))
    sys.path[:] = [first, *path.split(os.pathsep), *(each for each in sys.path if each not in ("", str(ROOT)))]
    if how == "-m":
        sys.argv = ["-m", *args[1:]]
        runpy.run_module(args[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.argv = ["-c", *args[1:]]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(args[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = words
        runpy.run_path(how, run_name="__main__")


def _code_of(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def _end() -> None:
    """What Python does before it exits."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
