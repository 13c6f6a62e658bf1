"""The same verbs for plain blocking code: an engine on an event loop in a thread of its own.

A verb is one line here: its name, parameters, types and docstring are those of the async
one. Adding a verb to `Control`, `Reading` or `Session` means adding that line to
`BlockingEngine` or `BlockingSession`; a test names what is missing.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import wraps
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

from pausepoint.control import Control
from pausepoint.errors import CallRefused, StoreClosed
from pausepoint.files import Files
from pausepoint.html import facts
from pausepoint.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from pydantic import BaseModel

    from pausepoint.outcome import Listing, SessionInfo
    from pausepoint.workflow import Workflow

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="BaseModel")
M = TypeVar("M", bound="BaseModel")


class Interrupts:
    """Ctrl+C and SIGTERM while a blocking engine is open.

    The main thread is interrupted where it stands, so it leaves the engine's block; that waits for the operations in
    flight. A second signal aborts them, a third one ends the program without waiting any longer.
    """

    def __init__(self, abort: Callable[[str], None]) -> None:
        self._abort = abort
        self._former: dict[signal.Signals, Any] = {}
        self._pid = os.getpid()
        self._calls: list[Callable[[None], None]] = []
        self._pending: signal.Signals | None = None
        self._closing = False
        self._count = 0
        self._received: signal.Signals | None = None

    def install(self) -> None:
        """Only the main thread can take signals. One that the program was told to ignore stays ignored."""
        if _is_main():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._former[number] = signal.signal(number, self._on_signal)

    def uninstall(self) -> None:
        """Put back what was there before, unless somebody else has taken the signal over since."""
        self._closing = False
        if _is_main():
            for number, former in self._former.items():
                if former is not None and signal.getsignal(number) == self._on_signal:
                    signal.signal(number, former)

    def hold(self, wake: Callable[[None], None]) -> None:
        """A call begins: until `release` a signal wakes it, and is raised by it.

        Raised by the handler itself it can be lost: Python drops what is raised inside of a finalizer.
        """
        if _is_main():
            self._calls.append(wake)

    def release(self) -> None:
        """The call is over."""
        if _is_main():
            self._calls.pop()
        self.raise_pending()

    def raise_pending(self) -> None:
        """Raise what came while the main thread was in a call."""
        if self._pending is not None and _is_main():
            number, self._pending = self._pending, None
            raise _end_of_program(number)

    def closing(self, error: BaseException | None) -> str:
        """From now on signals are counted; one that led here is the first. The reason to give for the end, if any."""
        self._closing = _is_main()
        reason = ""
        if isinstance(error, KeyboardInterrupt):
            reason = "SIGINT received"
        elif isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM:
            reason = "SIGTERM received"
        self._count = int(bool(reason))
        return reason

    def verdict(self) -> BaseException | None:
        """How the program has to end, if a signal came while the engine was closing."""
        return None if self._received is None else _end_of_program(self._received)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Runs between any two bytecodes of the main thread."""
        name = signal.Signals(number)
        if os.getpid() != self._pid:
            raise _end_of_program(name)
        if self._closing:
            self._count_one_more(name)
        elif self._calls:
            self._pending = self._pending or name
            self._calls[-1](None)
        else:
            raise _end_of_program(name)

    def _count_one_more(self, name: signal.Signals) -> None:
        self._count += 1
        self._received = self._received or name
        if self._count > 2:
            self.uninstall()
            raise _end_of_program(self._received)
        if self._count == 2:
            self._abort(f"{name.name} received twice")


def _is_main() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _end_of_program(number: signal.Signals) -> BaseException:
    return SystemExit(128 + signal.SIGTERM) if number == signal.SIGTERM else KeyboardInterrupt()


