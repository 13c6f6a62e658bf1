"""A session as a document of Firestore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pausepoint.model.views import SessionInfo

LARGEST = 900_000
"""The most bytes of a state in a document, as Firestore counts them. Firestore takes 1 MiB for all fields."""

DEEPEST = 15
"""The most levels of a value. Firestore takes 20."""

_INTEGERS = range(-(2**63), 2**63)


def document(info: SessionInfo, state: Mapping[str, Any], mirror_id: str) -> dict[str, Any]:
    """Return the fields of a session's document."""
    values, as_json = _values(state)
    size = _size(values)
    return {
        "session_id": info.session_id, "workflow": info.workflow, "version": info.version, "current_step": info.step,
        "visit": info.visit, "status": info.status.value, "pause_requested": info.pause_requested,
        "cancel_requested": info.cancel_requested, "owner": info.owner, "tags": list(info.tags),
        "failure": None if info.failure is None else f"{info.failure.type}: {info.failure.message}",
        "progress": None if info.progress is None else list(info.progress), "spent_usd": info.spent_usd,
        "created_at": info.created_at, "updated_at": info.updated_at,
        "state": values if size <= LARGEST else None, "state_as_json": as_json, "state_bytes": size,
        "mirror": {"id": mirror_id, "pause_requested": info.pause_requested, "seq": info.seq, "signals": info.signals},
    }  # fmt: skip


def is_current(fields: Mapping[str, Any], info: SessionInfo) -> bool:
    """Return whether a document shows its session as it is. ``fields`` may be empty, or anything a client wrote."""
    mirror = fields.get("mirror")
    return (
        isinstance(mirror, dict)
        and fields.get("status") == info.status.value
        and (mirror.get("seq"), mirror.get("signals")) == (info.seq, info.signals)
        and mirror.get("pause_requested") is info.pause_requested
    )


def _values(state: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of a state, and the names of those that are JSON text because Firestore cannot hold them.

    >>> _values({"title": "Squid", "grid": [[1, 2], [3, 4]], "large": 2**63})
    ({'title': 'Squid', 'grid': '[[1,2],[3,4]]', 'large': '9223372036854775808'}, ['grid', 'large'])
    """
    as_json = [name for name, value in state.items() if not _fits(value, 1)]
    return {name: _text(value) if name in as_json else value for name, value in state.items()}, as_json


def _fits(value: Any, depth: int, inside_list: bool = False) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | list | dict):
        return True
    if isinstance(value, int):
        return value in _INTEGERS
    if depth > DEEPEST:
        return False
    if isinstance(value, list):
        return not inside_list and all(_fits(each, depth + 1, True) for each in value)
    return all(name and not name.startswith("__") and _fits(each, depth + 1) for name, each in value.items())


def _size(value: Any) -> int:
    """Return the bytes of a value, as Firestore counts them.

    >>> _size({"title": "Squid", "weights": [1, 2.5], "fresh": True})
    43
    """
    if isinstance(value, dict):
        return sum(_size(name) + _size(each) for name, each in value.items())
    if isinstance(value, list):
        return sum(map(_size, value))
    if isinstance(value, str):
        return len(value.encode()) + 1
    return 1 if value is None or isinstance(value, bool) else 8


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
