"""Which run a person means: by the plan's file, or by the name of the run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast import Engine, Start
from holdfast.apps.devs.models import Plan
from holdfast.apps.devs.plan import read
from holdfast.apps.input import BadInput
from holdfast.errors import StoreMissing, UnknownSession

_PLAN = "plan:"


def tags_of(plan: Plan) -> list[str]:
    """What a run is found by: that it is one, and where its plan lies."""
    return ["devs", f"{_PLAN}{plan.path.resolve()}"]


def is_path(text: str) -> bool:
    """Whether a text names a file rather than a run.

    >>> is_path("site.toml"), is_path("./site"), is_path("site")
    (True, True, False)
    """
    return "/" in text or text.lower().endswith((".toml", ".json"))


@asynccontextmanager
async def looking(start: Start, text: str) -> AsyncIterator[tuple[Engine, str]]:
    """The store, open, and the name of the run that is meant. Nothing is driven."""
    try:
        async with Engine(start.store, create=False) as engine:
            await engine.waker.stop()
            yield engine, await _named(engine, text)
    except StoreMissing:
        raise UnknownSession(f"{text} has not been run: there is no store here", session_id=text) from None


async def _named(engine: Engine, text: str) -> str:
    """By the place of the plan and not by what it says: one that is broken by now can be paused nevertheless."""
    if is_path(text):
        found = await engine.sessions(tag=f"{_PLAN}{Path(text).resolve()}", limit=1)
        if not found:
            raise UnknownSession(f"{text} has not been run in this store", session_id=text)
        return found[0].session_id
    info = await engine.find(text)
    if "devs" not in info.tags:
        raise BadInput(f"session {info.session_id} is one of {info.workflow}, no run of a plan")
    return info.session_id


async def plan_of(engine: Engine, name: str) -> Plan | None:
    """The plan of a run, if its file can be read where it was."""
    tags = (await engine.info(name)).tags
    path = next((tag.removeprefix(_PLAN) for tag in tags if tag.startswith(_PLAN)), "")
    try:
        return read(Path(path))
    except BadInput:
        return None


async def path_of(start: Start, text: str) -> Path:
    """The file of the plan that is meant."""
    if is_path(text):
        return Path(text)
    async with looking(start, text) as (engine, name):
        tags = (await engine.info(name)).tags
    return next(Path(tag.removeprefix(_PLAN)) for tag in tags if tag.startswith(_PLAN))
