"""Changes to values that a step reads but does not write are detected, at low cost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any

import pytest
from pydantic import AwareDatetime, BaseModel, Field, NaiveDatetime, field_validator

from pausepoint import Engine, Status, Workflow, step
from pausepoint.errors import DefinitionError, LentValueChanged
from tests.support.loop import on_loop


class Entry(BaseModel):
    at: AwareDatetime
    count: Annotated[int, Field(ge=0)] = 1
    tags: dict[str, float] = {}

    @field_validator("count")
    @classmethod
    def counted(cls, count: int) -> int:
        VALIDATED.append(count)
        return count


class Diary(BaseModel):
    entries: list[Entry] = []
    begun: AwareDatetime = datetime(2024, 5, 1, 12, tzinfo=UTC)
    pages: int = 0


VALIDATED: list[int] = []
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def put(name: str, value: object) -> Callable[[list[Entry]], None]:
    return lambda entries: entries[1].__dict__.update({name: value})


async def run(workflow: Workflow[Any], **fields: Any) -> Any:
    async with Engine(":memory:") as engine:
        return await (await engine.start(workflow, **fields)).outcome()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(list[Entry].pop, id="one less"),
        pytest.param(list[Entry].reverse, id="another order"),
        pytest.param(put("count", True), id="an equal value of another type"),
        pytest.param(put("at", NOON.astimezone(timezone(timedelta(hours=2)))), id="the same moment in another zone"),
        pytest.param(put("at", NOON.replace(tzinfo=None)), id="without a zone"),
        pytest.param(put("tags", {"b": 2.0, "a": 1.0}), id="another order of keys"),
        pytest.param(put("tags", {"a": 1, "b": 2.0}), id="a whole number inside"),
        pytest.param(lambda entries: entries.__setitem__(1, None), id="nothing"),
    ],
)
@on_loop
async def test_no_change_of_what_was_lent_goes_unseen(change: Callable[[list[Entry]], None]) -> None:
    @step(writes="pages")
    async def spoil(entries: list[Entry]) -> int:
        change(entries)
        return 1

    entries = [Entry(at=NOON), Entry(at=NOON, tags={"a": 1.0, "b": 2.0})]
    outcome = await run(Workflow("diary", state=Diary, steps=[spoil]), entries=entries)
    assert outcome.failure.type == LentValueChanged.__name__
    assert outcome.state.entries == entries


@on_loop
async def test_what_was_lent_is_compared_without_being_validated_again() -> None:
    seen: list[int] = []

    @step(writes="pages")
    async def count(entries: list[Entry], begun: datetime) -> int:
        VALIDATED.clear()
        return len(entries) + begun.day

    @step(writes="pages")
    async def look(pages: int) -> int:
        seen.extend(VALIDATED)
        return pages

    outcome = await run(Workflow("diary", state=Diary, steps=[count, look]), entries=[Entry(at=NOON)] * 3)
    assert (outcome.state.pages, seen) == (4, [])


@on_loop
async def test_a_type_with_a_condition_is_read_and_written_as_the_plain_type() -> None:
    @step(writes="begun")
    async def begin(begun: datetime, pages: int) -> datetime:
        return begun + timedelta(days=1)

    outcome = await run(Workflow("diary", state=Diary, steps=[begin]))
    assert (outcome.status, outcome.state.begun) == (Status.COMPLETED, NOON + timedelta(days=1))

    @step(writes="begun")
    async def wrong(begun: datetime) -> datetime:
        return begun.replace(tzinfo=None)

    outcome = await run(Workflow("diary", state=Diary, steps=[wrong]))
    assert outcome.failure.type == "StateRefused"
    assert "timezone" in outcome.failure.message


class Plain(BaseModel):
    begun: datetime = NOON
    pages: int = 0


@pytest.mark.parametrize(("model", "wanted"), [(Plain, AwareDatetime), (Diary, NaiveDatetime), (Diary, str)])
def test_a_condition_that_the_field_does_not_have_is_refused_when_the_workflow_is_made(
    model: type[BaseModel], wanted: Any
) -> None:
    async def count(begun: Any) -> int:
        return 1

    count.__annotations__["begun"] = wanted
    with pytest.raises(DefinitionError, match=f"parameter 'begun' is {wanted.__name__}, but {model.__name__}.begun is"):
        Workflow("diary", state=model, steps=[step(writes="pages")(count)])
