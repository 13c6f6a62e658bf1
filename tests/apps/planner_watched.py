"""The planner's program with its agents watched, as a job of the fork server: a real process that imports nothing anew.

Every call is a point at which a test can strike it (`tests.support.held`): a chunk by its number, an agent by its name.
Everything else is as it is.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pausepoint import Engine
from pausepoint.apps.planner import estimation, ingestion, materials, output, planner, sessions
from pausepoint.apps.planner import plan as planning
from pausepoint.apps.planner import review as reviewing
from pausepoint.apps.planner.__main__ import main
from pausepoint.apps.planner.sample import SAMPLE_INPUTS, sample_uploads
from tests.support.forkserver import say
from tests.support.held import as_program, watch


def chunk(path: str, content_type: str, first: int, count: int, bookmarks: object) -> str:
    return f"chunk {Path(path).suffix}:{first // count}"


def watch_all() -> None:
    watch(ingestion, "_pieces", chunk)
    watch(materials, "page_count", lambda path, content_type: f"pages {Path(path).suffix}")
    watch(materials, "outline", lambda path, content_type: f"outline {Path(path).suffix}")
    watch(estimation, "estimate", "estimate")
    watch(planning, "plan", "plan")
    watch(reviewing, "review", "review")
    watch(output, "write", "finish")


def warm_up() -> None:
    """Run the sample once: what is made on first use is then there in every fork. So is the client of models."""
    import pausepoint.apps.model.run  # noqa: F401

    with TemporaryDirectory() as folder, Engine(Path(folder) / "p.db") as engine:
        engine.start(planner, sessions.starting(SAMPLE_INPUTS, sample_uploads())).outcome()


def job(args: list[str], **place: Any) -> None:
    """``python -m pausepoint.apps.planner ARGS``; then it says how much memory it had at most."""
    with as_program("pausepoint.apps.planner", args, **place):
        watch_all()
        try:
            main(args)
        finally:
            unit = 1 if sys.platform == "darwin" else 1024
            say({"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit})


def look(store: str, session_id: str, to: str) -> None:
    """Write the document of a session to a file: from another process, as one always should."""
    with Engine(store, workflows=[planner], create=False) as engine:
        Path(to).write_text(json.dumps(sessions.document(engine, session_id).model_dump(mode="json")))
