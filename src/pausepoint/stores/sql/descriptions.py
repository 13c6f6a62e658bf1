"""Descriptions of workflows, each stored once. Their digest is verified whenever one is read."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from pausepoint.errors import DamagedRecord
from pausepoint.model.descriptions import MOST_DESCRIPTIONS, StoredDescription
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.rows import every, one


def keep(connection: Connection, new: StoredDescription) -> None:
    stored = new.workflow, new.version, new.digest, new.document, new.seen_at
    connection.execute(connection.queries["keep_description"], stored)
    connection.execute(connection.queries["forget_old_descriptions"], (new.workflow, new.version, MOST_DESCRIPTIONS))


def seen_at(connection: Connection, digest: bytes) -> int | None:
    row = one(connection, connection.queries["description"], digest)
    return int(row[-1]) if row is not None and _intact(row) else None


def read(connection: Connection, workflow: str | None) -> tuple[list[StoredDescription], list[DamagedRecord]]:
    query = "newest_descriptions" if workflow is None else "descriptions"
    rows = every(connection, connection.queries[query], *([] if workflow is None else [workflow]))
    found: list[StoredDescription] = []
    damage: list[DamagedRecord] = []
    for row in rows:
        found.append(StoredDescription(*row[1:])) if _intact(row) else damage.append(_damage(row))
    return found, damage


def forget(connection: Connection, before: int, limit: int) -> int:
    connection.execute(connection.queries["forget_descriptions"], (before, limit))
    return connection.changes()


def damaged(connection: Connection) -> list[str]:
    """Return a line for each description that does not match its digest."""
    rows = every(connection, connection.queries["all_descriptions"])
    return [f"description {row[0]} of a workflow does not match its digest" for row in rows if not _intact(row)]


def _intact(row: Any) -> bool:
    _, workflow, version, digest, document, at = row
    typed = isinstance(workflow, str) and isinstance(version, int) and isinstance(at, int)
    return typed and isinstance(document, bytes) and sha256(document).digest() == digest


def _damage(row: Any) -> DamagedRecord:
    return DamagedRecord(
        f"The description of workflow {str(row[1])!r:.80} does not match its digest. It is stored again when a session"
        " of the workflow starts or resumes."
    )
