"""Binds plain functions to a state: which parameter reads which field, and where a result may be written.

All of this happens once, when a workflow is defined. Each mistake is added to `Problems`, and the workflow raises
them together.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Never, NoReturn, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from pausepoint.definition.artifacts import BoundArtifact
from pausepoint.definition.fields import At, Place, Replace, Shape, windowed
from pausepoint.definition.functions import emitted, enclosed
from pausepoint.definition.retry import Retry
from pausepoint.definition.types import NONE, admits_none, bare, fits, members, promises_more, show, without_none
from pausepoint.errors import DefinitionError, did_you_mean
from pausepoint.model.events import ENGINE_EVENTS
from pausepoint.model.ids import SessionId

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NAME_RULE = "Use letters, digits and '_', '.' or '-', and start with a letter or '_'."
_CONTEXT_NAMES = ("ctx", "context")

Function = Callable[..., Any]
Hints = Mapping[str, Any]


class Read(msgspec.Struct, frozen=True):
    """A parameter and the place that it reads.

    ``required``: the place may hold None, but the parameter does not accept it.
    ``recent``: read only this many items from the end of the list.
    """

    param: str
    place: Place
    required: bool
    recent: int | None = None


class Check(msgspec.Struct, frozen=True):
    """A pure, synchronous function of fields: a guard, a route, or a step's ``when``."""

    name: str
    fn: Function
    reads: tuple[Read, ...]
    whole: str | None
    fields: frozenset[str]

    def __call__(self, **values: Any) -> Any:
        return self.fn(**values)


class BoundRoute(msgspec.Struct, frozen=True):
    """A route and the steps that it may lead to. None is the end."""

    check: Check
    targets: tuple[str | None, ...]


PauseAt = Literal["operation", "step"]
"""Where a pause stops a step: before its next operation, or at its end."""


class BoundStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that is bound to the state of one workflow.

    ``context``, ``whole`` and ``session_id`` name the parameters that get the context, the whole state and the
    session's id. ``fields`` are the fields of the state that the step reads. ``places`` maps each path in ``writes`` to
    its place. ``many``: the step returns a mapping of path to value. ``publishes`` are its artifacts. ``pause`` says
    where a pause stops the step. ``arguments``: those of its operations are recorded.
    """

    name: str
    fn: Function
    is_async: bool
    retry: Retry
    timeout: float | None
    agent: str
    context: str | None
    whole: str | None
    session_id: str | None
    reads: tuple[Read, ...]
    fields: frozenset[str]
    writes: tuple[Place, ...]
    places: Mapping[str, Place]
    many: bool
    when: Check | None
    takes_blocking: bool
    publishes: tuple[BoundArtifact, ...] = ()
    pause: PauseAt = "operation"
    strict: bool | None = None  # None: the engine's setting
    arguments: bool = True
    returns: Any = Any  # its return annotation

    @property
    def depends_on(self) -> list[str]:
        """The paths in the state that the step's result depends on."""
        checks: list[BoundStep | Check] = [self] if self.when is None else [self, self.when]
        if any(check.whole is not None for check in checks):
            return [*{field for check in checks for field in check.fields}]
        return [read.place.path for check in checks for read in check.reads]


class Inputs(msgspec.Struct, frozen=True):
    """The meaning of a function's parameters: fields to read, context, whole state, session id."""

    reads: tuple[Read, ...] = ()
    context: str | None = None
    whole: str | None = None
    session_id: str | None = None


class Problems:
    """A list of problems in a definition. Each message starts with its location."""

    def __init__(self, where: str, found: list[str] | None = None) -> None:
        self.where = where
        self.found: list[str] = [] if found is None else found

    def at(self, place: str) -> Problems:
        """Return the same list for a location inside this one."""
        return Problems(f"{self.where}, {place}", self.found)

    def add(self, text: str) -> None:
        self.found.append(f"{self.where}: {text}")


