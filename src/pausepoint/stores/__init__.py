"""Stores for sessions: the `Store` protocol and its implementations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.lazy import exported

if TYPE_CHECKING:
    from pausepoint.stores.base import Store

_HOMES = {
    "Store": "base",
}

__all__ = [
    "Store",
]

__getattr__, __dir__ = exported(__name__, _HOMES)
