"""The decorators for steps, routes, guards and migrations, and the scopes of steps.

A decorated function stays callable. The decorators check the function alone; a
`pausepoint.definition.workflow.Workflow` then checks it against the state.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, get_args, overload

from pausepoint.definition.artifacts import Artifact
from pausepoint.definition.binding import Function, PauseAt, resolve, unfit_function, valid_name
from pausepoint.definition.retry import Retry
from pausepoint.errors import DefinitionError

P = ParamSpec("P")
R = TypeVar("R")
Target = TypeVar("Target", bound=str | None)

When = Callable[..., bool]
Timeout = timedelta | float | None
_MISSING: Any = object()


class StepOptions(TypedDict, total=False):
    """The options of a step. See `step`."""

    writes: str | Sequence[str]
    name: str | None
    was: str | Sequence[str]
    retry: int | Retry
    timeout: timedelta | float | None
    when: When | None
    publishes: Artifact | Sequence[Artifact]
    pause: PauseAt | None
    strict: bool | None
    arguments: bool | None


class Declared(Generic[P, R]):
    """A function with a role in a workflow. It stays callable, so a test can call it directly."""

    role = "function"

    def __init__(self, fn: Callable[P, R], name: str | None, names: Mapping[str, Any]) -> None:
        problem = unfit_function(fn)
        if isinstance(fn, Declared):
            problem = f"the function is already a {fn.role}. Decorate it once."
        shown = str(name or getattr(fn, "__name__", repr(fn)))
        if problem:
            raise DefinitionError(f"{self.role.capitalize()} {shown!r}: {problem}")
        functools.update_wrapper(self, fn)
        self.fn: Callable[P, R] = fn
        self.name = shown
        self.hints: dict[str, Any] | None = _early_hints(fn, names)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)


def _early_hints(fn: Function, names: Mapping[str, Any]) -> dict[str, Any] | None:
    """Resolve the annotations of a nested function now, because they may use local names that are known only here."""
    if "<locals>" not in fn.__qualname__:
        return None
    try:
        return resolve(fn, names)
    except DefinitionError:
        return None  # the workflow tries again and reports the error


class Step(Declared[P, R]):
    """One atomic piece of a workflow. Create it with `step`. A `Workflow` binds it to its state."""

    role = "step"

    def __init__(
        self,
        fn: Callable[P, R],
        *,
        writes: str | Sequence[str] = (),
        name: str | None = None,
        was: str | Sequence[str] = (),
        retry: int | Retry = 1,
        timeout: Timeout = None,
        when: When | None = None,
        publishes: Artifact | Sequence[Artifact] = (),
        pause: PauseAt | None = None,
        strict: bool | None = None,
        arguments: bool | None = None,
        scope: Scope | None = None,
        names: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(fn, name, names)
        refused = valid_name(self.name)
        if refused:
            raise DefinitionError(f"Step {refused} Set the name with @step(name=...).", step=self.name)
        self.is_async: bool = inspect.iscoroutinefunction(fn)
        self.declared_writes: tuple[str, ...] = as_names(writes)
        self.many: bool = len(self.declared_writes) > 1
        self.was: tuple[str, ...] = as_names(was)
        self.retry: Retry = _retry(retry, self.name)
        self.timeout: float | None = _seconds(timeout, self.name)
        self.scope = scope
        self.agent: str = scope.name if scope else self.name
        self.publishes: tuple[Artifact, ...] = (publishes,) if isinstance(publishes, Artifact) else tuple(publishes)
        self.pause = _pause(pause, self.name)
        self.strict = strict
        self.arguments = arguments
        self.when = when
        problem = unfit_function(when) if when is not None else None
        if problem:
            raise DefinitionError(f"Step {self.name!r}, when: {problem}", step=self.name)
        self.when_hints: dict[str, Any] | None = _early_hints(when, names) if when is not None else None

    def __repr__(self) -> str:
        writes = ", ".join(self.declared_writes) or "nothing"
        scope = f" in scope {self.scope.name}" if self.scope else ""
        return f"<step {self.name}{scope}, writes {writes}>"


class StepDecorator:
    """The decorator that ``@step(...)`` with options returns."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    def __call__(self, fn: Callable[P, R], /) -> Step[P, R]:
        return Step(fn, names=sys._getframe(1).f_locals, **self.options)


