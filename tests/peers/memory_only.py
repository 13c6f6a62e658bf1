"""For LangGraph's own tests: runs those that use the checkpointer in memory, which `saver_plugin` replaces."""

from __future__ import annotations

import pytest

FIXTURES = ("sync_checkpointer", "async_checkpointer")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests without a checkpointer, and those with another one."""
    wanted = [item for item in items if _uses_memory(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = wanted


def _uses_memory(item: pytest.Item) -> bool:
    values = getattr(getattr(item, "callspec", None), "params", {})
    return any(values.get(name) == "memory" for name in FIXTURES)
