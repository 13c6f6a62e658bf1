"""A stored state is read back equal or not at all, also after a failed write."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, create_model

from pausepoint import Append, Context, Engine, Merge, Replace, Status, Workflow, step
from pausepoint.errors import AlreadyRunning, DefinitionError, StateRefused, StoreUnavailable
from pausepoint.model.commits import Commit
from pausepoint.stores.base import Store
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock
from tests.support.children import child, outside_sql, run_child
from tests.support.dictstore import DictStore
from tests.support.loop import on_loop
from tests.support.otherstores import ProxyStore
from tests.support.pipeline import FINISHED, STEPS, Doc, Pipeline, until


class Level(Enum):
    LOW = "low"
    HIGH = "high"


class Item(BaseModel):
    due: date
    level: Level
    parts: list[list[int]] = []
    note: str | None = None


class Everything(BaseModel):
    items: list[Item] = []
    by_name: dict[str, Item] = {}
    when: datetime | None = None
    lasts: timedelta = timedelta()
    price: Decimal = Decimal(0)
    key: UUID | None = None
    raw: bytes = b""
    tags: set[str] = set()
    pair: tuple[int, str] = (0, "")
    number: int | float = 0
    missing: Item | None = None


ITEM = Item(due=date(2024, 2, 29), level=Level.HIGH, parts=[[1], [], [2, 3]], note="ünïcode ✓")
FULL = Everything(
    items=[ITEM, Item(due=date(1999, 12, 31), level=Level.LOW)],
    by_name={"a": ITEM},
    when=datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=UTC),
    lasts=timedelta(days=-1, microseconds=1),
    price=Decimal("1.10"),
    key=UUID(int=7),
    raw=b"\x00\xff",
    tags={"x", "y"},
    pair=(1, "one"),
    number=2.0,
    missing=None,
)


@step(writes=list(Everything.model_fields))
async def write_all() -> dict[str, Any]:
    return dict(FULL)


everything = Workflow("everything", state=Everything, steps=[write_all])


@pytest.mark.covers("S1.12")
@on_loop
async def test_what_was_saved_comes_back_equal_in_value_and_type_from_another_engine(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        written = await engine.start(everything)
        given = await engine.start(everything, FULL, paused=True)
        assert (await written.outcome()).status is Status.COMPLETED
    async with Engine(tmp_path / "h.db", workflows=[everything]) as engine:
        for session_id in (written.id, given.id):
            state: Any = await engine.session(session_id).state()
            assert state == FULL
            assert isinstance(state.items[0].level, Level)
            assert isinstance(state.number, float)
            assert type(state.items[0].due) is date
            assert state.missing is None


@pytest.mark.covers("S1.18", "S1.61", "S3.2", "S3.3")
@on_loop
async def test_another_process_loads_the_session_and_goes_on_with_it(tmp_path: Path) -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("verdict")
    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(pipeline.workflow, session_id="memo-1")
        await gate.reached.wait()
    printed = run_child(
        """
        pipeline = Pipeline()
        async with Engine(args[0], workflows=[pipeline.workflow]) as engine:
            session = await engine.session("memo-1").resume()
            outcome = await session.outcome()
            print(outcome.status, ",".join(pipeline.calls))
            print(outcome.state.model_dump_json())
        """,
        tmp_path / "h.db",
    ).splitlines()
    assert printed[0] == "completed verdict,report"
    assert Doc.model_validate_json(printed[1]) == FINISHED
    assert session.id == "memo-1"


def changed(**fields: Any) -> type[BaseModel]:
    """Return the model `Doc` of a later version of the program."""
    kept = {name: (info.annotation, info.default) for name, info in Doc.model_fields.items()}
    return create_model("Doc", **(kept | fields))


def passed(*names: str) -> list[Any]:
    """Return steps that the session has already passed. They exist and do not run again."""

    def one(name: str) -> Any:
        @step(name=name)
        async def done() -> None:
            raise AssertionError(f"{name} was passed already")

        return done

    return [one(name) for name in names]


async def stopped_at_verdict(path: Path) -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("verdict")
    async with Engine(path) as engine:
        await engine.start(pipeline.workflow, session_id="memo-1")
        await gate.reached.wait()


@pytest.mark.covers("S1.1")
@on_loop
async def test_a_stored_field_of_a_wrong_type_is_named_and_the_stored_state_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stopped_at_verdict(path)
    before = outside_sql(path, "SELECT * FROM log")

    @step(writes="verdict")
    async def verdict(draft: int) -> str:
        raise AssertionError("it cannot be read, so it cannot run")

    @step(writes="report")
    async def report() -> str:
        return ""

    newer = Workflow("pipeline", state=changed(draft=(int, 0)), steps=[*passed("outline", "draft"), verdict, report])
    async with Engine(path, workflows=[newer]) as engine:
        with pytest.raises(StateRefused, match="draft") as refused:
            await engine.session("memo-1").state()
        assert refused.value.field.startswith("draft")
    assert outside_sql(path, "SELECT * FROM log") == before
    async with Engine(path, workflows=[newer]) as engine:
        session = await engine.session("memo-1").resume()
        await parked(engine, session.id)
        (pause,) = await session.pauses()
        assert pause.kind == "definition"
        assert "draft" in pause.reason
    async with Engine(path, workflows=[Pipeline().workflow]) as engine:
        session = await engine.session("memo-1").resume()
        assert (await session.outcome()).state == FINISHED


async def parked(engine: Engine, session_id: str) -> Status:
    """Wait until no engine drives the session. Unlike `outcome`, this does not read the state."""
    while (info := await engine.session(session_id).info()).holder is not None:
        await asyncio.sleep(0.001)
    return info.status


@pytest.mark.long
@pytest.mark.covers("S1.1")
@on_loop
async def test_a_field_that_the_model_gained_gets_its_default_or_pauses_the_session_naming_it(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stopped_at_verdict(path)

    def with_steps(model: type[BaseModel]) -> Workflow[Any]:
        @step(writes="verdict")
        async def verdict(mood: str) -> str:
            return mood

        @step(writes="report")
        async def report() -> str:
            return "done"

        return Workflow("pipeline", state=model, steps=[*passed("outline", "draft"), verdict, report])

    required = with_steps(changed(mood=(str, ...)))
    async with Engine(path, workflows=[required]) as engine:
        session = await engine.session("memo-1").resume()
        outcome = await session.outcome()
        (pause,) = outcome.pauses
        assert (outcome.status, pause.kind) == (Status.PAUSED, "definition")
        assert "mood" in pause.reason
        assert "default" in pause.reason
        with pytest.raises(StateRefused, match="mood"):
            _ = outcome.state
    defaulted = with_steps(changed(mood=(str, "calm")))
    async with Engine(path, workflows=[defaulted]) as engine:
        session = await engine.session("memo-1").resume()
        outcome = await session.outcome()
        assert (outcome.status, outcome.pauses) == (Status.COMPLETED, ())
        assert (outcome.state.mood, outcome.state.verdict, outcome.state.draft) == ("calm", "calm", FINISHED.draft)


@on_loop
async def test_a_step_that_the_workflow_lost_pauses_the_session_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stopped_at_verdict(path)

    @step(writes="verdict")
    async def verdicts() -> str:
        return "renamed"

    async with Engine(path, workflows=[Workflow("pipeline", state=Doc, steps=[verdicts])]) as engine:
        session = await engine.session("memo-1").resume()
        outcome = await session.outcome()
        assert outcome.status is Status.PAUSED
        (pause,) = outcome.pauses
        assert pause.kind == "definition"
        assert "'verdict'" in pause.reason
        assert "Did you mean 'verdicts'?" in pause.reason
        assert "put the step back into the code and resume" in pause.reason
    async with Engine(path, workflows=[Pipeline().workflow]) as engine:
        outcome = await (await engine.session("memo-1").resume()).outcome()
        assert (outcome.status, outcome.state, outcome.pauses) == (Status.COMPLETED, FINISHED, ())


@on_loop
async def test_state_of_a_newer_version_is_refused_and_that_of_an_older_one_pauses(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stopped_at_verdict(path)
    steps = Pipeline()._steps({})
    newer = Workflow("pipeline", state=Doc, steps=steps, version=2)
    async with Engine(path, workflows=[newer]) as engine:
        session = await engine.session("memo-1").resume()
        outcome = await session.outcome()
        assert (outcome.status, outcome.pauses[0].kind) == (Status.PAUSED, "definition")
        assert "version 1" in outcome.pauses[0].reason
        await engine.start(newer, session_id="memo-2", paused=True)
    async with Engine(path, workflows=[Pipeline().workflow]) as engine:
        with pytest.raises(DefinitionError, match=r"stored by version 2.*Run the newer code"):
            await engine.session("memo-2").resume()
        with pytest.raises(DefinitionError, match="stored by version 2"):
            await engine.session("memo-2").state()
        assert (await engine.session("memo-2").info()).status is Status.PAUSED


@on_loop
async def test_a_session_of_a_workflow_that_the_engine_was_not_given_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await stopped_at_verdict(path)
    other = Workflow("pipelines", state=Doc, steps=Pipeline()._steps({}))
    async with Engine(path, workflows=[other]) as engine:
        with pytest.raises(DefinitionError, match="'pipeline', which is not registered with this engine") as refused:
            await engine.session("memo-1").resume()
        assert "Did you mean 'pipelines'?" in str(refused.value)
        assert (await engine.session("memo-1").info()).status is Status.READY  # reading needs no definition
        assert (await engine.session("memo-1").pause())[0].status is Status.PAUSED


@pytest.mark.covers("S1.14", "S3.8", "S3.9")
@on_loop
async def test_created_at_never_changes_and_updated_at_moves_with_every_write_and_never_back(tmp_path: Path) -> None:
    clock = ManualClock()
    pipeline = Pipeline()
    seen: list[tuple[datetime, datetime]] = []
    jumps = iter([5.0, -3600.0, 7200.0, 1.0])
    async with Engine(tmp_path / "h.db", clock=clock) as engine:

        async def note() -> None:
            info = await engine.session("memo-1").info()
            seen.append((info.created_at, info.updated_at))
            clock.jump(next(jumps))

        pipeline.acts = dict.fromkeys(STEPS, note)
        session = await engine.start(pipeline.workflow, session_id="memo-1")
        await session.outcome()
        info = await session.info()
        seen.append((info.created_at, info.updated_at))
        (row,) = await asyncio.to_thread(
            outside_sql, tmp_path / "h.db", "SELECT created_at, updated_at FROM workflow_states"
        )
    created, updated = zip(*seen, strict=True)
    assert set(created) == {created[0]}
    moved = [(late - early).total_seconds() for early, late in pairwise(updated)]
    assert moved == [5, 0, 3600 - 5 + 5, 1]  # updated_at never goes back, although the clock jumped back an hour
    assert datetime.fromisoformat(row["created_at"]) == info.created_at
    assert datetime.fromisoformat(row["updated_at"]) == info.updated_at
    assert info.created_at.utcoffset() == timedelta(0)


class Grown(BaseModel):
    log: Annotated[list[str], Append] = []
    seen: Annotated[dict[str, int], Merge] = {}


@on_loop
async def test_growing_fields_get_what_is_new_and_can_be_replaced() -> None:
    @step(writes=["log", "seen"])
    async def first() -> dict[str, Any]:
        return {"log": ["a"], "seen": {"x": 1, "y": 1}}

    @step(writes=["log", "seen"])
    async def second(log: list[str]) -> dict[str, Any]:
        return {"log": [f"after {log}"], "seen": {"y": 2}}

    @step(writes="seen")
    async def third() -> dict[str, int]:
        return Replace({"z": 3})  # type: ignore[return-value]  # what overwrites a growing field

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("grown", state=Grown, steps=[first, second]), log=["start"])
        state = (await session.outcome()).state
        assert state == Grown(log=["start", "a", "after ['start', 'a']"], seen={"x": 1, "y": 2})
        session = await engine.start(Workflow("replaced", state=Grown, steps=[first, third]))
        assert (await session.outcome()).state == Grown(log=["a"], seen={"z": 3})


# failed writes


class Refusing:
    """A store that refuses the n-th commit, like a full disk."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, commit: Commit) -> None:
        self.left -= 1
        if self.left == 0:
            raise StoreUnavailable("the disk is full; free some space, then resume")


