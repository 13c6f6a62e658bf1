"""States of an older version are migrated when an engine picks up the session, or refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, field_validator, model_validator

from pausepoint import Append, Context, Engine, Status, Workflow, migrate, step
from pausepoint.definition.steps import Migration, Step
from pausepoint.errors import DefinitionError, StateRefused, StoreUnavailable
from tests.engine.releases import (
    Memo,
    Second,
    State,
    Third,
    count_words,
    flow,
    made,
    rename_topic,
    resumed,
    stored,
    third,
    types,
    why,
)
from tests.support.children import outside_sql
from tests.support.loop import on_loop
from tests.support.otherstores import ProxyStore


@pytest.mark.long
@on_loop
async def test_an_older_state_is_carried_up_version_by_version_in_one_commit(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stored(path, flow("a C"), topic="sea otters")
    (before,) = outside_sql(path, "SELECT seq, version FROM sessions")
    async with Engine(path, workflows=[third(count_words, rename_topic)]) as engine:
        session = await resumed(engine)
        assert await session.status() is Status.COMPLETED
        assert await session.state() == Third(subject="sea otters", words=2, trail=["a", "sea otters: 2"])
        (event,) = await types(session, "session.migrated")
        assert event.summary == "from version 1 to 3"
        assert event.data == {
            "from": 1, "to": 3, "migrations": ["rename_topic", "count_words"],
            "fields": ["mood", "subject", "topic", "words"],
        }  # fmt: skip
    (after,) = outside_sql(path, "SELECT version FROM sessions")
    assert (before["version"], after["version"]) == (1, 3)
    (record,) = outside_sql(path, "SELECT seq FROM log WHERE kind = 'definition'")
    assert record["seq"] == before["seq"] + 1


@pytest.mark.long
@pytest.mark.covers("S4.82")
@on_loop
async def test_every_checkpoint_and_key_frame_carries_the_version_of_the_state_it_was_made_with(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stored(path, flow("a C"))
    newer = third(rename_topic, count_words)
    async with Engine(path, workflows=[newer]) as engine:
        await resumed(engine)
        assert [checkpoint.version for checkpoint in await engine.session("m-1").checkpoints()] == [1, 3]
        await (await engine.start(newer, subject="x", words=1, session_id="new")).outcome()
    versions = (
        "SELECT json_extract(payload, '$.version') AS v FROM log WHERE kind IN ('checkpoint', 'key') AND session ="
    )
    assert [row["v"] or 1 for row in outside_sql(path, f"{versions} 1 ORDER BY seq")] == [1, 1, 3]
    assert [row["v"] or 1 for row in outside_sql(path, f"{versions} 2 ORDER BY seq")] == [3, 3, 3]


@migrate(from_version=1)
def raises(state: State) -> State:
    return {"subject": state["title"]}


@migrate(from_version=1)
def returns_nothing(state: State) -> None:
    state["subject"] = state.pop("topic")


@migrate(from_version=1)
def leaves_out(state: State) -> State:
    return {"subject": state["topic"]}


@migrate(from_version=1)
def misspells(state: State) -> State:
    return {"subjct": state.pop("topic"), **state}


@migrate(from_version=1)
def forgets(state: State) -> State:
    del state["topic"]
    return state


@migrate(from_version=1)
def wrong_type(state: State) -> State:
    return {"subject": [1], "trail": state["trail"]}


@migrate(from_version=1)
def not_storable(state: State) -> State:
    return {"subject": object(), "trail": state["trail"]}


WRONG = {
    raises: "'raises' (version 1 to 2) raised KeyError: 'title'",
    returns_nothing: "'returns_nothing' (version 1 to 2) returned NoneType, not the state as a dict of its fields",
    leaves_out: "field 'trail': it is missing, but Second still has it",
    misspells: "'misspells' (version 1 to 2) returned an invalid state: field 'subjct': Second has no such field",
    forgets: "field 'subject': Second.subject has no value and no default",
    wrong_type: "'wrong_type' (version 1 to 2) returned an invalid state: field 'subject': subject: Input",
    not_storable: "'not_storable' (version 1 to 2) returned a value that cannot be stored: subject: object cannot",
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
@on_loop
async def test_a_failing_migration_leaves_the_state_untouched_and_pauses_with_the_reason(
    wrong: Migration[..., Any],
) -> None:
    def second(migration: Migration[..., Any]) -> Workflow[Any]:
        @step(writes="trail")
        async def a(subject: str) -> list[str]:
            return [f"about {subject}"]

        return Workflow("memo", state=Second, steps=[a], version=2, migrations=[migration])

    async with Engine(":memory:") as engine:
        session = await engine.start(flow("A"), session_id="m-1")
        await session.outcome()
        before = await stored_facts(engine)
        engine.workflows["memo"] = second(wrong)
        with pytest.raises(StateRefused) as refused:
            await session.state()
        assert WRONG[wrong] in str(refused.value)
        (misfit,) = await engine.misfits()
        assert WRONG[wrong] in misfit.reasons[0]
        assert await stored_facts(engine) == before, "looking writes nothing"
        reason = await why(await resumed(engine))
        assert WRONG[wrong] in reason
        assert "fix the migration and resume" in reason
        paused, kinds, version = await stored_facts(engine)
        assert (paused[: len(before[0])], kinds[len(before[1]) :], version) == (before[0], ["event"], 1)
        engine.workflows["memo"] = second(rename_topic)
        outcome = await (await engine.session("m-1").resume()).outcome()
        assert (outcome.status, outcome.pauses) == (Status.COMPLETED, ())
        assert outcome.state == Second(subject="otters", trail=["about otters"])


async def stored_facts(engine: Engine) -> tuple[list[bytes], list[str], int]:
    """Return the payloads and kinds of a session's records, and its version."""
    row = await engine.store.get("m-1")
    assert row is not None
    records = await engine.store.records(row.key, 1)
    return [record.payload for record in records], [record.kind for record in records], row.version


