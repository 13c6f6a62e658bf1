"""Flip single bits in a closed database file, and note what each read returns."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pausepoint import Engine
from pausepoint.errors import StoreError
from pausepoint.stores.sqlite import SqliteStore
from tests.faults.programs import SESSION, Clock, Program


class Flip(NamedTuple):
    """One flipped bit, and the result of every read: "right", the name of an error, or "wrong: …"."""

    offset: int
    bit: int
    answers: dict[str, str]


Read = Callable[[Engine], Awaitable[Any]]


async def _state(engine: Engine) -> Any:
    return await engine.session(SESSION).state()


async def _visits(engine: Engine) -> Any:
    return await engine.session(SESSION).checkpoints(limit=None)


async def _events(engine: Engine) -> Any:
    return [event async for event in engine.session(SESSION).events()]


async def _info(engine: Engine) -> Any:
    return await engine.session(SESSION).info()


async def _pauses(engine: Engine) -> Any:
    row = await engine.store.get(SESSION)
    return None if row is None else await engine.store.pauses(row.key, open_only=False)


READS: dict[str, Read] = {"state": _state, "visits": _visits, "events": _events, "info": _info, "pauses": _pauses}
PROVED = ("state", "visits", "events")
"""The reads whose every byte is covered by a digest."""


def wrong_answers(flips: Sequence[Flip], reads: Sequence[str] = PROVED) -> list[Flip]:
    """Return the flips after which one of these reads returned something wrong."""
    return [flip for flip in flips if any(flip.answers[read].startswith("wrong") for read in reads)]


async def read_all(program: Program, path: Path) -> dict[str, Any]:
    """Return the result of every read: a value, or the error that it raised."""
    clock = Clock(9)
    engine = Engine(SqliteStore(path, clock=clock), workflows=[program.workflow], clock=clock, signals=False)
    try:
        await engine.__aenter__()
    except Exception as error:
        return dict.fromkeys(READS, error)
    given: dict[str, Any] = {}
    for name, read in READS.items():
        try:
            given[name] = await read(engine)
        except Exception as error:
            given[name] = error
    with suppress(StoreError):
        await engine.close()
    return given


async def flip(program: Program, original: bytes, path: Path, seed: int, count: int, within: bytes = b"") -> list[Flip]:
    """Flip ``count`` bits, one at a time, each in a new copy of the file. ``within`` limits the flips to its bytes."""
    path.write_bytes(original)
    right = await read_all(program, path)
    rng = random.Random(seed)
    # Zeros are mostly unused space, so they get only one flip in four.
    used = [offset for offset, byte in enumerate(original) if byte]
    if within:
        start = original.index(within)
        used = list(range(start, start + len(within)))
    found = []
    for _ in range(count):
        everywhere = not within and rng.random() < 0.25
        offset, bit = rng.randrange(len(original)) if everywhere else rng.choice(used), rng.randrange(8)
        flipped = bytearray(original)
        flipped[offset] ^= 1 << bit
        for leftover in path.parent.glob(path.name + "*"):
            leftover.unlink()
        path.write_bytes(flipped)
        given = await read_all(program, path)
        found.append(Flip(offset, bit, {name: _judged(value, right[name]) for name, value in given.items()}))
    return found


def _judged(value: Any, right: Any) -> str:
    if isinstance(value, StoreError):
        return type(value).__name__
    if isinstance(value, Exception):
        return f"wrong: {type(value).__name__}: {value}"
    return "right" if value == right else f"wrong: {value}"
