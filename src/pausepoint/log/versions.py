"""Checks whether a stored session still fits its workflow, and upgrades it to the present definition.

Steps after the session's position may change freely. Changes before it need a decision by a person: a finished step
that is missing or moved, or a new step before the position that never ran. The state of an older version runs through
the workflow's migrations in memory, and the result is validated before anything is written. An upgrade is written as
one record (`DefinitionBody`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from pausepoint.codec.values import Limits, decode, encode
from pausepoint.definition.fields import Place
from pausepoint.definition.steps import Migration
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import StateRefused, ValueRefused, did_you_mean, error_text
from pausepoint.log.replay import DefinitionBody, Line
from pausepoint.log.state import INLINE_BYTES, UNLIMITED, Blob, Blobs, Inline, State, stored
from pausepoint.stores.base import Store

ACCEPT = 'session.resume(code="accept")'
"""The call that accepts different steps, and a version without a migration."""

_REDO = ("session.rewind(", "session.fork(")


class DoesNotFit(Exception):
    """The session cannot run with this definition. ``reasons`` say why, ``ways`` what to do about it."""

    def __init__(self, reasons: Sequence[str], ways: Sequence[str], field: str = "") -> None:
        why = "; ".join(reason.rstrip(".") for reason in reasons)
        super().__init__(f"{why}. What to do: {'; or '.join(ways)}.")
        self.reasons = tuple(reasons)
        self.ways = tuple(ways)
        self.field = field


def fits(workflow: Workflow[Any], line: Line) -> bool:
    """Return whether the session last ran with the same version and steps, so that nothing has to be compared."""
    return line.outline == workflow.outline and line.version == workflow.version


async def upgrade(
    workflow: Workflow[Any],
    line: Line,
    store: Store,
    limits: Limits,
    *,
    accept_code: bool = False,
    by: str | None = None,
) -> tuple[DefinitionBody, Blobs]:
    """Return the record that upgrades a session to this definition. Raises `DoesNotFit`, with all reasons.

    ``accept_code``: accept different steps, and a version without a migration. Nothing is written here.
    """
    passed = Passed(workflow, line)
    found = compare(workflow, passed)
    reasons, ways = list(found.reasons(accept_code)), list(found.ways(accept_code))
    carried, field = Carried(), ""
    if line.version != workflow.version:
        try:
            carried = await carry(workflow, line, store, limits, accept_code)
        except DoesNotFit as wrong:
            reasons += wrong.reasons
            # A rewind and a fork migrate the state as well, so they would meet the same problem.
            ways = [way for way in ways if not any(call in way for call in _REDO)]
            ways += [way for way in wrong.ways if way not in ways]
            field = wrong.field
    if reasons:
        if not accept_code and not await _is_acceptable(workflow, line, store, limits):
            ways = [way for way in ways if ACCEPT not in way]
        raise DoesNotFit(reasons, ways, field)
    return _record(workflow, line, passed, found, carried, by), carried.blobs


async def _is_acceptable(workflow: Workflow[Any], line: Line, store: Store, limits: Limits) -> bool:
    """Return whether a resume that accepts the present code would work."""
    try:
        await upgrade(workflow, line, store, limits, accept_code=True)
    except DoesNotFit:
        return False
    return True


async def migrate_line(workflow: Workflow[Any], line: Line, store: Store, limits: Limits) -> Blobs:
    """Migrate the state of a line in memory, and return its new blobs. Raises `StateRefused` if that fails.

    This is for reading or forking a session without driving it. The steps are not compared.
    """
    if line.version == workflow.version:
        return []
    try:
        carried = await carry(workflow, line, store, limits)
    except DoesNotFit as wrong:
        raise StateRefused(str(wrong), field=wrong.field) from wrong
    line.state.carry(carried.fields, carried.moved, carried.dropped)
    line.state.provide(dict(carried.blobs))
    line.version = workflow.version
    return carried.blobs


def _record(
    workflow: Workflow[Any], line: Line, passed: Passed, found: Differences, carried: Carried, by: str | None
) -> DefinitionBody:
    added = [step for step in workflow.outline if step not in passed.outline]
    removed = [step for step in passed.outline if step not in workflow.outline]
    accepted = found.reasons()
    migrated = line.version != workflow.version
    data: dict[str, Any] = {"added": added, "removed": removed, "renamed": passed.renamed, "accepted": accepted}
    if migrated:
        fields = sorted({*carried.fields, *carried.moved, *carried.dropped})
        data |= {
            "from": line.version, "to": workflow.version, "migrations": carried.migrations, "fields": fields,
        }  # fmt: skip
    data = {name: value for name, value in data.items() if value}
    texts = [f"from version {line.version} to {workflow.version}"] if migrated else []
    texts += [f"step {old!r} renamed to {new!r}" for old, new in passed.renamed.items()]
    if accepted:
        texts.append(f"accepted{f' by {by}' if by else ''}: " + "; ".join(accepted))
    return DefinitionBody(
        workflow.version, workflow.outline, "session.migrated" if migrated else "definition.changed",
        "; ".join(texts) or _listed(added, removed), by, msgspec.Raw(encode(data, "the change of definition")),
        passed.renamed, carried.fields, carried.moved, carried.dropped, _shown(workflow, line),
    )  # fmt: skip


def _shown(workflow: Workflow[Any], line: Line) -> dict[str, str]:
    """Return the renamed fields that artifacts carry (new name to old). The trail knows them by the old names."""
    found: dict[str, str] = {}
    for work in line.trail.works.values() if line.trail is not None else ():
        step = workflow.renamed.get(work.step, work.step)
        places = (
            {each.path: each.place.path for each in workflow.step(step).publishes} if step in workflow.outline else {}
        )
        published = [(places[file.pattern], file.field) for file in work.files if file.pattern in places]
        found |= {now: before for now, before in published if now != before}
    return found


def _listed(added: Sequence[str], removed: Sequence[str]) -> str:
    parts = [f"added {', '.join(added)}"] if added else []
    parts += [f"removed {', '.join(removed)}"] if removed else []
    return f"later steps changed: {'; '.join(parts) or 'another order'}"


# steps


class Passed:
    """The steps that a session has visited, by their present names."""

    def __init__(self, workflow: Workflow[Any], line: Line) -> None:
        known = {*line.visits, *line.outline, line.step}
        self.renamed = {old: new for old, new in workflow.renamed.items() if old in known}
        self.outline = tuple(dict.fromkeys(self._now(step) for step in line.outline))
        self.visits = {self._now(step): count for step, count in line.visits.items()}
        self.known_as = {self._now(step): step for step in line.visits}  # the log still has the old names
        self.step = None if line.step is None else self._now(line.step)
        self.visit = line.visit

    def _now(self, step: str) -> str:
        return self.renamed.get(step, step)


class Differences(msgspec.Struct, frozen=True):
    """The differences before a session's position. ``lost`` is the current step, if the workflow no longer has it."""

    workflow: str
    known: tuple[str, ...]
    lost: str | None = None
    missing: tuple[str, ...] = ()
    moved: tuple[tuple[str, str, str], ...] = ()
    inserted: tuple[tuple[str, str], ...] = ()
    before: str | None = None

    def reasons(self, accepted: bool = False) -> list[str]:
        """Return one reason per difference. ``accepted`` drops all but a lost position, which cannot be accepted."""
        found = []
        if self.lost is not None:
            near = did_you_mean(self.lost, self.known).strip(". ")
            found.append(f"the session is at step {self.lost!r}, which {self.workflow!r} no longer has ({near})")
        if accepted:
            return found
        found += [f"step {step!r} is finished, but {self.workflow!r} no longer has it" for step in self.missing]
        found += [f"step {step!r} is finished, but moved from {was} to {now}" for step, was, now in self.moved]
        found += [f"step {step!r} never ran, but is now before {place!r}" for step, place in self.inserted]
        return found

    def ways(self, accepted: bool = False) -> list[str]:
        """Return what to do about the differences, with the exact calls."""
        if not self.reasons(accepted):
            return []
        found = []
        for step in [self.lost] if accepted or self.lost else []:
            found.append("put the step back into the code and resume")
            found.append(f"if {step!r} was renamed, add @step(was={step!r}) to the new one")
        for step in () if accepted else self.missing:
            found.append(f"if {step!r} was renamed, add @step(was={step!r}) to the new one")
        if self.lost is None:
            found.append(f"continue with the present steps: {ACCEPT}")
        if self.before is not None:
            found.append(f"run the later steps again: session.rewind({self.before!r})")
            found.append(f"run them again in a fork: session.fork(at_step={self.before!r})")
        return [*found, "run the former code and resume"]


