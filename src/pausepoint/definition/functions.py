"""Functions passed to `ctx.do` or `ctx.map`: their name, the type of their result, and whether they take a context."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import CodeType
from typing import Any, get_type_hints
from weakref import WeakKeyDictionary

from pausepoint.codec.values import Typed, typed
from pausepoint.errors import StepError

_known: WeakKeyDictionary[Any, Callee] = WeakKeyDictionary()


class Callee:
    """The facts about a function that operations need. They are found once and cached."""

    __slots__ = ("clash", "context", "given", "is_async", "name", "parameters", "result")

    def __init__(self, fn: Callable[..., Any], result: Any = None) -> None:
        plain, given = _plain(fn)
        self.given: tuple[Any, ...] = given
        self.clash: str | None = None  # see `clash_of`; not known yet
        hints = _hints(plain, needs_result=result is None)
        self.name: str = getattr(plain, "__qualname__", type(plain).__name__).rpartition("<locals>.")[2]
        self.parameters: tuple[str, ...] = _positional(plain)
        self.result: Typed = typed(hints.get("return", Any) if result is None else result)
        self.is_async: bool = inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(_called(plain))
        self.context: str | None = next(
            (name for name, hint in hints.items() if getattr(hint, "__pausepoint_context__", None)), None
        )


def callee(fn: Callable[..., Any], result: Any = None) -> Callee:
    """Return the facts about a function. ``result`` is the type of its result, if the annotation must not be used."""
    if not callable(fn):
        raise StepError(
            f"Expected a function, not {type(fn).__name__}. Pass the function and its arguments separately:"
            " ctx.do(fn, argument)."
        )
    try:
        found = _known.get(fn)
    except TypeError:  # not hashable or not weakly referable, so it cannot be cached
        return Callee(fn, result)
    if found is None:
        found = _known[fn] = Callee(fn, result)
    return found


def clash_of(what: Callee, fn: Callable[..., Any]) -> str:
    """Return which option of an operation is also a parameter of its function that is not bound yet; empty if none."""
    if what.clash is None:
        bound = {name for keywords in what.given[1::2] for name in keywords}
        try:
            own = {*inspect.signature(fn).parameters} - bound
        except (TypeError, ValueError):  # a built-in function without a signature
            own = set()
        what.clash = next((name for name in ("retry", "timeout") if name in own), "")
    return what.clash


def named(what: Callee, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by the names of their parameters, as far as these are known."""
    if what.given:
        bound = list(zip(what.given[::2], what.given[1::2], strict=True))[::-1]  # the innermost `partial` first
        args = (*(value for values, _ in bound for value in values), *args)
        kwargs = {name: value for _, words in bound for name, value in words.items()} | kwargs
    names = [*what.parameters, *(f"argument {n}" for n in range(len(what.parameters) + 1, len(args) + 1))]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function without ``@durable``, because the caller already runs it as an operation."""
    return getattr(fn, "__pausepoint_plain__", fn)


def _plain(fn: Callable[..., Any]) -> tuple[Any, tuple[Any, ...]]:
    """Return the function itself and the arguments bound by `functools.partial`, which are input as well."""
    given: list[Any] = []
    while isinstance(fn, functools.partial):
        given += [fn.args, fn.keywords]
        fn = fn.func
    return fn, tuple(given)


def _positional(fn: Any) -> tuple[str, ...]:
    """Return the names of the parameters that a call may pass by position; empty if they are not known."""
    routine = inspect.unwrap(fn if inspect.isroutine(fn) else _called(fn))
    code = getattr(routine, "__code__", None)
    names: tuple[str, ...] = () if code is None else code.co_varnames[: code.co_argcount]
    return names[1:] if inspect.ismethod(fn) or not inspect.isroutine(fn) else names


def _called(fn: Any) -> Any:
    """Return the function that runs when an object is called."""
    return type(fn).__call__ if callable(fn) else fn


def enclosed(fn: Any) -> dict[str, Any]:
    """Return the variables that a nested function takes from its enclosing scope, if they are already assigned."""
    known: dict[str, Any] = {}
    names = getattr(getattr(fn, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(fn, "__closure__", None) or (), strict=False):
        with suppress(ValueError):
            known[name] = cell.cell_contents
    return known


def _hints(fn: Any, needs_result: bool) -> dict[str, Any]:
    routine = inspect.unwrap(fn if inspect.isroutine(fn) else _called(fn))
    known = enclosed(routine)
    try:
        return get_type_hints(routine, localns=known or None, include_extras=True)
    except NameError:
        return dict(_one_by_one(routine, known, needs_result))
    except TypeError:  # an object without annotations
        return {}


def _one_by_one(routine: Any, known: dict[str, Any], needs_result: bool) -> Iterator[tuple[str, Any]]:
    """Yield the annotations that can be resolved. An unresolved result or context annotation raises `StepError`."""

    def alone() -> None: ...

    for name, text in inspect.get_annotations(routine).items():
        alone.__annotations__ = {name: text}
        try:
            yield from get_type_hints(alone, routine.__globals__, known, include_extras=True).items()
        except NameError as exc:
            if needs_result if name == "return" else "Context" in str(text):
                what = "the result" if name == "return" else f"parameter {name!r}"
                raise StepError(
                    f"Function {routine.__qualname__!r}: the annotation of {what} uses {exc.name!r}, which is not"
                    " defined in its module. Import it outside of 'if TYPE_CHECKING:', or pass a function of your own."
                ) from exc


def emitted(fn: Any, context: str) -> list[str]:
    """Return the event types that a step certainly names: those written as text in ``context.emit("type", …)``.

    Other names are known only when the step runs. If the source is missing, or does not belong to the code, none are
    certain.
    """
    code = getattr(inspect.unwrap(fn), "__code__", None)
    constants = set(_constants(code)) if isinstance(code, CodeType) else set()
    if "emit" not in constants:
        return []
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(fn))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return []
    nodes = list(_inside(body, context))
    if any(isinstance(node, ast.Name) and node.id == context and not isinstance(node.ctx, ast.Load) for node in nodes):
        return []  # the name is given to another object
    names = [name for node in nodes if isinstance(node, ast.Call) for name in _event_type(node, context)]
    return [name for name in dict.fromkeys(names) if name in constants]


def _constants(code: CodeType) -> Iterator[str]:
    """Yield the attributes and texts that a function uses, also in the functions inside."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _constants(constant)
        elif isinstance(constant, str):
            yield constant


def _inside(node: ast.AST, context: str) -> Iterator[ast.AST]:
    """Yield the parts of a function, without the functions inside that have a parameter of this name themselves."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            parameters = [each.arg for each in ast.walk(part.args) if isinstance(each, ast.arg)]
            if context in parameters:
                continue
        yield part
        yield from _inside(part, context)


def _event_type(call: ast.Call, context: str) -> Iterator[str]:
    match call:
        case (
            ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="emit"), args=[ast.Constant(value=str(text)), *_])
            | ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="emit"),
                args=[],
                keywords=[ast.keyword(arg="event_type", value=ast.Constant(value=str(text))), *_],
            )
        ) if name == context:
            yield text
