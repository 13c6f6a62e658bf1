"""Fingerprints are equal for equal values in every process, and differ for different values."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import HttpUrl

from pausepoint.codec.values import Limits, fingerprint
from pausepoint.errors import OversizedValue, ValueRefused
from tests.codec.cases import Cited, Colour, Fact, Level, Part, Point, bomb, changed, deep, node_loop

PRINTS: list[Any] = [
    None, 0, 0.0, -0.0, False, "", "0", b"", [], (), {}, set(), frozenset(), [0], (0,), {0}, {"a": 0}, {0: "a"},
    [[], []], [[[]]],
    date(2024, 1, 1), datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC), Decimal("1.0"), Decimal("1.00"),
    Colour.RED, Colour.BLUE, Level.LOW, Fact(text="a"), Fact(text="b"), Cited(text="a"), Part("a"), Part("a", [1]),
    Point(0),
    {"$set": [0]}, {"text": "a", "source": None}, Path("a"), "a", 2**64, float("nan"), float("inf"),
    HttpUrl("https://a.b/"),
]  # fmt: skip


def test_fingerprints_of_different_values_differ() -> None:
    prints = [fingerprint(value) for value in PRINTS]
    assert len(set(prints)) == len(PRINTS)
    assert fingerprint() != fingerprint(None)
    assert fingerprint("a", "b") != fingerprint(["a", "b"])


SUBCLASSED: list[tuple[Any, ...]] = [
    (datetime, 2024, 10, 27, 2, 30), (date, 2024, 1, 1), (time, 1, 2, 3), (timedelta, 1, 2, 3),
    (UUID, str(UUID(int=3))), (Decimal, "1.10"), (str, "a"), (int, 5), (float, 1.5), (bytes, b"a"), (list, [1]),
    (dict, {"a": 1}),
    (tuple, (1, 2)), (set, {1}),
]  # fmt: skip


@pytest.mark.parametrize("made", SUBCLASSED, ids=lambda made: made[0].__name__)
def test_a_value_of_a_subclass_has_the_fingerprint_of_its_base(made: tuple[Any, ...]) -> None:
    base, *arguments = made
    value = type(f"My{base.__name__}", (base,), {})(*arguments)
    assert fingerprint([value]) == fingerprint([base(*arguments)])


def test_a_struct_has_a_fingerprint_by_its_content() -> None:
    assert fingerprint(Limits(depth=3)) == fingerprint(Limits(depth=3)) != fingerprint(Limits(depth=4))


@pytest.mark.long
def test_fingerprints_do_not_depend_on_order_or_process() -> None:
    value = "{'b': {3, 1, 2}, 'a': {'y': frozenset({'q', 'p', 'r'}), 2: 1, 'x': 1.5}}"
    turned = {"a": {"x": 1.5, 2: 1, "y": frozenset({"r", "p", "q"})}, "b": {2, 1, 3}}
    script = f"from pausepoint.codec.values import fingerprint; print(fingerprint({value}, None).hex())"
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
        )
        assert done.stdout.strip() == fingerprint(turned, None).hex()


@pytest.mark.long
def test_a_fingerprint_of_code_or_of_something_endless_is_refused_with_its_path() -> None:
    with pytest.raises(ValueRefused, match=r"^input\[1\]\['f'\]: function cannot"):
        fingerprint(1, {"f": lambda: 1})
    with pytest.raises(ValueRefused, match=r"^input\[0\]\.text: object cannot"):
        fingerprint(changed(Fact(text="a"), text=object()))
    with pytest.raises(ValueRefused, match="contains itself"):
        fingerprint(node_loop())
    with pytest.raises(ValueRefused, match="lone surrogate"):
        fingerprint({"\ud800"})
    for endless in (deep(100_000), bomb()):
        with pytest.raises(OversizedValue):
            fingerprint(endless)
