"""Cut every verb by cancelling its task after 0, 1, 2, … turns of the loop, and look at what it left behind.

    python -m tests.faults.cuts --seconds 600 --seed 1

A web framework cancels the task of a request that goes away, so every verb must be safe to cut: it takes effect as a
whole, or not at all, or the engine completes it. Prints the counts and every failure, and exits with 1 if there is one.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.errors import PausepointError, UnknownSession
from pausepoint.model.sessions import Filter
from pausepoint.stores.sqlite import SqliteStore
from tests.faults.tally import Tally, main
from tests.support.folders import scratch
from tests.support.loop import PATIENCE

MOST_TICKS = 5_000
LEAVES = 2
"""The questions of a tree: its leaves ask one each."""
OVER = (Status.COMPLETED, Status.CANCELLED)
MAY_LEAVE_NOTHING = ("start", "start paused", "import", "remove")
"""The verbs after which there may be no session: a start or an import that was cut at once, and a removal."""


class Leaf(BaseModel):
    n: int
    out: str = ""


class Tree(BaseModel):
    note: str = ""
    outs: list[str] = []


@step(writes="out")
async def wonder(n: int, ctx: Context) -> str:
    return await ctx.ask(f"What about {n}?", str, key="what", expires=None)


leaf = Workflow("leaf", state=Leaf, steps=[wonder])


async def look_up() -> str:
    return "known"


@step(writes="outs")
async def branch(ctx: Context) -> list[str]:
    await ctx.do(look_up)
    return [found.out for found in await asyncio.gather(*(ctx.call(leaf, n=n) for n in range(1, LEAVES + 1)))]


tree = Workflow("tree", state=Tree, steps=[branch])


async def nothing(engine: Engine, id: str) -> None:
    return None


async def waiting(engine: Engine, id: str) -> None:
    """Start a tree, and let it go as far as its questions."""
    await engine.start(tree, session_id=id)
    while len(await engine.session(id).questions()) < LEAVES:  # a leaf that was just created looks calm, too
        if await engine.standing_pause() is not None:  # a pause of everything that was cut took effect afterwards
            await engine.lift_pause()
            await engine.session(id).resume()
        await asyncio.sleep(0.001)
    await settled(engine, id)


async def paused(engine: Engine, id: str) -> None:
    await waiting(engine, id)
    await engine.session(id).pause()
    await settled(engine, id)


async def ready(engine: Engine, id: str) -> None:
    """Store a tree that no engine drives, although nothing stops it."""
    await engine.start(tree, session_id=id, paused=True)
    await engine.store.unpause(id, None, engine.clock.now())


async def asked(engine: Engine, id: str) -> str:
    return (await engine.session(id).questions())[0].id


async def answered(engine: Engine, id: str) -> Any:
    return await engine.answer(await asked(engine, id), "this", by="ann")


async def everything(engine: Engine, id: str) -> None:
    """Pause everything and lift that pause. Whatever is cut, the pause can be lifted afterwards."""
    await engine.pause_all()
    await engine.lift_pause()


async def exported(engine: Engine, id: str) -> None:
    """Export a session that has a file."""
    session = await engine.start(leaf, session_id=f"{id}-source", paused=True, n=1)
    await session.files.add(b"content", "notes.txt")
    await engine.session(session.id).export(export_of(engine))


def export_of(engine: Engine) -> Path:
    assert isinstance(engine.store, SqliteStore)
    return Path(f"{engine.store.path}.jsonl")


class Verb(NamedTuple):
    """A verb to cut. ``prepare`` brings its session to where it makes sense."""

    prepare: Callable[[Engine, str], Awaitable[Any]]
    call: Callable[[Engine, str], Awaitable[Any]]


VERBS: dict[str, Verb] = {
    "start": Verb(nothing, lambda engine, id: engine.start(tree, session_id=id)),
    "start paused": Verb(nothing, lambda engine, id: engine.start(tree, session_id=id, paused=True)),
    "pause": Verb(waiting, lambda engine, id: engine.session(id).pause()),
    "pause and wait": Verb(waiting, lambda engine, id: engine.session(id).pause(wait=True)),
    "pause everything": Verb(waiting, everything),
    "resume": Verb(paused, lambda engine, id: engine.session(id).resume()),
    "resume elsewhere": Verb(paused, lambda engine, id: engine.session(id).resume(here=False)),
    "take up": Verb(ready, lambda engine, id: engine.session(id).take_up()),
    "take ready": Verb(ready, lambda engine, id: engine.take_ready()),
    "cancel": Verb(waiting, lambda engine, id: engine.session(id).cancel(reason="enough")),
    "cancel paused": Verb(paused, lambda engine, id: engine.session(id).cancel(reason="enough")),
    "edit": Verb(waiting, lambda engine, id: engine.session(id).edit(note="changed")),
    "rewind": Verb(waiting, lambda engine, id: engine.session(id).rewind("branch")),
    "forget": Verb(waiting, lambda engine, id: engine.session(id).forget("look_up")),
    "replace": Verb(waiting, lambda engine, id: engine.session(id).rewind(to_operation="look_up", result="new")),
    "fork": Verb(waiting, lambda engine, id: engine.session(id).fork(session_id=f"{id}-fork")),
    "send": Verb(ready, lambda engine, id: engine.session(id).send("hello")),
    "answer": Verb(waiting, answered),
    "emit": Verb(paused, lambda engine, id: engine.session(id).emit("told", "a fact")),
    "import": Verb(exported, lambda engine, id: engine.import_session(export_of(engine), session_id=id)),
    "redact": Verb(paused, lambda engine, id: engine.session(id).redact(field="note")),
    "remove": Verb(paused, lambda engine, id: engine.session(id).remove()),
    "outcome": Verb(waiting, lambda engine, id: engine.session(id).outcome()),
    "verify": Verb(waiting, lambda engine, id: engine.session(id).verify()),
}


class Cut(NamedTuple):
    """The result of one trial: whether the verb was cut before its end, and what was wrong afterwards."""

    before_its_end: bool
    wrong: list[str]


async def settled(engine: Engine, id: str) -> None:
    """Wait until this engine drives nothing of the tree, and nothing of it is about to be driven."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        rows = await engine.store.find(Filter(session_id=id, tree=True))
        calm = [row for row in rows if not row.live and row.status is not Status.READY and not row.due]
        stopped = rows and rows[-1].pause_requested
        if len(calm) == len(rows) or (stopped and not any(row.live for row in rows)):
            return
        await engine.idle(*(row.session_id for row in rows))
        await asyncio.sleep(0.001)
    raise AssertionError(f"{id} did not settle within {PATIENCE} seconds")


