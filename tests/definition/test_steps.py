"""Functions that can be a step, with their names and options."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from pausepoint.definition.workflow import Scope, Step, Workflow, step
from pausepoint.errors import DefinitionError
from tests.definition.kit import Brief, Plan, made, publish, write


def test_a_bound_method_can_be_a_step() -> None:
    class Agent:
        def compose(self, topic: str) -> str:
            return topic

    bound = made(step(Agent().compose, writes="draft")).step("compose")
    assert [read.param for read in bound.reads] == ["topic"]
    assert bound.fn("otters") == "otters"


class Callable_:
    def __call__(self, topic: str) -> None: ...


@pytest.mark.parametrize(
    "thing",
    [Callable_(), functools.partial(publish.fn, draft=""), print, Plan, "facts", None],
    ids=["callable object", "partial", "built-in", "class", "text", "None"],
)
def test_other_callables_are_refused_as_steps(thing: Any) -> None:
    with pytest.raises(DefinitionError, match="is not a function"):
        step(thing)


def test_generators_are_refused_as_steps() -> None:
    def generator(topic: str) -> Iterator[str]:
        yield topic

    async def async_generator(topic: str) -> AsyncIterator[str]:
        yield topic

    for each in (generator, async_generator):
        with pytest.raises(DefinitionError, match=r"Step '.*generator': the function is a generator"):
            step(each)


def test_a_decorator_that_hides_async_is_refused() -> None:
    async def work() -> None: ...

    @functools.wraps(work)
    def wrapper() -> Any:
        return work()

    with pytest.raises(DefinitionError, match="a decorator hides that the function is async"):
        step(wrapper)


def test_a_step_is_decorated_once() -> None:
    with pytest.raises(DefinitionError, match="is already a step"):
        step(write)


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(DefinitionError, match="'<lambda>' is not a valid name"):
        step(lambda topic: None)


@pytest.mark.parametrize("name", ["", "1st", "a b", "ä", "a#1", "a/b", "-a"])
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="is not a valid name"):
        Step(publish.fn, name=name or "-")
    with pytest.raises(DefinitionError, match="is not a valid name"):
        Scope(name)
    with pytest.raises(DefinitionError, match="is not a valid name"):
        Workflow(name, state=Brief, steps=[write])


@pytest.mark.parametrize("retry", [0, -1, True, 1.5, "3", None])
def test_a_nonsensical_retry_is_refused(retry: Any) -> None:
    with pytest.raises(DefinitionError, match=r"Step 'publish': .*retry=3 means three attempts"):
        step(publish.fn, retry=retry)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), timedelta(0), True, "3"])
def test_a_nonsensical_timeout_is_refused(timeout: Any) -> None:
    with pytest.raises(
        DefinitionError, match=r"Step 'publish': timeout=.* must be a timedelta or a number of seconds above zero"
    ):
        step(publish.fn, timeout=timeout)
