"""The fields that a step writes, and the return types that fit them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn, TypedDict

from pydantic import BaseModel

from pausepoint.definition.fields import Replace
from pausepoint.definition.workflow import Workflow, step
from tests.definition.kit import made, refused, refused_once


def test_writing_an_unknown_field_is_refused_with_the_nearest_one() -> None:
    @step(writes="drfat")
    def wrong() -> str:
        return ""

    assert "step 'wrong': writes='drfat': Brief has no field 'drfat'. Did you mean 'draft'?" in refused_once(wrong)


def test_writing_a_part_of_a_dict_is_refused_with_a_hint() -> None:
    @step(writes="notes.today")
    def wrong() -> str:
        return ""

    assert "Merge" in refused_once(wrong)


def test_writing_a_part_of_a_nested_model_is_possible() -> None:
    @step(writes="plan.title")
    def fine() -> str:
        return ""

    assert made(fine).step("fine").writes[0].parts == ("plan", "title")


def test_writing_a_part_of_an_optional_model_is_refused() -> None:
    @step(writes="review.title")
    def wrong() -> str:
        return ""

    assert "writes='review.title': a model on this path may be None. Write that model as a whole" in refused_once(wrong)


def test_writing_a_frozen_field_is_refused() -> None:
    @step(writes="fixed")
    def wrong() -> str:
        return ""

    assert "writes='fixed': the field is frozen" in refused_once(wrong)


def test_writing_a_place_twice_is_refused() -> None:
    @step(writes=["draft", "draft"])
    def wrong() -> dict[str, str]:
        return {}

    assert "writes= names 'draft' twice" in refused_once(wrong)


def test_writing_a_place_and_a_part_of_it_is_refused() -> None:
    @step(writes=["plan.title", "plan"])
    def wrong() -> dict[str, object]:
        return {}

    assert "writes= names 'plan.title' and 'plan'" in refused_once(wrong)


def test_a_field_whose_name_merely_begins_alike_is_no_part() -> None:
    class Alike(BaseModel):
        plan: str = ""
        plan_b: str = ""

    @step(writes=["plan", "plan_b"])
    def fine() -> dict[str, str]:
        return {}

    assert len(Workflow("alike", state=Alike, steps=[fine]).step("fine").writes) == 2


def test_a_missing_return_annotation_is_refused_with_the_right_one() -> None:
    @step(writes="facts")
    def wrong(topic: str):  # type: ignore[no-untyped-def]
        return [topic]

    @step
    def silent(topic: str):  # type: ignore[no-untyped-def]
        pass

    @step(writes=["facts", "draft"])
    def many(topic: str):  # type: ignore[no-untyped-def]
        return {}

    assert "the return annotation is missing. Write '-> list[str]'" in refused_once(wrong)
    assert "Write '-> None'" in refused_once(silent)
    assert "Write '-> dict[str, object]'" in refused_once(many)


def test_a_result_that_does_not_fit_its_field_is_refused() -> None:
    @step(writes="draft")
    def wrong() -> int:
        return 0

    assert "step 'wrong': the step returns int, but 'draft' is str" in refused_once(wrong)


def test_a_result_may_be_narrower_than_its_field() -> None:
    @step(writes="verdict")
    def fine() -> Literal["good", "bad"]:
        return "good"

    @step(writes="anything")
    def any_one() -> dict[str, int]:
        return {}

    assert [each.name for each in made(fine, any_one).steps] == ["fine", "any_one"]


def test_none_is_returned_only_where_the_field_admits_it() -> None:
    @step(writes="draft")
    def wrong() -> str | None:
        return None

    @step(writes="verdict")
    def fine() -> str | None:
        return None

    assert "the step returns str | None, but 'draft' does not accept None. Make the field str | None" in refused_once(
        wrong
    )
    assert made(fine).first == "fine"


def test_a_step_that_writes_nothing_returns_none() -> None:
    @step
    def wrong() -> str:
        return ""

    @step
    def never() -> NoReturn:
        raise ValueError

    assert "the step returns str, but writes nothing. Name the field in writes=, or return None" in refused_once(wrong)
    assert made(never).first == "never"


def test_a_growing_list_is_written_with_what_is_new() -> None:
    @step(writes="log", name="a")
    def a_list() -> list[str]:
        return []

    @step(writes="log", name="b")
    def a_sequence() -> Sequence[Literal["x"]]:
        return []

    @step(writes="log", name="c")
    def replaced() -> Replace[list[str]]:
        return Replace([])

    @step(writes="log", name="d")
    def either() -> list[str] | Replace[list[str]]:
        return []

    assert len(made(a_list, a_sequence, replaced, either).steps) == 4


def test_a_growing_dict_is_written_with_what_is_new() -> None:
    @step(writes="votes", name="a")
    def a_dict() -> dict[str, int]:
        return {}

    @step(writes="votes", name="b")
    def replaced() -> Replace[dict[str, int]] | Mapping[str, bool]:
        return {}

    assert len(made(a_dict, replaced).steps) == 2


def test_what_a_growing_field_cannot_take_is_refused() -> None:
    @step(writes="log")
    def one() -> str:
        return ""

    @step(writes="log")
    def numbers() -> list[int]:
        return []

    @step(writes="log")
    def perhaps() -> list[str] | None:
        return None

    @step(writes="log")
    def replaced() -> Replace[list[int]]:
        return Replace([1])

    @step(writes="votes")
    def pairs() -> list[tuple[str, int]]:
        return []

    @step(writes="facts")
    def no_growth() -> Replace[list[str]]:
        return Replace([])

    assert (
        "the step returns str, but 'log' is list[str] and grows. Return Sequence[str] with the new items only"
        in refused(one)
    )
    assert "the step returns list[int], but 'log' is list[str] and grows" in refused_once(numbers)
    assert "'log' does not accept None. Return the new items only" in refused_once(perhaps)
    assert "the step returns Replace[list[int]], but 'log'" in refused_once(replaced)
    assert "'votes' is dict[str, int] and grows. Return Mapping[str, int]" in refused_once(pairs)
    assert "'facts' is not marked Append or Merge, so Replace is not needed" in refused_once(no_growth)


class Result(TypedDict, total=False):
    draft: str
    log: list[str] | Replace[list[str]]


class Misspelt(TypedDict, total=False):
    drafts: str


class Mistyped(TypedDict, total=False):
    draft: int


def test_several_writes_return_a_mapping() -> None:
    @step(writes=["draft", "log"], name="a")
    def typed_dict() -> Result:
        return {}

    @step(writes=["draft", "log"], name="b")
    def plain() -> dict[str, Any]:
        return {}

    @step(writes=["draft", "score"], name="c")
    def union() -> Mapping[str, str | int]:
        return {}

    assert all(each.many for each in made(typed_dict, plain, union).steps)


def test_several_writes_without_a_mapping_are_refused() -> None:
    @step(writes=["draft", "score"])
    def pair() -> tuple[str, int]:
        return "", 0

    @step(writes=["draft", "score"])
    def perhaps() -> dict[str, object] | None:
        return None

    assert "the step writes draft, score, so it must return a dict or a TypedDict with these keys" in refused_once(pair)
    assert "not None" in refused_once(perhaps)


def test_a_mapping_that_leaves_no_room_for_a_field_is_refused() -> None:
    @step(writes=["draft", "score"])
    def wrong() -> dict[str, str]:
        return {}

    @step(writes=["draft", "score"])
    def numbered() -> dict[int, object]:
        return {}

    assert "the step returns dict[str, str], but 'score' is int" in refused_once(wrong)
    assert "the keys are names of fields" in refused_once(numbered)


def test_the_keys_of_a_typed_dict_are_among_the_writes() -> None:
    @step(writes=["draft", "score"])
    def wrong() -> Misspelt:
        return {}

    @step(writes=["draft", "score"])
    def mistyped() -> Mistyped:
        return {}

    assert "Misspelt has the key 'drafts', which the step does not write. Did you mean 'draft'?" in refused_once(wrong)
    assert "Mistyped['draft'] is int, but 'draft' is str" in refused_once(mistyped)