class LoopThread:
    """An event loop in a thread of its own, and calls into it that wait for their result."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._over = False
        self._pid = os.getpid()
        # Reentrant: a signal handler of the main thread may come while that thread has it.
        self._lock = threading.RLock()
        # A daemon: an engine that nobody closed is closed as the program exits, and must not keep it from exiting.
        self._thread = threading.Thread(target=self._serve, name="pausepoint loop", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the system has no more threads
            self._runner.close()
            raise
        except BaseException:  # an interrupt: the thread may have begun, and closes the loop itself
            self._over = True
            self.post(self._loop.stop)
            raise

    def _serve(self) -> None:
        with self._runner:
            while not self._over:
                # A step that calls sys.exit() stops the loop. Whoever waits for it is told; the others go on.
                with suppress(SystemExit, KeyboardInterrupt):
                    self._loop.run_forever()

    @property
    def is_over(self) -> bool:
        """Whether it takes no more calls."""
        return self._over

    @property
    def is_here(self) -> bool:
        """Whether this is the loop's own thread."""
        return not self._over and threading.get_ident() == self._thread.ident  # the system uses numbers again

    @property
    def is_ours(self) -> bool:
        """Whether this is still the process that made it: threads do not survive a fork."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Refuse a call that could never return."""
        if not self.is_ours:
            raise StoreClosed("this engine was opened by another process; open an Engine of its own after fork()")
        if self.is_here:
            raise CallRefused(
                "a blocking verb was called on the engine's own event loop, where it would wait for itself for ever;"
                " call it from a plain `def` step, or with `await asyncio.to_thread(…)`"
            )
        if self._over:
            raise StoreClosed("the engine is closed; open another one: `with Engine(…) as engine:`")

    def call(self, verb: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, **kwargs: Any) -> R:
        """Run a coroutine function on the loop and wait for it. An interrupted wait cancels it."""
        ended: SimpleQueue[object] = SimpleQueue()  # may be put into by a signal handler, unlike an event
        self._interrupts.hold(ended.put)
        try:
            return self._wait(ended, lambda: verb(*args, **kwargs))
        finally:
            self._interrupts.release()

    def _wait(self, ended: SimpleQueue[object], begin: Callable[[], Coroutine[Any, Any, R]]) -> R:
        self.check()
        with self._lock:  # so that nothing is handed over behind the loop's end, where it would wait for ever
            self.check()
            future = asyncio.run_coroutine_threadsafe(begin(), self._loop)
        try:
            future.add_done_callback(ended.put)
            ended.get()
            self._interrupts.raise_pending()
            return future.result()
        except CancelledError:
            raise StoreClosed("the engine was closed while this call waited for it") from None
        finally:
            future.cancel()

    def look(self, fact: Callable[[], R]) -> R:
        """Have something looked up on the loop, where nothing changes meanwhile."""

        async def there() -> R:
            return fact()

        return self.call(there)

    def iterate(self, stream: AsyncIterator[R]) -> Iterator[R]:
        """What an async iterator gives, one blocking step after another.

        Left early, the stream is dropped with this generator, and the loop's own hook closes it over there.
        """
        while (found := self.call(_next, stream)) is not None:
            yield found[0]

    def post(self, act: Callable[..., object], *args: object) -> None:
        """Have something done on the loop, without waiting."""
        with suppress(RuntimeError):  # closed meanwhile: nothing is left to be done
            self._loop.call_soon_threadsafe(act, *args)

    def stop(self) -> None:
        """End the loop. Calls that still wait are told that the engine was closed."""
        with self._lock:
            self._over = True
            self.post(self._loop.stop)
        self._thread.join()


async def _next(stream: AsyncIterator[R]) -> tuple[R] | None:
    try:
        return (await anext(stream),)
    except StopAsyncIteration:
        return None


# What follows gives a verb its blocking form. The overloads are for type checkers: a session becomes a blocking
# session, an async iterator an iterator.


