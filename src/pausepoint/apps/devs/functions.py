"""Find the Python functions that tasks name, in the workspace or in installed packages, and check their arguments."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_type_hints

from pausepoint.apps.devs.models import Todo
from pausepoint.apps.input import BadInput
from pausepoint.apps.words import display_line
from pausepoint.errors import did_you_mean, error_text


class ModuleMissing(BadInput):
    """There is no such module. Another task may create it first."""


def load(name: str, workspace: Path) -> Callable[..., Any]:
    """Return the function ``module:function``. Raises `BadInput`."""
    module, _, path = name.partition(":")
    found: Any = _imported(module, workspace)
    for part in path.split("."):
        known = found
        found = getattr(known, part, None)
        if found is None:
            near = did_you_mean(part, [each for each in vars(known) if not each.startswith("_")])
            raise BadInput(f"{module} has no function {path!r}{near}")
    if not callable(found):
        raise BadInput(f"{name} is {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def _imported(module: str, workspace: Path) -> Any:
    """Import a module. The workspace comes first now and last later, so that its files do not shadow other modules."""
    place = str(workspace)
    with suppress(ValueError):
        sys.path.remove(place)
    sys.path.insert(0, place)
    importlib.invalidate_caches()  # a task may have written the module a moment ago
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise ModuleMissing(f"there is no module {module!r} in {workspace} or among the installed ones") from None
        raise BadInput(f"{module} cannot be imported: {error_text(error)}") from None
    except Exception as error:
        reason = f"{type(error).__name__}: {display_line(error_text(error))}"
        raise BadInput(f"{module} cannot be imported: {reason}") from None
    finally:
        sys.path.remove(place)
        sys.path.append(place)


def mistakes(todo: Todo, workspace: Path) -> Iterator[tuple[str, str]]:
    """Yield the mistakes of a task with a function, each with its key in the plan."""
    assert todo.python is not None
    try:
        function = load(todo.python, workspace)
    except ModuleMissing as missing:
        if not todo.needs:
            yield "python", str(missing)
        return
    except BadInput as wrong:
        yield "python", str(wrong)
        return
    try:
        context = _context_of(function)
        signature = inspect.signature(function)
        signature.bind(**todo.arguments, **({} if context is None else {context: None}))
    except TypeError as error:
        yield "arguments", f"arguments: {todo.python} does not accept them: {error}"
    except (ValueError, NameError):  # a built-in without a signature, or an annotation that cannot be resolved
        return


def _context_of(function: Callable[..., Any]) -> str | None:
    """Return the name of the parameter that receives the context."""
    with suppress(NameError, TypeError):
        hints = get_type_hints(function)
        return next((name for name, hint in hints.items() if getattr(hint, "__pausepoint_context__", None)), None)
    return None
