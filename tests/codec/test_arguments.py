"""What the log keeps of an operation's arguments: the same fingerprint as ever, no secrets, and little room."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from pausepoint.codec.arguments import BEGINNING, MOST, NOT_RECORDED, ROOM, Arguments, arguments_of
from pausepoint.codec.values import fingerprint
from pausepoint.codec.walk import decode_json
from pausepoint.errors import ValueRefused

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.datetimes()
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner),
    max_leaves=8,
)


class Order(BaseModel):
    item: str
    api_key: str = ""


@dataclass
class Login:
    user: str
    password: str | None


class Client:
    """Something that cannot be encoded."""


def recorded(**values: Any) -> dict[str, Any]:
    """Return the stored form of arguments."""
    stored: dict[str, Any] = decode_json(Arguments(values).stored())
    return stored


@pytest.mark.long
@given(st.lists(VALUES, max_size=3), st.dictionaries(st.text(max_size=4), VALUES, max_size=3), st.lists(VALUES))
def test_the_fingerprint_is_the_same_as_that_of_all_arguments_at_once(
    args: list[Any], kwargs: dict[str, Any], bound: list[Any]
) -> None:
    positional = {f"argument {number}": value for number, value in enumerate(args)}
    parts = (*bound, tuple(args), kwargs)
    arguments = Arguments({**positional, **kwargs})
    try:
        whole = fingerprint(*parts)
    except ValueRefused:
        with pytest.raises(ValueRefused):
            arguments.fingerprint(tuple(bound), tuple(args), kwargs)
    else:
        assert arguments.fingerprint(tuple(bound), tuple(args), kwargs) == whole


def test_plain_values_models_and_moments_can_be_read() -> None:
    assert recorded(n=5, text="é", when=datetime(2024, 2, 29), order=Order(item="tea")) == {
        "n": 5, "text": "é", "when": {"$datetime": "2024-02-29T00:00:00"},
        "order": {"$:Order": {"item": "tea", "api_key": {"$masked": True}}},
    }  # fmt: skip
    assert recorded() == {}
    assert arguments_of(NOT_RECORDED) is None


@pytest.mark.parametrize(
    "name", ["token", "accessToken", "PASSWORD", "db_password_2", "Authorization", "x-api-key", "OPENAI_API_KEY",
             "clientsecret", "Set-Cookie", "private_key", "oauth"],
)  # fmt: skip
def test_a_value_with_the_name_of_a_secret_is_masked_at_any_depth(name: str) -> None:
    hidden = {"$masked": True}
    assert recorded(**{name: "4711"}) == {name: hidden}
    assert recorded(headers=[{name: "4711", "n": 1}]) == {"headers": [{name: hidden, "n": 1}]}
    assert "4711" not in str(recorded(pairs={name: "4711", 1: 2, "$x": 3}))
    assert recorded(**{name: None}) == {name: None}
    assert "4711" not in str(recorded(text="x" * ROOM, **{name: "4711" * ROOM}))
    assert "4711" not in str(recorded(headers={name: "4711" * ROOM}))


@pytest.mark.parametrize("name", ["max_tokens", "tokens", "key", "author", "passenger", "secretary"])
def test_other_names_are_not_masked(name: str) -> None:
    assert recorded(**{name: 5}, nested={name: 6}) == {name: 5, "nested": {name: 6}}


def test_a_text_that_speaks_of_secrets_is_not_masked() -> None:
    text = 'the "password": "token" of {"api_key": 1}'
    assert recorded(text=text) == {"text": text}
    assert recorded(messages=[{"role": "user", "content": text}]) == {"messages": [{"role": "user", "content": text}]}


def test_secrets_in_dataclasses_are_masked() -> None:
    assert recorded(login=Login("ada", "4711")) == {
        "login": {"$:Login": {"user": "ada", "password": {"$masked": True}}}
    }
    assert recorded(login=Login("ada", None)) == {"login": {"$:Login": {"user": "ada", "password": None}}}


def test_what_cannot_be_stored_is_named_by_its_type() -> None:
    assert recorded(client=Client(), n=1) == {"client": {"$:Client": None}, "n": 1}
    assert recorded(clients=[Client(), 2]) == {"clients": [{"$:Client": None}, 2]}
    assert recorded(text="\ud800") == {"text": {"$:str": None}}
    assert Arguments({"client": Client(), "n": 1}).digests == ""


def test_the_largest_arguments_are_cut_and_the_others_kept() -> None:
    long = "é" * ROOM
    stored = recorded(messages=[long], model="large-2", depth=3)
    size, beginning = stored["messages"]["$cut"]
    assert (stored["model"], stored["depth"], size) == ("large-2", 3, 2 * ROOM + 4)
    assert beginning.startswith('["é')
    assert BEGINNING - len(beginning.encode()) in (0, 1)
    exactly = "x" * (ROOM - 2)
    assert recorded(text=exactly) == {"text": exactly}
    assert "$cut" in recorded(text=exactly + "x")["text"]


@given(st.dictionaries(st.text(max_size=5), st.text(alphabet='"\\ab', max_size=9000), max_size=40))
def test_arguments_take_little_room(values: dict[str, str]) -> None:
    assert len(bytes(Arguments(values).stored())) <= ROOM + 2 * ROOM + 60 * MOST


def test_many_arguments_are_stored_as_one_value() -> None:
    stored = recorded(**{f"n{number}": number for number in range(10_000)})
    assert len(stored) == MOST
    assert stored["n30"] == 30
    assert stored["and 9,969 more"]["$cut"][1].startswith("[31,32,")


def test_people_read_plain_values() -> None:
    values = {
        "day": datetime(2024, 2, 29), "pair": (1, (2,)), "parts": {3}, "rows": {1: "a", (2, 3): {4}},
        "named": {"$x": 5}, "order": Order(item="tea", api_key="4711"), "clients": [Client()],
        "text": "x" * ROOM,
    }  # fmt: skip
    assert arguments_of(Arguments(values).stored()) == {
        "day": "2024-02-29T00:00:00", "pair": [1, [2]], "parts": [3], "rows": [[1, "a"], [[2, 3], [4]]],
        "named": {"$x": 5}, "order": {"item": "tea", "api_key": "‹masked›"}, "clients": ["‹Client›"],
        "text": f"{'x' * (ROOM // 8 - 1)}… ‹4,098 bytes›",
    }  # fmt: skip
