"""Stores the limits that the code of workflows declares, so that all engines of a store obey them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from pausepoint.definition.workflow import Workflow
from pausepoint.model.limits import Limit, StoredLimit
from pausepoint.stores.base import Store

MICROSECOND = timedelta(microseconds=1)


async def declare_limits(store: Store, undeclared: dict[str, Workflow[Any]]) -> None:
    """Store the limits of workflows, and forget those that their code no longer has. Empties ``undeclared``.

    The engine that declares last decides. Engines with older code run for a while beside newer ones after an update.
    """
    stored = await store.limits()
    for name, workflow in tuple(undeclared.items()):
        known = [each for each in stored if each.declared and (each.scope, each.name) == ("workflow", name)]
        wanted = [] if workflow.limit is None else [stored_limit("workflow", name, workflow.limit, declared=True)]
        if [replace(each, full_at=0) for each in known] != wanted:
            if {each.target for each in known} - {each.target for each in wanted}:
                await store.drop_limits("workflow", name, declared=True)
            for each in wanted:  # one that only has another number is replaced, so that it counts all the time
                await store.set_limit(each)
        undeclared.pop(name, None)


def stored_limit(scope: Any, name: str, limit: Limit, declared: bool = False) -> StoredLimit:
    """Return a limit as a store keeps it."""
    per = 0 if limit.per is None else limit.per // MICROSECOND
    return StoredLimit(scope, name, limit.most, per, limit.by or "", declared)
