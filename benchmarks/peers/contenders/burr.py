"""Burr with its SQLite persister: a session is an application, a step is an action.

The database of the persister is put into WAL mode, which makes its commits cheaper and as durable.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from concurrent.futures import Executor, Future
from typing import Any

from burr.core import ApplicationBuilder, ApplicationContext, State, action, default
from burr.core.parallelism import MapStates
from burr.core.persistence import SQLitePersister

from benchmarks.peers.contender import Contender, Job, Sample, main, message, reply, settle, stored, text, wal

FILE = "burr.db"
JOB: Job

reached: list[float] = []
"""When the interrupted step ran again."""


@action(reads=["n"], writes=["n", "text"])
def write(state: State[Any]) -> State[Any]:
    """Replace the field."""
    n = state["n"]
    JOB.begins(n)
    return state.update(n=n + 1, text=text(n))


@action(reads=["n"], writes=["n", "items"])
def grow(state: State[Any]) -> State[Any]:
    """Add an item."""
    n = state["n"]
    JOB.begins(n)
    return state.update(n=n + 1).append(items=text(n))


@action(reads=["n"], writes=["n", "text"])
def change(state: State[Any]) -> State[Any]:
    """Change the small field."""
    n = state["n"]
    JOB.begins(n)
    return state.update(n=n + 1, text=text(n, 100))


@action(reads=["n"], writes=["n", "text"])
def stand(state: State[Any]) -> State[Any]:
    """Replace the field; at the target, end the process or say that it is reached."""
    n = state["n"]
    if n == JOB.steps:
        if JOB.work == "resume_prepare":
            os._exit(0)
        reached.append(time.perf_counter())
    return state.update(n=n + 1, text=text(n))


@action(reads=["n"], writes=["text"])
def ask(state: State[Any]) -> State[Any]:
    """Write the question into the state; the application then halts before the answer."""
    return state.update(text=json.dumps({"question": "Formal or playful?", "choices": ["formal", "playful"]}))


@action(reads=["n"], writes=["answer"])
def take(state: State[Any], answer: str) -> State[Any]:
    """Take the answer of a person."""
    return state.update(answer=answer)


@action(reads=["n"], writes=["result"])
def item(state: State[Any]) -> State[Any]:
    """Do the work of one item."""
    return state.update(result=text(state["n"], 100))


class Spread(MapStates):  # type: ignore[misc, unused-ignore]
    """Apply an action to all items. The persister of the application cascades to every item."""

    def action(self, state: State[Any], inputs: dict[str, Any]) -> Any:
        return item

    def states(
        self, state: State[Any], context: ApplicationContext, inputs: dict[str, Any]
    ) -> Generator[State[Any], None, None]:
        for n in range(JOB.size["items"]):
            yield state.update(n=n)

    def reduce(self, state: State[Any], states: Any) -> State[Any]:
        return state.update(results=[each["result"] for each in states])

    @property
    def reads(self) -> list[str]:
        return ["n"]

    @property
    def writes(self) -> list[str]:
        return ["results"]


@action(reads=["messages"], writes=["messages"])
def answer(state: State[Any], said: str) -> State[Any]:
    """Answer a message, with the last twenty in view."""
    messages = state["messages"]
    return state.update(messages=[*messages, said, reply(len(messages[-20:]))])


class Inline(Executor):
    """Run every task at once in this thread: connections of the persister belong to the thread that opened them."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class Burr(Contender):
    """Applications of Burr."""

    name = "burr"
    packages = ("apache-burr",)

    def lone(self, job: Job) -> Sample:
        return _lone(job, write, n=0, text="")

    def growing(self, job: Job) -> Sample:
        return _lone(job, grow, n=0, items=[])

    def beside(self, job: Job) -> Sample:
        return _lone(job, change, n=0, text="", ballast=text(0, job.size["ballast"]))

    def crowd(self, job: Job) -> Sample:
        """Advance all applications in turn, which is faster here than threads."""
        persister = _persister(job)
        job.mark()
        apps = [_app(persister, write, f"session-{n}", n=0, text="") for n in range(job.sessions)]
        for _ in range(job.steps):
            for app in apps:
                if job.in_time:
                    app.step()
        return job.took(sum(app.state["n"] for app in apps))

    def resume_prepare(self, job: Job) -> Sample:
        app = _app(_persister(job), stand, "one", n=0, text="")
        while True:
            app.step()

    def resume(self, job: Job) -> Sample:
        begin = time.perf_counter()
        app = _loaded(_persister(job), stand, n=0, text="")
        app.step()
        assert app.state["n"] == job.steps + 1
        return Sample(reached[0] - begin)

    def questions(self, job: Job) -> Sample:
        persister = _persister(job)
        done = 0
        while done < job.sessions and job.in_time:
            builder = ApplicationBuilder().with_actions(ask=ask, take=take).with_transitions(("ask", "take", default))
            builder = builder.with_identifiers(app_id=f"session-{done}").with_state_persister(persister)
            app = builder.with_state(n=done).with_entrypoint("ask").build()
            app.run(halt_before=["take"], inputs={"answer": ""})
            done += 1
        settle(job.folder / FILE)
        return Sample(count=done, bytes=stored(job.folder))

    def map(self, job: Job) -> Sample:
        builder = _builder(_persister(job), Spread()).with_identifiers(app_id="one", partition_key="")
        app = builder.with_parallel_executor(Inline).with_state(n=0).with_entrypoint("step").build()
        begin = time.perf_counter()
        app.step()
        assert len(app.state["results"]) == job.size["items"]
        return Sample(time.perf_counter() - begin, job.size["items"])

    def chat_prepare(self, job: Job) -> Sample:
        app = _app(_persister(job), answer, "one", messages=[])
        for n in range(job.size["turns"]):
            app.step(inputs={"said": message(n)})
        return Sample()

    def chat(self, job: Job) -> Sample:
        begin = time.perf_counter()
        app = _loaded(_persister(job), answer, messages=[])
        for n in range(job.size["warm"]):
            app.step(inputs={"said": message(n)})
        if job.size["warm"]:
            begin = time.perf_counter()
        for n in range(job.size["turns"]):
            app.step(inputs={"said": message(n)})
        return Sample(time.perf_counter() - begin, job.size["turns"], notes={"total": time.time() - job.spawned})

    def listing_prepare(self, job: Job) -> Sample:
        persister = _persister(job)
        persister.connection.execute("PRAGMA synchronous = OFF")  # only to fill the store faster
        done = 0
        while job.in_time and done < job.sessions:
            persister.save("", f"session-{done}", 0, "once", State({"n": done, "text": "done"}), "completed")
            done += 1
        return Sample(count=done)

    def listing(self, job: Job) -> Sample:
        """Read the ids of all applications, which is what the persister can list, and take 50 of them."""
        persister = _persister(job)
        begin = time.perf_counter()
        for _ in range(job.size["reads"]):
            assert len(persister.list_app_ids("")[:50]) == 50
        return Sample(time.perf_counter() - begin, job.size["reads"])


