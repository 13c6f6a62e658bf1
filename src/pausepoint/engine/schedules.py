"""Schedules: the verbs, and how an engine starts the sessions that are due.

Each run of a schedule is a session, and its id is made of the schedule's name and the time of the run. It is stored in
the same transaction as the time of the next run. So of several engines one starts a run, and a run that was started is
never started again, whatever process is killed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, get_args

import msgspec
from msgspec.structs import replace

from pausepoint.clock import to_datetime
from pausepoint.codec.values import as_plain
from pausepoint.codec.values import decode as decoded
from pausepoint.definition.workflow import Workflow
from pausepoint.engine import cron as times
from pausepoint.engine.base import Service, tags_of
from pausepoint.engine.creation import encoded_input, given_input, named_fields
from pausepoint.engine.guests import cannot_start
from pausepoint.engine.pickup import Pickup
from pausepoint.errors import (
    DamagedRecord,
    PausepointError,
    ScheduleRefused,
    StateRefused,
    StoreError,
    UnknownSchedule,
    UnknownSession,
    did_you_mean,
    error_text,
)
from pausepoint.log.telemetry import logger
from pausepoint.model.commits import NewSession
from pausepoint.model.ids import SessionId, check_texts
from pausepoint.model.queues import turn_of
from pausepoint.model.schedules import (
    LARGEST_INPUT,
    LATE_AFTER,
    CatchUp,
    Overlap,
    Schedule,
    ScheduleInfo,
    Unfit,
    check_schedule_name,
    is_run_id,
    run_id,
)
from pausepoint.model.sessions import Filter, SessionRow
from pausepoint.model.views import Listing
from pausepoint.stores.base import Store

if TYPE_CHECKING:
    from pydantic import BaseModel


class StoreSchedules:
    """The schedules of the store. `Engine.schedule` stores one."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def list(self) -> Listing[ScheduleInfo]:
        """Return all schedules, ordered by name. ``damaged`` are the errors of those that cannot be read."""
        self._service.check_open()
        found = await self._service.store.schedules()
        return Listing([_info(each) for each in found], found.damaged)

    async def pause(self, name: str, *, by: str | None = None) -> ScheduleInfo:
        """Start no sessions of this schedule until `resume`. Sessions that have started are not affected."""
        check_texts(by=by)
        facts = {"paused_at": self._service.clock.now(), "paused_by": by}
        return _info(await self._rewritten(name, lambda each: each if each.paused_at else replace(each, **facts)))

    async def resume(self, name: str) -> ScheduleInfo:
        """Let a schedule start sessions again, from its next time on. Runs during the pause are not caught up.

        With ``overlap="queue"``, a run that waited when the schedule was paused still waits.
        """
        now = self._service.clock.now()

        def resumed(each: Schedule) -> Schedule:
            if each.paused_at is None:
                return each
            waited = each.overlap == "queue" and each.next_at <= each.paused_at
            next_at = each.next_at if waited else times.next_after(each.cron, each.zone, now)
            return replace(each, paused_at=None, paused_by=None, next_at=next_at)

        return _info(await self._rewritten(name, resumed))

    async def trigger(self, name: str, *, by: str | None = None) -> SessionId:
        """Start a session of this schedule now, and return its id. The schedule may be paused; its times stay.

        The session starts as soon as an engine that has the workflow looks. Raises `ScheduleRefused` if the previous
        session has not ended and the schedule does not allow or queue another.
        """
        check_texts(by=by)
        self._service.check_open()
        now = self._service.clock.now()
        found = await self._stored(name)
        if found.overlap == "skip" and (active := await _active_session(self._service.store, found)) is not None:
            raise ScheduleRefused(
                f"Schedule {name!r} was not triggered, because its session {active!r} has not ended and its overlap is"
                " 'skip'. Wait until the session has ended, or cancel it.",
                name=name,
            )

        def triggered(each: Schedule) -> Schedule:
            if each.triggered_at is not None:
                return each
            at = max(now, (each.last_at or 0) + 1)  # two triggers at one time need two ids
            return replace(each, triggered_at=at, triggered_by=by)

        after = await self._rewritten(name, triggered)
        return run_id(name, after.triggered_at or now, triggered=True)

    async def remove(self, name: str) -> None:
        """Delete a schedule, damaged or not. Its sessions stay. Raises `UnknownSchedule`."""
        self._service.check_open()
        if not await self._service.store.drop_schedule(check_schedule_name(name)):
            raise await self._unknown(name)

    async def _stored(self, name: str) -> Schedule:
        found = await self._service.store.schedule(check_schedule_name(name))
        if found is None:
            raise await self._unknown(name)
        return found

    async def _unknown(self, name: str) -> UnknownSchedule:
        names = [each.name for each in await self._service.store.schedules()]
        return UnknownSchedule(f"This store has no schedule {name!r}{did_you_mean(name, names)}", name=name)

    async def _rewritten(self, name: str, change: Callable[[Schedule], Schedule]) -> Schedule:
        self._service.check_open()
        while True:
            before = await self._stored(name)
            after = change(before)
            if after == before or (await self._service.store.set_schedule(before, after)).written:
                self._service.waker.poke()
                return after


