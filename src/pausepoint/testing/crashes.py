"""Crash a workflow at every durable point, resume it, and compare with an undisturbed run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from pydantic import BaseModel

from pausepoint.definition.artifacts import OWN
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.session import Session
from pausepoint.model.views import Outcome
from pausepoint.testing.inline import InlineEngine, blocking
from pausepoint.testing.machine import CrashPoint, Machine, Write, after, before

S = TypeVar("S", bound=BaseModel)

Play = Callable[[Session[Any]], Awaitable[None]]
Compare = Callable[[Any], Any]

SESSION = "crash-test"


class CrashPointFailed(AssertionError):
    """A crash made a difference. ``failures`` says at which points, and which."""

    def __init__(self, failures: list[tuple[CrashPoint, Write | None, str]], points: int) -> None:
        self.failures = failures
        lines = [f"  {point.when} {write or point}: {what}" for point, write, what in failures[:10]]
        more = [f"  and {len(failures) - 10} more"] if len(failures) > 10 else []
        text = "\n".join((f"{len(failures)} of {points} crash points make a difference:", *lines, *more))
        super().__init__(text)


@dataclass(frozen=True)
class _Trial:
    """What is run again and again."""

    workflow: Workflow[Any]
    state: Any
    fields: dict[str, Any]
    play: Play | None
    compare: Compare
    published: dict[str, bytes] = field(default_factory=dict)
    """The artifacts of the run before."""

    async def life(self, engine: InlineEngine) -> Outcome[Any]:
        """Start or take up the session and bring it to where it stops."""
        session = await engine.start(self.workflow, self.state, session_id=SESSION, **self.fields)
        if self.play is not None:
            await self.play(session)
        return await session.outcome()

    async def crashed(self, point: CrashPoint | None) -> tuple[Machine, Write | None, Outcome[Any]]:
        """Die at the point, if there is one, then live to the end, on one machine, with a folder of its own."""
        with _folder(self) as trial:
            async with Machine(trial.workflow) as machine:
                write = None if point is None else await machine.crash(trial.life, point)
                outcome = await machine.run(trial.life)
                self.published.clear()
                self.published.update(_files(trial.fields.get("folder")))
                return machine, write, outcome

    def seen(self, outcome: Outcome[Any]) -> dict[str, Any]:
        """What has to be the same after a crash."""
        failure = outcome.failure and (outcome.failure.step, outcome.failure.type, outcome.failure.message)
        reasons = sorted((pause.kind, pause.reason) for pause in outcome.pauses)
        facts = {"status": outcome.status.value, "failure": failure, "pauses": reasons, "spent": outcome.spent_usd}
        return {"state": self.compare(outcome.state), **facts, "artifacts": dict(self.published)}


@contextmanager
def _folder(trial: _Trial) -> Iterator[_Trial]:
    """Every run has a folder for its artifacts, inside the one that was given."""
    if "folder" not in trial.fields:
        yield trial
        return
    around = Path(trial.fields["folder"])
    around.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=around) as folder:
        yield replace(trial, fields={**trial.fields, "folder": folder})


def _files(folder: str | None) -> dict[str, bytes]:
    """What lies in a folder of artifacts, but for what is the engine's own."""
    if folder is None:
        return {}
    found = [path for path in Path(folder).rglob("*") if path.is_file()]
    names = {path: path.relative_to(folder) for path in found}
    return {str(name): path.read_bytes() for path, name in names.items() if OWN not in name.parts}


def crash_points(
    workflow: Workflow[S], state: S | None = None, /, *, play: Play | None = None, **fields: Any
) -> list[CrashPoint]:
    """The points at which an undisturbed run can die: before and after each of its writes."""
    trial = _Trial(workflow, state, fields, play, _whole)
    machine, _, _ = blocking(lambda: trial.crashed(None))
    return _points(machine.writes)


def crash_at(
    point: CrashPoint, workflow: Workflow[S], state: S | None = None, /, *, play: Play | None = None, **fields: Any
) -> Outcome[S]:
    """Run a workflow in memory, die at ``point``, resume, and return how it came out. Blocks.

    Raises `CrashPointMissed` if the run does not pass the point.

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
    >>> crash_at(before(kind="operation"), note).state.text, asked  # it ran, and nobody knew
    ('Octopuses dream.', ['asked', 'asked', 'asked'])
    """
    trial = _Trial(workflow, state, fields, play, _whole)
    return blocking(lambda: trial.crashed(point))[2]


def every_crash_point(
    workflow: Workflow[S], state: S | None = None, /, *,
    points: Iterable[CrashPoint] | None = None, play: Play | None = None, compare: Callable[[S], Any] | None = None,
    **fields: Any,
) -> list[CrashPoint]:  # fmt: skip
    """Run a workflow once for every durable point, die there, resume, and compare with an undisturbed run.

    The final state, status, reasons of pauses and spending must be equal, and nothing that is remembered may be done
    again; otherwise `CrashPointFailed` names the points. Returns the points that were tried. ``play`` does what a
    person would (``await session.resume()``); it begins anew after a crash. ``compare`` picks what has to be equal of
    the state, for fields that differ from run to run. Where steps leave artifacts, give a ``folder``: every run has one
    inside it, and what lies there has to be equal as well. Blocks.
    """
    trial = _Trial(workflow, state, fields, play, compare or _whole)
    return blocking(lambda: _every(trial, points))


async def _every(trial: _Trial, given: Iterable[CrashPoint] | None) -> list[CrashPoint]:
    machine, _, outcome = await trial.crashed(None)
    wanted = trial.seen(outcome)
    _, _, again = await trial.crashed(None)
    if what := _difference(wanted, trial.seen(again)):
        raise AssertionError(
            f"two undisturbed runs of {trial.workflow.name!r} differ: {what}; pass compare= to say what has to be equal"
        )
    points = _points(machine.writes) if given is None else list(given)
    failures = []
    for point in points:
        machine, write, outcome = await trial.crashed(point)
        doubled = [f"{double.kind} {double.step}#{double.visit} {double.name}".rstrip() for double in machine.doubled]
        if what := _difference(wanted, trial.seen(outcome)):
            failures.append((point, write, what))
        elif doubled:
            failures.append((point, write, f"done again though it was remembered: {', '.join(doubled)}"))
    if failures:
        raise CrashPointFailed(failures, len(points))
    return points


def _points(writes: list[Write]) -> list[CrashPoint]:
    return [make(write.number) for write in writes for make in (before, after)]


def _whole(state: Any) -> Any:
    return state


def _difference(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    """What differs, in one line; of a state, the fields."""
    for name, value in wanted.items():
        if value == found[name]:
            continue
        if isinstance(value, BaseModel) and isinstance(found[name], BaseModel):
            old, new = value.model_dump(), found[name].model_dump()
            fields = [f"{key} is {new.get(key)!r:.80}, not {old[key]!r:.80}" for key in old if old[key] != new.get(key)]
            return "; ".join(fields) or f"the state is {new!r:.200}, not {old!r:.200}"
        return f"{name} is {found[name]!r:.200}, not {value!r:.200}"
    return ""
