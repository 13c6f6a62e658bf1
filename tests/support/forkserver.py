"""A server that has imported everything and forks one process per job, in a few milliseconds.

The server's modules have a function ``warm_up``, which does the work that every job would have to do first. A job is
a function named ``module:function``; it opens its own engine in the forked process. It sends messages with `say` and
ends with a return code (-9 after SIGKILL). The server and its jobs share one pipe. Each message is one line shorter
than PIPE_BUF, so lines never mix.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pausepoint
from pausepoint.runtime.signals import ECHO
from tests.support.loop import PATIENCE
from tests.support.patience import be_patient

ROOT = Path(__file__).resolve().parents[2]
_TURN = 0.1  # seconds after which a waiting thread looks whether another one has received its message
_LONGEST = 4096  # PIPE_BUF on Linux; shorter lines are written atomically

_job = 0
_pipe = 1


def say(message: dict[str, Any]) -> None:
    """Send a message to the test, from inside a job."""
    _send({"id": _job, "say": message})


def _send(message: dict[str, Any]) -> None:
    line = json.dumps(message).encode() + b"\n"
    if len(line) > _LONGEST:
        raise ValueError(f"a message has {len(line)} bytes, at most {_LONGEST} are written in one piece")
    os.write(_pipe, line)


class Child:
    """A job that was started."""

    def __init__(self, server: ForkServer, number: int) -> None:
        self._server = server
        self.number = number
        self.pid = 0
        self.said: list[dict[str, Any]] = []
        self.code: int | None = None
        self.stopped = False
        self.signalled = 0

    def hear(self, patience: float = PATIENCE) -> dict[str, Any]:
        """Return the next message. Fails if the job ends without one."""
        self._server.until(lambda: bool(self.said) or self.code is not None, patience)
        assert self.said, f"the job ended with {self.code} and said nothing"
        return self.said.pop(0)

    def is_alive(self) -> bool:
        """Return whether the job is still running, as far as the client knows."""
        self._server.take_what_came()
        return self.code is None

    def wait(self, patience: float = PATIENCE) -> int:
        """Wait until the job ends and return its return code."""
        self._server.until(lambda: self.code is not None, patience)
        assert self.code is not None
        return self.code

    def wait_stopped(self, patience: float = PATIENCE) -> None:
        """Wait until the system reports that the process is stopped."""
        self._server.until(lambda: self.stopped or self.code is not None, patience)
        assert self.stopped, f"the job ended with {self.code} instead of stopping"

    def signal(self, number: signal.Signals) -> None:
        """Let the server send a signal, unless the job has ended. Return when it was sent.

        It is never so soon after another one that an engine takes both for the same.
        """
        time.sleep(2 * ECHO)
        before = self.signalled
        self._server.order({"id": self.number, "signal": number})
        self._server.until(lambda: self.signalled > before or self.code is not None, PATIENCE)


class ForkServer:
    """The client of the server. As a context manager, it ends all running jobs on exit."""

    def __init__(self, *modules: str, variables: Mapping[str, str] | None = None) -> None:
        """Start the server. ``variables`` are added to its environment."""
        source = str(Path(pausepoint.__file__).parents[1])
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((source, str(ROOT)))} | dict(variables or {})
        command = [sys.executable, "-m", "tests.support.forkserver", *modules]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=ROOT
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self._buffer = b""
        self._children: dict[int, Child] = {}
        self._count = 0
        self._reading, self._writing = threading.Lock(), threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._in.close()
        self._process.wait(PATIENCE)
        self._out.close()

    @property
    def next(self) -> int:
        """Return the number of the next job."""
        return self._count + 1

    def start(self, job: str, **args: Any) -> Child:
        """Fork a process that runs ``job``."""
        with self._writing:
            self._count += 1
            child = self._children[self._count] = Child(self, self._count)
            self.order({"id": child.number, "job": job, "args": args})
        self.until(lambda: child.pid != 0, PATIENCE)
        return child

    def order(self, order: dict[str, Any]) -> None:
        """Send an order to the server."""
        with self._writing:
            self._in.write(json.dumps(order).encode() + b"\n")
            self._in.flush()

    def until(self, ready: Callable[[], bool], patience: float) -> None:
        """Process messages until ``ready()`` returns true."""
        deadline = time.monotonic() + patience
        while not ready():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"nothing happened for {patience} s")
            self._taken(left)

    def take_what_came(self) -> None:
        """Process the messages that have arrived, without waiting."""
        while self._taken(0):
            pass

    def _taken(self, patience: float) -> bool:
        """Process messages that arrive within this time. Another thread may take them first."""
        if not self._reading.acquire(timeout=min(patience, _TURN)):
            return False
        try:
            return self._read(min(patience, _TURN))
        finally:
            self._reading.release()

    def _read(self, patience: float) -> bool:
        if not select.select([self._out], [], [], patience)[0]:
            return False
        data = os.read(self._out.fileno(), 65536)
        if not data:
            raise RuntimeError("the fork server ended")
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        return True

    def until_any(self, children: Sequence[Child]) -> None:
        """Wait until one of the jobs has sent a message or ended."""
        self.until(lambda: not children or any(child.said or child.code is not None for child in children), PATIENCE)

    def _take(self, message: dict[str, Any]) -> None:
        child = self._children[message["id"]]
        if "say" in message:
            child.said.append(message["say"])
        child.pid = message.get("pid", child.pid)
        child.stopped = message.get("stopped", child.stopped)
        child.signalled += "signalled" in message
        if "code" in message:
            child.code = message["code"]
            del self._children[child.number]


Forks = Callable[[str], ForkServer]
"""Returns the fork server of a module."""


class _Server:
    """The server: one thread, without an open database. Warm-ups close what they open."""

    def __init__(self) -> None:
        self.jobs: dict[int, int] = {}
        self.news, self.bell = os.pipe()
        os.set_blocking(self.bell, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self.bell)

    def serve(self) -> None:
        buffer = b""
        while True:
            ready, _, _ = select.select([0, self.news], [], [])
            if self.news in ready:
                os.read(self.news, 4096)
                self.reap()
            if 0 in ready:
                data = os.read(0, 65536)
                if not data:
                    return
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    order = json.loads(line)
                    self.fork(order) if "job" in order else self.signal(order)

    def signal(self, order: dict[str, Any]) -> None:
        """Send a signal to a job.

        The server sends it, not the client: the pid cannot be reused until the server has reaped the job.
        """
        for pid, job in self.jobs.items():
            if job == order["id"]:
                os.kill(pid, order["signal"])
                _send({"id": job, "signalled": True})

    def fork(self, order: dict[str, Any]) -> None:
        pid = os.fork()
        if pid == 0:
            _do(order)
        self.jobs[pid] = order["id"]
        _send({"id": order["id"], "pid": pid})

    def reap(self) -> None:
        for pid in list(self.jobs):
            done, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if not done:
                continue
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                _send({"id": self.jobs[pid], "stopped": os.WIFSTOPPED(status)})
            else:
                _send({"id": self.jobs.pop(pid), "code": os.waitstatus_to_exitcode(status)})

    def end(self) -> None:
        """End the running jobs after the client has closed its end."""
        for pid in self.jobs:
            os.kill(pid, signal.SIGKILL)
        for pid in self.jobs:
            os.waitpid(pid, 0)


def _do(order: dict[str, Any]) -> None:
    """Run the job in the forked process, and exit as a program of its own would."""
    global _job
    _job = order["id"]
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        module, _, function = order["job"].partition(":")
        getattr(import_module(module), function)(**order["args"])
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main(modules: Sequence[str]) -> None:
    global _pipe
    _pipe = os.dup(1)
    os.dup2(2, 1)  # keeps the output of warm-ups and jobs out of the message pipe
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with SIGINT ignored
    for module in modules:
        import_module(module).warm_up()
    be_patient()
    gc.freeze()  # keeps existing objects shared with the forked processes
    server = _Server()
    try:
        server.serve()
    finally:
        server.end()


if __name__ == "__main__":
    # Imported again under its real name, because jobs use `say` from there.
    from tests.support import forkserver

    forkserver.main(sys.argv[1:])
