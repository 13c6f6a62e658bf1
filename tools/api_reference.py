"""Write docs/api.md from the public names of the package: their signatures and docstrings.

    python -m tools.api_reference

A test fails while the page differs from what this script would write.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from enum import EnumType
from pathlib import Path
from typing import Any, get_overloads

import pausepoint
from pausepoint.engine.limits import StoreLimits
from pausepoint.engine.remembered import RequestKeys
from pausepoint.engine.schedules import StoreSchedules
from pausepoint.errors import PausepointError

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"
WIDTH = 100
GROUPS = {
    "Define a workflow": (
        "workflow", "Workflow", "step", "route", "guard", "migrate", "Scope", "Append", "Merge", "Replace", "Retry",
        "Rate", "Artifact",
    ),
    "Inside a step": ("Context", "BlockingContext", "current", "durable", "collect", "Tool"),
    "Run and control sessions": ("Engine", "Session", "run", "program", "Budget", "Limit"),
    "What calls return": ("Outcome", "Status", "Question", "File"),
}  # fmt: skip
"""The names by purpose. The errors follow."""

PARTS = {"Engine": (StoreSchedules, StoreLimits, RequestKeys)}
"""The classes of a class's properties. They are listed after it, and nobody imports them."""

SAME = {"BlockingContext": "Context"}
"""A class with the same members as another one: they are listed once."""

GIVEN = {"Context", "BlockingContext", "Session", *(each.__name__ for classes in PARTS.values() for each in classes)}
"""Classes whose instances people get, and do not make."""

HEAD = """\
# The Python API

The names that `from pausepoint import …` offers, with their signatures and docstrings. The [guide](guide.md) explains
how they work together. `with Engine(…) as engine:` has the same verbs without `await`: [blocking code](blocking.md).
This page is written by `python -m tools.api_reference`.
"""


def render() -> str:
    """Return the whole page."""
    errors = sorted(name for name in pausepoint.__all__ if _is_error(getattr(pausepoint, name)))
    groups = GROUPS | {"Errors": (*errors,)}
    listed = [name for names in groups.values() for name in names]
    if sorted(listed) != sorted(pausepoint.__all__):
        different = set(listed) ^ set(pausepoint.__all__)
        raise ValueError(f"GROUPS of tools/api_reference.py must name every public name once. Different: {different}")
    parts = [HEAD]
    for title, names in groups.items():
        parts.append(f"## {title}")
        if title == "Errors":
            parts.append("All are subclasses of `PausepointError`. [Errors](errors.md) says what to do about each one.")
        for name in names:
            shown = getattr(pausepoint, name), *PARTS.get(name, ())
            parts += [part for each in shown for part in _of(getattr(each, "__name__", name), each)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _of(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}"
    if _is_error(value):
        base = value.__mro__[1].__name__
        yield text(value) + ("" if value is PausepointError else f" A subclass of `{base}`.")
    elif inspect.isfunction(value):
        yield _block(signatures(value, name))
        yield text(value)
    elif isinstance(value, type):
        yield from _class(name, value)
    else:
        yield text(value)


def _class(name: str, value: type) -> Iterator[str]:
    opened = _constructor(name, value)
    if opened:
        yield _block([opened])
    yield text(value)
    if name in SAME:
        yield f"It has the members of [`{SAME[name]}`](#{SAME[name].lower()})."
        return
    fields = list(_fields(value))
    if fields:
        yield "\n".join(fields)
    for each in sorted(each for each in dir(value) if not each.startswith("_")):
        yield from _member(name, each, inspect.getattr_static(value, each), value)


def _constructor(name: str, value: type) -> str:
    """Return how an instance is made, if people make instances by calling the class."""
    made = inspect.getattr_static(value, "__init__")
    if name in GIVEN or not inspect.isfunction(made) or isinstance(value, EnumType):
        return ""
    if not made.__module__.startswith("pausepoint") or made.__qualname__.split(".")[0] not in _names(value):
        return ""
    try:
        [shown] = signatures(made, name)
    except (OSError, TypeError):  # written by dataclass: the fields below say it
        return ""
    return shown.removesuffix(" -> None")


def _names(value: type) -> set[str]:
    return {each.__name__ for each in value.__mro__}


def _fields(value: type) -> Iterator[str]:
    """Yield the attributes that a class and its bases declare, with the strings below them."""
    if isinstance(value, EnumType):
        members: dict[str, Any] = dict(value.__members__)
        yield from (f"- `{each.value}`" for each in members.values())
        return
    seen: set[str] = set()
    for base in value.__mro__:
        if not base.__module__.startswith("pausepoint"):
            continue
        body = _parsed(base).body
        assert isinstance(body[0], ast.ClassDef)
        for line, after in zip(body[0].body, [*body[0].body[1:], None], strict=True):
            if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
                continue
            name = line.target.id
            if name.startswith("_") or name in seen or "ClassVar" in ast.unparse(line.annotation):
                continue
            seen.add(name)
            default = "" if line.value is None else _default(line.value)
            yield f"- `{name}: {ast.unparse(line.annotation)}{default}`{_below(after)}"


def _default(value: ast.expr) -> str:
    shown = ast.unparse(value)
    return "" if "field(" in shown.lower() or len(shown) > 40 else f" = {shown}"


def _below(line: ast.stmt | None) -> str:
    """Return the description of an attribute: the string on the line below it."""
    if isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str):
        return ": " + _plain(" ".join(inspect.cleandoc(line.value.value).split("\n\n")[0].split()))
    return ""