@overload
def step(fn: Callable[P, R], /, **options: Unpack[StepOptions]) -> Step[P, R]: ...
@overload
def step(**options: Unpack[StepOptions]) -> StepDecorator: ...
def step(fn: Any = _MISSING, /, **options: Any) -> Any:
    """Make a function a step. Its parameters are the fields it reads; its return value is what it writes.

    ``writes`` names the field to write. With several names, the step returns a mapping of name to value.
    ``retry`` is the number of attempts in total, or a `Retry`. ``timeout`` limits one attempt, in seconds or as a
    timedelta. ``when`` is a pure function of fields; the step is skipped if it returns False.
    ``was`` is a former name of the step, or several. Stored sessions that use a former name resume with this step.
    ``publishes`` is an `Artifact`, or several: the files that the step writes to the session's folder.
    ``pause`` says where a pause stops the step: before its next ``"operation"``, or at the end of the ``"step"``. By
    default a step that takes a context stops before its next operation. ``strict=True`` pauses the session before a
    call whose result is remembered for other arguments, instead of running it again; see `Workflow`.
    ``arguments=False`` keeps the arguments of its operations out of the store.

    >>> @step(writes="draft")
    ... def shout(topic: str) -> str:
    ...     return topic.upper()
    >>> shout("otters")
    'OTTERS'
    """
    return Step(fn, names=sys._getframe(1).f_locals, **options) if fn is not _MISSING else StepDecorator(options)


class Scope:
    """The fields that one agent may read and write. ``reads=["*"]`` means all; fields in ``writes`` can be read too.

    >>> Scope("IngestionAgent", reads=["requirements"], writes=["documents"])
    Scope('IngestionAgent', reads=['requirements'], writes=['documents'])
    """

    def __init__(self, name: str, *, reads: str | Sequence[str] = (), writes: str | Sequence[str] = ()) -> None:
        refused = valid_name(name)
        if refused:
            raise DefinitionError(f"Scope {refused}")
        self.name = name
        self.reads: tuple[str, ...] = as_names(reads)
        self.writes: tuple[str, ...] = as_names(writes)

    def __repr__(self) -> str:
        return f"Scope({self.name!r}, reads={list(self.reads)}, writes={list(self.writes)})"

    @overload
    def step(self, fn: Callable[P, R], /, **options: Unpack[StepOptions]) -> Step[P, R]: ...
    @overload
    def step(self, **options: Unpack[StepOptions]) -> StepDecorator: ...
    def step(self, fn: Any = _MISSING, /, **options: Any) -> Any:  # type: ignore[misc]  # mypy: Unpack after self
        """Make a function a step of this scope. Takes the options of `pausepoint.step`."""
        options["scope"] = self
        return Step(fn, names=sys._getframe(1).f_locals, **options) if fn is not _MISSING else StepDecorator(options)

    def may_read(self, path: str) -> bool:
        return "*" in self.reads or covered(path, self.reads) or covered(path, self.writes)

    def may_write(self, path: str) -> bool:
        return covered(path, self.writes)


class After(Declared[P, R]):
    """A function that runs after a step: a route or a guard."""

    def __init__(self, fn: Callable[P, R], after: str | Step[..., Any], names: Mapping[str, Any]) -> None:
        super().__init__(fn, None, names)
        self.after: str = after.name if isinstance(after, Step) else after

    def __repr__(self) -> str:
        return f"<{self.role} {self.name} after {self.after}>"


class Route(After[P, R]):
    """A function that chooses the step after a step. Create it with `route`."""

    role = "route"


class Guard(After[P, R]):
    """A function that can hold a session at a finished step. Create it with `guard`."""

    role = "guard"


