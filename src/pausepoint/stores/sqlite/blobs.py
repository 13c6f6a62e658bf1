"""Large values, stored once by their hash, and the sessions that name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

import apsw

from pausepoint.errors import DamagedRecord
from pausepoint.stores.sqlite.sql import QUERIES


def read(connection: apsw.Connection, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for hash_ in hashes:
        data = _blob(connection, hash_)
        if data is None or sha256(data).digest() != hash_:
            what = "is missing" if data is None else "does not match its hash"
            raise DamagedRecord(
                f"The stored value {hash_.hex()} {what}. Restore the database from a backup.", hash=hash_.hex()
            )
        found[hash_] = data
    return found


def _blob(connection: apsw.Connection, hash_: bytes) -> bytes | None:
    """Read a blob through its handle. As a column, SQLite would copy it once more, which takes six times as long."""
    id: int | None = connection.execute(QUERIES["blob_place"], (hash_,)).get
    if id is None:
        return None
    try:
        blob = connection.blob_open("main", "blobs", "data", id, False)
    except apsw.SQLError:  # the stored value is not a blob
        return b""
    try:
        return blob.read()
    finally:
        blob.close(True)


def keep(
    connection: apsw.Connection, key: int, blobs: Sequence[tuple[bytes, bytes]], names: Sequence[bytes] = ()
) -> None:
    connection.executemany(QUERIES["keep_blob"], blobs)
    connection.executemany(QUERIES["name_blob"], [(key, hash_) for hash_, _ in blobs])
    connection.executemany(QUERIES["name_blob"], [(key, hash_) for hash_ in names])
