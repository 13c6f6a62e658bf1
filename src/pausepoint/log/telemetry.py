"""Log lines, spans and metrics about running sessions.

Observation never changes the result of a session and never breaks it. An error in it is printed, as `logging` does with
its handlers, and the session continues.

OpenTelemetry is used through its API package, and only if the program has already imported it, because a program that
set up an SDK has imported the API. Without a provider, no spans and metrics are created.
"""

from __future__ import annotations

import contextvars
import logging
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import msgspec

from pausepoint.errors import HoldLost, error_text
from pausepoint.log.replay import CheckpointBody, EventBody, OperationBody, WaitBody, retry_line
from pausepoint.model.commits import Commit
from pausepoint.model.sessions import SessionRow
from pausepoint.name import NAME

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

T = TypeVar("T")

logger = logging.getLogger(NAME)
logger.addHandler(logging.NullHandler())

advice = logging.getLogger(f"{NAME}.advice")
"""Warnings for the author of a workflow: its code loses a result, or holds up other sessions."""


class _Unheard(logging.Handler):
    """Prints warnings on stderr if the program handles no log records, as `logging` does for any other program."""

    def emit(self, record: logging.LogRecord) -> None:
        heard = (*advice.handlers, *logger.handlers, *logging.getLogger().handlers)
        if logging.lastResort and not any(type(each) not in (_Unheard, logging.NullHandler) for each in heard):
            logging.lastResort.handle(record)


advice.addHandler(_Unheard(logging.WARNING))


class Place(NamedTuple):
    """The session, the visit and the attempt that code runs in."""

    session_id: str
    step: str = ""
    visit: int = 0
    attempt: int = 0


# The fields of a `Place`. The object itself is created on demand, because every step sets this and few read it.
_here: ContextVar[tuple[str, str, int, int] | None] = ContextVar(f"{NAME}_place", default=None)


def here() -> Place | None:
    """Return the visit that the calling code belongs to; None outside of sessions.

    It works in steps, operations, map items, and the tasks and threads that they start.
    """
    place = _here.get()
    return None if place is None else Place(*place)


def place_in(context: contextvars.Context) -> Place | None:
    """Return the visit that code with these context variables belongs to; None outside of sessions."""
    place = context.get(_here)
    return None if place is None else Place(*place)


