"""Sessions that outlive their code: steps renamed, removed, moved or put in, states of older versions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator, model_validator

from pausepoint import Append, Context, Engine, Event, Session, Status, Workflow, migrate, route, step
from pausepoint.definition.steps import Migration, Step
from pausepoint.errors import DefinitionError, StateRefused, StoreUnavailable
from pausepoint.testing import ManualClock
from tests.support.children import outside_sql
from tests.support.loop import on_loop
from tests.support.otherstores import ProxyStore

State = dict[str, Any]


class Memo(BaseModel):
    topic: str = "otters"
    trail: Annotated[list[str], Append] = []


def made(name: str, fails: bool = False, was: str | Sequence[str] = ()) -> Step[..., Any]:
    """A step that leaves its name in the trail, or fails."""

    @step(name=name, writes="trail", was=was)
    async def one() -> list[str]:
        if fails:
            raise RuntimeError("not today")
        return [name]

    return one


def flow(names: str, **options: Any) -> Workflow[Any]:
    """A workflow of these steps. One in capital letters fails; ``new=old`` is a step that was called ``old``."""
    steps = []
    for word in names.split():
        name, _, was = word.partition("=")
        steps.append(made(name.lower(), name.isupper(), was.split(",") if was else ()))
    return Workflow("memo", state=options.pop("state", Memo), steps=steps, **options)


async def stored(path: Path, workflow: Workflow[Any], **options: Any) -> None:
    """A session m-1 of a workflow, as far as it gets."""
    async with Engine(path) as engine:
        await (await engine.start(workflow, session_id="m-1", **options)).outcome()


async def resumed(engine: Engine, **options: Any) -> Session[Any]:
    session = await engine.resume("m-1", **options)
    await session.outcome()
    return session


async def types(session: Session[Any], *wanted: str) -> list[Event]:
    return [event async for event in session.events() if event.event_type in wanted]


async def why(session: Session[Any]) -> str:
    """The reason of the one pause that is open."""
    (pause,) = await session.pauses()
    assert pause.kind == "definition"
    assert await session.status() is Status.PAUSED
    return pause.reason


# steps


@on_loop
async def test_an_unchanged_definition_leaves_no_trace_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stored(path, flow("a b C d"))
    async with Engine(path, workflows=[flow("a b c d")]) as engine:
        session = await resumed(engine)
        assert (await session.state()).trail == ["a", "b", "c", "d"]
    assert outside_sql(path, "SELECT seq FROM log WHERE kind = 'definition'") == []


@on_loop
async def test_ahead_of_a_session_steps_may_come_go_and_change_places(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stored(path, flow("a B c d e"))
    async with Engine(path, workflows=[flow("a b e new d")]) as engine:
        session = await resumed(engine)
        assert (await session.state()).trail == ["a", "b", "e", "new", "d"]
        (event,) = await types(session, "definition.changed")
        assert event.data == {"added": ["new"], "removed": ["c"]}
        assert event.summary == "ahead of the session, steps added: new; steps removed: c"


BEHIND = {
    "a passed step is missing": ("a b C d", "a c d", ["step 'b' was passed, and 'memo' no longer has it", "was='b'"]),
    "passed steps changed places": ("a b c D", "b a c d", ["was passed; it stood", "and stands"]),
    "a passed step stands ahead now": ("a b C d", "a c b d", ["stood after 'a', and stands after 'c' now"]),
    "a new step stands before the position": (
        "a B c",
        "a new b c",
        ["step 'new' never ran, and stands before 'b' now"],
    ),
    "a new step stands first": ("a B c", "new a b c", ["step 'new' never ran, and stands before 'a' now"]),
    "a later step stands before the position": ("a B c d", "a d b c", ["'d' never ran, and stands before 'b' now"]),
    "two new steps": ("a B", "a x y b", ["step 'x' never ran", "step 'y' never ran"]),
    "all at once": ("a b c D e", "a c new d", ["step 'b' was passed", "step 'new' never ran"]),
}


@pytest.mark.parametrize("case", BEHIND)
@on_loop
async def test_what_changed_behind_a_session_pauses_it_with_the_difference_and_the_ways_out(case: str) -> None:
    before, after, said = BEHIND[case]
    async with Engine(":memory:") as engine:
        started = await engine.start(flow(before), session_id="m-1")
        await started.outcome()
        engine.workflows["memo"] = flow(after)
        reason = await why(await resumed(engine))
        for part in said:
            assert part in reason
        assert "session.resume(accept=True)" in reason
        assert "run the code that fits" in reason
        (misfit,) = await engine.misfits()
        assert "; ".join(misfit.reasons) in reason
        assert "; ".join(misfit.ways) in reason
        engine.workflows["memo"] = flow(before.lower())
        session = await resumed(engine)
        assert (await session.state()).trail == before.lower().split()


@on_loop
async def test_the_reason_names_the_visit_from_which_redoing_meets_none_of_the_differences() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(flow("a b c D"), session_id="m-1")).outcome()
        engine.workflows["memo"] = flow("a b d")
        reason = await why(await resumed(engine))
        assert "session.rewind('b')" in reason
        assert "session.fork(at='b')" in reason
        engine.workflows["memo"] = flow("b c d")
        assert "rewind" not in await why(await resumed(engine))  # nothing stands before what is missing


@on_loop
async def test_a_position_that_is_lost_cannot_be_accepted() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(flow("a b FETCH d"), session_id="m-1")).outcome()
        engine.workflows["memo"] = flow("a b fetched d")
        for accept in (False, True):
            reason = await why(await resumed(engine, accept=accept))
            assert "the session stands at step 'fetch', which 'memo' no longer has (did you mean 'fetched'?)" in reason
            assert "@step(was='fetch')" in reason
            assert "session.rewind('b')" in reason
            assert "accept=True" not in reason
        engine.workflows["memo"] = flow("a b fetched=fetch d")
        assert (await (await resumed(engine)).state()).trail == ["a", "b", "fetched", "d"]


@on_loop
async def test_accepting_is_recorded_with_its_author_and_asked_once_only(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stored(path, flow("a b C d"))
    async with Engine(path, workflows=[flow("a new C d")]) as engine:
        session = await resumed(engine, accept=True, by="ann")
        assert await session.status() is Status.FAILED
        (event,) = await types(session, "definition.changed")
        assert event.agent_name == "ann"
        assert event.summary.startswith("accepted by ann: step 'b' was passed")
        assert [text.partition(" ")[2][:5] for text in event.data["accepted"]] == ["'b' w", "'new'"]
    async with Engine(path, workflows=[flow("a new c d")]) as engine:
        session = await resumed(engine)
        assert (await session.state()).trail == ["a", "b", "c", "d"]
        assert len(await types(session, "definition.changed")) == 1


@on_loop
async def test_start_with_the_id_of_a_stored_session_looks_as_closely_as_resume_does(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stored(path, flow("a B"))
    async with Engine(path) as engine:
        session = await engine.start(flow("b"), session_id="m-1")
        await session.outcome()
        assert "step 'a' was passed" in await why(session)


def forked(names: str, target: str) -> Workflow[Any]:
    """A workflow whose first step is followed by a route to ``target``."""

    @route(after="a")
    def onward(topic: str) -> Literal["b", "d"]:
        return target  # type: ignore[return-value]  # drawn by the test

    return flow(names, routes=[onward])


@on_loop
async def test_a_step_that_a_route_jumped_over_was_not_put_in(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stored(path, forked("a b c D e", "d"))
    async with Engine(path, workflows=[forked("a b new c D e", "d")]) as engine:
        session = await resumed(engine)
        assert await session.status() is Status.FAILED, "what stands among the jumped ones is jumped over too"
    async with Engine(path, workflows=[forked("a b new c x d e", "d")]) as engine:
        session = await resumed(engine)
        assert (await session.state()).trail == ["a", "d", "e"]


@on_loop
async def test_in_a_loop_a_step_may_be_put_in_ahead_of_the_position() -> None:
    def looping(names: str, fails: bool) -> Workflow[Any]:
        @step(writes="trail")
        async def a(trail: list[str]) -> list[str]:
            if trail and fails:
                raise RuntimeError("in the second round")
            return ["a"]

        @route(after="c")
        def again(trail: list[str]) -> Literal["a"] | None:
            return "a" if trail.count("c") < 2 else None

        rest = [made(name) for name in names.split()]
        return Workflow("memo", state=Memo, steps=[a, *rest], routes=[again])

    async with Engine(":memory:") as engine:
        await (await engine.start(looping("b c", True), session_id="m-1")).outcome()
        assert (await engine.info("m-1")).visit == 2
        engine.workflows["memo"] = looping("new b c", False)
        session = await resumed(engine)
        assert (await session.state()).trail == ["a", "b", "c", "a", "new", "b", "c"]


@on_loop
async def test_a_renamed_step_keeps_its_visits_and_what_its_open_visit_remembers(tmp_path: Path) -> None:
    done: list[str] = []
    keys: list[str] = []

    async def fetch(name: str) -> str:
        done.append(name)
        return f"{name} fetched"

    def working(name: str, was: Sequence[str], fails: bool) -> Step[..., Any]:
        @step(name=name, writes="trail", was=was)
        async def work(ctx: Context) -> list[str]:
            keys.append(ctx.idempotency_key)
            found = await ctx.do(fetch, "news")
            if fails:
                raise RuntimeError("after the operation")
            return [found]

        return work

    path = tmp_path / "h.db"
    await stored(path, Workflow("memo", state=Memo, steps=[made("a"), working("work", (), True), made("z")]))
    steps = [made("alpha", was=["a", "aa"]), working("labour", ["work"], False), made("z")]
    async with Engine(path, workflows=[Workflow("memo", state=Memo, steps=steps)]) as engine:
        assert await engine.misfits() == []
        session = await resumed(engine)
        assert (await session.state()).trail == ["a", "news fetched", "z"]
        assert done == ["news"], "the remembered operation did not run again"
        assert len(set(keys)) == 1
        (event,) = await types(session, "definition.changed")
        assert event.summary == "step 'a' is called 'alpha' now; step 'work' is called 'labour' now"
        assert event.data["renamed"] == {"a": "alpha", "work": "labour"}
    (row,) = outside_sql(path, "SELECT count(*) AS n FROM log WHERE kind = 'definition'")
    assert row["n"] == 1


# states


class Second(BaseModel):
    subject: str
    trail: Annotated[list[str], Append] = []


class Third(BaseModel):
    subject: str
    words: int
    trail: Annotated[list[str], Append] = []
    mood: str = "calm"


@migrate(from_version=1)
def rename_topic(state: State) -> State:
    state["subject"] = state.pop("topic")
    return state


@migrate(from_version=2)
def count_words(state: State) -> State:
    return {**state, "words": len(state["subject"].split())}


def third(*migrations: Migration[..., Any], model: type[BaseModel] = Third, fails: bool = False) -> Workflow[Any]:
    """The memo at version 3: a step that reads its fields, behind the two of version 1."""

    @step(writes="trail")
    async def c(subject: str, words: int) -> list[str]:
        if fails:
            raise RuntimeError("not today")
        return [f"{subject}: {words}"]

    @step(name="a", writes="trail")
    async def a(subject: str) -> list[str]:
        return ["a"]

    return Workflow("memo", state=model, steps=[a, c], version=3, migrations=migrations)


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


@pytest.mark.covers("S4.82")
@on_loop
async def test_every_checkpoint_and_key_frame_carries_the_version_of_the_state_it_was_made_with(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stored(path, flow("a C"))
    newer = third(rename_topic, count_words)
    async with Engine(path, workflows=[newer]) as engine:
        await resumed(engine)
        assert [checkpoint.version for checkpoint in await engine.checkpoints("m-1")] == [1, 3]
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
    leaves_out: "field 'trail': it was left out, but Second still has it",
    misspells: "'misspells' (version 1 to 2) leaves a state that is refused: field 'subjct': Second has no such field",
    forgets: "field 'subject': Second.subject has no value and no default",
    wrong_type: "'wrong_type' (version 1 to 2) leaves a state that is refused: field 'subject': subject: Input",
    not_storable: "'not_storable' (version 1 to 2) returned what cannot be stored: subject: object cannot be stored",
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
        assert "repair the migration, then resume" in reason
        paused, kinds, version = await stored_facts(engine)
        assert (paused[: len(before[0])], kinds[len(before[1]) :], version) == (before[0], ["event"], 1)
        engine.workflows["memo"] = second(rename_topic)
        outcome = await (await engine.resume("m-1")).outcome()
        assert (outcome.status, outcome.pauses) == (Status.COMPLETED, ())
        assert outcome.state == Second(subject="otters", trail=["about otters"])


async def stored_facts(engine: Engine) -> tuple[list[bytes], list[str], int]:
    """The payloads and kinds of a session's records, and its version."""
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
        assert "the stored state is refused by version 2: field 'topic': topic: String should have" in await why(
            await resumed(engine)
        )
        engine.workflows["memo"] = second_of(Whole, lambda state: state)
        assert "migration 'up' (version 1 to 2) leaves a state that is refused: the state: Value error, not about" in (
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
        assert await engine.state("m-1") == Third(subject="otters", words=1, trail=["a"])
        outcome = await (await engine.session("m-1")).outcome()
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
    async with Engine(path, workflows=[newer]) as engine:  # and folds again
        assert (await engine.state("m-1")).model_dump()["more"] == 7


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
        assert (
            "stored by version 1 of 'memo', the code is version 2, and no migration leads from version 1 to 2" in reason
        )
        assert "@migrate(from_version=1)" in reason
        with pytest.raises(StateRefused, match="no migration leads"):
            await session.state()
        await (await session.resume(accept=True, by="ann")).outcome()
        assert await session.status() is Status.COMPLETED
        (event,) = await types(session, "session.migrated")
        assert (event.agent_name, event.data["to"]) == ("ann", 2)
        assert (await session.info()).version == 2


@on_loop
async def test_accepting_does_not_let_a_state_pass_that_the_model_refuses() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(flow("a B"), session_id="m-1")).outcome()
        engine.workflows["memo"] = flow("a b", state=Strict, version=2)
        assert "field 'topic'" in await why(await resumed(engine, accept=True))


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
        assert await engine.state("m-1") == Memo(topic="eels", trail=["a"])


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
    assert outside_sql(path, "SELECT * FROM sessions ORDER BY key") == before
    assert sorted(found) == ["fuller", "lost", "newer", "older", "other"]
    assert "which this engine does not know" in found["other"]
    assert "run the newer code" in found["newer"]
    assert "no migration leads from version 1 to 2" in found["older"]
    assert "Full.mood has no value and no default" in found["fuller"]
    assert "step 'a' was passed" in found["lost"]


