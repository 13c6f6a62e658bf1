"""What tools change in the context of a run of the OpenAI Agents SDK.

A remembered tool call does not run again, so its changes are stored with its result and made again.
"""

from __future__ import annotations

import dataclasses
import inspect
import time
from contextlib import suppress
from functools import cache
from typing import Any, get_type_hints

import msgspec
from pydantic import BaseModel, TypeAdapter

_PLAIN: TypeAdapter[Any] = TypeAdapter(Any)


class Changes:
    """The changes of all contexts of a run, and of the runs inside it.

    Parallel calls are remembered in the order of their calls, but they have changed the context in the order in which
    they ended. So the newest change of a field stays, whichever is restored last.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[int, str], int] = {}

    def since(self, context: Any, before: dict[str, bytes]) -> dict[str, Any]:
        """Return the changes of a context since `fields` was called, for `restore`."""
        after = fields(context)
        changed = {name: msgspec.json.decode(data) for name, data in after.items() if before.get(name) != data}
        gone = [name for name in before if isinstance(context, dict) and name not in context]
        now = time.time_ns()
        for name in (*changed, *gone):
            self._newest[id(context), name] = now
        return {"fields": changed, "gone": gone, "at": now}

    def restore(self, context: Any, changes: dict[str, Any]) -> None:
        """Make the changes of a remembered call again, except those that a later call has overwritten."""
        adapters = _adapters(context)
        for name in (*changes["fields"], *changes["gone"]):
            if self._newest.get((id(context), name), 0) > changes["at"]:
                continue
            self._newest[id(context), name] = changes["at"]
            if isinstance(context, dict):
                context.pop(name, None)
                if name in changes["fields"]:
                    context[name] = changes["fields"][name]
            elif name in adapters:
                value = adapters[name].validate_python(changes["fields"][name])
                if dataclasses.is_dataclass(context):
                    object.__setattr__(context, name, value)  # also if it is frozen
                else:
                    setattr(context, name, value)


def fields(context: Any) -> dict[str, bytes]:
    """Return the fields of a context that can be stored: a dictionary, a Pydantic model or a dataclass."""
    found: dict[str, bytes] = {}
    for name, adapter in _adapters(context).items():
        value = context[name] if isinstance(context, dict) else getattr(context, name, None)
        with suppress(Exception):  # a connection or a client, which cannot be stored and need not be
            found[name] = adapter.dump_json(value)
    return found


def is_plain(value: Any) -> bool:
    """Return whether a value is plain JSON."""
    if isinstance(value, dict):
        return all(isinstance(name, str) and is_plain(each) for name, each in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    return value is None or type(value) in (str, bool, int, float)


def _adapters(context: Any) -> dict[str, TypeAdapter[Any]]:
    if isinstance(context, dict):
        return {name: _PLAIN for name in context if isinstance(name, str) and is_plain(context[name])}
    kind: Any = type(context)
    return _adapters_of(kind)


@cache
def _adapters_of(kind: Any) -> dict[str, TypeAdapter[Any]]:
    if not (issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind)):
        return {}
    names = kind.model_fields if issubclass(kind, BaseModel) else [each.name for each in dataclasses.fields(kind)]
    found: dict[str, TypeAdapter[Any]] = {}
    for name in names:
        with suppress(Exception):  # a type that Pydantic does not know, or one that only a type checker imports
            found[name] = TypeAdapter(_hint(kind, name))
    return found


def _hint(kind: Any, name: str) -> Any:
    """Return the type of one field. `get_type_hints` fails for all fields if one of them is not known here."""
    if issubclass(kind, BaseModel):
        return kind.model_fields[name].rebuild_annotation()
    base = next(base for base in kind.__mro__ if name in inspect.get_annotations(base))
    one = type(base.__name__, (), {"__annotations__": {name: inspect.get_annotations(base)[name]}})
    one.__module__ = base.__module__
    return get_type_hints(one, include_extras=True)[name]
