"""Differences between a session and its current definition, checked against the meaning of a list of steps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from pausepoint.codec.values import DEFAULT_LIMITS
from pausepoint.definition.steps import step
from pausepoint.definition.workflow import Workflow
from pausepoint.log.replay import Line
from pausepoint.log.versions import DoesNotFit, Passed, compare, upgrade
from pausepoint.stores.sqlite import SqliteStore
from tests.support.examples import examples


class Nothing(BaseModel):
    field: int = 0


def flow(names: list[str], was: dict[str, str] | None = None) -> Workflow[Any]:
    def one(name: str) -> Any:
        @step(name=name, was=(was or {}).get(name, ()))
        def act() -> None: ...

        return act

    return Workflow("flow", state=Nothing, steps=[one(name) for name in names])


def at(outline: list[str], position: int) -> Line:
    """Return a session that has passed the steps before ``position``, in order."""
    line = Line()
    line.outline = tuple(outline)
    line.visits = dict.fromkeys(outline[:position], 1)
    line.step = outline[position]
    return line


outlines = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True)
others = st.lists(st.sampled_from("abcdefxy"), min_size=1, max_size=8, unique=True)


@settings(max_examples=examples(40))
@given(outlines, others, st.data())
def test_a_straight_session_fits_if_what_is_before_its_position_is_what_it_passed(
    old: list[str], new: list[str], data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, len(old) - 1))
    here = old[position]
    found = compare(flow(new), Passed(flow(new), at(old, position)))
    if here not in new:
        assert found.lost == here
        assert found.reasons(accepted=True)
        return
    assert bool(found.reasons()) == (new[: new.index(here)] != old[:position])
    assert bool(found.ways()) == bool(found.reasons())
    assert found.reasons(accepted=True) == []


@settings(max_examples=examples(40))
@given(outlines, others, st.data())
def test_redoing_from_the_visit_that_is_named_meets_none_of_the_differences(
    old: list[str], new: list[str], data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, len(old) - 1))
    found = compare(flow(new), Passed(flow(new), at(old, position)))
    if found.before is not None:
        assert old.index(found.before) < position
        rewound = at(old, old.index(found.before))
        assert compare(flow(new), Passed(flow(new), rewound)).reasons() == []


@settings(max_examples=examples(40))
@given(outlines, st.data())
def test_renaming_all_steps_is_no_difference(old: list[str], data: st.DataObject) -> None:
    line = at(old, data.draw(st.integers(0, len(old) - 1)))
    newer = flow([f"new_{name}" for name in old], {f"new_{name}": name for name in old})
    assert compare(newer, Passed(newer, line)).reasons() == []
    line.rename(newer.renamed)
    assert line.step in newer.outline
    assert line.visits.keys() <= set(newer.outline)


def test_two_steps_that_became_one_have_been_visited_as_often_as_the_busier_of_them() -> None:
    line = at(["a", "b", "c"], 2)
    line.visits["a"] = 3
    line.rename({"a": "both", "b": "both"})
    assert line.visits == {"both": 3}
    assert line.step == "c"


def test_in_a_loop_the_first_visit_is_the_one_to_redo_from() -> None:
    line = at(["a", "b", "c"], 2)
    line.visits = {"a": 2, "b": 2}
    found = compare(flow(["a", "c"]), Passed(flow(["a", "c"]), line))
    assert found.before == "a#1"


def test_the_visit_to_redo_from_is_named_as_the_log_has_it() -> None:
    newer = flow(["new_a", "c"], {"new_a": "a"})
    assert compare(newer, Passed(newer, at(["a", "b", "c"], 2))).before == "a"


def test_what_does_not_fit_is_said_in_one_text_with_all_ways_out() -> None:
    found = compare(flow(["a", "new", "d"]), Passed(flow(["a", "new", "d"]), at(["a", "b", "c", "d"], 3)))
    text = str(DoesNotFit(found.reasons(), found.ways()))
    assert text == (
        "step 'b' is finished, but 'flow' no longer has it; step 'c' is finished, but 'flow' no longer has it;"
        " step 'new' never ran, but is now before 'd'."
        " What to do: if 'b' was renamed, add @step(was='b') to the new one;"
        " or if 'c' was renamed, add @step(was='c') to the new one;"
        ' or continue with the present steps: session.resume(code="accept");'
        " or run the later steps again: session.rewind('a'); or run them again in a fork: session.fork(at_step='a');"
        " or run the former code and resume."
    )


@pytest.mark.parametrize("old", [[], ["a", "b"]], ids=["none", "the same"])
def test_an_outline_that_is_unknown_or_the_same_is_no_difference(old: list[str]) -> None:
    line = at(["a", "b"], 1)
    line.outline = tuple(old)
    assert compare(flow(["a", "b"]), Passed(flow(["a", "b"]), line)).reasons() == []


def test_a_session_of_a_newer_version_is_left_alone() -> None:
    line = at(["a", "b"], 1)
    line.version = 2
    with pytest.raises(
        DoesNotFit, match=r"stored by version 2 of 'flow', but this code is version 1.*run the newer code"
    ):
        asyncio.run(upgrade(flow(["a", "b"]), line, SqliteStore(":memory:"), DEFAULT_LIMITS))
