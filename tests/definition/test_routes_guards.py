"""Routes, guards and conditions: the steps they name, the fields they read and the values they return."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest

from pausepoint.definition.fields import At
from pausepoint.definition.workflow import guard, route, step
from pausepoint.errors import DefinitionError
from pausepoint.model.ids import SessionId
from tests.definition.kit import (
    BlockingContext,
    Brief,
    Context,
    enough,
    judge,
    made,
    publish,
    refused,
    refused_once,
    research,
    write,
)

# routes


def test_the_return_type_of_a_route_is_the_list_of_legal_transitions() -> None:
    workflow = made(research, write, publish, routes=[judge])
    assert workflow.routes["write"].targets == ("research", "publish", None)
    assert workflow.targets("write") == ("research", "publish", None)
    assert workflow.targets("research") == ("write",)
    assert workflow.targets("publish") == (None,)
    assert workflow.routes["write"].check(score=1) == "publish"


def test_a_route_may_always_end_and_may_use_one_literal() -> None:
    @route(after="write")
    def stop() -> None: ...

    @route(after="research")
    def onward() -> Literal["write", None]:
        return None

    workflow = made(research, write, routes=[stop, onward])
    assert workflow.targets("write") == (None,)
    assert workflow.targets("research") == ("write", None)


def test_a_workflow_that_never_ends_is_allowed() -> None:
    @route(after=write)
    def again() -> Literal["research"]:
        return "research"

    assert made(research, write, routes=[again]).targets("write") == ("research",)


def test_a_route_to_an_unknown_step_is_refused() -> None:
    @route(after="write")
    def wrong() -> Literal["publsh"] | None:
        return None

    assert "route 'wrong': 'publsh' in the return type is not a step. Did you mean 'publish'?" in refused_once(
        write, publish, routes=[wrong]
    )


def test_a_route_needs_a_literal_return_type() -> None:
    @route(after="write")
    def text() -> str:
        return "publish"

    @route(after="write")
    def silent(score: int):  # type: ignore[no-untyped-def]
        return "publish"

    assert "route 'text': the route returns str. Write its targets: -> Literal" in refused_once(write, routes=[text])
    assert "route 'silent': the route has no return annotation" in refused_once(write, routes=[silent])


def test_a_step_has_one_route() -> None:
    @route(after="write")
    def other() -> Literal["publish"]:
        return "publish"

    assert "step 'write' already has the route 'judge'" in refused_once(research, write, publish, routes=[judge, other])


def test_a_route_or_guard_after_an_unknown_step_is_refused() -> None:
    @route(after="wriet")
    def lost() -> None: ...

    @guard(after="reserach")
    def adrift() -> str | None:
        return None

    message = refused(research, write, routes=[lost], guards=[adrift])
    assert "route 'lost': after='wriet' is not a step. Did you mean 'write'?" in message
    assert "guard 'adrift': after='reserach' is not a step. Did you mean 'research'?" in message


def test_an_unreachable_step_is_refused() -> None:
    @route(after="research")
    def skip() -> Literal["publish"]:
        return "publish"

    assert "step 'write': the step cannot be reached" in refused_once(research, write, publish, routes=[skip])


def test_a_step_that_only_an_unreachable_one_leads_to_is_unreachable_too() -> None:
    @route(after="research")
    def stop() -> None: ...

    message = refused(research, write, publish, routes=[stop])
    assert "step 'write': the step cannot be reached" in message
    assert "step 'publish': the step cannot be reached" in message


def test_what_is_no_route_or_guard_is_refused_in_their_lists() -> None:
    def plain() -> None: ...

    message = refused(research, write, publish, routes=[plain], guards=[judge])
    assert "function 'plain' in routes= is not a route. Decorate it with @route(after=...)" in message
    assert "route 'judge' is listed in guards=. Move it to routes=[judge]" in message


# guards and conditions


@pytest.mark.covers("S3.67")
def test_any_step_can_have_guards_with_a_message() -> None:
    @guard(after="research")
    def named(topic: str) -> str | None:
        return None if topic else "no topic"

    @guard(after="publish")
    def approved(everything: Brief, plan_title: Annotated[str, At("plan.title")]) -> str | None:
        return None

    workflow = made(research, write, publish, guards=[enough, named, approved])
    assert [check.name for check in workflow.guards["research"]] == ["enough", "named"]
    assert [check.name for check in workflow.guards["publish"]] == ["approved"]
    assert workflow.guards["publish"][0].whole == "everything"
    assert workflow.guards["research"][0](facts=[]) == "no facts yet"
    assert "write" not in workflow.guards


def test_guards_and_routes_stay_callable() -> None:
    assert enough(["a"]) is None
    assert judge(1) == "publish"


def test_a_guard_returns_why_or_none() -> None:
    @guard(after="write")  # type: ignore[arg-type]  # wrong on purpose
    def flag() -> bool:
        return True

    @guard(after="write")
    def always() -> str:
        return "no"

    @guard(after="write")
    def nothing() -> None: ...

    @guard(after="write")
    def silent():  # type: ignore[no-untyped-def]
        pass

    assert "guard 'flag': the guard returns bool. Write '-> str | None'" in refused_once(write, guards=[flag])
    assert "guard 'always': the guard returns str" in refused_once(write, guards=[always])
    assert "guard 'nothing': the guard returns None" in refused_once(write, guards=[nothing])
    assert "guard 'silent': the guard has no return annotation" in refused_once(write, guards=[silent])


def test_routes_guards_and_conditions_are_plain_functions() -> None:
    @route(after="write")  # type: ignore[type-var]  # wrong on purpose
    async def moving() -> None: ...

    @guard(after="write")  # type: ignore[arg-type]  # wrong on purpose
    async def waiting() -> str | None:
        return None

    async def asking() -> bool:
        return True

    condition: Any = asking
    message = refused(step(write.fn, writes="draft", when=condition), routes=[moving], guards=[waiting])
    assert message.count("Use def, not async def") == 3
    assert "step 'write', when: the function is async" in message


def test_routes_guards_and_conditions_get_no_context_and_no_session_id() -> None:
    @route(after="write")
    def moving(ctx: Context) -> None: ...

    @guard(after="write")
    def waiting(ctx: BlockingContext) -> str | None:
        return None

    def asking(who: SessionId) -> bool:
        return True

    message = refused(step(write.fn, writes="draft", when=asking), routes=[moving], guards=[waiting])
    assert message.count("Remove the parameter") == 3


def test_their_parameters_match_fields_too() -> None:
    @route(after="write")
    def moving(scor: int) -> None: ...

    @guard(after="write")
    def waiting(score: str) -> str | None:
        return None

    message = refused(step(write.fn, writes="draft", when=lambda facst: bool(facst)), routes=[moving], guards=[waiting])
    assert "route 'moving': parameter 'scor' matches no field of Brief" in message
    assert "guard 'waiting': parameter 'score' is str, but Brief.score is int" in message
    assert "step 'write', when: parameter 'facst' matches no field" in message


def test_a_condition_reads_fields() -> None:
    def needed(facts: list[str], verdict: str) -> bool:
        return bool(facts)

    bound = made(step(write.fn, writes="draft", when=needed)).step("write")
    assert bound.when is not None
    assert [(read.param, read.required) for read in bound.when.reads] == [("facts", False), ("verdict", True)]
    assert bound.when(facts=["a"], verdict="") is True


def test_a_condition_says_that_it_returns_a_bool_unless_it_is_a_lambda() -> None:
    def text(topic: str) -> str:
        return topic

    def silent(topic):  # type: ignore[no-untyped-def]
        return bool(topic)

    assert "'text' returns str. Write '-> bool'" in refused_once(step(publish.fn, when=text))  # type: ignore[arg-type]  # on purpose
    assert "'silent' has no return annotation" in refused_once(step(publish.fn, when=silent))
    assert made(step(publish.fn, when=lambda topic: bool(topic))).step("publish").when is not None


def test_a_condition_is_a_function() -> None:
    with pytest.raises(DefinitionError, match="Step 'publish', when: 'str' is not a function"):
        step(publish.fn, when="facts")  # type: ignore[call-overload]  # wrong on purpose
