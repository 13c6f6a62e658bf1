"""The public `Engine`: opens a store by its URL and provides the verbs while it is open."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Self, get_args

from typing_extensions import TypeVar

from pausepoint.clock import Clock, SystemClock
from pausepoint.codec.values import DEFAULT_LIMITS, Limits
from pausepoint.definition.workflow import Workflow, hold_seconds
from pausepoint.engine import flags
from pausepoint.engine.base import Drives
from pausepoint.engine.bulk import Bulk
from pausepoint.errors import CallRefused, StoreClosed, StoreError
from pausepoint.model.budgets import Amount
from pausepoint.model.questions import is_time_to_answer
from pausepoint.model.views import Outcome
from pausepoint.name import DEFAULT_STORE
from pausepoint.runtime.hold import OnStep
from pausepoint.runtime.signals import SignalWatch
from pausepoint.stores.base import Store
from pausepoint.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.engine.blocking import BlockingEngine

S = TypeVar("S", bound="BaseModel")
R = TypeVar("R", default=S)  # the result: what a function returned, or the final state

DEFAULT_URL = f"sqlite:///{DEFAULT_STORE}"

HOLD = timedelta(minutes=10)
"""How long an engine keeps a paused step in memory, unless it is told otherwise."""


class Engine(Bulk):
    """Runs workflows and keeps their sessions in a store.

    Open it with ``async with Engine(…) as engine:``. When the block exits, running sessions stop after their current
    operation and stay ready to resume. In blocking code, ``with Engine(…) as engine:`` opens a `BlockingEngine`: the
    same verbs without ``await``.

    - ``url``: the store: ``sqlite:///relative/path.db``, ``sqlite:////absolute/path.db``, ``:memory:``, a path, or a
      `Store`.
    - ``workflows``: the workflows whose sessions this engine can drive. `start` registers its workflow too.
    - ``limits``: the largest values that a state or an operation may store.
    - ``clock``: the source of time. Tests pass their own.
    - ``signals``: on Ctrl+C and SIGTERM, stop sessions as at the end of the block. This applies in the main thread,
      and only where the program has no handler of its own; a server's handlers stay in place and are called. With
      False, the engine ignores signals.
    - ``keep_for``: how long after its last update `gc` may remove a session. None means never.
    - ``create``: with False, opening raises `StoreMissing` if there is no store, and creates nothing.
    - ``questions_expire``: how long a question waits, unless the workflow or the call says otherwise. None means
      forever. By default only the questions of `collect` expire, after 30 minutes.
    - ``drives``: the sessions this engine drives: ``"all"`` due sessions of its workflows, only those that its verbs
      are ``"asked"`` to start or resume (see `drive_only`), or ``"none"``, for programs that only read and send
      requests.
    - ``hold``: how long the step of a paused session stays in memory, as a timedelta or in seconds. A session that is
      resumed in time continues in place. After that time the step exits, and a resume starts it again at its top, where
      finished operations return immediately. 0 makes it exit when it pauses.
    - ``on_step``: an async function, called with the session's id, the step and the visit number before a step runs.

    >>> import asyncio
    >>> from pydantic import BaseModel
    >>> from pausepoint import Engine, Workflow, step
    >>> class Greeting(BaseModel):
    ...     name: str
    ...     text: str = ""
    >>> @step(writes="text")
    ... async def greet(name: str) -> str:
    ...     return f"Hello, {name}!"
    >>> greeting = Workflow("greeting", state=Greeting, steps=[greet])
    >>> async def main() -> str:
    ...     async with Engine(":memory:") as engine:
    ...         session = await engine.start(greeting, name="Ada")
    ...         return (await session.outcome()).state.text
    >>> asyncio.run(main())
    'Hello, Ada!'
    """

    def __init__(
        self,
        url: str | Path | Store = DEFAULT_URL,
        *,
        workflows: Iterable[Workflow[Any]] = (),
        limits: Limits = DEFAULT_LIMITS,
        clock: Clock | None = None,
        signals: bool = True,
        keep_for: timedelta | None = None,
        create: bool = True,
        questions_expire: timedelta | EllipsisType | None = ...,
        drives: Drives = "all",
        hold: timedelta | float = HOLD,
        on_step: OnStep | None = None,
    ) -> None:
        if drives not in get_args(Drives):
            raise ValueError(f"drives must be 'all', 'asked' or 'none', not {drives!r}.")
        if not is_time_to_answer(questions_expire):
            raise ValueError(f"questions_expire must be a timedelta above zero, or None, not {questions_expire!r}.")
        self.hold = hold_seconds(hold)
        clock = clock or SystemClock()
        super().__init__(store_from(url, clock, create), workflows, clock, limits)
        self.drives = drives
        self.on_step = on_step
        self.waker.asked = set() if drives == "asked" else None
        self.keep_for = keep_for
        self.questions_expire = questions_expire
        self._kept_for(keep_for)
        self._signals = signals
        self._watch: SignalWatch | None = None
        self._blocking: BlockingEngine | None = None
        self._opened_with = ""
        self._pid = 0

    def __enter__(self) -> BlockingEngine:
        from pausepoint.engine.blocking import BlockingEngine  # async programs do not need it

        self._opened_by("with")
        if self._blocking is not None:
            raise StoreClosed("This Engine was opened before and cannot be opened again. Create another one.")
        self._blocking = BlockingEngine(self, self.close, signals=self._signals)
        self._blocking._begin(self._open)
        return self._blocking

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._blocking is not None:
            self._blocking._end(error)

    def _opened_by(self, way: str) -> None:
        if self._opened_with not in ("", way):
            raise CallRefused(f"This Engine was opened with `{self._opened_with}`. Create another one for `{way}`.")
        self._opened_with = way

    async def _open(self) -> None:
        self._announce()
        await self.store.open(self.driver.on_change)
        self.is_open = True
        self._pid = os.getpid()
        await flags.mend(self.store)
        if self.drives != "none":
            self.waker.start()

    async def __aenter__(self) -> Self:
        self._opened_by("async with")
        await self._open()
        if self._signals:
            self._watch = SignalWatch(self.driver, self._stop_driving, self.close)
            self._watch.install()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        if self._watch is not None and (verdict := self._watch.verdict()) is not None:
            raise verdict from None

    async def close(self) -> None:
        """Stop all running sessions after their current operation, then close the store. Safe to call twice."""
        if not self.is_open:
            return
        if self._watch is not None:
            self._watch.closing = True
        try:
            await self._stop_driving("the engine was closed")
        finally:
            self.is_open = False
            if self._watch is not None:
                self._watch.uninstall()
            await self.store.close()

    async def _stop_driving(self, reason: str) -> None:
        """Pick up no more sessions, and stop the running ones after their current operation."""
        await self.waker.stop()
        await self.driver.stop(reason)

    def _check_open(self) -> None:
        super()._check_open()
        if os.getpid() != self._pid:
            raise StoreClosed(
                "This engine was opened by another process. Open a new Engine in this process after fork()."
            )
        if self._blocking is not None and not self._blocking._thread.is_here:
            raise CallRefused(
                "This Engine was opened with `with`. Use the blocking engine from `with Engine(…) as engine:`."
            )


def run(
    workflow: Workflow[S, R], state: S | None = None, /, *, store: str | Path | Store = DEFAULT_URL,
    session_id: str | None = None, owner: str | None = None, tags: str | Sequence[str] = (),
    budget: Amount | None = None, at_step: str | None = None,
    paused: bool = False, reason: str = "", by: str | None = None, keep_for: timedelta | None = None,
    folder: str | Path | None = None, **fields: Any,
) -> Outcome[S, R]:  # fmt: skip
    """Run a workflow in a new session, wait until it stops, and return its outcome. For scripts and notebooks.

    The options are those of `Engine.start`; ``store`` is the first argument of `Engine`. A session that fails or pauses
    does not raise: check the outcome's ``status``. Pass ``session_id`` to resume the session when you call this again.

    >>> from pydantic import BaseModel
    >>> from pausepoint import Workflow, run, step
    >>> class Greeting(BaseModel):
    ...     name: str
    ...     text: str = ""
    >>> @step(writes="text")
    ... def greet(name: str) -> str:
    ...     return f"Hello, {name}!"
    >>> run(Workflow("greeting", state=Greeting, steps=[greet]), store=":memory:", name="Ada").state.text
    'Hello, Ada!'
    """
    with Engine(store, workflows=[workflow]) as engine:
        session = engine.start(
            workflow, state, session_id=session_id, owner=owner, tags=tags, budget=budget, at_step=at_step,
            paused=paused, reason=reason, by=by, keep_for=keep_for, folder=folder, **fields,
        )  # fmt: skip
        return session.outcome()


def accept_loss(url: str | Path = DEFAULT_URL) -> str | None:
    """Make a store that raises `StoreDamaged` usable again, without the commits that cannot be read.

    Sessions are then at their last record that can be read, and operations after it run again. Restore a backup instead
    if you have one. Returns the path of a copy of the damaged log; None if nothing is damaged, which changes nothing.
    Blocks until it is done; close all engines of the store first.
    """
    store = store_from(url, SystemClock())
    return store.accept_loss() if isinstance(store, SqliteStore) else None


def store_from(url: str | Path | Store, clock: Clock, create: bool = True) -> Store:
    """Return the store for a URL, a path or a `Store`. Only this function imports concrete stores."""
    if isinstance(url, Path):
        return SqliteStore(url, clock=clock, create=create)
    if not isinstance(url, str):
        if not hasattr(url, "commit"):
            raise StoreError(
                f"{type(url).__name__} {url!r:.60} is not a store. Pass a path, a URL or a Store to the engine."
            )
        if not create:
            raise StoreError(
                f"create=False works only with a path or a URL. Pass create=False to {type(url).__name__} instead."
            )
        return url
    if url in (":memory:", "sqlite:///:memory:", "sqlite://:memory:", "sqlite://"):
        return SqliteStore(":memory:", clock=clock, create=create)
    if url.startswith("sqlite:///"):
        return SqliteStore(url.removeprefix("sqlite:///"), clock=clock, create=create)
    if "://" not in url:
        return SqliteStore(url, clock=clock, create=create)
    raise StoreError(
        f"{url!r} is not the URL of a store that Pausepoint supports. Use sqlite:///path/to/file.db, a path, or"
        " :memory:."
    )
