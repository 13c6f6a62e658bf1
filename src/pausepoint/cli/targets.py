"""From ``brief.py``, ``brief.py:brief`` or ``package.module:brief`` to a workflow.

Only what a person named is imported, as an argument, with ``--target`` or in
``[tool.pausepoint]``. Never anything that was found in a store.
"""

from __future__ import annotations

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
    """The one workflow that a target names."""
    place, _, name = target.partition(":") if not _is_windows(target) else (target, "", "")
    found = _workflows(_module(place, target, project))
    if name:
        if name not in found:
            raise Refused(f"{target}: {place} has no workflow {name!r}{did_you_mean(name, found)}", USAGE)
        return found[name]
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise Refused(f"{target}: {place} makes no Workflow", USAGE)
    some = ", ".join(f"{place}:{each}" for each in found)
    raise Refused(f"{target}: {place} makes several workflows; name one of {some}", USAGE)


def load_known(project: Project, targets: tuple[str, ...] = ()) -> dict[str, tuple[str, Workflow[Any]]]:
    """All workflows that were named, by ``--target`` or in the project: name → target and workflow.

    A program that brings its workflows along has those and no others.
    """
    found = {name: (name, workflow) for name, workflow in host().brought.items()}
    if found:
        return found
    for target in (*project.targets.values(), *targets):
        workflow = load(target, project)
        found[workflow.name] = (target, workflow)
    return found


def load_named(text: str, project: Project) -> tuple[str, Workflow[Any]]:
    """What a person means by a target, or by the name of a workflow of the project or of this program."""
    brought = host().brought
    if not brought:
        target = project.targets.get(text, text)
        _search(project.root)
        if target == text and text.isidentifier() and importlib.util.find_spec(text) is None:
            raise Refused(f"{text} is neither a file nor a workflow of the project{_perhaps(text, project)}", USAGE)
        return target, load(target, project)
    if text not in brought:
        raise Refused(f"no workflow {text!r} is here{did_you_mean(text, brought)}", USAGE)
    return text, brought[text]


def _perhaps(text: str, project: Project) -> str:
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
        raise Refused(f"{target}: {error}; run it from the project's folder, or install the package", USAGE) from error
    except Exception as error:
        raise Refused(f"{target} cannot be imported: {type(error).__name__}: {error}", USAGE) from error


def _from_file(place: str, project: Project) -> ModuleType:
    given = Path(place).expanduser()
    path = next((each for each in (given, project.root / given) if each.is_file()), None)
    if path is None:
        files = [str(given.with_name(each.name)) for each in sorted(given.parent.glob("*.py"))[:50]]
        raise Refused(f"there is no file {place}{did_you_mean(place, files)}", USAGE)
    path = path.resolve()
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    _search(path.parent)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Refused(f"{place} is no Python file", USAGE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _from_name(place: str, project: Project) -> ModuleType:
    _search(project.root)
    return importlib.import_module(place)


def _search(folder: Path) -> None:
    """Modules beside the file, or in the project, can be imported, as when the file is run by Python itself."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _workflows(module: ModuleType) -> dict[str, Workflow[Any]]:
    from pausepoint.definition.workflow import Workflow

    return {name: value for name, value in vars(module).items() if isinstance(value, Workflow)}