def valid_name(name: object) -> str | None:
    """Return why this is not a valid name of a workflow, step or event; None if it is one."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return None
    return f"{name!r} is not a valid name. {_NAME_RULE}"


def unfit_function(fn: object) -> str | None:
    """Return why this cannot be a step, guard, route or ``when``; None if it can."""
    if not isinstance(fn, (types.FunctionType, types.MethodType)):
        kind = fn.__name__ if isinstance(fn, type) else type(fn).__name__
        return f"{kind!r} is not a function. Write a def that calls it."
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        return "the function is a generator (it has a yield). Return the whole result, and report with ctx.progress."
    if inspect.iscoroutinefunction(inspect.unwrap(fn)) and not inspect.iscoroutinefunction(fn):
        return "a decorator hides that the function is async. Make the decorator's wrapper an async def."
    return None


def resolve(fn: Function, names: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a function's annotations as types. ``names`` are the local names where a nested function is defined."""
    known = {**(names or {}), **enclosed(inspect.unwrap(fn))}
    try:
        return get_type_hints(fn, localns=known or None, include_extras=True)
    except NameError as exc:
        raise DefinitionError(
            f"an annotation uses {exc.name!r}, which is not defined where the workflow is defined."
            " Import it outside of 'if TYPE_CHECKING:', or define it before the workflow."
        ) from exc
    except Exception as exc:
        raise DefinitionError(f"the annotations cannot be read ({type(exc).__name__}: {exc}). Correct them.") from exc


class Binder:
    """Binds the parameters of one function to the fields of a state."""

    def __init__(self, shape: Shape, problems: Problems, fn: Function, hints: Hints, *, is_step: bool) -> None:
        self.shape = shape
        self.problems = problems
        self.fn = fn
        self.hints = hints
        self.is_step = is_step
        self.special: dict[str, str] = {}
        self.reads: list[Read] = []

    def inputs(self) -> Inputs:
        for parameter in inspect.signature(self.fn).parameters.values():
            self._parameter(parameter)
        return Inputs(tuple(self.reads), **self.special)

    def _parameter(self, parameter: inspect.Parameter) -> None:
        name, annotation = parameter.name, self.hints.get(parameter.name, Any)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            self.problems.add(
                f"parameter {parameter} cannot be filled, because parameters are matched to fields by name."
                " Name each field as an ordinary parameter."
            )
        elif (kind := context_kind(annotation)) is not None:
            self._context(name, kind)
        elif (path := at_path(annotation)) is not None:
            self._read(name, annotation, path)
        elif any(member is self.shape.model for member in members(annotation)):
            self._by_annotation("whole", name, self.shape.model.__name__, annotation)
        elif any(part is SessionId for part in alternatives(annotation)):
            self._session_id(name, annotation)
        elif name in self.shape.fields:
            self._read(name, annotation, name)
        else:
            self._unmatched(parameter)

    def _context(self, name: str, kind: str) -> None:
        is_async = inspect.iscoroutinefunction(self.fn)
        if not self.is_step:
            self.problems.add(f"parameter {name!r} is a context. Only steps get a context. Remove the parameter.")
        elif kind == "async" and not is_async:
            self.problems.add(f"parameter {name!r} is a Context, but the step is a plain def. Use BlockingContext.")
        elif kind == "blocking" and is_async:
            self.problems.add(f"parameter {name!r} is a BlockingContext, but the step is an async def. Use Context.")
        else:
            self._by_annotation("context", name, "the context", None)

    def _session_id(self, name: str, annotation: Any) -> None:
        if self.is_step:
            self._by_annotation("session_id", name, "SessionId", annotation)
        else:
            self.problems.add(f"parameter {name!r} is a SessionId. Only steps get one. Remove the parameter.")

    def _by_annotation(self, role: str, name: str, shown: str, annotation: Any) -> None:
        """Bind a parameter by its type. The name must not also match a field of that type."""
        place = self.shape.fields.get(name)
        if role in self.special:
            self.problems.add(f"parameters {self.special[role]!r} and {name!r} both ask for {shown}. Keep one.")
        elif annotation is not None and place and fits(without_none(place.annotation), annotation):
            self.problems.add(
                f"parameter {name!r} is ambiguous: its name means the field {name!r}, its annotation means {shown}."
                f" Rename it, or write Annotated[..., At({name!r})] to read the field."
            )
        else:
            self.special[role] = name

    def _read(self, name: str, annotation: Any, path: str) -> None:
        try:
            path, recent = windowed(path)
            place = self.shape.place(path)
        except DefinitionError as exc:
            self.problems.add(f"parameter {name!r}: {exc}")
            return
        if recent is not None and not place.is_list:
            self.problems.add(
                f"parameter {name!r} reads the last {recent} items of {path!r}, but that is {show(place.annotation)},"
                f" not a list. Read it as a whole: At({path!r})."
            )
        may_lack = place.admits_none or place.under_optional
        takes_none = admits_none(annotation)
        given = place.annotation if takes_none else without_none(place.annotation)
        if not fits(given, annotation) or promises_more(given, annotation):
            self.problems.add(
                f"parameter {name!r} is {show(annotation)}, but {self.shape.model.__name__}.{path}"
                f" is {show(place.annotation)}. Annotate the parameter with that type, or with a wider one."
            )
        self.reads.append(Read(name, place, may_lack and not takes_none, recent))

    def _unmatched(self, parameter: inspect.Parameter) -> None:
        name, fields, model = parameter.name, self.shape.fields, self.shape.model.__name__
        if self.is_step and name in _CONTEXT_NAMES and parameter.annotation is parameter.empty:
            wanted = "Context" if inspect.iscoroutinefunction(self.fn) else "BlockingContext"
            self.problems.add(f"parameter {name!r} has no annotation. To get the context, write '{name}: {wanted}'.")
        elif parameter.default is parameter.empty:
            self.problems.add(
                f"parameter {name!r} matches no field of {model} and has no default{did_you_mean(name, fields)}"
            )
        elif meant := near_miss(name, fields):
            self.problems.add(
                f"parameter {name!r} matches no field of {model} and would always have its default."
                f" Did you mean {meant!r}? If not, choose a name that is less similar."
            )