@pytest.mark.covers("S1.19")
@pytest.mark.parametrize("n", [1, 2, 3, 4])
@on_loop
async def test_a_save_that_fails_is_told_and_its_step_does_not_count(n: int) -> None:
    pipeline = Pipeline()
    store = ProxyStore(SqliteStore(":memory:"), Refusing(n))
    async with Engine(store) as engine:
        session = await engine.start(pipeline.workflow)
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await session.outcome()
        assert [visit.step for visit in await session.checkpoints(limit=None)] == list(STEPS[: n - 1])
        assert await session.state() == until(STEPS[n - 1])
        assert pipeline.calls == list(STEPS[:n])
        await session.resume()
        assert (await session.outcome()).state == FINISHED
        assert pipeline.calls == [*STEPS[:n], *STEPS[n - 1 :]]


@on_loop
async def test_a_save_that_fails_inside_an_operation_ends_the_step_whatever_its_code_does_with_the_error() -> None:
    went_on: list[str] = []

    @step
    async def stubborn(ctx: Context) -> None:
        try:
            await ctx.do(len, "abc")
        except Exception:
            await asyncio.sleep(0)
            went_on.append("the step went on")

    store = ProxyStore(SqliteStore(":memory:"), Refusing(1))
    async with Engine(store) as engine:
        session = await engine.start(Workflow("story", state=Doc, steps=[stubborn]))
        with pytest.raises(StoreUnavailable):
            await session.outcome()
        assert went_on == []
        assert await session.checkpoints(limit=None) == []


