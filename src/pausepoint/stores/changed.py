"""What a store tells an engine about a change."""

from __future__ import annotations

from collections.abc import Callable

OnChange = Callable[[frozenset[int] | None], None]
"""Called with the keys of the sessions that have changed; None means that anything may have changed."""