@on_loop
async def test_a_newer_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stored(path, flow("a B", version=2))
    async with Engine(path, workflows=[flow("a b")]) as engine:
        with pytest.raises(DefinitionError, match=r"stored by version 2.*run the newer code"):
            await engine.resume("m-1", accept=True)


# ways out, and sessions that wait


@on_loop
async def test_rewinding_to_the_visit_that_the_reason_names_is_a_way_out() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(flow("a b c D"), session_id="m-1")).outcome()
        engine.workflows["memo"] = flow("a b x d")
        session = await resumed(engine)
        assert "session.rewind('b')" in await why(session)
        await session.rewind("b", by="ann")
        await (await session.resume()).outcome()
        assert (await session.state()).trail == ["a", "b", "x", "d"]


@on_loop
async def test_forking_at_the_visit_that_the_reason_names_is_a_way_out_that_leaves_the_session_alone() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(flow("a b c D"), session_id="m-1")).outcome()
        engine.workflows["memo"] = second = flow("a b x d", state=Second, version=2, migrations=[rename_topic])
        session = await resumed(engine)
        assert "session.fork(at='b')" in await why(session)
        copy = await session.fork(at="b", subject="squid")
        assert (await copy.outcome()).state == Second(subject="squid", trail=["a", "b", "x", "d"])
        assert (await copy.info()).version == second.version
        assert await session.status() is Status.PAUSED
        assert (await session.info()).version == 1


