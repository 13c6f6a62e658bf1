"""Remember requests by key: who carries one out, whether it took effect, and its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple
from zlib import crc32

import msgspec

from pausepoint.errors import DamagedRecord
from pausepoint.model.remembered import Remembered, check_key, check_remembered
from pausepoint.stores.remembered import key_lost
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine
from pausepoint.stores.sql.rows import Flag, every, one, prepared

AT_ONCE = 8
"""How many expired requests are deleted whenever a new one is stored, so that they cannot pile up without `gc`."""

Takes = Callable[[int], bool]
"""Returns whether a verb treats a session, by its key, and notes that it does."""

_packed = msgspec.msgpack.Encoder().encode


@prepared
class _StoredRequest(NamedTuple):
    """A row of the table, without its checksum."""

    key: str
    digest: bytes
    answer: bytes | None
    until: int
    holder: Annotated[int, msgspec.Meta(ge=0)]
    took_effect: Flag


def remember(
    connection: Connection, engine: Engine, key: str, digest: bytes, answer: bytes | None, until: int,
    replaces: bytes | None = None,
) -> Remembered:  # fmt: skip
    check_remembered(key, digest, answer)
    kept = _present(connection, engine, key, "request_to_change")
    if kept is None:
        forget_expired(connection, engine.now(), AT_ONCE)
        connection.execute(connection.queries["forget_effects"], (key,))  # of an expired request that had the same key
        return _seen(
            engine, _write(connection, _StoredRequest(key, digest, answer, until, engine.number, 0)), answer is None
        )
    if kept.digest != digest:
        return _seen(engine, kept)
    if kept.answer is not None:
        moves = answer is not None and kept.answer == replaces
        return _seen(engine, _write(connection, kept._replace(answer=answer, until=until)) if moves else kept)
    other = kept.holder != engine.number and engine.present.alive(kept.holder)
    if other or (answer is None and kept.holder == engine.number):
        return _seen(engine, kept)
    now = kept._replace(answer=answer, until=until, holder=engine.number)
    if answer is not None and kept.took_effect:
        connection.execute(connection.queries["forget_effects"], (key,))  # it is not carried out again
    return _seen(engine, _write(connection, now), answer is None)


def recall(connection: Connection, engine: Engine, key: str) -> Remembered | None:
    kept = _present(connection, engine, check_key(key))
    return None if kept is None else _seen(engine, kept)


def forget(connection: Connection, engine: Engine, key: str) -> bool:
    connection.execute(connection.queries["forget_request"], (check_key(key), engine.number))
    return bool(connection.changes())


def forget_expired(connection: Connection, now: int, limit: int) -> int:
    connection.execute(connection.queries["forget_expired_effects"], (now, limit))
    connection.execute(connection.queries["forget_expired"], (now, limit))
    return connection.changes()


def took_effect(connection: Connection, engine: Engine, key: str) -> None:
    """Record, in the transaction of the effect, that the request took effect. Raises `KeyLost` if it may not."""
    kept = _present(connection, engine, key, "request_to_change")
    if kept is None or kept.holder != engine.number or kept.answer is not None:
        raise key_lost(key)
    _write(connection, kept._replace(took_effect=1))


def took_effect_on(connection: Connection, engine: Engine, key: str) -> Takes:
    """Record like `took_effect`, and return what decides about each session: a request takes effect on it once."""
    took_effect(connection, engine, key)

    def takes(session: int) -> bool:
        connection.execute(connection.queries["keep_effect"], (session, key))
        return bool(connection.changes())

    return takes


def takes_all(session: int) -> bool:
    """Return that a verb treats a session, whatever it has done before."""
    return True


def treated(connection: Connection, key: str) -> list[str]:
    return [session_id for (session_id,) in every(connection, connection.queries["treated"], key)]


def damaged(connection: Connection) -> list[str]:
    """Return a line for each request that cannot be read."""
    found = []
    for number, *stored in every(connection, connection.queries["all_requests"]):
        try:
            _verified(stored)
        except DamagedRecord:
            found.append(f"remembered request {number} does not match its checksum; it expires on its own")
    return found


def _present(connection: Connection, engine: Engine, key: str, query: str = "request") -> _StoredRequest | None:
    stored = one(connection, connection.queries[query], key)
    kept = None if stored is None else _verified(stored)
    return None if kept is None or kept.until <= engine.now() else kept


def _verified(stored: object) -> _StoredRequest:
    try:
        *facts, sum_ = msgspec.convert(stored, list)
        kept: _StoredRequest = msgspec.convert(facts, _StoredRequest, builtin_types=(bytes,))
    except (msgspec.ValidationError, ValueError) as exc:
        raise _damage(exc) from exc
    if _sum(kept) != sum_:
        raise _damage("it does not match its checksum")
    return kept


def _damage(why: object) -> DamagedRecord:
    return DamagedRecord(f"A remembered request cannot be read ({why}). Repeat the request with another key.")


def _write(connection: Connection, kept: _StoredRequest) -> _StoredRequest:
    connection.execute(connection.queries["keep_request"], (*kept, _sum(kept)))
    return kept


def _sum(kept: _StoredRequest) -> int:
    return crc32(_packed(tuple(kept)))


def _seen(engine: Engine, kept: _StoredRequest, claimed: bool = False) -> Remembered:
    at_work = kept.answer is None and (kept.holder == engine.number or engine.present.alive(kept.holder))
    return Remembered(kept.key, kept.digest, kept.answer, kept.until, claimed, at_work, bool(kept.took_effect))
