"""Reads the state for a step, and turns what the step returns into changes.

Every attempt gets fresh values. A step must not modify values that it does not write. Written values are validated and
encoded before anything is committed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from pausepoint.codec.values import Limits
from pausepoint.definition.fields import Place, Replace
from pausepoint.definition.types import misreturned
from pausepoint.definition.workflow import BoundStep, Check, Read, Workflow
from pausepoint.errors import LentValueChanged, StateRefused, ValueRefused, WriteRefused, did_you_mean
from pausepoint.log.state import Act, Blobs, Change, Inline, State, stored
from pausepoint.model.pauses import Paused
from pausepoint.stores.base import Store

_SCALARS = frozenset((int, float, bool, str, type(None)))


class Lent(msgspec.Struct):
    """The arguments of one attempt, and the mutable ones that the step must not change.

    A struct, because one is made for every attempt, and ``__init__`` would cost more than the rest.
    """

    values: dict[str, Any] = {}
    mutable: list[tuple[Read, Any]] = []
    whole: object = None


class StateAccess:
    """Access to a session's state: reads it for steps and checks, and turns their results into changes."""

    __slots__ = (
        "known", "limits", "shape", "state", "store", "workflow",
    )  # fmt: skip

    def __init__(self, workflow: Workflow[Any], state: State, store: Store, limits: Limits) -> None:
        self.workflow = workflow
        self.shape = workflow.shape
        self.state = state
        self.store = store
        self.limits = limits
        self.known: dict[str, tuple[Inline, Any]] = {}

    def fill_new_fields(self) -> None:
        """Assume the default of each field that the model has gained since the session was stored.

        No record has it yet. The first change of such a field that needs a former value records it too.
        """
        slots = self.state.slots
        missing = [name for name in self.shape.fields if name not in slots]
        if not missing:
            return
        defaults = self.shape.build({name: None for name in self.shape.fields if name in slots})
        for name in missing:
            data = self.shape.fields[name].typed.encode(getattr(defaults, name), name, self.limits)
            slots[name] = self.state.assumed[name] = Inline(msgspec.Raw(data))

    # reading

    def lend(self, step: BoundStep) -> Lent:
        """Return the arguments of one attempt. Call `prefetch` first."""
        lent = Lent()
        for read in step.reads:
            place = read.place
            value = lent.values[read.param] = self.read(place, read.recent)
            if value is None and read.required:
                raise self._missing(step.name, place)
            if value is not None and not place.typed.immutable and place not in step.writes:
                lent.mutable.append((read, value))
        if step.whole is not None:
            lent.whole = lent.values[step.whole] = self.build()
        return lent

    def _missing(self, reader: str, place: Place) -> Paused:
        writers = [name for name in self.workflow.writers(place.field) if name != reader]
        source = f"{' or '.join(writers)} should write it" if writers else "pass it to start()"
        return Paused("missing", f"{reader} needs {place.path!r}, which is None; {source}")

    def read(self, place: Place, recent: int | None = None) -> Any:
        """Return a fresh copy of the value at a place, or of the last ``recent`` items of its list."""
        path = place.path
        slot, known = self.state.slots.get(path), self.known.get(path)
        if known is not None and known[0] is slot and recent is None:
            return known[1]
        if type(slot) is Inline and recent is None:
            return self._read_inline(place, slot)
        data = self._stored(place, recent)
        if data is None:
            return self._default_of_new_field(place, recent)
        if data == b"null" and place.under_optional:
            return None  # the model that contains it is None
        return place.typed.decode(data, place.path)

    def _stored(self, place: Place, recent: int | None) -> bytes | None:
        """Return the stored bytes; None if the place was added to its model after the value was stored."""
        try:
            data = self.state.read(place.path) if recent is None else self.state.recent(place.path, recent)
        except KeyError:
            return None
        assert data is not None, place.path
        return data

    def _default_of_new_field(self, place: Place, recent: int | None) -> Any:
        """Return the default of a nested field that is missing in the stored value."""
        if len(place.parts) == 1:
            raise StateRefused(
                f"Field {place.path!r}: a nested field was added to its model after this session started, and has grown"
                " since. Write a migration that sets the nested field.",
                field=place.path,
            )
        value = functools.reduce(getattr, place.parts[1:], self.read(self.shape.fields[place.field]))
        return value if value is None or recent is None else value[-recent:]

    def _read_inline(self, place: Place, slot: Inline) -> Any:
        value = place.typed.decode(bytes(slot.data), place.path)
        if place.typed.immutable:  # an immutable value can be shared
            self.known[place.path] = slot, value
        return value

    def build(self) -> Any:
        """Return the whole state as an instance of its model."""
        return self.shape.build({name: self.read(place) for name, place in self.shape.fields.items()})

    def needs_prefetch(self, reader: BoundStep | Check) -> bool:
        """Return whether `prefetch` may be needed before this step or check."""
        return not self.state.deep.isdisjoint(reader.fields)

    async def prefetch(self, reader: BoundStep | Check | None = None) -> None:
        """Fetch the large values that a step or a check reads. Without one, fetch all."""
        if reader is None or reader.whole is not None:
            paths = list(self.state.deep)
        else:
            paths = [read.place.path for read in reader.reads if read.recent is None]
        if needed := self.state.needs(paths):
            self.state.provide(await self.store.blobs(needed))
        for read in reader.reads if reader is not None else ():
            await self._prefetch_recent(read)

    async def _prefetch_recent(self, read: Read) -> None:
        """Fetch the blobs that contain the last items of a list, starting from its end."""
        while read.recent is not None and (needed := self.state.needs_recent(read.place.path, read.recent)):
            self.state.provide(await self.store.blobs(needed))

    def evaluate(self, check: Check) -> Any:
        """Run a guard, a route or a ``when`` and return its result. Call `prefetch` first."""
        values = {}
        for read in check.reads:
            value = values[read.param] = self.read(read.place, read.recent)
            if value is None and read.required:
                raise self._missing(check.name, read.place)
        if check.whole is not None:
            values[check.whole] = self.build()
        return check.fn(**values)

    # writing

    def check_unchanged(self, step: BoundStep, lent: Lent) -> None:
        """Check that a step changed no argument in place. Raises `LentValueChanged`."""
        for read, value in lent.mutable:
            self._check_one(step, read.place, value, read.recent)
        if lent.whole is not None:
            for place in self.shape.fields.values():
                if not place.typed.immutable and place not in step.writes:
                    self._check_one(step, place, getattr(lent.whole, place.path))

    def _check_one(self, step: BoundStep, place: Place, value: object, recent: int | None = None) -> None:
        if not self._is_unchanged(place, value, recent):
            raise LentValueChanged(
                f"Step {step.name!r} changed {place.path!r} in place, but does not write it."
                " Add it to writes=, or work on a copy.",
                field=place.path,
            )

    def _is_unchanged(self, place: Place, value: object, recent: int | None) -> bool:
        before = self._stored(place, recent)
        if before is not None and place.typed.is_stored_as(value, before, self.limits):
            return True
        try:
            now = place.typed.encode(value, place.path, self.limits)
            # Equal values can have two encodings (the order of a set), so compare two fresh encodings as well.
            return now == before or now == place.typed.encode(self.read(place, recent), place.path, self.limits)
        except (ValueRefused, StateRefused):
            return False

    def changes_of(self, step: BoundStep, value: object, blobs: Blobs) -> tuple[Change, ...]:
        """Return the changes that a step's result makes, validated and encoded. Large values go to ``blobs``."""
        try:
            changes = tuple([self._change(place, part, blobs) for place, part in _written(step, value)])
        except StateRefused as error:
            raise (_misreturned(step, value) or error) from error.__cause__
        return self.on_assumed(changes) if self.state.assumed else changes

    def on_assumed(self, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        """Return the changes after those that set the assumed fields on which they build."""
        built_on = {change.path.partition(".")[0] for change in changes if "." in change.path or change.act != "set"}
        first = [Change(name, "set", slot) for name, slot in self.state.assumed.items() if name in built_on]
        return (*first, *changes)

    def _change(self, place: Place, value: object, blobs: Blobs) -> Change:
        if place.growth is not None and place.grows is not None and not isinstance(value, Replace):
            data = place.growth.store(value, place.path, self.limits)
            return Change(place.path, place.grows, stored(data, blobs))
        checked = place.check(value.value if isinstance(value, Replace) else value)
        slot = stored(place.typed.encode(checked, place.path, self.limits), blobs)
        if type(checked) in _SCALARS and type(slot) is Inline:  # it decodes to the same value, so keep it
            self.known[place.path] = slot, checked
        return Change(place.path, "set", slot)

    def replaced(self, place: Place, value: object, blobs: Blobs) -> Change:
        """Return the change that overwrites a place, also if the place grows."""
        return self._change(place, value if isinstance(value, Replace) else Replace(value), blobs)

    def stored_change(self, path: str, act: Act, data: bytes, blobs: Blobs) -> Change:
        """Return a change with a value that is already encoded."""
        return Change(path, act, stored(data, blobs))

    async def validated_whole(self, changes: tuple[Change, ...], blobs: Blobs) -> tuple[Change, ...]:
        """Validate the whole state with these changes. Return them with the changes that the validators made."""
        trial = self.state.copy()
        trial.provide(dict(blobs))
        for change in changes:
            trial.apply(change)
        if needed := trial.needs(self.shape.fields):
            trial.provide(await self.store.blobs(needed))
        places = self.shape.fields
        before = {name: trial.read(name) or b"null" for name in places}
        after = self.shape.check_whole({name: place.typed.decode(before[name], name) for name, place in places.items()})
        encoded = {name: place.typed.encode(after[name], name, self.limits) for name, place in places.items()}
        extra = [Change(name, "set", stored(data, blobs)) for name, data in encoded.items() if data != before[name]]
        return (*changes, *extra)


def _written(step: BoundStep, value: object) -> list[tuple[Place, object]]:
    """Return which place gets which part of a step's result."""
    if not step.writes:
        if value is not None:
            raise StateRefused(
                f"Step {step.name!r} returned {type(value).__name__}, but writes nothing. Name the field in writes=.",
                field="",
            )
        return []
    if not step.many:
        if value is None and (refused := _misreturned(step, value)) is not None:
            raise refused  # the field may accept None
        return [(step.writes[0], value)]
    if type(value) is not dict and not isinstance(value, Mapping):
        raise StateRefused(
            f"Step {step.name!r} returned {type(value).__name__}, but writes several fields."
            " Return a dict with the names of the fields as keys.",
            field="",
        )
    places = step.places
    for path in value:
        if path not in places:
            agent = "" if step.agent == step.name else f" of agent {step.agent!r}"
            raise WriteRefused(
                f"Step {step.name!r}{agent} may not write {path!r}, because its writes= does not name it"
                f"{did_you_mean(str(path), places)}",
                field=str(path),
            )
    return [(places[path], part) for path, part in value.items()]


def _misreturned(step: BoundStep, value: object) -> StateRefused | None:
    """Return the error of a step that did not return what its annotation says; None if it did."""
    if step.many or not step.writes:
        return None
    field, why = step.writes[0].path, misreturned(step.name, step.returns, value)
    return StateRefused(f"Step {step.name!r}, field {field!r}: {why}", field=field) if why else None