def _persister(job: Job) -> SQLitePersister:
    global JOB
    JOB = job
    wal(job.folder / FILE)
    persister = SQLitePersister.from_values(str(job.folder / FILE), connect_kwargs={"check_same_thread": False})
    persister.initialize()
    return persister


def _builder(persister: SQLitePersister, step: Any) -> Any:
    builder: Any = ApplicationBuilder().with_actions(step=step).with_transitions(("step", "step", default))
    return builder.with_state_persister(persister)


def _app(persister: SQLitePersister, step: Any, name: str, **state: Any) -> Any:
    builder = _builder(persister, step).with_identifiers(app_id=name, partition_key="")
    return builder.with_state(**state).with_entrypoint("step").build()


def _loaded(persister: SQLitePersister, step: Any, **state: Any) -> Any:
    builder = _builder(persister, step).with_identifiers(app_id="one", partition_key="")
    loaded = builder.initialize_from(
        persister, resume_at_next_action=True, default_state=state, default_entrypoint="step"
    )
    return loaded.build()


def _lone(job: Job, step: Any, **state: Any) -> Sample:
    app = _app(_persister(job), step, "one", **state)
    n = 0
    while job.more(n):
        app.step()
        n += 1
    job.mark()
    return job.per_step()


if __name__ == "__main__":
    main(Burr())