class Strict(BaseModel):
    topic: str = Field(max_length=3)
    trail: Annotated[list[str], Append] = []


class Whole(BaseModel):
    topic: str
    trail: Annotated[list[str], Append] = []
    shout: str = ""

    @model_validator(mode="after")
    def agree(self) -> Whole:
        if self.topic == "otters":
            raise ValueError("not about otters")
        self.shout = self.topic.upper()
        return self


def second_of(model: type[BaseModel], change: Callable[[State], State]) -> Workflow[Any]:
    @migrate(from_version=1)
    def up(state: State) -> State:
        return change(state)

    return flow("a b", state=model, version=2, migrations=[up])


@on_loop
async def test_what_comes_out_is_validated_field_by_field_and_as_a_whole() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(flow("a B"), session_id="m-1")).outcome()
        engine.workflows["memo"] = second_of(Strict, lambda state: state)
        assert "the stored state is invalid in version 2: field 'topic': topic: String should have" in await why(
            await resumed(engine)
        )
        engine.workflows["memo"] = second_of(Whole, lambda state: state)
        assert "migration 'up' (version 1 to 2) returned an invalid state: the state: Value error, not about" in (
            await why(await resumed(engine))
        )
        engine.workflows["memo"] = second_of(Whole, lambda state: state | {"topic": "eels"})
        assert (await (await resumed(engine)).state()).shout == "EELS", "what the validator changed is written too"


class Listed(BaseModel):
    topic: list[str]
    trail: Annotated[list[str], Append] = []

    @field_validator("topic", mode="before")
    @classmethod
    def split(cls, given: object) -> object:
        return given.split() if isinstance(given, str) else given


@on_loop
async def test_what_a_validator_makes_of_a_value_that_no_longer_fits_its_type_is_written() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(flow("a B"), session_id="m-1", topic="sea otters")).outcome()
        engine.workflows["memo"] = second_of(Listed, lambda state: state)
        session = await resumed(engine)
        assert await session.state() == Listed(topic=["sea", "otters"], trail=["a", "b"])
        (event,) = await types(session, "session.migrated")
        assert event.data["fields"] == ["topic"]


@on_loop
async def test_reading_an_older_session_migrates_in_memory_only() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(flow("a C"), session_id="m-1")).outcome()
        before = await stored_facts(engine)
        engine.workflows["memo"] = third(rename_topic, count_words)
        assert await engine.session("m-1").state() == Third(subject="otters", words=1, trail=["a"])
        outcome = await engine.session("m-1").outcome()
        assert (outcome.status, outcome.state.mood) == (Status.FAILED, "calm")
        assert await stored_facts(engine) == before


