"""The engines that have a store open, or died while they held sessions."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from pausepoint.model.stores import Holder
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Present
from pausepoint.stores.sql.rows import every


def _names(stored: str) -> tuple[str, ...]:
    try:
        return msgspec.json.decode(stored, type=tuple[str, ...])
    except msgspec.MsgspecError:
        return ()  # damaged; it must not hide the engine


def holders(connection: Connection, present: Present) -> list[Holder]:
    held = defaultdict(list)
    for number, session_id in every(connection, connection.queries["held_sessions"]):
        held[number].append(str(session_id))
    engines = every(connection, connection.queries["engines"])
    known = [
        Holder(
            number, pid, host, since, present.alive(number), tuple(held.pop(number, ())), _names(driven),
            None if queues is None else _names(queues),
        )
        for number, pid, host, since, driven, queues in engines
    ]  # fmt: skip
    # The row of an engine that died may be missing.
    lost = [Holder(number, 0, "", 0, present.alive(number), tuple(ids)) for number, ids in held.items()]
    return [each for each in known + lost if each.live or each.sessions]