class Scheduler:
    """Stores schedules, and starts the sessions of those that are due."""

    def __init__(self, service: Service, pickup: Pickup) -> None:
        self.service = service
        self.pickup = pickup
        self.unfit: dict[str, Unfit] = {}  # due schedules that could not start here

    async def schedule(
        self, name: str, workflow: Workflow[Any], state: BaseModel | None = None, /, *, cron: str, zone: str = "UTC",
        overlap: Overlap = "skip", catch_up: CatchUp = "newest", owner: str | None = None,
        tags: str | Sequence[str] = (), by: str | None = None, queue: str | None = None, priority: int | None = None,
        lane: str | None = None, **input: Any,
    ) -> ScheduleInfo:  # fmt: skip
        """Start a session of a workflow at the times of a cron expression, and return the schedule."""
        self.service.check_open()
        self.service.register(workflow)
        check_schedule_name(name)
        check_texts(owner=owner, by=by, lane=lane)
        _check_policy(overlap, catch_up)
        _check_turn(queue, priority)
        times.check_cron(cron, zone)
        given = given_input(state, input)
        self._check_input(workflow, given)
        now = self.service.clock.now()
        new = Schedule(
            name, workflow.name, " ".join(cron.split()), zone, overlap, catch_up, self._stored_input(workflow, given),
            owner, tags_of(tags), now, by, times.next_after(cron, zone, now), queue=queue, priority=priority, lane=lane,
        )  # fmt: skip
        while True:
            with suppress(DamagedRecord):
                before = await self.service.store.schedule(name)
                after = new if before is None else _changed(before, new)
                if after == before or (await self.service.store.set_schedule(before, after)).written:
                    self.service.waker.poke()
                    return _info(after)
                continue
            await self.service.store.drop_schedule(name)  # it cannot be read, and is replaced

    def _check_input(self, workflow: Workflow[Any], given: BaseModel | dict[str, Any]) -> None:
        """Refuse what a run would have to refuse."""
        if workflow.is_guest:
            raise cannot_start(workflow)
        self.pickup.new_session(workflow, given, run_id("check", 0))

    def _stored_input(self, workflow: Workflow[Any], given: BaseModel | dict[str, Any]) -> bytes:
        encoded, _ = encoded_input(workflow, given, None, self.service.sizes)
        names = named_fields(given)
        stored = msgspec.json.encode({name: msgspec.Raw(encoded[name]) for name in encoded if name in names})
        if len(stored) > LARGEST_INPUT:
            raise ScheduleRefused(
                f"The input has {len(stored):,} bytes, but that of a schedule may have {LARGEST_INPUT:,}. Pass the name"
                " of a file, or an id, instead of the content."
            )
        return stored

    async def fire_due(self, now: int) -> int | None:
        """Start the sessions of all schedules that are due. Return when one that could not start is tried again."""
        due = await self.service.store.due_schedules(now, list(self.service.workflows))
        self.unfit = {each.name: self.unfit[each.name] for each in due if each.name in self.unfit}
        for schedule in due:
            unfit = self.unfit.get(schedule.name)
            if self.service.waker.stopping or (
                unfit is not None and unfit.schedule == schedule and now < unfit.again_at
            ):
                continue
            try:
                await self._fire(schedule, now)
                self.unfit.pop(schedule.name, None)
            except StoreError:
                raise
            except PausepointError as error:
                unfit = Unfit.after(unfit, schedule, now)
                self.unfit[schedule.name] = unfit
                logger.warning(
                    "schedule %s is due, but cannot start: %s Next attempt: %s", schedule.name, error_text(error),
                    to_datetime(unfit.again_at).isoformat(timespec="seconds"),
                )  # fmt: skip
        return min((each.again_at for each in self.unfit.values()), default=None)

    async def _fire(self, due: Schedule | None, now: int) -> None:
        while due is not None and due.is_due(now) and self.service.waker.room and not self.service.waker.stopping:
            busy = due.overlap != "allow" and await _active_session(self.service.store, due) is not None
            if busy and (due.overlap == "queue" or due.triggered_at is not None):
                return  # the end of that session is news
            at, after = _run(due, now, skip=busy)
            if at is None:
                logger.info("schedule %s: no session started; next run at %s", due.name, to_datetime(after.next_at))
                written = (await self.service.store.set_schedule(due, after)).written
            else:
                written = await self._start_run(due, after)
            due = after if written else None

    async def _start_run(self, due: Schedule, after: Schedule) -> bool:
        """Store the session of a run with the next time of its schedule, and drive it. Return False if it changed."""
        assert after.last_session is not None
        workflow = self.service.workflows[due.workflow]
        by = f"schedule {due.name}" if due.triggered_at is None else due.triggered_by
        fields = msgspec.json.decode(due.input, type=dict[str, msgspec.Raw])
        if unknown := fields.keys() - workflow.shape.fields.keys():
            raise StateRefused(
                f"Workflow {workflow.name!r} has no field {min(unknown)!r} any more. Store the schedule again with"
                " other input.",
                field=min(unknown),
            )
        given = {name: workflow.shape.fields[name].typed.decode(bytes(data), name)
                 for name, data in fields.items()}  # fmt: skip
        new = self.pickup.new_session(workflow, given, SessionId(after.last_session), by=by)
        new = replace(
            new, owner=due.owner, tags=due.tags, keep_for=self.service.kept_for(None), lane=due.lane,
            **turn_of(due.queue, due.priority),
        )  # fmt: skip
        written = False

        async def create(new: NewSession) -> SessionRow | None:
            nonlocal written
            written, row = await self.service.store.set_schedule(due, after, new)
            return row

        if not await self.pickup.create_here(workflow, new, create) and written:
            logger.warning(
                "schedule %s: a session %s exists already, so this run starts none; next run at %s", due.name,
                new.session_id, to_datetime(after.next_at),
            )  # fmt: skip
        return written


