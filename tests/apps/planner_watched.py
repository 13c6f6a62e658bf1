"""The planner's program with its agents watched, as a job of the fork server: a real process that imports nothing anew.

Every call is a line in the file ``PLANNER_CALLS``: a chunk by its number, an agent by its name. At the call that
``PLANNER_DIE`` names the process sends itself the signal ``PLANNER_SIGNAL``. Everything else is as it is.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from holdfast import Engine
from holdfast.apps.planner import estimation, ingestion, materials, output, planner, planning, reviewing, sessions
from holdfast.apps.planner.__main__ import main
from holdfast.apps.planner.sample import SAMPLE_INPUTS, sample_uploads
from tests.support.forkserver import say


def called(name: str) -> None:
    with open(os.environ["PLANNER_CALLS"], "a") as file:
        file.write(f"{name}\n")
    if name == os.environ.get("PLANNER_DIE"):
        os.kill(os.getpid(), signal.Signals[os.environ["PLANNER_SIGNAL"]])


def watch(owner: Any, function: str, name: Any) -> None:
    real = getattr(owner, function)

    @functools.wraps(real)
    def watched(*args: Any, **kwargs: Any) -> Any:
        called(name(*args) if callable(name) else name)
        return real(*args, **kwargs)

    setattr(owner, function, watched)


def chunk(path: str, content_type: str, first: int, count: int) -> str:
    return f"chunk {Path(path).suffix}:{first // count}"


def watch_all() -> None:
    watch(ingestion, "_sections", chunk)
    watch(materials, "page_count", lambda path, content_type: f"pages {Path(path).suffix}")
    watch(estimation, "estimate", "estimate")
    watch(planning, "plan", "plan")
    watch(reviewing, "review", "review")
    watch(output, "write", "finish")


def warm_up() -> None:
    """Run the sample once: what is made on first use is then there in every fork."""
    with TemporaryDirectory() as folder, Engine(Path(folder) / "p.db") as engine:
        engine.start(planner, sessions.starting(SAMPLE_INPUTS, sample_uploads())).outcome()


def job(args: list[str], folder: str, said: str, environment: dict[str, str]) -> None:
    """``python -m holdfast.apps.planner ARGS`` in a folder; what it says goes to a file."""
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        del os.environ[name]
    os.environ.update(environment)
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 2)
    tell = os.dup(1)
    os.dup2(file, 1)
    watch_all()
    try:
        main(args)
    finally:
        sys.stdout.flush()
        os.dup2(tell, 1)
        say({"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)})


def look(store: str, session_id: str, to: str) -> None:
    """Write the document of a session to a file: from another process, as one always should."""
    with Engine(store, workflows=[planner], create=False) as engine:
        Path(to).write_text(json.dumps(sessions.document(engine, session_id).model_dump(mode="json")))
