"""The parameters of a step: fields, parts, the whole state, the context and the session id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import BaseModel

from pausepoint.definition.binding import near_miss
from pausepoint.definition.fields import At
from pausepoint.definition.workflow import Workflow, step
from pausepoint.model.ids import SessionId
from tests.definition.kit import BlockingContext, Brief, Context, Plan, made, refused_once

if TYPE_CHECKING:
    from decimal import Decimal


def test_a_parameter_that_matches_nothing_is_refused_with_the_nearest_field() -> None:
    @step
    def wrong(topci: str) -> None: ...

    message = refused_once(wrong)
    assert "step 'wrong'" in message
    assert "parameter 'topci' matches no field of Brief and has no default. Did you mean 'topic'?" in message


def test_a_default_does_not_excuse_a_near_miss() -> None:
    @step
    def wrong(topci: str = "otters") -> None: ...

    assert "parameter 'topci' matches no field of Brief and would always have its default" in refused_once(wrong)
    assert "Did you mean 'topic'?" in refused_once(wrong)


def test_a_parameter_unlike_any_field_keeps_its_default() -> None:
    @step
    def fine(topic: str, limit: int = 3, *, colour: str = "red") -> None: ...

    assert [read.param for read in made(fine).step("fine").reads] == ["topic"]


@pytest.mark.parametrize("name", ["topci", "topics", "topi", "Topic", "to_pic", "tpoic"])
def test_near_misses(name: str) -> None:
    assert near_miss(name, ["topic", "facts"]) == "topic"


@pytest.mark.parametrize(
    ("name", "field"), [("limit", "list"), ("n", "k"), ("max", "map"), ("tonic_water", "topic"), ("factor", "facts")]
)
def test_names_that_are_merely_alike_are_no_near_misses(name: str, field: str) -> None:
    assert near_miss(name, [field]) is None


def test_two_slips_in_a_long_name_are_a_near_miss() -> None:
    assert near_miss("requirments_lst", ["requirements_list"]) == "requirements_list"


def test_a_parameter_whose_type_does_not_fit_is_refused() -> None:
    @step
    def wrong(facts: list[int]) -> None: ...

    assert "parameter 'facts' is list[int], but Brief.facts is list[str]" in refused_once(wrong)


def test_a_parameter_may_be_wider_than_its_field() -> None:
    @step
    def fine(
        facts: Sequence[str],
        score: float,
        topic: str | None,
        verdict: object,
        votes: Mapping[str, float],
        log: Iterable[object],
        draft: Any,
        plan: BaseModel,
    ) -> None: ...

    assert len(made(fine).step("fine").reads) == 8


def test_a_parameter_without_annotation_takes_anything() -> None:
    @step
    def fine(topic, verdict) -> None:  # type: ignore[no-untyped-def]
        pass

    assert [read.required for read in made(fine).step("fine").reads] == [False, False]


def test_narrowing_none_away_makes_a_value_required() -> None:
    @step
    def fine(verdict: str, review: Plan | None) -> None: ...

    assert [(read.param, read.required) for read in made(fine).step("fine").reads] == [
        ("verdict", True),
        ("review", False),
    ]


def test_narrowing_does_not_excuse_another_type() -> None:
    @step
    def wrong(verdict: int) -> None: ...

    assert "parameter 'verdict' is int, but Brief.verdict is str | None" in refused_once(wrong)


def test_parts_are_read_through_at() -> None:
    @step
    def fine(name: Annotated[str, At("plan.title")], pages: Annotated[int, At("plan.pages")]) -> None: ...

    assert [(read.param, read.place.path, read.required) for read in made(fine).step("fine").reads] == [
        ("name", "plan.title", False),
        ("pages", "plan.pages", True),
    ]


def test_a_part_of_an_optional_model_is_read_as_required() -> None:
    @step
    def fine(name: Annotated[str, At("review.title")], other: Annotated[str | None, At("review.title")]) -> None: ...

    assert [read.required for read in made(fine).step("fine").reads] == [True, False]


def test_at_an_unknown_path_is_refused_with_the_nearest_one() -> None:
    @step
    def wrong(name: Annotated[str, At("plan.titel")]) -> None: ...

    assert "parameter 'name': Brief has no field 'plan.titel'. Did you mean 'plan.title'?" in refused_once(wrong)


def test_at_with_a_type_that_does_not_fit_is_refused() -> None:
    @step
    def wrong(name: Annotated[int, At("plan.title")]) -> None: ...

    assert "parameter 'name' is int, but Brief.plan.title is str" in refused_once(wrong)


def test_the_state_model_as_annotation_gets_the_whole_state() -> None:
    @step
    def fine(everything: Brief) -> None: ...

    bound = made(fine).step("fine")
    assert (bound.whole, bound.reads) == ("everything", ())


def test_the_whole_state_is_given_once() -> None:
    @step
    def wrong(one: Brief, two: Brief) -> None: ...

    assert "parameters 'one' and 'two' both ask for Brief" in refused_once(wrong)


def test_the_session_id_is_given_by_annotation() -> None:
    @step
    def fine(who: SessionId) -> None: ...

    assert made(fine).step("fine").session_id == "who"


def test_a_parameter_merely_named_session_id_matches_a_field_or_nothing() -> None:
    @step
    def wrong(session_id: str) -> None: ...

    assert "parameter 'session_id' matches no field" in refused_once(wrong)


def test_a_list_of_session_ids_is_no_session_id() -> None:
    class Related(BaseModel):
        others: list[str] = []

    @step
    def fine(others: list[SessionId]) -> None: ...

    assert Workflow("related", state=Related, steps=[fine]).step("fine").session_id is None


def test_a_parameter_that_could_be_field_or_session_id_is_refused() -> None:
    @step
    def wrong(owner_id: SessionId) -> None: ...

    assert "its name means the field 'owner_id', its annotation means SessionId" in refused_once(wrong)


def test_several_contexts_are_refused() -> None:
    @step
    async def wrong(ctx: Context, again: Context) -> None: ...

    assert "parameters 'ctx' and 'again' both ask for the context" in refused_once(wrong)


def test_a_context_may_be_optional_for_direct_calls() -> None:
    @step
    async def fine(ctx: Context | None = None) -> None: ...

    assert made(fine).step("fine").context == "ctx"


def test_a_plain_step_takes_a_blocking_context() -> None:
    @step
    def fine(ctx: BlockingContext) -> None: ...

    bound = made(fine).step("fine")
    assert (bound.context, bound.is_async, bound.takes_blocking) == ("ctx", False, True)


def test_a_context_without_an_annotation_is_told_which_one_it_needs() -> None:
    @step
    async def moving(ctx) -> None: ...  # type: ignore[no-untyped-def]

    @step
    def standing(context) -> None: ...  # type: ignore[no-untyped-def]

    @step
    async def optional(ctx=None) -> None: ...  # type: ignore[no-untyped-def]

    assert refused_once(moving).endswith("write 'ctx: Context'.")
    assert refused_once(standing).endswith("write 'context: BlockingContext'.")
    assert refused_once(optional).endswith("write 'ctx: Context'.")


def test_a_field_may_be_called_context() -> None:
    class Chat(BaseModel):
        context: str = ""

    @step
    def fine(context) -> None: ...  # type: ignore[no-untyped-def]

    assert [read.param for read in Workflow("chat", state=Chat, steps=[fine]).step("fine").reads] == ["context"]


def test_a_context_in_a_plain_step_is_refused() -> None:
    @step
    def wrong(ctx: Context) -> None: ...

    assert "is a Context, but the step is a plain def. Use BlockingContext" in refused_once(wrong)


def test_a_blocking_context_in_an_async_step_is_refused() -> None:
    @step
    async def wrong(ctx: BlockingContext) -> None: ...

    assert "is a BlockingContext, but the step is an async def. Use Context" in refused_once(wrong)


def test_parameters_that_cannot_be_named_are_refused() -> None:
    @step
    def stars(*args: str) -> None: ...

    @step
    def keywords(**others: str) -> None: ...

    @step
    def positional(topic: str, /) -> None: ...

    assert "parameter *args: 'str' cannot be filled" in refused_once(stars)
    assert "**others" in refused_once(keywords)
    assert "parameter topic: 'str' cannot be filled" in refused_once(positional)


def test_a_name_that_exists_only_for_type_checkers_is_told() -> None:
    @step
    def wrong(score: Decimal) -> None: ...

    assert "an annotation uses 'Decimal'" in refused_once(wrong)
    assert "TYPE_CHECKING" in refused_once(wrong)


def test_an_annotation_that_cannot_be_read_is_told() -> None:
    @step
    def wrong(topic: str[3]) -> None: ...  # type: ignore[type-arg, valid-type]  # wrong on purpose

    assert "the annotations cannot be read (TypeError: " in refused_once(wrong)