@overload
def on_engine(
    verb: Callable[Concatenate[Control, P], Coroutine[Any, Any, Session[M]]],
) -> Callable[Concatenate[BlockingEngine, P], BlockingSession[M]]: ...
@overload
def on_engine(
    verb: Callable[Concatenate[Control, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingEngine, P], R]: ...
@overload
def on_engine(
    verb: Callable[Concatenate[Control, P], AsyncIterator[R]],
) -> Callable[Concatenate[BlockingEngine, P], Iterator[R]]: ...
def on_engine(verb: Callable[..., Any]) -> Callable[..., Any]:
    """A verb of the engine, blocking."""
    return _blocking(verb, "BlockingEngine")


@overload
def on_session(
    verb: Callable[Concatenate[Session[M], P], Coroutine[Any, Any, Session[M]]],
) -> Callable[Concatenate[BlockingSession[M], P], BlockingSession[M]]: ...
@overload
def on_session(
    verb: Callable[Concatenate[Session[M], P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingSession[M], P], R]: ...
@overload
def on_session(
    verb: Callable[Concatenate[Session[M], P], AsyncIterator[R]],
) -> Callable[Concatenate[BlockingSession[M], P], Iterator[R]]: ...
def on_session(verb: Callable[..., Any]) -> Callable[..., Any]:
    """A verb of a session, blocking."""
    return _blocking(verb, "BlockingSession")


def on_files(
    verb: Callable[Concatenate[Files, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingFiles, P], R]:
    """A verb of a session's files, blocking."""
    blocking: Callable[Concatenate[BlockingFiles, P], R] = _blocking(verb, "BlockingFiles")
    return blocking


def _blocking(verb: Callable[..., Any], owner: str) -> Callable[..., Any]:
    name = verb.__name__

    if inspect.iscoroutinefunction(verb):

        @wraps(verb)
        def call(self: BlockingEngine | BlockingSession[Any] | BlockingFiles, /, *args: Any, **kwargs: Any) -> Any:
            return self._given(self._thread.call(getattr(self._wrapped, name), *args, **kwargs))
    else:

        @wraps(verb)
        def call(self: BlockingEngine | BlockingSession[Any] | BlockingFiles, /, *args: Any, **kwargs: Any) -> Any:
            self._thread.check()
            return self._thread.iterate(getattr(self._wrapped, name)(*args, **kwargs))

    return _described(call, owner)


def _described(call: Callable[..., Any], owner: str) -> Callable[..., Any]:
    """What ``help()`` shows: the verb's own words, and what it gives here."""
    signature = inspect.signature(call)
    returns = str(signature.return_annotation)
    returns = returns.replace("AsyncIterator[", "Iterator[").replace("Session[", "BlockingSession[")
    del call.__dict__["__wrapped__"]
    call.__dict__["__signature__"] = signature.replace(return_annotation=returns)
    call.__annotations__ = call.__annotations__ | {"return": returns}
    call.__module__, call.__qualname__ = __name__, f"{owner}.{call.__name__}"
    return call


class BlockingEngine:
    """What ``with Engine(…) as engine:`` gives: the verbs of an `Engine`, each of which waits for its result.

    Any thread may call them. The sessions run on a thread of their own.
    """

    def __init__(self, control: Control, close: Callable[[], Awaitable[None]], *, signals: bool) -> None:
        self._wrapped = control
        self._close = close
        self._interrupts = Interrupts(lambda reason: self._thread.post(control.driver.abort, reason))
        self._thread = LoopThread(self._interrupts)
        self._ending = threading.Lock()
        self._signals = signals

    def __repr__(self) -> str:
        return f"BlockingEngine({'closed' if self._thread.is_over else 'open'})"

    def _given(self, found: Any) -> Any:
        return BlockingSession(found, self._thread) if isinstance(found, Session) else found

    start = on_engine(Control.start)
    if TYPE_CHECKING:  # a decorator does not keep overloads apart

        @overload
        def session(self, session_id: str) -> BlockingSession[Any]: ...
        @overload
        def session(self, session_id: str, workflow: Workflow[M]) -> BlockingSession[M]: ...
        def session(self, *args: Any, **given: Any) -> Any: ...
        @overload
        def resume(
            self, session_id: str, *, by: str | None = None, owner: str | None = None, steal: bool = False,
            budget: float | Decimal | None = None, wake: bool = False, accept: bool = False, until: str | None = None,
            edits: Literal["accept", "discard"] | None = None, rerun: str | Sequence[str] = (),
        ) -> BlockingSession[Any]: ...  # fmt: skip
        @overload
        def resume(self, *, everything: Literal[True], by: str | None = None) -> Listing[SessionInfo]: ...
        def resume(self, *args: Any, **given: Any) -> Any: ...
    else:
        session = on_engine(Control.session)
        resume = on_engine(Control.resume)
    same_input = on_engine(Control.same_input)
    pause = on_engine(Control.pause)
    cancel = on_engine(Control.cancel)
    info = on_engine(Control.info)
    sessions = on_engine(Control.sessions)
    tally = on_engine(Control.tally)
    state = on_engine(Control.state)
    stored = on_engine(Control.stored)
    outline = on_engine(Control.outline)
    outcome = on_engine(Control.outcome)
    pauses = on_engine(Control.pauses)
    standing_pause = on_engine(Control.standing_pause)
    artifacts = on_engine(Control.artifacts)
    adopt = on_engine(Control.adopt)
    restore = on_engine(Control.restore)
    rebuild = on_engine(Control.rebuild)
    misfits = on_engine(Control.misfits)
    checkpoints = on_engine(Control.checkpoints)
    children = on_engine(Control.children)
    message = on_engine(Control.message)
    questions = on_engine(Control.questions)
    tally_questions = on_engine(Control.tally_questions)
    question = on_engine(Control.question)
    answer = on_engine(Control.answer)
    plan = on_engine(Control.plan)
    find = on_engine(Control.find)
    diff = on_engine(Control.diff)
    edit = on_engine(Control.edit)
    fork = on_engine(Control.fork)
    origin = on_engine(Control.origin)
    rewind = on_engine(Control.rewind)
    plan_rewind = on_engine(Control.plan_rewind)
    plan_fork = on_engine(Control.plan_fork)
    events = on_engine(Control.events)
    remove = on_engine(Control.remove)
    tombstones = on_engine(Control.tombstones)
    gc = on_engine(Control.gc)
    redact = on_engine(Control.redact)
    verify = on_engine(Control.verify)
    health = on_engine(Control.health)
    export_session = on_engine(Control.export_session)
    exported = on_engine(Control.exported)
    import_session = on_engine(Control.import_session)

    def files(self, session_id: str) -> BlockingFiles:
        """The files of a session."""
        return BlockingFiles(self._thread.look(lambda: self._wrapped.files(session_id)), self._thread)

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written at present, since when, and what to do; None while all is well."""
        return self._thread.look(lambda: self._wrapped.trouble)

    def close(self) -> None:
        """End what runs after its current operation, then close the store. Twice is no error."""
        self._end(None)

    def _begin(self, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Open the store on the loop's thread, then take the signals."""
        try:
            self._thread.call(start)
            atexit.register(self.close)
            if self._signals:
                self._interrupts.install()
        except BaseException as error:
            self._end(error)
            raise

    def _end(self, error: BaseException | None) -> None:
        """The end of the ``with`` block, which ``error`` may have led to."""
        if not self._thread.is_ours:
            return  # a forked child that leaves its parent's block: there is nothing of its own to close
        if self._thread.is_here:
            self._thread.check()
        with self._ending:
            if self._thread.is_over:
                return
            self._close_all(self._interrupts.closing(error))
        if (verdict := self._interrupts.verdict()) is not None:
            raise verdict from None

    def _close_all(self, reason: str) -> None:
        atexit.unregister(self.close)
        try:
            self._thread.call(self._stop, reason)
        except Exception:
            self._thread.stop()
            raise
        else:  # not after a third signal: whatever holds the loop up must not hold up the program
            self._thread.stop()
        finally:
            self._interrupts.uninstall()

    async def _stop(self, reason: str) -> None:
        if reason:
            await self._wrapped.driver.stop(reason)
        await self._close()


class BlockingFiles:
    """The files of one session, with verbs that wait for their result."""

    def __init__(self, files: Files, thread: LoopThread) -> None:
        self._wrapped = files
        self._thread = thread

    def _given(self, found: Any) -> Any:
        return found

    add = on_files(Files.add)
    get = on_files(Files.get)
    list = on_files(Files.list)
    open = on_files(Files.open)
    progress = on_files(Files.progress)

    @property
    def outputs(self) -> Path:
        """A folder for what a program leaves: the session's own, and gone with it. It is made when it is asked for."""
        return self._wrapped.outputs


class BlockingSession(Generic[S]):
    """A handle on one session: an id, and verbs that wait for their result."""

    def __init__(self, session: Session[S], thread: LoopThread) -> None:
        self._wrapped = session
        self._thread = thread
        self.id = session.id

    def __repr__(self) -> str:
        return f"BlockingSession({self.id!r})"

    def _repr_html_(self) -> str:
        return facts({"id": self.id}, "Session")

    def _given(self, found: Any) -> Any:
        if found is self._wrapped:
            return self
        return BlockingSession(found, self._thread) if isinstance(found, Session) else found

    @property
    def files(self) -> BlockingFiles:
        """The files of the session."""
        return BlockingFiles(self._thread.look(lambda: self._wrapped.files), self._thread)

    info = on_session(Session.info)
    status = on_session(Session.status)
    state = on_session(Session.state)
    stored = on_session(Session.stored)
    outline = on_session(Session.outline)
    outcome = on_session(Session.outcome)
    pause = on_session(Session.pause)
    resume = on_session(Session.resume)
    cancel = on_session(Session.cancel)
    pauses = on_session(Session.pauses)
    artifacts = on_session(Session.artifacts)
    adopt = on_session(Session.adopt)
    restore = on_session(Session.restore)
    checkpoints = on_session(Session.checkpoints)
    children = on_session(Session.children)
    send = on_session(Session.send)
    questions = on_session(Session.questions)
    answer = on_session(Session.answer)
    plan = on_session(Session.plan)
    diff = on_session(Session.diff)
    edit = on_session(Session.edit)
    fork = on_session(Session.fork)
    origin = on_session(Session.origin)
    rewind = on_session(Session.rewind)
    plan_rewind = on_session(Session.plan_rewind)
    plan_fork = on_session(Session.plan_fork)
    events = on_session(Session.events)
    remove = on_session(Session.remove)
    redact = on_session(Session.redact)
    verify = on_session(Session.verify)
