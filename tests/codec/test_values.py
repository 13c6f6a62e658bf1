"""A stored value is read back equal and of the same type, or is refused with the path to it."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
import socket
import subprocess
import sys
import tracemalloc
from collections import OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel, Field, HttpUrl, JsonValue, SecretStr, field_validator

from pausepoint.codec.values import DEFAULT_LIMITS, Limits, decode, encode, typed
from pausepoint.errors import DamagedRecord, DefinitionError, OversizedValue, StateRefused, ValueRefused
from tests.codec.cases import (
    BERLIN,
    Access,
    Bounded,
    Box,
    Cached,
    Cat,
    Checked,
    Cited,
    Colour,
    Dog,
    Fact,
    Leaky,
    Level,
    Lossy,
    Mixed,
    Mood,
    Movie,
    Names,
    Node,
    Open,
    Part,
    Pet,
    Point,
    Rich,
    Secretive,
    Strict,
    Swapped,
    UserId,
    Whole,
    bomb,
    changed,
    cyclic,
    deep,
    deep_node,
    node_loop,
    same,
    with_cache,
    with_total,
)

UNTYPED: list[Any] = [
    None, True, 0, 1, -1, 2**63, -(2**63), 2**64 - 1, 2**64, -(2**63) - 1, 10**5000, -(10**5000),
    0.0, -0.0, 1.0, 1e16, 1e300, 5e-324, float("nan"), float("inf"), float("-inf"),
    "", "plain", "$datetime", "é\u2028\0🙂", '"$', "\\", b"", b"\0\xff",
    datetime(2024, 2, 29, 12, 0, 0, 1), datetime(2024, 10, 27, 2, 30, fold=1), datetime.min, datetime.max,
    datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-7, seconds=5))),
    datetime(2024, 7, 1, tzinfo=BERLIN), datetime(2024, 7, 1, tzinfo=ZoneInfo("UTC")),
    datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN), date.min, date(2024, 2, 29), time(1, 2, 3, 4), time(1, fold=1),
    time(1, tzinfo=UTC), time(1, tzinfo=BERLIN), timedelta.min, timedelta.max, timedelta(microseconds=-1),
    UUID(int=5), Decimal("1.10"), Decimal("-0"), Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity"),
    Decimal("1E+400"),
    Path("a/b"), Path("/"), Path(),
    [], [[]], {}, {"": None}, {"$set": [1]}, {"$x": 1, "b": 2}, {"a": {"$map": []}},
    {1: "a", True.__class__.__name__: 2},
    {1.5: 1, None: 2, (1, "a"): 3, date(2024, 1, 1): 4, b"k": 5, frozenset({1}): 6}, (), (1,), ((),), set(),
    {1, 2.5, "x"},
    frozenset({"a", None}), {(1, frozenset({2}))}, [1, 1.0, True, "1"], {"a": (1, [2, {3}])},
]  # fmt: skip


@pytest.mark.parametrize(
    "value", UNTYPED, ids=[f"{type(value).__name__}-{index}" for index, value in enumerate(UNTYPED)]
)
@pytest.mark.parametrize("annotation", [None, Any], ids=["encode", "Typed[Any]"])
def test_every_stored_type_comes_back_equal_and_of_the_same_type(value: Any, annotation: Any) -> None:
    data = encode(value, "x") if annotation is None else typed(Any).encode(value, "x")
    assert same(decode(data), value)
    assert same(typed(Any).decode(data, "x"), value)


def test_a_zone_keeps_its_name_so_that_arithmetic_goes_on_as_before() -> None:
    before = datetime(2024, 3, 30, 12, tzinfo=BERLIN)
    after = decode(encode(before, "x"))
    assert after.tzinfo.key == "Europe/Berlin"
    assert (after + timedelta(days=1)).isoformat() == "2024-03-31T12:00:00+02:00"


TYPED: list[tuple[Any, Any]] = [
    (str, "x"), (int, 2**70), (float, -0.0), (float, float("nan")), (bool, False), (None, None), (type(None), None),
    (UserId, UserId(5)), (str | None, None), (int | str, "1"), (str | int, 1), (int | float, 1), (int | float, 1.0),
    (bool | int, 1), (int | bool, True), (str | datetime, "2024-01-01T00:00:00"),
    (str | datetime, datetime(2024, 1, 1)),
    (datetime | date, date(2024, 1, 1)), (datetime | date, datetime(2024, 1, 1)), (str | UUID, str(UUID(int=1))),
    (str | bytes, b"x"), (str | Path, Path("x")), (list[int] | tuple[int, ...], (1,)), (list[int] | set[int], {1}),
    (Colour, Colour.BLUE), (Level, Level.HIGH), (Mood, Mood.CALM), (Access, Access.READ | Access.WRITE),
    (Mixed, Mixed.ONE), (Mixed, Mixed.TEXT), (Mixed, Mixed.PAIR), (Literal[1, "1"], "1"),
    (Literal["a", "b"], "b"), (dict[Colour, int], {Colour.RED: 1}),
    (datetime, datetime(2024, 7, 1, tzinfo=BERLIN)), (time, time(1, tzinfo=UTC)), (Decimal, Decimal("1.10")),
    (bytes, b"\xff"), (Path, Path("a")), (Path, Path()), (PurePosixPath, PurePosixPath("a/b")),
    (ipaddress.IPv4Address, ipaddress.IPv4Address("1.2.3.4")),
    (HttpUrl, HttpUrl("https://example.org/x")), (list[str], []), (list[str], ["$a", '"$b']), (list[int], [2**64, 1]),
    (list[float], [1.0, float("inf")]), (list[bool], [True]), (list[str | None], [None, "a"]),
    (list[Any], [1, {2}, b"3"]),
    (list, [1, (2,)]), (dict, {1: {"$a": b"x"}}), (tuple, (1, [2])), (set, {1}), (dict[str, int], {"$set": 1}),
    (dict[str, Any], {"a": {"$b": 1}}), (dict[int, str], {1: "a"}), (dict[str, list[int]], {"map": [1]}),
    (dict[str, dict[str, float]], {"a": {"b": 0.5}}), (tuple[int, str], (1, "a")), (tuple[int, ...], (1, 2)),
    (tuple[()], ()), (set[str], {"b", "a"}), (frozenset[int], frozenset({2, 1})), (set[float], {float("nan"), 1.0}),
    (deque[int], deque([1, 2])), (OrderedDict[str, int], OrderedDict(b=1, a=2)), (JsonValue, {"a": [1, None]}),
    (Fact, Fact(text="a")), (Fact | None, None), (list[Fact], [Fact(text="a"), Fact(text="b", source="c")]),
    (Cited | Fact, Cited(text="a", page=2)), (Fact | Cited, Cited(text="a", page=2)), (Pet, Dog(name="Rex")),
    (list[Pet], [Cat(), Dog()]),
    (Box[int], Box[int](content=1)), (Box[Box[date]], Box[Box[date]](content=Box[date](content=date(2024, 1, 1)))),
    (Checked, Checked(name="ab", whenItWas=datetime(2024, 1, 1))),
    (Strict, Strict(colour=Colour.RED, fact=Fact(text="a"), n=1)),
    (Node, Node(kids=[Node(), Node(kids=[Node()])])),
    (Open, Open.model_validate({"n": 1, "extra": {"a": date(2024, 1, 1)}})),
    (Secretive, Secretive(n=3)),
    (Leaky, Leaky(shown=1)), (Lossy, Lossy(n=20)), (Names, Names(["a"])), (Swapped, Swapped(a=1, b=2)),
    (Point, Point(1, 2.0)),
    (Movie, Movie(year=1)), (Movie, {}),
    (Part, Part("a", [1])), (Whole, Whole([Part("a"), Part("b", [2])])), (list[Part | Point], [Part("a"), Point(1)]),
    (Rich, Rich(colour=Colour.BLUE, born=date(2024, 1, 1), at=datetime(2024, 1, 1, tzinfo=UTC), grid=[[1], []],
                facts=[Fact(text="a")], by_name={"$a": Fact(text="b")}, tags={"x"}, any={"when": date(2024, 1, 1)},
                either=datetime(2024, 1, 1), number=1.0)),
    (Rich, Rich(either="2024-01-01", number=True, any=(1, {2: 3}))),
]  # fmt: skip


@pytest.mark.covers("S1.12")
@pytest.mark.parametrize(
    ("annotation", "value"), TYPED, ids=[f"{type(v).__name__}-{n}" for n, (_, v) in enumerate(TYPED)]
)
def test_a_declared_type_gives_back_the_same_value_of_the_same_type(annotation: Any, value: Any) -> None:
    kind = typed(annotation)
    data = kind.encode(value, "x")
    json.loads(data)
    assert same(kind.decode(data, "x"), value)


def test_a_cached_property_is_no_content() -> None:
    value = Cached()
    assert value.square == 4
    assert typed(Cached).decode(typed(Cached).encode(value, "x"), "x") == Cached()


class Odd(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None if moment is None else timedelta(hours=1)

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        return "odd"


BAD: list[tuple[Any, str, str]] = [
    ({"a": [1, print]}, "x['a'][1]", "builtin_function_or_method"),
    ([lambda: 1], "x[0]", "function"),
    ((i for i in [1]), "x", "generator"),
    ([{"k": iter([])}], "x[0]['k']", "list_iterator"),
    ({"m": sys}, "x['m']", "module"),
    ({"c": Fact}, "x['c']", "ModelMetaclass"),
    ([object()], "x[0]", "object"),
    ((1, complex(1)), "x[1]", "complex"),
    ([range(3)], "x[0]", "range"),
    ([bytearray()], "x[0]", "bytearray"),
    ([re.compile("a")], "x[0]", "Pattern"),
    ([ValueError()], "x[0]", "ValueError"),
    ({"f": Fact(text="a")}, "x['f']", "Fact"),
    ([Colour.RED], "x[0]", "Colour"),
    ([Level.LOW], "x[0]", "Level"),
    ([Part("a")], "x[0]", "Part"),
    ([Point(1)], "x[0]", "Point"),
    ([OrderedDict()], "x[0]", "OrderedDict"),
    ([SecretStr("a")], "x[0]", "SecretStr"),
    (["ok", "\ud800"], "x[1]", "str"),
    ({"a": {"b": "x\udfff"}}, "x['a']['b']", "str"),
    ([{"\ud800": 1}], "x[0]", "str"),
    ([{"\ud800", "a"}], "x[0]", "str"),
    ([Path("\udc80")], "x[0]", "PosixPath"),
    ([{1: print}], "x[0][1]", "builtin_function_or_method"),
    ([{print: 1}], "x[0]", "builtin_function_or_method"),
    ([{(1, print)}], "x[0]", "builtin_function_or_method"),
    ([datetime(2024, 1, 1, tzinfo=Odd())], "x[0]", "datetime"),
    (cyclic(), "x[1]['again'][0]", "list"),
]


@pytest.mark.parametrize(("value", "path", "kind"), BAD, ids=[f"{kind}-{path}" for _, path, kind in BAD])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_cannot_be_stored_is_refused_with_path_type_and_hint(value: Any, path: str, kind: str) -> None:
    with pytest.raises(ValueRefused) as refused:
        encode(value, "x")
    error = refused.value
    assert not isinstance(error, OversizedValue)
    assert (error.path, error.fields["type"]) == (path, kind)
    assert error.message.startswith(f"{path}: {kind} cannot be stored: ")
    assert ". " in error.message


def test_open_files_and_sockets_are_refused_with_the_hint_to_open_them_in_the_step(tmp_path: Path) -> None:
    with (tmp_path / "a").open("w") as file, socket.socket() as plug:
        for value in (file, plug):
            with pytest.raises(
                ValueRefused, match=r"^x\[0\]: .* it is an open resource\. Store the path or the address"
            ):
                encode([value], "x")


def test_a_coroutine_is_refused() -> None:
    waiting = asyncio.sleep(0)
    try:
        with pytest.raises(ValueRefused, match=r"^x\[0\]: coroutine "):
            encode([waiting], "x")
    finally:
        waiting.close()


def test_an_undeclared_model_is_refused_with_the_hint_to_annotate_it() -> None:
    with pytest.raises(ValueRefused, match="Annotate the field or the return value with Fact"):
        encode({"f": Fact(text="a")}, "x")


@pytest.mark.long
@pytest.mark.parametrize("levels", [64, 300, 5_000, 100_000])
@pytest.mark.parametrize("annotation", [None, Any, list, list[Any], JsonValue, list[list[Any]]], ids=str)
def test_what_is_nested_too_deep_is_oversized_and_never_a_recursion_error(levels: int, annotation: Any) -> None:
    value = deep(levels)
    with pytest.raises(OversizedValue, match=r"is nested more than 64 levels deep\. Flatten it") as refused:
        encode(value, "x") if annotation is None else typed(annotation).encode(value, "x")
    assert refused.value.path == "x" + "[0]" * 64


@pytest.mark.parametrize("annotation", [Any, list, list[Any], JsonValue], ids=str)
def test_nesting_up_to_the_limit_is_stored(annotation: Any) -> None:
    value = deep(63)
    assert typed(annotation).decode(typed(annotation).encode(value, "x"), "x") == value


def test_validation_of_what_is_nested_too_deep_is_refused() -> None:
    for value in (deep(100_000), cyclic()):
        with pytest.raises(StateRefused, match=r"^x"):
            typed(JsonValue).validate(value, "x")


@pytest.mark.long
def test_models_that_are_too_deep_or_contain_themselves_are_refused() -> None:
    with pytest.raises(OversizedValue, match="nested more than 64 levels deep"):
        typed(Node).encode(deep_node(100_000), "x")
    with pytest.raises(ValueRefused, match=r"^x\.kids\[0\]: Node cannot be stored: it contains itself") as refused:
        typed(Node).encode(node_loop(), "x")
    assert refused.value.path == "x.kids[0]"


@pytest.mark.long
def test_a_value_that_is_endless_when_written_out_is_refused_at_once() -> None:
    with pytest.raises(OversizedValue, match=r"^x: list has more than 1,000,000 nodes\. Split it"):
        encode(bomb(), "x")
    for annotation in (Any, list, JsonValue, list[list[list[Any]]]):
        with pytest.raises(OversizedValue, match=r"^x: list has more than 1,000 nodes\. Split it"):
            typed(annotation).encode(bomb(), "x", Limits(nodes=1_000))


def test_one_large_text_many_times_is_refused_before_it_is_written_out() -> None:
    large = "x" * 2**20
    tracemalloc.start()
    try:
        for annotation in (Any, list[str], list[Any]):
            for count in (500, 10_000):  # a long list is written in parts
                with pytest.raises(OversizedValue, match="is larger than 33,554,432 bytes"):
                    typed(annotation).encode([large] * count, "x")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**24, "no part of it is written out"
    with pytest.raises(OversizedValue, match=r"^x: dict is larger"):
        typed(dict[str, Fact]).encode({str(n): Fact(text=large) for n in range(40)}, "x")


def test_limits_are_exact_and_can_be_set() -> None:
    small = Limits(depth=2, nodes=4, value_bytes=20)
    for kind in (typed(Any), typed(list[Any]), typed(list[str]), typed(list[str] | None)):
        assert kind.encode(["a", "b", "c"], "x", small)
        with pytest.raises(OversizedValue, match="more than 4 nodes"):
            kind.encode(["a", "b", "c", "d"], "x", small)
        assert kind.encode(["a" * 16], "x", small)
        with pytest.raises(OversizedValue, match="larger than 20 bytes"):
            kind.encode(["a" * 17], "x", small)
    assert typed(str).encode("a" * 18, "x", small)
    with pytest.raises(OversizedValue, match=r"^x: str is larger than 20 bytes when encoded\. Store it as a file"):
        typed(str).encode("a" * 19, "x", small)
    assert typed(list[list[str]]).encode([["a"]], "x", small)
    with pytest.raises(OversizedValue, match="more than 2 levels deep"):
        typed(list[list[list[str]]]).encode([[[]]], "x", small)
    with pytest.raises(OversizedValue, match="larger than 20 bytes"):
        encode(b"x" * 100, "x", small)


@pytest.mark.parametrize("wrong", [{"depth": 0}, {"depth": 129}, {"nodes": 0}, {"value_bytes": 0}])
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Limits(**wrong)


def test_a_value_is_refused_with_its_path_even_where_the_call_stack_is_nearly_full() -> None:
    def dig(levels: int) -> None:
        if levels:
            dig(levels - 1)
        else:
            encode(deep(60), "x")

    room = sys.getrecursionlimit()
    with pytest.raises(OversizedValue, match=r"^x: list needs more call stack"):
        # Stay some frames below the limit. Pytest's own frames count, too.
        dig(room - len(_frames()) - 40)


def _frames() -> list[Any]:
    frame: Any = sys._getframe()
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


LOST: list[tuple[Any, Any, str, str]] = [
    (list[Fact], [Fact(text="a"), Cited(text="b", page=3)], "x[1]", "Cited"),
    (Fact, Cited(text="b"), "x", "Cited"),
    (Any | int, [Fact(text="a")], "x[0]", "Fact"),
    (dict[str, Any], {"a": [Fact(text="a")]}, "x['a'][0]", "Fact"),
    (Rich, Rich(any=Fact(text="a")), "x.any", "Fact"),
    (Rich, Rich(any=[Colour.RED]), "x.any[0]", "Colour"),
    (Rich, Rich(any={"p": Point(1)}), "x.any['p']", "Point"),
    (Rich, changed(Rich(), facts=[Fact(text="a"), changed(Fact(text="b"), source=print)]), "x.facts[1].source",
    "builtin_function_or_method"),
    (Rich, changed(Rich(), facts=[changed(Fact(text="b"), source="\ud800")]), "x.facts[0].source", "str"),
    (Secretive, with_cache(Secretive()), "x._cache", "dict"),
    (list[Secretive], [Secretive(), with_cache(Secretive())], "x[1]._cache", "dict"),
    (Leaky, Leaky(hidden=4), "x.hidden", "int"),
    (Lossy, Lossy(n=17), "x.n", "int"),
    (Whole, with_total(Whole([])), "x.total", "int"),
    (deque[int], deque([1], maxlen=4), "x", "deque"),
    (defaultdict[str, int], defaultdict(lambda: 7, a=1), "x", "defaultdict"),
    (dict[str, int], OrderedDict(a=1), "x", "OrderedDict"),
    (str, Mood.CALM, "x", "Mood"),
    (Colour | str, Colour.RED, "x", "Colour"),
    (Literal[Colour.RED], Colour.RED, "x", "Colour"),
    (int, True, "x", "bool"),
    (int, Level.LOW, "x", "Level"),
    (Checked, changed(Checked(name="a"), name=" a "), "x.name", "str"),
    (set[Fact], [1], "x[0]", "int"),
    (dict[str, list[Decimal]], {"a": [Decimal("Infinity")]}, "x['a'][0]", "Decimal"),
    (dict[str, Checked | int], {"a": changed(Checked(name="a"), name=7)}, "x.a.Checked.name", "int"),
    (list[Decimal], [Decimal(1), Decimal("NaN")], "x[1]", "Decimal"),
    (bytes, "text", "x", "str"),
    (Literal["a"], "b", "x", "str"),
    (list[Bounded], [Bounded(), changed(Bounded(), n=-1)], "x[1].n", "int"),
    (Colour, "red", "x", "str"),
    (Colour, Level.LOW, "x", "Level"),
    (tuple[int, str], (1,), "x[1]", "tuple"),
    (dict[int, str], {"1": "a"}, "x", "dict"),
    (list[int], ["1"], "x[0]", "str"),
    (dict[str, set[int]], {"a": {True}}, "x['a']", "bool"),
    (SecretStr, SecretStr("a"), "x", "SecretStr"),
    (re.Pattern[str], re.compile("a"), "x", "Pattern"),
]  # fmt: skip


@pytest.mark.covers("S1.13")
@pytest.mark.parametrize(
    ("annotation", "value", "path", "kind"), LOST, ids=[f"{a}-{p}-{k}"[:60] for a, _, p, k in LOST]
)
def test_what_would_not_come_back_the_same_is_refused_with_its_path(
    annotation: Any, value: Any, path: str, kind: str
) -> None:
    with pytest.raises(ValueRefused, match=re.escape(f"{path}: {kind} cannot be stored: ")) as refused:
        typed(annotation).encode(value, "x")
    assert (refused.value.path, refused.value.fields["type"]) == (path, kind)


@pytest.mark.covers("S1.13")
@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (changed(Checked(name="a"), share=float("nan")), ".share", "float .* (Input should be a finite number)"),
        (changed(Checked(name="a"), name="too long"), ".name", "str .* (String should have at most 5 characters)"),
        (changed(Checked(name="a"), name=7), ".name", "int .* (Input should be a valid string)"),
    ],
)
def test_what_the_model_forbids_is_refused_when_it_is_stored(value: Any, path: str, reason: str) -> None:
    pattern = reason.replace("(", r"\(").replace(")", r"\)")
    for annotation, whole, start in ((Checked, value, "x"), (list[Checked], [Checked(name="b"), value], "x[1]")):
        with pytest.raises(ValueRefused, match=f"^{re.escape(start + path)}: {pattern}\\. ") as refused:
            typed(annotation).encode(whole, "x")
        assert refused.value.path == start + path


@pytest.mark.covers("S1.13")
def test_validation_names_the_path_the_reason_and_the_type() -> None:
    with pytest.raises(
        StateRefused, match=r"^facts\[1\]\.source: Input should be a valid string \(got int\)$"
    ) as refused:
        typed(list[Fact]).validate([{"text": "a"}, {"text": "b", "source": 3}], "facts")
    assert refused.value.field == "facts"
    with pytest.raises(StateRefused, match=r"^x\.share: Input should be a finite number \(got float\)$"):
        typed(Checked).validate({"name": "a", "share": float("nan")}, "x")
    with pytest.raises(StateRefused, match=r"; and 1 more$"):
        typed(list[int]).validate(["a", "b"], "x")


def test_validation_converts_as_pydantic_does_and_knows_names_and_aliases() -> None:
    assert typed(int).validate("5", "x") == 5
    assert typed(int).validate(5, "x") == 5
    assert typed(float).validate(1, "x") == 1.0
    assert typed(Fact).validate({"text": "a"}, "x") == Fact(text="a")
    when = datetime(2024, 1, 1)
    assert typed(Checked).validate({"name": "a", "when": when}, "x").when == when
    assert typed(Checked).validate({"name": "a", "whenItWas": when}, "x").when == when


def test_validation_gives_a_list_of_its_own() -> None:
    mine = ["a"]
    assert typed(list[str]).validate(mine, "x") is not mine


def test_a_type_that_pydantic_does_not_know_is_a_definition_error() -> None:
    class Strange:
        pass

    for use in (lambda: typed(Strange).validate(1, "x"), lambda: typed(list[Strange]).encode([Strange()], "x")):
        with pytest.raises(DefinitionError, match="Strange"):
            use()
    with pytest.raises(DefinitionError, match="Strange"):
        typed(Strange).decode(b"1", "x")


@pytest.mark.parametrize(
    ("annotation", "data"),
    [(int, b'"a"'), (list[str], b"[1]"), (Fact, b'{"source":"a"}'), (Colour, b'"green"'), (str, b'{"$bytes":"/w=="}'),
     (dict[str, list[int]], b'{"$tuple":[1,2]}'), (dict[str, str], b'{"$path":"a"}'), (Pet, b'{"kind":"cow"}')],
)  # fmt: skip
def test_stored_data_that_does_not_fit_the_type_is_refused_with_the_path(annotation: Any, data: bytes) -> None:
    with pytest.raises(StateRefused, match=r"The stored value does not fit .*: state\.a") as refused:
        typed(annotation).decode(data, "state.a")
    assert refused.value.field == "state.a"


def test_a_validator_that_breaks_on_stored_data_is_a_refusal_too() -> None:
    class Brittle(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def _looks_up(cls, value: int) -> int:
            return {1: 1}[value]

    assert typed(Brittle).decode(b'{"n":1}', "x").n == 1
    with pytest.raises(StateRefused, match=r"does not fit .*Brittle: x: 2"):
        typed(Brittle).decode(b'{"n":2}', "x")
    with pytest.raises(ValueRefused, match=r"it does not fit .*Brittle \(2\)"):
        typed(Brittle).encode(Brittle.model_construct(n=2), "x")


DAMAGED = [
    b"", b"{", b"[1", b"nul", b"\xff", b'"\xff"', b"[" * 100_000, b"1 2", b'{"$unknown":1}', b'[{"$":1}]',
    b'{"$datetime":5}',
    b'{"$datetime":"soon"}', b'{"$datetime":["2024-01-01","Nowhere/Land",0]}',
    b'{"$datetime":["2024-01-01","../../etc/passwd",0]}',
    b'{"$date":null}', b'{"$time":"x"}', b'{"$timedelta":["a"]}', b'{"$timedelta":5}', b'{"$uuid":"x"}', b'{"$uuid":1}',
    b'{"$decimal":"x"}', b'{"$decimal":1.5}', b'{"$bytes":"*"}', b'{"$bytes":1}', b'{"$path":1}', b'{"$float":"1"}',
    b'{"$float":[]}',
    b'{"$int":"x"}', b'{"$int":5}', b'{"$tuple":5}', b'{"$tuple":"ab"}', b'{"$set":[[]]}', b'{"$set":[1,1]}',
    b'{"$frozenset":{"a":1}}',
    b'{"$map":[[1]]}', b'{"$map":[[[],1]]}', b'{"$map":[[1,1],[1,2]]}', b'{"$map":{"a":1}}', b'{"$map":5}',
]  # fmt: skip


@pytest.mark.parametrize("data", DAMAGED, ids=lambda data: repr(data[:50]))
def test_damaged_data_is_a_damaged_record_with_and_without_a_type(data: bytes) -> None:
    for read in (decode, lambda d: typed(Any).decode(d, "x"), lambda d: typed(list[str]).decode(d, "x")):
        with pytest.raises(DamagedRecord, match="A stored value"):
            read(data)


def test_no_stored_name_is_ever_imported() -> None:
    script = (
        "import sys\n"
        "from pausepoint.codec.values import decode\n"
        "from pausepoint.errors import DamagedRecord\n"
        "before = set(sys.modules)\n"
        "for tag in ('$import', '$model', '$enum', '$:Fact', '$pickle', 'py/object', '$class', '$module'):\n"
        "    try:\n"
        '        decode(b\'{"%b":"antigravity.fly"}\' % tag.encode())\n'
        "    except DamagedRecord:\n"
        "        pass\n"
        "print(sorted(set(sys.modules) - before))\n"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_the_codec_imports_no_pydantic_and_no_pickle_until_it_needs_them() -> None:
    script = (
        "import sys\n"
        "before = set(sys.modules)  # whoever measures this process may have imported things already\n"
        "from pausepoint.codec.values import typed\n"
        "kind = typed(dict[str, list[int]])\n"
        "assert kind.decode(kind.encode({'a': [1]}, 'x'), 'x') == {'a': [1]}\n"
        "print(sorted({'pydantic', 'pickle'} & (set(sys.modules) - before)))\n"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


@pytest.mark.parametrize(
    "annotation",
    [str, int, float, bool, None, bytes, datetime, date, time, timedelta, UUID, Decimal, Path, Colour, Level, UserId,
     str | None, Literal["a"], tuple[int, ...], tuple[int, str], frozenset[str], Annotated[str, Field(max_length=3)],
     tuple[frozenset[int | None], ...]],
    ids=str,
)  # fmt: skip
def test_types_whose_values_cannot_change_are_known(annotation: Any) -> None:
    assert typed(annotation).immutable


@pytest.mark.parametrize(
    "annotation",
    [list[str], dict[str, int], set[int], Any, object, Fact, Part, Movie, tuple, frozenset, tuple[list[int], ...],
     str | list[str], Annotated[list[str], "x"], bytearray, frozenset[Fact]],
    ids=str,
)  # fmt: skip
def test_types_whose_values_may_change_are_known(annotation: Any) -> None:
    assert not typed(annotation).immutable


def test_typed_is_made_once_per_annotation_and_order_matters() -> None:
    assert typed(list[str]) is typed(list[str])
    assert typed(int | str) is not typed(str | int)
    assert typed(Literal[1]) is not typed(Literal[True])
    unhashable = Annotated[int, []]
    assert typed(unhashable).decode(typed(unhashable).encode(1, "x"), "x") == 1
    assert repr(typed(list[str])) == "Typed(list[str])"


def test_sets_are_stored_in_one_order() -> None:
    words = [f"w{n}" for n in range(50)]
    turned = words[::-1]
    for kind in (typed(Any), typed(set[str]), typed(set[Any])):
        assert kind.encode(set(words), "x") == kind.encode(set(turned), "x")


def test_the_documented_limits_are_the_real_ones() -> None:
    assert (DEFAULT_LIMITS.depth, DEFAULT_LIMITS.value_bytes, DEFAULT_LIMITS.nodes) == (64, 32 * 2**20, 1_000_000)
