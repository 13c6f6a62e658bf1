"""The verbs: start, pause, resume, cancel, look. One service behind every front end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any, Generic, TypeVar, cast
from uuid import uuid4

import msgspec
from pydantic import BaseModel

from holdfast import history
from holdfast.clock import Clock, to_datetime
from holdfast.codec import Limits
from holdfast.drivers.local import LocalDriver, Run
from holdfast.engine import Drive
from holdfast.errors import (
    AlreadyRunning,
    DefinitionError,
    InputConflict,
    StateRefused,
    StoreClosed,
    StoreUnavailable,
    UnknownSession,
    VerbRefused,
    WrongOwner,
    did_you_mean,
    said,
)
from holdfast.ids import SessionId, check_session_id, new_session_id
from holdfast.ledger import Ledger
from holdfast.lending import Lending
from holdfast.model import (
    Event,
    Filter,
    NewSession,
    Pause,
    PauseMode,
    Record,
    SessionRow,
    Status,
    first_digest,
    seal,
)
from holdfast.outcome import Outcome, SessionInfo, VisitInfo
from holdfast.replay import CheckpointBody, KeyBody, body_of, fold, to_payload
from holdfast.state import Blobs, Slot, State, stored
from holdfast.store import Store
from holdfast.visit import to_micro_usd
from holdfast.workflow import Workflow

S = TypeVar("S", bound=BaseModel)

LOOK_EVERY = 1.0
"""Seconds between two looks at a session that another process drives."""


class Session(Generic[S]):
    """A handle on one session: an id and an engine, nothing else."""

    def __init__(self, control: Control, session_id: SessionId, run: Run | None = None) -> None:
        self._control = control
        self._run = run
        self.id = session_id

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    async def info(self) -> SessionInfo:
        """Status, position, owner, times."""
        return await self._control.info(self.id)

    async def status(self) -> Status:
        """What the session is doing."""
        return (await self._control.info(self.id)).status

    async def state(self) -> S:
        """The state as of the last checkpoint."""
        return cast(S, await self._control.state(self.id))

    async def outcome(self) -> Outcome[S]:
        """Wait until the session stops running: completed, failed, cancelled, paused, or left ready by a shutdown."""
        return cast("Outcome[S]", await self._control.outcome(self.id, self._run))

    async def pause(self, reason: str = "", *, by: str | None = None, mode: PauseMode = "finish") -> Status:
        """Stop at the next safe point (``finish``), or cancel the running step (``abort``: resume runs it again)."""
        return (await self._control.pause(self.id, reason=reason, by=by, mode=mode))[0].status

    async def resume(
        self,
        *,
        by: str | None = None,
        owner: str | None = None,
        steal: bool = False,
        budget: float | Decimal | None = None,
    ) -> Session[S]:
        """Go on from exactly there, in this process."""
        resumed = await self._control.resume(self.id, by=by, owner=owner, steal=steal, budget=budget)
        self._run = resumed._run or self._run
        return self

    async def cancel(self, reason: str = "", *, by: str | None = None) -> Status:
        """End the session: at once if nobody drives it, else at its next safe point."""
        return await self._control.cancel(self.id, reason=reason, by=by)

    async def pauses(self) -> list[Pause]:
        """Why the session stands still: the open pause records."""
        return await self._control.pauses(self.id)

    async def visits(self) -> list[VisitInfo]:
        """The finished visits, in order."""
        return await self._control.visits(self.id)

    def events(self, after: str = "", *, follow: bool = False) -> AsyncIterator[Event]:
        """The history after a cursor; with ``follow``, also what comes, until the session ends."""
        return self._control.events(self.id, after, follow=follow)


class Control:
    """The verbs over one open store."""

    def __init__(self, store: Store, workflows: Iterable[Workflow[Any]], clock: Clock, limits: Limits) -> None:
        self.store = store
        self.clock = clock
        self.limits = limits
        self.driver = LocalDriver(store)
        self.workflows: dict[str, Workflow[Any]] = {}
        self.is_open = False
        for workflow in [workflows] if isinstance(workflows, Workflow) else workflows:
            self._know(workflow)

    # starting

    async def start(
        self, workflow: Workflow[S], state: S | None = None, /, *,
        session_id: str | None = None, owner: str | None = None, tags: str | Sequence[str] = (),
        budget: float | Decimal | None = None, at: str | None = None,
        paused: bool = False, reason: str = "", by: str | None = None, **fields: Any,
    ) -> Session[S]:  # fmt: skip
        """Store a session, then run it in the background.

        An id that is taken goes on if the input is the same, and is an `InputConflict` otherwise. ``at`` begins at a
        later step; the earlier ones are recorded as skipped.
        """
        self._check_open()
        self._know(workflow)
        _texts(owner=owner, reason=reason, by=by)
        if state is not None and fields:
            raise TypeError("give the state as a model or as fields, not both")
        known = None if session_id is None else check_session_id(session_id)
        pause = self._operator_pause(reason, by, "finish") if paused else None
        given: BaseModel | dict[str, Any] = fields if state is None else state
        while True:
            new = self._new_session(workflow, given, known or new_session_id(), at, by)
            new = msgspec.structs.replace(
                new, owner=owner, tags=_tags(tags), pause=pause, claim=pause is None,
                budget_usd=None if budget is None else to_micro_usd(budget),
            )  # fmt: skip
            created = await self._create(workflow, new)
            if created is not None:
                return created
            if known is not None:
                return await self._go_on(workflow, new, by)

    async def _create(self, workflow: Workflow[S], new: NewSession) -> Session[S] | None:
        with self.driver.begins(new.session_id):
            row = await self.store.create(new)
            if row is None:
                return None
            run = self._begin(workflow, row, new.records) if new.claim else None
            return Session(self, SessionId(row.session_id), run)

    def _new_session(
        self,
        workflow: Workflow[Any],
        given: BaseModel | dict[str, Any],
        session_id: SessionId,
        at: str | None,
        by: str | None,
    ) -> NewSession:
        if isinstance(given, BaseModel) and not isinstance(given, workflow.model):
            raise StateRefused(
                f"{workflow.name} takes a {workflow.model.__name__}, not a {type(given).__name__}",
                field=type(given).__name__,
            )
        values = workflow.shape.start(given)
        named = given.model_fields_set if isinstance(given, BaseModel) else given.keys()
        blobs: Blobs = []
        slots: dict[str, Slot] = {}
        digest = sha256(f"{workflow.name}|{at}".encode())
        for name, place in workflow.shape.fields.items():
            data = place.typed.encode(values[name], name, self.limits)
            slots[name] = stored(data, blobs)
            if name in named:
                digest.update(b"|%b=%b" % (name.encode(), sha256(data).digest()))
        records, step = self._first_records(workflow, session_id, slots, at, by)
        return NewSession(
            session_id, workflow.name, workflow.version, None, (), digest.digest(), records[0].at, step, 1, None,
            records, tuple(blobs),
        )  # fmt: skip

    def _first_records(
        self, workflow: Workflow[Any], session_id: str, slots: dict[str, Slot], at: str | None, by: str | None
    ) -> tuple[tuple[Record, ...], str]:
        """A key frame, and a skipped visit for every step before ``at``."""
        now = self.clock.now()
        target = workflow.first if at is None else workflow.step(at).name
        body = KeyBody(slots, workflow.first, created=True, by=by)
        records = [seal(first_digest(session_id), 1, 0, "key", workflow.first, 1, now, to_payload(body))]
        for step in workflow.steps:
            if step.name == target:
                break
            skip = CheckpointBody(workflow.following(step.name), skipped=f"started at {target}")
            last = records[-1]
            records.append(seal(last.digest, last.seq + 1, last.seq, "checkpoint", step.name, 1, now, to_payload(skip)))
        return tuple(records), target

    async def _go_on(self, workflow: Workflow[S], new: NewSession, by: str | None) -> Session[S]:
        row = await self._row(new.session_id)
        if (row.workflow, row.input_digest) != (new.workflow, new.input_digest):
            raise InputConflict(
                f"session {row.session_id!r} exists already, with other input (workflow {row.workflow!r});"
                " use another session_id, or resume it by its id",
                session_id=row.session_id,
            )
        _check_owner(row, new.owner)
        if new.pause is not None:  # asked to stand still, not to go on
            await self.pause(row.session_id, reason=new.pause.reason, by=new.pause.by)
            return Session(self, SessionId(row.session_id))
        budget = None if new.budget_usd is None else Decimal(new.budget_usd) / 1_000_000
        return cast("Session[S]", await self.resume(row.session_id, by=by, owner=new.owner, budget=budget))

    # resuming

    async def resume(
        self, session_id: str, *, by: str | None = None, owner: str | None = None, steal: bool = False,
        budget: float | Decimal | None = None,
    ) -> Session[Any]:  # fmt: skip
        """Close the operator's pauses, test the others again, and go on from exactly there, in this process."""
        self._check_open()
        _texts(by=by, owner=owner)
        row = await self._row(session_id)
        _check_owner(row, owner)
        session: Session[Any] = Session(self, SessionId(row.session_id))
        before = row.status
        if before is Status.COMPLETED:
            return session
        if before is Status.CANCELLED:
            raise VerbRefused(
                f"session {row.session_id!r} was cancelled and cannot be resumed; start a new one",
                session_id=row.session_id, status=before.value,
            )  # fmt: skip
        driven = row.live and not steal and not self.driver.strands(row)
        if driven and before is Status.RUNNING:
            holder = self.store.describe_holder(row.holder)
            if row.holder == self.store.number:
                holder = f"this engine ({holder})"
            raise AlreadyRunning(
                f"session {row.session_id!r} is driven by {holder}; wait for it with await (await"
                f" engine.session({row.session_id!r})).outcome(), pause it, or take it over with"
                f" engine.resume({row.session_id!r}, steal=True)",
                session_id=row.session_id, holder=holder,
            )  # fmt: skip
        workflow = self._workflow_of(row)
        records = await self.store.records(row.key, row.key_frame)
        money = None if budget is None else to_micro_usd(budget)
        row = await self.store.unpause(row.session_id, by, self.clock.now(), money)
        if driven and row.live:  # it was pausing, and goes on where it is
            self.driver.on_change()
            return session
        session._run = await self._take_over(workflow, row, records, steal, by)
        return session

    async def _take_over(
        self, workflow: Workflow[Any], row: SessionRow, records: Sequence[Record], steal: bool, by: str | None
    ) -> Run:
        seq, steal = row.seq, steal or self.driver.strands(row)
        with self.driver.begins(row.session_id):
            row = await self.store.claim(row.session_id, steal)
            if not row.seq == seq == records[-1].seq:
                records = await self.store.records(row.key, row.key_frame)
            return self._begin(workflow, row, records, resumed=True, by=by)

    def _begin(
        self, workflow: Workflow[Any], row: SessionRow, records: Sequence[Record], *,
        resumed: bool = False, by: str | None = None,
    ) -> Run:  # fmt: skip
        drive = Drive(self.store, workflow, row, self.clock, self.limits, self.driver.changed)
        drive.resumed, drive.resumed_by = resumed, by
        drive.load(records)
        return self.driver.begin(drive)

    # stopping

    async def pause(
        self, session_id: str | None = None, *, workflow: str | None = None, tag: str | None = None,
        owner: str | None = None, everything: bool = False, reason: str = "", by: str | None = None,
        mode: PauseMode = "finish",
    ) -> list[SessionInfo]:  # fmt: skip
        """Ask sessions to stand still: one, those that match, or everything. Ended ones say so by their status."""
        self._check_open()
        _texts(reason=reason, by=by)
        if mode not in ("finish", "abort"):
            raise ValueError(f"mode must be 'finish' or 'abort', not {mode!r}")
        named = [part for part in (session_id, workflow, tag, owner) if part is not None]
        if everything == bool(named):
            raise ValueError("name a session, a workflow, a tag or an owner; or everything=True alone")
        if session_id is not None:
            await self._row(session_id)
        query = Filter(session_id=session_id, workflow=workflow, tag=tag, owner=owner, unended=session_id is None)
        rows = await self.store.pause(query, self._operator_pause(reason, by, mode))
        self.driver.on_change()
        return [self._info(row) for row in rows]

    async def cancel(self, session_id: str, *, reason: str = "", by: str | None = None) -> Status:
        """End a session for good; what it has done stays readable."""
        self._check_open()
        _texts(reason=reason, by=by)
        row = await self._row(session_id)
        if row.status in (Status.COMPLETED, Status.CANCELLED):
            return row.status
        row = await self.store.cancel(row.session_id, by, reason, self.clock.now())
        self.driver.on_change()
        if not row.live:
            await self._cancel_parked(row)
        return (await self._row(session_id)).status

    async def _cancel_parked(self, row: SessionRow) -> None:
        try:
            row = await self.store.claim(row.session_id)
        except AlreadyRunning:
            return  # somebody took it up meanwhile and will see the request
        ledger = Ledger(self.store, row, self.clock)
        ledger.load(await self.store.records(row.key, row.key_frame))
        await ledger.note("session.cancelled", "cancelled", ended="cancelled", release=True)

    def _operator_pause(self, reason: str, by: str | None, mode: PauseMode) -> Pause:
        return Pause(str(uuid4()), "operator", reason, by, self.clock.now(), mode=mode)

    # looking

    async def session(self, session_id: str) -> Session[Any]:
        """A handle on a stored session."""
        self._check_open()
        return Session(self, SessionId((await self._row(session_id)).session_id))

    async def info(self, session_id: str) -> SessionInfo:
        """What is known about a session without reading its state."""
        self._check_open()
        return self._info(await self._row(session_id))

    async def sessions(
        self, *, workflow: str | None = None, owner: str | None = None, tag: str | None = None,
        status: Status | str | None = None, limit: int | None = None,
    ) -> list[SessionInfo]:  # fmt: skip
        """Sessions that match, newest first."""
        self._check_open()
        wanted = None if status is None else _status(status)
        rows = await self.store.find(Filter(workflow=workflow, owner=owner, tag=tag))
        return [self._info(row) for row in rows if wanted is None or row.status is wanted][:limit]

    async def state(self, session_id: str) -> BaseModel:
        """The state as of the last checkpoint, validated field by field."""
        self._check_open()
        row = await self._row(session_id)
        return await self._state(self._workflow_of(row), row)

    async def _state(self, workflow: Workflow[Any], row: SessionRow) -> BaseModel:
        line = fold(await self.store.records(row.key, row.key_frame))
        return await self._built(workflow, line.state)

    async def _built(self, workflow: Workflow[Any], state: State) -> BaseModel:
        lending = Lending(workflow, state, self.store, self.limits)
        lending.fill_new_fields()
        await lending.prefetch()
        return cast(BaseModel, lending.build())

    async def outcome(self, session_id: str, run: Run | None = None) -> Outcome[Any]:
        """Wait until nobody drives the session any more, then say how it stands."""
        self._check_open()
        run = self.driver.runs.get(session_id, run)
        if run is not None:
            run.waiting += 1
            await run.finished()
            if run.broken is not None:
                raise run.broken
        row = await self._unheld(session_id)
        visits, took, usd = run.kept if run is not None else (0, 0, 0)
        pauses = await self.store.pauses(row.key) if row.pause_requested or row.open_pauses else []
        return Outcome(
            SessionId(row.session_id), row.status, tuple(pauses), row.failure,
            visits, timedelta(microseconds=took), usd / 1e6, row.spent_usd / 1e6, await self._final_state(row, run),
        )  # fmt: skip

    async def _final_state(self, row: SessionRow, run: Run | None) -> BaseModel | StateRefused:
        workflow = self._workflow_of(row)
        final = None
        if run is not None:
            final = run.final
            run.waiting -= 1
            run.final = final if run.waiting else None  # a parked session costs a row, not its state in memory
        try:
            if final is not None and final[0] == row.seq:
                return await self._built(workflow, final[1])
            return await self._state(workflow, row)
        except StateRefused as error:
            return error

    async def _unheld(self, session_id: str) -> SessionRow:
        with self.driver.listening(session_id) as news:
            while (row := await self._row(session_id)).live:
                if self.driver.strands(row):
                    raise self.driver.troubles.get(session_id) or _undriven(row)
                await self._news_of(news)
        return row

    async def _news_of(self, news: asyncio.Event) -> None:
        """Wait until something may have changed. A process that is killed tells nobody, so look from time to time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), LOOK_EVERY)
        news.clear()  # before the next look, so that nothing is missed in between
        self._check_open()

    async def pauses(self, session_id: str) -> list[Pause]:
        """The open pause records of a session."""
        self._check_open()
        return await self.store.pauses((await self._row(session_id)).key)

    async def visits(self, session_id: str) -> list[VisitInfo]:
        """The finished visits, in order."""
        self._check_open()
        row = await self._row(session_id)
        found = []
        for record in await self.store.records(row.key, 1):
            if record.kind == "checkpoint":
                body: CheckpointBody = body_of(record)
                took = timedelta(microseconds=body.took)
                at = to_datetime(record.at)
                found.append(VisitInfo(record.step, record.visit, record.seq, at, took, body.skipped, body.attempts))
        return found

    async def events(self, session_id: str, after: str = "", *, follow: bool = False) -> AsyncIterator[Event]:
        """The history after a cursor; with ``follow``, also what comes, until the session ends."""
        self._check_open()
        cursor = history.Cursor.parse(after) if after else history.Cursor()
        progress: tuple[int, int] | None = None
        with self.driver.listening(session_id) as news:
            while True:
                row = await self._row(session_id)
                for event in await self._news(row, cursor):
                    cursor = history.Cursor.parse(event.cursor)
                    yield event
                if not follow or row.ended is not None:
                    return
                drive = self.driver.drive(session_id)
                shown = drive.ledger.progress if drive is not None else row.progress
                if shown is not None and shown != progress:
                    progress = shown
                    done, total = shown
                    summary = f"{done}/{total}"
                    yield Event(
                        "",
                        session_id,
                        self.clock.now(),
                        row.step or "",
                        "progress",
                        summary,
                        {"done": done, "total": total},
                    )
                await self._news_of(news)

    async def _news(self, row: SessionRow, cursor: history.Cursor) -> list[Event]:
        # Signals first: those that came after record row.seq belong to the next reading.
        signals = [signal for signal in await self.store.signals(row.key, cursor.signal) if signal.after <= row.seq]
        records = await self.store.records(row.key, cursor.seq + 1, row.seq) if cursor.seq < row.seq else []
        return list(history.events(row.session_id, cursor, records, signals))

    # helpers

    def _check_open(self) -> None:
        if not self.is_open:
            raise StoreClosed("the engine is not open; use it inside `async with Engine(…) as engine:`")

    def _know(self, workflow: Workflow[Any]) -> None:
        if not isinstance(workflow, Workflow):
            raise DefinitionError(
                f"a Workflow is needed, not {type(workflow).__name__} {workflow!r:.60}; make one:"
                " Workflow(name, state=Model, steps=[…])"
            )
        known = self.workflows.setdefault(workflow.name, workflow)
        if known is not workflow:
            raise DefinitionError(f"two different workflows are named {workflow.name!r}; rename one")

    def _workflow_of(self, row: SessionRow) -> Workflow[Any]:
        workflow = self.workflows.get(row.workflow)
        if workflow is None:
            raise DefinitionError(
                f"session {row.session_id!r} belongs to workflow {row.workflow!r}, which this engine does not know;"
                " pass it: Engine(…, workflows=[…])" + did_you_mean(row.workflow, self.workflows)
            )
        if row.version > workflow.version:
            raise DefinitionError(
                f"session {row.session_id!r} was stored by version {row.version} of {row.workflow!r}; this code is"
                f" version {workflow.version}: run the newer code"
            )
        return workflow

    async def _row(self, session_id: str) -> SessionRow:
        row = await self.store.get(check_session_id(session_id))
        if row is None:
            raise UnknownSession(
                f"no session {session_id!r} in this store; engine.sessions() lists those that are",
                session_id=session_id,
            )
        return row

    def _info(self, row: SessionRow) -> SessionInfo:
        return SessionInfo(
            SessionId(row.session_id), row.workflow, row.version, row.status, row.step, row.visit, row.owner, row.tags,
            to_datetime(row.created_at), to_datetime(row.updated_at), row.pause_requested, row.cancel_requested,
            self.store.describe_holder(row.holder) if row.live else None, row.failure,
            row.spent_usd / 1e6, row.spent_tokens, None if row.budget_usd is None else row.budget_usd / 1e6,
            row.progress,
        )  # fmt: skip


def _check_owner(row: SessionRow, owner: str | None) -> None:
    if owner is not None and row.owner is not None and owner != row.owner:
        raise WrongOwner(
            f"session {row.session_id!r} belongs to {row.owner!r}, not to {owner!r}; resume it as its owner",
            session_id=row.session_id, owner=row.owner,
        )  # fmt: skip


def _tags(tags: str | Sequence[str]) -> tuple[str, ...]:
    found = (tags,) if isinstance(tags, str) else tuple(tags)
    for tag in found:
        if not isinstance(tag, str):
            raise TypeError(f"a tag is a text, not {type(tag).__name__}: {tag!r}")
    return found


def _status(name: str) -> Status:
    try:
        return Status(name)
    except ValueError:
        raise ValueError(f"{name!r} is no status{did_you_mean(str(name), list(Status))}") from None


def _texts(**given: object) -> None:
    """Who, why and whose are kept as they are told: refuse early what could not be stored."""
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} must be a text, not {type(value).__name__}: {value!r}")
        if value is not None and said(ValueError(value)) != value:
            raise ValueError(f"{name} must be a text of at most 10,000 characters that can be stored: {value!r:.60}")


def _undriven(row: SessionRow) -> StoreUnavailable:
    return StoreUnavailable(f"session {row.session_id!r} is held by this engine and driven by nobody; resume it")
