"""Load a workflow from a target: ``brief.py``, ``brief.py:brief`` or ``package.module:brief``.

Only targets that a person named are imported: as an argument, with ``--target`` or in
``[tool.pausepoint]``. Nothing that comes from a store is ever imported.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pausepoint.cli.exits import USAGE, Refused
from pausepoint.cli.host import host
from pausepoint.cli.project import Project
from pausepoint.errors import did_you_mean

if TYPE_CHECKING:
    from pausepoint.definition.workflow import Workflow


def load(target: str, project: Project) -> Workflow[Any]:
    """Return the workflow that a target names."""
    place, _, name = target.partition(":") if not _is_windows(target) else (target, "", "")
    module = _module(place, target, project)
    found = _workflows(module)
    if name:
        if name not in found:
            raise Refused(f"{place} has no workflow {name!r}{did_you_mean(name, found)}", USAGE)
        return found[name]
    found = _own(module, found) or found
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise Refused(f"{place} defines no workflow. Name a file or module that contains a Workflow.", USAGE)
    some = ", ".join(f"{place}:{each}" for each in found)
    raise Refused(f"{place} defines several workflows. Name one of them: {some}", USAGE)


def load_known(project: Project, targets: tuple[str, ...] = ()) -> dict[str, tuple[str, Workflow[Any]]]:
    """Return the workflows of the project and of ``--target``: name → target and workflow.

    In a program with its own workflows, return those only.
    """
    found = {name: (name, workflow) for name, workflow in host().workflows_by_name.items()}
    if found:
        return found
    for target in (*project.targets.values(), *targets):
        workflow = load(target, project)
        found[workflow.name] = (target, workflow)
    return found


def load_named(text: str, project: Project) -> tuple[str, Workflow[Any]]:
    """Return the target and workflow that a person names: by target, or by name in the project or this program."""
    known = host().workflows_by_name
    if not known:
        target = project.targets.get(text, text)
        _search(project.root)
        if target == text and text.isidentifier() and importlib.util.find_spec(text) is None:
            raise Refused(f"{text!r} is not a file or a workflow of this project{_nearest(text, project)}", USAGE)
        return target, load(target, project)
    if text not in known:
        raise Refused(f"This program has no workflow {text!r}{did_you_mean(text, known)}", USAGE)
    return text, known[text]


def _nearest(text: str, project: Project) -> str:
    files = [each.name for each in sorted(project.root.glob("*.py"))[:50]]
    return did_you_mean(text, [*project.targets, *files])


def _is_windows(target: str) -> bool:
    return len(target) > 1 and target[1] == ":" and target[0].isalpha() and target[2:3] in ("\\", "/")


def _module(place: str, target: str, project: Project) -> ModuleType:
    try:
        return _from_file(place, project) if place.endswith(".py") else _from_name(place, project)
    except Refused:
        raise
    except ModuleNotFoundError as error:
        raise Refused(
            f"{target} cannot be imported: {error}. Run the command in the project's folder, or install the package.",
            USAGE,
        ) from error
    except (Exception, SystemExit) as error:  # a program that has no `if __name__ == "__main__"`
        raise Refused(
            f"{target} cannot be imported. Fix this error first: {type(error).__name__}: {error}", USAGE
        ) from error


def _from_file(place: str, project: Project) -> ModuleType:
    given = Path(place).expanduser()
    path = next((each for each in (given, project.root / given) if each.is_file()), None)
    if path is None:
        files = [str(given.with_name(each.name)) for each in sorted(given.parent.glob("*.py"))[:50]]
        raise Refused(f"There is no file {place}{did_you_mean(place, files)}", USAGE)
    path = path.resolve()
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    _search(path.parent)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Refused(f"{place} is not a Python file. Name a .py file that contains a Workflow.", USAGE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(path.stem, None)  # the next call must not take half a module for the whole
        raise
    return module


def _from_name(place: str, project: Project) -> ModuleType:
    _search(project.root)
    return importlib.import_module(place)


def _search(folder: Path) -> None:
    """Make the modules of a folder importable, as they are when Python runs a file in it."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _own(module: ModuleType, found: dict[str, Workflow[Any]]) -> dict[str, Workflow[Any]]:
    """Return the workflows that a module defines itself, without those that it imports."""
    try:
        tree = ast.parse(Path(module.__file__ or "").read_bytes())
    except (OSError, SyntaxError, ValueError):
        return found
    imports = (each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom))
    imported = {alias.asname or alias.name for each in imports for alias in each.names}
    return {name: workflow for name, workflow in found.items() if name not in imported}


def _workflows(module: ModuleType) -> dict[str, Workflow[Any]]:
    from pausepoint.definition.workflow import Workflow

    return {name: value for name, value in vars(module).items() if isinstance(value, Workflow)}
