"""Crash a workflow at every durable write, resume it, and compare the result with an uninterrupted run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import BaseModel
from typing_extensions import TypeVar

from pausepoint.definition.artifacts import OWN
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.session import Session
from pausepoint.model.views import Outcome
from pausepoint.testing.inline import InlineEngine, blocking
from pausepoint.testing.machine import CrashPoint, Machine, Write, after, before

S = TypeVar("S", bound=BaseModel)
R = TypeVar("R", default=S)  # the result: what a function returned, or the final state

Play = Callable[[Session[Any]], Awaitable[None]]
Compare = Callable[[Any], Any]

SESSION = "crash-test"


class CrashPointFailed(AssertionError):
    """A crash changed the result of a workflow. ``failures`` lists the crash points and the differences."""

    def __init__(self, failures: list[tuple[CrashPoint, Write | None, str]], points: int) -> None:
        self.failures = failures
        lines = [f"  {point.when} {write or point}: {what}" for point, write, what in failures[:10]]
        more = [f"  and {len(failures) - 10} more"] if len(failures) > 10 else []
        text = "\n".join((f"{len(failures)} of {points} crash points change the result:", *lines, *more))
        super().__init__(text)


@dataclass(frozen=True)
class _Trial:
    """The workflow, input and comparison that every run of a crash test shares."""

    workflow: Workflow[Any]
    state: Any
    fields: dict[str, Any]
    play: Play | None
    compare: Compare
    published: dict[str, bytes] = field(default_factory=dict)
    """The artifacts of the previous run."""

    async def life(self, engine: InlineEngine) -> Outcome[Any]:
        """Start or resume the session and drive it until it stops."""
        session = await engine.start(self.workflow, self.state, session_id=SESSION, **self.fields)
        if self.play is not None:
            await self.play(session)
        return await session.outcome()

    async def crashed(self, point: CrashPoint | None) -> tuple[Machine, Write | None, Outcome[Any]]:
        """Crash at the point, if given, then run until the session stops, on one machine and in a new folder."""
        with _folder(self) as trial:
            async with Machine(trial.workflow) as machine:
                write = None if point is None else await machine.crash(trial.life, point)
                outcome = await machine.run(trial.life)
                self.published.clear()
                self.published.update(_files(trial.fields.get("folder")))
                return machine, write, outcome

    def seen(self, outcome: Outcome[Any]) -> dict[str, Any]:
        """Return the facts that must be equal with and without a crash."""
        failure = outcome.failure and (outcome.failure.step, outcome.failure.type, outcome.failure.message)
        reasons = sorted((pause.kind, pause.reason) for pause in outcome.pauses)
        facts = {"status": outcome.status.value, "failure": failure, "pauses": reasons, "spent": outcome.spent_usd}
        return {"state": self.compare(outcome.state), **facts, "artifacts": dict(self.published)}


@contextmanager
def _folder(trial: _Trial) -> Iterator[_Trial]:
    """Give the run a new artifact folder inside the folder that the caller passed."""
    if "folder" not in trial.fields:
        yield trial
        return
    around = Path(trial.fields["folder"])
    around.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=around) as folder:
        yield replace(trial, fields={**trial.fields, "folder": folder})


def _files(folder: str | None) -> dict[str, bytes]:
    """Return the content of an artifact folder by file name, without the engine's own files."""
    if folder is None:
        return {}
    found = [path for path in Path(folder).rglob("*") if path.is_file()]
    names = {path: path.relative_to(folder) for path in found}
    return {str(name): path.read_bytes() for path, name in names.items() if OWN not in name.parts}


def crash_points(
    workflow: Workflow[S, R], state: S | None = None, /, *, play: Play | None = None, **fields: Any
) -> list[CrashPoint]:
    """Return the points at which an uninterrupted run can crash: before and after each of its writes."""
    trial = _Trial(workflow, state, fields, play, _whole)
    machine, _, _ = blocking(lambda: trial.crashed(None))
    return _points(machine.writes)