@on_loop
async def test_a_rewind_to_before_a_migration_goes_back_to_the_older_state_which_is_migrated_again() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(flow("a b C"), session_id="m-1")).outcome()
        ran: list[int] = []

        @migrate(from_version=1)
        def counted(state: State) -> State:
            ran.append(1)
            return rename_topic(state)

        engine.workflows["memo"] = flow("a b c", state=Second, version=2, migrations=[counted])
        session = await resumed(engine)
        await session.rewind("b")
        assert (await session.info()).version == 1
        await (await session.resume()).outcome()
        assert await session.state() == Second(subject="otters", trail=["a", "b", "c"])
        assert (await session.info()).version == 2
        assert len(await types(session, "session.migrated")) == 2


HOUR = 3600.0


def napping(*before: Step[..., Any], **options: Any) -> Workflow[Any]:
    """A workflow whose last step sleeps an hour."""

    @step(writes="trail")
    async def nap(ctx: Context) -> list[str]:
        await ctx.sleep(HOUR)
        return ["rested"]

    return Workflow("memo", state=options.pop("state", Memo), steps=[*before, nap], **options)


async def settled(session: Session[Any], status: Status) -> None:
    """Wait until the session has come to a status by itself."""
    while await session.status() is not status:
        await asyncio.sleep(0.001)


