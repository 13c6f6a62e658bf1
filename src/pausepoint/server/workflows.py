"""The handlers of workflows: what a form needs to start or edit a session, and which engines drive them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pausepoint.errors import DefinitionError, did_you_mean
from pausepoint.server import bodies, documents
from pausepoint.server.calls import Call, Reply
from pausepoint.server.problems import Problem

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.stores import Holder


async def index(call: Call) -> Reply:
    """List the workflows that this server or its store knows."""
    described = {each.name: each for each in await call.engine.descriptions()}
    sessions, engines = await _sessions(call), await call.engine.engines()
    found = [
        {
            "name": name,
            "version": described[name].version if name in described else None,
            "steps": list(described[name].outline) if name in described else [],
            "sessions": sessions[name],
        }
        | _driven(call, name, engines)
        for name in sorted(await _known(call, sessions))
    ]
    return Reply({"workflows": found})


async def show(call: Call) -> Reply:
    """Return the description of a workflow: steps, routes, guards, and the JSON schema of its state."""
    name, asked = call.params["name"], call.query(bodies.Described)
    _check_known(name, await _known(call, await _sessions(call)))
    try:
        found = await call.engine.description(name, version=asked.version)
    except DefinitionError as error:
        raise Problem(404, str(error), "unknown-workflow") from None
    return Reply(found.to_json() | _driven(call, name, await call.engine.engines()))


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


def _driven(call: Call, workflow: str, engines: Iterable[Holder]) -> dict[str, Any]:
    """Return whether this server drives a workflow, and which open engines do."""
    drives = call.desk.drives and workflow in call.engine.workflows
    return {"drives": drives, "engines": [documents.engine(each) for each in engines if workflow in each.workflows]}


async def drivers(engine: Engine, workflows: Iterable[str]) -> list[dict[str, Any]]:
    """Return which open engines pick up the sessions of each workflow."""
    names = sorted(set(workflows))
    engines = await engine.engines() if names else []
    return [documents.driver(name, [each for each in engines if name in each.workflows]) for name in names]