@pytest.mark.covers("S1.22")
@pytest.mark.parametrize("kind", ["dictionaries", "proxy"])
@on_loop
async def test_any_store_that_keeps_the_protocol_can_take_the_place_of_the_sqlite_one(kind: str) -> None:
    store: Store = DictStore() if kind == "dictionaries" else ProxyStore(SqliteStore(":memory:"))
    pipeline = Pipeline()
    gate = pipeline.hold("draft")
    async with Engine(store) as engine:
        session = await engine.start(pipeline.workflow, topic="otters", owner="ann", tags=["x"])
        await gate.reached.wait()
        assert (await session.pause("lunch", by="ann"))[0].status is Status.PAUSING
        with pytest.raises(AlreadyRunning):
            await engine.store.claim(session.id)
        gate.opened.set()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state) == (Status.PAUSED, until("verdict"))
        assert [(pause.by, pause.reason) for pause in outcome.pauses] == [("ann", "lunch")]
        await session.resume(by="ann")
        outcome = await session.outcome()
        assert (outcome.status, outcome.state, pipeline.calls) == (Status.COMPLETED, FINISHED, list(STEPS))
        assert [event.event_type async for event in session.events()] == [
            "session.created", "step.completed", "pause.requested", "step.completed", "session.paused",
            "resume.requested", "session.resumed", "step.completed", "step.completed", "session.completed",
        ]  # fmt: skip
        other = await engine.start(pipeline.workflow, paused=True)
        assert await other.cancel() is Status.CANCELLED
        assert [info.session_id for info in await engine.sessions(tag="x")] == [session.id]


