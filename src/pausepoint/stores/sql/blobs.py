"""Large values, stored once by their hash, and the sessions that name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

from pausepoint.errors import DamagedRecord
from pausepoint.stores.sql.connection import Connection


def read(connection: Connection, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for hash_ in hashes:
        data = connection.read_blob(hash_)
        if data is None or sha256(data).digest() != hash_:
            what = "is missing" if data is None else "does not match its hash"
            raise DamagedRecord(
                f"The stored value {hash_.hex()} {what}. Restore the database from a backup.", hash=hash_.hex()
            )
        found[hash_] = data
    return found


def keep(connection: Connection, key: int, blobs: Sequence[tuple[bytes, bytes]], names: Sequence[bytes] = ()) -> None:
    connection.executemany(connection.queries["keep_blob"], blobs)
    connection.executemany(connection.queries["name_blob"], [(key, hash_) for hash_, _ in blobs])
    connection.executemany(connection.queries["name_blob"], [(key, hash_) for hash_ in names])
