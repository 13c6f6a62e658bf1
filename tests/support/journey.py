"""A workflow that uses every kind of wait, and an operator who drives it; every execution is noted.

The workflow sleeps, receives messages, calls children, is paused by a guard, is edited, and is rewound twice. The
operator reads the store before each act, so another process can continue after one is killed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated, Any

from pydantic import BaseModel

from pausepoint import Append, Context, Engine, Session, Status, Workflow, guard, step
from pausepoint.errors import AlreadyRunning
from pausepoint.log.replay import body_of
from tests.support.points import points

WIDTH = 2
"""The largest number of operations in flight at the same time."""

REDONE = ("op close",)
"""The executions that a rewind repeats."""

NEWS = ("the tide turns", "the squid is back")
NAP = 0.003


class Leg(BaseModel):
    n: int
    miles: int = 0


class Trip(BaseModel):
    bag: str = ""
    heard: Annotated[list[str], Append] = []
    miles: list[int] = []
    cleared: bool = False
    stamps: dict[str, str] = {}
    refused: list[str] = []
    closed: str = ""


async def did(name: str, value: str = "ok") -> str:
    await points.begin(f"op {name}")
    return f"{name}={value}"


@step
async def walk(n: int, ctx: Context) -> None:
    await ctx.do(did, f"leg {n} set out")
    await ctx.sleep(NAP)
    ctx.spend(usd=0.5)
    await ctx.do(did, f"leg {n} arrived")


@step(writes="miles")
async def count(n: int, ctx: Context) -> int:
    return len(await ctx.do(did, f"leg {n} counted")) * n


leg = Workflow("leg", state=Leg, steps=[walk, count])


@step(writes="bag")
async def pack(ctx: Context) -> str:
    bag = await ctx.do(did, "pack", "a map")
    await ctx.sleep(NAP)
    return bag + await ctx.do(did, "pack more", "and a coat")


@step(writes="heard")
async def listen(ctx: Context) -> list[str]:
    first = await ctx.receive(str)
    await ctx.do(did, "note", first)
    return [first, await ctx.receive(str)]


@step(writes="miles")
async def travel(ctx: Context) -> list[int]:
    ctx.spend(usd=1)
    legs = await asyncio.gather(*(ctx.call(leg, n=n) for n in (1, 2)))
    return [each.miles for each in legs]


@step(writes=["stamps", "refused"])
async def customs(cleared: bool, ctx: Context) -> dict[str, Any]:
    async def stamp(what: str) -> str:
        if what == "coat" and not cleared:
            raise ValueError("the coat has to be cleared")
        return await did(f"stamp {what}")

    bag = ["map", "coat"]
    batch = await ctx.map(stamp, bag, key=str, on_error="collect")
    done = {bag[n]: text for n, text in batch.done.items()}
    return {"stamps": done, "refused": [str(error) for error in batch.failed.values()]}


@guard(after="customs")
def all_stamped(stamps: dict[str, str]) -> str | None:
    return None if len(stamps) == 2 else "not everything is stamped"


@step(writes="closed")
async def close(miles: list[int], ctx: Context) -> str:
    return await ctx.do(did, "close", str(sum(miles)))


journey = Workflow("journey", state=Trip, steps=[pack, listen, travel, customs, close], guards=[all_stamped])


async def go(engine: Engine, session_id: str, is_new: bool) -> Status:
    """Drive a journey from any position until it ends."""
    if is_new:
        session: Session[Any] = await engine.start(journey, session_id=session_id)
    else:
        session = engine.session(session_id)
        await help_along(engine, session, await session.status())
    status = Status.READY
    for _ in range(20):
        status = (await session.outcome()).status
        if status is Status.COMPLETED and await rewinds(engine, session_id) == 2:
            return status
        await help_along(engine, session, status)
    raise AssertionError(f"the journey does not come to its end; it is {status}")


async def help_along(engine: Engine, session: Session[Any], status: Status) -> None:
    if status is Status.WAITING and "message" in (await session.info()).waiting:
        await session.send(NEWS[await count_of(engine, session.id, "message")])
        return
    if status is Status.PAUSED and await rewinds(engine, session.id) == 0:
        await session.rewind("customs", reuse=True)
    if status in (Status.PAUSED, Status.READY) and await rewinds(engine, session.id) == 1:
        if not (await session.state()).cleared:  # edit before the resume, or the guard refuses again
            await session.edit(cleared=True, by="ann", reason="it is an old coat")
    elif status is Status.COMPLETED and await rewinds(engine, session.id) == 1:
        await session.rewind("close")
    await resumed(session)


async def resumed(session: Session[Any]) -> None:
    with suppress(AlreadyRunning):  # it may have woken on its own
        await session.resume()


async def rewinds(engine: Engine, session_id: str) -> int:
    row = await engine.store.get(session_id)
    assert row is not None
    return sum(record.kind == "rewind" for record in await engine.store.records(row.key, 1))


async def count_of(engine: Engine, session_id: str, kind: str) -> int:
    """Return the number of signals of a kind."""
    row = await engine.store.get(session_id)
    assert row is not None
    return sum(signal.kind == kind for signal in await engine.store.signals(row.key, 0))


def label_of(record: Any) -> str:
    """Return the execution whose result a record stores, or an empty string."""
    body = body_of(record)
    if record.kind != "operation" or body.total or body.name not in ("did", "stamp"):
        return ""
    return "op " + bytes(body.value.data).decode().strip('"').partition("=")[0]
