"""Long lists of models are encoded, compared and decoded in parts, so that memory grows with one form of them only."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pydantic import BaseModel

from pausepoint.codec.values import LONG, PART, Limits, encode, typed
from pausepoint.errors import OversizedValue, StateRefused

NOW = datetime(2030, 3, 4, 8, tzinfo=UTC)


class Entry(BaseModel):
    name: str
    at: datetime | None = None
    share: float = 0.5


def entries(count: int) -> list[Entry]:
    return [Entry(name=f"entry {number}", at=NOW if number % 2 else None) for number in range(count)]


LISTS = typed(list[Entry])
MANY = entries(5 * PART + 7)
STORED = LISTS.encode(MANY, "entries")


def peak(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [0, 1, PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 1])
def test_a_list_has_the_same_stored_form_however_long_it_is(count: int) -> None:
    found = entries(count)
    data = LISTS.store(found, "entries")
    assert data == encode([each.model_dump() for each in found], "entries")
    assert LISTS.decode(data, "entries") == found
    assert LISTS.is_stored_as(found, data)


@pytest.mark.long
def test_a_long_list_needs_little_memory_besides_its_text_and_its_models() -> None:
    assert len(STORED) > LONG
    models = peak(lambda: entries(len(MANY)))
    assert peak(lambda: LISTS.is_stored_as(MANY, STORED)) < len(STORED) * 2
    assert peak(lambda: LISTS.encode(MANY, "entries")) < len(STORED) * 4
    assert peak(lambda: LISTS.decode(STORED, "entries")) < models * 1.5


@pytest.mark.parametrize("place", [0, PART, len(MANY) - 1])
def test_a_change_of_any_item_is_seen(place: int) -> None:
    changed = list(MANY)
    changed[place] = Entry(name="another")
    assert not LISTS.is_stored_as(changed, STORED)
    assert not LISTS.is_stored_as(MANY[:-1], STORED)
    assert not LISTS.is_stored_as([*MANY, Entry(name="one more")], STORED)


def test_an_item_that_does_not_fit_is_named_by_its_place() -> None:
    wrong = STORED.replace(b'"entry 4321"', b"4321")
    with pytest.raises(StateRefused, match=r"entries\[4321\]\.name"):
        LISTS.decode(wrong, "entries")


@pytest.mark.long
def test_the_limits_count_all_parts() -> None:
    with pytest.raises(OversizedValue, match="larger than"):
        LISTS.encode(MANY, "entries", Limits(value_bytes=len(STORED) - 1))
    with pytest.raises(OversizedValue, match="nodes"):
        LISTS.encode(MANY, "entries", Limits(nodes=3 * len(MANY)))
    assert LISTS.encode(MANY, "entries", Limits(value_bytes=len(STORED))) == STORED
    assert LISTS.is_stored_as(MANY, STORED, Limits(value_bytes=len(STORED)))
    assert not LISTS.is_stored_as(MANY, STORED, Limits(value_bytes=len(STORED) - 1))