def route(*, after: str | Step[..., Any]) -> Callable[[Callable[P, Target]], Route[P, Target]]:
    """Make a pure function of fields the route after a step. It returns the name of the next step, or None to end.

    The return type lists the possible targets: ``Literal["write", "research"] | None``.
    """

    def decorate(fn: Callable[P, Target]) -> Route[P, Target]:
        return Route(fn, after, sys._getframe(1).f_locals)

    return decorate


def guard(*, after: str | Step[..., Any]) -> Callable[[Callable[P, str | None]], Guard[P, str | None]]:
    """Make a pure function of fields a guard after a step.

    It returns the reason why the session must pause after the step, or None to let it continue.
    """

    def decorate(fn: Callable[P, str | None]) -> Guard[P, str | None]:
        return Guard(fn, after, sys._getframe(1).f_locals)

    return decorate


class Migration(Declared[P, R]):
    """A function that migrates a stored state to the next version. Create it with `migrate`."""

    role = "migration"

    def __init__(self, fn: Callable[P, R], from_version: int, names: Mapping[str, Any]) -> None:
        super().__init__(fn, None, names)
        if type(from_version) is not int or from_version < 1:
            raise DefinitionError(
                f"Migration {self.name!r}: from_version={from_version!r} must be a whole number of 1 or more."
            )
        if inspect.iscoroutinefunction(fn):
            raise DefinitionError(f"Migration {self.name!r}: a migration is a pure function. Use def, not async def.")
        if not _takes_one(fn):
            raise DefinitionError(
                f"Migration {self.name!r}: the function must take one argument, the stored state as a dict."
            )
        self.from_version = from_version

    def __repr__(self) -> str:
        return f"<migration {self.name} from version {self.from_version} to {self.from_version + 1}>"


def _takes_one(fn: Function) -> bool:
    """Return whether a function can be called with one positional argument."""
    try:
        inspect.signature(fn).bind(None)
    except TypeError:
        return False
    return True


def migrate(*, from_version: int) -> Callable[[Callable[P, R]], Migration[P, R]]:
    """Make a pure function the migration of stored sessions from one version of the workflow to the next.

    The function gets the stored state as a dict of plain values, and returns the complete state of the next version.

    >>> @migrate(from_version=1)
    ... def split_name(state: dict[str, Any]) -> dict[str, Any]:
    ...     first, _, last = state.pop("name").partition(" ")
    ...     return {**state, "first": first, "last": last}
    >>> split_name({"name": "Ada Lovelace"})
    {'first': 'Ada', 'last': 'Lovelace'}
    """

    def decorate(fn: Callable[P, R]) -> Migration[P, R]:
        return Migration(fn, from_version, sys._getframe(1).f_locals)

    return decorate


def covered(path: str, areas: Iterable[str]) -> bool:
    """Return whether a path is one of the areas, or a part of one."""
    return any(path == area or path.startswith(f"{area}.") for area in areas)


def as_names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _retry(given: int | Retry, name: str) -> Retry:
    try:
        if isinstance(given, Retry):
            return given
        if type(given) is not int:
            raise ValueError(f"retry={given!r} is neither a number of attempts nor a Retry.")
        return Retry(attempts=given)
    except ValueError as exc:
        raise DefinitionError(f"Step {name!r}: {exc} retry=3 means three attempts in total.", step=name) from exc


def _pause(given: PauseAt | None, name: str) -> PauseAt | None:
    if given is not None and given not in get_args(PauseAt):
        raise DefinitionError(f"Step {name!r}: pause must be 'operation' or 'step', not {given!r}.", step=name)
    return given


def _seconds(given: Timeout, name: str) -> float | None:
    if given is None:
        return None
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if type(seconds) not in (int, float) or not math.isfinite(seconds) or seconds <= 0:
        raise DefinitionError(
            f"Step {name!r}: timeout={given!r} must be a timedelta or a number of seconds above zero.", step=name
        )
    return float(seconds)