class Twins(BaseModel):
    left: int = 0
    right: int = 0
    pad: str = Field(default="", max_length=40_000)


@pytest.mark.covers("S1.23")
@pytest.mark.parametrize("n", [1, 2, 3])
@on_loop
async def test_a_process_that_dies_in_the_middle_of_a_save_leaves_the_old_state_whole(n: int, tmp_path: Path) -> None:
    # The hook runs after all statements of the transaction, before it is committed.
    with child(
        """
        import apsw
        from tests.engine.test_stored_state import twins
        countdown = [0]
        def die_at_zero():
            countdown[0] -= 1
            if countdown[0] == 0:
                os._exit(9)
            return False
        apsw.connection_hooks.append(lambda connection: connection.set_commit_hook(die_at_zero))
        async with Engine(args[0]) as engine:
            session = await engine.start(twins, session_id="twins")
            countdown[0] = int(args[1])
            await session.outcome()
        """,
        tmp_path / "h.db",
        n,
    ) as dying:
        assert dying.ended() == 9
    async with Engine(tmp_path / "h.db", workflows=[twins]) as engine:
        state: Any = await engine.session("twins").state()
        assert (state.left, state.right, len(state.pad)) == (n - 1, n - 1, 20_000 if n > 1 else 0)
        outcome = await (await engine.session("twins").resume()).outcome()
        assert (outcome.state.left, outcome.state.right) == (3, 3)


def _twin_step(number: int, seen: Path | None = None) -> Any:
    @step(writes=["left", "right", "pad"], name=f"step{number}")
    async def write(left: int, right: int) -> dict[str, Any]:
        while seen is not None and number % 100 == 99 and not Path(f"{seen}{number}").exists():
            await asyncio.sleep(0.001)
        return {"left": left + 1, "right": right + 1, "pad": str(number % 10) * 20_000}

    return write


twins = Workflow("twins", state=Twins, steps=[_twin_step(number) for number in (1, 2, 3)])


@pytest.mark.covers("S3.89")
@on_loop
async def test_a_reader_in_another_process_never_sees_a_half_written_state(tmp_path: Path) -> None:
    seen = tmp_path / "seen"  # the writer waits at some states until the reader has seen them
    many = Workflow("twins", state=Twins, steps=[_twin_step(number, seen) for number in range(300)])
    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(many, session_id="twins", paused=True)  # before the reader looks for it
        with child(
            """
            from tests.engine.test_stored_state import Twins, _twin_step
            twins = Workflow("twins", state=Twins, steps=[_twin_step(number) for number in range(300)])
            async with Engine(args[0], workflows=[twins]) as engine:
                say("ready")
                seen = set()
                while True:
                    state = await engine.session("twins").state()
                    assert state.left == state.right and len(set(state.pad)) <= 1, state
                    seen.add(state.left)
                    open(f"{args[1]}{state.left}", "w").close()
                    if state.left == 300:
                        break
                    await asyncio.sleep(0)
                say(len(seen))
            """,
            tmp_path / "h.db",
            seen,
        ) as reader:
            reader.expect("ready")
            await session.resume()
            assert (await session.outcome()).status is Status.COMPLETED
            assert int(reader.line()) > 2
            assert reader.ended() == 0
