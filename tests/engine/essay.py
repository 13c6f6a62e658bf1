"""Workflows for the tests of time travel: an essay written in rounds, and a counter. `Spy` counts reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from pausepoint import Append, Context, Engine, Merge, Session, Status, Workflow, guard, migrate, route, step
from pausepoint.model.records import Record
from pausepoint.stores.base import Store


class Plan(BaseModel):
    title: str = ""
    pages: int = Field(default=1, ge=1)


class Essay(BaseModel):
    topic: str
    rounds: int = 0
    wanted: int = 3
    log: Annotated[list[str], Append] = []
    notes: Annotated[dict[str, str], Merge] = {}
    plan: Plan = Plan()
    draft: str = ""
    final: str = ""


class Desk:
    """A workflow that researches, writes and reviews in a loop, and finishes. ``calls`` lists the calls of steps."""

    def __init__(self) -> None:
        self.calls: list[str] = []

        @step(writes=["notes", "log"])
        async def research(topic: str) -> dict[str, Any]:
            self.calls.append("research")
            return {"notes": {topic: "found"}, "log": [f"research {topic}"]}

        @step(writes=["draft", "log"])
        async def write(topic: str, rounds: int, ctx: Context) -> dict[str, Any]:
            self.calls.append(f"write#{ctx.visit}")
            ctx.spend(usd=1)
            return {"draft": f"{topic}, draft {rounds + 1}", "log": [f"write {rounds + 1}"]}

        @step(writes=["rounds", "log"])
        async def review(rounds: int, ctx: Context) -> dict[str, Any]:
            self.calls.append(f"review#{ctx.visit}")
            return {"rounds": rounds + 1, "log": [f"review {rounds + 1}"]}

        @route(after="review")
        def enough(rounds: int, wanted: int) -> Literal["write", "finish"]:
            return "write" if rounds < wanted else "finish"

        @step(writes="final")
        async def finish(draft: str) -> str:
            self.calls.append("finish")
            return draft.upper()

        self.workflow = Workflow("essay", state=Essay, steps=[research, write, review, finish], routes=[enough])

    async def done(self, engine: Engine, **fields: Any) -> Session[Essay]:
        session = await engine.start(self.workflow, session_id="one", **({"topic": "squid"} | fields))
        assert (await session.outcome()).status is Status.COMPLETED
        self.calls.clear()
        return session


WHOLE = ["research", "write#1", "review#1", "write#2", "review#2", "write#3", "review#3", "finish"]


async def again(session: Session[Any]) -> Any:
    """Resume a session and wait until it stops."""
    await session.resume()
    outcome = await session.outcome()
    assert outcome.status is Status.COMPLETED, outcome
    return outcome


async def events(session: Session[Any], *types: str) -> list[Any]:
    """Return the events of these types."""
    return [event async for event in session.events() if event.event_type in types]


class Spy:
    """Count the records and blobs that an engine reads from its store."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = 0
        self.blobs = 0
        store: Store = engine.store
        records, blobs = store.records, store.blobs

        async def count_records(key: int, since: int, until: int | None = None) -> list[Record]:
            found = await records(key, since, until)
            self.records += len(found)
            return found

        async def count_blobs(hashes: Iterable[bytes]) -> dict[bytes, bytes]:
            found = await blobs(hashes)
            self.blobs += len(found)
            return found

        monkeypatch.setattr(store, "records", count_records)
        monkeypatch.setattr(store, "blobs", count_blobs)


class Count(BaseModel):
    target: int = 700
    n: int = 0
    items: Annotated[list[str], Append] = []
    ballast: str = ""


@step(writes=["n", "items"])
async def count(n: int) -> dict[str, Any]:
    return {"n": n + 1, "items": [f"{n + 1:0300}"]}


@route(after="count")
def count_on(n: int, target: int) -> Literal["count", None]:
    return "count" if n < target else None


COUNTING = Workflow("count", state=Count, steps=[count], routes=[count_on])


class Collection(BaseModel):
    facts: list[str] = []
    least: int = 2
    source: str | None = None
    done: bool = False


@step(writes="facts")
async def collect(facts: list[str]) -> list[str]:
    return facts


@guard(after="collect")
def has_facts(facts: list[str], least: int) -> str | None:
    return None if len(facts) >= least else f"{len(facts)} of {least} facts"


@step(writes="done")
async def close(source: str) -> bool:
    return bool(source)


COLLECTING = Workflow("collection", state=Collection, steps=[collect, close], guards=[has_facts])


class Keyed(BaseModel):
    text: str = "old"
    result: str = ""


class Middle:
    """A step that fails after its operation until `holds` is cleared."""

    def __init__(self, key: str | None) -> None:
        self.calls: list[str] = []
        self.holds = True

        async def shout(text: str) -> str:
            self.calls.append(f"shout {text}")
            return text.upper()

        @step(writes="result")
        async def work(text: str, ctx: Context) -> str:
            found = await ctx.do(shout, text, key=key)
            if self.holds:
                raise RuntimeError("in the middle")
            return found

        self.workflow = Workflow("keyed", state=Keyed, steps=[work])

    async def failed(self, engine: Engine) -> Session[Keyed]:
        session = await engine.start(self.workflow)
        assert (await session.outcome()).status is Status.FAILED
        self.holds = False
        return session


def essay_of(version: int, **options: Any) -> Workflow[Any]:
    """Return version 1 or 2 of a workflow; version 2 renames a field and a step."""

    class Old(BaseModel):
        topic: str = "squid"
        text: str = ""

    class New(BaseModel):
        subject: str
        text: str = ""

    @step(writes="text")
    async def old_write(topic: str) -> str:
        return f"old {topic}"

    @step(writes="text", was="old_write")
    async def new_write(subject: str) -> str:
        return f"new {subject}"

    @step
    async def check(text: str) -> None:
        assert text

    @migrate(from_version=1)
    def renamed(state: dict[str, Any]) -> dict[str, Any]:
        return {"subject": state["topic"], "text": state["text"]}

    if version == 1:
        return Workflow("essay", state=Old, steps=[old_write, check])
    return Workflow("essay", state=New, version=2, migrations=[renamed], steps=[new_write, check], **options)
