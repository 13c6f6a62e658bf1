"""A value that cannot be stored is refused at its step, with the path to the value. The old state stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.codec.values import Limits
from pausepoint.errors import ValueRefused
from tests.support.loop import on_loop


class State(BaseModel):
    before: str = ""
    value: Any = None
    number: float = 0.0
    text: str = ""
    names: list[str] = []


@step(writes="before")
async def first() -> str:
    return "kept"


def cycle() -> Any:
    loop: list[Any] = [1]
    loop.append({"again": loop})
    return loop


def deep() -> Any:
    value: Any = "bottom"
    for _ in range(100):
        value = [value]
    return value


REFUSED: dict[str, tuple[Any, str]] = {
    "an open file": (lambda: {"files": [open(__file__)]}, "value['files'][0]"),  # noqa: SIM115 - closed below
    "a function": (lambda: {"callback": print}, "value['callback']"),
    "a lone surrogate": (lambda: ["fine", "\ud800"], "value[1]"),
    "a surrogate in a key": (lambda: {"a\udfff": 1}, "value"),
    "a cycle": (cycle, "value"),
    "an object": (lambda: {"a": {"b": object()}}, "value['a']['b']"),
    "a generator": (lambda: (n for n in [1]), "value"),
}


@pytest.mark.covers("S1.13", "S1.39", "S4.111")
@pytest.mark.parametrize("what", REFUSED)
@on_loop
async def test_a_value_that_is_no_data_fails_its_step_with_the_path_to_it_and_leaves_the_state(what: str) -> None:
    make, path = REFUSED[what]
    made: list[Any] = []

    @step(writes="value")
    async def produce() -> Any:
        made.append(make())
        return made[-1]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("limits", state=State, steps=[first, produce]))
        outcome = await session.outcome()
        assert outcome.status is Status.FAILED
        assert outcome.failure is not None
        assert outcome.failure.step == "produce"
        assert path in outcome.failure.message
        assert outcome.state == State(before="kept")
        assert [visit.step for visit in await session.checkpoints(limit=None)] == ["first"]
    for value in made:
        if what == "an open file":
            value["files"][0].close()


@pytest.mark.covers("S1.13")
@on_loop
async def test_nan_is_refused_where_the_model_forbids_it_and_kept_where_it_does_not() -> None:
    class Numbers(BaseModel):
        strict: float = Field(default=0.0, allow_inf_nan=False)
        loose: float = 0.0

    @step(writes="strict")
    async def forbidden() -> float:
        return float("nan")

    @step(writes="loose")
    async def allowed() -> float:
        return float("nan")

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(Workflow("strict", state=Numbers, steps=[forbidden]))).outcome()
        assert outcome.status is Status.FAILED
        assert outcome.failure is not None
        assert "strict" in outcome.failure.message
        assert outcome.state == Numbers()
        outcome = await (await engine.start(Workflow("loose", state=Numbers, steps=[allowed]))).outcome()
        assert outcome.state.loose != outcome.state.loose


@on_loop
async def test_a_lone_surrogate_in_a_text_field_is_refused_with_its_path() -> None:
    @step(writes="names")
    async def produce() -> list[str]:
        return ["fine", "bad \udc80"]

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(Workflow("limits", state=State, steps=[first, produce]))).outcome()
        assert outcome.failure is not None
        assert "names[1]" in outcome.failure.message
        assert outcome.state == State(before="kept")


@on_loop
async def test_an_oversized_value_pauses_with_the_path_and_the_limit_and_the_old_state_intact() -> None:
    size = 2000

    @step(writes="text")
    async def produce() -> str:
        return "x" * size

    async with Engine(":memory:", limits=Limits(value_bytes=1000)) as engine:
        session = await engine.start(Workflow("limits", state=State, steps=[first, produce]))
        outcome = await session.outcome()
        assert outcome.status is Status.PAUSED
        (pause,) = outcome.pauses
        assert pause.kind == "oversized"
        assert "'produce': text" in pause.reason
        assert "1,000" in pause.reason or "1000" in pause.reason
        assert outcome.state == State(before="kept")
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.status, len(outcome.pauses)) == (Status.PAUSED, 1)
        size = 10
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.text, outcome.pauses) == (Status.COMPLETED, "x" * 10, ())


@on_loop
async def test_a_value_nested_too_deep_pauses_in_the_same_way() -> None:
    @step(writes="value")
    async def produce() -> Any:
        return deep()

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(Workflow("limits", state=State, steps=[first, produce]))).outcome()
        assert (outcome.status, outcome.pauses[0].kind) == (Status.PAUSED, "oversized")
        assert "'produce': value[0]" in outcome.pauses[0].reason
        assert outcome.state == State(before="kept")


class Scored(BaseModel):
    score: float = 0  # pydantic does not validate defaults: this stays an int


class Rated(BaseModel):
    items: list[Scored] = []


@pytest.mark.parametrize("where", ["a field of the state", "a field of a model inside it"])
@on_loop
async def test_a_float_field_may_have_a_whole_number_as_its_default(where: str) -> None:
    @step
    async def nothing() -> None: ...

    @step(writes="items")
    async def produce() -> list[Scored]:
        return [Scored()]

    async with Engine(":memory:") as engine:
        if where == "a field of the state":
            scored = await engine.start(Workflow("scored", state=Scored, steps=[nothing]))
            assert (await scored.outcome()).state.score == 0
        else:
            rated = await engine.start(Workflow("rated", state=Rated, steps=[produce]))
            assert (await rated.outcome()).state == Rated(items=[Scored()])


@on_loop
async def test_a_session_that_was_paused_for_a_large_value_goes_on_under_higher_limits(tmp_path: Path) -> None:
    @step(writes="text")
    async def produce() -> str:
        return "x" * 2000

    workflow = Workflow("limits", state=State, steps=[produce])
    async with Engine(tmp_path / "h.db", limits=Limits(value_bytes=1000)) as engine:
        session = await engine.start(workflow, session_id="one")
        assert (await session.outcome()).status is Status.PAUSED
    async with Engine(tmp_path / "h.db", workflows=[workflow]) as engine:
        assert len((await (await engine.session("one").resume()).outcome()).state.text) == 2000


@on_loop
async def test_too_many_nodes_are_oversized_too() -> None:
    @step(writes="names")
    async def produce() -> list[str]:
        return ["x"] * 101

    async with Engine(":memory:", limits=Limits(nodes=100)) as engine:
        outcome = await (await engine.start(Workflow("limits", state=State, steps=[produce]))).outcome()
        assert (outcome.status, outcome.pauses[0].kind) == (Status.PAUSED, "oversized")
        assert "names" in outcome.pauses[0].reason


@on_loop
async def test_the_result_of_an_operation_is_held_to_the_same_limits() -> None:
    async def big() -> str:
        return "x" * 2000

    async def odd() -> Any:
        return {"a": object()}

    @step
    async def work(ctx: Context) -> None:
        await ctx.do(big)

    @step
    async def other(ctx: Context) -> None:
        await ctx.do(odd)

    async with Engine(":memory:", limits=Limits(value_bytes=1000)) as engine:
        session = await engine.start(Workflow("large", state=State, steps=[work]))
        outcome = await session.outcome()
        assert (outcome.status, outcome.pauses[0].kind) == (Status.PAUSED, "oversized")
        assert "'work': big" in outcome.pauses[0].reason
        outcome = await (await engine.start(Workflow("odd", state=State, steps=[other]))).outcome()
        assert outcome.failure is not None
        assert "odd['a']" in outcome.failure.message


@on_loop
async def test_a_start_with_a_value_that_cannot_be_stored_stores_nothing() -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(ValueRefused, match=r"value\['x'\]") as refused:
            await engine.start(Workflow("limits", state=State, steps=[first]), value={"x": object()})
        assert "value" in refused.value.path
        assert await engine.sessions() == []


@on_loop
async def test_an_event_whose_data_cannot_be_stored_fails_the_step_that_made_it() -> None:
    @step
    async def tell(ctx: Context) -> None:
        ctx.emit("note", "oops", thing=object())

    async with Engine(":memory:") as engine:
        workflow = Workflow("limits", state=State, steps=[first, tell], events=["note"])
        outcome = await (await engine.start(workflow)).outcome()
        assert outcome.failure is not None
        assert (outcome.failure.step, outcome.failure.type) == ("tell", "ValueRefused")
        assert "thing" in outcome.failure.message
        assert outcome.state == State(before="kept")


@pytest.mark.parametrize("size", [15_000, 20_000, 300_000])
@on_loop
async def test_values_of_any_size_within_the_limits_come_back_whole(size: int, tmp_path: Path) -> None:
    @step(writes="text")
    async def produce() -> str:
        return "ß" * size

    @step(writes="names")
    async def measure(text: str) -> list[str]:
        return [str(len(text))]

    workflow = Workflow("large", state=State, steps=[produce, measure])
    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(workflow, session_id="one")
        assert (await session.outcome()).state.names == [str(size)]
    async with Engine(tmp_path / "h.db", workflows=[workflow]) as engine:
        state: Any = await engine.session("one").state()
        assert state.text == "ß" * size