def compare(workflow: Workflow[Any], passed: Passed) -> Differences:
    """Compare the steps that a session last ran with and those of a workflow, up to the session's position."""
    if passed.step in workflow.outline and passed.outline == workflow.outline:
        return Differences(workflow.name, workflow.outline)
    old, new = passed.outline, workflow.outline
    lost = passed.step if passed.step is not None and passed.step not in new else None
    missing = tuple(step for step in old if step in passed.visits and step not in new and step != lost)
    shared = {step for step in (*passed.visits, passed.step) if step in old and step in new}
    moved = _moved([step for step in old if step in shared], [step for step in new if step in shared], passed.step)
    inserted = _inserted(workflow, passed, shared) if old else ()
    affected = {*missing, lost, *(step for step, *_ in moved), *(step for step, _ in inserted)} - {None}
    return Differences(
        workflow.name, new, lost, missing, moved, inserted, _redo(passed, old, new, affected) if affected else None
    )


def _moved(old: Sequence[str], new: Sequence[str], here: str | None) -> tuple[tuple[str, str, str], ...]:
    """Return the steps that moved, each with its former and its present place."""
    if old == new:
        return ()
    stayed = _in_order([old.index(step) for step in new], old.index(here) if here in old else None)
    return tuple((step, _place(old, step), _place(new, step)) for step in new if old.index(step) not in stayed)


