"""A function handed to `ctx.do` or `ctx.map`: its name, the type of its result, whether it wants a context."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints
from weakref import WeakKeyDictionary

from holdfast.codec import Typed, typed
from holdfast.errors import StepError

_known: WeakKeyDictionary[Any, Callee] = WeakKeyDictionary()


class Callee:
    """What has to be known about a function once."""

    __slots__ = ("context", "given", "is_async", "name", "result")

    def __init__(self, fn: Callable[..., Any], result: Any = None) -> None:
        plain, self.given = _plain(fn)
        hints = _hints(plain)
        self.name: str = getattr(plain, "__qualname__", type(plain).__name__).rpartition("<locals>.")[2]
        self.result: Typed = typed(hints.get("return", Any) if result is None else result)
        self.is_async = inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(_called(plain))
        self.context: str | None = next(
            (name for name, hint in hints.items() if getattr(hint, "__holdfast_context__", None)), None
        )


def callee(fn: Callable[..., Any], result: Any = None) -> Callee:
    """Look at a function, once. ``result`` is the type of what it returns, where its annotation is not to be read."""
    if not callable(fn):
        raise StepError(
            f"a function is needed, not {type(fn).__name__}: pass it and its arguments apart, ctx.do(fn, argument)"
        )
    try:
        found = _known.get(fn)
    except TypeError:  # neither hashable nor weakly referable: look again each time
        return Callee(fn, result)
    if found is None:
        found = _known[fn] = Callee(fn, result)
    return found


def _plain(fn: Callable[..., Any]) -> tuple[Any, tuple[Any, ...]]:
    """The function itself, and what `functools.partial` has given it already: that is input as well."""
    given: list[Any] = []
    while isinstance(fn, functools.partial):
        given += [fn.args, fn.keywords]
        fn = fn.func
    return fn, tuple(given)


def _called(fn: Any) -> Any:
    """What runs when an object of a class of the user's is called."""
    return type(fn).__call__ if callable(fn) else fn


def _hints(fn: Any) -> dict[str, Any]:
    try:
        return get_type_hints(fn if inspect.isroutine(fn) else _called(fn), include_extras=True)
    except (NameError, TypeError):
        return {}