@on_loop
async def test_a_session_that_wakes_by_itself_is_migrated_and_keeps_its_timer() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(napping(), session_id="m-1")
        await settled(session, Status.SLEEPING)
        engine.workflows["memo"] = napping(state=Second, version=2, migrations=[rename_topic])
        clock.advance(HOUR)
        assert (await session.outcome()).state == Second(subject="otters", trail=["rested"])
        assert len(await types(session, "timer.set")) == 1
        assert len(await types(session, "session.migrated")) == 1


@on_loop
async def test_a_session_that_no_longer_fits_pauses_when_it_wakes() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(napping(made("a")), session_id="m-1")
        await settled(session, Status.SLEEPING)
        engine.workflows["memo"] = napping()
        clock.advance(HOUR)
        await settled(session, Status.PAUSED)
        assert "step 'a' was passed" in await why(session)
        assert (await (await session.resume(accept=True)).outcome()).state.trail == ["a", "rested"]


@on_loop
async def test_a_sleeping_session_can_be_accepted_beforehand_and_sleeps_on() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(napping(made("a")), session_id="m-1")
        await settled(session, Status.SLEEPING)
        engine.workflows["memo"] = napping()
        await session.resume(accept=True)
        await settled(session, Status.SLEEPING)
        assert len(await types(session, "definition.changed")) == 1
        clock.advance(HOUR)
        assert (await session.outcome()).state.trail == ["a", "rested"]
