"""Find a run by its plan's file or by its name, and check that it belongs to the plan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from pausepoint import Engine
from pausepoint.apps.devs.models import Plan
from pausepoint.apps.devs.plan import read
from pausepoint.apps.input import BadInput
from pausepoint.cli import Start
from pausepoint.errors import StoreMissing, UnknownSession
from pausepoint.model import SessionInfo
from pausepoint.orchestrator import Task

PROGRAM = "program:pausepoint.apps.devs"
"""The tag that tells ``pausepoint`` which program resumes a run."""

_PLAN, _WORKSPACE = "plan:", "workspace:"


def tags_of(plan: Plan) -> list[str]:
    """Return the tags that identify a run, with the paths of its plan and its workspace."""
    return ["devs", PROGRAM, f"{_PLAN}{plan.path.resolve()}", f"{_WORKSPACE}{plan.workspace}"]


def _place(info: SessionInfo, kind: str) -> Path | None:
    return next((Path(tag.removeprefix(kind)) for tag in info.tags if tag.startswith(kind)), None)


def is_run(info: SessionInfo) -> bool:
    """Return whether a session is a run of a plan."""
    return PROGRAM in info.tags


def check_whose(info: SessionInfo, plan: Plan) -> None:
    """Refuse a session that has the plan's name but is not its run. The plan or workspace may have been moved."""
    if not is_run(info):
        raise BadInput(
            f"{plan.name!r} is a session of workflow {info.workflow}, not a run. Give the plan another name."
        )
    path, folder = _place(info, _PLAN), _place(info, _WORKSPACE)
    if path is not None and path != plan.path.resolve() and path.exists():
        raise BadInput(f"Run {plan.name} belongs to {path}. Give {plan.path} its own name: name = …")
    if folder is not None and folder != plan.workspace and folder.exists():
        raise BadInput(
            f"Run {plan.name} works in {folder}, but {plan.path} now says {plan.workspace}. Change that back, or give"
            " the plan another name to start a new run there."
        )


def is_path(text: str) -> bool:
    """Return whether a text names a file rather than a run.

    >>> is_path("site.toml"), is_path("./site"), is_path("site")
    (True, True, False)
    """
    return "/" in text or text.lower().endswith((".toml", ".json"))


@asynccontextmanager
async def looking(start: Start, text: str, *, changes: bool = False) -> AsyncIterator[tuple[Engine, str]]:
    """Open the store and find the name of a run. Nothing is driven. A command that ``changes`` needs the whole name."""
    try:
        async with Engine(start.store, create=False, drives="none") as engine:
            yield engine, await _named(engine, text, changes)
    except StoreMissing:
        raise UnknownSession(
            f"{text} has not been run: there is no store here. Start it with run, or name its store with --store.",
            session_id=text,
        ) from None


async def _named(engine: Engine, text: str, changes: bool) -> str:
    if is_path(text):
        return await _by_place(engine, Path(text))
    try:
        info = await engine.find(text, exact=changes)
    except UnknownSession as error:
        raise UnknownSession(
            f"There is no run {text!r}. Name a plan by its file: {text}.toml, or ./{text}.",
            session_id=text, near=error.near,
        ) from None  # fmt: skip
    if not is_run(info):
        raise BadInput(
            f"Session {info.session_id} belongs to workflow {info.workflow} and is not the run of a plan. Name a plan's"
            " file, or a run."
        )
    return info.session_id


async def _by_place(engine: Engine, path: Path) -> str:
    """Find a run by the path of its plan, not by its content, so that a broken plan can still be paused."""
    found = await engine.sessions(tag=f"{_PLAN}{path.resolve()}", limit=1)
    if found:
        return found[0].session_id
    with suppress(BadInput, UnknownSession):  # the plan may have been moved
        plan = read(path)
        check_whose(await engine.session(plan.name).info(), plan)
        return plan.name
    onward = (
        "Start it with run, or name its store with --store."
        if path.exists()
        else "There is no such file; check the path."
    )
    raise UnknownSession(f"{path} has not been run in this store. {onward}", session_id=str(path))


async def plan_of(engine: Engine, name: str, text: str) -> Plan | None:
    """Return the plan of a run, or None if its file cannot be read."""
    path = Path(text) if is_path(text) else _place(await engine.session(name).info(), _PLAN)
    try:
        return None if path is None else read(path)
    except BadInput:
        return None


async def path_of(start: Start, text: str) -> Path:
    """Return the file of a plan, given the file or the name of its run."""
    if is_path(text):
        return Path(text)
    async with looking(start, text, changes=True) as (engine, name):
        path = _place(await engine.session(name).info(), _PLAN)
    if path is None or not path.exists():
        raise BadInput(
            f"The plan of run {name} was {path}, which no longer exists. If you moved it, pass its new path."
        )
    return path


async def stored_tasks(engine: Engine, name: str) -> list[Task]:
    """Return the tasks of a run, as they are stored."""
    stored: Any = await engine.session(name).state()
    return list(stored.tasks)


def differences(before: Sequence[Task], now: Sequence[Task]) -> list[str]:
    """Return the differences between two lists of tasks.

    >>> differences([Task(id="a"), Task(id="b")], [Task(id="b", needs=["c"]), Task(id="c")])
    ['gone: a', 'changed: b', 'new: c']
    """
    old, new = ({task.id: task for task in tasks} for tasks in (before, now))
    found = [f"gone: {id}" for id in old if id not in new]
    found += [f"changed: {id}" for id in old if id in new and old[id] != new[id]]
    return found + [f"new: {id}" for id in new if id not in old]
