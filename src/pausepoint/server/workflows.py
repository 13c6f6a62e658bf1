"""The handlers of workflows: what a form needs to start or edit a session, and which engines drive them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from pausepoint.errors import DefinitionError, did_you_mean
from pausepoint.server import bodies, documents
from pausepoint.server.calls import Call, Reply
from pausepoint.server.problems import Problem

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine


async def index(call: Call) -> Reply:
    """List the workflows that this server or its store knows."""
    described = {each.name: each for each in await call.engine.descriptions()}
    sessions, engines = await _sessions(call), await call.engine.engines()
    return Reply(documents.HttpWorkflows([
        documents.DrivenWorkflow(
            name, described[name].version if name in described else None,
            described[name].outline if name in described else [], sessions[name], _drives(call, name),
            documents.engines(engines, name),
        )
        for name in sorted(await _known(call, sessions))
    ]))  # fmt: skip


async def show(call: Call) -> Reply:
    """Return the description of a workflow: steps, routes, guards, and the JSON schema of its state."""
    name, query = call.params["name"], call.query(bodies.Described)
    _check_known(name, await _known(call, await _sessions(call)))
    try:
        description = await call.engine.description(name, version=query.version)
    except DefinitionError as error:
        raise Problem(404, str(error), "unknown-workflow") from None
    engines = documents.engines(await call.engine.engines(), name)
    return Reply(documents.HttpWorkflow(**asdict(description), drives=_drives(call, name), engines=engines))


async def _sessions(call: Call) -> Counter[str]:
    """Return the number of sessions of each workflow, of those that the person may see."""
    counts: Counter[str] = Counter()
    for (workflow, _), count in (await call.engine.tally(owner=call.access.owner)).items():
        counts[workflow] += count
    return counts


async def _known(call: Call, sessions: Iterable[str]) -> set[str]:
    """Return the workflows that the person may see. Others in the store may be those of another owner."""
    described = [each.name for each in await call.engine.descriptions()] if call.access.owner is None else []
    return {*call.engine.workflows, *described, *sessions}


def _check_known(name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise Problem(404, f"This server knows no workflow {name!r}{did_you_mean(name, known)}", "unknown-workflow")


def _drives(call: Call, workflow: str) -> bool:
    """Return whether this server drives a workflow."""
    return call.desk.drives and workflow in call.engine.workflows


async def drivers(engine: Engine, workflows: Iterable[str]) -> list[documents.DriverDocument]:
    """Return which open engines pick up the sessions of each workflow."""
    names = sorted(set(workflows))
    engines = await engine.engines() if names else []
    return [documents.driver(name, engines) for name in names]
