"""A function as a workflow: its parameters are the input, its return value is the result."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from types import EllipsisType, MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

from pausepoint.definition.binding import PauseAt, Problems, alternatives, context_kind, resolve, unfit_function
from pausepoint.definition.retry import Retry
from pausepoint.definition.steps import Migration, Step
from pausepoint.definition.workflow import RESULT, Workflow, raise_problems
from pausepoint.errors import DefinitionError
from pausepoint.model.ids import SessionId
from pausepoint.model.limits import Limit

if TYPE_CHECKING:
    from pydantic import BaseModel

P = ParamSpec("P")
C = TypeVar("C")  # what a direct call of the function returns: for an async def, a coroutine
R = TypeVar("R")
_MISSING: Any = object()

TAKEN = frozenset(
    {
        "at_step", "budget", "by", "folder", "keep_for", "key", "lane", "owner", "paused", "priority", "queue",
        "reason", "replay", "retry", "session_id", "store", "tags", "timeout",
    }
)  # fmt: skip
"""Keywords of `run`, `Engine.start` and `Context.call`. A parameter with such a name could never be set there."""


class WorkflowOptions(TypedDict, total=False):
    """The options of a function that is a workflow. See `workflow`."""

    name: str | None
    version: int
    migrations: Sequence[Migration[..., Any]]
    events: Sequence[str]
    retry: int | Retry
    timeout: timedelta | float | None
    questions_expire: timedelta | EllipsisType | None
    pause: PauseAt
    strict: bool | None
    hold: timedelta | float | None
    queue: str | None
    priority: int | None
    limit: Limit | None
    arguments: bool


class FunctionWorkflow(Workflow["BaseModel", R], Generic[P, C, R]):
    """A workflow with one step, made from a function with `workflow`. It stays callable, so a test can call it."""

    returns: str | None = RESULT
    __name__: str

    def __init__(
        self,
        fn: Callable[P, C],
        *,
        name: str | None = None,
        retry: int | Retry = 1,
        timeout: timedelta | float | None = None,
        names: Mapping[str, Any] = MappingProxyType({}),
        **options: Any,
    ) -> None:
        if problem := unfit_function(fn):
            raise DefinitionError(f"Workflow {name or getattr(fn, '__name__', repr(fn))!r}: {problem}")
        name = name or fn.__name__
        problems = Problems(f"Workflow {name!r}")
        model = _state_of(fn, name, names, problems)
        step = Step(fn, writes=RESULT, name=name, retry=retry, timeout=timeout, names=names)
        super().__init__(name, state=model, steps=[step], **options)
        functools.update_wrapper(self, fn)
        self.fn = fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        return self.fn(*args, **kwargs)


def _state_of(fn: Callable[..., Any], name: str, names: Mapping[str, Any], problems: Problems) -> type[BaseModel]:
    """Return a state with a field for each parameter, and one for the result."""
    from pydantic import BaseModel, ConfigDict, create_model

    try:
        hints = resolve(fn, names)
    except DefinitionError as error:
        problems.add(error.message)
        hints = {}
    raise_problems(name, problems)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(fn).parameters.values():
        annotation = hints.get(parameter.name, _MISSING)
        if _is_given_by_the_engine(annotation):
            continue
        if refused := _refused(parameter, annotation, BaseModel):
            problems.add(refused)
        else:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (annotation, default)
    if "return" not in hints:
        problems.add("the return annotation is missing. Write '-> type', or '-> None' if there is no result.")
    raise_problems(name, problems)
    fields[RESULT] = (hints["return"] | None if hints["return"] is not None else None, None)
    title = "".join(part.capitalize() for part in name.replace("-", "_").split("_")) + "State"
    config = ConfigDict(protected_namespaces=(), extra="forbid", arbitrary_types_allowed=False)
    return create_model(title, __config__=config, __module__=fn.__module__, **fields)


def _is_given_by_the_engine(annotation: Any) -> bool:
    return annotation is not _MISSING and (
        context_kind(annotation) is not None or any(part is SessionId for part in alternatives(annotation))
    )


def _refused(parameter: inspect.Parameter, annotation: Any, base: type) -> str | None:
    """Return why a parameter cannot be input; None if it can."""
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        return f"parameter {parameter} cannot be input, because input is passed by name. Name each parameter."
    if annotation is _MISSING:
        return f"parameter {name!r} has no annotation. Its type says how the input is checked and stored."
    if name == RESULT:
        return f"parameter {name!r} has the name of the return value in the state. Rename it."
    if name in TAKEN:
        return f"parameter {name!r} has the name of an option of run, start or call. Rename it."
    if name.startswith("_") or hasattr(base, name):
        return f"parameter {name!r} cannot be a field of a Pydantic model. Rename it."
    return None


class WorkflowDecorator:
    """The decorator that ``@workflow(...)`` with options returns."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    @overload
    def __call__(
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> FunctionWorkflow[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> FunctionWorkflow[P, R, R]: ...
    def __call__(self, fn: Any, /) -> Any:
        return FunctionWorkflow(fn, names=sys._getframe(1).f_locals, **self.options)


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> FunctionWorkflow[P, Coroutine[Any, Any, R], R]: ...
@overload
def workflow(fn: Callable[P, R], /) -> FunctionWorkflow[P, R, R]: ...
@overload
def workflow(**options: Unpack[WorkflowOptions]) -> WorkflowDecorator: ...
def workflow(fn: Any = _MISSING, /, **options: Any) -> Any:
    """Make a function a workflow with one step. Its parameters are the input; its return value is the result.

    A parameter annotated with `Context` (in a ``def``: `BlockingContext`) gets the handle for operations. All others
    need an annotation; those with a default are optional.

    ``name`` is the workflow's name, by default the function's. ``retry`` and ``timeout`` are those of a `step`; the
    other options are those of a `Workflow`.

    >>> from pausepoint import run, workflow
    >>> @workflow
    ... def greet(name: str, loud: bool = False) -> str:
    ...     return f"HELLO, {name.upper()}!" if loud else f"Hello, {name}!"
    >>> run(greet, store=":memory:", name="Ada").result
    'Hello, Ada!'
    >>> greet("Ada", loud=True)
    'HELLO, ADA!'
    """
    if fn is _MISSING:
        return WorkflowDecorator(options)
    return FunctionWorkflow(fn, names=sys._getframe(1).f_locals, **options)