def _place(steps: Sequence[str], step: str) -> str:
    index = steps.index(step)
    return f"after {steps[index - 1]!r}" if index else f"before {steps[1]!r}"


def _in_order(numbers: Sequence[int], pivot: int | None = None) -> set[int]:
    """Return the longest rising subsequence that contains ``pivot``: the items that kept their order.

    >>> sorted(_in_order([0, 3, 1, 2])), sorted(_in_order([0, 3, 1, 2], 3))
    ([0, 1, 2], [0, 3])
    """
    if pivot is not None:
        place = numbers.index(pivot)
        before = _in_order([number for number in numbers[:place] if number < pivot])
        return before | {pivot} | _in_order([number for number in numbers[place:] if number > pivot])
    best: list[list[int]] = [[]]
    for number in numbers:
        fitting = sorted((chain for chain in best if not chain or chain[-1] < number), key=len)
        best.append([*fitting[-1], number])
    return set(sorted(best, key=len)[-1])


def _inserted(workflow: Workflow[Any], passed: Passed, shared: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return the steps that never ran but would have run at their present place, each with a step after it.

    A step that a route skipped is not one of them: it has the same finished steps before it as it had then, or no
    finished step leads to it.
    """
    old, new = passed.outline, workflow.outline
    reached = {step for step in passed.visits if step in new}
    found: list[tuple[str, str]] = []
    for index, step in enumerate(new[: _position(passed, new)]):
        if step in passed.visits or (step in old and _ahead_of(old, step, shared) == _ahead_of(new, step, shared)):
            continue
        if index == 0 or any(step in workflow.targets(other) for other in reached):
            reached.add(step)
            found.append((step, next((other for other in new[index + 1 :] if other in shared), new[index])))
    return tuple(found)


def _position(passed: Passed, new: Sequence[str]) -> int:
    """Return the index of the session's step or, if that step is lost, the index after the last finished step."""
    if passed.step in new:
        return new.index(passed.step)
    return max((new.index(step) + 1 for step in passed.visits if step in new), default=0)


def _ahead_of(steps: Sequence[str], step: str, shared: Collection[str]) -> set[str]:
    return {other for other in steps[: steps.index(step)] if other in shared}


def _redo(passed: Passed, old: Sequence[str], new: Sequence[str], affected: Collection[str | None]) -> str | None:
    """Return the last visit before all differences. A run that starts there meets none of them."""
    found = None
    for step in new:
        if step in affected:
            break
        if step in passed.visits and step in old and not set(old[: old.index(step)]) & set(affected):
            found = step
    if found is None:
        return None
    name = passed.known_as.get(found, found)
    return name if passed.visits[found] == 1 else f"{name}#1"


# state


class Carried(msgspec.Struct):
    """The result of migrations: the fields to write, to rename (new name to old) and to drop."""

    fields: dict[str, Inline | Blob] = {}
    moved: dict[str, str] = {}
    dropped: tuple[str, ...] = ()
    blobs: Blobs = []
    migrations: list[str] = []


async def carry(
    workflow: Workflow[Any], line: Line, store: Store, limits: Limits, accept_code: bool = False
) -> Carried:  # fmt: skip
    """Run the migrations from the line's version to the workflow's on a copy of the state. Raises `DoesNotFit`."""
    if line.version > workflow.version:
        raise DoesNotFit(
            [
                f"the session was stored by version {line.version} of {workflow.name!r}, but this code is version"
                f" {workflow.version}"
            ],
            ["run the newer code"],
        )
    chain = [workflow.migrations.get(source) for source in range(line.version, workflow.version)]
    if not accept_code and None in chain:
        source = line.version + chain.index(None)
        raise DoesNotFit(
            [
                f"the session was stored by version {line.version} of {workflow.name!r}, this code is version"
                f" {workflow.version}, and no migration leads from version {source} to {source + 1}"
            ],
            [
                f"write a migration with @migrate(from_version={source}), list it in Workflow(migrations=[…]) and"
                " resume (if nothing has to change, `return state`)",
                f"accept the state as it is: {ACCEPT}",
            ],
        )
    trial = line.state.copy()
    if needed := trial.needs(trial.slots):
        trial.provide(await store.blobs(needed))
    carrying = _Carrying(workflow, trial, limits)
    for migration in chain:
        if migration is not None:
            carrying.run(migration)
    return carrying.result()


class _Carrying:
    """A state that is being migrated. Values are compared in stored form, so that unchanged ones are not written."""

    def __init__(self, workflow: Workflow[Any], state: State, limits: Limits) -> None:
        self.workflow = workflow
        self.shape = workflow.shape
        self.state = state
        self.limits = limits
        self.values: dict[str, Any] = {name: decode(state.read(name) or b"null") for name in state.slots}
        self.before = {name: encode(value, name, UNLIMITED) for name, value in self.values.items()}
        self.now = dict(self.before)
        self.ran: list[Migration[..., Any]] = []
        self.touched: dict[str, Migration[..., Any]] = {}

    def run(self, migration: Migration[..., Any]) -> None:
        """Run one migration."""
        self.ran.append(migration)
        try:
            values = migration(self.values)
        except Exception as error:
            raise self._wrong(f"{_name(migration)} raised {type(error).__name__}: {error_text(error)}") from error
        if type(values) is not dict or not all(type(name) is str for name in values):
            raise self._wrong(
                f"{_name(migration)} returned {type(values).__name__}, not the state as a dict of its fields"
            )
        try:
            now = {name: encode(value, name, UNLIMITED) for name, value in values.items()}
        except ValueRefused as error:
            problem = f"{_name(migration)} returned a value that cannot be stored: {error}"
            raise self._wrong(problem, error.path) from error
        changed = [name for name in {**self.now, **now} if self.now.get(name) != now.get(name)]
        self.touched.update((name, migration) for name in changed)
        self.values, self.now = values, now

    def result(self) -> Carried:
        """Validate the migrated state, and return what must be written."""
        self._check_names()
        dropped = [name for name in self.before if name not in self.now]
        carried = Carried({}, {}, (), [], [migration.name for migration in self.ran])
        admitted: dict[str, Any] = {}
        for name, place in self.shape.fields.items():
            if name in self.now:
                admitted[name] = self._admit(place, dropped, carried)
        self._fill(admitted, carried)
        if self.shape.needs_whole:
            self._check_whole(admitted, carried)
        carried.dropped = tuple(name for name in dropped if name not in carried.moved.values())
        return carried

    def _check_names(self) -> None:
        for name in self.now:
            if name not in self.shape.fields and name not in self.before:
                near = did_you_mean(name, self.shape.fields).strip(". ")
                raise self._refused(name, f"{self.shape.model.__name__} has no such field ({near})")
        for name in self.before:
            if name not in self.now and name in self.shape.fields:
                raise self._refused(
                    name,
                    f"it is missing, but {self.shape.model.__name__} still has it; return it too: {{**state, …}}",
                )

    def _admit(self, place: Place, dropped: Iterable[str], carried: Carried) -> Any:
        """Validate one field and return its value. An unchanged value is not written again."""
        name = place.path
        source = name if self.before.get(name) == self.now[name] else self._source(name, dropped, carried)
        try:
            if source is not None and (kept := self._kept(place, source)) is not None:
                if source != name:
                    carried.moved[name] = source
                return kept[0]
            value = place.check(self.values[name])
            self._write(place, value, carried)
        except (StateRefused, ValueRefused) as error:
            raise self._refused(name, error_text(error)) from error
        return value

    def _source(self, name: str, dropped: Iterable[str], carried: Carried) -> str | None:
        """Return the dropped field that has the same value, because it was renamed. Small values are just rewritten."""
        if len(self.now[name]) <= INLINE_BYTES:
            return None
        taken = carried.moved.values()
        return next((old for old in dropped if old not in taken and self.before[old] == self.now[name]), None)

    def _kept(self, place: Place, source: str) -> tuple[Any] | None:
        """Return the stored value, if it has the field's present type; otherwise None."""
        try:
            value = place.typed.decode(self.state.read(source) or b"null", place.path)
        except StateRefused:
            return None
        place.check(value)  # the result is ignored, because validators ran when the value was written
        return (value,)

    def _write(self, place: Place, value: Any, carried: Carried) -> None:
        limits = UNLIMITED if place.grows else self.limits  # a value that grew may exceed the limits
        carried.fields[place.path] = stored(place.typed.encode(value, place.path, limits), carried.blobs)

    def _fill(self, admitted: dict[str, Any], carried: Carried) -> None:
        """Set and store the defaults of fields that the model has gained."""
        try:
            whole = self.shape.build(admitted)
            for name, place in self.shape.fields.items():
                if name not in admitted:
                    admitted[name] = getattr(whole, name)
                    self._write(place, admitted[name], carried)
        except (StateRefused, ValueRefused) as error:
            field = getattr(error, "field", "")
            raise self._refused(field, f"{error_text(error)} Or set it in a migration.") from error

    def _check_whole(self, admitted: dict[str, Any], carried: Carried) -> None:
        try:
            after = self.shape.check_whole(admitted)
            for name, place in self.shape.fields.items():
                limits = UNLIMITED if place.grows else self.limits
                data = place.typed.encode(after[name], name, limits)
                if data != place.typed.encode(admitted[name], name, limits):
                    carried.moved.pop(name, None)
                    carried.fields[name] = stored(data, carried.blobs)
        except (StateRefused, ValueRefused) as error:
            raise self._refused(getattr(error, "field", ""), error_text(error)) from error

    def _refused(self, field: str, why: str) -> DoesNotFit:
        at_fault = self.touched.get(field) or (self.ran[-1] if self.ran and not field else None)
        if at_fault is not None:
            return self._wrong(f"{_name(at_fault)} returned an invalid state: {_at(field)}{why}", field)
        version = self.workflow.version
        return self._wrong(f"the stored state is invalid in version {version}: {_at(field)}{why}", field)

    def _wrong(self, reason: str, field: str = "") -> DoesNotFit:
        return DoesNotFit([reason], ["fix the migration and resume (nothing was changed)"], field)


def _name(migration: Migration[..., Any]) -> str:
    return f"migration {migration.name!r} (version {migration.from_version} to {migration.from_version + 1})"


def _at(field: str) -> str:
    return f"field {field!r}: " if field else ""
