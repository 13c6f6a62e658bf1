"""The memo's agents watched: who is called, and how often. Also the program as a job of the fork server.

Every call is a line in the file ``MEMO_CALLS``; a section that is written has its name behind it. At the call that
``MEMO_AT`` names the process sends itself the signal ``MEMO_SIGNAL``. Everything else is as it is.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from holdfast import Engine
from holdfast.apps.memo import AGENTS, checking, citing, deck, enriching, memo, research, starting, workflow
from holdfast.apps.memo.__main__ import main

OWNERS: dict[str, tuple[Any, str]] = {
    "deck_analyst": (deck, "analyze"), "research": (research, "gather"), "section_research": (research, "assign"),
    "draft": (workflow, "write_section"), "enrich_trademark": (enriching, "header"),
    "enrich_socials": (enriching, "socials"), "enrich_links": (enriching, "links"),
    "enrich_visualizations": (enriching, "visualizations"), "cite": (citing, "assembled"),
    "validate_citations": (checking, "check_citations"), "fact_check": (checking, "check_facts"),
    "validate": (checking, "score"), "finalize": (workflow, "document"),
}  # fmt: skip
"""Agent → the function that does its work."""

assert tuple(OWNERS) == AGENTS


def name_of(agent: str, args: tuple[Any, ...]) -> str:
    return f"draft {args[0].section.name}" if agent == "draft" else agent


def watched(agent: str, called: Any) -> tuple[Any, str, Any]:
    """The owner, the name and a stand-in for the function that does an agent's work; it calls ``called`` first."""
    owner, function = OWNERS[agent]
    real = getattr(owner, function)

    @functools.wraps(real)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        called(name_of(agent, args))
        return real(*args, **kwargs)

    @functools.wraps(real)
    async def async_stand_in(*args: Any, **kwargs: Any) -> Any:
        called(name_of(agent, args))
        return await real(*args, **kwargs)

    return owner, function, async_stand_in if asyncio.iscoroutinefunction(real) else stand_in


def called(name: str) -> None:
    with open(os.environ["MEMO_CALLS"], "a") as file:
        file.write(f"{name}\n")
    if name == os.environ.get("MEMO_AT"):
        os.kill(os.getpid(), int(os.environ["MEMO_SIGNAL"]))


def warm_up() -> None:
    """Write the sample once: what is made on first use is then there in every fork."""
    with TemporaryDirectory() as folder, Engine(Path(folder) / "m.db") as engine:
        engine.start(memo, starting.starting("Fernstone"), folder=Path(folder) / "out").outcome()


def job(args: list[str], folder: str, said: str, environment: dict[str, str]) -> None:
    """``python -m holdfast.apps.memo ARGS`` in a folder; what it says goes to a file."""
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        del os.environ[name]
    os.environ.update(environment)
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 2)
    os.dup2(file, 1)
    for agent in AGENTS:
        owner, function, stand_in = watched(agent, called)
        setattr(owner, function, stand_in)
    try:
        main(args)
    finally:
        sys.stdout.flush()
