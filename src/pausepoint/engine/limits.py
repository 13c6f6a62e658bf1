"""The verbs about limits: how many sessions of a queue, workflow or lane may be at work."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from pausepoint.definition.workflow import Workflow
from pausepoint.engine.base import Service
from pausepoint.model.ids import check_texts
from pausepoint.model.limits import Limit, LimitKey, Scope, Slots, StoredLimit, check_limit, in_effect
from pausepoint.model.queues import check_queue
from pausepoint.model.views import LimitInfo, Listing, QueueInfo


class StoreLimits:
    """The limits of the sessions that may be at work, for all engines of the store. `Engine.limit` sets one."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def queues(self) -> list[QueueInfo]:
        """Return the queues that have sessions ready or at work, or a limit, by name."""
        self._service.check_open()
        ready, at_work = Counter[str](), Counter[str]()
        for each in await self._service.store.ready_counts(self._service.clock.now()):
            ready[each.queue] += each.sessions
        for held in await self._service.store.at_work():
            at_work[held.queue] += held.sessions
        limited = {each.name for each in await self._service.store.limits() if each.scope == "queue"}
        return [QueueInfo(name, ready[name], at_work[name]) for name in sorted(limited | ready.keys() | at_work.keys())]

    async def list(self) -> Listing[LimitInfo]:
        """Return all limits, also those that workflows declare. ``damaged`` are the errors of unreadable ones."""
        self._service.check_open()
        await self._service.declare_limits()
        found = await self._service.store.limits()
        slots = _slots_of(self._service, found, await self._service.store.at_work() if found else [])
        counting = in_effect(found)
        return Listing([_info(each, slots, each in counting) for each in found], found.damaged)

    async def remove(
        self, *, queue: str | None = None, workflow: str | Workflow[Any] | None = None, lane: str | None = None
    ) -> int:
        """Remove the limits of a queue, workflow or lane that `Engine.limit` has set, and return how many there were.

        A limit that the code of the workflow declares counts again. A damaged one is removed, too, and an engine that
        has the workflow stores it again.
        """
        self._service.check_open()
        scope, name = _target(queue, workflow, lane)
        removed = await self._service.store.drop_limits(scope, name)
        damaged = [each.fields for each in (await self._service.store.limits()).damaged]
        if any((each["scope"], each["name"]) == (scope, name) for each in damaged):
            removed += await self._service.store.drop_limits(scope, name, declared=True)
            self._service.undeclared |= {each: found for each, found in self._service.workflows.items() if each == name}
            await self._service.declare_limits()
        self._service.waker.poke()
        return removed


async def set_limit(
    service: Service, queue: str | None, workflow: str | Workflow[Any] | None, lane: str | None, most: int | None,
    per: timedelta | None, by: LimitKey | None,
) -> LimitInfo:  # fmt: skip
    """Limit the sessions of a queue, a workflow or a lane, as `Engine.limit` says. Return the limit."""
    service.check_open()
    scope, name = _target(queue, workflow, lane)
    check_limit(1 if most is None else most, per, by)
    limit = StoredLimit.of(scope, name, Limit(1 if most is None else most, per, by))
    if most is None:
        limit = StoredLimit(scope, name, None, limit.per, limit.by)
    await service.declare_limits()
    if most is None:
        await _check_lifted(service, limit)
    await service.store.set_limit(limit)
    service.waker.poke()
    return _info(limit, _slots_of(service, [limit], await service.store.at_work()), counts=True)


async def _check_lifted(service: Service, lifted: StoredLimit) -> None:
    """Refuse to lift a limit that does not exist: another one of the same workflow would still count."""
    known = [each for each in await service.store.limits() if (each.scope, each.name) == lifted.target[:2]]
    if lifted.target not in [each.target for each in known]:
        have = ", ".join(sorted({_options(each) for each in known}))
        raise ValueError(
            f"There is no limit {_options(lifted)} of {lifted.scope} {lifted.name!r} to lift."
            + (f" It has one {have}. Pass the same by and per." if have else " List the limits to see which exist.")
        )


def _slots_of(service: Service, limits: Any, at_work: Any) -> Slots:
    return Slots(limits, [(each, each.sessions) for each in at_work], service.clock.now())


def _target(queue: str | None, workflow: str | Workflow[Any] | None, lane: str | None) -> tuple[Scope, str]:
    given = [each for each in (queue, workflow, lane) if each is not None]
    if len(given) != 1:
        raise ValueError("Name one queue, workflow or lane: engine.limit(queue='gpu', most=4).")
    if queue is not None:
        return "queue", check_queue(queue)
    if workflow is not None:
        name = workflow.name if isinstance(workflow, Workflow) else workflow
        check_texts(workflow=name)
        return "workflow", name
    check_texts(lane=lane)
    return "lane", str(lane)


def _options(limit: StoredLimit) -> str:
    """Return what tells the limits of one target apart."""
    return f"by {limit.by}" if limit.by else "per time" if limit.per else "of all sessions at work"


def _info(limit: StoredLimit, slots: Slots, counts: bool) -> LimitInfo:
    return LimitInfo(
        limit.scope, limit.name, limit.most, timedelta(microseconds=limit.per) if limit.per else None, limit.by or None,
        limit.declared, counts, slots.total(limit),
    )  # fmt: skip
