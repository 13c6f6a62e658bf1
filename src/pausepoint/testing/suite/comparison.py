"""Compares two stores: what their calls returned, and everything that they tell about the sessions of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import zip_longest
from typing import Any

import msgspec

from pausepoint.errors import PausepointError
from pausepoint.model.questions import QuestionRow
from pausepoint.model.records import Record, SignalRecord
from pausepoint.model.sessions import Filter, Pause, QuestionFacts, QuestionStatus, SessionRow, Status
from pausepoint.model.stores import Removal, Tombstone
from pausepoint.stores.base import Store
from pausepoint.stores.found import Found, FoundQuestions
from pausepoint.testing.suite.interleaving import Letter
from pausepoint.testing.suite.verbs import Scene

_RANDOM: dict[type, frozenset[str]] = {
    SessionRow: frozenset({"key", "parent", "digest"}),
    Record: frozenset({"salt", "body", "digest"}),
    SignalRecord: frozenset({"salt", "body", "digest"}),
    Pause: frozenset({"id"}),
    QuestionFacts: frozenset({"seen"}),
    QuestionRow: frozenset({"n"}),
    Removal: frozenset({"key"}),
    Tombstone: frozenset({"digest"}),
}
"""Fields that differ between two stores, because they are random or count what else is stored."""

_SIMPLE = frozenset({int, bool, Status, QuestionStatus})


class Plain:
    """Makes the values of two stores comparable: leaves out what is random, and renames sessions and engines."""

    def __init__(self, scene: Scene, engines: Mapping[int, Letter]) -> None:
        self._names = {scene.run: "~", scene.question: "question"}
        self._engines = engines

    def __call__(self, value: Any) -> Any:
        """Return the comparable form of a value."""
        if value is None or type(value) in _SIMPLE:
            return value
        if isinstance(value, msgspec.Struct):
            return self._struct(value)
        if type(value) is str:
            return self._renamed(value)
        if type(value) is bytes:
            return self._renamed(value.decode("latin-1")).encode("latin-1")
        if isinstance(value, Found | FoundQuestions):
            return {"rows": [self(each) for each in value], "damaged": [self(each) for each in value.damaged]}
        if isinstance(value, Mapping):
            return {self(key): self(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self(each) for each in value]
        return type(value).__name__ if isinstance(value, BaseException) else value

    def _renamed(self, text: str) -> str:
        for name, common in self._names.items():
            text = text.replace(name, common)
        return text

    def _struct(self, value: msgspec.Struct) -> dict[str, Any]:
        left_out = _RANDOM.get(type(value), frozenset())
        found = {name: self(getattr(value, name)) for name in value.__struct_fields__ if name not in left_out}
        if isinstance(value, SessionRow):
            found |= {"holder": self._engine(value.holder), "kept_by": self._engine(value.kept_by)}
        return found

    def _engine(self, number: int | None) -> str | None:
        return None if number is None else self._engines.get(number, "another engine")


async def state_of(store: Store, scene: Scene, plain: Plain) -> dict[str, Any]:
    """Return everything that a store tells about the sessions of a run."""
    rows = await store.find(Filter(workflow=scene.run))
    flags = await store.flags([row.key for row in rows])
    removing = [each for each in await store.removing() if each.tombstone.session_id.startswith(scene.run)]
    return {
        "everything is paused": plain(await store.standing_pause()),
        "due": sorted(plain(row.session_id) for row in await store.due(scene.now, [scene.run], 9)),
        "next wake": await store.next_wake(scene.now, [scene.run]),
        "being removed": sorted(plain(each.tombstone.session_id) for each in removing),
        "tombstones": {name: plain(await store.tombstones(scene.id(name))) for name in ("main", "moved")},
        "flags": {plain(row.session_id): plain(flags[row.key]) for row in rows},
        "open pauses": {plain(row.session_id): plain(await store.pauses(row.key)) for row in rows},
        "sessions": {plain(row.session_id): await _tree(store, row, plain) for row in rows if row.parent is None},
    }  # fmt: skip


async def _tree(store: Store, root: SessionRow, plain: Plain) -> Any:
    """Return a session and its descendants, with all their records, signals, mail, pauses, questions and values."""
    try:
        return {plain(each.row.session_id): plain(each) for each in await store.whole(root.session_id)}
    except PausepointError as error:
        return plain(error)


def differences(found: Any, expected: Any, path: str = "") -> Iterator[str]:
    """Yield the places where two comparable values differ."""
    if found == expected:
        return
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in {**expected, **found}:
            yield from differences(found.get(key), expected.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(found, list) and isinstance(expected, list):
        for n, (one, two) in enumerate(zip_longest(found, expected)):
            yield from differences(one, two, f"{path}[{n}]")
    else:
        yield f"{path} is {_short(found)} and should be {_short(expected)}"


def _short(value: Any) -> str:
    return f"{value.value if isinstance(value, Enum) else value!r:.120}"
