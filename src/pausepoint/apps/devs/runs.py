"""Which run a person means: by the plan's file, or by the name of the run; and whose a run is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from pausepoint import Engine
from pausepoint.apps.devs.models import Plan
from pausepoint.apps.devs.plan import read
from pausepoint.apps.input import BadInput
from pausepoint.cli import Start
from pausepoint.errors import StoreMissing, UnknownSession
from pausepoint.model import SessionInfo

PROGRAM = "program:pausepoint.apps.devs"
"""So that ``pausepoint`` can say who goes on with a run."""

_PLAN, _WORKSPACE = "plan:", "workspace:"


def tags_of(plan: Plan) -> list[str]:
    """What a run is found by and known by: that it is one, and where its plan and its workspace lie."""
    return ["devs", PROGRAM, f"{_PLAN}{plan.path.resolve()}", f"{_WORKSPACE}{plan.workspace}"]


def _place(info: SessionInfo, kind: str) -> Path | None:
    return next((Path(tag.removeprefix(kind)) for tag in info.tags if tag.startswith(kind)), None)


def is_run(info: SessionInfo) -> bool:
    """Whether a session is a run of a plan."""
    return PROGRAM in info.tags


def check_whose(info: SessionInfo, plan: Plan) -> None:
    """Refuse what has the plan's name and is not its run. Places that are gone have been moved: that is no other."""
    if not is_run(info):
        raise BadInput(f"{plan.name!r} is a session of {info.workflow}, no run; give the plan another name")
    path, folder = _place(info, _PLAN), _place(info, _WORKSPACE)
    if path is not None and path != plan.path.resolve() and path.exists():
        raise BadInput(f"run {plan.name} is that of {path}; give {plan.path} a name of its own: name = …")
    if folder is not None and folder != plan.workspace and folder.exists():
        raise BadInput(
            f"run {plan.name} works in {folder}, and {plan.path} says {plan.workspace} now; put that back, or give the"
            " plan another name to begin anew there"
        )


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
        async with Engine(start.store, create=False, drives="none") as engine:
            yield engine, await _named(engine, text)
    except StoreMissing:
        raise UnknownSession(f"{text} has not been run: there is no store here", session_id=text) from None


async def _named(engine: Engine, text: str) -> str:
    if is_path(text):
        return await _by_place(engine, Path(text))
    try:
        info = await engine.find(text)
    except UnknownSession:
        raise UnknownSession(
            f"there is no run {text!r}; a plan is named by its file: {text}.toml, or ./{text}", session_id=text
        ) from None
    if not is_run(info):
        raise BadInput(f"session {info.session_id} is one of {info.workflow}, no run of a plan")
    return info.session_id


async def _by_place(engine: Engine, path: Path) -> str:
    """By the place of the plan and not by what it says: one that is broken by now can be paused nevertheless."""
    found = await engine.sessions(tag=f"{_PLAN}{path.resolve()}", limit=1)
    if found:
        return found[0].session_id
    with suppress(BadInput, UnknownSession):  # it may have been moved
        plan = read(path)
        check_whose(await engine.info(plan.name), plan)
        return plan.name
    gone = "" if path.exists() else ", and there is no such file"
    raise UnknownSession(f"{path} has not been run in this store{gone}", session_id=str(path))


async def plan_of(engine: Engine, name: str, text: str) -> Plan | None:
    """The plan of a run that a person named so, if its file can be read."""
    path = Path(text) if is_path(text) else _place(await engine.info(name), _PLAN)
    try:
        return None if path is None else read(path)
    except BadInput:
        return None


async def path_of(start: Start, text: str) -> Path:
    """The file of the plan that is meant."""
    if is_path(text):
        return Path(text)
    async with looking(start, text) as (engine, name):
        path = _place(await engine.info(name), _PLAN)
    if path is None or not path.exists():
        raise BadInput(f"the plan of run {name} was {path}, which is gone; if it was moved, name its file")
    return path
