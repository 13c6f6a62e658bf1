"""A tool's parameters are collected over rounds, and the tool runs once."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from pausepoint import BlockingContext, Context, Engine, Status, Workflow, step, testing
from pausepoint.runtime.collect import Collected, Tool, collect
from pausepoint.testing import ManualClock
from tests.questions.kit import HALF_AN_HOUR, Talk, ended, held, one_step, statuses, waits
from tests.support.loop import on_loop


class Booking(BaseModel):
    name: str
    seats: int = Field(description="how many")
    when: Literal["noon", "night"]
    note: str = ""


class Shop:
    """A tool that counts."""

    def __init__(self) -> None:
        self.booked: list[Booking] = []
        self.tool = Tool("book", Booking, self.book, id="tool-7")

    def book(self, booking: Booking) -> str:
        self.booked.append(booking)
        return f"{booking.seats} for {booking.name} at {booking.when}"

    def workflow(self, given: dict[str, Any] | None = None, **options: Any) -> Workflow[Talk]:
        async def ask(ctx: Context) -> dict[str, Any]:
            done: Collected[str] = await collect(ctx, self.tool, given, **options)
            return {"outcome": done.outcome, "result": done.result, "said": done.said, "parameters": done.parameters}

        return one_step(ask)


@pytest.mark.covers("S2.54")
@on_loop
async def test_with_everything_given_the_tool_runs_and_nobody_is_asked() -> None:
    shop = Shop()
    async with Engine(":memory:") as engine:
        session = await engine.start(shop.workflow({"name": "Ann", "seats": "2", "when": "noon"}))
        assert (await ended(session))["result"] == "2 for Ann at noon"
        assert await statuses(session) == []
    assert len(shop.booked) == 1


@pytest.mark.covers("S2.18")
@pytest.mark.parametrize(
    ("call", "workflow", "engine", "lasts"),
    [
        ({}, {}, {}, HALF_AN_HOUR),
        ({"expires": timedelta(minutes=1)}, {}, {}, timedelta(minutes=1)),
        ({}, {"questions_expire": timedelta(hours=1)}, {"questions_expire": timedelta(hours=2)}, timedelta(hours=1)),
        ({}, {}, {"questions_expire": timedelta(hours=2)}, timedelta(hours=2)),
        ({"expires": None}, {}, {}, None),
        ({}, {"questions_expire": None}, {}, None),
        ({}, {}, {"questions_expire": None}, None),
    ],
)
@on_loop
async def test_it_asks_for_half_an_hour_unless_the_call_the_workflow_or_the_engine_says_otherwise(
    call: dict[str, Any], workflow: dict[str, Any], engine: dict[str, Any], lasts: timedelta | None
) -> None:
    one = one_step(lambda ctx: collect(ctx, Shop().tool, **call), **workflow)
    async with held(one, **engine) as (control, clock):
        question = await waits(await control.start(one))
        assert question.expired_at == (None if lasts is None else clock.time + lasts)


@on_loop
async def test_the_clock_of_a_test_does_not_let_questions_expire() -> None:
    async with testing.engine(clock=ManualClock(auto=True)) as engine:
        outcome = await engine.run(Shop().workflow())
        assert outcome.status is Status.WAITING
        assert outcome.questions[0].expired_at is None


@pytest.mark.covers("S2.9", "S2.11", "S2.48", "S2.49", "S2.51", "S2.54")
@on_loop
async def test_what_is_missing_is_asked_for_and_merged_and_the_tool_runs_exactly_once(tmp_path: Path) -> None:
    shop = Shop()
    workflow = shop.workflow({"name": "Ann"})
    async with Engine(tmp_path / "it.db") as engine:
        session = await engine.start(workflow, session_id="s")
        first = await waits(session)
        assert first.next_question == "book needs: seats (how many), when (noon, night)."
        assert (first.pending_tool_id, first.pending_tool_name) == ("tool-7", "book")
        assert json.loads(first.collected_params_json or "") == {"name": "Ann"}
        await session.answer({"seats": 3})
        second = await waits(session)
        assert (second.id, second.current_round) == (first.id, 2)
        assert json.loads(second.collected_params_json or "") == {"name": "Ann", "seats": 3}
        assert second.next_question == "book needs: when (noon, night)."
    async with Engine(tmp_path / "it.db", workflows=[workflow]) as engine:
        session = engine.session("s")
        await session.send("night")
        assert (await ended(session))["result"] == "3 for Ann at night"
    assert shop.booked == [Booking(name="Ann", seats=3, when="night")]


@pytest.mark.covers("S2.50")
@pytest.mark.parametrize("nothing", ["", "  ", None, "null", "NULL"])
@on_loop
async def test_empty_null_and_the_text_null_are_missing(nothing: str | None) -> None:
    shop = Shop()
    async with Engine(":memory:") as engine:
        session = await engine.start(shop.workflow({"name": nothing, "seats": 1, "when": "noon"}))
        assert (await waits(session)).next_question == "book needs: name."
        await session.answer({"name": nothing})
        assert (await waits(session)).current_round == 2
        await session.answer({"name": "Ben"})
        assert (await ended(session))["outcome"] == "done"


@pytest.mark.covers("S2.56")
@on_loop
async def test_a_wrong_type_or_a_value_outside_the_enumeration_is_asked_for_again_with_the_reason() -> None:
    shop = Shop()
    async with Engine(":memory:") as engine:
        session = await engine.start(shop.workflow({"name": "Ann", "seats": "some", "when": "dawn"}))
        first = await waits(session)
        assert "seats: Input should be a valid integer" in first.next_question
        assert "when: Input should be 'noon' or 'night'" in first.next_question
        await session.answer({"seats": 2, "when": "dusk"})
        second = await waits(session)
        assert "when: Input should be 'noon' or 'night'" in second.complaint
        assert json.loads(second.collected_params_json or "") == {"name": "Ann", "seats": 2}
        await session.answer('{"when": "noon", "name": "Anna"}')  # and a correction of what was there
        assert (await ended(session))["result"] == "2 for Anna at noon"


@pytest.mark.covers("S2.52")
@pytest.mark.parametrize(("at_last", "outcome"), [("hand_over", "handed_over"), ("skip", "skipped")])
@on_loop
async def test_after_the_last_round_the_tool_is_not_run_and_the_outcome_says_so(at_last: str, outcome: str) -> None:
    shop = Shop()
    async with Engine(":memory:") as engine:
        session = await engine.start(shop.workflow({"name": "Ann"}, rounds=2, at_last=at_last))
        await waits(session)
        await session.answer({"when": "noon", "seats": "a few"})
        await waits(session)
        await session.send("a few")
        found = await ended(session)
        assert found["outcome"] == outcome
        assert "book did not run" in found["said"]
        assert "seats: Input should be a valid integer" in found["said"]
        assert found["parameters"] == {"name": "Ann", "when": "noon"}
    assert shop.booked == []


@on_loop
async def test_own_words_are_understood_and_questions_put_as_the_author_wants() -> None:
    shop = Shop()

    def understand(text: str, names: list[str]) -> dict[str, Any]:
        words = text.split()
        return {"seats": words[0], "when": words[-1]} if len(words) > 1 else {}

    def phrase(names: list[str], why: str) -> str:
        return f"还缺 {'、'.join(names)}" + (f"（{why}）" if why else "")

    async with Engine(":memory:") as engine:
        session = await engine.start(shop.workflow({"name": "安娜"}, understand=understand, phrase=phrase))
        assert (await waits(session)).next_question == "还缺 seats、when"
        await session.send("什么？")
        assert (await waits(session)).current_round == 2
        await session.send("4 people at noon")
        assert (await ended(session))["result"] == "4 for 安娜 at noon"


@on_loop
async def test_an_unknown_parameter_is_told_with_the_nearest_name() -> None:
    shop = Shop()
    async with Engine(":memory:") as engine:
        session = await engine.start(shop.workflow({"name": "Ann", "when": "noon"}))
        await waits(session)
        await session.answer({"seat": 2})
        question = await waits(session)
        assert "unknown parameter 'seat'. Did you mean 'seats'?" in question.complaint
        await session.answer(2)
        assert (await ended(session))["outcome"] == "done"


@on_loop
async def test_words_that_begin_with_a_brace_are_words() -> None:
    shop = Shop()
    async with Engine(":memory:") as engine:
        session = await engine.start(shop.workflow({"seats": 1, "when": "noon"}))
        await waits(session)
        await session.send("{Ann}")
        found = await ended(session)
        assert (found["outcome"], found["parameters"]["name"]) == ("done", "{Ann}")


@on_loop
async def test_a_def_step_collects_too() -> None:
    shop = Shop()

    @step(writes="said")
    def only(ctx: BlockingContext) -> str | None:
        return collect(ctx, shop.tool, {"name": "Ann", "when": "noon"}).result

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("one", state=Talk, steps=[only]))
        await waits(session)
        await session.answer({"seats": 5})
        assert await ended(session) == "5 for Ann at noon"
    assert len(shop.booked) == 1


@pytest.mark.covers("S2.55")
@on_loop
async def test_of_several_tools_those_that_are_done_keep_their_results_over_the_question() -> None:
    shop = Shop()

    async def ask(ctx: Context) -> list[str | None]:
        given: list[dict[str, Any]] = [
            {"name": "Ann", "seats": 1, "when": "noon"},
            {"name": "Ben", "when": "night"},
            {"name": "Cem", "seats": 3, "when": "noon"},
        ]
        return [(await collect(ctx, shop.tool, each)).result for each in given]

    async with Engine(":memory:") as engine:
        session = await engine.start(one_step(ask))
        question = await engine.question((await waits(session)).id)
        assert [each.name for each in shop.booked] == ["Ann"]
        [done] = json.loads(question.tool_call_state_json or "")["done"]
        assert done["value"] == "1 for Ann at noon"
        await session.answer({"seats": 2})
        assert await ended(session) == ["1 for Ann at noon", "2 for Ben at night", "3 for Cem at noon"]
    assert [each.name for each in shop.booked] == ["Ann", "Ben", "Cem"]
