"""Values for the tests of the codec: models of every kind, and values that cannot be stored."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypeVar
from zoneinfo import ZoneInfo

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    RootModel,
    computed_field,
    field_serializer,
    field_validator,
)
from typing_extensions import TypedDict

from pausepoint.errors import PausepointError


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mood(enum.StrEnum):
    CALM = "calm"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Mixed(enum.Enum):
    ONE = 1
    TEXT = "1"
    PAIR = (1, 2)


class Fact(BaseModel):
    text: str
    source: str | None = None


class Cited(Fact):
    page: int = 0


class Rich(BaseModel):
    colour: Colour = Colour.RED
    level: Level = Level.LOW
    born: date | None = None
    at: datetime | None = None
    grid: list[list[int]] = []
    facts: list[Fact] = []
    by_name: dict[str, Fact] = {}
    pair: tuple[int, str] = (1, "a")
    tags: set[str] = set()
    any: Any = None
    either: str | datetime = ""
    number: int | float | bool = 0


class Checked(BaseModel):
    model_config = ConfigDict(validate_assignment=False, extra="forbid")
    name: str = Field(max_length=5)
    share: float = Field(default=0.0, allow_inf_nan=False)
    when: datetime | None = Field(default=None, alias="whenItWas")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def shout(self) -> str:
        return self.name.upper()

    @field_validator("name")
    @classmethod
    def _stripped(cls, value: str) -> str:
        return value.strip()


class Bounded(BaseModel):
    n: int = Field(default=0, ge=0)


class Swapped(BaseModel):
    a: int = Field(alias="b")
    b: int = Field(alias="a")


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    colour: Colour
    fact: Fact
    n: int


class Node(BaseModel):
    kids: list[Node] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int = 0


class Secretive(BaseModel):
    n: int = 0
    _cache: dict[str, int] = PrivateAttr(default_factory=dict)


class Leaky(BaseModel):
    shown: int = 0
    hidden: int = Field(default=0, exclude=True)


class Lossy(BaseModel):
    n: int = 0

    @field_serializer("n")
    def _rounded(self, value: int) -> int:
        return value // 10 * 10


class Cached(BaseModel):
    n: int = 2

    @cached_property
    def square(self) -> int:
        return self.n**2


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str = ""


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    content: T


class Names(RootModel[list[str]]):
    pass


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Movie(TypedDict, total=False):
    title: str
    year: int


@dataclass
class Part:
    name: str
    sizes: list[int] = field(default_factory=list)


@dataclass
class Whole:
    parts: list[Part]
    total: int = field(default=0, init=False)


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
UserId = NewType("UserId", int)
BERLIN = ZoneInfo("Europe/Berlin")


def same(a: Any, b: Any) -> bool:
    """Return whether two values are equal and of the same types at every depth. Every nan equals every other nan."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, Decimal):
        return bool(a.as_tuple() == b.as_tuple())
    if isinstance(a, datetime | time):
        zones = getattr(a.tzinfo, "key", a.utcoffset()) == getattr(b.tzinfo, "key", b.utcoffset())
        return bool(a.replace(tzinfo=None) == b.replace(tzinfo=None) and a.fold == b.fold and zones)
    if isinstance(a, list | tuple | deque):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(map(same, a.keys(), b.keys())) and all(map(same, a.values(), b.values()))
    if isinstance(a, set | frozenset):
        return sorted(map(repr, a)) == sorted(map(repr, b))
    if isinstance(a, BaseModel):
        return same(dict(a), dict(b))
    if hasattr(a, "__dataclass_fields__"):
        return all(same(getattr(a, name), getattr(b, name)) for name in a.__dataclass_fields__)
    return bool(a == b)


def cyclic() -> list[Any]:
    loop: list[Any] = [1]
    loop.append({"again": [loop]})
    return loop


def deep(levels: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


def node_loop() -> Node:
    node = Node()
    node.kids.append(node)
    return node


def deep_node(levels: int) -> Node:
    node = Node()
    for _ in range(levels):
        node = Node.model_construct(kids=[node])
    return node


def bomb() -> list[Any]:
    """Return a list that is small in memory and enormous when written out."""
    level: list[Any] = ["x"] * 10
    for _ in range(40):
        level = [level] * 10
    return level


def changed(model: BaseModel, **fields: Any) -> BaseModel:
    """Change a model in place without validation, as a step may do, and return it."""
    for name, value in fields.items():
        object.__setattr__(model, "__dict__", {**model.__dict__, name: value})
    return model


def with_cache(model: Secretive) -> Secretive:
    model._cache["a"] = 1
    return model


def with_total(whole: Whole) -> Whole:
    whole.total = 3
    return whole


def outcome(act: Callable[[], Any]) -> tuple[Any, PausepointError | None]:
    """Return the result of an act, or the Pausepoint error that it raised."""
    try:
        return act(), None
    except PausepointError as error:
        return None, error