class Heavy(BaseModel):
    ballast: str = ""
    trail: Annotated[list[str], Append] = []
    other: int = 0


class HeavyToo(BaseModel):
    weight: str = ""
    trail: Annotated[list[str], Append] = []
    other: str = ""
    more: int = 7


@pytest.mark.long
@on_loop
async def test_large_values_and_growing_fields_are_not_written_again(tmp_path: Path) -> None:
    @step(writes="trail")
    async def a() -> list[str]:
        return ["x" * 20_000]

    def last(fails: bool) -> Step[..., Any]:
        @step(name="b", writes="trail")
        async def b() -> list[str]:
            if fails:
                raise RuntimeError("not today")
            return ["end"]

        return b

    @migrate(from_version=1)
    def up(state: State) -> State:
        return {"weight": state["ballast"], "trail": state["trail"], "other": str(state["other"])}

    path = tmp_path / "h.db"
    ballast = "otter " * 100_000
    await stored(path, Workflow("memo", state=Heavy, steps=[a, last(True)]), ballast=ballast, trail=["first"])
    blobs = "SELECT hash FROM blobs ORDER BY hash"
    before = outside_sql(path, blobs)
    newer = Workflow("memo", state=HeavyToo, steps=[a, last(False)], version=2, migrations=[up])
    async with Engine(path, workflows=[newer]) as engine:
        session = await resumed(engine)
        assert await session.state() == HeavyToo(weight=ballast, trail=["first", "x" * 20_000, "end"], other="0")
    assert outside_sql(path, blobs) == before
    (record,) = outside_sql(path, "SELECT length(payload) AS n FROM log WHERE kind = 'definition'")
    assert record["n"] < 500
    async with Engine(path, workflows=[newer]) as engine:  # the log is folded again
        assert (await engine.session("m-1").state()).model_dump()["more"] == 7


@on_loop
async def test_a_visit_that_was_open_goes_on_with_what_it_remembers(tmp_path: Path) -> None:
    done: list[str] = []

    async def fetch(name: str) -> str:
        done.append(name)
        return name

    def working(field: str, fails: bool) -> Step[..., Any]:
        @step(name="work", writes="trail")
        async def work(ctx: Context) -> list[str]:
            found = [await ctx.do(fetch, name) for name in ("one", "two")]
            if fails:
                raise RuntimeError("after two operations")
            return found

        return work

    path = tmp_path / "h.db"
    await stored(path, Workflow("memo", state=Memo, steps=[working("topic", True)]))
    newer = Workflow("memo", state=Second, steps=[working("subject", False)], version=2, migrations=[rename_topic])
    async with Engine(path, workflows=[newer]) as engine:
        session = await resumed(engine)
        assert await session.state() == Second(subject="otters", trail=["one", "two"])
    assert done == ["one", "two"]


@on_loop
async def test_a_missing_migration_is_named_and_the_state_can_be_accepted_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stored(path, flow("a B"))
    async with Engine(path, workflows=[flow("a b", version=2)]) as engine:
        session = await resumed(engine)
        reason = await why(session)
        assert "stored by version 1 of 'memo', this code is version 2" in reason
        assert "no migration leads from version 1 to 2" in reason
        assert "@migrate(from_version=1)" in reason
        with pytest.raises(StateRefused, match="no migration leads"):
            await session.state()
        await (await session.resume(code="accept", by="ann")).outcome()
        assert await session.status() is Status.COMPLETED
        (event,) = await types(session, "session.migrated")
        assert (event.agent_name, event.data["to"]) == ("ann", 2)
        assert (await session.info()).version == 2


@on_loop
async def test_accepting_does_not_let_a_state_pass_that_the_model_refuses() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(flow("a B"), session_id="m-1")).outcome()
        engine.workflows["memo"] = flow("a b", state=Strict, version=2)
        assert "field 'topic'" in await why(await resumed(engine, code="accept"))


