"""Versions of a workflow: migrations from one to the next, and former names of steps."""

from __future__ import annotations

from typing import Any

import pytest

from pausepoint.definition.steps import migrate
from pausepoint.definition.workflow import step
from pausepoint.errors import DefinitionError
from tests.definition.kit import made, refused, refused_once, research, write


@migrate(from_version=1)
def one_up(state: dict[str, Any]) -> dict[str, Any]:
    return state


@migrate(from_version=2)
def two_up(state: dict[str, Any]) -> dict[str, Any]:
    return state


def test_migrations_lead_step_by_step_to_the_present_version() -> None:
    workflow = made(research, version=3, migrations=[two_up, one_up])
    assert workflow.migrations == {1: one_up, 2: two_up}
    assert made(research, version=3, migrations=[two_up]).migrations == {2: two_up}, "the oldest may be given up"
    assert repr(one_up) == "<migration one_up from version 1 to 2>"
    assert one_up({"topic": "eels"}) == {"topic": "eels"}


def test_gaps_doubles_and_migrations_that_lead_nowhere_are_refused() -> None:
    assert "no migration leads from version 2 to 3. Add one with @migrate(from_version=2)" in refused_once(
        research, version=3, migrations=[one_up]
    )
    assert (
        "migration 'two_up': the migration leads from version 2 to 3, but the workflow is version 2. Set version=3"
        in (refused_once(research, version=2, migrations=[one_up, two_up]))
    )

    @migrate(from_version=1)
    def again(state: dict[str, Any]) -> dict[str, Any]:
        return state

    assert "migrations 'one_up' and 'again' both start from version 1" in refused_once(
        research, version=2, migrations=[one_up, again]
    )


def test_what_is_no_migration_is_refused() -> None:
    def plain(state: dict[str, Any]) -> dict[str, Any]:
        return state

    assert "function 'plain' in migrations= is not a migration. Decorate it with @migrate" in refused_once(
        research, version=2, migrations=[plain]
    )
    assert "migration 'one_up' is listed in steps=. Move it to migrations=[one_up]" in refused(research, one_up)


@pytest.mark.parametrize("version", [0, -1, "1", True, 1.0])
def test_a_migration_starts_from_a_whole_number(version: Any) -> None:
    with pytest.raises(DefinitionError, match="must be a whole number of 1 or more"):
        migrate(from_version=version)(lambda state: state)


def test_a_migration_is_a_plain_function_of_the_state() -> None:
    async def later(state: dict[str, Any]) -> dict[str, Any]:
        return state

    def none() -> dict[str, Any]:
        return {}

    def two(state: dict[str, Any], more: int) -> dict[str, Any]:
        return state

    with pytest.raises(
        DefinitionError, match=r"Migration 'later': a migration is a pure function. Use def, not async def"
    ):
        migrate(from_version=1)(later)
    for fn in (none, two):
        with pytest.raises(DefinitionError, match="the function must take one argument, the stored state as a dict"):
            migrate(from_version=1)(fn)
    with pytest.raises(DefinitionError, match="is already a migration"):
        migrate(from_version=2)(one_up)


def test_a_step_says_what_it_was_called_before() -> None:
    @step(was="look_up")
    def find(topic: str) -> None: ...

    @step(was=["compose", "draft"])
    def phrase(topic: str) -> None: ...

    workflow = made(find, phrase)
    assert workflow.renamed == {"look_up": "find", "compose": "phrase", "draft": "phrase"}
    assert workflow.outline == ("find", "phrase")


def test_an_old_name_that_is_in_use_or_claimed_twice_is_refused() -> None:
    @step(was="write")
    def find(topic: str) -> None: ...

    @step(was=["same", "a b"])
    def one(topic: str) -> None: ...

    @step(was="same")
    def other(topic: str) -> None: ...

    @step(was="me")
    def me(topic: str) -> None: ...

    assert "step 'find': was='write' is the name of another step" in refused_once(find, write)
    message = refused(one, other)
    assert "step 'other': was='same' is also a former name of step 'one'" in message
    assert "step 'one': was='a b': 'a b' is not a valid name" in message
    assert "was='me' is the name of another step" in refused_once(me)
