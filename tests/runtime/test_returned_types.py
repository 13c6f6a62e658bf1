"""A function that does not return what its annotation says: the error names the function and both types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Outcome, Status, Workflow, run, step, workflow
from tests.support.loop import on_loop


class Thing(BaseModel):
    size: int


class Other(BaseModel):
    text: str = ""


class Report(BaseModel):
    text: str | None = None


async def outcome_of(returned: Any, annotation: Any) -> str:
    """Return the error of a session whose operation ``make`` returns a value of another type."""

    async def make() -> Any:
        return returned

    make.__annotations__["return"] = annotation

    @workflow
    async def build(ctx: Context) -> str:
        return str(await ctx.do(make))

    async with Engine(":memory:", workflows=[build]) as engine:
        outcome: Outcome[Any] = await (await engine.start(build)).outcome()
    assert outcome.failure is not None
    assert outcome.failure.type == "ValueRefused"
    return outcome.failure.message


@pytest.mark.parametrize(
    ("annotation", "returned", "words"),
    [
        (Thing, None, "make returns Thing, but returned None"),
        (Thing, "a thing", "make returns Thing, but returned str"),
        (Thing, {"size": 1}, "make returns Thing, but returned dict"),
        (Thing, Other(), "make returns Thing, but returned Other"),
        (int, "1", "make returns int, but returned str"),
        (list[Thing], None, "make returns list[Thing], but returned None"),
        (Thing | None, 3, "make returns Thing | None, but returned int"),
        (None, 5, "make returns None, but returned int"),
    ],
)
@on_loop
async def test_an_operation_of_another_type_says_what_it_returns_and_what_it_returned(
    annotation: Any, returned: Any, words: str
) -> None:
    message = await outcome_of(returned, annotation)
    assert f"Step 'build', operation 'make': {words}." in message
    assert "Correct the function or its annotation, then resume the session" in message
    assert "Input should be" not in message


@pytest.mark.parametrize(
    ("annotation", "returned", "words"),
    [
        (
            list[Thing],
            [Thing(size=1), None],
            "make[1]: NoneType cannot be stored: it does not fit list[tests.runtime.test_returned_types.Thing] (",
        ),
        (Thing, Thing.model_construct(size="big"), "make.size: str cannot be stored: it does not fit Thing ("),
        (Any, object(), "make: object cannot be stored: its type is not supported"),
    ],
)
@on_loop
async def test_an_operation_with_a_part_of_another_type_names_the_part(
    annotation: Any, returned: Any, words: str
) -> None:
    assert f"Step 'build', operation 'make': {words}" in await outcome_of(returned, annotation)


@on_loop
async def test_a_corrected_operation_runs_again_after_a_resume_and_the_finished_ones_do_not(tmp_path: Path) -> None:
    ran: list[str] = []
    sizes: list[Any] = [None, 7]

    async def pay() -> int:
        ran.append("pay")
        return 1

    async def measure() -> int:
        ran.append("measure")
        return sizes.pop(0)  # type: ignore[no-any-return]

    @workflow
    async def sizing(ctx: Context) -> int:
        return await ctx.do(pay) + await ctx.do(measure)

    async with Engine(tmp_path / "s.db", workflows=[sizing]) as engine:
        outcome = await (await engine.start(sizing, session_id="s")).outcome()
        assert outcome.status is Status.FAILED
        assert (await (await engine.session("s").resume()).outcome()).result == 8
    assert ran == ["pay", "measure", "measure"]


@on_loop
async def test_a_function_workflow_that_forgets_its_result_fails_and_resumes_once_it_is_corrected(
    tmp_path: Path,
) -> None:
    paid: list[int] = []

    async def pay() -> int:
        paid.append(1)
        return 1

    @workflow(name="total")
    async def forgets(ctx: Context) -> int:  # type: ignore[return]
        await ctx.do(pay)

    @workflow(name="total")
    async def corrected(ctx: Context) -> int:
        return await ctx.do(pay)

    async with Engine(tmp_path / "s.db", workflows=[forgets]) as engine:
        outcome = await (await engine.start(forgets, session_id="s")).outcome()
        assert (outcome.status, outcome.failure and outcome.failure.type) == (Status.FAILED, "StateRefused")
        assert outcome.failure is not None
        assert (
            "Step 'total', field 'result': total returns int, but returned None. Correct the" in outcome.failure.message
        )
    async with Engine(tmp_path / "s.db", workflows=[corrected]) as engine:
        assert (await (await engine.session("s").resume()).outcome()).result == 1
    assert paid == [1]


def test_a_function_workflow_of_another_type_says_so() -> None:
    @workflow
    def build() -> Thing:
        return "a thing"  # type: ignore[return-value]

    failure = run(build, store=":memory:").failure
    assert failure is not None
    assert "Step 'build', field 'result': build returns Thing, but returned str." in failure.message


@pytest.mark.parametrize("is_optional", [True, False])
def test_a_function_workflow_may_return_none_only_if_it_says_so(is_optional: bool) -> None:
    def build() -> Any:
        return None

    build.__annotations__["return"] = Thing | None if is_optional else Thing
    assert run(workflow(build), store=":memory:").status is (Status.COMPLETED if is_optional else Status.FAILED)


def test_a_step_that_forgets_its_result_fails_although_its_field_may_be_none() -> None:
    @step(writes="text")
    def write() -> str:  # type: ignore[return]
        "x".upper()

    failure = run(Workflow("report", state=Report, steps=[write]), store=":memory:").failure
    assert failure is not None
    assert "Step 'write', field 'text': write returns str, but returned None." in failure.message
