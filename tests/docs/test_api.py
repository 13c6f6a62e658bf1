"""The reference of the Python API is what the docstrings say."""

from __future__ import annotations

import inspect
import re
from typing import Any, overload

import pytest

import pausepoint
from pausepoint import Engine, Session
from tools import api_reference
from tools.api_reference import PAGE, PARTS, render, signatures, text


@pytest.mark.long
def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == render(), "docs/api.md is not up to date; run: python -m tools.api_reference"


@pytest.mark.long
def test_every_public_name_has_a_section_with_a_description() -> None:
    found = re.split(r"^### ", render(), flags=re.MULTILINE)[1:]
    described = {part.splitlines()[0]: part for part in found}
    parts = [part.__name__ for classes in PARTS.values() for part in classes]
    assert sorted(described) == sorted([*pausepoint.__all__, *parts])
    for name, part in described.items():
        prose = re.sub(r"```.*?```", "", part.partition("\n")[2].partition("####")[0], flags=re.DOTALL)
        assert len(prose.split()) >= 4, name


@pytest.mark.long
@pytest.mark.parametrize("cls", [Engine, Session])
def test_every_verb_is_listed(cls: type) -> None:
    listed = set(re.findall(rf"^#### {cls.__name__}\.(\w+)$", render(), re.MULTILINE))
    verbs = {name for name in dir(cls) if not name.startswith("_") and inspect.isfunction(getattr(cls, name))}
    assert len(verbs) > 20
    assert verbs <= listed


def test_a_new_public_name_must_be_put_into_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pausepoint, "__all__", [*pausepoint.__all__, "render"])
    monkeypatch.setattr(pausepoint, "render", render, raising=False)
    with pytest.raises(ValueError, match="render"):
        api_reference.render()


@overload
def shown(a: int, /) -> int: ...
@overload
def shown(*, b: str = "x") -> str: ...
def shown(a: Any = None, /, *, b: str = "x") -> Any:
    """Say ``a``.

    >>> 1 + 1
    2
    """
    return a or b


def plain(
    first: int, *rest: str, long_name_of_an_option: int | None = None, another_one: bool = False, **more: Any
) -> None:
    """Do nothing."""


def test_signatures_are_those_of_the_source() -> None:
    assert signatures(shown, "shown") == ["shown(a: int, /) -> int", "shown(*, b: str = 'x') -> str"]
    assert signatures(plain, "plain") == [
        "plain(\n    first: int,\n    *rest: str,\n    long_name_of_an_option: int | None = None,\n"
        "    another_one: bool = False,\n    **more: Any,\n) -> None"
    ]
    assert text(shown) == "Say `a`.\n\n```pycon\n>>> 1 + 1\n2\n```"
