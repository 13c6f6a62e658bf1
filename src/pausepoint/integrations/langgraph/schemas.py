"""The types of a graph's state, which its stored values may contain, and values as plain JSON."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from pydantic_core import to_jsonable_python

if TYPE_CHECKING:
    from langgraph.pregel import Pregel

_blocked: ContextVar[set[str] | None] = ContextVar("blocked types", default=None)


def types_of(graph: Pregel[Any, Any, Any, Any]) -> set[type]:
    """Return the types that the schemas of a graph and its subgraphs mention."""
    found: set[type] = set()
    for each in (graph, *(subgraph for _, subgraph in graph.get_subgraphs(recurse=True))):
        for hint in _schemas(each):
            _collect(hint, found, set())
    return found


def _schemas(graph: Any) -> Iterator[Any]:
    builder = getattr(graph, "builder", None)
    if builder is None:  # an entrypoint
        yield from (each.ValueType for each in getattr(graph, "channels", {}).values() if hasattr(each, "ValueType"))
        return
    yield from (builder.state_schema, builder.input_schema, builder.output_schema)
    yield from (each.input_schema for each in builder.nodes.values())


def _collect(hint: Any, found: set[type], seen: set[int]) -> None:
    if hint is None or id(hint) in seen:
        return
    seen.add(id(hint))
    for each in get_args(hint):
        _collect(each, found, seen)
    if not isinstance(hint, type) or hint.__module__ == "builtins":
        return
    found.add(hint)
    try:
        hints = get_type_hints(hint)
    except (NameError, TypeError):  # a name that only a type checker knows
        return
    for each in hints.values():
        _collect(each, found, seen)


@contextmanager
def blocked_types() -> Iterator[set[str]]:
    """Collect the names of the types that LangGraph's serializer does not load inside this block."""
    found: set[str] = set()
    token = _blocked.set(found)
    try:
        yield found
    finally:
        _blocked.reset(token)


def _note(event: SerdeEvent) -> None:
    found = _blocked.get()
    if found is not None and event["kind"] == "msgpack_blocked":
        found.add(f"{event['module']}.{event['name']}")


register_serde_event_listener(_note)


def plain(value: Any) -> Any:
    """Return a value as plain JSON: messages and other models as dicts, bytes as base64 (of the URL alphabet).

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Point:
    ...     x: int
    >>> plain({"at": Point(3), "of": (1, 2), "raw": b"\\xff"})
    {'at': {'x': 3}, 'of': [1, 2], 'raw': '_w=='}
    """
    return to_jsonable_python(value, serialize_unknown=True, bytes_mode="base64")