def _member(owner: str, name: str, value: Any, cls: type) -> Iterator[str]:
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, property) and value.fget is not None and value.fget.__module__.startswith("pausepoint"):
        kind = _returns(value.fget)
        yield f"#### {owner}.{name}\n\n{_block([name + (f': {kind}' if kind else '')])}\n\n{text(value)}"
    elif inspect.isfunction(value) and value.__module__.startswith("pausepoint"):
        yield f"#### {owner}.{name}\n\n{_block(signatures(value, name))}\n\n{text(getattr(cls, name))}"


def _returns(function: Any) -> str:
    node = _function(function)
    return ast.unparse(node.returns) if node.returns else ""


def _parsed(value: Any) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(value)))


def _function(function: Any) -> ast.FunctionDef | ast.AsyncFunctionDef:
    node = _parsed(inspect.unwrap(function)).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef), function
    return node


def signatures(function: Any, name: str) -> list[str]:
    """Return the signatures of a function as in its source: the overloads, or the function itself."""
    return [_signature(_function(each), name) for each in get_overloads(function) or [function]]


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
    parameters = [part for part in _parameters(node.args) if part.partition(":")[0] not in ("self", "cls")]
    if parameters[:1] == ["/"]:
        del parameters[0]
    start = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    end = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{start}{name}({', '.join(parameters)}){end}"
    if len(line) <= WIDTH:
        return line
    return f"{start}{name}(\n" + "".join(f"    {part},\n" for part in parameters) + f"){end}"


def _parameters(found: ast.arguments) -> Iterator[str]:
    plain = [*found.posonlyargs, *found.args]
    defaults = [None] * (len(plain) - len(found.defaults)) + [*found.defaults]
    for number, (parameter, default) in enumerate(zip(plain, defaults, strict=True), 1):
        yield _parameter(parameter, default)
        if number == len(found.posonlyargs):
            yield "/"
    if found.vararg:
        yield f"*{_parameter(found.vararg, None)}"
    elif found.kwonlyargs:
        yield "*"
    for parameter, default in zip(found.kwonlyargs, found.kw_defaults, strict=True):
        yield _parameter(parameter, default)
    if found.kwarg:
        yield f"**{_parameter(found.kwarg, None)}"


def _parameter(parameter: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(parameter.annotation)}" if parameter.annotation else ""
    if default is None:
        return parameter.arg + kind
    shown = ast.unparse(default)
    return f"{parameter.arg}{kind}{' = ' if kind else '='}{'…' if shown.startswith('_') else shown}"


def text(value: Any) -> str:
    """Return the docstring as Markdown."""
    parts = re.split(r"\n\n+", _plain(inspect.getdoc(value) or ""))
    return "\n\n".join(f"```pycon\n{part}\n```" if part.lstrip().startswith(">>>") else part for part in parts)


def _plain(text: str) -> str:
    return text.replace("``", "`").replace("::\n", ":\n")


def _block(lines: list[str]) -> str:
    return "```py\n" + "\n".join(lines) + "\n```"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
