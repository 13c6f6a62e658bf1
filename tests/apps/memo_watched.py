"""The memo's agents watched: who is called, and how often. Also the program as a job of the fork server.

Every call is a point at which a test can strike it (`tests.support.held`); a section that is written has its name
behind it. Everything else is as it is.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pausepoint import Engine
from pausepoint.apps.memo import AGENTS, deck, memo, research, workflow
from pausepoint.apps.memo import citations as citing
from pausepoint.apps.memo import enrichment as enriching
from pausepoint.apps.memo import settings as starting
from pausepoint.apps.memo.__main__ import main
from tests.support.held import as_program, watch

OWNERS: dict[str, tuple[Any, str]] = {
    "deck_analyst": (deck, "analyze"), "research": (research, "gather"), "section_research": (research, "assign"),
    "draft": (workflow, "write_section"), "enrich_trademark": (enriching, "header"),
    "enrich_socials": (enriching, "socials"), "enrich_links": (enriching, "links"),
    "enrich_visualizations": (enriching, "visualizations"), "cite": (citing, "assembled"),
    "validate_citations": (workflow, "check_citations"), "fact_check": (workflow, "check_facts"),
    "validate": (workflow, "score"), "finalize": (workflow, "document"),
}  # fmt: skip
"""Agent → the function that does its work."""

assert tuple(OWNERS) == AGENTS


def name_of(agent: str, *args: Any) -> str:
    return f"draft {args[0].section.name}" if agent == "draft" else agent


def warm_up() -> None:
    """Write the sample once: what is made on first use is then there in every fork."""
    with TemporaryDirectory() as folder, Engine(Path(folder) / "m.db") as engine:
        engine.start(memo, starting.starting("Fernstone"), folder=Path(folder) / "out").outcome()


def job(args: list[str], **place: Any) -> None:
    """``python -m pausepoint.apps.memo ARGS``."""
    with as_program("pausepoint.apps.memo", args, **place):
        for agent, (owner, function) in OWNERS.items():
            watch(owner, function, partial(name_of, agent))
        main(args)
