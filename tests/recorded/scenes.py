"""The stores that are kept in this folder: how each one is recorded, and how its sessions are brought to their end."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel

from pausepoint import Append, Artifact, Budget, Context, Engine, Retry, Status, Workflow, guard, step
from pausepoint.testing import ManualClock
from tests.recorded.workflows import WORKFLOWS, poll, shelf, wake
from tests.support.status import settled

DATABASE = "store.db"
PAGES = "pages"
BUNDLE = "session.jsonl"

# The workflows. A later version must still run them on what this one stored.


class Part(BaseModel):
    n: int
    heard: str = ""


@step(writes="heard")
async def hear(n: int, ctx: Context) -> str:
    return f"{n}: {await ctx.receive()}"


part = Workflow("part", state=Part, steps=[hear])


class Whole(BaseModel):
    parts: list[str] = []
    files: list[str] = []


@step(writes=["parts", "files"])
async def gather(ctx: Context) -> dict[str, Any]:
    heard = await asyncio.gather(*[ctx.call(part, n=n) for n in range(2)])
    files = []
    for file in await ctx.files.list():
        with await ctx.files.open(file.file_id) as stream:
            files.append(f"{file.filename}: {stream.read().decode()}")
    return {"parts": [each.heard for each in heard], "files": files}


whole = Workflow("whole", state=Whole, steps=[gather])

doors = {"open": False}
"""What the outside world looks like: closed while stores are recorded, open when they are resumed."""


class Press(BaseModel):
    company: str
    facts: list[str] = []
    sections: dict[str, str] = {}
    memo: str = ""
    log: Annotated[list[str], Append] = []


called: list[str] = []
"""The words with which the operation below has run."""


async def call(word: str) -> str:
    called.append(word)
    return word.upper()


@step(writes=["facts", "log"], publishes=Artifact("facts.json", carries="facts", min_bytes=1))
async def research(company: str, ctx: Context) -> dict[str, Any]:
    return {"facts": [await ctx.do(call, company)], "log": ["research"]}


@step(writes="sections", publishes=Artifact("sections/*.md", min_bytes=1))
async def draft(facts: list[str]) -> dict[str, str]:
    return {"team": f"{facts[0]} team\n", "risks": f"{facts[0]} risks\n"}


@step(writes=["memo", "log"], publishes=Artifact("memo.md", carries="memo", min_bytes=1))
async def write(sections: dict[str, str]) -> dict[str, Any]:
    return {"memo": "".join(sections.values()), "log": ["write"]}


@guard(after=draft)
def reviewed(company: str) -> str | None:
    return None if doors["open"] else "a person must read the sections"


press = Workflow("press", state=Press, steps=[research, draft, write], guards=[reviewed])


class Errand(BaseModel):
    goal: str
    done: list[str] = []


async def deliver(goal: str, ctx: Context) -> str:
    ctx.spend(usd=0.5, tokens=7)
    if not doors["open"]:
        raise ConnectionError(f"{goal}: the door is closed")
    return f"{goal} delivered"


@step(writes="done")
async def run_errand(goal: str, ctx: Context) -> list[str]:
    first = await ctx.do(call, goal)
    return [first, await ctx.do(deliver, goal, retry=Retry(attempts=2, first=0))]


errand = Workflow("errand", state=Errand, steps=[run_errand])

ALL = [*WORKFLOWS.values(), part, whole, press, errand]


# The scenes.


@asynccontextmanager
async def engine_at(folder: Path, drives: Any = "all") -> AsyncIterator[Engine]:
    """Open the store of a folder, on the day on which it was recorded."""
    async with Engine(folder / DATABASE, workflows=ALL, clock=ManualClock(), drives=drives) as engine:
        yield engine


async def ended(engine: Engine, session_id: str) -> dict[str, Any]:
    """Wait for the end of a session and return its state."""
    session = engine.session(session_id)
    while (status := await session.status()) is not Status.COMPLETED:
        assert status is not Status.FAILED, (await session.info()).failure
        await asyncio.sleep(0.001)
    await settled(session, Status.COMPLETED)
    state: BaseModel = await session.state()
    return state.model_dump(mode="json")


async def record_completed(folder: Path) -> None:
    async with engine_at(folder) as engine:
        session = await engine.start(
            shelf, name="books", session_id="s-1", owner="ann", tags=["a", "b"], budget=Budget(usd=9)
        )
        await settled(session, Status.COMPLETED)


async def finish_completed(engine: Engine, folder: Path) -> dict[str, Any]:
    again = await engine.session("s-1").fork(at_step="count", session_id="s-2")
    state = await ended(engine, again.id)
    return state | {"words": sorted(state["words"])}  # a set has no order


async def record_failed(folder: Path) -> None:
    async with engine_at(folder) as engine:
        session = await engine.start(errand, goal="tea", session_id="s-1")
        await settled(session, Status.FAILED)


async def finish_resumed(engine: Engine, folder: Path) -> dict[str, Any]:
    await engine.session("s-1").resume(by="ann")
    return await ended(engine, "s-1")


async def record_paused(folder: Path) -> None:
    """One is paused by a person, and everything is: a session that is started then is stored paused."""
    async with engine_at(folder) as engine:
        session = await engine.start(errand, goal="tea", session_id="s-1", paused=True, reason="lunch", by="ann")
        await session.outcome()
        await engine.pause_all(reason="holidays", by="bob")
        await (await engine.start(errand, goal="cake", session_id="s-2")).outcome()


async def finish_paused(engine: Engine, folder: Path) -> dict[str, Any]:
    await engine.lift_pause(by="bob")
    await engine.session("s-1").resume(by="ann")
    return {"s-1": await ended(engine, "s-1"), "s-2": await ended(engine, "s-2")}


async def record_waiting(folder: Path) -> None:
    async with engine_at(folder) as engine:
        await settled(await engine.start(wake, session_id="s-1"), Status.SLEEPING)


async def finish_waiting(engine: Engine, folder: Path) -> dict[str, Any]:
    advance(engine, timedelta(hours=8))
    await engine.session("s-1").send("good morning", by="ann")
    return await ended(engine, "s-1")


async def record_asked(folder: Path) -> None:
    """The first answer was refused, so the question stands with a second round."""
    async with engine_at(folder) as engine:
        session = await engine.start(poll, session_id="s-1")
        await settled(session)
        await session.send("many", by="ann")
        await settled(session)


async def finish_asked(engine: Engine, folder: Path) -> dict[str, Any]:
    session = engine.session("s-1")
    for said in ("3", "cross", "yes"):
        await settled(session)
        [question] = await session.questions()
        await session.answer(said, question=question.id, by="ann")
    return await ended(engine, "s-1")


async def record_family(folder: Path) -> None:
    """A parent with a file and a drawer waits for two children: one has heard its message, the other has not."""
    async with engine_at(folder) as engine:
        session = await engine.start(whole, session_id="s-1", paused=True)
        await session.files.add(b"bytes of a file", "notes.txt", by="ann", course="calc2")
        drawer = engine.drawer("notes", session="s-1")
        await drawer.append("day-1", [b"rain", b"sun"])
        await drawer.put("mood", b"good")
        await session.resume()
        await _listening(engine, 2)
        first, _ = sorted(await session.children(), key=lambda info: info.session_id)
        await engine.session(first.session_id).send("hello")
        await settled(engine.session(first.session_id), Status.COMPLETED)
        await settled(session)
        await engine.drawer("shared").append("log", [b"one"])
        await engine.session("s-1").export(folder / BUNDLE)


async def _listening(engine: Engine, count: int) -> None:
    while len(await engine.sessions(status=Status.WAITING, workflow="part")) < count:
        await asyncio.sleep(0.001)


async def finish_family(engine: Engine, folder: Path) -> dict[str, Any]:
    for info in await engine.sessions(status=Status.WAITING, workflow="part"):
        await engine.session(info.session_id).send("hello again")
    drawer = engine.drawer("notes", session="s-1")
    mood = await drawer.get("mood")
    assert mood is not None
    kept = [mood.data, *(await drawer.read("day-1") or []), *(await engine.drawer("shared").read("log") or [])]
    return {"state": await ended(engine, "s-1"), "drawers": [data.decode() for data in kept]}


async def finish_bundle(engine: Engine, folder: Path) -> dict[str, Any]:
    """The exported file of the same family, in a store that never had it."""
    async with engine_at(folder / "new") as other:
        await other.import_session(folder / BUNDLE)
        await other.session("s-1").resume()
        await _listening(other, 1)
        for info in await other.sessions(status=Status.WAITING, workflow="part"):
            await other.session(info.session_id).send("hello from a file")
        return await ended(other, "s-1")


async def record_scheduled(folder: Path) -> None:
    async with engine_at(folder) as engine:
        await engine.schedule("tea", errand, cron="0 7 * * *", zone="Europe/Berlin", by="ann", tags=["t"], goal="tea")
        await engine.schedule("cake", errand, cron="30 15 * * 0", overlap="queue", catch_up="all", goal="cake")
        await engine.schedules.pause("cake", by="bob")


async def finish_scheduled(engine: Engine, folder: Path) -> dict[str, Any]:
    [due] = [info for info in await engine.schedules.list() if info.name == "tea"]
    assert due.next_at is not None
    advance(engine, due.next_at - clock_of(engine).time)
    while not (started := await engine.sessions(workflow="errand")):
        await asyncio.sleep(0.001)
    await engine.schedules.resume("cake")
    triggered = await engine.schedules.trigger("cake")
    while not await engine.sessions(prefix=triggered):
        await asyncio.sleep(0.001)
    return {started[0].session_id: await ended(engine, started[0].session_id), "cake": await ended(engine, triggered)}


async def record_published(folder: Path) -> None:
    """A guard holds the session after two steps have published. A person has edited a file since."""
    with TemporaryDirectory(prefix="pausepoint-recorded-") as made:
        async with engine_at(folder) as engine:
            session = await engine.start(press, session_id="s-1", company="ferns", folder=made)
            await settled(session, Status.PAUSED)
        (Path(made) / "sections" / "team.md").write_text("FERNS team, as ann sees it\n", "utf-8")
        shutil.copytree(made, folder / PAGES)


async def finish_published(engine: Engine, folder: Path) -> dict[str, Any]:
    """The path of its folder was another machine's, so the session moves to a store beside the recorded folder."""
    await engine.session("s-1").export(folder / BUNDLE)
    async with engine_at(folder / "new") as other:
        await other.import_session(folder / BUNDLE, folder=folder / PAGES)
        session = await other.session("s-1").resume(edits="accept", by="ann")
        state = await ended(other, session.id)
    files = [path for path in sorted((folder / PAGES).rglob("*")) if path.is_file()]
    published = {
        path.relative_to(folder / PAGES).as_posix(): path.read_text("utf-8")
        for path in files
        if ".pausepoint" not in path.parts
    }
    return {"state": state, "files": published}