async def cut(engine: Engine, name: str, id: str, ticks: int) -> Cut:
    """Call a verb, cancel its task after so many turns of the loop, and return what is wrong afterwards."""
    verb = VERBS[name]
    await verb.prepare(engine, id)
    task = asyncio.ensure_future(verb.call(engine, id))
    for _ in range(ticks):
        if task.done():
            break
        await asyncio.sleep(0)
    is_cut = task.cancel()
    wrong: list[str] = []
    try:
        await task
    except asyncio.CancelledError:
        pass
    except PausepointError as error:
        wrong = [f"raised {type(error).__name__}: {error}"]
    try:
        wrong += await after(engine, name, id)
    except UnknownSession:
        wrong += [] if name in MAY_LEAVE_NOTHING else ["the session is gone"]
    if engine._service.waker.task is None or engine._service.waker.task.done():
        wrong.append("the engine no longer picks up sessions")
    return Cut(is_cut, wrong)


async def after(engine: Engine, name: str, id: str) -> list[str]:
    """Return what is wrong with a tree after a cut. In the end the tree is cancelled."""
    wrong = await damage(engine, id)
    if name in ("rewind", "forget", "replace"):
        await engine.session(id).resume()
        await settled(engine, id)
        if (count := len(await engine.session(id).questions())) != LEAVES:
            wrong.append(f"{count} open questions instead of {LEAVES}")
    await engine.session(id).cancel()
    rows = await engine.store.find(Filter(session_id=id, tree=True))
    await engine.idle(*(row.session_id for row in rows))
    rows = await engine.store.find(Filter(session_id=id, tree=True))
    wrong += [f"{row.session_id} is {row.status.value} after a second cancel" for row in rows if row.status not in OVER]
    if await engine.session(id).questions():
        wrong.append("questions of a cancelled tree are still open")
    return wrong + await damage(engine, id)


async def damage(engine: Engine, id: str) -> list[str]:
    """Verify a tree once nothing drives it."""
    rows = await engine.store.find(Filter(session_id=id, tree=True))
    await engine.idle(*(row.session_id for row in rows))
    found = [await engine.session(row.session_id).verify() for row in rows]
    return [str(problem) for report in found for problem in report.problems]


def denser_at_first(tick: int) -> int:
    """Every one of the first ticks. In most of the later ones the loop only waits for the disk."""
    return 1 if tick < 64 else tick // 8


async def cuts_of(
    engine: Engine, name: str, step: Callable[[int], int] = denser_at_first
) -> tuple[int, list[str]]:  # fmt: skip
    """Cut a verb ``step(tick)`` ticks apart, until it completes. Return the cuts and the failures."""
    wrong: list[str] = []
    ticks = count = 0
    while ticks < MOST_TICKS:
        found = await cut(engine, name, f"{name.replace(' ', '-')}-{ticks}", ticks)
        wrong += [f"{name} cut at tick {ticks}: {text}" for text in found.wrong]
        if not found.before_its_end:
            break
        count += 1
        ticks += step(ticks)
    return count, wrong


async def whole_store(path: Path) -> list[str]:
    """Verify a store after it is opened again."""
    async with Engine(path, workflows=[tree, leaf], drives="none", signals=False) as engine:
        return [str(problem) for problem in (await engine.verify()).problems]


def opened(path: Path) -> Engine:
    return Engine(path, workflows=[tree, leaf], drives="asked", signals=False)


async def cut_all(tally: Tally) -> None:
    """Cut all verbs in random order until the time is up: at each of the first ticks, and at some of the later ones."""
    with scratch() as folder:
        for number in itertools.takewhile(lambda _: tally.has_time(), itertools.count()):
            path = folder / f"{number}.db"
            async with opened(path) as engine:
                for name in tally.draw.sample(sorted(VERBS), len(VERBS)):
                    stride = lambda tick: 1 if tick < 40 else tally.draw.randint(1, 20)  # noqa: E731
                    count, wrong = await cuts_of(engine, name, stride)
                    tally.done[f"cuts of {name}"] += count
                    for text in wrong:
                        tally.fail(text)
                    if not tally.has_time():
                        break
            for text in await whole_store(path):
                tally.fail(text)


def run(tally: Tally) -> None:
    asyncio.run(cut_all(tally))


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