def crash_at(
    point: CrashPoint, workflow: Workflow[S, R], state: S | None = None, /, *, play: Play | None = None, **fields: Any
) -> Outcome[S, R]:
    """Run a workflow in memory, crash at ``point``, resume, and return the outcome. This call blocks.

    Raises `CrashPointMissed` if the run does not reach the point.

    >>> from pausepoint import Context, Workflow, step
    >>> class Note(BaseModel):
    ...     text: str = ""
    >>> asked: list[str] = []
    >>> async def ask_the_model() -> str:
    ...     asked.append("asked")
    ...     return "Octopuses dream."
    >>> @step(writes="text")
    ... async def write(ctx: Context) -> str:
    ...     return await ctx.do(ask_the_model)
    >>> note = Workflow("note", state=Note, steps=[write])
    >>> crash_at(before(kind="checkpoint", step="write"), note).state.text, asked
    ('Octopuses dream.', ['asked'])
    >>> crash_at(before(kind="operation"), note).state.text, asked  # it ran, but was not recorded
    ('Octopuses dream.', ['asked', 'asked', 'asked'])
    """
    trial = _Trial(workflow, state, fields, play, _whole)
    return blocking(lambda: trial.crashed(point))[2]


def every_crash_point(
    workflow: Workflow[S, R], state: S | None = None, /, *,
    points: Iterable[CrashPoint] | None = None, play: Play | None = None, compare: Callable[[S], Any] | None = None,
    **fields: Any,
) -> list[CrashPoint]:  # fmt: skip
    """Run a workflow once per crash point, crash there, resume, and compare the result with an uninterrupted run.

    The final state, status, pause reasons and spending must be equal, and no remembered operation may run again.
    Otherwise the call raises `CrashPointFailed`, which lists the crash points. Returns the points that were tried.
    This call blocks.

    Pass ``play`` to act as a person (``await session.resume()``); after a crash it starts again from its beginning.
    Pass ``compare`` to select the part of the state that must be equal, if some fields vary between runs. If steps
    publish artifacts, pass a ``folder``: each run gets a new folder inside it, and the files must be equal, too.
    """
    trial = _Trial(workflow, state, fields, play, compare or _whole)
    return blocking(lambda: _every(trial, points))


async def _every(trial: _Trial, given: Iterable[CrashPoint] | None) -> list[CrashPoint]:
    machine, _, outcome = await trial.crashed(None)
    wanted = trial.seen(outcome)
    _, _, again = await trial.crashed(None)
    if what := _difference(wanted, trial.seen(again)):
        raise AssertionError(
            f"Two uninterrupted runs of {trial.workflow.name!r} differ: {what}. Move everything that varies between"
            " runs into an operation, or pass compare= to select the part of the state that must be equal."
        )
    points = _points(machine.writes) if given is None else list(given)
    failures = []
    for point in points:
        machine, write, outcome = await trial.crashed(point)
        doubled = [f"{double.kind} {double.step}#{double.visit} {double.name}".rstrip() for double in machine.doubled]
        if what := _difference(wanted, trial.seen(outcome)):
            failures.append((point, write, what))
        elif doubled:
            failures.append((point, write, f"ran again although it was remembered: {', '.join(doubled)}"))
    if failures:
        raise CrashPointFailed(failures, len(points))
    return points


def _points(writes: list[Write]) -> list[CrashPoint]:
    return [make(write.number) for write in writes for make in (before, after)]


def _whole(state: Any) -> Any:
    return state


def _difference(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    """Describe the first difference in one line, by field if the state differs. Return an empty string if equal."""
    for name, value in wanted.items():
        if value == found[name]:
            continue
        if isinstance(value, BaseModel) and isinstance(found[name], BaseModel):
            old, new = value.model_dump(), found[name].model_dump()
            fields = [f"{key} is {new.get(key)!r:.80}, not {old[key]!r:.80}" for key in old if old[key] != new.get(key)]
            return "; ".join(fields) or f"the state is {new!r:.200}, not {old!r:.200}"
        return f"{name} is {found[name]!r:.200}, not {value!r:.200}"
    return ""
