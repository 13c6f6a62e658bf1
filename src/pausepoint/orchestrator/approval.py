from __future__ import annotations
from collections.abc import Mapping, Sequence
from typing import Any


def restriction_of_call(name: str, arguments: Mapping[str, Any], patterns: Sequence[str]) -> str | None:
    return next((p for p in patterns if p in str(arguments.get("command", "")) or p == name), None)
