"""The verbs that describe workflows, with or without their code, and the place where descriptions are stored.

An engine stores the description of a workflow before it creates or picks up the first session of it, and confirms it
once a day. Nothing here runs on the path of a checkpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from pausepoint.definition.workflow import Workflow
from pausepoint.errors import DefinitionError, did_you_mean
from pausepoint.log.replay import Line
from pausepoint.model.ids import check_texts, shortened
from pausepoint.threads import in_thread

if TYPE_CHECKING:
    from pausepoint.engine.base import Service
    from pausepoint.model.descriptions import Description, StoredDescription

CONFIRMED_FOR = timedelta(days=1) // timedelta(microseconds=1)
"""How long an engine relies on a stored description, before it confirms that the description is in use."""


def is_described(service: Service, workflow: Workflow[Any]) -> bool:
    """Return whether this engine has stored or confirmed the description of a workflow."""
    return service.clock.now() - service.described.get(workflow.name, -CONFIRMED_FOR) < CONFIRMED_FOR


async def describe(service: Service, workflow: Workflow[Any]) -> None:
    """Store the description of a workflow, unless the store has it.

    Sessions that start together wait for one write, and continue in their order. A store that cannot be written raises
    here as it would for the session itself, before anything was done.
    """
    storing = service.describing.get(workflow.name)
    if storing is None:
        storing = service.describing[workflow.name] = asyncio.create_task(_store(service, workflow))
        storing.add_done_callback(lambda task: task.cancelled() or task.exception())  # its callers may be cancelled
    await asyncio.shield(storing)


async def _store(service: Service, workflow: Workflow[Any]) -> None:
    try:
        now = service.clock.now()
        new = await in_thread(_stored, workflow, now)  # the first schema of a process takes milliseconds
        seen = await service.store.description_seen(new.digest)
        if seen is None or seen <= now - CONFIRMED_FOR:
            await service.store.keep_description(new)
        service.described[workflow.name] = now
    finally:
        del service.describing[workflow.name]


def _stored(workflow: Workflow[Any], now: int) -> StoredDescription:
    from pausepoint.model.descriptions import StoredDescription  # programs that only read sessions do not need it

    document = msgspec.json.encode(workflow.description, order="sorted")
    return StoredDescription(workflow.name, workflow.version, sha256(document).digest(), document, now)


class Descriptions:
    """The verbs that describe workflows."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def description(self, workflow: str, *, version: int | None = None) -> Description:
        """Return the description of a workflow: its steps, routes, guards and scopes, and the schema of its state."""
        self.service.check_open()
        check_texts(workflow=workflow)
        own = self.service.workflows.get(workflow)
        if own is not None and version in (None, own.version):
            return await in_thread(lambda: own.description)
        found = await self._described(workflow)
        for each in found:
            if version in (None, each.version):
                return each
        known = sorted({str(each.version) for each in found})
        if known:
            raise DefinitionError(
                f"This store has no description of version {version} of workflow {workflow!r}. Known versions:"
                f" {', '.join(known)}."
            )
        names = [*self.service.workflows, *(each.workflow for each in await self.service.store.descriptions())]
        near = did_you_mean(workflow, names)
        raise DefinitionError(
            f"This store has no description of workflow {shortened(workflow)}, and it is not registered with this"
            f" engine. An engine stores it when it starts or resumes a session of the workflow{near}"
        )

    async def description_of(self, session_id: str) -> Description:
        """Return the description of a session's workflow, as of the last run of the session."""
        self.service.check_open()
        row = await self.service.row(session_id)
        line = await self.service.timeline(row).line()
        own = self.service.workflows.get(row.workflow)
        if own is not None and (own.version, own.outline) == (line.version, tuple(line.outline)):
            return await in_thread(lambda: own.description)
        found = [each for each in await self._described(row.workflow) if each.version == line.version]
        return next((each for each in found if each.outline == tuple(line.outline)), _outlined(row.workflow, line))

    async def descriptions(self) -> list[Description]:
        """Return the newest description of each workflow that has one, ordered by name."""
        self.service.check_open()
        found = {each.name: each for each in await in_thread(_decoded, await self.service.store.descriptions())}
        found |= {
            name: await in_thread(lambda own=own: own.description)
            for name, own in tuple(self.service.workflows.items())
        }
        return [found[name] for name in sorted(found)]

    async def _described(self, workflow: str) -> list[Description]:
        return await in_thread(_decoded, await self.service.store.descriptions(workflow))


def _decoded(stored: Sequence[StoredDescription]) -> list[Description]:
    from pausepoint.model.descriptions import Description

    return [msgspec.json.decode(each.document, type=Description) for each in stored]  # schemas may be large


def _outlined(workflow: str, line: Line) -> Description:
    from pausepoint.model.descriptions import Description, StepDescription

    return Description(workflow, line.version, tuple(StepDescription(name) for name in line.outline))
