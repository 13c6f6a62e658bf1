"""``python -m pausepoint`` in a forked process, which has imported everything already."""

from __future__ import annotations

import atexit
import os
import runpy
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.cli import ways
from tests.support.forkserver import ROOT, ForkServer

_server: ForkServer | None = None


def server() -> ForkServer:
    """Return the server of this process. It ends with the process."""
    global _server
    if _server is None:
        _server = ForkServer("tests.cli.forked")
        atexit.register(_server.__exit__, None, None, None)
    return _server


def pausepoint(args: list[str], cwd: Path, env: Mapping[str, str], typed: str, patience: float) -> tuple[int, str, str]:
    """Run a command and return its exit code, standard output and standard error."""
    with tempfile.TemporaryDirectory() as folder:
        ends = [Path(folder, name) for name in ("in", "out", "err")]
        ends[0].write_text(typed)
        job = server().start(
            "tests.cli.forked:job", args=args, cwd=str(cwd), env=dict(env), ends=[str(each) for each in ends]
        )
        code = job.wait(patience)
        return code, ends[1].read_text(errors="replace"), ends[2].read_text(errors="replace")


def warm_up() -> None:
    """Import what most commands need."""
    import pausepoint.cli.commands.pause
    import pausepoint.cli.commands.run
    import pausepoint.cli.commands.show
    import pausepoint.engine.engine  # noqa: F401


def job(args: list[str], cwd: str, env: dict[str, str], ends: list[str]) -> None:
    """Set up folder, environment and streams in the forked process, then run the command."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    flags = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT)
    for number, (path, how) in enumerate(zip(ends, flags, strict=True)):
        file = os.open(path, how, 0o600)
        os.dup2(file, number)
        os.close(file)
    if ways.RECORD in env:
        ways.record(Path(env[ways.RECORD]))
    sys.argv = ["pausepoint", *args]
    sys.path[:] = [cwd, *(path for path in sys.path if path not in ("", str(ROOT)))]
    try:
        runpy.run_module("pausepoint", run_name="__main__", alter_sys=True)
    finally:
        sys.stdout.flush()
