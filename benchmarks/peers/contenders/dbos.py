"""DBOS on SQLite: a session is a workflow, a step is a step of it.

The database is put into WAL mode first, which makes a commit cheaper and as durable: ``synchronous`` stays FULL. The
listener for messages asks the database every 10 ms instead of once a second.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import Any

from dbos import DBOS, SetWorkflowID

from benchmarks.peers.contender import Contender, Job, Sample, main, message, reply, settle, stored, text, wal

FILE = "dbos.db"
JOB: Job

ends: asyncio.Event
"""Set when all steps of the sessions that are being paused may end."""

reached: list[float] = []
"""When the interrupted step ran again."""


@DBOS.step()
def write(n: int) -> str:
    """Return the new content of the field."""
    JOB.begins(n)
    return text(n)


@DBOS.step()
def change(n: int) -> str:
    """Return the new content of the small field."""
    JOB.begins(n)
    return text(n, 100)


@DBOS.step()
def stand(n: int) -> str:
    """Return the new content of the field; at the target, end the process or say that it is reached."""
    if n == JOB.steps:
        if JOB.work == "resume_prepare":
            os._exit(0)
        reached.append(time.perf_counter())
    return text(n)


@DBOS.step()
async def write_async(n: int) -> str:
    """Return the new content of the field."""
    return text(n)


@DBOS.step()
async def item(n: int) -> str:
    """Do the work of one item."""
    return text(n, 100)


@DBOS.step()
async def hold() -> str:
    """Stay inside the step until it may end."""
    JOB.mark()
    await ends.wait()
    return "done"


@DBOS.step()
def answer(said: str, count: int) -> str:
    """Answer a message."""
    return reply(count)


@DBOS.step()
def once() -> str:
    """Do almost nothing."""
    return "done"


@DBOS.workflow()
def lone() -> int:
    """Replace a field again and again."""
    n = 0
    while JOB.more(n):
        write(n)
        n += 1
    return n


@DBOS.workflow()
def growing() -> int:
    """Add items to a list. The items are the results of the steps, which DBOS keeps."""
    n, items = 0, []
    while JOB.more(n):
        items.append(write(n))
        n += 1
    return n


@DBOS.workflow()
def beside(ballast: str) -> int:
    """Change a small field beside a large one, which is the input of the workflow."""
    n = 0
    while JOB.more(n):
        change(n)
        n += 1
    return n


@DBOS.workflow()
def standing() -> None:
    """Replace a field until the target is reached."""
    for n in range(JOB.steps + 1):
        stand(n)


@DBOS.workflow()
async def one_of_many(steps: int) -> int:
    """Replace a field as one of many sessions."""
    n = 0
    while n < steps and JOB.in_time:
        await write_async(n)
        n += 1
    return n


@DBOS.workflow()
async def ask() -> Any:
    """Ask a person, and wait for the answer."""
    await DBOS.set_event_async("question", {"question": "Formal or playful?", "choices": ["formal", "playful"]})
    return await DBOS.recv_async("answer", timeout_seconds=86_400)


@DBOS.workflow()
async def mapping(count: int) -> int:
    """Apply a step to all items."""
    return len(await asyncio.gather(*[item(n) for n in range(count)]))


@DBOS.workflow()
async def holding() -> None:
    """Stay inside a step, then begin the next."""
    while True:
        await hold()


@DBOS.workflow()
def chatting() -> None:
    """Answer messages for ever."""
    messages: list[str] = []
    while True:
        said = DBOS.recv("message", timeout_seconds=86_400)
        messages += [said, answer(said, len(messages[-20:]))]
        DBOS.set_event("answered", len(messages) // 2)


@DBOS.workflow()
def single() -> None:
    """Run one small step."""
    once()


class Dbos(Contender):
    """Workflows of DBOS."""

    name = "dbos"
    packages = ("dbos",)

    def lone(self, job: Job) -> Sample:
        _launch(job)
        lone()
        return job.per_step()

    def growing(self, job: Job) -> Sample:
        _launch(job)
        growing()
        return job.per_step()

    def beside(self, job: Job) -> Sample:
        _launch(job)
        beside(text(0, job.size["ballast"]))
        return job.per_step()

    def crowd(self, job: Job) -> Sample:
        async def main() -> Sample:
            _launch(job)
            job.mark()
            some = [DBOS.start_workflow_async(one_of_many, job.steps) for _ in range(job.sessions)]
            results = await asyncio.gather(*[handle.get_result() for handle in await asyncio.gather(*some)])
            return job.took(sum(results))

        return asyncio.run(main())

    def resume_prepare(self, job: Job) -> Sample:
        _launch(job)
        with SetWorkflowID("one"):
            standing()
        raise AssertionError("the process should have ended")

    def resume(self, job: Job) -> Sample:
        begin = time.perf_counter()
        _launch(job)  # a launch recovers the workflows that were interrupted
        while not reached:
            time.sleep(0.0005)
        return Sample(reached[0] - begin)

    def questions(self, job: Job) -> Sample:
        async def main() -> int:
            _launch(job)
            done = 0
            while done < job.sessions and job.in_time:
                some = await asyncio.gather(*[DBOS.start_workflow_async(ask) for _ in range(100)])
                for handle in some:
                    assert await DBOS.get_event_async(handle.workflow_id, "question")
                done += len(some)
            return done

        done = asyncio.run(_leaving(main()))
        settle(job.folder / FILE)
        return Sample(count=done, bytes=stored(job.folder))

    def map(self, job: Job) -> Sample:
        async def main() -> Sample:
            _launch(job)
            begin = time.perf_counter()
            assert await mapping(job.size["items"]) == job.size["items"]
            return Sample(time.perf_counter() - begin, job.size["items"])

        return asyncio.run(main())

    def pause(self, job: Job) -> Sample:
        """Cancel the workflows, which stops them before their next step; ``resume_workflow`` continues them."""
        return asyncio.run(_pause(job))

    def chat_prepare(self, job: Job) -> Sample:
        _launch(job)
        with SetWorkflowID("one"):
            DBOS.start_workflow(chatting)
        _talk(0, job.size["turns"])
        return Sample()

    def chat(self, job: Job) -> Sample:
        begin = time.perf_counter()
        _launch(job)
        first = int(DBOS.get_event("one", "answered", timeout_seconds=60))
        _talk(first, job.size["warm"])
        if job.size["warm"]:
            begin = time.perf_counter()
        _talk(first + job.size["warm"], job.size["turns"])
        return Sample(time.perf_counter() - begin, job.size["turns"], notes={"total": time.time() - job.spawned})

    def listing_prepare(self, job: Job) -> Sample:
        _launch(job)
        done = 0
        while job.in_time and done < job.sessions:
            single()
            done += 1
        return Sample(count=done)

    def listing(self, job: Job) -> Sample:
        _launch(job)
        begin = time.perf_counter()
        for _ in range(job.size["reads"]):
            found = DBOS.list_workflows(limit=50, sort_desc=True, load_input=False, load_output=False)
            assert len(found) == 50
        return Sample(time.perf_counter() - begin, job.size["reads"])


def _launch(job: Job) -> None:
    global JOB
    JOB = job
    wal(job.folder / FILE)
    logging.disable(logging.CRITICAL)
    config: Any = {
        "name": "bench", "system_database_url": f"sqlite:///{(job.folder / FILE).absolute()}",
        "run_admin_server": False, "log_level": "CRITICAL", "notification_listener_polling_interval_sec": 0.01,
        "application_version": "1", "executor_id": "bench",
    }  # fmt: skip
    DBOS(config=config)
    DBOS.launch()


def _talk(first: int, turns: int) -> None:
    for n in range(first, first + turns):
        DBOS.send("one", message(n), "message")
        while DBOS.get_event("one", "answered", timeout_seconds=60) != n + 1:
            time.sleep(0.0005)


async def _leaving(work: Any) -> Any:
    """Return a result, and leave the workflows that wait alone."""
    found = await work
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    return found


async def _pause(job: Job) -> Sample:
    global ends
    ends = asyncio.Event()
    _launch(job)
    handles = [await DBOS.start_workflow_async(holding) for _ in range(job.sessions)]
    while len(job.times) < job.sessions:
        await asyncio.sleep(0.01)
    called = time.perf_counter()
    await DBOS.cancel_workflows_async([handle.workflow_id for handle in handles])
    begin = time.perf_counter()
    ends.set()
    found = await asyncio.gather(*[handle.get_result() for handle in handles], return_exceptions=True)
    assert all("ancel" in type(each).__name__ for each in found), found[:3]
    return Sample(time.perf_counter() - begin, notes={"call": begin - called})


if __name__ == "__main__":
    main(Dbos())
