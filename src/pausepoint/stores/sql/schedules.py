"""Schedules, one row each. Their checksum is verified whenever one is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import msgspec
from msgspec.structs import astuple

from pausepoint.errors import DamagedRecord
from pausepoint.model.commits import NewSession
from pausepoint.model.limits import LOOK_AGAIN, in_effect
from pausepoint.model.schedules import Fired, Schedule
from pausepoint.stores.sql import creation, limits, pickup
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine
from pausepoint.stores.sql.rows import every, one, prepared
from pausepoint.stores.text import of_schedule

_packed = msgspec.msgpack.Encoder().encode
_FIELDS = Schedule.__struct_fields__
_TAGS = _FIELDS.index("tags")


def every_one(connection: Connection) -> tuple[list[Schedule], list[DamagedRecord]]:
    found: list[Schedule] = []
    damage: list[DamagedRecord] = []
    for row in every(connection, connection.queries["schedules"]):
        try:
            found.append(_verified(row))
        except DamagedRecord as error:
            damage.append(error)
    return found, damage


def get(connection: Connection, name: str) -> Schedule | None:
    row = one(connection, connection.queries["schedule"], name)
    return None if row is None else _verified(row)


def due(connection: Connection, now: int, workflows: Sequence[str]) -> list[Schedule]:
    rows = every(connection, connection.queries["due_schedules"], now, msgspec.json.encode(workflows).decode())
    found: list[Schedule] = []
    for row in rows:
        try:
            found.append(_verified(row))
        except DamagedRecord:
            continue  # `schedules` and `verify` name it
    return found


def next_wake(connection: Connection, now: int, workflows: Sequence[str], tree: str | None) -> int | None:
    """Return when the next session or schedule is due, or may get to work. Schedules belong to no tree."""
    stored, _ = limits.read(connection)
    found = [pickup.next_wake(connection, now, workflows, tree), limits.next_at(stored, now)]
    if in_effect(stored) and pickup.has_due(connection, now, workflows, tree):
        found.append(now + LOOK_AGAIN)
    if tree is None:
        names = msgspec.json.encode(workflows).decode()
        found.append(connection.execute(connection.queries["next_schedule"], (now, names)).get)
    return min((at for at in found if at is not None), default=None)


def put(
    connection: Connection, engine: Engine, before: Schedule | None, after: Schedule, new: NewSession | None
) -> Fired:
    if get(connection, after.name) != before:
        return Fired(False)
    after = of_schedule(after)
    *facts, _ = stored = [*astuple(after), 0]
    facts[_TAGS] = stored[_TAGS] = msgspec.json.encode(after.tags).decode()
    stored[-1] = crc32(_packed(facts))
    connection.execute(connection.queries["put_schedule"], stored)
    return Fired(True, None if new is None else creation.create(connection, engine, new))


def drop(connection: Connection, name: str) -> bool:
    connection.execute(connection.queries["drop_schedule"], (name,))
    return bool(connection.changes())


def damaged(connection: Connection) -> list[str]:
    """Return a line for each schedule that cannot be read."""
    return [str(error) for error in every_one(connection)[1]]


prepared(Schedule)


def _verified(row: Any) -> Schedule:
    *facts, sum_ = row
    try:
        if crc32(_packed(facts)) != sum_:
            raise ValueError("it does not match its checksum")
        facts[_TAGS] = msgspec.json.decode(facts[_TAGS])
        return msgspec.convert(dict(zip(_FIELDS, facts, strict=True)), Schedule, builtin_types=(bytes,))
    except (msgspec.MsgspecError, ValueError, TypeError) as exc:
        raise DamagedRecord(
            f"The schedule {str(row[0])!r:.80} cannot be read ({exc}). Remove it, and add it again.", name=str(row[0])
        ) from exc
