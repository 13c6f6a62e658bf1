"""For the tests of the OpenAI Agents SDK: replaces their ``SQLiteSession`` by `PausepointSession`, in a file.

The tests use a session on several event loops, so each call has an engine of its own.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from pausepoint import Engine
from pausepoint.integrations.openai_agents import DRAWER, PausepointSession

MODULES = ("test_session", "test_session_limit")


class _Drawer:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __getattr__(self, verb: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def call(*args: Any, **options: Any) -> Any:
            async with Engine(self._path) as engine:
                return await getattr(engine.drawer(DRAWER), verb)(*args, **options)

        return call


class _Opener:
    """What `PausepointSession` needs of an engine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def drawer(self, name: str, **options: Any) -> Any:
        return _Drawer(self._path)


class StoredSession(PausepointSession):
    """A session with the constructor of ``SQLiteSession``."""

    def __init__(self, session_id: str, db_path: str | Path = ":memory:", **options: Any) -> None:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "p.db" if str(db_path) == ":memory:" else Path(db_path)
        engine: Any = _Opener(path)
        super().__init__(engine, session_id, **options)

    def close(self) -> None:
        """The tests close their sessions; engines are closed after each call."""


def pytest_collection_modifyitems() -> None:
    """Replace the class once the modules of the tests are imported."""
    found = [module for name, module in sys.modules.items() if name.rpartition(".")[2] in MODULES]
    assert len(found) >= len(MODULES), "the tests of the SDK have changed"
    for module in found:
        assert hasattr(module, "SQLiteSession")
        vars(module)["SQLiteSession"] = StoredSession
