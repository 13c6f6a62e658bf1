"""The statements of the Postgres store, read once when this module is imported, and its schema."""

from __future__ import annotations

from pathlib import Path

from pausepoint.stores.sql import statements
from pausepoint.stores.sql.statements import Migration

_FOLDER = Path(__file__).parent

QUERIES, PARTS = statements.load(_FOLDER)


def schema() -> str:
    """Return the current schema."""
    return (_FOLDER / "schema.sql").read_text(encoding="utf-8")


def migrations() -> tuple[Migration, ...]:
    """Return the migrations from an empty database to the current schema, in order."""
    return statements.migrations(_FOLDER)
