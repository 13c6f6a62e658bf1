"""Pausepoint with its default settings: a store in one SQLite file."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from benchmarks.peers.contender import Contender, Job, Sample, main, message, reply, settle, stored, text
from pausepoint import Append, Context, Engine, Status, Workflow, route, step
from pausepoint.definition import At

FILE = "pausepoint.db"
JOB: Job
"""The job of this process."""

ends: asyncio.Event
"""Set when all steps of the sessions that are being paused may end."""

reached: asyncio.Event
"""Set when the interrupted step runs again."""


class Page(BaseModel):
    """A counter and a field of 1 KiB that every step replaces."""

    target: int
    n: int = 0
    text: str = ""


@step(writes=["n", "text"])
async def write(n: int) -> Mapping[str, object]:
    """Replace the field."""
    JOB.begins(n)
    return {"n": n + 1, "text": text(n)}


@route(after="write")
def write_on(n: int, target: int) -> Literal["write", None]:
    """Loop until the target, or the time limit, is reached."""
    return "write" if n < target and JOB.in_time else None


writing = Workflow("writing", state=Page, steps=[write], routes=[write_on])


class Growth(BaseModel):
    """A list that grows."""

    n: int = 0
    items: Annotated[list[str], Append] = []


@step(writes=["n", "items"])
async def grow(n: int) -> Mapping[str, object]:
    """Add an item."""
    JOB.begins(n)
    return {"n": n + 1, "items": [text(n)]}


@route(after="grow")
def grow_on(n: int) -> Literal["grow", None]:
    """Loop until the target, or the time limit, is reached."""
    return "grow" if JOB.more(n) else None


growing = Workflow("growing", state=Growth, steps=[grow], routes=[grow_on])


class Ballast(BaseModel):
    """A large field, and a small one."""

    ballast: str
    n: int = 0
    note: str = ""


@step(writes=["n", "note"])
async def change(n: int) -> Mapping[str, object]:
    """Change the small field."""
    JOB.begins(n)
    return {"n": n + 1, "note": text(n, 100)}


@route(after="change")
def change_on(n: int) -> Literal["change", None]:
    """Loop until the target, or the time limit, is reached."""
    return "change" if JOB.more(n) else None


beside = Workflow("beside", state=Ballast, steps=[change], routes=[change_on])


@step(writes=["n", "text"])
async def stand(n: int, target: int) -> Mapping[str, object]:
    """Replace the field; at the target, end the process or say that it is reached."""
    if n == target:
        if JOB.work == "resume_prepare":
            os._exit(0)
        reached.set()
        await asyncio.Event().wait()
    return {"n": n + 1, "text": text(n)}


@route(after="stand")
def stand_on() -> Literal["stand"]:
    """Loop for ever."""
    return "stand"


standing = Workflow("standing", state=Page, steps=[stand], routes=[stand_on])


class Brief(BaseModel):
    """The state of a session that asks."""

    n: int
    tone: str = ""


@step(writes="tone")
async def agree(ctx: Context) -> str:
    """Wait for an answer."""
    return await ctx.ask("Formal or playful?", choices=["formal", "playful"], expires=None)


asking = Workflow("asking", state=Brief, steps=[agree])


class Items(BaseModel):
    """The items of a map."""

    items: list[int]
    results: list[str] = []


async def item(n: int) -> str:
    """Do the work of one item."""
    return text(n, 100)


@step(writes="results")
async def spread(items: list[int], ctx: Context) -> list[str]:
    """Apply the function to all items."""
    return await ctx.map(item, items, concurrency=len(items))


mapping = Workflow("mapping", state=Items, steps=[spread])


@step(writes="tone")
async def hold() -> str:
    """Stay inside the step until it may end."""
    JOB.mark()
    await ends.wait()
    return "done"


@route(after="hold")
def hold_on() -> Literal["hold"]:
    """Loop for ever."""
    return "hold"


holding = Workflow("holding", state=Brief, steps=[hold], routes=[hold_on])


class Chat(BaseModel):
    """A conversation."""

    messages: Annotated[list[str], Append] = []


@step(writes="messages")
async def answer(recent: Annotated[list[str], At("messages[-20:]")], ctx: Context) -> list[str]:
    """Wait for a message, and answer it with the last twenty in view."""
    said: str = await ctx.receive()
    return [said, reply(len(recent))]


@route(after="answer")
def answer_on() -> Literal["answer"]:
    """Loop for ever."""
    return "answer"


chatting = Workflow("chatting", state=Chat, steps=[answer], routes=[answer_on])


@step(writes="tone")
async def once() -> str:
    """Do almost nothing."""
    return "done"


single = Workflow("single", state=Brief, steps=[once])

WORKFLOWS: list[Workflow[Any]] = [
    writing, growing, beside, standing, asking, mapping, holding, chatting, single,
]  # fmt: skip


class Pausepoint(Contender):
    """The engine of this repository."""

    name = "pausepoint"

    def versions(self) -> dict[str, str]:
        from importlib.metadata import version

        return {"pausepoint": version("pausepoint")}

    def lone(self, job: Job) -> Sample:
        return _run(job, _lone(job, writing, Page(target=job.steps)))

    def growing(self, job: Job) -> Sample:
        return _run(job, _lone(job, growing, Growth()))

    def beside(self, job: Job) -> Sample:
        return _run(job, _lone(job, beside, Ballast(ballast=text(0, job.size["ballast"]))))

    def crowd(self, job: Job) -> Sample:
        return _run(job, _crowd(job))

    def resume_prepare(self, job: Job) -> Sample:
        return _run(job, _lone(job, standing, Page(target=job.steps)))

    def resume(self, job: Job) -> Sample:
        return _run(job, _resume(job))

    def questions(self, job: Job) -> Sample:
        return _run(job, _questions(job))

    def map(self, job: Job) -> Sample:
        return _run(job, _map(job))

    def pause(self, job: Job) -> Sample:
        return _run(job, _pause(job))

    def chat_prepare(self, job: Job) -> Sample:
        return _run(job, _talk(job))

    def chat(self, job: Job) -> Sample:
        return _run(job, _chat(job))

    def listing_prepare(self, job: Job) -> Sample:
        return _run(job, _fill(job))

    def listing(self, job: Job) -> Sample:
        return _run(job, _list(job))


def _run(job: Job, work: Coroutine[Any, Any, Sample]) -> Sample:
    global JOB
    JOB = job
    return asyncio.run(work)


def _engine(job: Job) -> Engine:
    return Engine(job.folder / FILE, workflows=WORKFLOWS, signals=False)


async def _lone(job: Job, workflow: Workflow[Any], state: BaseModel) -> Sample:
    async with _engine(job) as engine:
        session = await engine.start(workflow, state, session_id="one")
        assert (await session.outcome()).status == "completed"
    return job.per_step()


async def _crowd(job: Job) -> Sample:
    async def one() -> int:
        session = await engine.start(writing, target=job.steps)
        return (await session.outcome()).state.n

    async with _engine(job) as engine:
        job.mark()
        done = await asyncio.gather(*[one() for _ in range(job.sessions)])
        return job.took(sum(done))


async def _resume(job: Job) -> Sample:
    global reached
    reached = asyncio.Event()
    begin = time.perf_counter()
    async with _engine(job) as engine:
        session = engine.session("one")
        await session.resume(steal=True)
        await reached.wait()
        return Sample(time.perf_counter() - begin)


async def _questions(job: Job) -> Sample:
    async with _engine(job) as engine:
        done = 0
        while done < job.sessions and job.in_time:
            some = [engine.start(asking, n=n) for n in range(done, min(done + 200, job.sessions))]
            sessions = await asyncio.gather(*some)
            await asyncio.gather(*[_waits(session) for session in sessions])
            done += len(sessions)
    settle(job.folder / FILE)
    return Sample(count=done, bytes=stored(job.folder))


async def _waits(session: Any) -> None:
    assert (await session.outcome()).status is Status.WAITING


async def _map(job: Job) -> Sample:
    async with _engine(job) as engine:
        begin = time.perf_counter()
        session = await engine.start(mapping, items=list(range(job.size["items"])))
        assert len((await session.outcome()).state.results) == job.size["items"]
        return Sample(time.perf_counter() - begin, job.size["items"])


async def _pause(job: Job) -> Sample:
    global ends
    ends = asyncio.Event()
    async with _engine(job) as engine:
        sessions = await asyncio.gather(*[engine.start(holding, n=n) for n in range(job.sessions)])
        while len(job.times) < job.sessions:
            await asyncio.sleep(0.01)
        called = time.perf_counter()
        await engine.pause_all(by="bench")
        begin = time.perf_counter()
        ends.set()
        outcomes = await asyncio.gather(*[session.outcome() for session in sessions])
        assert {outcome.status for outcome in outcomes} == {Status.PAUSED}
        return Sample(time.perf_counter() - begin, notes={"call": begin - called})


async def _talk(job: Job) -> Sample:
    async with _engine(job) as engine:
        session = await engine.start(chatting, session_id="one")
        await _waits(session)
        for n in range(job.size["turns"]):
            await _turn(session, n)
    return Sample()


async def _turn(session: Any, n: int) -> None:
    """Say something, and wait until the answer is stored and the session waits again."""
    before = (await session.info()).visit
    await session.send(message(n))
    while (now := await session.info()).visit == before or now.status != Status.WAITING:
        await asyncio.sleep(0.0005)


async def _chat(job: Job) -> Sample:
    begin = time.perf_counter()
    async with _engine(job) as engine:
        session = engine.session("one")
        for n in range(job.size["warm"]):
            await _turn(session, n)
        if job.size["warm"]:
            begin = time.perf_counter()
        for n in range(job.size["turns"]):
            await _turn(session, n)
        return Sample(time.perf_counter() - begin, job.size["turns"], notes={"total": time.time() - job.spawned})


async def _fill(job: Job) -> Sample:
    done = 0
    async with _engine(job) as engine:
        while job.in_time and done < job.sessions:
            started = await asyncio.gather(*[engine.start(single, n=done + n) for n in range(500)])
            await asyncio.gather(*[session.outcome() for session in started])
            done += 500
    return Sample(count=done)


async def _list(job: Job) -> Sample:
    async with _engine(job) as engine:
        begin = time.perf_counter()
        for _ in range(job.size["reads"]):
            assert len(await engine.sessions(limit=50)) == 50
        return Sample(time.perf_counter() - begin, job.size["reads"])


if __name__ == "__main__":
    main(Pausepoint())
