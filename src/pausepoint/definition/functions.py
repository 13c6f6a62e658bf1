"""A function handed to `ctx.do` or `ctx.map`: its name, the type of its result, whether it wants a context."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, get_type_hints
from weakref import WeakKeyDictionary

from pausepoint.codec.values import Typed, typed
from pausepoint.errors import StepError

_known: WeakKeyDictionary[Any, Callee] = WeakKeyDictionary()


class Callee:
    """What has to be known about a function once."""

    __slots__ = ("context", "given", "is_async", "name", "result")

    def __init__(self, fn: Callable[..., Any], result: Any = None) -> None:
        plain, self.given = _plain(fn)
        hints = _hints(plain, needs_result=result is None)
        self.name: str = getattr(plain, "__qualname__", type(plain).__name__).rpartition("<locals>.")[2]
        self.result: Typed = typed(hints.get("return", Any) if result is None else result)
        self.is_async = inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(_called(plain))
        self.context: str | None = next(
            (name for name, hint in hints.items() if getattr(hint, "__pausepoint_context__", None)), None
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


def enclosed(fn: Any) -> dict[str, Any]:
    """The names that a nested function takes from where it was written, as far as they are assigned already."""
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
    except TypeError:  # nothing that has annotations
        return {}


def _one_by_one(routine: Any, known: dict[str, Any], needs_result: bool) -> Iterator[tuple[str, Any]]:
    """The annotations that can be resolved. Of the others those matter that say how the function is to be used."""

    def alone() -> None: ...

    for name, text in inspect.get_annotations(routine).items():
        alone.__annotations__ = {name: text}
        try:
            yield from get_type_hints(alone, routine.__globals__, known, include_extras=True).items()
        except NameError as exc:
            if needs_result if name == "return" else "Context" in str(text):
                what = "of its result" if name == "return" else f"of {name!r}"
                raise StepError(
                    f"{routine.__qualname__}: the annotation {what} names {exc.name!r}, which is not defined there;"
                    " import it outside of 'if TYPE_CHECKING:', or call it from a function of your own"
                ) from exc
