"""Any value that Hypothesis generates is stored faithfully or refused, and never executed."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pausepoint.codec.values import decode, encode, fingerprint, typed
from pausepoint.errors import DamagedRecord, ValueRefused
from tests.codec.cases import Colour, Fact, Level, Mood, Part, Point, Rich, outcome, same

ZONES = (
    st.none() | st.timezones() | st.just(UTC) | st.integers(-1439, 1439).map(lambda m: timezone(timedelta(minutes=m)))
)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.uuids() | st.dates()
    | st.datetimes(timezones=ZONES) | st.times() | st.timedeltas() | st.decimals() | st.text("ab/.").map(Path)
)  # fmt: skip
KEYS = SCALARS.filter(lambda v: not (isinstance(v, Decimal) and v.is_nan()) and v == v)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.just("$set"), inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.sets(KEYS, max_size=3)
        | st.frozensets(KEYS, max_size=3)
    ),
    max_leaves=12,
)
relaxed = settings(suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.long
@relaxed
@given(VALUES)
def test_any_value_of_stored_types_survives(value: Any) -> None:
    data = encode(value, "x")
    assert same(decode(data), value)
    assert encode(decode(data), "x") == data
    assert fingerprint(value) == fingerprint(decode(data))


@pytest.mark.long
@relaxed
@given(st.data())
def test_any_model_survives(data: st.DataObject) -> None:
    facts = st.builds(Fact, text=st.text(), source=st.none() | st.text())
    value = data.draw(
        st.builds(
            Rich, colour=st.sampled_from(Colour), level=st.sampled_from(Level), born=st.none() | st.dates(),
            at=st.none() | st.datetimes(timezones=ZONES), grid=st.lists(st.lists(st.integers())), facts=st.lists(facts),
            by_name=st.dictionaries(st.text(), facts), pair=st.tuples(st.integers(), st.text()),
            tags=st.sets(st.text()),
            any=VALUES, either=st.text() | st.datetimes(), number=st.integers() | st.floats() | st.booleans(),
        )
    )  # fmt: skip
    kind = typed(Rich)
    assert same(kind.decode(kind.encode(value, "x"), "x"), value)


PLAIN = [str, int, float, bool, type(None), bytes, datetime, date, time, timedelta, UUID, Decimal, Colour, Level]
ANNOTATIONS = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: (
        inner.map(lambda t: list[t])  # type: ignore[valid-type]
        | inner.map(lambda t: dict[str, t])  # type: ignore[valid-type]
        | inner.map(lambda t: tuple[t, ...])  # type: ignore[valid-type]
        | st.tuples(inner, inner).map(lambda p: tuple[p])  # type: ignore[valid-type]
        | inner.map(lambda t: t | None)
        | inner.map(lambda t: Annotated[t, "a note"])
    ),
    max_leaves=4,
)


@pytest.mark.long
@relaxed
@given(st.data())
def test_any_value_of_a_generated_annotation_survives(data: st.DataObject) -> None:
    annotation: Any = data.draw(ANNOTATIONS)
    value = data.draw(st.from_type(annotation))
    kind = typed(annotation)
    stored, refusal = outcome(lambda: kind.encode(value, "x"))
    if refusal is None:
        assert same(kind.decode(stored, "x"), value)
    else:
        # Strings with lone surrogates, and decimals that pydantic does not accept as numbers.
        assert isinstance(refusal, ValueRefused)
        assert refusal.fields["type"] in ("str", "Decimal")


class Junk:
    __slots__ = ()


GARBAGE_LEAVES = SCALARS | st.sampled_from(
    [Junk(), Junk, print, ..., NotImplemented, sys, 1j, range(2), bytearray(b"a"), Colour.RED, Level.LOW, Mood.CALM,
     Fact(text="a"), Part("a"), Point(1), "\ud800", "ok\udfff", memoryview(b"a"), OrderedDict(a=1), ValueError("a")]
)  # fmt: skip
GARBAGE = st.recursive(
    GARBAGE_LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4)
        | st.sets(st.sampled_from([1, "a", print, Colour.RED, (1, Junk()), "\udfff"]), max_size=2)
    ),
    max_leaves=15,
)


def follow(root: Any, path: str) -> Any:
    """Return the value at the path of a refusal."""
    return eval(f"root{path.removeprefix('x')}", {"root": root})


@relaxed
@given(GARBAGE)
def test_garbage_is_stored_faithfully_or_refused_with_a_path_that_leads_to_it(value: Any) -> None:
    for store in (encode, typed(Any).encode, typed(Any | None).encode):
        data, refusal = outcome(lambda store=store: store(value, "x"))  # type: ignore[misc]
        if refusal is None:
            assert same(decode(data), value)
            continue
        assert isinstance(refusal, ValueRefused)
        culprit, kind = follow(value, refusal.path), refusal.fields["type"]
        inside = isinstance(culprit, set | dict) and f" of the {type(culprit).__qualname__}: " in refusal.message
        assert inside or type(culprit).__qualname__ == kind
        assert refusal.message.startswith(f"{refusal.path}: {kind} ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "$x", "$set", "$map", "$tuple", "$datetime", "$int", "$path"]), inner, max_size=2
        )
    ),
    max_leaves=10,
)


@relaxed
@given(JSON)
def test_whatever_is_stored_is_read_as_data_or_called_damaged(value: Any) -> None:
    data = json.dumps(value, ensure_ascii=False).encode()
    found, error = outcome(lambda: decode(data))
    assert error is None or isinstance(error, DamagedRecord)
    assert not isinstance(found, ModuleType)
    assert not callable(found)


@given(st.binary(max_size=40))
def test_random_bytes_never_break_the_reader(data: bytes) -> None:
    _, error = outcome(lambda: decode(data))
    assert error is None or isinstance(error, DamagedRecord)


class Watch:
    """Notes what the interpreter executes or imports. An audit hook cannot be removed, so it is switched on and off."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and event in ("exec", "compile", "import", "pickle.find_class", "subprocess.Popen", "os.system"):
            self.seen.append(f"{event} {arguments[0]}")


WATCH = Watch()


@pytest.mark.long
@relaxed
@given(VALUES | JSON)
def test_reading_never_executes_compiles_or_imports_anything(value: Any) -> None:
    data = [encode(value, "x")]
    if isinstance(value, dict | list):
        data.append(json.dumps(value, default=str, skipkeys=True).encode(errors="replace"))
    decode(encode(datetime(2024, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")), "x"))  # loads the time zone
    for each in data:
        WATCH.on = True
        try:
            outcome(lambda each=each: decode(each))  # type: ignore[misc]
        finally:
            WATCH.on = False
    assert [seen for seen in WATCH.seen if not seen.startswith(("import zoneinfo", "import tzdata"))] == []