async def finish_rebuilt(engine: Engine, folder: Path) -> dict[str, Any]:
    """The recorded folder of artifacts alone, without its store."""
    async with engine_at(folder / "new") as other:
        session = await other.rebuild(folder / PAGES, press)
        await session.resume(edits="accept", by="ann")
        return await ended(other, session.id)


async def record_killed(folder: Path) -> None:
    """The files as a killed process leaves them: a write-ahead log, a remembered operation, one that had begun."""
    began, copied = asyncio.Event(), asyncio.Event()

    async def deliver(goal: str) -> str:
        began.set()
        await copied.wait()
        return goal

    @step(name="run_errand", writes="done")
    async def interrupted(goal: str, ctx: Context) -> list[str]:
        return [await ctx.do(call, goal), await ctx.do(deliver, goal)]

    with TemporaryDirectory() as place:
        async with Engine(Path(place) / DATABASE, clock=ManualClock()) as engine:
            await engine.start(Workflow("errand", state=Errand, steps=[interrupted]), goal="tea", session_id="s-1")
            await began.wait()
            await asyncio.to_thread(shutil.copytree, place, folder, dirs_exist_ok=True)
            copied.set()


async def finish_killed(engine: Engine, folder: Path) -> dict[str, Any]:
    called.clear()
    await engine.session("s-1").resume(by="ann")
    return {"state": await ended(engine, "s-1"), "ran again": list(called)}


def clock_of(engine: Engine) -> ManualClock:
    assert isinstance(engine.clock, ManualClock)
    return engine.clock


def advance(engine: Engine, duration: timedelta) -> None:
    clock_of(engine).advance(duration)


class Scene(NamedTuple):
    """A kind of store: how it is recorded, and every way in which its sessions are brought to an end."""

    record: Callable[[Path], Awaitable[None]]
    finish: tuple[Callable[[Engine, Path], Awaitable[dict[str, Any]]], ...]


SCENES = {
    "completed": Scene(record_completed, (finish_completed,)),
    "failed": Scene(record_failed, (finish_resumed,)),
    "paused": Scene(record_paused, (finish_paused,)),
    "waiting": Scene(record_waiting, (finish_waiting,)),
    "asked": Scene(record_asked, (finish_asked,)),
    "family": Scene(record_family, (finish_family, finish_bundle)),
    "scheduled": Scene(record_scheduled, (finish_scheduled,)),
    "published": Scene(record_published, (finish_published, finish_rebuilt)),
    "killed": Scene(record_killed, (finish_killed,)),
}