def context_kind(annotation: Any) -> str | None:
    """Return the kind of context that an annotation asks for; None if it asks for none.

    The classes belong to a higher layer, so they are recognized by an attribute.
    """
    for member in members(annotation):
        kind = getattr(get_origin(member) or member, "__pausepoint_context__", None)
        if isinstance(kind, str):
            return kind
    return None


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return the parts of a union as they were written. Unlike `members`, it keeps ``Annotated`` and ``NewType``."""
    return get_args(annotation) if get_origin(annotation) in {Union, types.UnionType} else (annotation,)


def at_path(annotation: Any) -> str | None:
    """Return the path of the `At` in ``Annotated[T, At(path)]``, also in a union with None; None if there is none."""
    for part in alternatives(annotation):
        for mark in getattr(part, "__metadata__", ()):
            if isinstance(mark, At):
                return mark.path
    return None


def near_miss(name: str, known: Sequence[str] | Mapping[str, object]) -> str | None:
    """Return the known name that ``name`` was probably meant to be; None if there is none.

    This is stricter than `did_you_mean`, because a match refuses a parameter that has a default. It allows one typing
    error in a name of four letters or more, two from eight letters on, and differences in case and underscores.

    >>> near_miss("topci", ["topic"]), near_miss("limit", ["list"])
    ('topic', None)
    """
    plain = name.replace("_", "").lower()
    for other in known:
        slips = 0 if min(len(name), len(other)) < 4 else 1 if len(name) < 8 else 2
        if plain == other.replace("_", "").lower() or _distance(name, other) <= slips:
            return other
    return None


def _distance(one: str, other: str) -> int:
    """Return the number of typing errors (insert, omit, mistype, swap two neighbours) between two words."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one):
        older, before, row = before, row, [i + 1]
        for j, b in enumerate(other):
            best = min(before[j] + (a != b), before[j + 1] + 1, row[j] + 1)
            if i and j and a == other[j - 1] and one[i - 1] == b:
                best = min(best, older[j - 1] + 1)
            row.append(best)
    return row[-1]


def check_result(hints: Hints, writes: tuple[Place, ...], many: bool, problems: Problems) -> None:
    """Check that a step's return annotation matches the fields that it writes."""
    if "return" not in hints:
        wanted = "None" if not writes else "dict[str, object]" if many else show(writes[0].annotation)
        problems.add(f"the return annotation is missing. Write '-> {wanted}'.")
    elif not writes:
        if hints["return"] not in (None, NONE, NoReturn, Never):
            problems.add(
                f"the step returns {show(hints['return'])}, but writes nothing."
                " Name the field in writes=, or return None."
            )
    elif many:
        _check_many(hints["return"], writes, problems)
    else:
        refused = _unfit_value(hints["return"], writes[0])
        if refused:
            problems.add(f"the step returns {show(hints['return'])}, but {refused}.")


