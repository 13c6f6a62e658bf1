"""A server process that has imported everything and forks for every trial.

It has no SQLite connection and no threads. The test's side is `Server`. It sends the calls of a `Bench` over pipes, as
pickles.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import IO, Any

import pausepoint
from tests.support.loop import PATIENCE

ROOT = Path(__file__).parents[2]


class Server:
    """The server process. ``bench(…)`` creates a bench there, and calls on the bench run there. Close it when done."""

    def __init__(self) -> None:
        paths = (str(Path(pausepoint.__file__).parents[1]), str(ROOT))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.bench_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            cwd=ROOT,
        )
        self._benches: dict[tuple[str, ...], Bench] = {}

    def bench(self, program: str, synchronous: str = "FULL", twin: str = "") -> Bench:
        """Return the bench for a program. Each bench is created once."""
        which = (program, synchronous, twin)
        if which not in self._benches:
            self._benches[which] = Bench(self, which)
        return self._benches[which]

    def call(self, bench: tuple[str, ...], name: str, *args: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((bench, name, args), self._process.stdin)
        self._process.stdin.flush()
        good, answer = pickle.load(self._process.stdout)
        if not good:
            raise RuntimeError(answer)
        return answer

    def close(self) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(PATIENCE)


class Bench:
    """A proxy for a `trials.Bench` in the server process."""

    def __init__(self, server: Server, which: tuple[str, ...]) -> None:
        self._server = server
        self._which = which

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self._server.call(self._which, name, *args)


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    from tests.faults import trials  # the server needs the engine; the client does not

    benches: dict[tuple[str, ...], trials.Bench] = {}
    trials.warm_up()
    gc.freeze()  # children share existing objects instead of copying their pages
    try:
        while True:
            try:
                which, name, args = pickle.load(requests)
            except EOFError:
                return
            try:
                bench = benches.get(which) or benches.setdefault(which, trials.Bench(*which))
                answer = (True, getattr(bench, name)(*args))
            except Exception:
                answer = (False, traceback.format_exc())
            pickle.dump(answer, answers)
            answers.flush()
            assert threading.active_count() == 1, "a fork would take only one of these threads with it"
    finally:
        for bench in benches.values():
            bench.close()


if __name__ == "__main__":
    # Keep printed output out of the pipe that carries the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _serve(sys.stdin.buffer, answers)
