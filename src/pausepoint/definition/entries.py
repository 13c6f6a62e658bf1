"""Checks of the entries in the lists of a workflow: what does not belong there, and which migrations are missing."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

from pausepoint.definition.binding import Problems
from pausepoint.definition.steps import Guard, Migration, Route, Step


def misplaced(each: Any, role: str, decorator: str) -> str:
    """Describe an entry in the wrong list."""
    if isinstance(each, Step | Route | Guard | Migration):
        return f"{each.role} {each.name!r} is listed in {role}s=. Move it to {each.role}s=[{each.name}]."
    what = f"function {each.__name__!r}" if isinstance(each, FunctionType) else repr(each)
    return f"{what} in {role}s= is not a {role}. Decorate it with {decorator}."


def checked_migrations(migrations: Any, version: object, problems: Problems) -> dict[int, Migration[..., Any]]:
    """Return the migrations by the version that they start from. Report duplicates, and gaps up to the version."""
    found: dict[int, Migration[..., Any]] = {}
    for each in [migrations] if isinstance(migrations, Migration) else migrations:
        if not isinstance(each, Migration):
            problems.add(misplaced(each, "migration", "@migrate(from_version=...)"))
        elif each.from_version in found:
            other, source = found[each.from_version].name, each.from_version
            problems.add(
                f"migrations {other!r} and {each.name!r} both start from version {source}. Merge them into one."
            )
        else:
            found[each.from_version] = each
    if type(version) is int:
        _check_chain(found, version, problems)
    return found


def _check_chain(migrations: Mapping[int, Migration[..., Any]], version: int, problems: Problems) -> None:
    for source, each in migrations.items():
        if source >= version:
            problems.at(f"migration {each.name!r}").add(
                f"the migration leads from version {source} to {source + 1}, but the workflow is version {version}."
                f" Set version={source + 1}, or remove the migration."
            )
    for source in range(min(migrations, default=version), version):
        if source not in migrations:
            problems.add(
                f"no migration leads from version {source} to {source + 1}."
                f" Add one with @migrate(from_version={source})."
            )