async def _active_session(store: Store, schedule: Schedule) -> str | None:
    """Return a session of the schedule that has not ended. One that was removed or is damaged does not count."""
    with suppress(DamagedRecord, UnknownSession):
        row = None if schedule.last_session is None else await store.get(schedule.last_session)
        if row is not None and row.ended is None:
            return row.session_id
    # There are others if overlap was "allow" before.
    query = Filter(prefix=f"{schedule.name}@", unended=True, level="root")
    return next((row.session_id for row in await store.find(query) if is_run_id(row.session_id)), None)


def _check_policy(overlap: object, catch_up: object) -> None:
    for name, given, known in (("overlap", overlap, get_args(Overlap)), ("catch_up", catch_up, get_args(CatchUp))):
        if given not in known:
            raise ScheduleRefused(f"{name} must be one of {', '.join(map(repr, known))}, not {given!r:.60}.")
    if (overlap, catch_up) == ("queue", "none"):
        raise ScheduleRefused(
            "The overlap 'queue' lets a run wait, and the catch_up 'none' would drop it because it is late. Use the"
            " catch_up 'newest' with it, or the overlap 'skip'."
        )


def _check_turn(queue: str | None, priority: int | None) -> None:
    try:
        turn_of(queue, priority)
    except ValueError as error:
        raise ScheduleRefused(str(error)) from None


def _changed(before: Schedule, new: Schedule) -> Schedule:
    """Return a stored schedule with new settings. Its next run stays, unless its times change.

    A next run that is later than the next time was computed with a clock that was ahead.
    If nothing changes, its author stays, too: a program may store its schedules whenever it starts.
    """
    next_at = new.next_at
    if (before.cron, before.zone) == (new.cron, new.zone):
        has_run = new.next_at == before.last_at  # according to a clock that is a little ahead of this one
        next_at = before.next_at if has_run else min(before.next_at, new.next_at)
    after = replace(
        before, workflow=new.workflow, cron=new.cron, zone=new.zone, overlap=new.overlap, catch_up=new.catch_up,
        input=new.input, owner=new.owner, tags=new.tags, next_at=next_at, queue=new.queue,
        priority=new.priority, lane=new.lane,
    )  # fmt: skip
    return before if after == before else replace(after, by=new.by)


def _run(due: Schedule, now: int, skip: bool) -> tuple[int | None, Schedule]:
    """Return the time of the run that a due schedule starts now, if any, and the schedule after it.

    ``skip``: the previous session has not ended.
    """
    if due.triggered_at is not None:
        at: int | None = due.triggered_at
        after = replace(due, triggered_at=None, triggered_by=None)
    else:
        at = due.next_at if due.catch_up == "all" else times.newest(due.cron, due.zone, due.next_at, now)
        # While the previous session runs, all missed runs are skipped at once.
        following = times.next_after(due.cron, due.zone, at if due.catch_up == "all" and not skip else now)
        after = replace(due, next_at=following, skipped=due.skipped + skip)
        if skip or (due.catch_up == "none" and now - at > LATE_AFTER):
            at = None
    if at is None:
        return at, after
    return at, replace(after, last_at=at, last_session=run_id(due.name, at, triggered=due.triggered_at is not None))


def _info(each: Schedule) -> ScheduleInfo:
    def when(at: int | None) -> Any:
        return None if at is None else to_datetime(at)

    fields = msgspec.json.decode(each.input, type=dict[str, msgspec.Raw])
    return ScheduleInfo(
        each.name, each.workflow, each.cron, each.zone, each.overlap, each.catch_up,
        {name: as_plain(decoded(bytes(data))) for name, data in fields.items()}, each.owner, each.tags,
        to_datetime(each.created_at), each.by, None if each.paused_at is not None else to_datetime(each.next_at),
        when(each.triggered_at), when(each.paused_at), each.paused_by, when(each.last_at), each.last_session,
        each.skipped, each.queue, each.priority, each.lane,
    )  # fmt: skip