def check_events(steps: Iterable[BoundStep], declared: frozenset[str], problems: Problems) -> None:
    """Check that the events that steps certainly emit are declared. Other names are checked when they are emitted."""
    for each in steps:
        for event in emitted(each.fn, each.context) if each.context is not None else ():
            if refused := refused_event(event, declared):
                problems.at(f"step {each.name!r}").add(f"it emits {event!r}, which {refused}")


def refused_event(event: str, declared: frozenset[str]) -> str:
    """Return why a step may not emit an event, as the end of a sentence; empty if it may."""
    if event in ENGINE_EVENTS:
        return "is one of the engine's own events. Choose another name."
    if event not in declared:
        return f"the workflow does not declare. Add it to Workflow(events=[…]){did_you_mean(str(event), declared)}"
    return ""


def _unfit_value(given: Any, place: Place) -> str | None:
    """Return why a result of this type cannot be written at the place, as the end of a sentence; None if it can."""
    for one in members(given):
        if one is NONE and not place.admits_none:
            instead = (
                "Return the new items only, or an empty value if there are none"
                if place.grows
                else f"Make the field {show(place.annotation)} | None"
            )
            return f"{place.path!r} does not accept None. {instead}"
        replaced = (get_origin(one) or one) is Replace
        if replaced and not place.grows:
            return f"{place.path!r} is not marked Append or Merge, so Replace is not needed. Return the value itself"
        if replaced:
            one, wanted = (get_args(one) or (Any,))[0], place.annotation
        else:
            wanted = _new_part(place)
        if not fits(one, wanted) or (place.grows and one in (str, bytes)):
            grown = f" and grows. Return {show(wanted)} with the new items only, or Replace" if place.grows else ""
            return f"{place.path!r} is {show(place.annotation)}{grown}"
    return None


def _new_part(place: Place) -> Any:
    """Return the type that a step may return for a place: if it grows, a sequence or mapping of the new items."""
    inside = get_args(bare(place.annotation))
    if place.grows == "append":
        return Sequence[inside[0]] if inside else Sequence  # type: ignore[valid-type]  # made at run time
    if place.grows == "merge":
        return Mapping[str, inside[1]] if inside else Mapping  # type: ignore[valid-type]  # made at run time
    return place.annotation


def _check_many(given: Any, writes: tuple[Place, ...], problems: Problems) -> None:
    paths = [place.path for place in writes]
    for one in members(given):
        origin = get_origin(one) or one
        if one is Any:
            continue
        if is_typeddict(one):
            _check_keys(one, {place.path: place for place in writes}, problems)
        elif isinstance(origin, type) and issubclass(origin, Mapping):
            _check_values(one, writes, problems)
        else:
            problems.add(
                f"the step writes {', '.join(paths)}, so it must return a dict or a TypedDict with these keys, not"
                f" {show(one)}. Omit the keys of fields that do not change."
            )


def _check_keys(given: Any, writes: Mapping[str, Place], problems: Problems) -> None:
    for key, value in get_type_hints(given, include_extras=True).items():
        if key not in writes:
            problems.add(
                f"{given.__name__} has the key {key!r}, which the step does not write{did_you_mean(key, writes)}"
            )
        elif refused := _unfit_value(value, writes[key]):
            problems.add(f"{given.__name__}[{key!r}] is {show(value)}, but {refused}.")


def _check_values(given: Any, writes: tuple[Place, ...], problems: Problems) -> None:
    """Check a plain mapping. It has one type for all values, which must allow the value of each place."""
    key, value = get_args(given) if len(get_args(given)) == 2 else (Any, Any)
    if not fits(str, key):
        problems.add(f"the step returns {show(given)}, but the keys are names of fields. Return dict[str, ...].")
    for place in writes:
        if bare(value) is not object and all(_unfit_value(one, place) for one in members(value)):
            problems.add(
                f"the step returns {show(given)}, but {place.path!r} is {show(place.annotation)}."
                " Return dict[str, object]."
            )