class SessionIdFilter(logging.Filter):
    """A logging filter that adds ``session_id``, ``step`` and ``visit`` to every record.

    Outside of sessions the values are ``-`` and 0. Attributes that a record already has are not changed.
    Add the filter to a handler: ``handler.addFilter(SessionIdFilter())``.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        place = here()
        known = record.__dict__
        known.setdefault("session_id", place.session_id if place else "-")
        known.setdefault("step", place.step if place and place.step else "-")
        known.setdefault("visit", place.visit if place else 0)
        return True


class Metric(NamedTuple):
    """One row of the table of metrics."""

    name: str
    kind: Literal["counter", "up-down counter", "histogram"]
    unit: str
    attributes: tuple[str, ...]
    meaning: str


_WORKFLOW, _STEP, _OPERATION = f"{NAME}.workflow", f"{NAME}.step", f"{NAME}.operation"
_STATUS, _PAUSE, _RECORD, _ERROR = f"{NAME}.status", f"{NAME}.pause", f"{NAME}.record", "error.type"

METRICS: tuple[Metric, ...] = (
    Metric(f"{NAME}.sessions.started", "counter", "{session}", (_WORKFLOW,), "sessions that were stored"),
    Metric(f"{NAME}.sessions.running", "up-down counter", "{session}", (_WORKFLOW,), "driven by this process now"),
    Metric(f"{NAME}.sessions.ended", "counter", "{session}", (_WORKFLOW, _STATUS), "completed, failed or cancelled"),
    Metric(f"{NAME}.pauses", "counter", "{pause}", (_WORKFLOW, _PAUSE), "drives that ended in a pause, by its kind"),
    Metric(f"{NAME}.visit.duration", "histogram", "s", (_WORKFLOW, _STEP), "visits, and how long each took"),
    Metric(f"{NAME}.operation.duration", "histogram", "s", (_WORKFLOW, _STEP, _OPERATION), "duration of operations"),
    Metric(f"{NAME}.retries", "counter", "{attempt}", (_WORKFLOW, _STEP), "failed attempts that are retried"),
    Metric(f"{NAME}.spent", "counter", "{microdollar}", (_WORKFLOW, _STEP), "money reported with `ctx.spend`"),
    Metric(f"{NAME}.tokens", "counter", "{token}", (_WORKFLOW, _STEP), "tokens reported with `ctx.spend`"),
    Metric(f"{NAME}.commit.duration", "histogram", "s", (_RECORD,), "commits, and how long until each was on disk"),
    Metric(f"{NAME}.store.errors", "counter", "{error}", (_ERROR,), "drives ended by a store error or a lost hold"),
)

_SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600,
)  # fmt: skip
"""The buckets of all histograms. They cover short commits as well as long visits."""


class _Meters:
    """The instruments of one meter provider."""

    def __init__(self, provider: Any) -> None:
        self.provider = provider
        meter = provider.get_meter(NAME)
        self.instruments = {metric.name.removeprefix(f"{NAME}."): _instrument(meter, metric) for metric in METRICS}

    def add(self, name: str, amount: int, attributes: dict[str, str]) -> None:
        """Add to a counter."""
        self.instruments[name].add(amount, attributes)

    def took(self, name: str, seconds: float, attributes: dict[str, str]) -> None:
        """Record a duration."""
        self.instruments[name].record(seconds, attributes)


def _instrument(meter: Any, metric: Metric) -> Any:
    if metric.kind == "histogram":
        return meter.create_histogram(
            metric.name, metric.unit, metric.meaning, explicit_bucket_boundaries_advisory=_SECONDS
        )
    make = meter.create_counter if metric.kind == "counter" else meter.create_up_down_counter
    return make(metric.name, metric.unit, metric.meaning)


def _provider(signal: Literal["trace", "metrics"]) -> Any:
    """Return the provider that the program has set for spans or metrics; None if there is none."""
    api = sys.modules.get(f"opentelemetry.{signal}")
    if api is None:
        return None
    provider = api.get_tracer_provider() if signal == "trace" else api.get_meter_provider()
    # The API's own providers are placeholders for one that is not set.
    return None if type(provider).__module__.startswith(f"opentelemetry.{signal}") else provider


def _guarded(act: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
    """Call a function for observation. Print what it raises, and return None then."""
    try:
        return act(*args, **kwargs)
    except Exception:
        if logging.raiseExceptions and sys.stderr:
            traceback.print_exc()
        return None


_last_meters: _Meters | None = None


def _find_meters() -> _Meters | None:
    global _last_meters
    provider = _provider("metrics")
    if provider is None:
        return None
    if _last_meters is None or _last_meters.provider is not provider:
        _last_meters = _Meters(provider)
    return _last_meters


def _find_tracer() -> Tracer | None:
    provider = _provider("trace")
    tracer: Tracer | None = None if provider is None else provider.get_tracer(NAME)
    return tracer


_NOTHING: AbstractContextManager[None] = nullcontext()


class Watch:
    """Observes one session while its log is written. Providers are looked up once, when it is created."""

    __slots__ = ("ended_parent", "failure", "meters", "place", "session_id", "status", "tracer", "trouble", "workflow")

    def __init__(self, session_id: str, workflow: str) -> None:
        self.session_id = session_id
        self.workflow = workflow
        self.place = (session_id, "", 0, 0)
        self.tracer = _guarded(_find_tracer)
        self.meters = _guarded(_find_meters)
        self.status = ""
        self.failure = ""
        self.trouble: BaseException | None = None
        self.ended_parent = None if self.tracer is None else _guarded(_ended_parent)

    # spans

    @contextmanager
    def session(self, version: int, resumed: bool) -> Iterator[None]:
        """Return a context manager around one drive of the session."""
        _here.set(self.place)
        self._add("sessions.running", 1)
        attributes = {f"{NAME}.version": version, f"{NAME}.resumed": resumed}
        with self._span(f"session {self.workflow}", attributes, origin=self.ended_parent) as span:
            try:
                yield
            finally:
                self._add("sessions.running", -1)
                if isinstance(span, _Span):
                    span.status, span.failure, span.trouble = self.status or "ready", self.failure, self.trouble

    def enters(self, step: str, visit: int, attempt: int) -> None:
        """Mark the calling task as working on this visit."""
        self.place = (self.session_id, step, visit, attempt)
        _here.set(self.place)

    async def visit(self, attempt: Awaitable[T], remembered: int, quiet: tuple[type[Exception], ...]) -> T:
        """Run one attempt of the entered visit in a span. ``quiet`` are exceptions that exit a step without failure."""
        with self._span(f"visit {self.place[1]}", {**self._where(), f"{NAME}.remembered": remembered}, quiet):
            return await attempt

    def operation(self, name: str) -> AbstractContextManager[object]:
        """Return a context manager around an operation that runs. A remembered operation has no span."""
        if self.tracer is None:
            return _NOTHING
        return self._span(f"operation {name}", {_OPERATION: name, **self._where()})

    def used(self, span: object, usage: dict[str, Any]) -> None:
        """Record on an operation's span that it used a language model, by OpenTelemetry's names."""
        if isinstance(span, _Span):
            _guarded(span.used, self.session_id, usage)

    def _where(self) -> dict[str, str | int]:
        _, step, visit, attempt = self.place
        return {_STEP: step, f"{NAME}.visit": visit, f"{NAME}.attempt": attempt}

    def _span(
        self, name: str, attributes: dict[str, Any], quiet: tuple[type[Exception], ...] = (),
        origin: Span | None = None,
    ) -> AbstractContextManager[object]:  # fmt: skip
        if self.tracer is None:
            return _NOTHING
        common = {f"{NAME}.session_id": self.session_id, _WORKFLOW: self.workflow}
        return _Span(self.tracer, name, common | attributes, quiet, origin)

    # what happened

    def started(self, step: str | None, paused: bool) -> None:
        """Report that the session was stored."""
        self._log(logging.INFO, "started, paused" if paused else "started", step or "", 1)
        self._add("sessions.started", 1)

    async def timed(self, commit: Awaitable[T], kind: str) -> T:
        """Await a commit and record how long it took."""
        began = time.perf_counter()
        result = await commit
        if self.meters is not None:
            _guarded(self.meters.took, "commit.duration", time.perf_counter() - began, {_RECORD: kind})
        return result

    def committed(self, commit: Commit, body: object) -> None:
        """Report a record that is committed."""
        paused = _pause(commit, body)
        if commit.release:
            self.status = _status_after(commit, paused)
            self.failure = commit.failure.type if commit.failure is not None else ""
        if isinstance(body, EventBody) or commit.release or _is_retried(body):
            level, text = _line(commit, body, paused, self.status)
            self._log(level, text, commit.records[0].step, commit.records[0].visit)
        if self.meters is not None:
            _guarded(self._count, self.meters, commit, body, paused)

    def _count(self, meters: _Meters, commit: Commit, body: object, paused: str) -> None:
        where = {_WORKFLOW: self.workflow, _STEP: commit.records[0].step}
        if isinstance(body, CheckpointBody) and not body.skipped:
            meters.took("visit.duration", body.took / 1e6, where)
        elif isinstance(body, OperationBody) and not body.total:  # one with a total announces the items of a map
            meters.took("operation.duration", body.took / 1e6, {**where, _OPERATION: body.name})
        elif _is_retried(body):
            meters.add("retries", 1, where)
        if commit.spend_usd:
            meters.add("spent", commit.spend_usd, where)
        if commit.spend_tokens:
            meters.add("tokens", commit.spend_tokens, where)
        if commit.ended:
            meters.add("sessions.ended", 1, {_WORKFLOW: self.workflow, _STATUS: commit.ended})
        if paused:
            meters.add("pauses", 1, {_WORKFLOW: self.workflow, _PAUSE: paused})

    def broke(self, error: BaseException) -> None:
        """Report that this process can no longer write to the session."""
        lost = isinstance(error, HoldLost)
        self.status, self.trouble = "lost" if lost else "broken", error
        text = f"{type(error).__name__}: {error_text(error)}"
        self._log(logging.WARNING if lost else logging.ERROR, text, self.place[1], self.place[2])
        if self.meters is not None:
            _guarded(self.meters.add, "store.errors", 1, {_ERROR: type(error).__name__})

    def _add(self, name: str, amount: int) -> None:
        if self.meters is not None:
            _guarded(self.meters.add, name, amount, {_WORKFLOW: self.workflow})

    def _log(self, level: int, text: str, step: str, visit: int) -> None:
        log_line(level, text, self.session_id, step, visit)


def log_line(level: int, text: str, session_id: str, step: str = "", visit: int = 0) -> None:
    """Write one log line about a session."""
    if logger.isEnabledFor(level):
        _guarded(_write_line, logger, level, text, session_id, step, visit)


def log_advice(text: str, session_id: str, step: str, visit: int) -> None:
    """Warn the author of a workflow about the code of a step. Any thread may call this."""
    if advice.isEnabledFor(logging.WARNING):
        _guarded(_write_line, advice, logging.WARNING, text, session_id, step, visit)


def _write_line(to: logging.Logger, level: int, text: str, session_id: str, step: str, visit: int) -> None:
    # ``extra=`` is not used, because it raises if the program's own record factory sets one of these names too.
    record = to.makeRecord(to.name, level, __file__, 0, "session %s: %s", (session_id, text), None)
    record.__dict__.update(session_id=session_id, step=step or "-", visit=visit)
    to.handle(record)


def log_pause_request(rows: Iterable[SessionRow], by: str | None, reason: str) -> None:
    """Log a pause request for these sessions. A running session logs another line when it is paused."""
    text = "pause requested" + (f" by {by}" if by else "") + (f": {reason}" if reason else "")
    for row in rows:
        if row.ended not in ("completed", "cancelled"):
            log_line(logging.INFO, text, row.session_id, row.step or "", row.visit)


def detach_task() -> None:
    """Detach the calling task from the session and the span that it was started in."""
    _here.set(None)
    if "opentelemetry.trace" in sys.modules:
        _guarded(_leave_span)


def _leave_span() -> None:
    from opentelemetry import context, trace

    context.attach(trace.set_span_in_context(trace.INVALID_SPAN))


def _pause(commit: Commit, body: object) -> str:
    """Return the kind of pause that a commit parks the session with; empty if it does not."""
    if isinstance(body, EventBody) and body.type == "session.paused":
        return str(msgspec.json.decode(body.data).get("kind", "operator"))
    return commit.open_pauses[0].kind if commit.open_pauses and commit.release else ""


def _is_retried(body: object) -> bool:
    """Return whether a record says that an attempt failed, and another follows."""
    if isinstance(body, WaitBody):
        return bool(body.error)
    return isinstance(body, EventBody) and body.type == "step.retried"


def _status_after(commit: Commit, paused: str) -> str:
    """Return the status of a session after a commit that releases it."""
    if commit.ended or paused:
        return commit.ended or "paused"
    if commit.waiting:
        return "waiting"
    return "ready" if commit.wakes_at is None else "sleeping"


def _line(commit: Commit, body: object, paused: str, status: str) -> tuple[int, str]:
    """Return the level and the text of the log line for a record."""
    if (failure := commit.failure) is not None:
        attempts = f" after {failure.attempts} attempts" if failure.attempts > 1 else ""
        return logging.ERROR, f"failed at {failure.step}{attempts}: {failure.type}: {failure.message}"
    if paused and paused != "operator":
        reason = body.summary if isinstance(body, EventBody) else commit.open_pauses[0].reason
        return logging.WARNING, f"paused ({paused}): {reason}"
    if isinstance(body, WaitBody):
        return logging.WARNING, retry_line(body)
    if not isinstance(body, EventBody):
        return logging.INFO, status
    if body.type == "session.stopped":
        return logging.INFO, f"stopped: {body.summary}"
    return logging.WARNING if body.type == "step.retried" else logging.INFO, body.summary or body.type


# OpenTelemetry is imported inside the methods of a span, where it is known to be installed.


class _Span:
    """A context manager for a span that is current inside its block."""

    __slots__ = (
        "attributes", "failure", "name", "origin", "quiet", "span", "status", "token", "tracer", "trouble", "usage",
    )  # fmt: skip

    def __init__(
        self, tracer: Tracer, name: str, attributes: dict[str, Any], quiet: tuple[type[Exception], ...],
        origin: Span | None,
    ) -> None:  # fmt: skip
        self.tracer = tracer
        self.name = name
        self.attributes = attributes
        self.quiet = quiet
        self.origin = origin
        self.status = ""  # how the span ends without an exception; the caller sets these three
        self.failure = ""
        self.trouble: BaseException | None = None
        self.span: Span | None = None
        self.token: Token[Context] | None = None
        self.usage: dict[str, int] = {}  # the tokens that it has spent

    def __enter__(self) -> _Span:
        _guarded(self._open)
        return self

    def _open(self) -> None:
        from opentelemetry import context, trace

        if self.origin is None:
            self.span = self.tracer.start_span(self.name, attributes=self.attributes)
        else:
            self.span = self.tracer.start_span(
                self.name,
                context=trace.set_span_in_context(trace.INVALID_SPAN),
                links=[trace.Link(self.origin.get_span_context())],
                attributes=self.attributes,
            )
        self.token = context.attach(trace.set_span_in_context(self.span))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _guarded(self._close, error)

    def used(self, session_id: str, usage: dict[str, Any]) -> None:
        """Record the use of a model. Tokens of several calls in one span are added up."""
        if self.span is None:
            return
        for name in ("input_tokens", "output_tokens"):
            self.usage[name] = self.usage.get(name, 0) + usage[name]
            self.span.set_attribute(f"gen_ai.usage.{name}", self.usage[name])
        if "model" in usage:
            self.span.set_attribute("gen_ai.request.model", usage["model"])
        self.span.set_attribute("gen_ai.operation.name", "chat")
        self.span.set_attribute("gen_ai.conversation.id", session_id)

    def _close(self, error: BaseException | None) -> None:
        from opentelemetry import context

        if self.token is not None:
            context.detach(self.token)
        if self.span is None:
            return
        if self.span.is_recording():
            self._record(self.span, error)
        self.span.end()

    def _record(self, span: Span, error: BaseException | None) -> None:
        from opentelemetry.trace import StatusCode

        # Signals and cancellations exit a block too, but are not failures.
        raised = error if isinstance(error, Exception) and not isinstance(error, self.quiet) else self.trouble
        span.set_attribute(_STATUS, self.status or ("completed" if error is None else "failed" if raised else "exited"))
        if raised is not None:
            span.record_exception(raised)
        if raised is not None or self.failure:
            span.set_status(StatusCode.ERROR, type(raised).__name__ if raised is not None else self.failure)


def _ended_parent() -> Span | None:
    """Return the current span if it has ended. Such a span is linked to and gets no children.

    A span that is not sampled does not record either. It stays the parent, so that the session is not sampled as well.
    """
    from opentelemetry import trace

    span = trace.get_current_span()
    known = span.get_span_context()
    ended = known.is_valid and known.trace_flags.sampled and not known.is_remote and not span.is_recording()
    return span if ended else None
