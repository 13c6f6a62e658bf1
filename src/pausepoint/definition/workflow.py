"""The workflow: steps, routes, guards and scopes bound to a state.

A workflow is checked as a whole when it is defined. All mistakes are raised as one `DefinitionError`. Everything that
running a step needs is prepared here.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import EllipsisType, MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, get_args, get_origin

from typing_extensions import TypeVar

from pausepoint.definition.artifacts import BoundArtifact, bind
from pausepoint.definition.binding import (
    Binder,
    BoundRoute,
    BoundStep,
    Check,
    Function,
    Inputs,
    PauseAt,
    Problems,
    Read,
    check_events,
    check_result,
    resolve,
    valid_name,
)
from pausepoint.definition.entries import checked_migrations, misplaced
from pausepoint.definition.fields import Place, Shape, overlap, shape
from pausepoint.definition.guests import guest_step
from pausepoint.definition.steps import Guard, Migration, Route, Scope, Step, as_names, guard, route, step
from pausepoint.definition.types import NONE, admits_none, fits, members, show
from pausepoint.errors import DefinitionError, did_you_mean
from pausepoint.model.events import ENGINE_EVENTS
from pausepoint.model.ids import shortened
from pausepoint.model.limits import Limit
from pausepoint.model.questions import is_time_to_answer
from pausepoint.model.queues import check_priority, check_queue

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.model.descriptions import Description

__all__ = [
    "BoundRoute",
    "BoundStep",
    "Check",
    "Guard",
    "Read",
    "Route",
    "Scope",
    "Step",
    "Workflow",
    "guard",
    "route",
    "step",
]

S = TypeVar("S", bound="BaseModel")
R = TypeVar("R", default=S, covariant=True)  # the result: what a function returned, or the final state
M = TypeVar("M", bound="BaseModel")
_MISSING: Any = object()

RESULT = "result"
"""The field that holds the return value of a workflow that is a function."""


class Workflow(Generic[S, R]):
    """A definition: a name, a version, a state model, a list of steps, and the routes and guards between them.

    ``events`` are the event types that the steps may emit. ``migrations`` bring stored sessions of older versions up to
    ``version``. ``questions_expire`` is how long a question waits if the call sets no ``expires=``: a timedelta, None
    for no limit, or by default the engine's setting. ``pause`` says where a pause stops the steps that do not say it
    themselves: before their next ``"operation"``, or at the end of the ``"step"``. ``strict=True``: if a call of a
    step has a remembered result, but for other arguments, the session pauses before the call (kind ``mismatch``)
    instead of running it again; by default the engine's setting. ``hold`` is how long a paused step stays in memory, as
    a timedelta or in seconds; by default the engine's setting. ``queue`` and ``priority`` are those
    of its sessions, unless `Engine.start` says otherwise; the lowest number goes first. ``limit`` is how many of its
    sessions may be at work; `Engine.limit` overrides it. ``arguments=False`` keeps the arguments of operations out of
    the store, unless a step says otherwise. Raises `DefinitionError`, which lists all problems.

    Attributes for the engine: ``outline`` lists the names of the steps. ``publishes`` is true if a step publishes
    artifacts, so that its sessions need a folder. ``renamed`` maps the former names of steps (``was=``) to the present
    ones, ``scope_of`` a step to the name of its scope, ``migrations`` the version that a migration starts from to the
    migration. ``returns`` is the field of the return value, if the workflow is a function. ``is_guest`` is true for a
    workflow that `guest` made.
    """

    returns: str | None = None
    is_guest = False

    def __init__(
        self,
        name: str,
        *,
        state: type[S],
        steps: Sequence[Step[..., Any]],
        routes: Sequence[Route[..., Any]] = (),
        guards: Sequence[Guard[..., Any]] = (),
        version: int = 1,
        migrations: Sequence[Migration[..., Any]] = (),
        events: Sequence[str] = (),
        questions_expire: timedelta | EllipsisType | None = ...,
        pause: PauseAt = "operation",
        strict: bool | None = None,
        hold: timedelta | float | None = None,
        queue: str | None = None,
        priority: int | None = None,
        limit: Limit | None = None,
        arguments: bool = True,
    ) -> None:
        self.name = name
        self.queue: str | None = queue
        self.priority: int | None = priority
        self.limit: Limit | None = limit
        self.version = version
        self.model = state
        self.questions_expire = questions_expire
        problems = Problems(f"Workflow {name!r}")
        self.hold: float | None = _checked_hold(hold, problems)
        _check_stops(questions_expire, pause, problems)
        _check_turns(queue, priority, limit, problems)
        self.events: frozenset[str] = _checked_events(events, problems)
        _check_head(name, version, problems)
        self.migrations: Mapping[int, Migration[..., Any]] = MappingProxyType(
            checked_migrations(migrations, version, problems)
        )
        self.shape: Shape = _shape_of(state, name, problems)
        listed = _listed(steps, problems)
        bound = {each.name: _bound_step(each, self.shape, pause, strict, arguments, problems) for each in listed}
        self._steps: Mapping[str, BoundStep] = MappingProxyType(bound)
        self.steps: tuple[BoundStep, ...] = tuple(bound.values())
        check_events(self.steps, self.events, problems)
        self.outline: tuple[str, ...] = tuple(bound)
        self.renamed: Mapping[str, str] = MappingProxyType(_renamed(listed, problems))
        self._positions = {each: position for position, each in enumerate(bound)}
        self.scope_of: dict[str, str] = {each.name: each.scope.name for each in listed if each.scope}
        self.scopes: tuple[Scope, ...] = tuple({id(each.scope): each.scope for each in listed if each.scope}.values())
        for scope in self.scopes:
            _check_table(scope, self.shape, problems.at(f"scope {scope.name!r}"))
        self.routes: Mapping[str, BoundRoute] = MappingProxyType(_bound_routes(routes, bound, self.shape, problems))
        self.guards: Mapping[str, tuple[Check, ...]] = MappingProxyType(
            _bound_guards(guards, bound, self.shape, problems)
        )
        if not problems.found:
            self._check_reachable(problems)
        raise_problems(name, problems)
        self.first: str = self.steps[0].name
        self.publishes: bool = any(each.publishes for each in self.steps)
        self._description: Description | None = None

    @classmethod
    def guest(
        cls, name: str, *, state: type[M], version: int = 1, migrations: Sequence[Migration[..., Any]] = (),
        events: Sequence[str] = (), questions_expire: timedelta | EllipsisType | None = ...,
        hold: timedelta | float = 0, arguments: bool = True,
    ) -> Workflow[M]:  # fmt: skip
        """Return a workflow whose code stays in your own program, such as a web handler: see `Engine.visit`.

        Its sessions have one step, ``visit``. Engines and workers never run them. ``hold`` is how long an operation
        that must stop for a pause waits in place; by default the block exits at once. The other options are those of
        `Workflow`.
        """
        made: Workflow[M] = Workflow(
            name, state=state, steps=[guest_step(state)], version=version, migrations=migrations, events=events,
            questions_expire=questions_expire, hold=hold, arguments=arguments,
        )  # fmt: skip
        made.is_guest = True
        return made

    def __repr__(self) -> str:
        steps = ", ".join(self._steps)
        return f"Workflow({self.name!r}, version={self.version}, state={self.model.__name__}, steps=[{steps}])"

    def checks(self, step: str) -> tuple[Check, ...]:
        """Return the checks that run after a step: its guards, then its route."""
        guards, route = self.guards.get(step, ()), self.routes.get(step)
        return guards if route is None else (*guards, route.check)

    def step(self, name: str) -> BoundStep:
        """Return the step with that name. Raises `DefinitionError`, with the closest name, if there is none."""
        found = self._steps.get(name)
        if found is None:
            raise DefinitionError(
                f"Workflow {self.name!r} has no step {shortened(name)}{did_you_mean(name, self._steps)}",
                workflow=self.name,
            )
        return found

    def position(self, name: str) -> int:
        """Return the index of a step in the list. Steps are ordered by index, never by name."""
        return self._positions[self.step(name).name]

    def following(self, name: str) -> str | None:
        """Return the next step in the list; None after the last."""
        position = self.position(name) + 1
        return self.steps[position].name if position < len(self.steps) else None

    def targets(self, name: str) -> tuple[str | None, ...]:
        """Return the steps that may come after a step. None is the end."""
        here = self.routes.get(self.step(name).name)
        return here.targets if here else (self.following(name),)

    def writers(self, field: str) -> tuple[str, ...]:
        """Return the steps that write a field or a part of it, in the order of the list."""
        return tuple(each.name for each in self.steps if any(overlap(place.path, field) for place in each.writes))

    def readers(self, *fields: str) -> tuple[str, ...]:
        """Return the steps whose result depends on one of the fields, in the order of the list.

        Raises `DefinitionError` if a field does not exist.
        """
        wanted = [self.shape.place(field).path for field in fields]
        return tuple(
            each.name
            for each in self.steps
            if any(overlap(path, field) for path in each.depends_on for field in wanted)
        )

    def mermaid(self) -> str:
        """Return the workflow as a Mermaid flowchart. Guards are hexagons; routes are diamonds with all targets."""
        from pausepoint.definition.description import description_of

        return description_of(self, schema=False).mermaid()

    @property
    def description(self) -> Description:
        """The workflow as plain data, with the JSON schema of its state. Made when it is first used."""
        if self._description is None:
            from pausepoint.definition.description import description_of  # programs that show nothing need none

            self._description = description_of(self)
        return self._description

    def to_json(self) -> dict[str, Any]:
        """Return the workflow as plain JSON data: steps, routes, guards, scopes, and the JSON schema of its state.

        >>> from pausepoint import workflow
        >>> @workflow(retry=3)
        ... def shout(text: str) -> str:
        ...     return text.upper()
        >>> found = shout.to_json()
        >>> found["steps"][0]["reads"], found["steps"][0]["writes"], found["steps"][0]["retry"]["attempts"]
        (['text'], ['result'], 3)
        >>> found["state"]["required"]
        ['text']
        """
        return self.description.to_json()

    def _check_reachable(self, problems: Problems) -> None:
        seen, ahead = set[str](), [self.steps[0].name]
        while ahead:
            name = ahead.pop()
            if name not in seen:
                seen.add(name)
                ahead += [target for target in self.targets(name) if target]
        for each in self._steps:
            if each not in seen:
                problems.at(f"step {each!r}").add(
                    "the step cannot be reached: no route leads to it, and no earlier step continues to it."
                    " Name it in the return type of a route, or remove it."
                )


def raise_problems(name: str, problems: Problems) -> None:
    """Raise all problems of a workflow as one `DefinitionError`, if there are any."""
    found = problems.found
    if len(found) == 1:
        raise DefinitionError(found[0], workflow=name, problems=tuple(found))
    if found:
        lines = "\n".join(f"- {each}" for each in found)
        message = f"Workflow {name!r} has {len(found)} problems:\n{lines}"
        raise DefinitionError(message, workflow=name, problems=tuple(found))


def _check_head(name: str, version: object, problems: Problems) -> None:
    refused = valid_name(name)
    if refused:
        problems.add(refused)
    if type(version) is not int or version < 1:
        problems.add(f"version={version!r} must be a whole number of 1 or more.")


def _check_stops(questions_expire: object, pause: object, problems: Problems) -> None:
    if not is_time_to_answer(questions_expire):
        problems.add(f"questions_expire must be a timedelta above zero, or None, not {questions_expire!r}.")
    if pause not in get_args(PauseAt):
        problems.add(f"pause must be 'operation' or 'step', not {pause!r}.")


def _check_turns(queue: object, priority: object, limit: object, problems: Problems) -> None:
    checks: list[tuple[object, Callable[[object], object]]] = [(queue, check_queue), (priority, check_priority)]
    for given, check in checks:
        try:
            if given is not None:
                check(given)
        except ValueError as exc:
            problems.add(str(exc))
    if limit is not None and not isinstance(limit, Limit):
        problems.add(f"limit must be a Limit, such as Limit(5), not {limit!r:.60}.")


def _checked_hold(hold: timedelta | float | None, problems: Problems) -> float | None:
    try:
        return None if hold is None else hold_seconds(hold)
    except ValueError as exc:
        problems.add(str(exc))
        return None


def hold_seconds(hold: timedelta | float) -> float:
    """Return how many seconds a paused step stays in memory. Raises `ValueError` if that is not a time."""
    seconds = hold.total_seconds() if isinstance(hold, timedelta) else hold
    if type(seconds) not in (int, float) or not 0 <= seconds < math.inf:
        raise ValueError(f"hold must be a timedelta or a number of seconds, 0 or more, not {hold!r}.")
    return float(seconds)


def _checked_events(events: str | Sequence[str], problems: Problems) -> frozenset[str]:
    for event in as_names(events):
        refused = valid_name(event)
        if refused:
            problems.add(f"event {refused}")
        elif event in ENGINE_EVENTS:
            problems.add(f"event {event!r} is an event type of the engine. Choose another name.")
    return frozenset(as_names(events))


def _renamed(steps: Sequence[Step[..., Any]], problems: Problems) -> dict[str, str]:
    """Map each former name of a step (``was=``) to its present name."""
    names, found = {each.name for each in steps}, dict[str, str]()
    for each in steps:
        here = problems.at(f"step {each.name!r}")
        for old in each.was:
            if refused := valid_name(old):
                here.add(f"was={old!r}: {refused}")
            elif old in names:
                here.add(f"was={old!r} is the name of another step. Rename that step, or remove was=.")
            elif old in found:
                here.add(f"was={old!r} is also a former name of step {found[old]!r}. Remove it from one of them.")
            else:
                found[old] = each.name
    return found


def _shape_of(state: Any, name: str, problems: Problems) -> Shape:
    """Return the shape of the state. Its problems are raised immediately, because all other checks need it."""
    try:
        return shape(state)
    except DefinitionError as exc:
        for each in exc.fields["problems"]:
            problems.add(each)
        raise_problems(name, problems)
        raise


def _listed(steps: Any, problems: Problems) -> list[Step[..., Any]]:
    """Return the listed steps. Report entries that are not steps, and duplicate names."""
    found: dict[str, Step[..., Any]] = {}
    if isinstance(steps, Step) or not isinstance(steps, Iterable):
        problems.add(f"steps= must be a list of steps, not {steps!r}.")
        return []
    for each in steps:
        if not isinstance(each, Step):
            problems.add(misplaced(each, "step", "@step"))
        elif found.get(each.name) is each:
            problems.add(f"step {each.name!r} is listed twice. List it once, and use a route to visit it again.")
        elif each.name in found:
            problems.add(f"two steps have the name {each.name!r}. Rename one with @step(name=...).")
        else:
            found[each.name] = each
    if not found and not problems.found:
        problems.add("the workflow has no steps. List at least one in steps=[...].")
    return list(found.values())


def _bound_step(
    each: Step[..., Any], state: Shape, pause: PauseAt, strict: bool | None, arguments: bool, problems: Problems
) -> BoundStep:  # fmt: skip
    here = problems.at(f"step {each.name!r}")
    hints = _hints(each.fn, each.hints, here)
    inputs, writes = Inputs(), _places(each.declared_writes, state, here)
    if hints is not None:
        inputs = Binder(state, here, each.fn, hints, is_step=True).inputs()
        if len(writes) == len(each.declared_writes):
            check_result(hints, writes, each.many, here)
    when = _bound_when(each.when, each.when_hints, state, here.at("when")) if each.when else None
    if each.scope:
        _check_scope(each.scope, inputs, writes, when, here)
    return BoundStep(
        name=each.name,
        fn=each.fn,
        is_async=each.is_async,
        retry=each.retry,
        timeout=each.timeout,
        agent=each.agent,
        context=inputs.context,
        whole=inputs.whole,
        session_id=inputs.session_id,
        reads=inputs.reads,
        fields=_fields_read(inputs, state),
        writes=writes,
        places={place.path: place for place in writes},
        many=each.many,
        when=when,
        takes_blocking=inputs.context is not None and not each.is_async,
        publishes=_bound_artifacts(each, writes, state, here),
        pause=each.pause or pause,
        strict=strict if each.strict is None else each.strict,
        arguments=arguments if each.arguments is None else each.arguments,
        returns=(hints or {}).get("return", Any),
    )


def _bound_artifacts(
    each: Step[..., Any], writes: tuple[Place, ...], state: Shape, problems: Problems
) -> tuple[BoundArtifact, ...]:
    found: list[BoundArtifact] = []
    for artifact in each.publishes:
        try:
            found.append(bind(artifact, writes, state))
        except DefinitionError as exc:
            problems.add(exc.message)
    return tuple(found)


def _fields_read(inputs: Inputs, state: Shape) -> frozenset[str]:
    if inputs.whole is not None:
        return frozenset(state.fields)
    return frozenset(read.place.field for read in inputs.reads)


def _hints(fn: Function, early: dict[str, Any] | None, problems: Problems) -> dict[str, Any] | None:
    if early is not None:
        return early
    try:
        return resolve(fn)
    except DefinitionError as exc:
        problems.add(exc.message)
        return None


def _places(declared: tuple[str, ...], state: Shape, problems: Problems) -> tuple[Place, ...]:
    """Return the places that a step writes. Report duplicates and places that are parts of others."""
    found: list[Place] = []
    for path in declared:
        twin = next((other.path for other in found if overlap(path, other.path)), None)
        try:
            place = state.place(path)
        except DefinitionError as exc:
            problems.add(f"writes={path!r}: {exc.message}")
            continue
        if twin == path:
            problems.add(f"writes= names {path!r} twice. Name it once.")
        elif twin:
            problems.add(f"writes= names {twin!r} and {path!r}, but one is a part of the other. Name only one.")
        elif place.under_optional:
            problems.add(f"writes={path!r}: a model on this path may be None. Write that model as a whole.")
        elif place.frozen:
            problems.add(f"writes={path!r}: the field is frozen. Remove frozen=True, or write another field.")
        else:
            found.append(place)
    return tuple(found)


def _bound_check(fn: Function, early: dict[str, Any] | None, state: Shape, problems: Problems) -> Check | None:
    if inspect.iscoroutinefunction(fn):
        problems.add("the function is async, but it must be a pure function of fields. Use def, not async def.")
        return None
    hints = _hints(fn, early, problems)
    if hints is None:
        return None
    inputs = Binder(state, problems, fn, hints, is_step=False).inputs()
    return Check(fn.__name__, fn, inputs.reads, inputs.whole, _fields_read(inputs, state))


def _bound_when(fn: Function, early: dict[str, Any] | None, state: Shape, problems: Problems) -> Check | None:
    check = _bound_check(fn, early, state, problems)
    if check is None or check.name == "<lambda>":  # a lambda has no annotations
        return check
    returned = (early or resolve(fn)).get("return", _MISSING)
    if returned is not bool:
        shown = "has no return annotation" if returned is _MISSING else f"returns {show(returned)}"
        problems.add(f"{check.name!r} {shown}. Write '-> bool'.")
    return check


def _check_scope(
    scope: Scope, inputs: Inputs, writes: tuple[Place, ...], when: Check | None, problems: Problems
) -> None:
    """Check that a step reads and writes only the fields of its scope."""
    here = problems.at(f"scope {scope.name!r}")
    for place in writes:
        if not scope.may_write(place.path):
            here.add(f"the step writes {place.path!r}, which the scope may not write. {_owned(scope.writes)}")
    for read in (*inputs.reads, *(when.reads if when else ())):
        if not scope.may_read(read.place.path):
            may = _owned((*scope.reads, *scope.writes))
            here.add(f"parameter {read.param!r} reads {read.place.path!r}, which the scope may not read. {may}")
    whole = inputs.whole or (when.whole if when else None)
    if whole and "*" not in scope.reads:
        here.add(f'parameter {whole!r} reads the whole state. Name fields instead, or set reads=["*"] on the scope.')


def _check_table(scope: Scope, state: Shape, problems: Problems) -> None:
    """Check that the fields of a scope exist."""
    for path in dict.fromkeys((*scope.reads, *scope.writes)):
        if path == "*":
            if path in scope.writes:
                problems.add('writes=["*"] is not allowed. Name the fields that the scope may write.')
            continue
        try:
            state.place(path)
        except DefinitionError as exc:
            problems.add(exc.message)


def _owned(paths: tuple[str, ...]) -> str:
    return f"Allowed: {', '.join(paths)}." if paths else "No field is allowed."


def _bound_routes(
    routes: Sequence[Route[..., Any]], steps: Mapping[str, BoundStep], state: Shape, problems: Problems
) -> dict[str, BoundRoute]:
    found: dict[str, BoundRoute] = {}
    for each in routes:
        here = _placed(each, "route", steps, problems)
        if here is None:
            continue
        if each.after in found:
            other = found[each.after].check.name
            here.add(f"step {each.after!r} already has the route {other!r}. Merge the two into one.")
            continue
        check = _bound_check(each.fn, each.hints, state, here)
        if check is not None:
            found[each.after] = BoundRoute(check, _targets(each, steps, here))
    return found


def _bound_guards(
    guards: Sequence[Guard[..., Any]], steps: Mapping[str, BoundStep], state: Shape, problems: Problems
) -> dict[str, tuple[Check, ...]]:
    found: dict[str, tuple[Check, ...]] = {}
    for each in guards:
        here = _placed(each, "guard", steps, problems)
        check = _bound_check(each.fn, each.hints, state, here) if here else None
        if here is None or check is None:
            continue
        returned = (each.hints or resolve(each.fn)).get("return", _MISSING)
        if returned is _MISSING or set(members(returned)) == {NONE} or not _fits_guard(returned):
            shown = "has no return annotation" if returned is _MISSING else f"returns {show(returned)}"
            here.add(f"the guard {shown}. Write '-> str | None': the reason to pause, or None to continue.")
        found[each.after] = (*found.get(each.after, ()), check)
    return found


def _fits_guard(returned: Any) -> bool:
    """Return whether a guard with this return type can both pause and continue."""
    return admits_none(returned) and fits(returned, str | None)


def _placed(each: Any, role: str, steps: Mapping[str, BoundStep], problems: Problems) -> Problems | None:
    """Return the problem list of a route or guard.

    Returns None, after reporting it, if the entry has another role or follows no step of this workflow.
    """
    if getattr(each, "role", None) != role:
        problems.add(misplaced(each, role, f"@{role}(after=...)"))
        return None
    here = problems.at(f"{role} {each.name!r}")
    if each.after not in steps:
        here.add(f"after={each.after!r} is not a step{did_you_mean(str(each.after), steps)}")
        return None
    return here


def _targets(each: Route[..., Any], steps: Mapping[str, BoundStep], problems: Problems) -> tuple[str | None, ...]:
    """Return the steps in the return type of a route."""
    returned = (each.hints or resolve(each.fn)).get("return", _MISSING)
    found: list[str | None] = []
    for one in members(returned):
        if one is not NONE and get_origin(one) is not Literal:
            shown = "has no return annotation" if returned is _MISSING else f"returns {show(returned)}"
            problems.add(f'the route {shown}. Write its targets: -> Literal["name", ...], with None for the end.')
            return ()
        for target in get_args(one) or (None,):
            if target is not None and target not in steps:
                problems.add(f"{target!r} in the return type is not a step{did_you_mean(str(target), steps)}")
            elif target not in found:
                found.append(target)
    return tuple(found)
