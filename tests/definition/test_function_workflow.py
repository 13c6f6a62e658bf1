"""A function is a workflow: input from its signature, the result from its return value."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from pausepoint import (
    BlockingContext,
    Budget,
    Context,
    DefinitionError,
    Engine,
    NotFinished,
    StateRefused,
    Status,
    Workflow,
    migrate,
    run,
    step,
    testing,
    workflow,
)
from pausepoint.definition.function_workflow import TAKEN
from pausepoint.engine.engine import run as engine_run
from pausepoint.model import SessionId
from tests.support.loop import on_loop


class Paper(BaseModel):
    title: str
    pages: int = 1


async def double(number: int) -> int:
    return 2 * number


@workflow
async def add(first: int, ctx: Context, second: int = 1) -> int:
    """Add twice a number to another."""
    return await ctx.do(double, first) + second


@workflow
def shout(text: str, session_id: SessionId, ctx: BlockingContext, times: Annotated[int, Field(gt=0)] = 2) -> str:
    assert session_id
    return " ".join(ctx.map(str.upper, [text] * times))


@workflow(name="print-it", version=3, events=["printed"])
def print_it(paper: Paper, ctx: BlockingContext) -> None:
    ctx.emit("printed", paper.title)


def test_its_parameters_are_the_input_and_its_return_value_is_the_result() -> None:
    assert run(add, store=":memory:", first=3).result == 7
    assert run(add, store=":memory:", first=3, second=5).result == 11
    assert testing.run(shout, text="ho", times=3).result == "HO HO HO"
    outcome = testing.run(print_it, paper=Paper(title="Tides"))
    assert (outcome.status, outcome.result) == (Status.COMPLETED, None)


def test_it_is_a_workflow_with_one_step_and_stays_a_function() -> None:
    assert isinstance(add, Workflow)
    assert (add.name, add.outline, add.version) == ("add", ("add",), 1)
    assert (print_it.name, print_it.outline, print_it.version) == ("print-it", ("print-it",), 3)
    assert (add.__name__, add.__doc__) == ("add", "Add twice a number to another.")
    assert list(inspect.signature(add).parameters) == ["first", "ctx", "second"]
    assert inspect.iscoroutinefunction(add.fn)
    assert add.shape.fields.keys() == {"first", "second", "result"}


@workflow
def plain(topic: str) -> str:
    return topic.upper()


def test_it_can_be_called_directly() -> None:
    assert plain("ink") == "INK"


@on_loop
async def test_a_resume_repeats_no_operation_and_a_plan_counts_them(tmp_path: Path) -> None:
    ran: list[int] = []

    async def count(number: int) -> int:
        ran.append(number)
        return number

    @workflow
    async def asks(first: int, ctx: Context) -> int:
        counted = await ctx.do(count, first)
        return counted + await ctx.ask("How many more?", int)

    async with Engine(tmp_path / "s.db", workflows=[asks]) as engine:
        session = await engine.start(asks, first=4, session_id="s")
        outcome = await session.outcome()
        with pytest.raises(
            NotFinished, match=r"waits for an answer to 'How many more\?'. Answer it with engine.answer"
        ):
            print(outcome.result)
        assert "1 operation is remembered" in str((await session.plan())["asks"].why)
    async with Engine(tmp_path / "s.db", workflows=[asks]) as engine:
        await engine.answer((await engine.questions())[0].id, 5)
        assert (await (await engine.session("s").resume()).outcome()).result == 9
    assert ran == [4]


@on_loop
async def test_without_a_result_the_error_says_why_and_what_to_do() -> None:
    @workflow
    async def fails(ctx: Context) -> int:
        raise OSError("no paper")

    async with Engine(":memory:", workflows=[fails, plain]) as engine:
        failed = await (await engine.start(fails, session_id="f")).outcome()
        with pytest.raises(
            NotFinished, match=r"'f' failed: OSError in fails: no paper. Remove the cause, then"
        ) as found:
            print(failed.result)
        assert (found.value.session_id, found.value.status) == ("f", "failed")
        paused = await engine.start(plain, topic="x", session_id="p", paused=True, reason="lunch")
        with pytest.raises(
            NotFinished, match=r"'p' is paused: lunch. Continue it with engine.session\('p'\)\.resume\(\)"
        ):
            print((await paused.outcome()).result)
        await paused.cancel()
        with pytest.raises(NotFinished, match=r"was cancelled and has no result. Rewind it to a step, fork it"):
            print((await paused.outcome()).result)


@on_loop
async def test_the_way_to_the_result_works_for_a_spent_budget_and_a_message() -> None:
    @workflow
    async def pays(ctx: Context) -> str:
        for n in range(3):
            ctx.spend(tokens=10)
            await ctx.do(double, n)
        return await ctx.receive()

    async with Engine(":memory:") as engine:
        session = await engine.start(pays, session_id="p", budget=Budget(tokens=15))
        with pytest.raises(NotFinished, match=r"Continue it with engine\.session\('p'\)\.resume\(budget=…\)"):
            print((await session.outcome()).result)
        await engine.session("p").resume(budget=Budget(tokens=90))
        with pytest.raises(NotFinished, match=r"waits for a message or a child.*engine\.session\('p'\)\.send\(…\)"):
            print((await session.outcome()).result)
        await engine.session("p").send("done")
        assert (await session.outcome()).result == "done"


def test_the_result_of_a_list_of_steps_is_its_final_state() -> None:
    @step
    def nothing() -> None: ...

    outcome = testing.run(Workflow("steps", state=Paper, steps=[nothing]), title="x")
    assert outcome.result == Paper(title="x")


def test_the_result_is_not_input_and_input_is_checked() -> None:
    with pytest.raises(StateRefused, match="'result' is what workflow 'plain' returns, and cannot be input"):
        run(plain, store=":memory:", topic="x", result="y")
    with pytest.raises(StateRefused, match="'result' is what workflow 'plain' returns, and cannot be input"):
        run(plain, plain.model(topic="x", result="y"), store=":memory:")
    with pytest.raises(StateRefused, match=r"PlainState has no field 'topik'. Did you mean 'topic'"):
        run(plain, store=":memory:", topik="x")
    with pytest.raises(StateRefused, match="times"):
        run(shout, store=":memory:", text="x", times=0)


@on_loop
async def test_a_child_that_is_a_function_returns_its_result() -> None:
    @workflow
    async def parent(ctx: Context) -> int:
        return 10 * await ctx.call(add, first=2)

    async with Engine(":memory:", workflows=[parent, add]) as engine:
        assert (await (await engine.start(parent)).outcome()).result == 50


def refused(fn: Any) -> str:
    with pytest.raises(DefinitionError) as found:
        workflow(fn)
    return str(found.value)


def test_what_cannot_be_input_is_refused_with_all_problems_at_once() -> None:
    def many(a, /, *rest: int, result: int, budget: float, _x: int, copy: int, **more: int):  # type: ignore[no-untyped-def]
        ...

    found = refused(many)
    assert found.startswith("Workflow 'many' has 8 problems:")
    for problem in (
        "parameter a cannot be input, because input is passed by name.",
        "parameter *rest: 'int' cannot be input",
        "parameter **more: 'int' cannot be input",
        "parameter 'result' has the name of the return value in the state. Rename it.",
        "parameter 'budget' has the name of an option of run, start or call. Rename it.",
        "parameter '_x' cannot be a field of a Pydantic model. Rename it.",
        "parameter 'copy' cannot be a field of a Pydantic model. Rename it.",
        "the return annotation is missing.",
    ):
        assert problem in found, problem


def test_other_mistakes_are_told_like_those_of_a_step() -> None:
    def untyped(topic) -> str:  # type: ignore[no-untyped-def]
        return str(topic)

    def generates(topic: str) -> Any:
        yield topic

    async def blocking(ctx: BlockingContext) -> None: ...

    assert "parameter 'topic' has no annotation" in refused(untyped)
    assert "the function is a generator" in refused(generates)
    assert "is a BlockingContext, but the step is an async def. Use Context." in refused(blocking)
    assert "'list' is not a function" in refused(list)
    with pytest.raises(DefinitionError, match="no migration leads from version 2 to 3"):
        workflow(version=3, migrations=[migrate(from_version=1)(_unchanged)])(_simple)


def _simple(topic: str) -> str:
    return topic


def _unchanged(state: dict[str, Any]) -> dict[str, Any]:
    return state


def test_the_names_that_are_taken_are_those_of_the_options() -> None:
    def options(fn: Any) -> set[str]:
        return {each.name for each in inspect.signature(fn).parameters.values() if each.kind is each.KEYWORD_ONLY}

    found = options(Engine.start) | options(engine_run) | options(testing.run)
    assert found | options(Context.call) | {"retry", "timeout"} == TAKEN


@on_loop
async def test_a_parked_session_survives_a_new_parameter_and_a_migration(tmp_path: Path) -> None:
    def first(topic: str) -> str:
        return topic

    def second(topic: str, tone: str = "plain") -> str:
        return f"{topic}, {tone}"

    def third(subject: str) -> str:
        return f"about {subject}"

    @migrate(from_version=1)
    def renamed(state: dict[str, Any]) -> dict[str, Any]:
        return {"subject": state.pop("topic")} | state

    path = tmp_path / "s.db"
    async with Engine(path) as engine:
        paper = workflow(name="paper")(first)
        for session_id in ("a", "b"):
            await engine.start(paper, topic="ink", session_id=session_id, paused=True)
    async with Engine(path, workflows=[workflow(name="paper")(second)]) as engine:
        assert (await (await engine.session("a").resume()).outcome()).result == "ink, plain"
    newest = workflow(name="paper", version=2, migrations=[renamed])(third)
    async with Engine(path, workflows=[newest]) as engine:
        assert (await (await engine.session("b").resume()).outcome()).result == "about ink"


@pytest.mark.long
@pytest.mark.parametrize(
    "first",
    ["import pausepoint.definition", "from pausepoint import Engine, run", "import pausepoint.definition.workflow"],
)
def test_workflow_is_the_function_in_any_order_of_imports(first: str) -> None:
    check = f"{first}\nfrom pausepoint import workflow, Workflow\nassert callable(workflow), workflow"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
