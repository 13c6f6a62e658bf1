from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict, TypeVar

import pytest
from pydantic import (
    AwareDatetime,
    EmailStr,
    FutureDate,
    HttpUrl,
    IPvAnyAddress,
    NaiveDatetime,
    PastDate,
    PositiveInt,
    SecretStr,
)

from pausepoint.definition.types import admits_none, fits, promises_more, show, without_none


class Animal:
    pass


class Dog(Animal):
    pass


class Colour(StrEnum):
    RED = "red"


class Point(TypedDict):
    x: int
    y: int


class Point3(TypedDict):
    x: int
    y: int
    z: int


UserId = NewType("UserId", str)
T = TypeVar("T")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (str, str),
        (str, Any),
        (Any, str),
        (str, object),
        (T, int),
        (Dog, Animal),
        (datetime, date),
        (Colour, str),
        (UserId, str),
        (str, UserId),
        (int, float),
        (bool, int),
        (bool, float),
        (str, str | None),
        (None, str | None),
        (int | str, str | int | None),
        (Optional[int], int | None),  # noqa: UP045  (the older spelling is the point)
        (Annotated[int, "positive"], int),
        (list[Dog], list[Animal]),
        (list[str], Sequence[str]),
        (list[str], Iterable[object]),
        (list[str], Collection[str]),
        (list, list[int]),
        (list[int], list),
        (tuple[int, ...], Sequence[int]),
        (tuple[int, str], tuple[int, str]),
        (tuple[int, int], tuple[int, ...]),
        (dict[str, int], Mapping[str, float]),
        (dict[str, int], Iterable[str]),
        (Literal["a"], str),
        (Literal["a"], Literal["a", "b"]),
        (Literal["a", None], str | None),
        (Point, dict[str, Any]),
        (Point, Mapping[str, object]),
        (Point3, Point),
        (dict[str, Any], Point),
        (int, Hashable),
        (Callable[[int], str], Callable[..., str]),
        (AwareDatetime, datetime),
        (AwareDatetime, date),
        (list[AwareDatetime | None], Sequence[datetime | None]),
        (NaiveDatetime, NaiveDatetime),
        (PastDate | None, date | None),
        (EmailStr, str),
        (datetime, AwareDatetime),
        (PositiveInt, int),
    ],
    ids=str,
)
def test_a_type_fits_what_admits_all_its_values(given: Any, wanted: Any) -> None:
    assert fits(given, wanted)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (int, str),
        (float, int),
        (int, bool),
        (Animal, Dog),
        (str | None, str),
        (int | str, int),
        (None, int),
        (int, None),
        (str, list[str]),
        (list[int], Sequence[str]),
        (list[Animal], list[Dog]),
        (Sequence[str], list[str]),
        (set[int], frozenset[int]),
        (tuple[int, str], Sequence[int]),
        (tuple[int, str], tuple[int, int]),
        (tuple[int], tuple[int, int]),
        (dict[str, str], Mapping[str, int]),
        (dict[int, str], Iterable[str]),
        (str, Literal["a"]),
        (Literal["a", "c"], Literal["a", "b"]),
        (Literal[1], Literal[True]),
        (Point, dict[str, str]),
        (Point, Point3),
        (dict[str, int], Point),
        (dict[str, list[int | None]], dict[str, list[int]]),
        (AwareDatetime, str),
        (AwareDatetime, NaiveDatetime),
        (FutureDate, datetime),
        (SecretStr, str),
        (IPvAnyAddress, str),
        (HttpUrl, str),
    ],
    ids=str,
)
def test_a_type_does_not_fit_what_refuses_some_of_its_values(given: Any, wanted: Any) -> None:
    assert not fits(given, wanted)


def test_a_condition_is_no_part_of_what_a_plain_type_promises() -> None:
    assert promises_more(datetime | None, AwareDatetime | None)
    assert promises_more(dict[str, tuple[datetime, ...]], Mapping[str, tuple[AwareDatetime, ...]])
    assert not promises_more(AwareDatetime, AwareDatetime)
    assert not promises_more(AwareDatetime, datetime)
    assert not promises_more(Any, AwareDatetime)  # a value of unknown type is validated at run time
    assert not promises_more(list, list[AwareDatetime])
    assert not promises_more(Literal["a"], str)


def test_none_is_seen_through_literals_and_annotations() -> None:
    assert admits_none(Literal["a", None])
    assert admits_none(Annotated[str | None, "why"])
    assert not admits_none(str)
    assert without_none(Literal["a", None]) == Literal["a"]
    assert without_none(None) is type(None)


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (str | None, "str | None"),
        (dict[str, list[int]], "dict[str, list[int]]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Literal["a", "b"], "Literal['a', 'b']"),
        (Any, "Any"),
        (None, "None"),
        (Callable[[int], str], "Callable[..., str]"),
    ],
)
def test_types_are_shown_as_their_author_writes_them(annotation: Any, text: str) -> None:
    assert show(annotation) == text