@on_loop
async def test_a_field_that_the_model_lost_stays_in_the_store_and_comes_back_with_it(tmp_path: Path) -> None:
    class Bare(BaseModel):
        trail: Annotated[list[str], Append] = []

    def bare(fails: bool) -> list[Step[..., Any]]:
        @step(writes="trail")
        async def a() -> list[str]:
            if fails:
                raise RuntimeError("not today")
            return ["a"]

        return [a]

    path = tmp_path / "h.db"
    await stored(path, Workflow("memo", state=Memo, steps=bare(True)), topic="eels")
    async with Engine(path, workflows=[Workflow("memo", state=Bare, steps=bare(False))]) as engine:
        session = await resumed(engine)
        assert (await session.state()).model_dump() == {"trail": ["a"]}
    async with Engine(path, workflows=[Workflow("memo", state=Memo, steps=bare(False))]) as engine:
        assert await engine.session("m-1").state() == Memo(topic="eels", trail=["a"])


@on_loop
async def test_a_migration_that_cannot_be_stored_never_happened(tmp_path: Path) -> None:
    from pausepoint.stores.sqlite import SqliteStore

    path = tmp_path / "h.db"
    await stored(path, flow("a C"))
    fired: list[str] = []

    def refuse(commit: Any) -> None:
        if any(record.kind == "definition" for record in commit.records):
            fired.append("refused")
            raise StoreUnavailable("the disk went away")

    newer = third(rename_topic, count_words)
    async with Engine(ProxyStore(SqliteStore(path), refuse), workflows=[newer]) as engine:
        with pytest.raises(StoreUnavailable):
            await resumed(engine)
    assert fired == ["refused"]
    assert outside_sql(path, "SELECT version FROM sessions") == [{"version": 1}]
    async with Engine(path, workflows=[newer]) as engine:
        assert (await (await resumed(engine)).state()).words == 1


@pytest.mark.long
@on_loop
async def test_misfits_lists_what_would_not_go_on_and_touches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    async with Engine(path) as engine:
        for session_id, workflow in {
            "fits": flow("a B"),
            "ended": flow("a b gone"),
        }.items():
            await (await engine.start(workflow, session_id=session_id)).outcome()
            engine.workflows.clear()
        other = Workflow("other", state=Memo, steps=[made("a", True)])
        newer = Workflow("newer", state=Memo, steps=[made("a", True)], version=2)
        older = Workflow("older", state=Memo, steps=[made("a", True)])
        fuller = Workflow("fuller", state=Memo, steps=[made("a", True)])
        lost = Workflow("lost", state=Memo, steps=[made("a"), made("b", True)])
        for each in (other, newer, older, fuller, lost):
            await (await engine.start(each, session_id=each.name)).outcome()

    class Full(Memo):
        mood: str

    known = [
        flow("a b"),
        Workflow("newer", state=Memo, steps=[made("a")]),
        Workflow("older", state=Memo, steps=[made("a")], version=2),
        Workflow("fuller", state=Full, steps=[made("a")]),
        Workflow("lost", state=Memo, steps=[made("b")]),
    ]
    before = outside_sql(path, "SELECT * FROM sessions ORDER BY key")
    async with Engine(path, workflows=known) as engine:
        found = {str(misfit.session.session_id): misfit.reasons[0] for misfit in await engine.misfits()}
        first = await engine.misfits(limit=2)
        rest = await engine.misfits(after=first.next)
        assert {str(each.session.session_id) for each in (*first, *rest)} == found.keys()
        assert (len(first) <= 2, rest.next) == (True, None)
    assert outside_sql(path, "SELECT * FROM sessions ORDER BY key") == before
    assert sorted(found) == ["fuller", "lost", "newer", "older", "other"]
    assert "which is not registered with this engine" in found["other"]
    assert "Run the newer code" in found["newer"]
    assert "no migration leads from version 1 to 2" in found["older"]
    assert "Full.mood has no value and no default" in found["fuller"]
    assert "step 'a' is finished" in found["lost"]


@on_loop
async def test_a_newer_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stored(path, flow("a B", version=2))
    async with Engine(path, workflows=[flow("a b")]) as engine:
        with pytest.raises(DefinitionError, match=r"stored by version 2.*Run the newer code"):
            await engine.session("m-1").resume(code="accept")
