"""The parts of an engine. They share one `Service`, and each gets the parts that it calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pausepoint.engine.artifacts import Artifacts
from pausepoint.engine.base import Service
from pausepoint.engine.changes import Changes, StreamVerbs
from pausepoint.engine.control import Control
from pausepoint.engine.descriptions import Descriptions
from pausepoint.engine.drawers import Drawers
from pausepoint.engine.limits import StoreLimits
from pausepoint.engine.overview import Overview
from pausepoint.engine.pauses import Pauses
from pausepoint.engine.pickup import Pickup
from pausepoint.engine.queries import Queries
from pausepoint.engine.questions import Questions
from pausepoint.engine.remembered import RequestKeys
from pausepoint.engine.rerun import Rerun
from pausepoint.engine.retention import Retention
from pausepoint.engine.schedules import Scheduler, StoreSchedules
from pausepoint.engine.session import Session
from pausepoint.engine.time_travel import TimeTravel

if TYPE_CHECKING:
    from pausepoint.engine.plans import Plans
    from pausepoint.engine.transfer import Transfer


class Parts:
    """The parts of one engine, in the order in which they build on each other.

    Parts that most programs do not need are made and imported when they are first used.
    """

    def __init__(self, service: Service, make: Callable[..., Session[Any]]) -> None:
        self._service = service
        self.changes = Changes(service)
        self.overview = Overview(service)
        self.descriptions = Descriptions(service)
        self.limits = StoreLimits(service)
        self.retention = Retention(service)
        self.keys = RequestKeys(service)
        self.schedules = StoreSchedules(service)
        self.drawers = Drawers(service)
        self.queries = Queries(service)
        self.streams = StreamVerbs(service, self.queries)
        self.pauses = Pauses(service)
        self.pickup = Pickup(service, self.queries, self.pauses)
        self.scheduler = Scheduler(service, self.pickup)
        self.questions = Questions(service, self.queries, self.pickup)
        self.time_travel = TimeTravel(service)
        self.rerun = Rerun(service, self.time_travel)
        self.artifacts = Artifacts(service, self.queries, self.time_travel, self.rerun)
        self.control = Control(
            service, self.queries, self.pauses, self.pickup, self.scheduler, self.time_travel, self.artifacts,
            self.questions, make,
        )  # fmt: skip
        service.waker.take = self.pickup.wake
        service.waker.fire = self.scheduler.fire_due

    @cached_property
    def plans(self) -> Plans:
        from pausepoint.engine.plans import Plans

        return Plans(self._service, self.queries, self.time_travel, self.artifacts)

    @cached_property
    def transfer(self) -> Transfer:
        from pausepoint.engine.transfer import Transfer

        return Transfer(self._service)
