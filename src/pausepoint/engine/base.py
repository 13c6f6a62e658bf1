"""The base of all verbs: the store, the registered workflows, and the sessions that run here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pausepoint.clock import Clock, to_datetime
from pausepoint.codec.values import Limits
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import (
    AlreadyRunning,
    DefinitionError,
    StoreClosed,
    UnknownSession,
    WrongOwner,
    did_you_mean,
    error_text,
)
from pausepoint.model.ids import SessionId, check_session_id
from pausepoint.model.sessions import Pause, SessionRow
from pausepoint.model.views import SessionInfo
from pausepoint.runtime.driver import LocalDriver
from pausepoint.runtime.hold import OnStep
from pausepoint.runtime.signals import closed_by_signal
from pausepoint.runtime.streams import Streams
from pausepoint.runtime.waker import Waker
from pausepoint.stores.base import Store

Drives = Literal["all", "asked", "none"]
"""Which sessions an engine drives: all due ones of its workflows, those that its verbs start or resume, or none."""

Until = Literal["ended", "parked"]
"""When to stop following a session."""

TURN = 128
"""How many sessions are converted for a listing before other tasks get a turn."""


class Service:
    """One open store and the registered workflows. Subclasses add the verbs."""

    def __init__(self, store: Store, workflows: Iterable[Workflow[Any]], clock: Clock, limits: Limits) -> None:
        self.store = store
        self.clock = clock
        self.limits = limits
        self.driver = LocalDriver(store)
        self.streams = Streams(store)
        self.workflows: dict[str, Workflow[Any]] = {}
        self.described: dict[str, int] = {}  # workflow → when its stored description was last confirmed
        self.describing: dict[str, asyncio.Task[None]] = {}  # workflow → the task that stores its description
        self.is_open = False
        self.drives: Drives = "all"
        self.standing_by: set[str] = set()  # stopped sessions that this engine continues, as in `Holder.workflows`
        self.on_step: OnStep | None = None
        self.waker = Waker(store, clock, lambda: list(self.workflows), self._wake, lambda: self.driver.busy)
        self.driver.on_news = self.waker.poke
        for workflow in [workflows] if isinstance(workflows, Workflow) else workflows:
            self.register(workflow)

    @property
    def trouble(self) -> str | None:
        """Why the store cannot be written to, since when, and what to do; None while the store is healthy.

        It is about the store alone. If the disk under an artifact folder refuses a file, only the session of that
        folder stops, with a pause of kind ``disk``.
        """
        self._check_open()
        return self.store.trouble

    @property
    def ending(self) -> str:
        """Why this engine is shutting down: a signal, or `close`. Empty before that."""
        return self.driver.ending

    @property
    def running(self) -> tuple[SessionId, ...]:
        """The sessions that this engine drives now, and those that it is about to drive."""
        return tuple(map(SessionId, self.driver.running))

    async def _wake(self, row: SessionRow) -> object:
        """Drive a session that is due."""
        raise NotImplementedError

    def _check_open(self) -> None:
        if self.is_open:
            return
        if self.driver.ending.startswith("SIG"):
            raise StoreClosed(closed_by_signal(self.driver.ending))
        raise StoreClosed("The engine is not open. Use it inside `async with Engine(…) as engine:`.")

    def register(self, workflow: Workflow[Any]) -> None:
        """Register a workflow, as ``Engine(workflows=…)`` does.

        Raises `DefinitionError` if another workflow has the same name.
        """
        if not isinstance(workflow, Workflow):
            raise DefinitionError(
                f"The engine needs a Workflow, not {type(workflow).__name__} {workflow!r:.60}. Create one:"
                " Workflow(name, state=Model, steps=[…])."
            )
        known = self.workflows.get(workflow.name)
        if known is None:
            self.workflows[workflow.name] = workflow
            self._announce()
        elif known is not workflow:
            raise DefinitionError(f"Two different workflows are named {workflow.name!r}. Rename one of them.")

    def _announce(self) -> None:
        """Tell the other engines of the store whose due sessions this one picks up."""
        drives = self.drives == "all" and self.waker.asked is None
        self.store.announce([*(self.workflows if drives else ()), *self.standing_by])

    def _workflow_of(self, row: SessionRow) -> Workflow[Any]:
        workflow = self.workflows.get(row.workflow)
        if workflow is None:
            raise DefinitionError(
                f"Session {row.session_id!r} belongs to workflow {row.workflow!r}, which is not registered with this"
                f" engine. Pass it: Engine(…, workflows=[…]){did_you_mean(row.workflow, self.workflows)}"
            )
        if row.version > workflow.version:
            raise DefinitionError(
                f"Session {row.session_id!r} was stored by version {row.version} of {row.workflow!r}, but this code is"
                f" version {workflow.version}. Run the newer code."
            )
        return workflow

    async def _row(self, session_id: str) -> SessionRow:
        row = await self.store.get(check_session_id(session_id), sure=True)
        if row is None:
            raise UnknownSession(
                f"This store has no session {session_id!r}. List its sessions with engine.sessions().",
                session_id=session_id,
            )
        return row

    def _driven(self, row: SessionRow) -> AlreadyRunning:
        holder = self.store.describe_holder(row.holder)
        if row.holder == self.store.number:
            holder = f"this engine ({holder})"
        return AlreadyRunning(
            f"Session {row.session_id!r} is driven by {holder}. Wait for it with engine.outcome({row.session_id!r}),"
            f" pause it, or take it over with engine.resume({row.session_id!r}, steal=True).",
            session_id=row.session_id, holder=holder,
        )  # fmt: skip

    async def _infos(self, rows: Iterable[SessionRow]) -> list[SessionInfo]:
        """Return the facts of many sessions. Their pauses are read at once; other tasks get a turn in between."""
        rows = list(rows)
        paused = [row.key for row in rows if row.pause_requested or row.open_pauses]
        pauses = await self.store.first_pauses(paused) if paused else {}
        found: list[SessionInfo] = []
        for row in rows:
            found.append(self._info(row, pauses.get(row.key)))
            if not len(found) % TURN:
                await asyncio.sleep(0)
        return found

    def _info(self, row: SessionRow, pause: Pause | None = None) -> SessionInfo:
        return SessionInfo(
            SessionId(row.session_id), row.workflow, row.version, row.status, row.step, row.visit, row.owner, row.tags,
            to_datetime(row.created_at), to_datetime(row.updated_at), row.pause_requested, row.cancel_requested,
            self.store.describe_holder(row.holder) if row.live else None, row.failure,
            row.spent_usd / 1e6, row.spent_tokens, None if row.budget_usd is None else row.budget_usd / 1e6,
            row.progress, tuple(row.waiting.split(",")) if row.waiting else (),
            to_datetime(row.wakes_at) if row.wakes_at else None, row.parent_id, row.seq,
            row.held_by_guard, None if row.kept_by is None else self.store.describe_holder(row.kept_by), row.fence,
            row.spent_operations, row.budget_tokens, row.budget_operations, row.guest, row.signals, pause,
        )  # fmt: skip


def check_owner(row: SessionRow, owner: str | None) -> None:
    if owner is not None and row.owner is not None and owner != row.owner:
        raise WrongOwner(
            f"Session {row.session_id!r} belongs to {row.owner!r}, not to {owner!r}. Resume it as its owner.",
            session_id=row.session_id, owner=row.owner,
        )  # fmt: skip


def tags_of(tags: str | Sequence[str]) -> tuple[str, ...]:
    found = (tags,) if isinstance(tags, str) else tuple(tags)
    for tag in found:
        if not isinstance(tag, str):
            raise TypeError(f"A tag must be a string, not {type(tag).__name__}: {tag!r}.")
        check_texts(tag=tag)
    return found


def check_texts(**given: object) -> None:
    """Check that names and reasons are strings that can be stored. Raises `TypeError` or `ValueError`."""
    for name, value in given.items():
        if value is None or value == "":
            continue
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a string, not {type(value).__name__}: {value!r}.")
        if error_text(ValueError(value)) != value:
            raise ValueError(
                f"{name} must be a string of at most 10,000 characters that can be encoded as UTF-8: {value!r:.60}."
            )
