"""Values to bytes and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pausepoint.lazy import exported

if TYPE_CHECKING:
    from pausepoint.codec.values import Limits

_HOMES = {
    "Limits": "values",
}

__all__ = [
    "Limits",
]

__getattr__, __dir__ = exported(__name__, _HOMES)
