"""A store in a Postgres database, accessed through psycopg (the extra ``postgres``).

The verbs are those of `pausepoint.stores.sql`. What differs is here: a verb first locks the rows of its sessions in
ascending order of their keys, and the gate that orders it against the pause of everything; engines have leases.
"""

from __future__ import annotations

from pausepoint.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
