"""For LangGraph's own tests: replaces their checkpointer in memory by `PausepointSaver`, on a store in a file.

The serializer is LangGraph's default, because the tests keep values of their own types. Some tests expect the ids that
a counting ``uuid.uuid4`` gives, so the store, which marks its transactions with it, gets a function of its own.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from pausepoint.integrations.langgraph import PausepointSaver
from pausepoint.stores.sqlite import transactions


@contextmanager
def _saver() -> Iterator[PausepointSaver]:
    with (
        tempfile.TemporaryDirectory() as folder,
        PausepointSaver(Path(folder) / "threads.db", serde=JsonPlusSerializer()) as saver,
    ):
        saver.get_tuple({"configurable": {"thread_id": "none"}})  # opens the store: some tests measure time
        yield saver


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems() -> None:
    """Replace the checkpointer once the modules of the tests are imported."""
    transactions.uuid = SimpleNamespace(uuid4=uuid.uuid4)  # type: ignore[assignment, attr-defined]
    from tests import conftest

    assert hasattr(conftest, "_checkpointer_memory"), f"LangGraph's tests have changed: {conftest.__file__}"
    conftest._checkpointer_memory = _saver
